// SPDX-License-Identifier: Apache-2.0
// Opening, formatting and closing a store; which core and drive a placement group belongs to.
#include "store/store.h"

#include <stdlib.h>

#include "base/log.h"
#include "codec/hash.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "core/reactor.h"
#include "store/compaction.h"
#include "store/recovery.h"
#include "store/shard.h"

#define PG_COUNT_DEFAULT        64u
#define SEGMENT_BYTES_DEFAULT   (64 * MIB) // on a drive of SEGMENTS_WANTED of them or more
#define SEGMENT_BYTES_SMALLEST  (8 * MIB)  // that is chosen for a small drive
#define SEGMENTS_WANTED         128        // the reserves are a few segments, whatever their size
#define COMPACT_PERCENT_DEFAULT 50u
#define OPENS_MAX               (1u << 20) // 20 bits of an object id

// ---- placement

u32 store_pg_count(const struct store *s)
{
    return s->pg_count;
}

u32 store_pg_of(const struct store *s, struct bytes hashed)
{
    return (u32)(hash64(hashed, s->secret) & (s->pg_count - 1));
}

u32 store_pg_core(const struct store *s, u32 pg)
{
    ASSERT(pg < s->pg_count);
    return pg % s->cores;
}

// ---- options

static enum err options_check(const struct store_options *o)
{
    u32 pg_count = o->pg_count == 0 ? PG_COUNT_DEFAULT : o->pg_count;
    u64 segment_bytes = o->segment_bytes == 0 ? SEGMENT_BYTES_DEFAULT : o->segment_bytes;
    if (o->drive_count == 0 || o->drive_count > STORE_DRIVES_MAX) {
        LOG_ERROR("store_options", "drives=%u hint=\"name 1 to %d drives\"", o->drive_count,
                  STORE_DRIVES_MAX);
        return ERR_INVALID;
    }
    if (!IS_POWER_OF_TWO(pg_count) || pg_count > STORE_PGS_MAX) {
        LOG_ERROR("store_options", "pg_count=%u hint=\"a power of two up to %d\"", pg_count,
                  STORE_PGS_MAX);
        return ERR_INVALID;
    }
    if (segment_bytes % SEGMENT_BLOCK_BYTES != 0 || segment_bytes < STORE_SEGMENT_BYTES_MIN ||
        segment_bytes > STORE_SEGMENT_BYTES_MAX) {
        LOG_ERROR("store_options", "segment_bytes=%llu hint=\"a multiple of 4096, %llu to %llu\"",
                  (unsigned long long)segment_bytes, (unsigned long long)STORE_SEGMENT_BYTES_MIN,
                  (unsigned long long)STORE_SEGMENT_BYTES_MAX);
        return ERR_INVALID;
    }
    if (o->compact_percent > 95) {
        LOG_ERROR("store_options", "compact_percent=%u hint=\"0 to 95\"", o->compact_percent);
        return ERR_INVALID;
    }
    return OK;
}

// Free segments that writes may not take, so that every core can still delete and compact.
static u32 reserve_delete(const struct store *s)
{
    return s->cores;
}
static u32 reserve_compact(const struct store *s)
{
    return 2 * s->cores + 1;
}

// Both reserves, what each core keeps open, and one segment to work with.
static enum err space_check(const struct store *s, const struct store_options *o)
{
    if (o->drive_bytes_max == 0) {
        return OK;
    }
    u64 least = (u64)(reserve_delete(s) + reserve_compact(s) + 2 * s->cores + 1) *
                s->drives[0]->segment_bytes;
    if (o->drive_bytes_max < least) {
        LOG_ERROR("store_options",
                  "drive_bytes_max=%llu least=%llu hint=\"raise it, or format with smaller "
                  "segments\"",
                  (unsigned long long)o->drive_bytes_max, (unsigned long long)least);
        return ERR_INVALID;
    }
    return OK;
}

