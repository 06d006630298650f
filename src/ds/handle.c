// SPDX-License-Identifier: Apache-2.0
// Registered files: names, references, and the choice of a backend and a path for each.
//
// A name is generation << 32 | slot + 1. `state` of a slot holds generation, a closed bit and the
// reference count in one word, so that taking a reference checks the name in the same atomic step.
// Registration holds one reference; every operation in flight holds one more; the last one closes
// the descriptors. The library never uses the caller's descriptor after registration.
#include "ds/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATE_CLOSED     ((u64)1 << 31)
#define STATE_REFERENCES (STATE_CLOSED - 1)

static struct ds_handle_table *table(void)
{
    return &ds_driver()->handles;
}

// Slots survive a close of the driver, so that old names stay unknown after the next open.
void ds_handles_init(void)
{
    struct ds_handle_table *t = table();
    if (t->slots == 0) {
        pthread_mutex_init(&t->lock, NULL);
    }
    atomic_store(&t->count, 0);
}

static opends_handle_t handle_name(const struct ds_handle *h)
{
    u64 generation = atomic_load(&h->state) >> 32;
    return (opends_handle_t)(uintptr_t)(generation << 32 | (h->slot + 1));
}

struct ds_handle *ds_handle_get(opends_handle_t name)
{
    u64 value = (u64)(uintptr_t)name;
    u32 slot = (u32)value - 1;
    if (slot >= DS_HANDLES_MAX) {
        return NULL;
    }
    struct ds_handle *chunk =
        atomic_load_explicit(&table()->chunks[slot / DS_SLOTS_CHUNK], memory_order_acquire);
    if (chunk == NULL) {
        return NULL;
    }
    struct ds_handle *h = &chunk[slot % DS_SLOTS_CHUNK];
    u64 state = atomic_load_explicit(&h->state, memory_order_relaxed);
    do {
        if (state >> 32 != value >> 32 || (state & STATE_CLOSED) != 0 ||
            (state & STATE_REFERENCES) == 0) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&h->state, &state, state + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return h;
}

void ds_handle_hold(struct ds_handle *h)
{
    u64 before = atomic_fetch_add_explicit(&h->state, 1, memory_order_relaxed);
    ASSERT((before & STATE_REFERENCES) != 0);
}

// The number is forgotten first: a fork() in between must not find one that may be another's.
static void close_fd(int *fd)
{
    int was = *fd;
    *fd = -1;
    if (was >= 0) {
        close(was);
    }
}

static void slot_free(struct ds_handle *h)
{
    struct ds_handle_table *t = table();
    u64 generation = (atomic_load(&h->state) >> 32) + 1;
    h->magic = 0;
    atomic_store(&h->state, (generation & UINT32_MAX) << 32);
    pthread_mutex_lock(&t->lock);
    h->next_free = t->free;
    t->free = h;
    pthread_mutex_unlock(&t->lock);
}

// The last reference is gone: no operation and no name leads here any more.
static void handle_release(struct ds_handle *h)
{
    ASSERT_MAGIC(h, DS_HANDLE_MAGIC);
    // Rings must let go of the file: a fixed file would keep an unlinked file's space.
    u64 rings = atomic_load(&h->registered_rings);
    if (rings != 0) {
        ds_rings_forget_file(rings, h->slot);
    }
    const struct ds_backend *b = ds_backend((enum ds_backend_id)h->backend);
    if (b->detach != NULL) {
        b->detach(h);
    }
    close_fd(&h->direct_fd);
    close_fd(&h->buffered_fd);
    pthread_mutex_destroy(&h->lock);
    slot_free(h);
}

void ds_handle_put(struct ds_handle *h)
{
    u64 before = atomic_fetch_sub_explicit(&h->state, 1, memory_order_acq_rel);
    ASSERT((before & STATE_REFERENCES) != 0);
    if ((before & STATE_REFERENCES) == 1) {
        ASSERT((before & STATE_CLOSED) != 0);
        handle_release(h);
    }
}

static struct ds_handle *slot_take(void)
{
    struct ds_handle_table *t = table();
    pthread_mutex_lock(&t->lock);
    struct ds_handle *h = t->free;
    if (h == NULL && t->slots < DS_HANDLES_MAX) {
        struct ds_handle *chunk = calloc(DS_SLOTS_CHUNK, sizeof(*chunk));
        if (chunk != NULL) {
            for (u32 i = DS_SLOTS_CHUNK; i-- > 0;) {
                chunk[i].slot = t->slots + i;
                atomic_store(&chunk[i].state, ((u64)t->first_generation + 1) << 32);
                chunk[i].next_free = t->free;
                t->free = &chunk[i];
            }
            atomic_store_explicit(&t->chunks[t->slots / DS_SLOTS_CHUNK], chunk,
                                  memory_order_release);
            t->slots += DS_SLOTS_CHUNK;
            h = t->free;
        }
    }
    if (h != NULL) {
        t->free = h->next_free;
    }
    pthread_mutex_unlock(&t->lock);
    return h;
}

// Opens the caller's file once more with other flags; works for unlinked files too.
static int reopen(int fd, int flags)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

static int duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int ds_handle_buffered_fd(struct ds_handle *h)
{
    pthread_mutex_lock(&h->lock);
    int fd = h->buffered_fd;
    if (fd < 0) {
        fd = reopen(h->direct_fd, h->user_flags & O_ACCMODE);
        h->buffered_fd = fd;
    }
    pthread_mutex_unlock(&h->lock);
    return fd;
}

// Asks the kernel what direct I/O needs of this file (Linux 6.1), or assumes a page.
static void read_alignment(struct ds_handle *h)
{
    struct statx s;
    memset(&s, 0, sizeof(s));
    h->offset_align = 4096;
    h->memory_align = 4096;
    long rc = syscall(SYS_statx, h->direct_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s);
    if (rc == 0 && (s.stx_mask & STATX_DIOALIGN) != 0 && IS_POWER_OF_TWO(s.stx_dio_offset_align) &&
        IS_POWER_OF_TWO(s.stx_dio_mem_align) && s.stx_dio_offset_align <= 4096 &&
        s.stx_dio_mem_align <= 4096) {
        h->offset_align = s.stx_dio_offset_align;
        h->memory_align = s.stx_dio_mem_align;
    }
}

static void set_reason(struct ds_handle *h, const char *text)
{
    if (h->reason[0] == 0) {
        snprintf(h->reason, sizeof(h->reason), "%s", text);
    }
}

// Opens the library's own descriptors: a direct one unless the policy or the filesystem forbids it.
// Returns 0 or an errno.
static int open_files(struct ds_handle *h, int fd)
{
    int access = h->user_flags & O_ACCMODE;
    enum ds_policy policy = ds_config()->policy;
    bool is_direct = (h->user_flags & O_DIRECT) != 0;
    // O_APPEND would make the kernel ignore the offset of every write, so such a file is reopened.
    bool is_append = (h->user_flags & O_APPEND) != 0;
    bool wants_direct = policy != DS_POLICY_COMPAT || is_direct;
    if (h->backend == DS_REF) {
        wants_direct = is_direct && policy == DS_POLICY_REQUIRE_DIRECT;
    }
    int direct_errno = 0;
    if (wants_direct) {
        h->direct_fd = is_direct && !is_append ? duplicate(fd) : reopen(fd, access | O_DIRECT);
        direct_errno = h->direct_fd < 0 ? errno : 0;
        if (direct_errno == EMFILE || direct_errno == ENFILE) {
            return direct_errno;
        }
    } else {
        set_reason(h, h->backend == DS_REF ? "the ref backend uses pread and pwrite"
                                           : "policy compat, and the file was opened without "
                                             "O_DIRECT");
    }
    if (h->direct_fd >= 0) {
        h->path = OPENDS_PATH_DIRECT;
        read_alignment(h);
        return 0;
    }
    if (wants_direct) {
        char text[DS_REASON_BYTES];
        snprintf(text, sizeof(text), "the filesystem refused O_DIRECT (%s)",
                 strerror(direct_errno));
        set_reason(h, text);
    }
    h->path = OPENDS_PATH_BUFFERED;
    h->buffered_fd = is_direct || is_append ? reopen(fd, access) : duplicate(fd);
    return h->buffered_fd < 0 ? errno : 0;
}

// Tries backends from the best to the plainest; the first that takes the handle serves it.
static void choose_backend(struct ds_handle *h)
{
    int wanted = ds_config()->backend;
    const char *why;
    char text[DS_REASON_BYTES] = "";
    if (wanted == DS_NVME || wanted == DS_GDS ||
        (wanted < 0 && ds_backend_is_present(DS_GDS, NULL))) {
        enum ds_backend_id id = wanted == DS_NVME ? DS_NVME : DS_GDS;
        if (!ds_backend_is_present(id, &why)) {
            snprintf(h->reason, sizeof(h->reason), "%s: %s", ds_backend(id)->name, why);
        } else if (ds_backend(id)->attach(h, text, sizeof(text))) {
            h->backend = (u8)id;
            return;
        } else {
            snprintf(h->reason, sizeof(h->reason), "%s: %s", ds_backend(id)->name, text);
        }
    }
    if (wanted == DS_REF || !ds_backend_is_present(DS_URING, &why)) {
        if (wanted != DS_REF && h->reason[0] == 0) {
            snprintf(h->reason, sizeof(h->reason), "uring: %s", why);
        }
        h->backend = DS_REF;
        return;
    }
    h->backend = DS_URING;
}

static opends_error_t check_file(int fd, struct stat *st, int *flags)
{
    *flags = fcntl(fd, F_GETFL);
    if (*flags < 0 || fstat(fd, st) != 0) {
        return ds_fail(OPENDS_INVALID_VALUE, errno, "descriptor %d: %s", fd, strerror(errno));
    }
    if (!S_ISREG(st->st_mode)) {
        return ds_fail(OPENDS_INVALID_FILE_TYPE, 0, "descriptor %d is not a regular file", fd);
    }
    if ((*flags & O_PATH) != 0) {
        return ds_fail(OPENDS_INVALID_FILE_OPEN_FLAG, 0, "descriptor %d was opened with O_PATH",
                       fd);
    }
    return ds_ok();
}

// Fills a fresh slot. On failure the slot is the caller's to free.
static opends_error_t handle_fill(struct ds_handle *h, int fd, const struct stat *st, int flags)
{
    h->magic = DS_HANDLE_MAGIC;
    h->direct_fd = -1;
    h->buffered_fd = -1;
    h->user_flags = flags;
    h->device = st->st_dev;
    h->inode = st->st_ino;
    h->nvme = NULL;
    h->extents = NULL;
    h->gds_handle = NULL;
    h->offset_align = 0;
    h->memory_align = 0;
    h->reason[0] = 0;
    h->last_fallback[0] = 0;
    atomic_store(&h->flags, ds_config()->is_durable ? OPENDS_WRITE_DURABLE : 0);
    atomic_store(&h->registered_rings, 0);
    atomic_store(&h->uses, 0);
    _Atomic u64 *counters[] = {&h->direct_bytes,      &h->bounced_bytes, &h->buffered_bytes,
                               &h->passthrough_bytes, &h->zeroed_bytes,  &h->gds_bytes,
                               &h->fallbacks};
    for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
        atomic_store_explicit(counters[i], 0, memory_order_relaxed);
    }
    h->backend = ds_config()->backend == DS_REF ? DS_REF : DS_URING;
    int rc = open_files(h, fd);
    if (rc != 0) {
        return ds_fail(rc == EMFILE || rc == ENFILE ? OPENDS_GETNEWFD_FAILED
                                                    : ds_code_from_errno(rc),
                       rc, "descriptor %d cannot be opened again: %s", fd, strerror(rc));
    }
    if (ds_config()->policy == DS_POLICY_REQUIRE_DIRECT && h->direct_fd < 0) {
        return ds_fail(OPENDS_DIO_NOT_SET, 0, "policy require-direct: %s", h->reason);
    }
    pthread_mutex_init(&h->lock, NULL);
    choose_backend(h);
    h->stats = ds_stats_device(h->device);
    return ds_ok();
}

