// SPDX-License-Identifier: Apache-2.0
// The segments of a drive: which files there are, which are free, and making new ones. Runs on core
// 0 (other cores call across), so the states need no lock; only making a file is a long affair, and
// a mutex serialises it.
#include "dev/drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "core/reactor.h"
#include "dev/segment.h"

#define SEGMENT_DIRECTORY "segments"
#define SEGMENT_DIGITS    8
#define PATH_BYTES        (DRIVE_PATH_MAX + 64)

struct segments_job {
    struct sys *sys;
    struct drive *drive;
    u64 bytes_max;
    struct segment *segment;
    bool is_zeroed;
    u32 highest; // one more than the highest id seen
    u8 *present; // while listing
    struct sys_space space;
    enum err result;
};

struct segment *drive_segment(struct drive *d, u32 id)
{
    ASSERT(id < d->segments_max);
    return &d->segments[id];
}

static void segment_path(const struct drive *d, u32 id, const char *suffix, char *out)
{
    snprintf(out, PATH_BYTES, "%s/" SEGMENT_DIRECTORY "/%0*u.%s", d->path, SEGMENT_DIGITS, id,
             suffix);
}

// Direct where the filesystem takes it; else buffered, which a log line tells once.
static enum err segment_file_open(struct sys *sys, struct drive *d, const char *path,
                                  unsigned flags, int *fd)
{
    flags |= SYS_OPEN_READ | SYS_OPEN_WRITE;
    if (d->is_direct) {
        enum err e = sys->ops->file_open(sys, path, flags | SYS_OPEN_DIRECT, fd);
        if (e != ERR_UNSUPPORTED) {
            return e;
        }
        LOG_WARN("drive_buffered",
                 "drive=%s hint=\"the filesystem has no O_DIRECT: the page cache is used\"",
                 d->path);
        d->is_direct = false;
    }
    return sys->ops->file_open(sys, path, flags, fd);
}

// ---- opening what is there

static enum err look_at_segment(void *arg, const char *name)
{
    struct segments_job *job = arg;
    struct bytes b = bytes_from_string(name);
    u64 id;
    if (b.len != SEGMENT_DIGITS + 4 || memcmp(name + SEGMENT_DIGITS, ".seg", 4) != 0 ||
        !u64_parse(BYTES(name, SEGMENT_DIGITS), DRIVE_SEGMENTS_MAX - 1, &id)) {
        return OK; // a half-made "NNNNNNNN.new" is made again when its turn comes
    }
    job->present[id] = 1;
    job->highest = MAX(job->highest, (u32)id + 1);
    return OK;
}

static void space_job(void *arg)
{
    struct segments_job *job = arg;
    job->result = job->sys->ops->dir_space(job->sys, job->drive->path, &job->space);
}

MAY_WAIT enum err drive_capacity(struct drive *d, u64 bytes_max, u64 *out)
{
    struct segments_job job = {.sys = core_sys(), .drive = d};
    TRY(blocking_call(space_job, &job));
    TRY(job.result);
    *out = bytes_max == 0 ? job.space.total_bytes : MIN(bytes_max, job.space.total_bytes);
    return OK;
}

// How many segments the drive may have: the limit given, or what the filesystem could ever hold,
// and in any case those that exist.
static enum err segments_limit(struct segments_job *job)
{
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    u64 limit = job->bytes_max / d->segment_bytes;
    if (job->bytes_max == 0) {
        struct sys_space space;
        TRY(sys->ops->dir_space(sys, d->path, &space));
        limit = space.total_bytes / d->segment_bytes;
    }
    d->segments_max = (u32)MIN(MAX(limit, (u64)job->highest), (u64)DRIVE_SEGMENTS_MAX);
    d->segments = calloc(MAX(d->segments_max, 1u), sizeof(*d->segments));
    if (d->segments == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < job->highest; i++) {
        d->segments[i].fd = -1;
    }
    return OK;
}

