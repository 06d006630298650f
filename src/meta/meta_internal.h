// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: the state of each core, bucket tables and their gates, and
// where an object lives. Nobody outside src/meta includes this.
#pragma once

#include "core/buf.h"
#include "core/fiber.h"
#include "core/mailbox.h"
#include "core/reactor.h"
#include "meta/budget.h"
#include "meta/keys.h"
#include "meta/md5_batch.h"
#include "meta/meta.h"
#include "meta/object_fmt.h"

#define META_MAGIC 0x4154454du // "META"

// One bucket in one core's table.
//
// Every commit into a bucket happens on the owner core of its PG between bucket_gate_enter and
// bucket_gate_leave. DeleteBucket closes the gates of all cores, waits until the commits inside
// have ended, looks whether anything is there, and then either removes the bucket or opens the
// gates again. Whoever finds a gate closed waits for that decision. So no write is acknowledged
// into a bucket that goes away, and none fails because of a DeleteBucket that is refused.
struct bucket_entry {
    struct bucket bucket;
    bool is_closing;
    u32 writes;              // commits inside the gate
    struct round_leg *drain; // answered when writes reaches 0
};

struct bucket_table {
    u32 count;
    struct bucket_entry *entries[META_BUCKETS_MAX]; // in name order
};

struct list_scratch;

// Everything of one core. Touched by that core's thread alone.
struct meta_core {
    struct meta *meta;
    u32 core;
    struct bucket_table *buckets;
    struct wait_queue gates; // fibers that wait for a DeleteBucket to be decided
    struct list uploads;     // struct upload_gate
    struct md5_batch md5;
    struct budget budget;
    u32 *pgs; // that this core owns, ascending
    u32 pg_count;
    struct walk *walk_spare; // memory of the last listing, for the next
    u32 writers;             // alive
    u32 readers;             // alive
};

// A message to every core and back, for changes of the bucket tables: it needs no fiber and no
// memory, so it cannot fail half-way. One at a time, under bucket_admin.mutex.
struct round_leg {
    struct message out;
    struct message back;
    struct core_round *round;
    u32 core;
};
struct core_round {
    struct meta *meta;
    // True: done. False: the leg is kept, and core_round_answer is called later.
    bool (*fn)(struct meta_core *mc, struct round_leg *leg, void *arg);
    void *arg;
    u32 origin;
    u32 pending;
    struct event done;
    struct round_leg legs[CORES_MAX];
};

// Used on the owner core of PG 0 only.
struct bucket_admin {
    struct fiber_mutex mutex;
    u64 next_id;
    struct core_round round;
};

struct meta {
    u32 magic;
    u32 cores;
    struct store *store;
    struct meta_options options;
    struct bucket_admin admin;
    struct group background; // core 0
    struct meta_core *core[CORES_MAX];
};

static inline struct meta_core *meta_core(struct meta *m)
{
    return m->core[core_id()];
}

// Runs fn on every core's loop and waits for all answers.
MAY_WAIT void core_round_run(struct meta *m,
                             bool (*fn)(struct meta_core *, struct round_leg *, void *), void *arg);
void core_round_answer(struct round_leg *leg);

// Reads the buckets of PG 0 and fills all tables. On the owner core of PG 0.
MAY_WAIT enum err bucket_load(struct meta *m) NODISCARD;
void bucket_table_free(struct meta_core *mc);
// On the owner core. ERR_S3_NO_SUCH_BUCKET when this incarnation of the bucket is gone.
MAY_WAIT enum err bucket_gate_enter(struct meta_core *mc, const struct bucket *b,
                                    struct bucket_entry **out) NODISCARD;
void bucket_gate_leave(struct meta_core *mc, struct bucket_entry *e);

// Where an object, its uploads and their parts live.
struct place {
    struct bucket bucket;
    u32 pg;
    u32 core;
    struct bytes name;   // the caller's bytes
    struct meta_key key; // of the object
};
// ERR_S3_NO_SUCH_BUCKET, ERR_S3_KEY_TOO_LONG, ERR_S3_INVALID_ARGUMENT (an empty key).
enum err place_find(struct meta *m, struct bytes bucket, struct bytes key,
                    struct place *out) NODISCARD;

// Does the condition hold for what is there now (NULL: nothing)? OK, ERR_S3_PRECONDITION_FAILED,
// ERR_S3_NO_SUCH_KEY.
enum err write_condition_check(const struct write_condition *c,
                               const struct object_info *now) NODISCARD;
// The summary of a key; *exists false if there is none.
enum err object_peek(struct store *s, u32 pg, struct bytes key, struct object_info *out,
                     bool *exists) NODISCARD;
// A wall-clock time later than the replaced object's.
u64 modified_after(const struct object_info *replaced); // NULL: replaces nothing

// Checks what a record says about itself against what it carries. ERR_FORMAT.
enum err object_record_check(const struct pg_record *r, struct object_info *info,
                             struct object_attrs *attrs) NODISCARD;

// Several UploadParts of an upload may commit at once; Complete and Abort are alone. On the owner
// core; the gate is a shared or exclusive hold on an upload id.
struct upload_gate;
MAY_WAIT enum err upload_gate_enter(struct meta_core *mc, const struct upload_id *id,
                                    bool is_exclusive, struct upload_gate **out) NODISCARD;
void upload_gate_leave(struct upload_gate *g);

// All parts of an upload whose record is gone; the caller holds its gate exclusively.
MAY_WAIT enum err sweep_upload(struct meta_core *mc, u32 pg,
                               const struct meta_key *upload) NODISCARD;
// All uploads and parts of a bucket that is gone, in this core's PGs.
MAY_WAIT enum err sweep_bucket(struct meta_core *mc, u64 bucket_id) NODISCARD;
// Uploads and parts without an owner (no such bucket, no such upload), in this core's PGs. Only
// while nothing else runs.
MAY_WAIT enum err sweep_orphans(struct meta_core *mc) NODISCARD;