opends_error_t opends_handle_register(opends_handle_t *fh, int fd)
{
    struct stat st;
    int flags;
    if (fh == NULL) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "fh is NULL");
    }
    *fh = NULL;
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    opends_error_t e = check_file(fd, &st, &flags);
    if (e.err != OPENDS_SUCCESS) {
        return e;
    }
    struct ds_handle *h = slot_take();
    if (h == NULL) {
        return ds_fail(OPENDS_DRIVER_UNSUPPORTED_LIMIT, 0, "no more than %u handles",
                       DS_HANDLES_MAX);
    }
    e = handle_fill(h, fd, &st, flags);
    if (e.err != OPENDS_SUCCESS) {
        close_fd(&h->direct_fd);
        close_fd(&h->buffered_fd);
        slot_free(h);
        return e;
    }
    u64 generation = atomic_load(&h->state) >> 32;
    atomic_store_explicit(&h->state, generation << 32 | 1, memory_order_release);
    atomic_fetch_add(&table()->count, 1);
    *fh = handle_name(h);
    return ds_ok();
}

// Marks the name dead and drops the registration's reference. The caller holds one of its own.
static void handle_close(struct ds_handle *h)
{
    u64 before = atomic_fetch_or(&h->state, STATE_CLOSED);
    if ((before & STATE_CLOSED) != 0) {
        return; // someone else was first
    }
    atomic_fetch_sub(&table()->count, 1);
    ds_handle_put(h);
}

