// SPDX-License-Identifier: Apache-2.0
// Attaching a drive: its directory, its lock and its superblock. Everything here blocks, so it runs
// on the helper pool, one job at a time a drive; the fiber that called waits for it.
#include "dev/drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "codec/crc.h"
#include "core/mailbox.h"
#include "core/reactor.h"
#include "dev/drive_fmt.h"

#define SUPER_NAME     "drive.leat"
#define SUPER_NEW_NAME "drive.leat.new"
#define PATH_BYTES     (DRIVE_PATH_MAX + 64)

struct drive_job {
    struct sys *sys;
    struct drive *drive;
    const struct drive_super *super;
    bool has_super;
    bool has_stranger;
    char stranger[128];
    enum err result;
};

// What may lie in a directory that is to become a drive: what an earlier, interrupted formatting
// left, and what a fresh filesystem brings.
static bool is_harmless(const char *name)
{
    return strcmp(name, SUPER_NEW_NAME) == 0 || strcmp(name, "lock") == 0 ||
           strcmp(name, "segments") == 0 || strcmp(name, "lost+found") == 0;
}

static enum err look_at_name(void *arg, const char *name)
{
    struct drive_job *job = arg;
    if (strcmp(name, SUPER_NAME) == 0) {
        job->has_super = true;
    } else if (!is_harmless(name) && !job->has_stranger) {
        job->has_stranger = true;
        snprintf(job->stranger, sizeof(job->stranger), "%s", name);
    }
    return OK;
}

static enum err super_decode(struct drive *d, const u8 *block)
{
    const struct drive_super_fmt *f = (const void *)block;
    if (f->magic != DRIVE_SUPER_MAGIC ||
        f->crc != crc32c(0, BYTES(block, offsetof(struct drive_super_fmt, crc)))) {
        LOG_ERROR("drive_superblock_damaged",
                  "drive=%s hint=\"restore " SUPER_NAME " from a backup of the drive\"", d->path);
        return ERR_CORRUPT;
    }
    if (f->version != DRIVE_SUPER_VERSION) {
        LOG_ERROR("drive_version", "drive=%s version=%u readable=%u hint=\"start a newer leat\"",
                  d->path, f->version, DRIVE_SUPER_VERSION);
        return ERR_VERSION;
    }
    bool is_sane = f->drive_count >= 1 && f->drive_count <= DRIVE_COUNT_MAX &&
                   f->drive_index < f->drive_count && IS_POWER_OF_TWO(f->pg_count) &&
                   f->segment_bytes >= SEGMENT_HEADER_BYTES && f->segment_bytes <= GIB &&
                   f->segment_bytes % SEGMENT_BLOCK_BYTES == 0;
    if (!is_sane) {
        LOG_ERROR("drive_superblock_malformed", "drive=%s", d->path);
        return ERR_CORRUPT;
    }
    struct drive_super *s = &d->super;
    memcpy(s->store_uuid, f->store_uuid, DRIVE_UUID_BYTES);
    memcpy(s->drive_uuid, f->drive_uuid, DRIVE_UUID_BYTES);
    memcpy(s->drives, f->drives, sizeof(s->drives));
    s->drive_index = f->drive_index;
    s->drive_count = f->drive_count;
    s->pg_count = f->pg_count;
    s->segment_bytes = f->segment_bytes;
    s->opens = f->opens;
    s->secret = f->secret;
    d->segment_bytes = (u32)f->segment_bytes;
    d->is_formatted = true;
    return OK;
}

static enum err super_read(struct sys *sys, struct drive *d)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/" SUPER_NAME, d->path);
    int fd;
    TRY(sys->ops->file_open(sys, path, SYS_OPEN_READ, &fd));
    u8 *block = malloc(DRIVE_SUPER_BYTES);
    enum err e =
        block == NULL ? ERR_NO_MEMORY : sys->ops->file_read(sys, fd, block, DRIVE_SUPER_BYTES, 0);
    sys->ops->file_close(sys, fd);
    if (e == OK) {
        e = super_decode(d, block);
    } else if (e == ERR_END) {
        LOG_ERROR("drive_superblock_short", "drive=%s", d->path);
        e = ERR_CORRUPT;
    } else if (e == ERR_IO) {
        LOG_ERROR("drive_superblock_unreadable",
                  "file=%s hint=\"the drive cannot read it: check the drive\"", path);
    }
    free(block);
    return e;
}

// Makes the drive's directory durable in its parent: a store in a directory that a power loss takes
// away is lost with it.
static enum err parent_flush(struct sys *sys, const char *drive_path)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s", drive_path);
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    while (len > 0 && path[len - 1] != '/') {
        len--;
    }
    path[len] = 0;
    return sys->ops->dir_flush(sys, len == 0 ? "." : path);
}

