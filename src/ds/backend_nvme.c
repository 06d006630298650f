// SPDX-License-Identifier: Apache-2.0
// The nvme backend: maps of files, their fence, and what may be asked of the device. See nvme.h.
//
// Why it is safe. A map is taken with the file's dirty pages flushed (FIEMAP_FLAG_SYNC), between
// two looks at the file's generation. Whoever writes, truncates, punches or swaps extents changes
// mtime or ctime first. Timestamps have a tick of up to 10 ms, so a file that changed within the
// last 40 ms is left to the filesystem: any later change is then certain to show. A read is checked
// again after the device has answered. Writes take a fresh map each time (sharing an extent changes
// no timestamp), go only to written, unshared blocks, find and leave no page in the page cache, and
// set mtime.
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ds/backends.h"
#include "ds/driver.h"
#include "ds/nvme.h"
#include "ds/nvme_device.h"

#define MAP_EXTENTS_MAX 65536u
#define MAP_BATCH       64u
#define MAP_TRIES_MAX   3
#define TRUST_AFTER_NS  (40 * NS_PER_MS)
#define FOLIO_BYTES_MAX (2 * MIB)
#define FS_MAGIC_XFS    0x58465342
#define FS_MAGIC_EXT4   0xEF53
#define FLAGS_NEVER                                                                                \
    (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED |                      \
     FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_NOT_ALIGNED | FIEMAP_EXTENT_DATA_INLINE |        \
     FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED)
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

struct generation {
    u64 size;
    u64 mtime_ns;
    u64 ctime_ns;
};

struct extent {
    u64 at;
    u64 bytes;
    u64 device_at;
    u32 flags;
};

// A file's map at one generation. Shared by operations in flight; the handle keeps the newest.
struct ds_extents {
    _Atomic u32 references;
    struct generation generation;
    u32 count;
    u32 capacity;
    struct extent *list;
};

static u64 timespec_ns(struct timespec t)
{
    return (u64)t.tv_sec * NS_PER_S + (u64)t.tv_nsec;
}

static bool generation_read(int fd, struct generation *g)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return false;
    }
    *g = (struct generation){.size = (u64)st.st_size,
                             .mtime_ns = timespec_ns(st.st_mtim),
                             .ctime_ns = timespec_ns(st.st_ctim)};
    return true;
}

static bool generation_equal(const struct generation *a, const struct generation *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

// Did the file change so recently that a further change might carry the same timestamp?
static bool generation_is_fresh(const struct generation *g)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 newest = MAX(g->mtime_ns, g->ctime_ns);
    return timespec_ns(now) < newest + TRUST_AFTER_NS;
}

static void extents_put(struct ds_extents *x)
{
    if (x != NULL && atomic_fetch_sub(&x->references, 1) == 1) {
        free(x->list);
        free(x);
    }
}