void opends_handle_deregister(opends_handle_t fh)
{
    struct ds_handle *h = ds_handle_get(fh);
    if (h == NULL) {
        return;
    }
    handle_close(h);
    ds_handle_put(h);
}

void ds_handles_close_all(void)
{
    struct ds_handle_table *t = table();
    for (u32 slot = 0; slot < t->slots; slot++) {
        struct ds_handle *h =
            &atomic_load(&t->chunks[slot / DS_SLOTS_CHUNK])[slot % DS_SLOTS_CHUNK];
        u64 state = atomic_load(&h->state);
        if ((state & STATE_REFERENCES) == 0 || (state & STATE_CLOSED) != 0) {
            continue;
        }
        atomic_store(&h->registered_rings, 0); // the rings are gone
        ds_handle_hold(h);
        handle_close(h);
        ds_handle_put(h);
    }
}

u32 ds_handles_fork_child(void)
{
    struct ds_handle_table *t = table();
    u32 last = t->first_generation;
    for (u32 slot = 0; slot < t->slots; slot++) {
        struct ds_handle *chunk = atomic_load(&t->chunks[slot / DS_SLOTS_CHUNK]);
        struct ds_handle *h = chunk == NULL ? NULL : &chunk[slot % DS_SLOTS_CHUNK];
        u64 state = h == NULL ? 0 : atomic_load(&h->state);
        last = MAX(last, (u32)(state >> 32));
        if ((state & STATE_REFERENCES) != 0) {
            close_fd(&h->direct_fd);
            close_fd(&h->buffered_fd);
        }
    }
    return last;
}

