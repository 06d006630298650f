// SPDX-License-Identifier: Apache-2.0
// What a call of the library costs beside the kernel's work: 4 KiB reads of a cached file through
// the library, through a bare io_uring, and by pread, in turns on one thread. Medians of the turns.
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench_ds.h"
#include "opends.h"

#define TURNS      15
#define CALLS      20000
#define FILE_BYTES (4 * MIB)

static double cpu_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static off_t offset_of(u32 i)
{
    return (off_t)(i * 7919u % (FILE_BYTES / 4096) * 4096);
}

static bool turn_library(opends_handle_t h, u8 *memory)
{
    for (u32 i = 0; i < CALLS; i++) {
        if (opends_read(h, memory, 4096, offset_of(i), 0) != 4096) {
            return false;
        }
    }
    return true;
}

static bool turn_ring(struct io_uring *ring, int fd, u8 *memory)
{
    for (u32 i = 0; i < CALLS; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
        struct io_uring_cqe *cqe;
        if (sqe == NULL) {
            return false;
        }
        io_uring_prep_read(sqe, fd, memory, 4096, (u64)offset_of(i));
        if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_peek_cqe(ring, &cqe) != 0 ||
            cqe->res != 4096) {
            return false;
        }
        io_uring_cqe_seen(ring, cqe);
    }
    return true;
}

static bool turn_pread(int fd, u8 *memory)
{
    for (u32 i = 0; i < CALLS; i++) {
        if (pread(fd, memory, 4096, offset_of(i)) != 4096) {
            return false;
        }
    }
    return true;
}

static bool measure(int fd, struct io_uring *ring, double *library_ns, double *bare_ns,
                    double *pread_ns)
{
    opends_handle_t h;
    if (opends_handle_register(&h, fd).err != OPENDS_SUCCESS) {
        return false;
    }
    double times[3][TURNS];
    u8 *memory = opends_alloc(65536);
    bool is_right = memory != NULL;
    for (int turn = -1; turn < TURNS && is_right; turn++) { // the first warms up
        double t[4] = {cpu_now_s()};
        is_right = turn_library(h, memory);
        t[1] = cpu_now_s();
        is_right = is_right && turn_ring(ring, fd, memory);
        t[2] = cpu_now_s();
        is_right = is_right && turn_pread(fd, memory);
        t[3] = cpu_now_s();
        for (int k = 0; k < 3 && turn >= 0; k++) {
            times[k][turn] = (t[k + 1] - t[k]) / CALLS * 1e9;
        }
    }
    double *out[3] = {library_ns, bare_ns, pread_ns};
    for (int k = 0; k < 3 && is_right; k++) {
        qsort(times[k], TURNS, sizeof(double), compare);
        *out[k] = times[k][TURNS / 2];
    }
    opends_handle_deregister(h);
    return is_right;
}

bool bench_overhead(const char *folder, double *library_ns, double *bare_ns, double *pread_ns)
{
    char path[BENCH_PATH_BYTES + 32];
    struct io_uring ring;
    snprintf(path, sizeof(path), "%s/overhead", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool is_right = fd >= 0 && ftruncate(fd, FILE_BYTES) == 0;
    u8 *fill = calloc(1, FILE_BYTES);
    is_right = is_right && fill != NULL && pwrite(fd, fill, FILE_BYTES, 0) == FILE_BYTES;
    free(fill);
    // Policy compat takes the descriptor as it is: cached reads stay cached.
    setenv("OPENDS_BACKEND", "uring", 1);
    setenv("OPENDS_POLICY", "compat", 1);
    if (is_right && io_uring_queue_init(8, &ring, 0) == 0) {
        is_right = opends_driver_open().err == OPENDS_SUCCESS;
        if (is_right) {
            is_right = measure(fd, &ring, library_ns, bare_ns, pread_ns);
            (void)opends_driver_close();
        }
        io_uring_queue_exit(&ring);
    }
    unsetenv("OPENDS_POLICY");
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    return is_right;
}