static enum err segment_open_blocking(struct segments_job *job, u32 id)
{
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    char path[PATH_BYTES];
    segment_path(d, id, "seg", path);
    struct segment *seg = &d->segments[id];
    seg->id = id;
    enum err e = segment_file_open(sys, d, path, 0, &seg->fd);
    if (e != OK) {
        LOG_ERROR("segment_open", "file=%s error=%s hint=\"%s\"", path, err_name(e),
                  e == ERR_LIMIT_REACHED ? "raise the limit of open files (ulimit -n)"
                                         : "check the drive and its permissions");
        return e;
    }
    seg->state = SEGMENT_UNKNOWN;
    d->segments_present++;
    u64 bytes;
    TRY(sys->ops->file_size(sys, seg->fd, &bytes));
    if (bytes != d->segment_bytes) {
        LOG_ERROR("segment_size", "file=%s bytes=%llu expected=%u", path, (unsigned long long)bytes,
                  d->segment_bytes);
        return ERR_CORRUPT;
    }
    return OK;
}

static enum err segments_open_blocking(struct segments_job *job)
{
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/" SEGMENT_DIRECTORY, d->path);
    enum err e = sys->ops->dir_create(sys, path);
    if (e != OK && e != ERR_EXISTS) {
        return e;
    }
    // Also what is there may be so only in the cache: the process before this one may have ended
    // between a rename and the flush of the directory.
    TRY(sys->ops->dir_flush(sys, d->path));
    TRY(sys->ops->dir_flush(sys, path));
    TRY(sys->ops->dir_list(sys, path, look_at_segment, job));
    TRY(segments_limit(job));
    for (u32 id = 0; id < job->highest; id++) {
        if (job->present[id]) {
            TRY(segment_open_blocking(job, id));
        } else {
            // They are made in order, each with its name made durable.
            d->missing_count++;
            LOG_ERROR("segment_missing", "drive=%s segment=%u hint=\"its file was removed\"",
                      d->path, id);
        }
    }
    return OK;
}

static void segments_open_job(void *arg)
{
    struct segments_job *job = arg;
    job->result = segments_open_blocking(job);
}

MAY_WAIT enum err drive_segments_open(struct drive *d, u64 bytes_max)
{
    ASSERT(d->segments == NULL && d->is_formatted);
    struct segments_job job = {.sys = core_sys(), .drive = d, .bytes_max = bytes_max};
    job.present = calloc(1, DRIVE_SEGMENTS_MAX);
    if (job.present == NULL) {
        return ERR_NO_MEMORY;
    }
    d->is_direct = true;
    enum err e = blocking_call(segments_open_job, &job);
    free(job.present);
    TRY(e);
    return job.result;
}

void drive_segment_found(struct drive *d, u32 id, enum segment_state state)
{
    struct segment *seg = drive_segment(d, id);
    ASSERT(seg->state == SEGMENT_UNKNOWN);
    ASSERT(state == SEGMENT_IDLE || state == SEGMENT_SEALED || state == SEGMENT_BROKEN);
    seg->state = (u8)state;
    d->broken_count += state == SEGMENT_BROKEN ? 1 : 0;
    if (state == SEGMENT_IDLE) {
        d->free_count++;
        metric_add(METRIC_STORE_SEGMENTS_FREE, 1);
    } else {
        metric_add(METRIC_STORE_SEGMENTS, 1);
    }
}

// ---- making new ones

// Both header copies of a fresh, free segment.
static enum err segment_init_blocking(struct segments_job *job, int fd)
{
    u8 *block = aligned_alloc(SEGMENT_BLOCK_BYTES, SEGMENT_HEADER_BYTES);
    if (block == NULL) {
        return ERR_NO_MEMORY;
    }
    segment_header_encode(job->drive, job->segment, block);
    memcpy(block + SEGMENT_BLOCK_BYTES, block, SEGMENT_BLOCK_BYTES);
    enum err e = job->sys->ops->file_write(job->sys, fd, block, SEGMENT_HEADER_BYTES, 0);
    free(block);
    TRY(e);
    return job->sys->ops->file_flush(job->sys, fd);
}

