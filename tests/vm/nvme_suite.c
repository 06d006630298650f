// SPDX-License-Identifier: Apache-2.0
// The nvme backend against a real kernel NVMe driver: runs inside the virtual machine on mounted
// filesystems, prints "ok NAME" or "not ok NAME: why" a test, and exits 1 if any failed.
//
// usage: nvme_suite XFS-FOLDER EXT4-FOLDER BAD-FILE
//   EXT4-FOLDER lies on a partition and has inline data; reading the middle of BAD-FILE fails.
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "opends.h"

#define KIB 1024ul
#define MIB (1024ul * 1024)

// What a test found wrong; empty when nothing.
struct outcome {
    char why[256];
};

static void wrong(struct outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct outcome *o, const char *fmt, ...)
{
    if (o->why[0] == 0) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(o->why, sizeof(o->why), fmt, args);
        va_end(args);
    }
}

#define CHECK(o, condition)                                                                        \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            wrong(o, "line %d: %s (%s)", __LINE__, #condition, opends_last_error());               \
        }                                                                                          \
    } while (0)

static uint8_t pattern(uint64_t seed, uint64_t offset)
{
    uint64_t word = (offset / 8 + seed * 0x100000001b3u) * 0x9e3779b97f4a7c15u;
    return (uint8_t)((word ^ word >> 29) >> (offset % 8 * 8));
}

static void fill(uint8_t *out, uint64_t seed, uint64_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = pattern(seed, offset + i);
    }
}

static bool matches(const uint8_t *bytes, uint64_t seed, uint64_t offset, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != pattern(seed, offset + i)) {
            return false;
        }
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

// A file of the pattern on stable storage; read-write.
static int file_make(const char *folder, const char *name, uint64_t seed, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint8_t *b = malloc(bytes + 1);
    fill(b, seed, 0, bytes);
    if (fd < 0 || pwrite(fd, b, bytes, 0) != (ssize_t)bytes || fsync(fd) != 0) {
        printf("cannot make %s: %s\n", path, strerror(errno));
        exit(1);
    }
    free(b);
    return fd;
}

// Waits until the file's last change is older than the backend's threshold of 40 ms.
static void age(int fd)
{
    struct stat st;
    struct timespec now;
    do {
        struct timespec step = {.tv_nsec = 5000000};
        nanosleep(&step, NULL);
        fstat(fd, &st);
        clock_gettime(CLOCK_REALTIME, &now);
    } while ((now.tv_sec - st.st_ctim.tv_sec) * 1000000000 + now.tv_nsec - st.st_ctim.tv_nsec <
             50000000);
}

static opends_handle_t handle(struct outcome *o, int fd)
{
    opends_handle_t h = NULL;
    CHECK(o, opends_handle_register(&h, fd).err == OPENDS_SUCCESS);
    return h;
}

static opends_path_info_t path_of(opends_handle_t h)
{
    opends_path_info_t info;
    (void)opends_handle_path(h, &info);
    if (getenv("NVME_SUITE_VERBOSE") != NULL) { // set NVME_SUITE_VERBOSE=1 for tests/vm/run
        printf("# %llu passthrough, %llu zeroed, %llu direct, %llu bounced, %llu fallbacks: %s\n",
               (unsigned long long)info.passthrough_bytes, (unsigned long long)info.zeroed_bytes,
               (unsigned long long)info.direct_bytes, (unsigned long long)info.bounced_bytes,
               (unsigned long long)info.fallbacks, info.last_fallback);
    }
    return info;
}