// ---- drives

MAY_WAIT static enum err drives_attach(struct store *s, const struct store_options *o)
{
    s->drives = calloc(o->drive_count, sizeof(struct drive *));
    if (s->drives == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < o->drive_count; i++) {
        TRY(drive_attach(o->drives[i], &s->drives[i]));
        s->drive_count++;
    }
    return OK;
}

// Segments for the smallest of the drives: a power of two, so that its reserves are a small part of
// it.
MAY_WAIT static enum err segment_bytes_choose(const struct store *s, const struct store_options *o,
                                              u64 *out)
{
    *out = o->segment_bytes == 0 ? SEGMENT_BYTES_DEFAULT : o->segment_bytes;
    for (u32 i = 0; i < s->drive_count && o->segment_bytes == 0; i++) {
        u64 total;
        TRY(drive_capacity(s->drives[i], o->drive_bytes_max, &total));
        while (*out > SEGMENT_BYTES_SMALLEST && total / *out < SEGMENTS_WANTED) {
            *out /= 2;
        }
    }
    return OK;
}

// New identities for all drives, written with opens = 0: only when all of them have it does the
// first opening count, so that a crash in between leaves nothing that must be repaired.
MAY_WAIT static enum err drives_format(struct store *s, const struct store_options *o)
{
    u64 segment_bytes;
    TRY(segment_bytes_choose(s, o, &segment_bytes));
    struct drive_super *super = calloc(1, sizeof(*super));
    if (super == NULL) {
        return ERR_NO_MEMORY;
    }
    core_random(super->store_uuid, sizeof(super->store_uuid));
    core_random(&super->secret, sizeof(super->secret));
    core_random(super->drives, sizeof(super->drives[0]) * s->drive_count);
    super->drive_count = s->drive_count;
    super->pg_count = o->pg_count == 0 ? PG_COUNT_DEFAULT : o->pg_count;
    super->segment_bytes = segment_bytes;
    enum err e = OK;
    for (u32 i = 0; i < s->drive_count && e == OK; i++) {
        super->drive_index = i;
        memcpy(super->drive_uuid, super->drives[i], sizeof(super->drive_uuid));
        e = drive_super_write(s->drives[i], super);
    }
    free(super);
    return e;
}

// All drives new, or left by a formatting that did not finish: format. A mixture of finished ones
// and others is refused.
MAY_WAIT static enum err drives_prepare(struct store *s, const struct store_options *o)
{
    bool is_any_finished = false;
    bool is_any_blank = false;
    bool is_any_formatted = false;
    for (u32 i = 0; i < s->drive_count; i++) {
        const struct drive *d = s->drives[i];
        is_any_formatted = is_any_formatted || d->is_formatted;
        is_any_blank = is_any_blank || !d->is_formatted;
        is_any_finished = is_any_finished || (d->is_formatted && d->super.opens > 0);
    }
    if (!is_any_formatted || (is_any_blank && !is_any_finished)) {
        LOG_INFO("store_format", "drives=%u", s->drive_count);
        return drives_format(s, o);
    }
    for (u32 i = 0; i < s->drive_count; i++) {
        if (!s->drives[i]->is_formatted) {
            LOG_ERROR("drive_blank",
                      "drive=%s hint=\"it is empty, but others belong to a store already; name "
                      "exactly the drives of that store\"",
                      s->drives[i]->path);
            return ERR_INVALID;
        }
    }
    return OK;
}

