// SPDX-License-Identifier: Apache-2.0
// S3-FIFO (see cache.h): three FIFOs instead of one list that every hit reorders.
//
// New names enter the small queue, a tenth of the budget. What is not asked for again before it
// reaches the end leaves, and only its name is remembered for a while (the ghost). What was asked
// for moves to the main queue, and so does at once a name that the ghost remembers. The main queue
// gives entries that were used since their last turn another turn.
//
// The ghost is a table of fingerprints stamped with the number of the eviction that put them there:
// a stamp that is older than the ghost's length is forgotten without anybody clearing it.
#include "store/cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define CACHE_MAGIC             0x53334649u
#define USES_MAX                3
#define SMALL_DIVISOR           10   // of the budget
#define BUCKET_BYTES            2048 // one hash bucket for so many bytes of budget
#define BUCKETS_MIN             64
#define BUCKETS_MAX             ((size_t)1 << 24)
#define ENTRIES_PER_SLAB        128
#define ENTRY_BYTES_MAX_DIVISOR 8 // a value larger than an eighth of the budget is not kept

enum queue_kind { QUEUE_NONE = 0, QUEUE_SMALL, QUEUE_MAIN };

struct queue {
    struct cache_entry *oldest;
    struct cache_entry *newest;
    size_t bytes;
};

struct ghost_slot {
    u32 fingerprint;
    u32 stamp;
};

struct slab {
    struct slab *next;
    struct cache_entry entries[ENTRIES_PER_SLAB];
};

struct cache {
    u32 magic;
    u32 ghost_stamp; // evictions from the small queue, wrapping
    size_t bytes_max;
    size_t bucket_count; // a power of two
    struct cache_entry **buckets;
    struct ghost_slot *ghost; // bucket_count of them
    struct queue queues[3];   // by queue_kind; NONE is unused
    struct slab *slabs;
    struct cache_entry *free_entries; // linked by hash_next
    u64 pinned_gone;                  // entries that left the tables while pinned
    struct cache_stats stats;
};

// Mixes a name into a hash; the low bits pick the bucket, the high ones are the fingerprint.
static u64 name_hash(u64 key0, u64 key1)
{
    u64 h = (key0 ^ 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 32) ^ key1) * 0xc4ceb9fe1a85ec53u;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
    return h ^ (h >> 32);
}

struct cache *cache_create(size_t bytes_max)
{
    struct cache *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    c->bucket_count = BUCKETS_MIN;
    while (c->bucket_count < bytes_max / BUCKET_BYTES && c->bucket_count < BUCKETS_MAX) {
        c->bucket_count *= 2;
    }
    c->buckets = calloc(c->bucket_count, sizeof(struct cache_entry *));
    c->ghost = calloc(c->bucket_count, sizeof(struct ghost_slot));
    if (c->buckets == NULL || c->ghost == NULL) {
        free(c->buckets);
        free(c->ghost);
        free(c);
        return NULL;
    }
    c->magic = CACHE_MAGIC;
    c->bytes_max = bytes_max;
    return c;
}

void cache_destroy(struct cache *c)
{
    if (c == NULL) {
        return;
    }
    cache_clear(c);
    ASSERT(c->pinned_gone == 0);
    while (c->slabs != NULL) {
        struct slab *next = c->slabs->next;
        free(c->slabs);
        c->slabs = next;
    }
    free(c->buckets);
    free(c->ghost);
    c->magic = 0;
    free(c);
}

// An empty entry; NULL when the heap is exhausted.
static struct cache_entry *entry_new(struct cache *c)
{
    if (c->free_entries == NULL) {
        struct slab *slab = calloc(1, sizeof(*slab));
        if (slab == NULL) {
            return NULL;
        }
        slab->next = c->slabs;
        c->slabs = slab;
        for (u32 i = 0; i < ENTRIES_PER_SLAB; i++) {
            slab->entries[i].hash_next = c->free_entries;
            c->free_entries = &slab->entries[i];
        }
    }
    struct cache_entry *e = c->free_entries;
    c->free_entries = e->hash_next;
    *e = (struct cache_entry){0};
    return e;
}

// Gives the value back and recycles the entry, which is in no table any more.
static void entry_end(struct cache *c, struct cache_entry *e)
{
    ASSERT(e->queue == QUEUE_NONE && e->pins == 0);
    e->release(e->value);
    e->value = NULL;
    e->data = NULL;
    e->hash_next = c->free_entries;
    c->free_entries = e;
}