long ds_handles_count(void)
{
    return (long)atomic_load(&table()->count);
}

long opends_use_count(void)
{
    return ds_is_open() ? ds_handles_count() : 0;
}

opends_error_t opends_handle_set_flags(opends_handle_t fh, unsigned flags)
{
    if ((flags & ~OPENDS_WRITE_DURABLE) != 0) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "unknown flags 0x%x", flags);
    }
    struct ds_handle *h = ds_handle_get(fh);
    if (h == NULL) {
        return ds_fail(OPENDS_HANDLE_NOT_REGISTERED, 0, "unknown handle");
    }
    atomic_store(&h->flags, flags);
    ds_handle_put(h);
    return ds_ok();
}

opends_error_t ds_handle_flush(struct ds_handle *h)
{
    int fd = h->direct_fd >= 0 ? h->direct_fd : h->buffered_fd;
    int sys_errno = ds_fault_next(OPENDS_WRITE);
    if (sys_errno == 0) {
        int rc;
        do {
            rc = fdatasync(fd);
        } while (rc != 0 && errno == EINTR);
        sys_errno = rc == 0 ? 0 : errno;
    }
    return sys_errno == 0 ? ds_ok()
                          : ds_fail(ds_code_from_errno(sys_errno), sys_errno, "flush: %s",
                                    strerror(sys_errno));
}