static enum err segment_create_blocking(struct segments_job *job)
{
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    struct segment *seg = job->segment;
    char path[PATH_BYTES];
    char path_new[PATH_BYTES];
    segment_path(d, seg->id, "seg", path);
    segment_path(d, seg->id, "new", path_new);
    int fd;
    TRY(segment_file_open(sys, d, path_new, SYS_OPEN_CREATE, &fd));
    enum err e = sys->ops->file_allocate(sys, fd, d->segment_bytes, job->is_zeroed);
    if (e == OK) {
        e = segment_init_blocking(job, fd);
    }
    if (e == OK) {
        e = sys->ops->file_rename(sys, path_new, path);
    }
    if (e != OK) {
        sys->ops->file_close(sys, fd);
        // What was reserved of a full filesystem is given back; if not, the next attempt reuses it.
        enum err remove_err = sys->ops->file_remove(sys, path_new);
        LOG_AT(remove_err == OK ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "segment_not_made",
               "file=%s error=%s", path_new, err_name(e));
        return e;
    }
    snprintf(path, sizeof(path), "%s/" SEGMENT_DIRECTORY, d->path);
    seg->fd = fd;
    return sys->ops->dir_flush(sys, path);
}

static void segment_create_job(void *arg)
{
    struct segments_job *job = arg;
    job->result = segment_create_blocking(job);
}

static struct segment *find_absent(struct drive *d)
{
    for (u32 i = 0; i < d->segments_max; i++) {
        if (d->segments[i].state == SEGMENT_ABSENT) {
            return &d->segments[i];
        }
    }
    return NULL;
}

// Makes one more free segment. ERR_DRIVE_FULL at the limit or when the filesystem has no room.
MAY_WAIT static enum err segment_create(struct drive *d, bool is_zeroed)
{
    ASSERT(core_id() == 0 && d->create_mutex.is_held);
    if (d->segments_present >= d->segments_max) {
        return ERR_DRIVE_FULL;
    }
    struct segment *seg = find_absent(d);
    if (seg == NULL) {
        return ERR_DRIVE_FULL;
    }
    *seg = (struct segment){.id = (u32)(seg - d->segments),
                            .fd = -1,
                            .state = SEGMENT_ABSENT,
                            .kind = SEGMENT_FREE,
                            .is_written = is_zeroed,
                            .generation = 1};
    core_random(&seg->cookie, sizeof(seg->cookie));
    struct segments_job job = {
        .sys = core_sys(), .drive = d, .segment = seg, .is_zeroed = is_zeroed};
    TRY(blocking_call(segment_create_job, &job));
    if (job.result != OK) {
        if (job.result == ERR_DRIVE_FULL && !d->is_full) {
            d->is_full = true;
            LOG_WARN("drive_full", "drive=%s segments=%u hint=\"delete objects or add a drive\"",
                     d->path, d->segments_present);
        } else if (job.result != ERR_DRIVE_FULL) {
            LOG_ERROR("segment_create", "drive=%s segment=%u error=%s", d->path, seg->id,
                      err_name(job.result));
        }
        if (seg->fd >= 0) { // the file has its name, only the directory's flush failed
            seg->state = SEGMENT_BROKEN;
            d->segments_present++;
        }
        return job.result;
    }
    d->is_full = false;
    seg->state = SEGMENT_IDLE;
    d->segments_present++;
    d->free_count++;
    metric_add(METRIC_STORE_SEGMENTS_FREE, 1);
    return OK;
}

