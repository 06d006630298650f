// SPDX-License-Identifier: Apache-2.0
// Making and ending a core's share of the store.
#include "store/shard.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "core/reactor.h"

// The cache may hold buffers of the core's pool: never more than this part of it.
#define CACHE_POOL_DIVISOR 2

void shard_live_add(struct shard_drive *sd, u32 segment, u32 bytes)
{
    ASSERT(segment < sd->drive->segments_max);
    sd->live_bytes[segment] += bytes;
    ASSERT(sd->live_bytes[segment] <= sd->drive->segment_bytes);
    metric_add(METRIC_STORE_LIVE_BYTES, bytes);
}

void shard_live_sub(struct shard_drive *sd, u32 segment, u32 bytes)
{
    ASSERT(segment < sd->drive->segments_max && sd->live_bytes[segment] >= bytes);
    sd->live_bytes[segment] -= bytes;
    metric_add(METRIC_STORE_LIVE_BYTES, -(i64)bytes);
}

void shard_died(struct shard_drive *sd, u32 segment, u32 bytes)
{
    shard_live_sub(sd, segment, bytes);
    sd->dead_bytes += bytes;
    if (sd->dead_bytes >= sd->drive->segment_bytes / 2) {
        sd->dead_bytes = 0;
        store_compact_kick(sd->shard->store);
    }
}

static void extent_died(void *arg, u64 object_id, const struct extent_location *at)
{
    struct shard *sh = arg;
    struct shard_drive *sd = shard_drive_of_pg(sh, (u32)(object_id >> 32 & 0xfff));
    shard_died(sd, at->segment, extent_frame_bytes(at->data_bytes));
}

// ---- asking compaction to look: a message to core 0 that comes back, so that one is enough

static void kick_came_back(struct message *m)
{
    CONTAINER_OF(m, struct shard, kick)->is_kick_out = false;
}

static void kick_count(struct store *s)
{
    s->kicks++;
    event_set(&s->compact_wanted);
}

static void kick_arrived(struct message *m)
{
    struct shard *sh = CONTAINER_OF(m, struct shard, kick);
    kick_count(sh->store);
    m->fn = kick_came_back;
    core_post(sh->core, m);
}

void store_compact_kick(struct store *s)
{
    struct shard *sh = s->shards[core_id()];
    if (core_id() == 0) {
        kick_count(s);
    } else if (!sh->is_kick_out) {
        sh->is_kick_out = true;
        sh->kick.fn = kick_arrived;
        core_post(0, &sh->kick);
    }
}

// ---- a drive that fails

struct fail_call {
    struct store *store;
    u32 drive_index;
};

MAY_WAIT static void fail_on_core(void *arg)
{
    struct fail_call *call = arg;
    shard_here(call->store)->drives[call->drive_index].is_failed = true;
}

// What the kernel lost of one file it may have lost of others: no core acknowledges anything more.
MAY_WAIT static void fail_fiber(void *arg)
{
    struct shard_drive *sd = arg;
    struct fail_call call = {.store = sd->shard->store,
                             .drive_index = sd->drive->super.drive_index};
    fiber_set_deadline(0);
    fiber_shield_enter();
    enum err e = core_call_all(fail_on_core, &call);
    LOG_AT(e == OK ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "drive_failed_everywhere",
           "drive=%s error=%s", sd->drive->path, err_name(e));
    fiber_shield_leave();
}

void shard_drive_fail(struct shard_drive *sd, const char *what, enum err e)
{
    if (sd->is_failed) {
        return;
    }
    sd->is_failed = true;
    if (group_spawn(&sd->shard->fibers, fail_fiber, sd) != OK) {
        LOG_WARN("drive_failure_untold", "drive=%s", sd->drive->path);
    }
    LOG_ERROR("drive_failed",
              "drive=%s core=%u writing=\"%s\" error=%s hint=\"no more writes are taken; check the "
              "drive and restart\"",
              sd->drive->path, sd->shard->core, what, err_name(e));
}

// ---- making