static enum err attach_blocking(struct drive_job *job)
{
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    enum err e = sys->ops->dir_create(sys, d->path);
    if (e != OK && e != ERR_EXISTS) {
        LOG_ERROR("drive_directory", "drive=%s error=%s hint=\"make its parent directory\"",
                  d->path, err_name(e));
        return e;
    }
    e = sys->ops->dir_list(sys, d->path, look_at_name, job);
    if (e != OK) {
        LOG_ERROR("drive_directory",
                  "drive=%s error=%s hint=\"it is not a directory, or cannot be read: name a "
                  "directory of this user\"",
                  d->path, err_name(e));
        return e;
    }
    if (!job->has_super && job->has_stranger) {
        LOG_ERROR("drive_not_empty",
                  "drive=%s found=\"%s\" hint=\"name an empty directory or an existing drive\"",
                  d->path, job->stranger);
        return ERR_INVALID;
    }
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/lock", d->path);
    e = sys->ops->file_open(
        sys, path, SYS_OPEN_READ | SYS_OPEN_WRITE | SYS_OPEN_CREATE | SYS_OPEN_LOCK, &d->lock_fd);
    if (e != OK) {
        d->lock_fd = -1;
        LOG_ERROR("drive_lock", "drive=%s error=%s hint=\"%s\"", d->path, err_name(e),
                  e == ERR_IN_USE ? "another process uses this drive"
                                  : "check the directory's permissions");
        return e;
    }
    return job->has_super ? super_read(sys, d) : parent_flush(sys, d->path);
}

static void attach_job(void *arg)
{
    struct drive_job *job = arg;
    job->result = attach_blocking(job);
}

MAY_WAIT enum err drive_attach(const char *path, struct drive **out)
{
    if (path[0] == 0 || strlen(path) >= DRIVE_PATH_MAX) {
        LOG_ERROR("drive_path", "hint=\"a drive's path has 1 to %d bytes\"", DRIVE_PATH_MAX - 1);
        return ERR_INVALID;
    }
    struct drive *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return ERR_NO_MEMORY;
    }
    d->magic = DRIVE_MAGIC;
    d->lock_fd = -1;
    snprintf(d->path, sizeof(d->path), "%s", path);
    fiber_mutex_init(&d->create_mutex);
    event_init(&d->want_spare);
    struct drive_job job = {.sys = core_sys(), .drive = d};
    enum err e = blocking_call(attach_job, &job);
    if (e == OK) {
        e = job.result;
    }
    if (e != OK) {
        drive_detach(d);
        return e;
    }
    *out = d;
    return OK;
}

static void detach_job(void *arg)
{
    struct drive_job *job = arg;
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    for (u32 i = 0; i < d->segments_max && d->segments != NULL; i++) {
        if (d->segments[i].fd >= 0 && d->segments[i].state != SEGMENT_ABSENT) {
            sys->ops->file_close(sys, d->segments[i].fd);
        }
    }
    if (d->lock_fd >= 0) {
        sys->ops->file_close(sys, d->lock_fd);
    }
}

MAY_WAIT void drive_detach(struct drive *d)
{
    ASSERT_MAGIC(d, DRIVE_MAGIC);
    struct drive_job job = {.sys = core_sys(), .drive = d};
    fiber_shield_enter();
    if (blocking_call(detach_job, &job) != OK) {
        detach_job(&job); // the helpers are busy: better to block once than to leak descriptors
    }
    fiber_shield_leave();
    free(d->segments);
    d->magic = 0;
    free(d);
}

static void super_encode(const struct drive_super *s, struct drive_super_fmt *f)
{
    memset(f, 0, sizeof(*f));
    f->magic = DRIVE_SUPER_MAGIC;
    f->version = DRIVE_SUPER_VERSION;
    memcpy(f->store_uuid, s->store_uuid, DRIVE_UUID_BYTES);
    memcpy(f->drive_uuid, s->drive_uuid, DRIVE_UUID_BYTES);
    memcpy(f->drives, s->drives, sizeof(f->drives));
    f->drive_index = s->drive_index;
    f->drive_count = s->drive_count;
    f->pg_count = s->pg_count;
    f->segment_bytes = s->segment_bytes;
    f->opens = s->opens;
    f->secret = s->secret;
    f->crc = crc32c(0, BYTES(f, offsetof(struct drive_super_fmt, crc)));
}

// Write aside, flush, rename, flush the directory: the old superblock or the new one, never half.
static enum err super_write_blocking(struct drive_job *job)
{
    struct sys *sys = job->sys;
    struct drive *d = job->drive;
    char path[PATH_BYTES];
    char path_new[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/" SUPER_NAME, d->path);
    snprintf(path_new, sizeof(path_new), "%s/" SUPER_NEW_NAME, d->path);
    struct drive_super_fmt *block = malloc(sizeof(*block));
    if (block == NULL) {
        return ERR_NO_MEMORY;
    }
    super_encode(job->super, block);
    int fd;
    enum err e =
        sys->ops->file_open(sys, path_new, SYS_OPEN_READ | SYS_OPEN_WRITE | SYS_OPEN_CREATE, &fd);
    if (e == OK) {
        e = sys->ops->file_write(sys, fd, block, sizeof(*block), 0);
        if (e == OK) {
            e = sys->ops->file_flush(sys, fd);
        }
        sys->ops->file_close(sys, fd);
    }
    free(block);
    TRY(e);
    TRY(sys->ops->file_rename(sys, path_new, path));
    return sys->ops->dir_flush(sys, d->path);
}

static void super_write_job(void *arg)
{
    struct drive_job *job = arg;
    job->result = super_write_blocking(job);
}

MAY_WAIT enum err drive_super_write(struct drive *d, const struct drive_super *super)
{
    ASSERT_MAGIC(d, DRIVE_MAGIC);
    struct drive_job job = {.sys = core_sys(), .drive = d, .super = super};
    TRY(blocking_call(super_write_job, &job));
    if (job.result != OK) {
        LOG_ERROR("drive_superblock_write", "drive=%s error=%s", d->path, err_name(job.result));
        return job.result;
    }
    d->super = *super;
    d->segment_bytes = (u32)super->segment_bytes;
    d->is_formatted = true;
    return OK;
}