MAY_WAIT static enum err segment_create_locked(struct drive *d, u32 free_wanted, bool is_zeroed)
{
    TRY(fiber_mutex_lock(&d->create_mutex));
    enum err e = OK;
    if (d->free_count < free_wanted) { // somebody else may have made one meanwhile
        e = segment_create(d, is_zeroed);
    }
    fiber_mutex_unlock(&d->create_mutex);
    return e;
}

MAY_WAIT enum err drive_reserve_fill(struct drive *d, u32 reserve_delete, u32 reserve_compact)
{
    d->reserve_compact = reserve_compact;
    d->reserve_delete = reserve_delete;
    u32 reserve = reserve_compact + reserve_delete;
    while (d->free_count < reserve) {
        TRY(segment_create_locked(d, reserve, false));
    }
    return OK;
}

MAY_WAIT void drive_keep_spares(struct drive *d)
{
    fiber_set_deadline(0);
    while (event_wait(&d->want_spare) == OK) {
        event_init(&d->want_spare);
        u32 wanted = d->reserve_delete + d->reserve_compact + DRIVE_SPARES_WANTED;
        while (d->free_count < wanted && !fiber_is_cancelled()) {
            if (segment_create_locked(d, wanted, true) != OK) {
                break; // told where it failed; the next one who takes a segment asks again
            }
        }
    }
}

// ---- taking and giving back

// The lowest free id, one that was written before where that matters.
static struct segment *find_free(struct drive *d, bool is_written_wanted)
{
    struct segment *any = NULL;
    for (u32 i = 0; i < d->segments_max; i++) {
        struct segment *seg = &d->segments[i];
        if (seg->state != SEGMENT_IDLE) {
            continue;
        }
        if (seg->is_written == is_written_wanted) {
            return seg;
        }
        any = any == NULL ? seg : any;
    }
    return any;
}

static u32 reserve_against(const struct drive *d, enum space_class space)
{
    switch (space) {
    case SPACE_WRITE:
        return d->reserve_delete + d->reserve_compact;
    case SPACE_DELETE:
        return d->reserve_compact;
    case SPACE_COMPACT:
        return 0;
    }
    ASSERT(false);
}

struct take_call {
    struct drive *drive;
    enum segment_kind kind;
    enum space_class space;
    struct segment *segment;
    enum err result;
};

// Makes sure that a free segment is there beyond what is reserved against this class.
MAY_WAIT static enum err room_make(struct drive *d, enum segment_kind kind, enum space_class space)
{
    u32 reserve = reserve_against(d, space);
    enum err e = OK;
    while (e == OK && d->free_count <= reserve) { // again if another took it meanwhile
        e = segment_create_locked(d, reserve + 1, kind == SEGMENT_LOG);
    }
    return e;
}

MAY_WAIT static void take_on_core0(void *arg)
{
    struct take_call *call = arg;
    struct drive *d = call->drive;
    fiber_shield_enter();
    call->result = room_make(d, call->kind, call->space);
    fiber_shield_leave();
    if (call->result != OK) {
        return;
    }
    call->segment = find_free(d, call->kind == SEGMENT_LOG);
    ASSERT(call->segment != NULL);
    call->segment->state = SEGMENT_OPEN;
    call->segment->used_bytes = SEGMENT_HEADER_BYTES;
    call->segment->is_suspect = false;
    d->free_count--;
    metric_add(METRIC_STORE_SEGMENTS_FREE, -1);
    metric_add(METRIC_STORE_SEGMENTS, 1);
    event_set(&d->want_spare);
}

MAY_WAIT static void untake_on_core0(void *arg)
{
    struct take_call *call = arg;
    ASSERT(call->segment->state == SEGMENT_OPEN);
    call->segment->state = SEGMENT_IDLE;
    call->segment->kind = SEGMENT_FREE;
    call->drive->free_count++;
    metric_add(METRIC_STORE_SEGMENTS_FREE, 1);
    metric_add(METRIC_STORE_SEGMENTS, -1);
}