static void queue_push(struct cache *c, enum queue_kind kind, struct cache_entry *e)
{
    struct queue *q = &c->queues[kind];
    ASSERT(e->queue == QUEUE_NONE);
    e->queue = (u8)kind;
    e->newer = NULL;
    e->older = q->newest;
    if (q->newest != NULL) {
        q->newest->newer = e;
    } else {
        q->oldest = e;
    }
    q->newest = e;
    q->bytes += e->charge_bytes;
}

static void queue_unlink(struct cache *c, struct cache_entry *e)
{
    struct queue *q = &c->queues[e->queue];
    ASSERT(e->queue != QUEUE_NONE && q->bytes >= e->charge_bytes);
    if (e->older != NULL) {
        e->older->newer = e->newer;
    } else {
        q->oldest = e->newer;
    }
    if (e->newer != NULL) {
        e->newer->older = e->older;
    } else {
        q->newest = e->older;
    }
    e->older = NULL;
    e->newer = NULL;
    e->queue = QUEUE_NONE;
    q->bytes -= e->charge_bytes;
}

static struct cache_entry **bucket_of(struct cache *c, u64 hash)
{
    return &c->buckets[hash & (c->bucket_count - 1)];
}

// The link that points at the entry of that name, or at the NULL that ends its chain.
static struct cache_entry **entry_link(struct cache *c, u64 hash, u64 key0, u64 key1)
{
    struct cache_entry **link = bucket_of(c, hash);
    while (*link != NULL && ((*link)->key[0] != key0 || (*link)->key[1] != key1)) {
        link = &(*link)->hash_next;
    }
    return link;
}

// Takes the entry that *link points at out of table and queue; its last pin or this ends it.
static void entry_drop(struct cache *c, struct cache_entry **link)
{
    struct cache_entry *e = *link;
    *link = e->hash_next;
    e->hash_next = NULL;
    queue_unlink(c, e);
    c->stats.entries--;
    if (e->pins == 0) {
        entry_end(c, e);
    } else {
        c->pinned_gone++;
    }
}

static void ghost_add(struct cache *c, u64 hash)
{
    struct ghost_slot *slot = &c->ghost[hash & (c->bucket_count - 1)];
    c->ghost_stamp++;
    slot->fingerprint = (u32)(hash >> 32) | 1u; // 0 is an empty slot
    slot->stamp = c->ghost_stamp;
}

// True if the name left the small queue lately: within as many evictions as there are entries.
static bool ghost_take(struct cache *c, u64 hash)
{
    struct ghost_slot *slot = &c->ghost[hash & (c->bucket_count - 1)];
    bool is_there = slot->fingerprint == ((u32)(hash >> 32) | 1u) &&
                    c->ghost_stamp - slot->stamp < c->stats.entries + BUCKETS_MIN;
    if (is_there) {
        slot->fingerprint = 0;
    }
    return is_there;
}

static void entry_evict(struct cache *c, struct cache_entry *e, u64 hash)
{
    struct cache_entry **link = entry_link(c, hash, e->key[0], e->key[1]);
    ASSERT(*link == e);
    entry_drop(c, link);
    c->stats.evictions++;
}

// Takes the oldest entry of the small queue: up if it was used, else out.
static void small_evict(struct cache *c)
{
    struct cache_entry *e = c->queues[QUEUE_SMALL].oldest;
    if (e->uses > 0) {
        queue_unlink(c, e);
        e->uses = 0;
        queue_push(c, QUEUE_MAIN, e);
        return;
    }
    u64 hash = name_hash(e->key[0], e->key[1]);
    ghost_add(c, hash);
    entry_evict(c, e, hash);
}

// Takes the oldest entry of the main queue: round again if it was used, else out.
static void main_evict(struct cache *c)
{
    struct cache_entry *e = c->queues[QUEUE_MAIN].oldest;
    if (e->uses > 0) {
        e->uses--;
        queue_unlink(c, e);
        queue_push(c, QUEUE_MAIN, e);
        return;
    }
    entry_evict(c, e, name_hash(e->key[0], e->key[1]));
}