// Any alignment, against the pattern, by passthrough alone.
static void reads_at(struct outcome *o, const char *folder)
{
    const size_t bytes = 3 * MIB + 777;
    int fd = file_make(folder, "plain", 1, bytes);
    age(fd);
    opends_handle_t h = handle(o, fd);
    uint8_t *m = aligned_alloc(4096, 4 * MIB);
    const off_t offsets[] = {0, 1, 511, 512, 4095, 4096, 65537, 1 << 20, 3 << 20};
    const size_t sizes[] = {1, 512, 4096, 4097, 65536, 65537, 200000, 1 << 20, 3 << 20};
    uint64_t total = 0;
    for (size_t i = 0; i < 9; i++) {
        for (size_t j = 0; j < 9; j++) {
            size_t left = bytes - (size_t)offsets[i];
            size_t want = sizes[j] < left ? sizes[j] : left;
            off_t at = (off_t)((i * 7 + j) % 5);
            memset(m, 0xA5, sizes[j] + 64);
            ssize_t n = opends_read(h, m, sizes[j], offsets[i], at);
            CHECK(o, n == (ssize_t)want);
            CHECK(o, matches(m + at, 1, (uint64_t)offsets[i], want));
            CHECK(o, m[at + (off_t)sizes[j]] == 0xA5);
            total += want;
        }
    }
    CHECK(o, opends_read(h, m, 10, (off_t)bytes, 0) == 0);
    CHECK(o, opends_read(h, m, 10, (off_t)bytes + 100000, 0) == 0);
    opends_path_info_t p = path_of(h);
    CHECK(o, strcmp(p.backend, "nvme") == 0 && p.path == OPENDS_PATH_PASSTHROUGH);
    CHECK(o, p.passthrough_bytes == total);
    CHECK(o, p.direct_bytes + p.bounced_bytes + p.buffered_bytes == 0 && p.fallbacks == 0);
    opends_handle_deregister(h);
    free(m);
    close(fd);
}

// Junk is on the disk where unwritten extents come to lie; nobody may see it.
static void no_stale_bytes(struct outcome *o, const char *folder)
{
    for (int i = 0; i < 3; i++) {
        close(file_make(folder, "junk", 99, 24 * MIB));
        char path[256];
        snprintf(path, sizeof(path), "%s/junk", folder);
        unlink(path);
    }
    int fd = file_make(folder, "holes", 1, 8192);
    CHECK(o, ftruncate(fd, 16 * MIB) == 0);
    CHECK(o, posix_fallocate(fd, 1 * MIB, 8 * MIB) == 0);
    CHECK(o, pwrite(fd, "x", 1, 5 * MIB) == 1);
    CHECK(o, fsync(fd) == 0);
    age(fd);
    opends_handle_t h = handle(o, fd);
    uint8_t *m = aligned_alloc(4096, 16 * MIB);
    memset(m, 0xA5, 16 * MIB);
    CHECK(o, opends_read(h, m, 16 * MIB, 0, 0) == 16 * MIB);
    CHECK(o, matches(m, 1, 0, 8192));
    CHECK(o, m[5 * MIB] == 'x');
    m[5 * MIB] = 0;
    CHECK(o, is_zero(m + 8192, 16 * MIB - 8192));
    opends_path_info_t p = path_of(h);
    CHECK(o, p.zeroed_bytes > 15 * MIB && p.passthrough_bytes > 8192 && p.fallbacks == 0);
    opends_handle_deregister(h);
    free(m);
    close(fd);
}

// The map is cached; whatever another does to the file is noticed.
static void fence(struct outcome *o, const char *folder)
{
    int fd = file_make(folder, "fence", 1, 1 * MIB);
    age(fd);
    opends_handle_t h = handle(o, fd);
    uint8_t *m = aligned_alloc(4096, 2 * MIB);
    uint8_t *other = malloc(1 * MIB);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == MIB && matches(m, 1, 0, MIB));
    // Overwritten through the page cache and not flushed: the next read sees it.
    fill(other, 2, 0, MIB);
    CHECK(o, pwrite(fd, other, 65536, 0) == 65536);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == MIB);
    CHECK(o, matches(m, 2, 0, 65536) && matches(m + 65536, 1, 65536, MIB - 65536));
    age(fd);
    uint64_t before = path_of(h).passthrough_bytes;
    CHECK(o, opends_read(h, m, MIB, 0, 0) == MIB && matches(m, 2, 0, 65536));
    CHECK(o, path_of(h).passthrough_bytes == before + MIB); // back on the device
    // A hole is punched, the file is cut and grows again.
    CHECK(o, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 65536) == 0);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == MIB && is_zero(m + 65536, 65536));
    age(fd);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == MIB && is_zero(m + 65536, 65536));
    CHECK(o, ftruncate(fd, 100000) == 0);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == 100000);
    age(fd);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == 100000);
    CHECK(o, ftruncate(fd, 2 * MIB) == 0);
    CHECK(o, opends_read(h, m, 2 * MIB, 0, 0) == 2 * MIB && is_zero(m + 100000, MIB));
    age(fd);
    CHECK(o, opends_read(h, m, 2 * MIB, 0, 0) == 2 * MIB && is_zero(m + 100000, MIB));
    // Stores through a mapping.
    uint8_t *map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(o, map != MAP_FAILED);
    memset(map, 0x5A, 65536);
    CHECK(o, opends_read(h, m, 65536, 0, 0) == 65536 && m[0] == 0x5A && m[65535] == 0x5A);
    age(fd);
    CHECK(o, opends_read(h, m, 65536, 0, 0) == 65536 && m[4097] == 0x5A);
    memset(map, 0x5B, 4096);
    CHECK(o, opends_read(h, m, 65536, 0, 0) == 65536 && m[0] == 0x5B);
    munmap(map, 65536);
    opends_handle_deregister(h);
    free(m);
    free(other);
    close(fd);
}

