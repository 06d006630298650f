// SPDX-License-Identifier: Apache-2.0
// The blocking half of the simulated sys: clocks, randomness, files and directories; and crashing.
#include "sim/internal.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FD_BASE       3 // descriptors below are the standard ones elsewhere
#define WALL_START_NS ((u64)1700000000 * NS_PER_S)

enum err sim_create(struct sim_disk *disk, const struct sim_options *options, struct sys **out)
{
    ASSERT_MAGIC(disk, SIM_DISK_MAGIC);
    struct sim *sim = calloc(1, sizeof(*sim));
    if (sim == NULL) {
        return ERR_NO_MEMORY;
    }
    sim->base.ops = &sim_ops;
    sim->magic = SIM_MAGIC;
    sim->disk = disk;
    sim->options = *options;
    sim->random = options->seed;
    sim->now_ns = disk->clock_ns + NS_PER_S;
    list_init(&sim->requests);
    list_init(&sim->engines);
    disk_unlock_all(disk);
    *out = &sim->base;
    return OK;
}

static void destroy(struct sys *s)
{
    struct sim *sim = sim_of(s);
    ASSERT(list_is_empty(&sim->requests) && list_is_empty(&sim->engines));
    sim->disk->clock_ns = sim->now_ns;
    disk_unlock_all(sim->disk);
    sim->magic = 0;
    free(sim);
}

void sim_stats(struct sys *s, struct sim_stats *out)
{
    *out = sim_of(s)->stats;
}

// Settles what the crash leaves, once.
void sim_crash(struct sys *s)
{
    struct sim *sim = sim_of(s);
    if (sim->stats.is_crashed) {
        return;
    }
    LOG_DEBUG("sim_crash", "event=%llu flush=%llu kind=%s", (unsigned long long)sim->stats.events,
              (unsigned long long)sim->stats.flushes, sim->options.is_kill ? "kill" : "power");
    sim->stats.is_crashed = true;
    sim_settle_in_flight(sim);
    if (!sim->options.is_kill) {
        disk_settle(sim->disk, &sim->random);
    }
}

void sim_crash_arm(struct sys *s, u64 flushes, bool is_after, u64 events)
{
    struct sim *sim = sim_of(s);
    sim->options.crash_at_flush = flushes == 0 ? 0 : sim->stats.flushes + flushes;
    sim->options.is_crash_after = is_after;
    sim->options.crash_at_event = events == 0 ? 0 : sim->stats.events + events;
}

void sim_errors_set(struct sys *s, u32 read_ppm, u32 write_ppm, u32 flush_ppm)
{
    struct sim_options *o = &sim_of(s)->options;
    o->read_error_ppm = read_ppm;
    o->write_error_ppm = write_ppm;
    o->flush_error_ppm = flush_ppm;
}

bool sim_event(struct sim *sim)
{
    sim->stats.events++;
    if (sim->stats.events == sim->options.crash_at_event) {
        sim_crash(&sim->base);
    }
    return sim->stats.is_crashed;
}

bool sim_flush_before(struct sim *sim)
{
    sim->stats.flushes++;
    if (sim->stats.flushes == sim->options.crash_at_flush && !sim->options.is_crash_after) {
        sim_crash(&sim->base);
    }
    return sim->stats.is_crashed;
}

void sim_flush_after(struct sim *sim)
{
    if (sim->stats.flushes == sim->options.crash_at_flush && sim->options.is_crash_after) {
        sim_crash(&sim->base);
    }
}

static u64 clock_mono_ns(struct sys *s)
{
    return sim_of(s)->now_ns;
}

static u64 clock_wall_ns(struct sys *s)
{
    return WALL_START_NS + sim_of(s)->now_ns;
}

static void random_bytes(struct sys *s, void *out, size_t len)
{
    u8 *to = out;
    for (size_t i = 0; i < len; i++) {
        to[i] = (u8)sim_random(&sim_of(s)->random);
    }
}

