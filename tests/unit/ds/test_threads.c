// SPDX-License-Identifier: Apache-2.0
// Many threads: on one handle, on thousands of handles and buffers, registering beside I/O, more
// threads than rings. Runs under ThreadSanitizer too.
#include "ds_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FILE_BYTES (2u << 20)

struct worker {
    pthread_t thread;
    opends_handle_t handle;
    int fd;
    uint64_t seed;
    int rounds;
    int failures; // cmocka's asserts may only be used on the main thread
};

// Reads random ranges of the pattern file into plain memory and checks them.
static void *reader(void *arg)
{
    struct worker *w = arg;
    uint8_t *memory = aligned_alloc(4096, 262144);
    for (int i = 0; i < w->rounds; i++) {
        size_t size = random_next(&w->seed) % 131072;
        off_t offset = (off_t)(random_next(&w->seed) % (FILE_BYTES - size));
        off_t at = (off_t)(random_next(&w->seed) % 4096);
        if (i % 2 == 0) {
            offset &= ~4095;
            at = 0;
        }
        ssize_t n = opends_read(w->handle, memory, size, offset, at);
        w->failures += n != (ssize_t)size;
        for (size_t j = 0; j < size; j += 97) {
            w->failures += memory[(size_t)at + j] != pattern_byte(7, (uint64_t)offset + j);
        }
    }
    free(memory);
    return NULL;
}