static void shared_extents(struct outcome *o, const char *folder)
{
    int fd = file_make(folder, "original", 1, MIB);
    int clone = file_make(folder, "clone", 3, 0);
    CHECK(o, ioctl(clone, FICLONE, fd) == 0);
    fsync(clone);
    age(clone);
    age(fd);
    opends_handle_t h = handle(o, clone);
    uint8_t *m = aligned_alloc(4096, MIB);
    CHECK(o, opends_read(h, m, MIB, 0, 0) == MIB && matches(m, 1, 0, MIB));
    opends_path_info_t p = path_of(h);
    CHECK(o, p.passthrough_bytes == 0 && p.fallbacks == 1);
    CHECK(o, strstr(p.last_fallback, "shared") != NULL);
    // Writing the original by passthrough would change the clone.
    opends_handle_t original = handle(o, fd);
    memset(m, 7, MIB);
    CHECK(o, opends_write(original, m, MIB, 0, 0) == MIB);
    CHECK(o, path_of(original).passthrough_bytes == 0);
    CHECK(o, pread(clone, m, MIB, 0) == MIB && matches(m, 1, 0, MIB));
    opends_handle_deregister(original);
    opends_handle_deregister(h);
    free(m);
    close(fd);
    close(clone);
}

// Writes go to the device where blocks are written and ours alone, and the page cache agrees after.
static void writes(struct outcome *o, const char *folder)
{
    int fd = file_make(folder, "target", 1, 2 * MIB);
    uint8_t *m = aligned_alloc(4096, 2 * MIB);
    uint8_t *seen = aligned_alloc(4096, 2 * MIB);
    CHECK(o, pread(fd, seen, 2 * MIB, 0) == 2 * MIB); // the page cache holds the old bytes
    age(fd);
    opends_handle_t h = handle(o, fd);
    fill(m, 5, 0, 2 * MIB);
    CHECK(o, opends_write(h, m, MIB, 0, 0) == MIB);
    opends_path_info_t p = path_of(h);
    CHECK(o, p.passthrough_bytes == MIB && p.fallbacks == 0);
    CHECK(o, pread(fd, seen, 2 * MIB, 0) == 2 * MIB && matches(seen, 5, 0, MIB));
    CHECK(o, matches(seen + MIB, 1, MIB, MIB));
    age(fd);
    // Durable, unaligned: the middle to the device, the ends through the page cache.
    CHECK(o, opends_handle_set_flags(h, OPENDS_WRITE_DURABLE).err == OPENDS_SUCCESS);
    CHECK(o, opends_write(h, m, 900001, 1001, 1001) == 900001);
    CHECK(o, pread(fd, seen, 2 * MIB, 0) == 2 * MIB && matches(seen, 5, 0, MIB));
    // Past the end, and into a hole: only the filesystem may allocate.
    age(fd);
    uint64_t before = path_of(h).passthrough_bytes;
    CHECK(o, opends_write(h, m, MIB, 4 * MIB, 0) == MIB);
    CHECK(o, path_of(h).passthrough_bytes == before);
    CHECK(o, strstr(path_of(h).last_fallback, "hole") != NULL);
    CHECK(o, pread(fd, seen, MIB, 4 * MIB) == MIB && matches(seen, 5, 0, MIB));
    // A mapped page stays in the page cache: the filesystem takes the write, and the mapping sees
    // it.
    age(fd);
    uint8_t *map = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
    volatile uint8_t touch = map[0];
    (void)touch;
    memset(m, 0x77, 65536);
    CHECK(o, opends_write(h, m, 65536, 0, 0) == 65536);
    CHECK(o, map[0] == 0x77 && map[65535] == 0x77);
    munmap(map, 65536);
    opends_handle_deregister(h);
    free(m);
    free(seen);
    close(fd);
}