opends_error_t opends_flush(opends_handle_t fh)
{
    struct ds_handle *h = ds_handle_get(fh);
    if (h == NULL) {
        return ds_fail(OPENDS_HANDLE_NOT_REGISTERED, 0, "unknown handle");
    }
    opends_error_t e = ds_handle_flush(h);
    ds_handle_put(h);
    return e;
}

void ds_handle_note_fallback(struct ds_handle *h, const char *why)
{
    atomic_fetch_add_explicit(&h->fallbacks, 1, memory_order_relaxed);
    pthread_mutex_lock(&h->lock);
    snprintf(h->last_fallback, sizeof(h->last_fallback), "%s", why);
    pthread_mutex_unlock(&h->lock);
}

static void add_bytes(_Atomic u64 *counter, u64 bytes)
{
    if (bytes != 0) {
        atomic_fetch_add_explicit(counter, bytes, memory_order_relaxed);
    }
}

void ds_handle_account(struct ds_handle *h, const struct ds_op *op)
{
    add_bytes(&h->direct_bytes, op->traffic.direct);
    add_bytes(&h->bounced_bytes, op->traffic.bounced);
    add_bytes(&h->buffered_bytes, op->traffic.buffered);
    add_bytes(&h->passthrough_bytes, op->traffic.passthrough);
    add_bytes(&h->zeroed_bytes, op->traffic.zeroed);
    add_bytes(&h->gds_bytes, op->traffic.gds);
}

opends_error_t opends_handle_path(opends_handle_t fh, opends_path_info_t *info)
{
    if (info == NULL) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "info is NULL");
    }
    memset(info, 0, sizeof(*info));
    struct ds_handle *h = ds_handle_get(fh);
    if (h == NULL) {
        return ds_fail(OPENDS_HANDLE_NOT_REGISTERED, 0, "unknown handle");
    }
    snprintf(info->backend, sizeof(info->backend), "%s",
             ds_backend((enum ds_backend_id)h->backend)->name);
    info->path = (opends_path_t)h->path;
    info->device_major = (unsigned)(h->device >> 8 & 0xfff);
    info->device_minor = (unsigned)((h->device & 0xff) | (h->device >> 12 & 0xfff00));
    info->offset_align = h->direct_fd >= 0 ? h->offset_align : 0;
    info->memory_align = h->direct_fd >= 0 ? h->memory_align : 0;
    info->direct_bytes = atomic_load(&h->direct_bytes);
    info->bounced_bytes = atomic_load(&h->bounced_bytes);
    info->buffered_bytes = atomic_load(&h->buffered_bytes);
    info->passthrough_bytes = atomic_load(&h->passthrough_bytes);
    info->zeroed_bytes = atomic_load(&h->zeroed_bytes);
    info->gds_bytes = atomic_load(&h->gds_bytes);
    info->fallbacks = atomic_load(&h->fallbacks);
    pthread_mutex_lock(&h->lock);
    memcpy(info->reason, h->reason, sizeof(info->reason));
    memcpy(info->last_fallback, h->last_fallback, sizeof(info->last_fallback));
    pthread_mutex_unlock(&h->lock);
    ds_handle_put(h);
    return ds_ok();
}