struct sim_fd *sim_fd(struct sim *sim, int fd)
{
    ASSERT(fd >= FD_BASE && fd < FD_BASE + SIM_FDS_MAX);
    struct sim_fd *f = &sim->fds[fd - FD_BASE];
    ASSERT(f->node != NULL); // else: used after it was closed
    return f;
}

// Finds or makes the file that is to be opened.
static enum err open_node(struct sim *sim, const char *path, unsigned flags, struct sim_node **out)
{
    struct sim_node *dir;
    char name[SIM_NAME_MAX + 1];
    TRY(disk_find_parent(sim->disk, path, &dir, name));
    struct sim_node *n = dir_entry(dir, name);
    if (n == NULL) {
        if ((flags & SYS_OPEN_CREATE) == 0) {
            return ERR_NOT_FOUND;
        }
        ASSERT(dir != sim->disk->root); // files live on drives, which are directories
        n = node_create(sim->disk, dir, path, false);
        dir_change(dir, name, n, "");
    } else if ((flags & SYS_OPEN_EXCLUSIVE) != 0) {
        return ERR_EXISTS;
    }
    if (n->is_dir) {
        return ERR_INVALID;
    }
    if ((flags & SYS_OPEN_LOCK) != 0 && n->is_locked) {
        return ERR_IN_USE;
    }
    *out = n;
    return OK;
}

static enum err file_open(struct sys *s, const char *path, unsigned flags, int *out_fd)
{
    struct sim *sim = sim_of(s);
    if (sim_event(sim)) {
        return ERR_IO;
    }
    struct sim_node *n;
    TRY(open_node(sim, path, flags, &n));
    for (int i = 0; i < SIM_FDS_MAX; i++) {
        if (sim->fds[i].node == NULL) {
            sim->fds[i] = (struct sim_fd){.node = n, .flags = flags};
            n->is_locked |= (flags & SYS_OPEN_LOCK) != 0;
            *out_fd = i + FD_BASE;
            return OK;
        }
    }
    return ERR_LIMIT_REACHED;
}

static void file_close(struct sys *s, int fd)
{
    struct sim *sim = sim_of(s);
    struct sim_fd *f = sim_fd(sim, fd);
    if ((f->flags & SYS_OPEN_LOCK) != 0) {
        f->node->is_locked = false;
    }
    f->node = NULL;
}

static enum err file_size(struct sys *s, int fd, u64 *out)
{
    struct sim *sim = sim_of(s);
    if (sim_event(sim)) {
        return ERR_IO;
    }
    *out = sim_fd(sim, fd)->node->size;
    return OK;
}

static enum err file_allocate(struct sys *s, int fd, u64 bytes, bool is_zeroed)
{
    struct sim *sim = sim_of(s);
    struct sim_node *n = sim_fd(sim, fd)->node;
    if (sim_event(sim)) {
        return ERR_IO;
    }
    TRY(file_grow(sim->disk, n, bytes));
    if (!is_zeroed) {
        return OK;
    }
    // What was there before, durable or not, is zeros now; the real one flushes them too.
    static const u8 zeros[SIM_PAGE_BYTES];
    for (size_t i = 0; i < n->visible.piece_count; i++) {
        for (u64 at = 0; n->visible.pieces[i] != NULL && at < IMAGE_PIECE_BYTES;
             at += SIM_PAGE_BYTES) {
            u64 offset = i * IMAGE_PIECE_BYTES + at;
            if (offset < bytes) {
                file_write_done(sim->disk, n, offset, zeros,
                                (u32)MIN((u64)SIM_PAGE_BYTES, bytes - offset));
            }
        }
    }
    return s->ops->file_flush(s, fd);
}

static enum err file_read(struct sys *s, int fd, void *buf, size_t len, u64 offset)
{
    struct sim *sim = sim_of(s);
    struct sim_node *n = sim_fd(sim, fd)->node;
    if (sim_event(sim) || sim_chance(&sim->random, sim->options.read_error_ppm)) {
        return ERR_IO;
    }
    sim->stats.reads++;
    if (offset + len > n->size) {
        return ERR_END;
    }
    if (!file_is_readable(n, offset, len)) {
        return ERR_IO;
    }
    image_read(&n->visible, offset, buf, len);
    return OK;
}