static enum err shard_drives_create(struct shard *sh)
{
    struct store *s = sh->store;
    sh->drives = calloc(s->drive_count, sizeof(*sh->drives));
    if (sh->drives == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < s->drive_count; i++) {
        struct shard_drive *sd = &sh->drives[i];
        sd->drive = s->drives[i];
        sd->shard = sh;
        u32 segments = MAX(sd->drive->segments_max, 1u);
        sd->live_bytes = calloc(segments, sizeof(*sd->live_bytes));
        sd->readers = calloc(segments, sizeof(*sd->readers));
        wait_queue_init(&sd->reader_gone);
        record_log_init(&sd->log, sd);
        extent_writer_init(&sd->extents, sd);
        replica_local_init(&sd->replica, sd);
        if (sd->live_bytes == NULL || sd->readers == NULL) {
            return ERR_NO_MEMORY;
        }
    }
    return OK;
}

static enum err shard_pgs_create(struct shard *sh)
{
    struct store *s = sh->store;
    sh->pg_count = sh->core < s->pg_count ? (s->pg_count - sh->core + s->cores - 1) / s->cores : 0;
    sh->pgs = calloc(MAX(sh->pg_count, 1u), sizeof(*sh->pgs));
    if (sh->pgs == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < sh->pg_count; i++) {
        struct pg *p = &sh->pgs[i];
        p->number = i * s->cores + sh->core;
        p->next_object = 1;
        index_init(&p->index, sh->index_pool);
        p->replica = &shard_drive_of_pg(sh, p->number)->replica;
    }
    return OK;
}

MAY_WAIT enum err shard_create(struct store *s)
{
    struct shard *sh = calloc(1, sizeof(*sh));
    if (sh == NULL) {
        return ERR_NO_MEMORY;
    }
    sh->magic = SHARD_MAGIC;
    sh->core = core_id();
    sh->store = s;
    s->shards[sh->core] = sh;
    group_init(&sh->fibers);
    extent_map_init(&sh->extents, extent_died, sh);
    size_t buf_total;
    size_t buf_used;
    buf_usage(&buf_total, &buf_used);
    size_t cache_bytes = MIN(s->cache_bytes / s->cores, buf_total / CACHE_POOL_DIVISOR);
    sh->cache = cache_create(cache_bytes);
    sh->index_pool = index_pool_create(0);
    sh->pieces_seen = calloc(SHARD_PIECES_SEEN, sizeof(*sh->pieces_seen));
    if (sh->cache == NULL || sh->index_pool == NULL || sh->pieces_seen == NULL) {
        return ERR_NO_MEMORY;
    }
    TRY(shard_keys_init(sh));
    TRY(shard_drives_create(sh));
    return shard_pgs_create(sh);
}

MAY_WAIT enum err shard_start(struct shard *sh)
{
    for (u32 i = 0; i < sh->store->drive_count; i++) {
        TRY(record_log_start(&sh->drives[i].log));
    }
    return OK;
}

MAY_WAIT void shard_stop(struct shard *sh)
{
    for (u32 i = 0; i < sh->store->drive_count && sh->drives != NULL; i++) {
        record_log_stop(&sh->drives[i].log);
    }
    group_join(&sh->fibers);
    while (sh->is_kick_out) {
        fiber_yield(); // core 0 answers in its next turn
    }
}

MAY_WAIT void shard_destroy(struct store *s)
{
    struct shard *sh = s->shards[core_id()];
    if (sh == NULL) {
        return;
    }
    group_deinit(&sh->fibers);
    for (u32 i = 0; i < s->drive_count && sh->drives != NULL; i++) {
        struct shard_drive *sd = &sh->drives[i];
        if (sd->drive == NULL) {
            continue;
        }
        record_log_deinit(&sd->log);
        extent_writer_deinit(&sd->extents);
        free(sd->live_bytes);
        free(sd->readers);
    }
    for (u32 i = 0; i < sh->pg_count && sh->pgs != NULL; i++) {
        index_deinit(&sh->pgs[i].index);
    }
    shard_pins_free(sh);
    shard_keys_deinit(sh);
    if (sh->cache != NULL) {
        cache_destroy(sh->cache);
    }
    if (sh->index_pool != NULL) {
        index_pool_destroy(sh->index_pool);
    }
    extent_map_deinit(&sh->extents);
    free(sh->pieces_seen);
    free(sh->pgs);
    free(sh->drives);
    sh->magic = 0;
    s->shards[sh->core] = NULL;
    free(sh);
}