static void inline_file(struct outcome *o, const char *folder)
{
    int fd = file_make(folder, "tiny", 1, 50);
    age(fd);
    opends_handle_t h = handle(o, fd);
    uint8_t m[512];
    CHECK(o, opends_read(h, m, sizeof(m), 0, 0) == 50 && matches(m, 1, 0, 50));
    opends_path_info_t p = path_of(h);
    CHECK(o, p.passthrough_bytes == 0 && p.fallbacks == 1);
    CHECK(o, strstr(p.last_fallback, "inline") != NULL);
    opends_handle_deregister(h);
    close(fd);
}

// The device's own error arrives as the right code, with the NVMe status beside it.
static void device_error(struct outcome *o, const char *file)
{
    int fd = open(file, O_RDONLY);
    CHECK(o, fd >= 0);
    opends_handle_t h = handle(o, fd);
    uint8_t *m = aligned_alloc(4096, MIB);
    CHECK(o, opends_read(h, m, 4096, 0, 0) == 4096);
    errno = 0;
    CHECK(o, opends_read(h, m, MIB, 0, 0) == -OPENDS_IO_ERROR);
    CHECK(o, errno == EIO);
    // Internal device error is status 06h, unrecovered read error 281h.
    CHECK(o, strstr(opends_last_error(), "(0)") == NULL);
    CHECK(o, path_of(h).backend[0] == 'n');
    CHECK(o, opends_read(h, m, 4096, 0, 0) == 4096); // the next one works
    opends_handle_deregister(h);
    free(m);
    close(fd);
}

static void batches(struct outcome *o, const char *folder)
{
    enum { COUNT = 600 };
    const size_t size = 12345;
    int fd = file_make(folder, "batch", 1, 8 * MIB);
    age(fd);
    opends_handle_t h = handle(o, fd);
    uint8_t *m = aligned_alloc(4096, COUNT * 16384ul);
    opends_io_params_t *p = calloc(COUNT, sizeof(*p));
    opends_io_events_t *events = calloc(COUNT, sizeof(*events));
    opends_batch_handle_t b;
    CHECK(o, opends_batch_io_setup(&b, COUNT).err == OPENDS_SUCCESS);
    for (unsigned i = 0; i < COUNT; i++) {
        p[i].mode = OPENDS_BATCH;
        p[i].fh = h;
        p[i].u.batch.dev_ptr_base = m;
        p[i].u.batch.dev_ptr_offset = i * 16384;
        p[i].u.batch.file_offset = i * 13001;
        p[i].u.batch.size = size;
    }
    CHECK(o, opends_batch_io_submit(b, COUNT, p, 0).err == OPENDS_SUCCESS);
    unsigned nr = COUNT;
    CHECK(o, opends_batch_io_get_status(b, COUNT, &nr, events, NULL).err == OPENDS_SUCCESS);
    CHECK(o, nr == COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK(o, events[i].status == OPENDS_COMPLETE && events[i].ret == size);
        CHECK(o, matches(m + i * 16384, 1, i * 13001, size));
    }
    CHECK(o, path_of(h).passthrough_bytes == COUNT * size);
    opends_batch_io_destroy(b);
    opends_handle_deregister(h);
    free(m);
    free(p);
    free(events);
    close(fd);
}

// Torture: one thread rewrites, cuts and punches the file; every byte that a reader gets must be
// one that the file held (a label of its own, or zero), never another file's.
struct torture {
    int fd;
    _Atomic bool is_over;
};

static void *rewrite(void *arg)
{
    struct torture *t = arg;
    uint8_t *b = malloc(256 * KIB);
    for (unsigned round = 0; !atomic_load(&t->is_over); round++) {
        memset(b, 0xC0 | (int)(round & 15), 256 * KIB); // this file's labels are C0..CF
        off_t at = (off_t)(round * 37 % 8 * 256 * KIB);
        (void)!pwrite(t->fd, b, 256 * KIB, at);
        if (round % 3 == 0) {
            (void)fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 128 * KIB);
        }
        if (round % 5 == 0) {
            (void)!ftruncate(t->fd, MIB);
            (void)!ftruncate(t->fd, 2 * MIB);
        }
        struct timespec pause = {.tv_nsec =
                                     (long)(round % 4) * 25000000}; // some maps get old enough
        nanosleep(&pause, NULL);
    }
    free(b);
    return NULL;
}