// All drives of one store, each once, none missing; puts them in their order.
static enum err drives_match(struct store *s)
{
    struct drive *by_index[STORE_DRIVES_MAX] = {0};
    const struct drive *first = s->drives[0];
    for (u32 i = 0; i < s->drive_count; i++) {
        struct drive *d = s->drives[i];
        const struct drive_super *super = &d->super;
        if (memcmp(super->store_uuid, first->super.store_uuid, DRIVE_UUID_BYTES) != 0) {
            LOG_ERROR("drive_of_another_store",
                      "drive=%s other=%s hint=\"these two belong to different stores\"", d->path,
                      first->path);
            return ERR_INVALID;
        }
        if (super->drive_count != s->drive_count) {
            LOG_ERROR("drive_count",
                      "store_has=%u given=%u hint=\"name all drives of the store and no other\"",
                      super->drive_count, s->drive_count);
            return ERR_INVALID;
        }
        bool is_itself =
            memcmp(super->drive_uuid, super->drives[super->drive_index], DRIVE_UUID_BYTES) == 0 &&
            memcmp(super->drives, first->super.drives, sizeof(super->drives)) == 0;
        if (!is_itself || by_index[super->drive_index] != NULL) {
            LOG_ERROR("drive_mismatch",
                      "drive=%s index=%u hint=\"a copy of another drive, or of another time\"",
                      d->path, super->drive_index);
            return ERR_INVALID;
        }
        by_index[super->drive_index] = d;
    }
    memcpy(s->drives, by_index, s->drive_count * sizeof(s->drives[0]));
    return OK;
}

// Counts this opening on every drive before anything is written under its number.
MAY_WAIT static enum err drives_count_open(struct store *s)
{
    u64 opens = 0;
    for (u32 i = 0; i < s->drive_count; i++) {
        opens = MAX(opens, s->drives[i]->super.opens);
    }
    s->opens = opens + 1;
    if (s->opens >= OPENS_MAX) {
        LOG_ERROR("store_opens", "opens=%llu hint=\"the store was opened too often\"",
                  (unsigned long long)s->opens);
        return ERR_LIMIT_REACHED;
    }
    struct drive_super *super = malloc(sizeof(*super));
    if (super == NULL) {
        return ERR_NO_MEMORY;
    }
    enum err e = OK;
    for (u32 i = 0; i < s->drive_count && e == OK; i++) {
        *super = s->drives[i]->super;
        super->opens = s->opens;
        e = drive_super_write(s->drives[i], super);
    }
    free(super);
    return e;
}

MAY_WAIT static enum err drives_open(struct store *s, const struct store_options *o)
{
    TRY(drives_attach(s, o));
    TRY(drives_prepare(s, o));
    TRY(drives_match(s));
    s->pg_count = s->drives[0]->super.pg_count;
    s->secret = s->drives[0]->super.secret;
    TRY(space_check(s, o));
    TRY(drives_count_open(s));
    for (u32 i = 0; i < s->drive_count; i++) {
        TRY(drive_segments_open(s->drives[i], o->drive_bytes_max));
    }
    return OK;
}

// ---- shards

MAY_WAIT static void create_on_core(void *arg)
{
    struct store *s = arg;
    s->results[core_id()] = shard_create(s);
}

MAY_WAIT static void start_on_core(void *arg)
{
    struct store *s = arg;
    s->results[core_id()] = shard_start(shard_here(s));
}

MAY_WAIT static void stop_on_core(void *arg)
{
    struct store *s = arg;
    if (s->shards[core_id()] != NULL) {
        shard_stop(s->shards[core_id()]);
    }
}

MAY_WAIT static void destroy_on_core(void *arg)
{
    shard_destroy(arg);
}

MAY_WAIT static enum err on_all_cores(struct store *s, fiber_fn fn)
{
    TRY(core_call_all(fn, s));
    for (u32 core = 0; core < s->cores; core++) {
        TRY(s->results[core]);
    }
    return OK;
}

MAY_WAIT static void spares_fiber(void *arg)
{
    drive_keep_spares(arg);
}

MAY_WAIT static void compaction_fiber(void *arg)
{
    compaction_run(arg);
}