static bool extents_add(struct ds_extents *x, const struct fiemap_extent *fe, u64 start_bytes)
{
    if (x->count == x->capacity) {
        u32 capacity = x->capacity == 0 ? 16 : x->capacity * 2;
        struct extent *grown =
            capacity > MAP_EXTENTS_MAX ? NULL : realloc(x->list, capacity * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        x->list = grown;
        x->capacity = capacity;
    }
    x->list[x->count++] = (struct extent){.at = fe->fe_logical,
                                          .bytes = fe->fe_length,
                                          .device_at = fe->fe_physical + start_bytes,
                                          .flags = fe->fe_flags};
    return true;
}

// Reads the whole map. NULL with `why` when the filesystem gives none or it is too long.
static struct ds_extents *map_read(struct ds_handle *h, const char **why)
{
    union {
        struct fiemap map;
        u8 bytes[sizeof(struct fiemap) + MAP_BATCH * sizeof(struct fiemap_extent)];
    } request;
    struct ds_extents *x = calloc(1, sizeof(*x));
    if (x == NULL) {
        *why = "out of memory";
        return NULL;
    }
    atomic_store(&x->references, 1);
    u64 at = 0;
    for (bool is_last = false; !is_last;) {
        memset(&request.map, 0, sizeof(request.map));
        request.map.fm_start = at;
        request.map.fm_length = FIEMAP_MAX_OFFSET - at;
        request.map.fm_flags = FIEMAP_FLAG_SYNC;
        request.map.fm_extent_count = MAP_BATCH;
        if (ioctl(h->direct_fd, FS_IOC_FIEMAP, &request.map) != 0) {
            *why = "the filesystem gives no map (FIEMAP)";
            extents_put(x);
            return NULL;
        }
        is_last = request.map.fm_mapped_extents == 0;
        for (u32 i = 0; i < request.map.fm_mapped_extents; i++) {
            const struct fiemap_extent *fe = &request.map.fm_extents[i];
            if (!extents_add(x, fe, h->nvme->start_bytes)) {
                *why = "the file has too many extents";
                extents_put(x);
                return NULL;
            }
            at = fe->fe_logical + fe->fe_length;
            is_last = is_last || (fe->fe_flags & FIEMAP_EXTENT_LAST) != 0;
        }
    }
    return x;
}

// A map that was the truth at one generation, or NULL with `why`.
static struct ds_extents *map_fenced(struct ds_handle *h, const char **why)
{
    for (int i = 0; i < MAP_TRIES_MAX; i++) {
        struct generation before;
        struct generation after;
        if (!generation_read(h->direct_fd, &before)) {
            *why = "the file cannot be examined";
            return NULL;
        }
        if (generation_is_fresh(&before)) {
            *why = "the file changed within the last 40 ms";
            return NULL;
        }
        struct ds_extents *x = map_read(h, why);
        if (x == NULL) {
            return NULL;
        }
        if (generation_read(h->direct_fd, &after) && generation_equal(&before, &after)) {
            x->generation = after;
            return x;
        }
        extents_put(x);
    }
    *why = "the file keeps changing";
    return NULL;
}

// The handle's map if it is still true, else a new one. Referenced for the caller.
static struct ds_extents *map_get(struct ds_handle *h, bool is_fresh_wanted, const char **why)
{
    struct generation now;
    struct ds_extents *x = NULL;
    pthread_mutex_lock(&h->lock);
    if (!is_fresh_wanted && h->extents != NULL && generation_read(h->direct_fd, &now) &&
        generation_equal(&h->extents->generation, &now)) {
        x = h->extents;
        atomic_fetch_add(&x->references, 1);
    }
    pthread_mutex_unlock(&h->lock);
    if (x != NULL) {
        return x;
    }
    x = map_fenced(h, why);
    if (x != NULL) {
        atomic_fetch_add(&x->references, 1);
        pthread_mutex_lock(&h->lock);
        struct ds_extents *old = h->extents;
        h->extents = x;
        pthread_mutex_unlock(&h->lock);
        extents_put(old);
    }
    return x;
}

static void fall_back(struct ds_op *op, const char *why)
{
    if (!op->fell_back) {
        op->fell_back = true;
        ds_handle_note_fallback(op->handle, why);
    }
}

struct cache_range {
    u64 offset;
    u64 bytes;
};

// Empties the page cache over the range; false when pages stay (mapped, dirty, or unknown).
static bool cache_empty(struct ds_handle *h, u64 offset, u64 bytes)
{
    u64 counts[5] = {0};
    struct cache_range range = {.offset = offset, .bytes = bytes};
    // A folio that only begins or ends in the range is dropped only when asked for whole.
    u64 from = ALIGN_DOWN(offset, FOLIO_BYTES_MAX);
    u64 to = ALIGN_UP(offset + bytes, FOLIO_BYTES_MAX);
    (void)posix_fadvise(h->direct_fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
    return syscall(SYS_cachestat, h->direct_fd, &range, counts, 0) == 0 && counts[0] == 0;
}

void ds_nvme_begin(struct ds_op *op)
{
    struct ds_handle *h = op->handle;
    const char *why = "";
    bool is_write = op->opcode == OPENDS_WRITE;
    struct ds_extents *x = map_get(h, is_write, &why);
    if (x != NULL && is_write && !cache_empty(h, op->offset, op->size)) {
        why = "pages of the range stay in the page cache (mapped?)";
        extents_put(x);
        x = NULL;
    }
    if (x == NULL) {
        fall_back(op, why);
        return;
    }
    op->ring.extents = x;
    if (!is_write) {
        u64 size = x->generation.size;
        op->ring.short_at = op->offset >= size ? 0 : MIN(op->size, size - op->offset);
    }
}

void ds_nvme_find(struct ds_op *op, u64 offset, u64 bytes, struct ds_nvme_span *out)
{
    const struct ds_extents *x = op->ring.extents;
    u32 low = 0;
    u32 high = x->count; // first extent that ends after `offset`
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (x->list[middle].at + x->list[middle].bytes <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *out = (struct ds_nvme_span){.where = DS_NVME_ZEROS, .bytes = bytes};
    if (low < x->count && x->list[low].at <= offset) {
        const struct extent *e = &x->list[low];
        out->bytes = MIN(bytes, e->at + e->bytes - offset);
        out->device_at = e->device_at + (offset - e->at);
        bool is_aligned = (e->device_at - e->at) % op->handle->nvme->block_bytes == 0;
        if ((e->flags & FLAGS_NEVER) != 0 || !is_aligned) {
            out->where = DS_NVME_IN_FILE;
            out->why = (e->flags & FIEMAP_EXTENT_SHARED) != 0 ? "an extent is shared"
                       : (e->flags & FLAGS_NEVER) != 0
                           ? "an extent is inline, encoded, delayed or unknown"
                           : "an extent is not aligned to the device's blocks";
        } else if ((e->flags & FIEMAP_EXTENT_UNWRITTEN) == 0) {
            out->where = DS_NVME_ON_DEVICE;
        }
    } else if (low < x->count) {
        out->bytes = MIN(bytes, x->list[low].at - offset);
    }
    if (out->where == DS_NVME_ZEROS && op->opcode == OPENDS_WRITE) {
        out->where = DS_NVME_IN_FILE; // only the filesystem may allocate or convert
        out->why = "a write to a hole or to an unwritten extent";
    }
}

void ds_nvme_note_file(struct ds_op *op, const struct ds_nvme_span *span)
{
    fall_back(op, span->why);
}

bool ds_nvme_end(struct ds_op *op)
{
    struct ds_extents *x = op->ring.extents;
    struct generation now;
    bool is_true = true;
    op->ring.extents = NULL;
    if (op->opcode == OPENDS_READ) {
        is_true =
            generation_read(op->handle->direct_fd, &now) && generation_equal(&now, &x->generation);
        if (!is_true && op->ring.sys_errno == 0 && op->ring.fail_code == 0) {
            fall_back(op, "the file changed during the read");
        }
        is_true = is_true || op->ring.is_cut;
    } else if (op->traffic.passthrough > 0) {
        (void)cache_empty(op->handle, op->offset, op->size);
        // Others must see that the file changed; without the right to say so, its owner's readers
        // with a map of their own still re-read every write's range from the device.
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
        (void)futimens(op->handle->direct_fd, times);
    }
    extents_put(x);
    return is_true;
}

u32 ds_nvme_block_bytes(const struct ds_op *op)
{
    return op->handle->nvme->block_bytes;
}

u64 ds_nvme_command_bytes_max(const struct ds_op *op)
{
    return op->handle->nvme->command_bytes_max;
}

static bool nvme_probe(char *why, size_t why_size)
{
    // Passthrough goes around the filesystem, so it is used only when asked for by name.
    if (ds_config()->backend != DS_NVME) {
        snprintf(why, why_size, "not asked for (OPENDS_BACKEND=nvme)");
        return false;
    }
    return ds_nvme_any_present(why, why_size);
}

// Why this file must not be read behind the filesystem's back, or NULL.
static const char *file_objection(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0 || (fs.f_type != FS_MAGIC_XFS && fs.f_type != FS_MAGIC_EXT4)) {
        return "the filesystem is neither XFS nor ext4";
    }
    struct fsxattr x;
    if (ioctl(fd, FS_IOC_FSGETXATTR, &x) == 0 && (x.fsx_xflags & FS_XFLAG_REALTIME) != 0) {
        return "the file is on a realtime device";
    }
    int flags = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 &&
        (flags & (FS_ENCRYPT_FL | FS_VERITY_FL | FS_JOURNAL_DATA_FL | FS_COMPR_FL)) != 0) {
        return "the file is encrypted, compressed, sealed or journalled";
    }
    return NULL;
}

static bool nvme_attach(struct ds_handle *h, char *reason, size_t reason_size)
{
    if (h->direct_fd < 0) {
        snprintf(reason, reason_size, "no direct I/O on this file");
        return false;
    }
    const char *objection = file_objection(h->direct_fd);
    if (objection != NULL) {
        snprintf(reason, reason_size, "%s", objection);
        return false;
    }
    h->nvme = ds_nvme_device_get(h->device, reason, reason_size);
    if (h->nvme == NULL) {
        return false;
    }
    h->path = OPENDS_PATH_PASSTHROUGH;
    return true;
}

static void nvme_detach(struct ds_handle *h)
{
    extents_put(h->extents);
    h->extents = NULL;
    h->nvme = NULL;
}

const struct ds_backend *ds_backend_nvme(void)
{
    static const struct ds_backend backend = {
        .name = "nvme",
        .probe = nvme_probe,
        .attach = nvme_attach,
        .detach = nvme_detach,
    };
    return &backend;
}