static void torture(struct outcome *o, const char *folder)
{
    struct torture t = {.fd = file_make(folder, "torture", 0, 0)};
    pthread_t thread;
    uint8_t *m = aligned_alloc(4096, 2 * MIB);
    CHECK(o, ftruncate(t.fd, 2 * MIB) == 0);
    opends_handle_t h = handle(o, t.fd);
    pthread_create(&thread, NULL, rewrite, &t);
    struct timespec start;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    unsigned reads = 0;
    do {
        memset(m, 0xC1, 2 * MIB);
        ssize_t n = opends_read(h, m, 2 * MIB, 0, 0);
        CHECK(o, n >= 0);
        for (ssize_t i = 0; i < n; i += 61) {
            if (m[i] != 0 && (m[i] & 0xF0) != 0xC0) {
                wrong(o, "read %u: byte %zd is %02x, which the file never held", reads, i, m[i]);
                break;
            }
        }
        reads++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 3);
    atomic_store(&t.is_over, true);
    pthread_join(thread, NULL);
    opends_path_info_t p = path_of(h);
    printf("# torture: %u reads, %llu MiB by passthrough, %llu fallbacks\n", reads,
           (unsigned long long)(p.passthrough_bytes / MIB), (unsigned long long)p.fallbacks);
    CHECK(o, p.fallbacks > 0);
    opends_handle_deregister(h);
    free(m);
    close(t.fd);
}

static double seconds(struct timespec a, struct timespec b)
{
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}

// A file is mapped once, not once an I/O: many small reads cost about what O_DIRECT costs.
static void map_is_cached(struct outcome *o, const char *folder)
{
    int fd = file_make(folder, "cached", 1, MIB);
    int direct = open("/proc/self/fd/0", O_RDONLY);
    char path[64];
    close(direct);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    direct = open(path, O_RDONLY | O_DIRECT);
    age(fd);
    opends_handle_t h = handle(o, fd);
    uint8_t *m = aligned_alloc(4096, 4096);
    struct timespec t[3];
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    for (int i = 0; i < 500; i++) {
        CHECK(o, opends_read(h, m, 4096, i % 256 * 4096, 0) == 4096);
    }
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    for (int i = 0; i < 500; i++) {
        CHECK(o, pread(direct, m, 4096, i % 256 * 4096) == 4096);
    }
    clock_gettime(CLOCK_MONOTONIC, &t[2]);
    printf("# 4 KiB reads in emulation: passthrough %.0f us, O_DIRECT pread %.0f us\n",
           seconds(t[0], t[1]) * 2000, seconds(t[1], t[2]) * 2000);
    CHECK(o, path_of(h).passthrough_bytes == 500 * 4096);
    opends_handle_deregister(h);
    free(m);
    close(fd);
    close(direct);
}

static int failures(const char *name, const struct outcome *o)
{
    if (o->why[0] == 0) {
        printf("ok %s\n", name);
    } else {
        printf("not ok %s: %s\n", name, o->why);
    }
    fflush(stdout);
    return o->why[0] != 0;
}

int main(int argc, char **argv)
{
    if (argc != 4 || opends_driver_open().err != OPENDS_SUCCESS) {
        printf("not ok driver: %s\n", opends_last_error());
        return 1;
    }
    const struct {
        const char *name;
        void (*fn)(struct outcome *o, const char *where);
        const char *where;
    } tests[] = {
        {"nvme-reads-xfs", reads_at, argv[1]},
        {"nvme-reads-ext4-partition", reads_at, argv[2]},
        {"nvme-no-stale-bytes-xfs", no_stale_bytes, argv[1]},
        {"nvme-no-stale-bytes-ext4", no_stale_bytes, argv[2]},
        {"nvme-fence-xfs", fence, argv[1]},
        {"nvme-fence-ext4", fence, argv[2]},
        {"nvme-shared-extents", shared_extents, argv[1]},
        {"nvme-inline-data", inline_file, argv[2]},
        {"nvme-writes-xfs", writes, argv[1]},
        {"nvme-writes-ext4", writes, argv[2]},
        {"nvme-device-error", device_error, argv[3]},
        {"nvme-batches", batches, argv[1]},
        {"nvme-torture", torture, argv[1]},
        {"nvme-map-is-cached", map_is_cached, argv[1]},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        struct outcome o = {.why = ""};
        tests[i].fn(&o, tests[i].where);
        failed += failures(tests[i].name, &o);
    }
    (void)opends_driver_close();
    return failed == 0 ? 0 : 1;
}