MAY_WAIT static enum err background_start(struct store *s)
{
    for (u32 i = 0; i < s->drive_count; i++) {
        struct drive *d = s->drives[i];
        enum err e = drive_reserve_fill(d, reserve_delete(s), reserve_compact(s));
        if (e == ERR_DRIVE_FULL) {
            LOG_WARN("drive_reserve",
                     "drive=%s free_segments=%u wanted=%u hint=\"the drive is too full for so many "
                     "cores: some deletes may be refused until others made room; start with as few "
                     "cores as before\"",
                     d->path, d->free_count, reserve_delete(s) + reserve_compact(s));
        } else {
            TRY(e);
        }
        event_set(&d->want_spare);
        TRY(group_spawn(&s->background, spares_fiber, d));
    }
    event_set(&s->compact_wanted);
    return group_spawn(&s->background, compaction_fiber, s);
}

MAY_WAIT static enum err store_open_steps(struct store *s, const struct store_options *o)
{
    TRY(options_check(o));
    TRY(drives_open(s, o));
    TRY(on_all_cores(s, create_on_core));
    TRY(recovery_run(s));
    TRY(on_all_cores(s, start_on_core));
    return background_start(s);
}

MAY_WAIT enum err store_open(const struct store_options *options, struct store **out)
{
    ASSERT(core_id() == 0);
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return ERR_NO_MEMORY;
    }
    s->magic = STORE_MAGIC;
    s->cores = runtime_cores(reactor_runtime(reactor_current()));
    s->cache_bytes = options->cache_bytes;
    s->compact_percent =
        options->compact_percent == 0 ? COMPACT_PERCENT_DEFAULT : options->compact_percent;
    s->accepts_losses = options->accepts_losses;
    group_init(&s->background);
    event_init(&s->compact_wanted);
    s->kicks = 1; // 0 is what no drive has seen
    fiber_mutex_init(&s->compact_mutex);
    enum err e = store_open_steps(s, options);
    if (e != OK) {
        LOG_ERROR("store_open", "error=%s", err_name(e));
        store_close(s);
        return e;
    }
    *out = s;
    return OK;
}

MAY_WAIT void store_close(struct store *s)
{
    ASSERT_MAGIC(s, STORE_MAGIC);
    ASSERT(core_id() == 0);
    fiber_shield_enter();
    group_cancel(&s->background);
    group_join(&s->background);
    group_deinit(&s->background);
    enum err e = core_call_all(stop_on_core, s);
    ASSERT(e == OK); // nothing else may run now, so fibers are free
    e = core_call_all(destroy_on_core, s);
    ASSERT(e == OK);
    for (u32 i = 0; i < s->drive_count; i++) {
        drive_detach(s->drives[i]);
    }
    free(s->drives);
    s->magic = 0;
    free(s);
    fiber_shield_leave();
}

// ---- numbers

void store_usage(struct store *s, struct store_usage *out)
{
    struct shard *sh = shard_here(s);
    *out = (struct store_usage){0};
    for (u32 i = 0; i < sh->pg_count; i++) {
        out->keys += index_count(&sh->pgs[i].index);
    }
    out->index_bytes =
        index_pool_used_bytes(sh->index_pool) + extent_map_memory_bytes(&sh->extents);
    metric_set(METRIC_STORE_INDEX_BYTES, (i64)out->index_bytes);
    struct cache_stats cs;
    cache_stats(sh->cache, &cs);
    metric_set(METRIC_STORE_CACHE_BYTES, (i64)cs.bytes);
    for (u32 i = 0; i < s->drive_count; i++) {
        struct drive *d = s->drives[i];
        for (u32 id = 0; id < d->segments_max; id++) {
            out->live_bytes += sh->drives[i].live_bytes[id];
        }
        if (sh->core == 0) {
            u64 used = d->segments_present - d->free_count;
            u64 total;
            u64 free_bytes;
            drive_space_known(d, &total, &free_bytes);
            out->segment_bytes += used * d->segment_bytes;
            out->total_bytes += total;
            out->free_bytes += free_bytes;
        }
    }
}
