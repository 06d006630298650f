// SPDX-License-Identifier: Apache-2.0
// Bit-exactness and times with GPU memory, for the backend that OPENDS_BACKEND names. Every file is
// read into GPU memory, copied back with the CUDA driver's own call, and compared byte by byte.
// usage: gpu_check FOLDER
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "opends.h"

// LEAT_GPU_MIB: the file's size, 512 unless set.
static size_t big_bytes(void)
{
    const char *mib = getenv("LEAT_GPU_MIB");
    size_t n = mib == NULL ? 512 : strtoul(mib, NULL, 10);
    return (n < 80 ? 80 : n) << 20; // the write test needs 64 MiB and a little
}

#define BIG_BYTES big_bytes()
#define BIG_MIB   ((double)(BIG_BYTES >> 20))

static const char *backend;
static int failed;

static void result(const char *name, bool is_right, const char *why)
{
    if (is_right) {
        printf("ok gpu-%s-%s\n", backend, name);
    } else {
        printf("not ok gpu-%s-%s: %s (%s)\n", backend, name, why, opends_last_error());
        failed++;
    }
    fflush(stdout);
}

// The driver's synchronous copies, and its contexts.
static int (*copy_out)(void *host, uint64_t device, size_t bytes);
static int (*copy_in)(uint64_t device, const void *host, size_t bytes);

static bool load_cuda(void)
{
    const char *name = getenv("OPENDS_CUDA_LIBRARY");
    void *l = dlopen(name == NULL ? "libcuda.so.1" : name, RTLD_NOW);
    if (l == NULL) {
        return false;
    }
    int (*init)(unsigned) = dlsym(l, "cuInit");
    int (*retain)(void **, int) = dlsym(l, "cuDevicePrimaryCtxRetain");
    int (*push)(void *) = dlsym(l, "cuCtxPushCurrent_v2");
    copy_out = dlsym(l, "cuMemcpyDtoH_v2");
    copy_in = dlsym(l, "cuMemcpyHtoD_v2");
    void *context = NULL;
    return init != NULL && retain != NULL && push != NULL && copy_out != NULL && copy_in != NULL &&
           init(0) == 0 && retain(&context, 0) == 0 && push(context) == 0;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fill(uint8_t *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = (i / 8 + seed) * 0x9e3779b97f4a7c15u;
        v ^= v >> 29;
        memcpy(p + i, &v, 8);
    }
}

static int file_make(const char *folder, const uint8_t *bytes, size_t count)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/gpu-data", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t at = 0; fd >= 0 && at < count;) {
        ssize_t n = write(fd, bytes + at, count - at < (64u << 20) ? count - at : 64u << 20);
        if (n <= 0) {
            return -1;
        }
        at += (size_t)n;
    }
    if (fd >= 0) {
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return fd;
}

static bool equal(const uint8_t *device, const uint8_t *want, uint8_t *scratch, size_t bytes)
{
    return copy_out(scratch, (uint64_t)(uintptr_t)device, bytes) == 0 &&
           memcmp(scratch, want, bytes) == 0;
}

static void alignments(opends_handle_t h, uint8_t *device, const uint8_t *want, uint8_t *scratch)
{
    const off_t offsets[] = {0, 1, 511, 4096, 65537, 1000003};
    const size_t sizes[] = {1, 512, 4097, 65536, 1 << 20, (5 << 20) + 3};
    bool is_right = true;
    for (int i = 0; i < 36 && is_right; i++) {
        off_t at = i * 13 % 7;
        is_right =
            opends_read(h, device, sizes[i % 6], offsets[i / 6], at) == (ssize_t)sizes[i % 6] &&
            equal(device + at, want + offsets[i / 6], scratch, sizes[i % 6]);
    }
    result("alignments", is_right, "wrong count or bytes");
}

static void whole(opends_handle_t h, uint8_t *device, const uint8_t *want, uint8_t *scratch)
{
    double best = 1e9;
    bool is_right = true;
    for (int i = 0; i < 3 && is_right; i++) {
        double start = now_s();
        is_right = opends_read(h, device, BIG_BYTES, 0, 0) == (ssize_t)BIG_BYTES;
        double took = now_s() - start;
        best = took < best ? took : best;
    }
    result("whole-file", is_right && equal(device, want, scratch, BIG_BYTES),
           "wrong count or bytes");
    printf("# gpu-%s sync read of %.0f MiB: %.0f MiB/s\n", backend, BIG_MIB, BIG_MIB / best);
}

static void batch(opends_handle_t h, uint8_t *device, const uint8_t *want, uint8_t *scratch)
{
    enum { COUNT = 512 };
    opends_batch_handle_t b;
    static opends_io_params_t p[COUNT];
    static opends_io_events_t events[COUNT];
    const size_t size = BIG_BYTES / COUNT;
    for (unsigned i = 0; i < COUNT; i++) {
        p[i].mode = OPENDS_BATCH;
        p[i].fh = h;
        p[i].u.batch.dev_ptr_base = device;
        p[i].u.batch.dev_ptr_offset = (off_t)(i * size);
        p[i].u.batch.file_offset = (off_t)(i * size);
        p[i].u.batch.size = size;
    }
    unsigned nr = COUNT;
    double start = now_s();
    bool is_right = opends_batch_io_setup(&b, COUNT).err == OPENDS_SUCCESS &&
                    opends_batch_io_submit(b, COUNT, p, 0).err == OPENDS_SUCCESS &&
                    opends_batch_io_get_status(b, COUNT, &nr, events, NULL).err == OPENDS_SUCCESS &&
                    nr == COUNT;
    double took = now_s() - start;
    for (unsigned i = 0; i < nr && is_right; i++) {
        is_right = events[i].status == OPENDS_COMPLETE && events[i].ret == size;
    }
    opends_batch_io_destroy(b);
    result("batch", is_right && equal(device, want, scratch, BIG_BYTES), "wrong status or bytes");
    printf("# gpu-%s batch of %d x %zu KiB: %.0f MiB/s\n", backend, COUNT, size >> 10,
           BIG_MIB / took);
}