static void run_workers(struct worker *w, int count, void *(*fn)(void *))
{
    for (int i = 0; i < count; i++) {
        w[i].seed = (uint64_t)i * 7919 + 1;
        assert_int_equal(pthread_create(&w[i].thread, NULL, fn, &w[i]), 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(w[i].thread, NULL);
    }
    for (int i = 0; i < count; i++) {
        assert_int_equal(w[i].failures, 0);
    }
}

static void test_one_handle(void **state)
{
    (void)state;
    int fd = file_make(7, FILE_BYTES, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    struct worker w[80]; // above the limit on rings: some share
    memset(w, 0, sizeof(w));
    for (int i = 0; i < 80; i++) {
        w[i].handle = h;
        w[i].rounds = 25;
    }
    run_workers(w, 80, reader);
    opends_handle_deregister(h);
    close(fd);
}

// Registers and deregisters handles and buffers while others read.
static void *churner(void *arg)
{
    struct worker *w = arg;
    uint8_t *memory = aligned_alloc(4096, 65536);
    for (int i = 0; i < w->rounds; i++) {
        opends_handle_t h;
        w->failures += opends_handle_register(&h, w->fd).err != OPENDS_SUCCESS;
        w->failures += opends_buf_register(memory, 65536, 0).err != OPENDS_SUCCESS;
        for (int j = 0; j < 6; j++) { // enough for a fixed file and buffer
            w->failures += opends_read(h, memory, 4096, j * 4096, j * 4096) != 4096;
        }
        for (size_t j = 0; j < 6 * 4096; j += 61) {
            w->failures += memory[j] != pattern_byte(7, j);
        }
        w->failures += opends_buf_deregister(memory).err != OPENDS_SUCCESS;
        opends_handle_deregister(h);
        w->failures += opends_read(h, memory, 1, 0, 0) != -OPENDS_HANDLE_NOT_REGISTERED;
    }
    free(memory);
    return NULL;
}

static void test_churn(void **state)
{
    (void)state;
    int fd = file_make(7, FILE_BYTES, O_DIRECT);
    struct worker w[8];
    memset(w, 0, sizeof(w));
    for (int i = 0; i < 8; i++) {
        w[i].fd = fd;
        w[i].rounds = 100;
    }
    run_workers(w, 8, churner);
    assert_int_equal(opends_use_count(), 0);
    close(fd);
}

static void test_thousands(void **state)
{
    (void)state;
    enum { HANDLES = 10000, BUFFERS = 5000 };
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = limit.rlim_cur > 2 * HANDLES + 100 ? HANDLES : (int)(limit.rlim_cur - 100) / 2;
    int fd = file_make(7, FILE_BYTES, O_DIRECT);
    opends_handle_t *h = calloc((size_t)count, sizeof(*h));
    uint8_t *memory = aligned_alloc(4096, BUFFERS * 4096ul);
    for (int i = 0; i < BUFFERS; i++) { // in an order that is no order
        int slot = (int)((unsigned)i * 3701u % BUFFERS);
        assert_ok(opends_buf_register(memory + slot * 4096l, 4096, 0));
    }
    for (int i = 0; i < count; i++) {
        h[i] = handle_new(fd);
    }
    assert_int_equal(opends_use_count(), count);
    for (int i = 0; i < count; i++) {
        int slot = i % BUFFERS;
        assert_int_equal(opends_read(h[i], memory + slot * 4096l, 4096, i % 500 * 4096, 0), 4096);
        assert_int_equal(memory[slot * 4096l + 17],
                         pattern_byte(7, (uint64_t)(i % 500) * 4096 + 17));
    }
    for (int i = 0; i < count; i++) {
        opends_handle_deregister(h[i]);
    }
    for (int i = 0; i < BUFFERS; i++) {
        assert_ok(opends_buf_deregister(memory + i * 4096l));
    }
    assert_int_equal(opends_use_count(), 0);
    free(memory);
    free(h);
    close(fd);
}

// Each thread has a batch of its own on the shared handle.
static void *batcher(void *arg)
{
    struct worker *w = arg;
    enum { N = 32 };
    opends_batch_handle_t b;
    opends_io_params_t p[N];
    opends_io_events_t events[N];
    uint8_t *memory = aligned_alloc(4096, N * 8192);
    w->failures += opends_batch_io_setup(&b, N).err != OPENDS_SUCCESS;
    for (int i = 0; i < w->rounds; i++) {
        memset(p, 0, sizeof(p));
        for (unsigned j = 0; j < N; j++) {
            p[j].mode = OPENDS_BATCH;
            p[j].fh = w->handle;
            p[j].u.batch.dev_ptr_base = memory;
            p[j].u.batch.dev_ptr_offset = j * 8192;
            p[j].u.batch.file_offset = (off_t)(random_next(&w->seed) % (FILE_BYTES - 8192));
            p[j].u.batch.size = 8192;
            p[j].cookie = (void *)(uintptr_t)p[j].u.batch.file_offset;
        }
        w->failures += opends_batch_io_submit(b, N, p, 0).err != OPENDS_SUCCESS;
        if (i % 5 == 4) {
            w->failures += opends_batch_io_cancel(b).err != OPENDS_SUCCESS;
        }
        unsigned nr = N;
        w->failures += opends_batch_io_get_status(b, N, &nr, events, NULL).err != OPENDS_SUCCESS;
        w->failures += nr != N;
        for (unsigned j = 0; j < nr; j++) {
            bool is_done = events[j].status == OPENDS_COMPLETE && events[j].ret == 8192;
            w->failures += !is_done && !(i % 5 == 4 && events[j].status == OPENDS_CANCELED);
        }
        for (unsigned j = 0; j < N && i % 5 != 4; j++) {
            uint64_t offset = (uint64_t)p[j].u.batch.file_offset;
            w->failures += memory[j * 8192 + 4321] != pattern_byte(7, offset + 4321);
        }
    }
    opends_batch_io_destroy(b);
    free(memory);
    return NULL;
}

static void test_batches(void **state)
{
    (void)state;
    int fd = file_make(7, FILE_BYTES, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    struct worker w[8];
    memset(w, 0, sizeof(w));
    for (int i = 0; i < 8; i++) {
        w[i].handle = h;
        w[i].rounds = 40;
    }
    run_workers(w, 8, batcher);
    opends_handle_deregister(h);
    close(fd);
}

// Threads come and go; their rings are used again.
static void test_short_lived_threads(void **state)
{
    (void)state;
    int fd = file_make(7, FILE_BYTES, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    struct worker w[4];
    for (int round = 0; round < 50; round++) {
        memset(w, 0, sizeof(w));
        for (int i = 0; i < 4; i++) {
            w[i].handle = h;
            w[i].rounds = 2;
        }
        run_workers(w, 4, reader);
    }
    opends_handle_deregister(h);
    close(fd);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)
    const struct CMUnitTest tests[] = {T(test_one_handle), T(test_churn), T(test_thousands),
                                       T(test_batches), T(test_short_lived_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