// Evicts until `bytes` more fit. Ends: every turn takes an entry out, moves one from small to main,
// or takes one of at most three uses away.
static void room_make(struct cache *c, size_t bytes)
{
    struct queue *small = &c->queues[QUEUE_SMALL];
    struct queue *main = &c->queues[QUEUE_MAIN];
    while (small->bytes + main->bytes + bytes > c->bytes_max) {
        ASSERT(small->oldest != NULL || main->oldest != NULL);
        if (main->oldest == NULL ||
            (small->oldest != NULL && small->bytes >= c->bytes_max / SMALL_DIVISOR)) {
            small_evict(c);
        } else {
            main_evict(c);
        }
    }
}

struct cache_entry *cache_get(struct cache *c, u64 key0, u64 key1)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    struct cache_entry *e = *entry_link(c, name_hash(key0, key1), key0, key1);
    if (e == NULL) {
        c->stats.misses++;
        return NULL;
    }
    c->stats.hits++;
    e->uses = (u8)(e->uses < USES_MAX ? e->uses + 1 : USES_MAX);
    e->pins++;
    return e;
}

void cache_unpin(struct cache *c, struct cache_entry *e)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    ASSERT(e->pins > 0);
    e->pins--;
    if (e->pins == 0 && e->queue == QUEUE_NONE) {
        ASSERT(c->pinned_gone > 0);
        c->pinned_gone--;
        entry_end(c, e);
    }
}

// True if a value that takes so much memory may be kept at all; *charge is what it counts.
static bool is_kept(const struct cache *c, size_t memory_bytes, u32 *charge)
{
    size_t bytes = memory_bytes + sizeof(struct cache_entry);
    if (bytes > c->bytes_max / ENTRY_BYTES_MAX_DIVISOR || bytes > UINT32_MAX) {
        return false;
    }
    *charge = (u32)bytes;
    return true;
}

struct cache_entry *cache_insert(struct cache *c, const struct cache_item *item)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    ASSERT(item->release != NULL);
    cache_remove(c, item->key[0], item->key[1]);
    u32 charge;
    if (!is_kept(c, item->memory_bytes, &charge)) {
        return NULL;
    }
    struct cache_entry *e = entry_new(c);
    if (e == NULL) {
        return NULL;
    }
    room_make(c, charge);
    e->key[0] = item->key[0];
    e->key[1] = item->key[1];
    e->data = item->data;
    e->data_bytes = item->data_bytes;
    e->charge_bytes = charge;
    e->value = item->value;
    e->release = item->release;
    e->pins = 1;
    u64 hash = name_hash(e->key[0], e->key[1]);
    struct cache_entry **bucket = bucket_of(c, hash);
    e->hash_next = *bucket;
    *bucket = e;
    queue_push(c, ghost_take(c, hash) ? QUEUE_MAIN : QUEUE_SMALL, e);
    c->stats.entries++;
    return e;
}

struct cache_entry *cache_insert_copy(struct cache *c, u64 key0, u64 key1, const void *data,
                                      u32 data_bytes)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    u32 charge;
    void *copy = is_kept(c, data_bytes, &charge) ? malloc(MAX(data_bytes, 1u)) : NULL;
    if (copy == NULL) {
        cache_remove(c, key0, key1);
        return NULL;
    }
    if (data_bytes > 0) {
        memcpy(copy, data, data_bytes);
    }
    struct cache_item item = {
        .key = {key0, key1},
        .data = copy,
        .data_bytes = data_bytes,
        .memory_bytes = data_bytes,
        .value = copy,
        .release = free,
    };
    struct cache_entry *e = cache_insert(c, &item);
    if (e == NULL) {
        free(copy);
    }
    return e;
}

void cache_remove(struct cache *c, u64 key0, u64 key1)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    struct cache_entry **link = entry_link(c, name_hash(key0, key1), key0, key1);
    if (*link != NULL) {
        entry_drop(c, link);
    }
}

void cache_clear(struct cache *c)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    for (size_t i = 0; i < c->bucket_count; i++) {
        while (c->buckets[i] != NULL) {
            entry_drop(c, &c->buckets[i]);
        }
    }
    ASSERT(c->stats.entries == 0);
    ASSERT(c->queues[QUEUE_SMALL].bytes == 0 && c->queues[QUEUE_MAIN].bytes == 0);
}

void cache_stats(const struct cache *c, struct cache_stats *out)
{
    ASSERT_MAGIC(c, CACHE_MAGIC);
    *out = c->stats;
    out->bytes = c->queues[QUEUE_SMALL].bytes + c->queues[QUEUE_MAIN].bytes;
    out->bytes_max = c->bytes_max;
}
