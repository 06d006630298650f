// SPDX-License-Identifier: Apache-2.0
// Changes of the index tree's shape. Private to index.c and index_balance.c.
#pragma once

#include "store/index_node.h"

// The way from the root to a leaf: nodes[level], and which child of it was taken (level > 0).
struct index_path {
    struct index_node *nodes[INDEX_HEIGHT_MAX];
    u32 children[INDEX_HEIGHT_MAX];
};

// Inserts an entry at `slot` of the path's leaf, evening out or splitting pages as needed.
// ERR_NO_MEMORY: nothing changed.
enum err index_leaf_insert(struct index *ix, struct index_path *path, u32 slot,
                           const struct index_item *item) NODISCARD;
// After a removal: merges pages of the path that got too empty, from the leaf upwards.
void index_shrink(struct index *ix, struct index_path *path);
