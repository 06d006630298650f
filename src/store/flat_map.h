// SPDX-License-Identifier: Apache-2.0
// A hash table of fixed-size entries without pointers, for what a core knows by the millions. It is
// cut into parts that grow one at a time, so that no single insertion pays for rehashing it all.
// Owned by one core. A pointer to an entry lives until the next insertion or removal.
#pragma once

#include "base/err.h"
#include "base/types.h"

#define FLAT_MAP_PARTS 64

// Every entry begins with this; id 0 is never used: it marks an empty slot.
struct flat_key {
    u64 id;
    u32 sub;
};

struct flat_part {
    u8 *slots;
    u32 capacity; // a power of two, or 0
    u32 count;
};

struct flat_map {
    u32 entry_bytes;
    u64 count;
    struct flat_part parts[FLAT_MAP_PARTS];
};

void flat_map_init(struct flat_map *m, u32 entry_bytes);
void flat_map_deinit(struct flat_map *m);
void *flat_map_find(const struct flat_map *m, u64 id, u32 sub);
// The new entry, zero but for its key; NULL if the heap is exhausted. Must not exist yet.
void *flat_map_insert(struct flat_map *m, u64 id, u32 sub);
void flat_map_remove(struct flat_map *m, void *entry);
// Walks all entries: start with *state = 0; NULL at the end. The map must not change meanwhile.
void *flat_map_next(const struct flat_map *m, u64 *state);
size_t flat_map_memory_bytes(const struct flat_map *m);
