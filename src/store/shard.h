// SPDX-License-Identifier: Apache-2.0
// What one core has of the store: its placement groups and, for each drive, its open segments, its
// counts and its view of the drive's health. Everything in a shard is touched by its core alone.
// Private to store/.
#pragma once

#include "core/fiber.h"
#include "dev/drive.h"
#include "store/cache.h"
#include "store/extent_map.h"
#include "store/extent_store.h"
#include "store/index.h"
#include "store/record_log.h"
#include "store/replica.h"
#include "store/store.h"

#define STORE_MAGIC 0x53746f72u
#define SHARD_MAGIC 0x53686172u

#define INDEX_MANY_REFS   0x04u // beside index.h's flags: the record has more than one reference
#define PG_EPOCH          1     // of a store of one node
#define SHARD_PIECES_SEEN 8192u // names of extent pieces kept by each core; a power of two
#define SHADOWS_MAX       UINT16_MAX // a count that reached it stays: the tombstone waits for a restart

struct shard;

// One core's share of one drive.
struct shard_drive {
    struct drive *drive;
    struct shard *shard;
    bool is_failed;  // no more writes
    u32 *live_bytes; // of this core's records and extents, by segment
    u32 *readers;    // reads in flight, by segment
    struct wait_queue reader_gone;
    struct record_log log;
    struct extent_writer extents;
    struct replica replica;
    u64 dead_bytes; // that came since compaction was asked to look
};

struct pg {
    u32 number;
    struct index index;
    u64 next_seq;
    u32 next_object;
    struct replica *replica;
};

struct pg_pin;
struct key_slot;
struct recovery;

struct shard {
    u32 magic;
    u32 core;
    struct store *store;
    struct group fibers; // writers and seals
    struct index_pool *index_pool;
    u32 index_puts; // that commits in flight have reserved
    struct cache *cache;
    struct extent_map extents;
    struct pg *pgs; // pgs[number / cores]
    u32 pg_count;
    struct shard_drive *drives;
    struct list *key_buckets; // struct key_slot
    struct key_slot *key_slots_free;
    struct pg_pin *pins_free;
    struct message kick; // to core 0 and back
    bool is_kick_out;
    u64 *pieces_seen;          // names of extent pieces that were read lately
    u64 pins_out;              // records not yet released
    struct recovery *recovery; // while the store opens
};

struct store {
    u32 magic;
    u32 cores;
    u32 drive_count;
    u32 pg_count;
    u64 opens;
    u64 secret;
    struct drive **drives; // by the index in their superblocks
    struct shard *shards[CORES_MAX];
    size_t cache_bytes;
    bool accepts_losses;
    u32 compact_percent;
    enum err results[CORES_MAX]; // what each core answered last
    struct group background;     // core 0: spares, compaction
    struct event compact_wanted;
    u64 kicks; // how often there was news for compaction
    struct fiber_mutex compact_mutex;
};

static inline struct shard *shard_here(struct store *s)
{
    ASSERT_MAGIC(s, STORE_MAGIC);
    struct shard *sh = s->shards[core_id()];
    ASSERT_MAGIC(sh, SHARD_MAGIC);
    return sh;
}

// The group, on its own core.
static inline struct pg *shard_pg(struct shard *sh, u32 pg)
{
    ASSERT(pg < sh->store->pg_count && pg % sh->store->cores == sh->core);
    return &sh->pgs[pg / sh->store->cores];
}

static inline u32 store_pg_drive(const struct store *s, u32 pg)
{
    return pg % s->drive_count;
}

static inline struct shard_drive *shard_drive_of_pg(struct shard *sh, u32 pg)
{
    return &sh->drives[store_pg_drive(sh->store, pg)];
}

MAY_WAIT enum err shard_create(struct store *s) NODISCARD; // on its core
MAY_WAIT void shard_destroy(struct store *s);              // on its core
MAY_WAIT enum err shard_start(struct shard *sh) NODISCARD; // starts the writers
MAY_WAIT void shard_stop(struct shard *sh);                // and ends them

// A write to the drive failed: nothing more is written to it by any core.
void shard_drive_fail(struct shard_drive *sd, const char *what, enum err e);
// Ends what pg_read and pg_key_lock keep for reuse.
void shard_pins_free(struct shard *sh);
enum err shard_keys_init(struct shard *sh) NODISCARD;
void shard_keys_deinit(struct shard *sh);
// Bytes of this core in a segment came to life, or died.
void shard_live_add(struct shard_drive *sd, u32 segment, u32 bytes);
void shard_live_sub(struct shard_drive *sd, u32 segment, u32 bytes);
// The same for what was deleted or replaced: new garbage, which compaction is told of by and by.
// What it only moves is not: it would keep itself busy for ever.
void shard_died(struct shard_drive *sd, u32 segment, u32 bytes);
// Asks compaction, on core 0, to look around. Any core.
void store_compact_kick(struct store *s);
