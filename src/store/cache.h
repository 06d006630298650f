// SPDX-License-Identifier: Apache-2.0
// The object cache of one core: verified bytes by a 128-bit name, up to a budget of bytes, evicted
// by S3-FIFO (a small queue that filters what is asked for once, a main queue with a two-bit
// counter, and a ghost memory of names that left the small queue lately). A hit touches one counter
// and moves nothing.
//
// A value belongs to the cache from the insertion to the call of its release function. An entry
// that is pinned is never released under its reader: removing or evicting it only takes it out of
// the tables, and the last unpin releases it.
//
// Owned by one core; nothing waits.
#pragma once

#include "base/types.h"

struct cache;

// Gives a value back (for a counted buffer: buf_put). Called at most once a value, from insert,
// remove, unpin, clear or destroy.
typedef void (*cache_release_fn)(void *value);

struct cache_entry {
    u64 key[2];
    const u8 *data; // the bytes, inside of the value
    u32 data_bytes;
    u32 charge_bytes; // what it counts against the budget, with overhead
    void *value;      // what `release` gets
    cache_release_fn release;
    // private
    u32 pins;
    u8 queue; // which queue it is in, or none
    u8 uses;  // saturating
    struct cache_entry *hash_next;
    struct cache_entry *older; // towards the end that is evicted first
    struct cache_entry *newer;
};

// NULL when the heap is exhausted. bytes_max 0 is a cache that keeps nothing.
struct cache *cache_create(size_t bytes_max);
// Nothing may be pinned.
void cache_destroy(struct cache *c);

// The entry, pinned, or NULL.
struct cache_entry *cache_get(struct cache *c, u64 key0, u64 key1);
void cache_unpin(struct cache *c, struct cache_entry *e);

struct cache_item {
    u64 key[2];
    const u8 *data;
    u32 data_bytes;
    u32 memory_bytes; // what the value takes of memory (a buffer's capacity)
    void *value;
    cache_release_fn release;
};
// Takes the value over, replacing an entry of the same name. Returns the entry, pinned; NULL when
// it was not kept (no budget for it, or no heap left): the value is then still the caller's.
struct cache_entry *cache_insert(struct cache *c, const struct cache_item *item);
// Copies the bytes into memory of the cache's own; for small values that should not hold a buffer.
// Returns the entry, pinned, or NULL when it was not kept.
struct cache_entry *cache_insert_copy(struct cache *c, u64 key0, u64 key1, const void *data,
                                      u32 data_bytes);

// Forgets the entry if there is one.
void cache_remove(struct cache *c, u64 key0, u64 key1);
void cache_clear(struct cache *c);

struct cache_stats {
    size_t bytes; // charged, pinned entries that left the tables not included
    size_t bytes_max;
    u64 entries;
    u64 hits;
    u64 misses;
    u64 evictions;
};
void cache_stats(const struct cache *c, struct cache_stats *out);