static void streams(opends_handle_t h, uint8_t *device, const uint8_t *want, uint8_t *scratch)
{
    enum { STREAMS = 8, EACH = 8 };
    opends_stream_t s[STREAMS];
    static off_t offset[STREAMS][EACH];
    static ssize_t got[STREAMS][EACH];
    size_t size = BIG_BYTES / (STREAMS * EACH);
    bool is_right = true;
    double start = now_s();
    for (int i = 0; i < STREAMS; i++) {
        is_right = is_right && opends_stream_create(&s[i]).err == OPENDS_SUCCESS;
        for (int j = 0; j < EACH && is_right; j++) {
            offset[i][j] = (off_t)((size_t)(i * EACH + j) * size);
            is_right =
                opends_read_async(h, device, &size, &offset[i][j], &offset[i][j], &got[i][j], s[i])
                    .err == OPENDS_SUCCESS;
        }
    }
    for (int i = 0; i < STREAMS && is_right; i++) {
        is_right = opends_stream_synchronize(s[i]).err == OPENDS_SUCCESS;
        for (int j = 0; j < EACH; j++) {
            is_right = is_right && got[i][j] == (ssize_t)size;
        }
        is_right = is_right && opends_stream_destroy(s[i]).err == OPENDS_SUCCESS;
    }
    double took = now_s() - start;
    result("streams", is_right && equal(device, want, scratch, BIG_BYTES), "wrong count or bytes");
    printf("# gpu-%s %d streams of %d reads: %.0f MiB/s\n", backend, STREAMS, EACH, BIG_MIB / took);
}

static void writes(opends_handle_t h, int fd, uint8_t *device, uint8_t *want, uint8_t *scratch)
{
    const size_t bytes = (64 << 20) + 12345;
    fill(want, bytes + 8, 77);
    bool is_right = copy_in((uint64_t)(uintptr_t)device, want, bytes) == 0 &&
                    opends_handle_set_flags(h, OPENDS_WRITE_DURABLE).err == OPENDS_SUCCESS;
    double start = now_s();
    is_right = is_right && opends_write(h, device, bytes, 1001, 0) == (ssize_t)bytes;
    double took = now_s() - start;
    for (size_t at = 0; at < bytes && is_right;) {
        ssize_t n = pread(fd, scratch + at, bytes - at, (off_t)(1001 + at));
        is_right = n > 0;
        at += n > 0 ? (size_t)n : 0;
    }
    result("durable-write", is_right && memcmp(scratch, want, bytes) == 0, "wrong count or bytes");
    printf("# gpu-%s durable write of 64 MiB: %.0f MiB/s\n", backend, 64 / took);
}

int main(int argc, char **argv)
{
    backend = getenv("OPENDS_BACKEND");
    if (argc != 2 || backend == NULL) {
        fprintf(stderr, "usage: OPENDS_BACKEND=name gpu_check FOLDER\n");
        return 2;
    }
    if (!load_cuda()) {
        printf("skip gpu-%s: no CUDA driver or no GPU\n", backend);
        return 0;
    }
    uint8_t *want = malloc(BIG_BYTES + 4096);
    uint8_t *scratch = malloc(BIG_BYTES + 4096);
    fill(want, BIG_BYTES, 5);
    int fd = file_make(argv[1], want, BIG_BYTES);
    opends_handle_t h = NULL;
    if (fd < 0 || opends_driver_open().err != OPENDS_SUCCESS ||
        opends_handle_register(&h, fd).err != OPENDS_SUCCESS) {
        result("open", false, "driver, file or handle");
        return 1;
    }
    opends_path_info_t info;
    (void)opends_handle_path(h, &info);
    if (strcmp(info.backend, backend) != 0) {
        printf("skip gpu-%s: %s\n", backend, info.reason);
        return 0;
    }
    uint8_t *device = opends_alloc(BIG_BYTES + 4096);
    if (device == NULL) {
        result("alloc", false, "no GPU memory");
        return 1;
    }
    whole(h, device, want, scratch);
    alignments(h, device, want, scratch);
    batch(h, device, want, scratch);
    streams(h, device, want, scratch);
    writes(h, fd, device, want, scratch);
    (void)opends_handle_path(h, &info);
    printf("# gpu-%s bytes: %llu bounced, %llu cuFile, %llu page cache; %llu fallbacks %s\n",
           backend, (unsigned long long)info.bounced_bytes, (unsigned long long)info.gds_bytes,
           (unsigned long long)info.buffered_bytes, (unsigned long long)info.fallbacks,
           info.last_fallback);
    opends_free(device);
    opends_handle_deregister(h);
    result("close", opends_driver_close().err == OPENDS_SUCCESS, "the driver did not close");
    close(fd);
    return failed != 0;
}
