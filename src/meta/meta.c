// SPDX-License-Identifier: Apache-2.0
// Opening and closing, the round over all cores, and where a key lives.
//
// meta_open runs on core 0 while nobody else uses meta, so it may touch every core's state; from
// then on each core touches its own only.
#include "meta/meta_internal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "meta/upload_expiry.h"
#include "meta/walk.h"

static void round_back(struct message *m)
{
    struct round_leg *leg = CONTAINER_OF(m, struct round_leg, back);
    struct core_round *round = leg->round;
    ASSERT(round->pending > 0);
    if (--round->pending == 0) {
        event_set(&round->done);
    }
}

void core_round_answer(struct round_leg *leg)
{
    ASSERT(leg->core == core_id());
    leg->back.fn = round_back;
    core_post(leg->round->origin, &leg->back);
}

static void round_arrived(struct message *m)
{
    struct round_leg *leg = CONTAINER_OF(m, struct round_leg, out);
    struct core_round *round = leg->round;
    if (round->fn(meta_core(round->meta), leg, round->arg)) {
        core_round_answer(leg);
    }
}

MAY_WAIT void core_round_run(struct meta *m,
                             bool (*fn)(struct meta_core *, struct round_leg *, void *), void *arg)
{
    struct core_round *round = &m->admin.round;
    ASSERT(m->admin.mutex.is_held && round->pending == 0);
    round->meta = m;
    round->fn = fn;
    round->arg = arg;
    round->origin = core_id();
    round->pending = m->cores;
    event_init(&round->done);
    for (u32 core = 0; core < m->cores; core++) {
        struct round_leg *leg = &round->legs[core];
        *leg = (struct round_leg){.out = {.fn = round_arrived}, .round = round, .core = core};
        core_post(core, &leg->out);
    }
    event_wait_certain(&round->done);
}

enum err place_find(struct meta *m, struct bytes bucket, struct bytes key, struct place *out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    TRY(bucket_find(m, bucket, &out->bucket));
    if (key.len == 0) {
        return ERR_S3_INVALID_ARGUMENT;
    }
    if (key.len > META_KEY_BYTES_MAX) {
        return ERR_S3_KEY_TOO_LONG;
    }
    key_object(&out->key, out->bucket.id, key);
    out->name = key;
    out->pg = store_pg_of(m->store, meta_key_bytes(&out->key));
    out->core = store_pg_core(m->store, out->pg);
    ASSERT(out->core < m->cores);
    return OK;
}

static void core_free(struct meta_core *mc)
{
    if (mc == NULL) {
        return;
    }
    ASSERT(list_is_empty(&mc->uploads) && mc->writers == 0 && mc->readers == 0);
    bucket_table_free(mc);
    walk_spare_free(mc);
    free(mc->pgs);
    free(mc);
}

static void meta_free(struct meta *m)
{
    for (u32 core = 0; core < m->cores; core++) {
        core_free(m->core[core]);
    }
    group_deinit(&m->background);
    m->magic = 0;
    free(m);
}

static enum err core_make(struct meta *m, u32 core)
{
    struct meta_core *mc = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*mc), (size_t)CACHE_LINE));
    if (mc == NULL) {
        return ERR_NO_MEMORY;
    }
    *mc = (struct meta_core){.meta = m, .core = core};
    wait_queue_init(&mc->gates);
    list_init(&mc->uploads);
    md5_batch_init(&mc->md5);
    m->core[core] = mc;
    u32 pgs = store_pg_count(m->store);
    mc->buckets = calloc(1, sizeof(*mc->buckets));
    mc->pgs = calloc(pgs, sizeof(*mc->pgs));
    if (mc->pgs == NULL || mc->buckets == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 pg = 0; pg < pgs; pg++) {
        if (store_pg_core(m->store, pg) == core) {
            mc->pgs[mc->pg_count++] = pg;
        }
    }
    return OK;
}

struct open_call {
    struct meta *meta;
    enum err result;
};

MAY_WAIT static void open_load(void *arg)
{
    struct open_call *c = arg;
    c->result = bucket_load(c->meta);
}

MAY_WAIT static void open_core(void *arg)
{
    struct open_call *c = arg;
    budget_init(&meta_core(c->meta)->budget);
    enum err e = sweep_orphans(meta_core(c->meta));
    if (e != OK) {
        // Garbage that stays is no reason not to serve.
        LOG_WARN("meta_sweep_failed", "core=%u error=%s", core_id(), err_name(e));
    }
}

MAY_WAIT static enum err meta_start(struct meta *m)
{
    struct open_call c = {.meta = m};
    for (u32 core = 0; core < m->cores; core++) {
        TRY(core_make(m, core));
    }
    TRY(core_call(store_pg_core(m->store, 0), open_load, &c));
    for (u32 core = 0; core < m->cores && c.result == OK; core++) {
        TRY(core_call(core, open_core, &c));
    }
    return c.result;
}

MAY_WAIT enum err meta_open(struct store *store, const struct meta_options *options,
                            struct meta **out)
{
    ASSERT(core_id() == 0);
    struct meta *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return ERR_NO_MEMORY;
    }
    m->magic = META_MAGIC;
    m->store = store;
    m->options = *options;
    if (m->options.part_bytes_min == 0) {
        m->options.part_bytes_min = META_PART_BYTES_MIN;
    }
    if (m->options.buckets_max == 0) {
        m->options.buckets_max = META_BUCKETS_MAX;
    }
    ASSERT(m->options.buckets_max <= META_BUCKETS_MAX);
    m->cores = runtime_cores(reactor_runtime(reactor_current()));
    fiber_mutex_init(&m->admin.mutex);
    group_init(&m->background);
    enum err e = meta_start(m);
    if (e == OK && m->options.upload_expiry_ns > 0) {
        e = group_spawn(&m->background, upload_expiry_fiber, m);
    }
    if (e != OK) {
        LOG_ERROR("meta_open_failed", "error=%s", err_name(e));
        meta_free(m);
        return e;
    }
    *out = m;
    return OK;
}

// A batch that was asked for may still be queued in the core's loop. And messages of given-up
// writers that were sent here before this call have arrived when it runs.
MAY_WAIT static void close_core(void *arg)
{
    struct meta_core *mc = meta_core(arg);
    while (mc->md5.deferred.is_queued) {
        fiber_yield();
    }
}

MAY_WAIT void meta_close(struct meta *m)
{
    ASSERT_MAGIC(m, META_MAGIC);
    ASSERT(core_id() == 0);
    fiber_shield_enter();
    group_cancel(&m->background);
    group_join(&m->background);
    fiber_shield_leave();
    // A core without a free fiber has requests running: then meta must not be closed.
    enum err e = core_call_all(close_core, m);
    ASSERT(e == OK);
    meta_free(m);
}

void meta_usage(struct meta *m, struct meta_usage *out)
{
    struct meta_core *mc = meta_core(m);
    *out = (struct meta_usage){
        .writers = mc->writers,
        .readers = mc->readers,
        .buckets = mc->buckets->count,
        .md5_runs = mc->md5.runs,
        .md5_pieces = mc->md5.pieces,
    };
    LIST_FOREACH (node, &mc->uploads) {
        out->upload_gates++;
    }
    for (u32 i = 0; i < mc->buckets->count; i++) {
        out->commits += mc->buckets->entries[i]->writes;
    }
}
