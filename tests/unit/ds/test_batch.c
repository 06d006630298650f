// SPDX-License-Identifier: Apache-2.0
// Batches: any number of operations, a status each, partial completion, cancel, timeouts, and no
// wait for what cannot come.
#include "ds_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static opends_io_params_t params(opends_handle_t h, opends_opcode_t opcode, void *base, off_t at,
                                 off_t offset, size_t size, uintptr_t cookie)
{
    opends_io_params_t p;
    memset(&p, 0, sizeof(p));
    p.mode = OPENDS_BATCH;
    p.u.batch.dev_ptr_base = base;
    p.u.batch.dev_ptr_offset = at;
    p.u.batch.file_offset = offset;
    p.u.batch.size = size;
    p.fh = h;
    p.opcode = opcode;
    p.cookie = (void *)cookie;
    return p;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static opends_batch_handle_t batch_new(void)
{
    opends_batch_handle_t b = NULL;
    assert_ok(opends_batch_io_setup(&b, 16));
    return b;
}

// Far more operations than any queue holds, in one submit; every one is reported once and right.
static void test_unlimited(void **state)
{
    (void)state;
    const unsigned count = 5000;
    const size_t size = 3000;
    int fd = file_make(7, count * 1000 + size, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(count * size);
    uint8_t *host = malloc(count * size);
    opends_io_params_t *p = calloc(count, sizeof(*p));
    opends_io_events_t *events = calloc(count, sizeof(*events));
    uint8_t *seen = calloc(count, 1);
    opends_batch_handle_t b = batch_new();
    for (unsigned i = 0; i < count; i++) {
        p[i] = params(h, OPENDS_READ, memory, (off_t)(i * size), (off_t)i * 1000, size, i);
    }
    assert_ok(opends_batch_io_submit(b, count, p, 0));
    memset(p, 0xff, count * sizeof(*p)); // the array is the caller's again
    unsigned total = 0;
    while (total < count) {
        unsigned nr = 700;
        assert_ok(opends_batch_io_get_status(b, 1, &nr, events, NULL));
        assert_true(nr >= 1 && nr <= 700);
        for (unsigned i = 0; i < nr; i++) {
            uintptr_t c = (uintptr_t)events[i].cookie;
            assert_true(c < count && !seen[c]);
            seen[c] = 1;
            assert_int_equal(events[i].status, OPENDS_COMPLETE);
            assert_int_equal(events[i].ret, size);
        }
        total += nr;
    }
    memory_get(host, memory, count * size);
    for (unsigned i = 0; i < count; i++) {
        pattern_check(host + i * size, 7, i * 1000ul, size);
    }
    // All reported: asking for more returns at once with none.
    unsigned nr = 8;
    assert_ok(opends_batch_io_get_status(b, 8, &nr, events, NULL));
    assert_int_equal(nr, 0);
    opends_batch_io_destroy(b);
    memory_delete(memory);
    free(p);
    free(events);
    free(seen);
    free(host);
    opends_handle_deregister(h);
    close(fd);
}

// One bad operation among good ones: it alone is INVALID; partial reads say how much they got.
static void test_mixed_outcomes(void **state)
{
    (void)state;
    int fd = file_make(7, 10000, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    opends_io_events_t events[8];
    opends_batch_handle_t b = batch_new();
    opends_io_params_t p[8] = {
        params(h, OPENDS_READ, memory, 0, 0, 10000, 0),
        params(h, OPENDS_READ, memory, 16384, 9000, 4096, 1),  // short
        params(h, OPENDS_READ, memory, 24576, 20000, 4096, 2), // past the end
        params(h, OPENDS_READ, memory, 65536, 0, 1, 3),        // out of the buffer
        params((opends_handle_t)(uintptr_t)77, OPENDS_READ, memory, 0, 0, 1, 4),
        params(h, OPENDS_READ, memory, 32768, 0, 0, 5),
        params(h, (opends_opcode_t)9, memory, 0, 0, 1, 6),
        params(h, OPENDS_WRITE, memory, 40000, 100, 5, 7),
    };
    const size_t want[8] = {10000,
                            1000,
                            0,
                            (size_t)-OPENDS_POINTER_RANGE_ERROR,
                            (size_t)-OPENDS_HANDLE_NOT_REGISTERED,
                            0,
                            (size_t)-OPENDS_INVALID_VALUE,
                            5};
    assert_ok(opends_batch_io_submit(b, 8, p, OPENDS_WRITE_DURABLE));
    unsigned nr = 8;
    assert_ok(opends_batch_io_get_status(b, 8, &nr, events, NULL));
    assert_int_equal(nr, 8);
    for (unsigned i = 0; i < 8; i++) {
        uintptr_t c = (uintptr_t)events[i].cookie;
        assert_int_equal(events[i].ret, want[c]);
        assert_int_equal(events[i].status,
                         c == 3 || c == 4 || c == 6 ? OPENDS_INVALID : OPENDS_COMPLETE);
    }
    opends_batch_io_destroy(b);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_arguments(void **state)
{
    (void)state;
    opends_batch_handle_t b = NULL;
    opends_io_events_t event;
    unsigned nr = 1;
    struct timespec bad = {.tv_sec = 0, .tv_nsec = 2000000000};
    assert_err(opends_batch_io_setup(&b, 0), OPENDS_INVALID_VALUE);
    assert_err(opends_batch_io_setup(NULL, 1), OPENDS_INVALID_VALUE);
    b = batch_new();
    opends_io_params_t p = params(NULL, OPENDS_READ, NULL, 0, 0, 0, 0);
    assert_err(opends_batch_io_submit(b, 0, &p, 0), OPENDS_INVALID_VALUE);
    assert_err(opends_batch_io_submit(b, 1, NULL, 0), OPENDS_INVALID_VALUE);
    assert_err(opends_batch_io_submit(b, 1, &p, 8), OPENDS_INVALID_VALUE);
    assert_err(opends_batch_io_get_status(b, 2, &nr, &event, NULL), OPENDS_INVALID_VALUE);
    assert_err(opends_batch_io_get_status(b, 0, NULL, &event, NULL), OPENDS_INVALID_VALUE);
    assert_err(opends_batch_io_get_status(b, 0, &nr, &event, &bad), OPENDS_INVALID_VALUE);
    assert_ok(opends_batch_io_cancel(b));
    opends_batch_io_destroy(b);
    assert_err(opends_batch_io_submit(b, 1, &p, 0), OPENDS_INVALID_VALUE); // stale
    assert_err(opends_batch_io_cancel(b), OPENDS_INVALID_VALUE);
    opends_batch_io_destroy(b);
    opends_batch_io_destroy(NULL);
}

// Operations that start late (an injected delay) can be waited for with a timeout, and cancelled.
static void test_cancel(void **state)
{
    (void)state;
    if (strcmp(backend_name(), "gds") == 0) {
        skip(); // cuFile calls cannot be interrupted; the next test covers what waits
    }
    driver_reopen("OPENDS_FAULT", "read:delay:30000");
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(1 << 20);
    opends_batch_handle_t b = batch_new();
    static opends_io_params_t p[200];
    static opends_io_events_t events[200];
    for (unsigned i = 0; i < 200; i++) {
        p[i] = params(h, OPENDS_READ, memory, i * 4096, 0, 4096, i);
    }
    assert_ok(opends_batch_io_submit(b, 200, p, 0));
    double start = now_s();
    struct timespec soon = {.tv_nsec = 30000000};
    unsigned nr = 200;
    assert_ok(opends_batch_io_get_status(b, 1, &nr, events, &soon));
    assert_int_equal(nr, 0);
    assert_true(now_s() - start >= 0.029);
    assert_ok(opends_batch_io_cancel(b));
    nr = 200;
    assert_ok(opends_batch_io_get_status(b, 200, &nr, events, NULL));
    assert_int_equal(nr, 200);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(events[i].status, OPENDS_CANCELED);
        assert_int_equal(events[i].ret, (size_t)-OPENDS_CANCELED_ERROR);
    }
    // Destroying cancels too.
    assert_ok(opends_batch_io_submit(b, 200, p, 0));
    opends_batch_io_destroy(b);
    assert_true(now_s() - start < 10);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_timeout(void **state)
{
    (void)state;
    if (strcmp(backend_name(), "gds") == 0) {
        skip();
    }
    driver_reopen("OPENDS_FAULT", "read:delay:30000");
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(1 << 20);
    opends_batch_handle_t b = batch_new();
    assert_err(opends_batch_set_timeout(b, UINT32_MAX), OPENDS_DRIVER_UNSUPPORTED_LIMIT);
    assert_ok(opends_batch_set_timeout(b, 50));
    static opends_io_params_t p[150];
    static opends_io_events_t events[150];
    for (unsigned i = 0; i < 150; i++) {
        bool is_write = i % 2 == 1; // writes are not delayed
        p[i] = params(h, is_write ? OPENDS_WRITE : OPENDS_READ, memory, i * 4096, 0, 4096, i);
    }
    double start = now_s();
    assert_ok(opends_batch_io_submit(b, 150, p, 0));
    unsigned nr = 150;
    assert_ok(opends_batch_io_get_status(b, 150, &nr, events, NULL));
    double took = now_s() - start;
    assert_int_equal(nr, 150);
    unsigned timed_out = 0;
    for (unsigned i = 0; i < 150; i++) {
        bool is_write = (uintptr_t)events[i].cookie % 2 == 1;
        if (!is_write) {
            assert_int_equal(events[i].status, OPENDS_TIMEOUT);
            assert_int_equal(events[i].ret, (size_t)-OPENDS_TIMED_OUT);
        }
        timed_out += events[i].status == OPENDS_TIMEOUT;
    }
    assert_true(timed_out >= 75 && took >= 0.049 && took < 10);
    opends_batch_io_destroy(b);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

// A batch is used again and again, with events left over and taken later; writes, then reads.
static void test_reuse(void **state)
{
    (void)state;
    int fd = file_make(7, 0, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    const size_t size = 20000;
    uint8_t *memory = memory_new(64 * size);
    uint8_t *host = malloc(64 * size);
    static opends_io_events_t events[64];
    static opends_io_params_t p[64];
    opends_batch_handle_t b = batch_new();
    pattern_fill(host, 21, 0, 64 * size);
    memory_put(memory, host, 64 * size);
    for (int round = 0; round < 20; round++) {
        opends_opcode_t opcode = round % 2 == 0 ? OPENDS_WRITE : OPENDS_READ;
        if (opcode == OPENDS_READ) {
            memory_set(memory, 0, 64 * size);
        }
        for (unsigned i = 0; i < 64; i++) {
            p[i] = params(h, opcode, memory, (off_t)(i * size), (off_t)(i * size), size, i);
        }
        for (unsigned i = 0; i < 64; i += 16) {
            assert_ok(opends_batch_io_submit(b, 16, p + i, 0));
        }
        for (unsigned got = 0; got < 64;) {
            unsigned nr = 7;
            assert_ok(opends_batch_io_get_status(b, got > 60 ? 64 - got : 3, &nr, events, NULL));
            for (unsigned i = 0; i < nr; i++) {
                assert_int_equal(events[i].ret, size);
            }
            got += nr;
        }
        if (opcode == OPENDS_READ) {
            memory_get(host, memory, 64 * size);
            pattern_check(host, 21, 0, 64 * size);
        }
    }
    opends_batch_io_destroy(b);
    memory_delete(memory);
    free(host);
    opends_handle_deregister(h);
    close(fd);
}

// The handle goes while its operations run; the operations end well, and the memory may be freed.
static void test_deregister_in_flight(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        int fd = file_make(7, 1 << 20, O_DIRECT);
        opends_handle_t h = handle_new(fd);
        close(fd);
        uint8_t *memory = memory_new(4 << 20);
        static opends_io_params_t p[64];
        static opends_io_events_t events[64];
        opends_batch_handle_t b = batch_new();
        for (unsigned i = 0; i < 64; i++) {
            p[i] = params(h, OPENDS_READ, memory, i * 65536, (off_t)i * 1000, 65536, i);
        }
        assert_ok(opends_batch_io_submit(b, 64, p, 0));
        opends_handle_deregister(h);
        memory_delete(memory); // waits for the I/O on it
        unsigned nr = 64;
        assert_ok(opends_batch_io_get_status(b, 64, &nr, events, NULL));
        assert_int_equal(nr, 64);
        for (unsigned i = 0; i < nr; i++) {
            assert_int_equal(events[i].ret, 65536);
        }
        opends_batch_io_destroy(b);
    }
    assert_int_equal(opends_use_count(), 0);
}

// A shallow queue and one engine: large operations queue behind each other and none is lost.
static void test_shallow_queue(void **state)
{
    (void)state;
    setenv("OPENDS_THREADS", "1", 1);
    driver_reopen("OPENDS_QUEUE_DEPTH", "4");
    const size_t size = (3 << 20) + 5;
    int fd = file_make(7, size, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(8 * (size + 3));
    uint8_t *host = malloc(8 * (size + 3));
    opends_io_params_t p[8];
    opends_io_events_t events[8];
    opends_batch_handle_t b = batch_new();
    for (unsigned i = 0; i < 8; i++) {
        p[i] = params(h, OPENDS_READ, memory, (off_t)(i * (size + 3)), (off_t)i, size, i);
    }
    assert_ok(opends_batch_io_submit(b, 8, p, 0));
    unsigned nr = 8;
    assert_ok(opends_batch_io_get_status(b, 8, &nr, events, NULL));
    assert_int_equal(nr, 8);
    memory_get(host, memory, 8 * (size + 3));
    for (unsigned i = 0; i < 8; i++) {
        uintptr_t c = (uintptr_t)events[i].cookie;
        assert_int_equal(events[i].ret, size - c);
        pattern_check(host + c * (size + 3), 7, c, size - c);
    }
    opends_batch_io_destroy(b);
    memory_delete(memory);
    free(host);
    opends_handle_deregister(h);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]); // tests/vm runs a part, for time's sake
    }
#define T(name) cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)
    const struct CMUnitTest tests[] = {
        T(test_unlimited),
        T(test_mixed_outcomes),
        T(test_arguments),
        T(test_cancel),
        T(test_timeout),
        T(test_reuse),
        T(test_deregister_in_flight),
        T(test_shallow_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