void sim_misdirect(struct sim *sim, struct sim_node **file, u64 *offset, u32 bytes)
{
    if (!sim_chance(&sim->random, sim->options.misdirect_ppm)) {
        return;
    }
    struct sim_node *target = NULL;
    u64 seen = 0;
    for (struct sim_node *n = sim->disk->nodes; n != NULL; n = n->next_node) {
        if (!n->is_dir && n->drive == (*file)->drive && n->size >= bytes) {
            seen++;
            if (sim_below(&sim->random, seen) == 0) {
                target = n;
            }
        }
    }
    if (target == NULL) {
        return;
    }
    u64 places = (target->size - bytes) / SIM_PAGE_BYTES + 1;
    u64 to = sim_below(&sim->random, places) * SIM_PAGE_BYTES;
    LOG_DEBUG("sim_misdirected", "from=%s at=%llu to=%s at=%llu bytes=%u", (*file)->path,
              (unsigned long long)*offset, target->path, (unsigned long long)to, bytes);
    sim->stats.misdirected++;
    *file = target;
    *offset = to;
}

static enum err file_write(struct sys *s, int fd, const void *buf, size_t len, u64 offset)
{
    struct sim *sim = sim_of(s);
    struct sim_fd *f = sim_fd(sim, fd);
    ASSERT((f->flags & SYS_OPEN_WRITE) != 0 && len <= IO_BYTES_MAX);
    if (sim_event(sim) || sim_chance(&sim->random, sim->options.write_error_ppm)) {
        return ERR_IO;
    }
    sim->stats.writes++;
    struct sim_node *n = f->node;
    TRY(file_grow(sim->disk, n, offset + len));
    sim_misdirect(sim, &n, &offset, (u32)len);
    file_write_done(sim->disk, n, offset, buf, (u32)len);
    return OK;
}

static enum err file_flush(struct sys *s, int fd)
{
    struct sim *sim = sim_of(s);
    struct sim_node *n = sim_fd(sim, fd)->node;
    if (sim_event(sim) || sim_flush_before(sim)) {
        return ERR_IO;
    }
    if (sim_chance(&sim->random, sim->options.flush_error_ppm)) {
        return ERR_IO;
    }
    if (sim->options.sabotage != SIM_BREAK_NO_FLUSH) {
        file_flush_done(n, UINT64_MAX, n->size);
    }
    sim_flush_after(sim);
    return sim->stats.is_crashed ? ERR_IO : OK;
}

// Within one directory, as a rename is one step of a journal only there.
static enum err file_rename(struct sys *s, const char *from, const char *to)
{
    struct sim *sim = sim_of(s);
    if (sim_event(sim)) {
        return ERR_IO;
    }
    struct sim_node *dir;
    struct sim_node *to_dir;
    char name[SIM_NAME_MAX + 1];
    char to_name[SIM_NAME_MAX + 1];
    TRY(disk_find_parent(sim->disk, from, &dir, name));
    TRY(disk_find_parent(sim->disk, to, &to_dir, to_name));
    struct sim_node *n = dir_entry(dir, name);
    if (n == NULL) {
        return ERR_NOT_FOUND;
    }
    ASSERT(dir == to_dir);
    if (strcmp(name, to_name) != 0) {
        dir_change(dir, to_name, n, name);
        disk_recount(sim->disk);
    }
    return OK;
}

static enum err file_remove(struct sys *s, const char *path)
{
    struct sim *sim = sim_of(s);
    if (sim_event(sim)) {
        return ERR_IO;
    }
    struct sim_node *dir;
    char name[SIM_NAME_MAX + 1];
    TRY(disk_find_parent(sim->disk, path, &dir, name));
    const struct sim_node *n = dir_entry(dir, name);
    if (n == NULL) {
        return ERR_NOT_FOUND;
    }
    if (n->is_dir) {
        return ERR_INVALID;
    }
    dir_change(dir, name, NULL, "");
    disk_recount(sim->disk);
    return OK;
}

