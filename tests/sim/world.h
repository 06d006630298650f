// SPDX-License-Identifier: Apache-2.0
// One seeded run: the disk, the model, what this life of the process is like, and the clients.
#pragma once

#include "core/fiber.h"
#include "core/mailbox.h"
#include "core/reactor.h"
#include "model.h"
#include "sim/sim.h"

#define WORLD_CORES_MAX  3
#define WORLD_DRIVES_MAX 3

// What a run does besides its seed.
struct run_options {
    bool is_verbose;
    bool is_plain; // one client, no faults, clean restarts: the model test
    enum sim_break sabotage;
    u32 lives; // 0: drawn
    // Every life crashes at this flush (counted from 1), before or after it; 0: drawn.
    u64 crash_at_flush;
    bool is_crash_after;
};

// I/O errors of one life, from when they are on.
struct errors {
    u32 read_ppm;
    u32 write_ppm;
    u32 flush_ppm;
    bool is_at_open; // on before the store opens; else once it was verified
    bool are_on;
};

struct world {
    u64 seed;
    u64 random;
    struct run_options run;
    struct model model;
    struct sim_disk *disk;

    // drawn once
    u32 drives;
    u32 pg_count;
    u64 segment_bytes;
    u64 drive_bytes;
    bool is_limited; // by the store's option; else by the filesystem
    u32 compact_percent;
    size_t cache_bytes;
    u32 clients;    // a core
    u32 client_ops; // each, in one life
    u32 delete_percent;
    bool is_extent_heavy;
    bool is_large; // extents of several chunks

    // one life
    struct sys *sys;
    struct store *store;
    u32 life;
    u32 cores;
    struct sim_options sim;
    struct errors errors;
    bool is_compacting;          // all the time
    bool is_crash_among_clients; // the crash point counts from when the clients start
    u64 warnings_at_damage;
    bool is_crashed_last; // how the life before this one ended
    bool is_damaged;                           // media was damaged: reads may say so
    bool is_verified;                          // the keys were compared after the start
    u16 mine[WORLD_CORES_MAX][MODEL_KEYS_MAX]; // keys by the core that owns their PG
    u32 mine_count[WORLD_CORES_MAX];
    u32 clients_working;
    u64 keys_counted;
    u64 flushes_last; // of the life before, in all
};

static inline bool world_is_crashed(struct world *w)
{
    struct sim_stats s;
    sim_stats(w->sys, &s);
    return s.is_crashed;
}

// clients.c: runs this core's clients until they have done their operations or the crash came.
MAY_WAIT void clients_run(struct world *w);
// True if `e` may come back from a read now; fails the run if it may not.
bool read_error_check(struct world *w, enum err e, const char *what);

// ops_write.c, ops_read.c
struct client {
    struct world *world;
    u64 random;
    u32 core;
    u32 number;
};
MAY_WAIT void op_commit(struct client *c, u32 key_count);
MAY_WAIT void op_abandon(struct client *c);
MAY_WAIT void op_read(struct client *c);
void op_lookup(struct client *c);
void op_cursor(struct client *c);
struct model_key *client_key(struct client *c);
// Reads all that a record refers to, or some ranges of it, and compares.
MAY_WAIT void refs_check(struct world *w, struct model_key *k, u32 index, const struct pg_record *r,
                         u64 *random, bool is_whole);

// verify.c: after a start, on each core: what is there is what the model allows.
MAY_WAIT void verify_core(void *world);
// On each core, with no commit in flight: cursors and counts.
void verify_scan(void *world);
