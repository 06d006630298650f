// SPDX-License-Identifier: Apache-2.0
// The index of one placement group: an ordered B+tree in memory from keys (opaque bytes, byte
// order) to a fixed value that says what LIST and HEAD need and where the record lies.
//
// Why it looks so: nothing is allocated per entry. Nodes are 4 KiB pages of a pool that all indexes
// of a core share; a leaf keeps the prefix that its key range has in common once, and each entry in
// one cell of the page. A full leaf first evens out with a neighbour and splits only when the
// neighbours are full too, so random insertion fills pages to four fifths; pages that got empty are
// merged and go back to the pool.
//
// Owned by one core. Nothing here waits, reads a clock or does I/O. No pointer into a page survives
// a change of the index; cursors do not either.
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "store/store.h"

#define INDEX_PAGE_BYTES ((size_t)4096)

#define INDEX_TOMBSTONE 0x01u // the newest record of the key is a delete
#define INDEX_HAS_REFS  0x02u // the record refers to extents; object_id is that of the first one

// Where a record lies on the drive of the PG.
struct index_location {
    u32 segment;
    u32 offset_units; // from the segment's start, in 8 bytes
    u32 bytes;
};

struct index_value {
    u8 summary[STORE_SUMMARY_BYTES];
    struct index_location location;
    u64 seq;       // of the record in its PG
    u64 object_id; // kept only with INDEX_HAS_REFS, else read back as 0
    u16 shadows;   // older records of the key that are still in some segment (the store's count)
    u8 flags;
};

// The pages of one core. The limit counts pages that are in use or reserved.
struct index_pool;
// NULL when the heap is exhausted. bytes_max 0: no limit.
struct index_pool *index_pool_create(size_t bytes_max);
// Every index must have been deinitialised.
void index_pool_destroy(struct index_pool *pool);
// Makes sure that the next `puts` index_put calls (on any indexes of the pool, in any order, with
// any removals between) cannot fail; else ERR_NO_MEMORY. A reservation is not kept: it holds until
// the next reservation or the puts are used up. To be called before a commit reaches the log.
enum err index_pool_reserve(struct index_pool *pool, u32 puts) NODISCARD;
// Bytes of pages in use, and taken from the heap.
size_t index_pool_used_bytes(const struct index_pool *pool);
size_t index_pool_heap_bytes(const struct index_pool *pool);

struct index_node;
struct index {
    u32 magic;
    u32 height; // levels; 0: no root yet
    struct index_pool *pool;
    struct index_node *root;
    u64 entries;    // tombstones included
    u64 tombstones; // entries that are tombstones
};

void index_init(struct index *ix, struct index_pool *pool);
void index_deinit(struct index *ix); // gives all pages back

// Keys without tombstones.
static inline u64 index_count(const struct index *ix)
{
    return ix->entries - ix->tombstones;
}

// False if the key has no entry. A tombstone is an entry: look at out->flags. `out` may be NULL.
bool index_find(const struct index *ix, struct bytes key, struct index_value *out);

// Inserts or replaces. *existed says which, and *old is the value that was replaced; both may be
// NULL. ERR_NO_MEMORY (never after a reservation): nothing changed.
// The key is at most STORE_KEY_BYTES_MAX bytes; the empty key is allowed.
enum err index_put(struct index *ix, struct bytes key, const struct index_value *value,
                   bool *existed, struct index_value *old) NODISCARD;

// Removes the entry; false if there was none. `old` may be NULL.
bool index_remove(struct index *ix, struct bytes key, struct index_value *old);

// Stands on an entry, until the next change of the index.
struct index_cursor {
    const struct index_node *leaf; // NULL: at the end
    u32 slot;
};
// The first entry >= `from` (> `from` with is_after). False at the end. With skip_tombstones only
// entries that are none count, here and in index_cursor_next.
bool index_cursor_seek(const struct index *ix, struct index_cursor *c, struct bytes from,
                       bool is_after, bool skip_tombstones);
// Must stand on an entry. False at the end.
bool index_cursor_next(struct index_cursor *c, bool skip_tombstones);
// Copies the key, returns its length.
u32 index_cursor_key(const struct index_cursor *c, u8 out[STORE_KEY_BYTES_MAX]);
void index_cursor_value(const struct index_cursor *c, struct index_value *out);
// A view into the page.
const u8 *index_cursor_summary(const struct index_cursor *c);

// Walks the whole tree and asserts its invariants (order, prefixes, counts, page accounting): for
// tests.
void index_check(const struct index *ix);
