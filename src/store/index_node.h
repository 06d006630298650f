// SPDX-License-Identifier: Apache-2.0
// One 4 KiB page of the index tree, leaf or inner node, and the pool that pages come from. Private
// to index.c, index_node.c and index_pool.c.
//
// Layout: header | slots (sorted, growing up) | free | cells (growing down) | prefix. A slot has
// the first four bytes of its key's rest ("head") beside the cell's offset, so that a search seldom
// leaves the slots. A cell is a 16-bit tag (length of the rest, has-refs bit), a payload of fixed
// size (a packed value in a leaf, a child in an inner node), and the rest of the key.
//
// The prefix of a page is what its two fences have in common: every key that can ever be routed to
// the page starts with it, so an insertion never has to shorten it.
#pragma once

#include "base/assert.h"
#include "base/err.h"
#include "base/slice.h"
#include "store/index.h"

#define INDEX_HEADER_BYTES  24
#define INDEX_BODY_BYTES    (INDEX_PAGE_BYTES - INDEX_HEADER_BYTES)
#define INDEX_TAG_REFS      0x8000u
#define INDEX_TAG_LENGTH    0x07ffu
#define INDEX_LEAF_PAYLOAD  63
#define INDEX_REFS_PAYLOAD  71
#define INDEX_INNER_PAYLOAD 8
#define INDEX_CELL_OVERHEAD 8 // tag and slot
#define INDEX_HEIGHT_MAX    40
#define INDEX_ITEMS_MAX     520 // two pages of the smallest cells, and two more entries

struct __attribute__((packed)) index_slot {
    u32 head; // big-endian value of the rest's first bytes, zero-padded
    u16 offset;
};

struct index_node {
    u8 level;      // 0: leaf
    u8 append_run; // insertions at the end in a row, saturating: tells ascending writers
    u16 count;
    u16 prefix_bytes;
    u16 heap_start; // offset of the lowest cell
    u16 hole_bytes; // removed cells inside of the heap
    u16 unused[3];
    union {
        struct index_node *next;  // leaf: the following one
        struct index_node *first; // inner: the child left of slot 0
    };
    u8 body[INDEX_BODY_BYTES];
};

_Static_assert(sizeof(struct index_node) == INDEX_PAGE_BYTES, "a node is a page");
_Static_assert(offsetof(struct index_node, body) == INDEX_HEADER_BYTES, "header size");

// An entry outside of a page: its key is `prefix` followed by `rest`.
struct index_item {
    struct bytes prefix;
    struct bytes rest;
    const u8 *payload;
    u16 payload_bytes;
};

// Scratch space for moving entries between pages; too large for a fiber's stack.
struct index_scratch {
    struct index_node pages[2]; // copies of pages that are rebuilt
    struct index_node spare;
    struct index_item items[INDEX_ITEMS_MAX];
    u8 separators[2][STORE_KEY_BYTES_MAX];
    u8 children[2][INDEX_INNER_PAYLOAD];
    u8 low[STORE_KEY_BYTES_MAX];
    u8 high[STORE_KEY_BYTES_MAX];
};

static inline const struct index_slot *index_node_slots(const struct index_node *n)
{
    return (const struct index_slot *)n->body;
}

static inline const u8 *index_node_cell(const struct index_node *n, u32 slot)
{
    return (const u8 *)n + index_node_slots(n)[slot].offset;
}

static inline struct bytes index_node_prefix(const struct index_node *n)
{
    return BYTES((const u8 *)n + INDEX_PAGE_BYTES - n->prefix_bytes, n->prefix_bytes);
}

u32 index_node_payload_bytes(const struct index_node *n, u32 slot);
struct bytes index_node_rest(const struct index_node *n, u32 slot);
u8 *index_node_payload(struct index_node *n, u32 slot);
const u8 *index_node_payload_const(const struct index_node *n, u32 slot);
// Child i of an inner node stands at slot i - 1; child 0 is `first`.
struct index_node *index_node_child(const struct index_node *n, u32 child);

// The first slot whose key is >= `key` (a full key that belongs to the page), or count.
u32 index_node_lower_bound(const struct index_node *n, struct bytes key, bool *is_equal);
// Which child of an inner node covers `key`.
u32 index_node_child_of(const struct index_node *n, struct bytes key);

// Bytes that new cells and their slots can take, holes included.
u32 index_node_free_bytes(const struct index_node *n);
// What an entry takes in a page whose prefix has `prefix_bytes`.
u32 index_item_bytes(const struct index_item *item, u32 prefix_bytes);
// Puts an entry at `slot`; the page must have room for it. `spare` is overwritten.
void index_node_insert(struct index_node *n, u32 slot, const struct index_item *item,
                       struct index_node *spare);
void index_node_remove(struct index_node *n, u32 slot);

// Empties the page and fills it with items[0..count), which do not point into it.
void index_node_build(struct index_node *n, u8 level, struct bytes prefix,
                      const struct index_item *items, u32 count);
// Lists the page's entries as items; returns how many.
u32 index_node_gather(const struct index_node *n, struct index_item *items);
size_t index_item_key(const struct index_item *item, u8 out[STORE_KEY_BYTES_MAX]);
// How many leading bytes two items' keys share.
size_t index_item_common(const struct index_item *a, const struct index_item *b);

// NULL when the limit or the heap is exhausted.
struct index_node *index_pool_get(struct index_pool *pool);
void index_pool_put(struct index_pool *pool, struct index_node *n);
// True if `pages` calls of index_pool_get will succeed.
bool index_pool_ensure(struct index_pool *pool, u32 pages);
struct index_scratch *index_pool_scratch(struct index_pool *pool);

_Static_assert(INDEX_ITEMS_MAX >=
                   2 * (INDEX_BODY_BYTES / (INDEX_CELL_OVERHEAD + INDEX_INNER_PAYLOAD)) + 2,
               "the items of two pages fit");