static enum err dir_create(struct sys *s, const char *path)
{
    struct sim *sim = sim_of(s);
    if (sim_event(sim)) {
        return ERR_IO;
    }
    struct sim_node *dir;
    char name[SIM_NAME_MAX + 1];
    TRY(disk_find_parent(sim->disk, path, &dir, name));
    if (dir_entry(dir, name) != NULL) {
        return ERR_EXISTS;
    }
    struct sim_node *n = node_create(sim->disk, dir == sim->disk->root ? NULL : dir, path, true);
    if (n->drive == NULL) {
        n->drive = n; // a top-level directory is a drive
    }
    dir_change(dir, name, n, "");
    return OK;
}

// Calls fn for a copy of the names, as fn may change the directory.
static enum err dir_list(struct sys *s, const char *path, sys_dir_fn fn, void *arg)
{
    struct sim *sim = sim_of(s);
    if (sim_event(sim)) {
        return ERR_IO;
    }
    struct sim_node *dir;
    TRY(disk_find(sim->disk, path, &dir));
    if (!dir->is_dir) {
        return ERR_INVALID;
    }
    size_t count = 0;
    LIST_FOREACH (node, &dir->entries) {
        count++;
    }
    char(*names)[SIM_NAME_MAX + 1] = calloc(count + 1, sizeof(*names));
    if (names == NULL) {
        return ERR_NO_MEMORY;
    }
    size_t n = 0;
    LIST_FOREACH (node, &dir->entries) {
        memcpy(names[n++], CONTAINER_OF(node, struct sim_entry, node)->name, sizeof(names[0]));
    }
    enum err e = OK;
    // A directory has no order of its own.
    while (n > 0 && e == OK) {
        size_t pick = (size_t)sim_below(&sim->random, n);
        e = fn(arg, names[pick]);
        memmove(names[pick], names[n - 1], sizeof(names[0]));
        n--;
    }
    free(names);
    return e;
}

static enum err dir_flush_op(struct sys *s, const char *path)
{
    struct sim *sim = sim_of(s);
    struct sim_node *dir;
    if (sim_event(sim) || sim_flush_before(sim)) {
        return ERR_IO;
    }
    TRY(disk_find(sim->disk, path, &dir));
    if (sim->options.sabotage != SIM_BREAK_NO_DIR_FLUSH) {
        dir_flush(dir);
    }
    sim_flush_after(sim);
    return sim->stats.is_crashed ? ERR_IO : OK;
}

static enum err dir_space(struct sys *s, const char *path, struct sys_space *out)
{
    struct sim *sim = sim_of(s);
    struct sim_node *dir;
    if (sim_event(sim)) {
        return ERR_IO;
    }
    TRY(disk_find(sim->disk, path, &dir));
    ASSERT(dir->drive != NULL);
    out->total_bytes = sim->disk->drive_bytes != 0 ? sim->disk->drive_bytes : TIB;
    out->free_bytes = out->total_bytes - MIN(out->total_bytes, dir->drive->used_bytes);
    return OK;
}

const struct sys_ops sim_ops = {
    .destroy = destroy,
    .clock_mono_ns = clock_mono_ns,
    .clock_wall_ns = clock_wall_ns,
    .random_bytes = random_bytes,
    .file_open = file_open,
    .file_close = file_close,
    .file_size = file_size,
    .file_allocate = file_allocate,
    .file_read = file_read,
    .file_write = file_write,
    .file_flush = file_flush,
    .file_rename = file_rename,
    .file_remove = file_remove,
    .dir_create = dir_create,
    .dir_list = dir_list,
    .dir_flush = dir_flush_op,
    .dir_space = dir_space,
    .io_create = sim_io_create,
};