MAY_WAIT enum err drive_segment_take(struct drive *d, enum segment_kind kind,
                                     enum space_class space, struct segment **out)
{
    ASSERT_MAGIC(d, DRIVE_MAGIC);
    struct take_call call = {.drive = d, .kind = kind, .space = space};
    TRY(core_call(0, take_on_core0, &call));
    TRY(call.result);
    struct segment *seg = call.segment;
    enum err e = segment_header_advance(d, seg, kind);
    if (e == ERR_NO_MEMORY || e == ERR_LIMIT_REACHED) { // nothing was written
        enum err back_err = core_call(0, untake_on_core0, &call);
        LOG_AT(back_err == OK ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "segment_untaken",
               "drive=%s segment=%u error=%s", d->path, seg->id, err_name(e));
        return e;
    }
    if (e != OK) {
        LOG_ERROR("segment_header_write", "drive=%s segment=%u error=%s", d->path, seg->id,
                  err_name(e));
        return ERR_IO; // it stays open and unused until the next start
    }
    *out = seg;
    return OK;
}

MAY_WAIT static void room_on_core0(void *arg)
{
    struct take_call *call = arg;
    fiber_shield_enter();
    call->result = room_make(call->drive, SEGMENT_LOG, SPACE_WRITE);
    fiber_shield_leave();
}

MAY_WAIT bool drive_has_room(struct drive *d)
{
    struct take_call call = {.drive = d};
    return core_call(0, room_on_core0, &call) == OK && call.result == OK;
}

MAY_WAIT static void sealed_on_core0(void *arg)
{
    struct take_call *call = arg;
    ASSERT(call->segment->state == SEGMENT_OPEN);
    call->segment->state = SEGMENT_SEALED;
}

MAY_WAIT void drive_segment_sealed(struct drive *d, struct segment *seg)
{
    struct take_call call = {.drive = d, .segment = seg};
    enum err e = core_call(0, sealed_on_core0, &call);
    if (e != OK) {
        // No fiber left there: it stays out of compaction's sight until the next start.
        LOG_WARN("segment_seal_unreported", "drive=%s segment=%u error=%s", d->path, seg->id,
                 err_name(e));
    }
}

MAY_WAIT enum err drive_segment_erase(struct drive *d, struct segment *seg)
{
    ASSERT(core_id() == 0 && seg->state == SEGMENT_SEALED);
    return segment_header_advance(d, seg, SEGMENT_FREE);
}

void drive_segment_break(struct drive *d, struct segment *seg)
{
    ASSERT(core_id() == 0 && seg->state == SEGMENT_SEALED);
    seg->state = SEGMENT_BROKEN;
    d->broken_count++;
}

void drive_segment_release(struct drive *d, struct segment *seg)
{
    ASSERT(core_id() == 0 && seg->state == SEGMENT_SEALED && seg->kind == SEGMENT_FREE);
    seg->state = SEGMENT_IDLE;
    seg->used_bytes = 0;
    d->free_count++;
    d->is_full = false;
    metric_add(METRIC_STORE_SEGMENTS_FREE, 1);
    metric_add(METRIC_STORE_SEGMENTS, -1);
}

void drive_space_known(const struct drive *d, u64 *total_bytes, u64 *free_bytes)
{
    ASSERT(core_id() == 0);
    // A filesystem that refused a segment has no room for those that do not exist yet.
    u64 creatable = d->is_full ? 0 : d->segments_max - d->segments_present;
    u32 reserve = reserve_against(d, SPACE_WRITE);
    u64 free_count = d->free_count + creatable;
    *total_bytes = ((u64)d->segments_present + creatable) * d->segment_bytes;
    *free_bytes = (free_count > reserve ? free_count - reserve : 0) * d->segment_bytes;
}

bool drive_is_short(const struct drive *d)
{
    ASSERT(core_id() == 0);
    bool can_grow = !d->is_full && d->segments_present < d->segments_max;
    return !can_grow && d->free_count <= reserve_against(d, SPACE_WRITE) + 1;
}
