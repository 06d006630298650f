// SPDX-License-Identifier: Apache-2.0
// Stream-ordered I/O: arguments are read when the stream gets there, order holds within a stream,
// streams run side by side, and errors come back through the result word.
#include "ds_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A gate that a stream's callback waits at, so that a test decides when the stream goes on.
struct hold {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool is_open;
    bool is_reached;
};

static void hold_wait(void *arg)
{
    struct hold *g = arg;
    pthread_mutex_lock(&g->lock);
    g->is_reached = true;
    pthread_cond_broadcast(&g->wake);
    while (!g->is_open) {
        pthread_cond_wait(&g->wake, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

static void hold_open(struct hold *g)
{
    pthread_mutex_lock(&g->lock);
    g->is_open = true;
    pthread_cond_broadcast(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

#define HOLD_INIT                                                                                  \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER                        \
    }

static opends_stream_t stream_new(void)
{
    opends_stream_t s = NULL;
    assert_ok(opends_stream_create(&s));
    return s;
}

// The arguments hold nonsense at submission and get their values while the stream is held.
static void test_late_arguments(void **state)
{
    (void)state;
    int fd = file_make(7, 200000, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(262144);
    uint8_t *host = malloc(262144);
    opends_stream_t s = stream_new();
    struct hold g = HOLD_INIT;
    size_t size = SIZE_MAX;
    off_t offset = -5;
    off_t at = -9;
    ssize_t got = -1;
    assert_ok(opends_stream_register(s, 15));
    assert_err(opends_stream_register(s, 16), OPENDS_INVALID_VALUE);
    assert_ok(opends_stream_call(s, hold_wait, &g));
    assert_ok(opends_read_async(h, memory, &size, &offset, &at, &got, s));
    size = 100000;
    offset = 777;
    at = 33;
    assert_int_equal(got, -1);
    hold_open(&g);
    assert_ok(opends_stream_synchronize(s));
    assert_int_equal(got, 100000);
    memory_get(host, memory, 262144);
    pattern_check(host + 33, 7, 777, 100000);
    // Nonsense that stays nonsense is an error in the result, not a crash.
    offset = -5;
    assert_ok(opends_read_async(h, memory, &size, &offset, &at, &got, s));
    assert_ok(opends_stream_synchronize(s));
    assert_int_equal(got, -OPENDS_INVALID_VALUE);
    assert_ok(opends_stream_deregister(s));
    assert_ok(opends_stream_destroy(s));
    memory_delete(memory);
    free(host);
    opends_handle_deregister(h);
    close(fd);
}

// Write A, read it back, write B over it, read again: each sees exactly its predecessor.
static void test_order(void **state)
{
    (void)state;
    enum { ROUNDS = 30 };
    const size_t bytes = 150000;
    int fd = file_make(7, 0, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *source = memory_new(bytes * 2);
    uint8_t *sink = memory_new(bytes * ROUNDS);
    uint8_t *host = malloc(bytes * ROUNDS);
    size_t size = bytes;
    off_t zero = 0;
    off_t from[2] = {0, (off_t)bytes};
    off_t to[ROUNDS];
    ssize_t wrote[ROUNDS];
    ssize_t got[ROUNDS];
    opends_stream_t s = stream_new();
    pattern_fill(host, 100, 0, bytes);
    pattern_fill(host + bytes, 101, 0, bytes);
    memory_put(source, host, 2 * bytes);
    for (int i = 0; i < ROUNDS; i++) {
        to[i] = (off_t)(bytes * (size_t)i);
        wrote[i] = got[i] = -1;
        assert_ok(opends_write_async(h, source, &size, &zero, &from[i % 2], &wrote[i], s));
        assert_ok(opends_read_async(h, sink, &size, &zero, &to[i], &got[i], s));
    }
    assert_ok(opends_stream_synchronize(s));
    memory_get(host, sink, bytes * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(wrote[i], bytes);
        assert_int_equal(got[i], bytes);
        pattern_check(host + bytes * (size_t)i, 100 + (uint64_t)(i % 2), 0, bytes);
    }
    assert_ok(opends_stream_destroy(s));
    memory_delete(source);
    memory_delete(sink);
    free(host);
    opends_handle_deregister(h);
    close(fd);
}

// One stream is held; others and the default stream go on.
static void test_side_by_side(void **state)
{
    (void)state;
    enum { STREAMS = 8 };
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new((STREAMS + 2) * 65536);
    size_t size = 65536;
    off_t zero = 0;
    off_t at[STREAMS + 2];
    ssize_t got[STREAMS + 2];
    opends_stream_t held = stream_new();
    opends_stream_t s[STREAMS];
    struct hold g = HOLD_INIT;
    assert_ok(opends_stream_call(held, hold_wait, &g));
    for (int i = 0; i < STREAMS + 2; i++) {
        at[i] = i * 65536;
        got[i] = -1;
    }
    assert_ok(opends_read_async(h, memory, &size, &zero, &at[STREAMS], &got[STREAMS], held));
    for (int i = 0; i < STREAMS; i++) {
        s[i] = stream_new();
        assert_ok(opends_read_async(h, memory, &size, &zero, &at[i], &got[i], s[i]));
    }
    assert_ok(
        opends_read_async(h, memory, &size, &zero, &at[STREAMS + 1], &got[STREAMS + 1], NULL));
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(opends_stream_synchronize(s[i]));
        assert_int_equal(got[i], 65536);
        assert_ok(opends_stream_destroy(s[i]));
    }
    assert_ok(opends_stream_synchronize(NULL));
    assert_int_equal(got[STREAMS + 1], 65536);
    assert_int_equal(got[STREAMS], -1); // still held
    hold_open(&g);
    assert_ok(opends_stream_synchronize(held));
    assert_int_equal(got[STREAMS], 65536);
    assert_ok(opends_stream_destroy(held));
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_arguments(void **state)
{
    (void)state;
    int fd = file_make(7, 4096, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(4096);
    size_t size = 4096;
    off_t zero = 0;
    ssize_t got = -1;
    opends_stream_t s = stream_new();
    assert_err(opends_read_async(h, memory, NULL, &zero, &zero, &got, s), OPENDS_INVALID_VALUE);
    assert_err(opends_read_async(h, memory, &size, NULL, &zero, &got, s), OPENDS_INVALID_VALUE);
    assert_err(opends_read_async(h, memory, &size, &zero, NULL, &got, s), OPENDS_INVALID_VALUE);
    assert_err(opends_read_async(h, memory, &size, &zero, &zero, NULL, s), OPENDS_INVALID_VALUE);
    assert_err(opends_read_async(NULL, memory, &size, &zero, &zero, &got, s),
               OPENDS_HANDLE_NOT_REGISTERED);
    assert_err(opends_stream_create(NULL), OPENDS_INVALID_VALUE);
    assert_err(opends_stream_call(s, NULL, NULL), OPENDS_INVALID_VALUE);
    if (!memory_is_device()) { // a GPU driver does not check; ours does
        opends_stream_t other = (opends_stream_t)&zero;
        opends_error_t e = opends_read_async(h, memory, &size, &zero, &zero, &got, other);
        assert_err(e, OPENDS_DEVICE_DRIVER_ERROR);
        assert_int_equal(e.dev_err, EINVAL);
        assert_err(opends_stream_destroy(other), OPENDS_INVALID_VALUE);
    }
    // The handle goes before the stream gets there: an error in the result.
    struct hold g = HOLD_INIT;
    assert_ok(opends_stream_call(s, hold_wait, &g));
    assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got, s));
    opends_handle_deregister(h);
    hold_open(&g);
    assert_ok(opends_stream_synchronize(s));
    assert_int_equal(got, -OPENDS_HANDLE_NOT_REGISTERED);
    assert_ok(opends_stream_destroy(s));
    memory_delete(memory);
    close(fd);
}

// Thousands of operations over many streams, more than any gate slab or queue holds.
static void test_many(void **state)
{
    (void)state;
    enum { STREAMS = 16, PER_STREAM = 200 };
    int fd = file_make(7, 1 << 20, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(STREAMS * 8192);
    opends_stream_t s[STREAMS];
    static off_t offset[STREAMS][PER_STREAM];
    static ssize_t got[STREAMS][PER_STREAM];
    static off_t at[STREAMS];
    size_t size = 8000;
    for (int i = 0; i < STREAMS; i++) {
        s[i] = stream_new();
        at[i] = i * 8192;
    }
    for (int j = 0; j < PER_STREAM; j++) {
        for (int i = 0; i < STREAMS; i++) {
            offset[i][j] = (i * 31 + j * 511) % 900000;
            got[i][j] = -1;
            assert_ok(opends_read_async(h, memory, &size, &offset[i][j], &at[i], &got[i][j], s[i]));
        }
    }
    uint8_t *host = malloc(STREAMS * 8192);
    for (int i = 0; i < STREAMS; i++) {
        assert_ok(opends_stream_synchronize(s[i]));
        for (int j = 0; j < PER_STREAM; j++) {
            assert_int_equal(got[i][j], 8000);
        }
        assert_ok(opends_stream_destroy(s[i]));
    }
    memory_get(host, memory, STREAMS * 8192);
    for (int i = 0; i < STREAMS; i++) {
        pattern_check(host + i * 8192, 7, (uint64_t)offset[i][PER_STREAM - 1], 8000);
    }
    free(host);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

// The device refuses the wait that would order the stream: the operation must not run unordered.
static void test_wait_refused(void **state)
{
    (void)state;
    if (!memory_is_device()) {
        skip();
    }
    driver_reopen("STUB_CUDA_FAIL", "cuStreamWaitValue32_v2:1:719");
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    size_t size = 65536;
    off_t zero = 0;
    ssize_t got = -1;
    opends_stream_t s = stream_new();
    struct hold g = HOLD_INIT;
    assert_ok(opends_stream_call(s, hold_wait, &g)); // so the call cannot have started
    opends_error_t e = opends_read_async(h, memory, &size, &zero, &zero, &got, s);
    assert_err(e, OPENDS_DEVICE_DRIVER_ERROR);
    assert_int_equal(e.dev_err, 719);
    hold_open(&g);
    assert_ok(opends_stream_synchronize(s));
    assert_int_equal(got, -1); // it did not run
    assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got, s));
    assert_ok(opends_stream_synchronize(s));
    assert_int_equal(got, 65536);
    assert_ok(opends_stream_destroy(s));
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)
    const struct CMUnitTest tests[] = {
        T(test_late_arguments), T(test_order), T(test_side_by_side),
        T(test_arguments),      T(test_many),  T(test_wait_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
