// SPDX-License-Identifier: Apache-2.0
// What programs do that nobody should: more files and buffers than a ring has fixed slots for, two
// waiters on one batch, a close with everything in flight, memory freed under queued operations,
// files that shrink under a read, calls larger than 2 GiB, descriptors that are no files.
#include "ds_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static opends_io_params_t read_of(opends_handle_t h, void *base, size_t at, size_t size)
{
    opends_io_params_t p;
    memset(&p, 0, sizeof(p));
    p.mode = OPENDS_BATCH;
    p.fh = h;
    p.u.batch.dev_ptr_base = base;
    p.u.batch.dev_ptr_offset = (off_t)at;
    p.u.batch.size = size;
    return p;
}

static void join_in_time(pthread_t thread, const char *what)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 20;
    if (pthread_timedjoin_np(thread, NULL, &t) != 0) {
        fail_msg("%s hangs", what);
    }
}

// A ring has 256 fixed slots for files and for buffers, found by number modulo 256. Two requests of
// one submission whose files (or buffers) share a slot must each go where they were sent.
static void test_shared_fixed_slots(void **state)
{
    (void)state;
    enum { FILES = 520, BYTES = 4096, ROUNDS = 8 };
    raise_descriptor_limit();
    driver_reopen("OPENDS_THREADS", "1");
    opends_handle_t *h = calloc(FILES, sizeof(*h));
    opends_io_params_t *p = calloc(FILES, sizeof(*p));
    opends_io_events_t *events = calloc(FILES, sizeof(*events));
    uint8_t **memory = calloc(FILES, sizeof(*memory));
    static uint8_t host[BYTES];
    for (uint64_t i = 0; i < FILES; i++) {
        int fd = file_make(i + 1, BYTES, O_DIRECT);
        h[i] = handle_new(fd);
        close(fd);
        memory[i] = memory_new(BYTES);
    }
    opends_batch_handle_t b;
    assert_ok(opends_batch_io_setup(&b, FILES));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < FILES; i++) { // neighbours in the batch share a slot
            unsigned file = i % 2 * 256 + i / 2 % 256;
            p[i] = read_of(h[file], memory[file], 0, BYTES);
            p[i].cookie = (void *)(uintptr_t)file;
        }
        assert_ok(opends_batch_io_submit(b, 512, p, 0));
        unsigned nr = 512;
        assert_ok(opends_batch_io_get_status(b, 512, &nr, events, NULL));
        assert_int_equal(nr, 512);
        for (unsigned i = 0; i < nr; i++) {
            uintptr_t file = (uintptr_t)events[i].cookie;
            if (events[i].status != OPENDS_COMPLETE || events[i].ret != BYTES) {
                fail_msg("round %u, file %u: status %x, %zd", round, (unsigned)file,
                         events[i].status, (ssize_t)events[i].ret);
            }
            memory_get(host, memory[file], BYTES);
            pattern_check(host, file + 1, 0, BYTES);
        }
    }
    opends_batch_io_destroy(b);
    for (unsigned i = 0; i < FILES; i++) {
        opends_handle_deregister(h[i]);
        memory_delete(memory[i]);
    }
    free(memory);
    free(events);
    free(p);
    free(h);
}

struct waiter {
    pthread_t thread;
    opends_batch_handle_t batch;
    unsigned want;
    unsigned got;
};

static void *wait_for_events(void *arg)
{
    struct waiter *w = arg;
    opends_io_events_t events[8];
    unsigned nr = w->want;
    (void)opends_batch_io_get_status(w->batch, w->want, &nr, events, NULL);
    w->got = nr;
    return NULL;
}

// Two threads wait on one batch for more events than there will be: both return.
static void test_two_waiters(void **state)
{
    (void)state;
    if (strcmp(backend_name(), "gds") == 0) {
        skip(); // no delay can be injected into cuFile, and without one there is nothing to wait
                // for
    }
    driver_reopen("OPENDS_FAULT", "read:delay:60");
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    opends_batch_handle_t b;
    assert_ok(opends_batch_io_setup(&b, 8));
    for (int round = 0; round < 3; round++) {
        opends_io_params_t p[3];
        for (size_t i = 0; i < 3; i++) {
            p[i] = read_of(h, memory, i * 8192, 4096);
        }
        assert_ok(opends_batch_io_submit(b, 3, p, 0));
        struct waiter w[3] = {
            {.batch = b, .want = 3}, {.batch = b, .want = 2}, {.batch = b, .want = 3}};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pthread_create(&w[i].thread, NULL, wait_for_events, &w[i]), 0);
        }
        unsigned total = 0;
        for (int i = 0; i < 3; i++) {
            join_in_time(w[i].thread, "a waiter");
            total += w[i].got;
        }
        assert_int_equal(total, 3);
    }
    opends_batch_io_destroy(b);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

struct canceller {
    pthread_t thread;
    opends_batch_handle_t batch;
    atomic_bool is_over;
};

static void *cancel_again_and_again(void *arg)
{
    struct canceller *c = arg;
    while (!atomic_load(&c->is_over)) {
        (void)opends_batch_io_cancel(c->batch);
        sched_yield();
    }
    return NULL;
}

// One thread cancels what another submits and collects: each operation has one event, which is
// either whole or CANCELED, and bytes of whole ones are right.
static void test_cancel_race(void **state)
{
    (void)state;
    enum { OPS = 48, BYTES = 8192, ROUNDS = 150 };
    static opends_io_params_t p[OPS];
    static opends_io_events_t events[OPS];
    static uint8_t host[BYTES];
    int fd = file_make(7, OPS * BYTES, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(OPS * BYTES);
    struct canceller c = {.is_over = false};
    assert_ok(opends_batch_io_setup(&c.batch, OPS));
    assert_int_equal(pthread_create(&c.thread, NULL, cancel_again_and_again, &c), 0);
    unsigned whole = 0;
    for (int round = 0; round < ROUNDS; round++) {
        bool is_seen[OPS] = {false};
        for (size_t i = 0; i < OPS; i++) {
            p[i] = read_of(h, memory, i * BYTES, BYTES);
            p[i].u.batch.file_offset = (off_t)(i * BYTES);
            p[i].cookie = (void *)i;
        }
        assert_ok(opends_batch_io_submit(c.batch, OPS, p, 0));
        for (unsigned got = 0; got < OPS;) {
            unsigned nr = OPS;
            assert_ok(opends_batch_io_get_status(c.batch, 1, &nr, events, NULL));
            assert_true(nr > 0);
            got += nr;
            for (unsigned i = 0; i < nr; i++) {
                size_t op = (size_t)events[i].cookie;
                assert_true(op < OPS && !is_seen[op]);
                is_seen[op] = true;
                if (events[i].status == OPENDS_CANCELED) {
                    assert_int_equal(events[i].ret, (size_t)-OPENDS_CANCELED_ERROR);
                    continue;
                }
                assert_int_equal(events[i].status, OPENDS_COMPLETE);
                assert_int_equal(events[i].ret, BYTES);
                memory_get(host, memory + op * BYTES, BYTES);
                pattern_check(host, 7, op * BYTES, BYTES);
                whole++;
            }
        }
    }
    atomic_store(&c.is_over, true);
    join_in_time(c.thread, "the canceller");
    print_message("%u of %u ran\n", whole, OPS * ROUNDS);
    opends_batch_io_destroy(c.batch);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

// The caller's own memory is deregistered with I/O on it: the call returns when the I/O has ended,
// and the memory may go at once. A second deregistration says that there is nothing.
static void test_deregister_under_io(void **state)
{
    (void)state;
    enum { OPS = 64, BYTES = 65536 };
    static opends_io_params_t p[OPS];
    static opends_io_events_t events[OPS];
    int fd = file_make(7, BYTES, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    opends_batch_handle_t b;
    assert_ok(opends_batch_io_setup(&b, OPS));
    for (int round = 0; round < 12; round++) {
        uint8_t *memory =
            mmap(NULL, OPS * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        assert_ok(opends_buf_register(memory, OPS * BYTES, 0));
        for (size_t i = 0; i < OPS; i++) {
            p[i] = read_of(h, memory, i * BYTES, BYTES);
        }
        assert_ok(opends_batch_io_submit(b, OPS, p, 0));
        assert_ok(opends_buf_deregister(memory));
        assert_err(opends_buf_deregister(memory), OPENDS_MEMORY_NOT_REGISTERED);
        munmap(memory, OPS * BYTES);
        unsigned nr = OPS;
        assert_ok(opends_batch_io_get_status(b, OPS, &nr, events, NULL));
        assert_int_equal(nr, OPS);
        for (unsigned i = 0; i < nr; i++) {
            assert_int_equal(events[i].ret, BYTES);
        }
    }
    opends_batch_io_destroy(b);
    opends_handle_deregister(h);
    close(fd);
}

static void nap(void *arg)
{
    struct timespec t = {.tv_nsec = *(long *)arg};
    nanosleep(&t, NULL);
}

// The driver closes with batches in flight and stream operations queued and running. What has not
// started is refused; nothing crashes, hangs, or touches freed memory.
static void test_close_in_flight(void **state)
{
    (void)state;
    enum { OPS = 64, BYTES = 65536 };
    static long pause_ns = 3000000;
    static ssize_t got[OPS];
    size_t size = BYTES;
    off_t zero = 0;
    off_t ats[2] = {OPS * BYTES, (OPS + 1) * BYTES}; // a range of memory for each stream
    for (int round = 0; round < 12; round++) {
        int fd = file_make(7, BYTES, O_DIRECT);
        opends_handle_t h = handle_new(fd);
        uint8_t *memory = memory_new((OPS + 2) * BYTES);
        opends_batch_handle_t b;
        static opends_io_params_t p[OPS];
        opends_stream_t streams[2];
        assert_ok(opends_batch_io_setup(&b, OPS));
        for (size_t i = 0; i < OPS; i++) {
            p[i] = read_of(h, memory, i * BYTES, BYTES);
        }
        assert_ok(opends_batch_io_submit(b, OPS, p, 0));
        for (int i = 0; i < 2; i++) {
            assert_ok(opends_stream_create(&streams[i]));
        }
        if (round % 2 == 0) { // these wait behind a call; in odd rounds they run at once
            assert_ok(opends_stream_call(streams[0], nap, &pause_ns));
        }
        for (int i = 0; i < OPS; i++) {
            got[i] = -1;
            assert_ok(
                opends_read_async(h, memory, &size, &zero, &ats[i % 2], &got[i], streams[i % 2]));
        }
        assert_ok(opends_driver_close());
        for (int i = 0; i < OPS; i++) {
            if (got[i] != BYTES && got[i] != -OPENDS_DRIVER_NOT_INITIALIZED) {
                fail_msg("operation %d ended as %zd", i, got[i]);
            }
        }
        assert_err(opends_batch_io_cancel(b), OPENDS_DRIVER_NOT_INITIALIZED);
        assert_ok(opends_driver_open());
        assert_err(opends_batch_io_cancel(b), OPENDS_INVALID_VALUE);
        close(fd);
    }
}

static atomic_bool is_stuck;

static void stick(void *arg)
{
    (void)arg;
    while (atomic_load(&is_stuck)) {
        long ns = 1000000;
        nap(&ns);
    }
}

// A stream that never gets to its operation: the close says so in time, and works later.
static void test_close_stuck(void **state)
{
    (void)state;
    driver_reopen("OPENDS_IO_TIMEOUT_MS", "50");
    int fd = file_make(7, 4096, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(4096);
    size_t size = 4096;
    off_t zero = 0;
    ssize_t got = -1;
    opends_stream_t stream;
    atomic_store(&is_stuck, true);
    assert_ok(opends_stream_create(&stream));
    assert_ok(opends_stream_call(stream, stick, NULL));
    assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got, stream));
    assert_err(opends_driver_close(), OPENDS_DRIVER_CLOSING);
    assert_int_equal(opends_read(h, memory, 4096, 0, 0), 4096); // still open
    atomic_store(&is_stuck, false);
    assert_ok(opends_stream_synchronize(stream));
    assert_int_equal(got, 4096);
    assert_ok(opends_stream_destroy(stream));
    close(fd);
}

// Memory of opends_alloc is freed while a stream operation on it has not begun: the operation finds
// it gone and says so, instead of writing where something else may live by then.
static void test_free_under_queued(void **state)
{
    (void)state;
    static long pause_ns = 40000000;
    int fd = file_make(7, 65536, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    size_t size = 65536;
    off_t zero = 0;
    ssize_t got = -1;
    opends_stream_t stream;
    assert_ok(opends_stream_create(&stream));
    assert_ok(opends_stream_call(stream, nap, &pause_ns));
    assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got, stream));
    memory_delete(memory);
    uint8_t *other = memory_new(65536); // most likely at the same address
    memory_set(other, 0x5A, 65536);
    assert_ok(opends_stream_synchronize(stream));
    assert_int_equal(got, -OPENDS_MEMORY_NOT_REGISTERED);
    static uint8_t host[4096];
    memory_get(host, other, sizeof(host));
    for (size_t i = 0; i < sizeof(host); i++) {
        assert_int_equal(host[i], 0x5A);
    }
    assert_ok(opends_stream_destroy(stream));
    memory_delete(other);
    opends_handle_deregister(h);
    close(fd);
}

// One call above 2 GiB, into memory that maps the same pages again and again, from a sparse file.
static void test_huge_call(void **state)
{
    (void)state;
    const size_t window = 16 << 20;
    const size_t bytes = (2ul << 30) + 3 * 4096 + 77;
    int fd = memfd_create("opends-huge", MFD_CLOEXEC);
    int pages = memfd_create("opends-window", MFD_CLOEXEC);
    assert_true(fd >= 0 && pages >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(ftruncate(pages, (off_t)window), 0);
    assert_int_equal(pwrite(fd, "the end", 7, (off_t)bytes - 7), 7);
    size_t whole = (bytes + window) / window * window;
    uint8_t *memory = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (size_t at = 0; at < whole; at += window) {
        void *p =
            mmap(memory + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages, 0);
        assert_ptr_equal(p, memory + at);
    }
    opends_handle_t h = handle_new(fd);
    assert_int_equal(opends_read(h, memory, bytes + 100, 0, 0), bytes);
    assert_memory_equal(memory + bytes - 7, "the end", 7);
    // The same as a batch, and a write of as much that ends in a short part.
    opends_batch_handle_t b;
    opends_io_params_t p = read_of(h, memory, 5, bytes - 5);
    opends_io_events_t event;
    unsigned nr = 1;
    assert_ok(opends_batch_io_setup(&b, 1));
    assert_ok(opends_batch_io_submit(b, 1, &p, 0));
    assert_ok(opends_batch_io_get_status(b, 1, &nr, &event, NULL));
    assert_int_equal(event.status, OPENDS_COMPLETE);
    assert_int_equal(event.ret, bytes - 5);
    opends_batch_io_destroy(b);
    opends_handle_deregister(h);
    munmap(memory, whole);
    close(pages);
    close(fd);
}

static atomic_bool is_shrinking_over;

static void *shrinker(void *arg)
{
    int fd = *(int *)arg;
    static uint8_t block[8192];
    for (int i = 0; i < 400; i++) {
        (void)!ftruncate(fd, 100000 + i % 7 * 1111);
        for (off_t at = 98304; at < 98304 + 30 * 8192; at += 8192) {
            pattern_fill(block, 7, (uint64_t)at, sizeof(block));
            (void)!pwrite(fd, block, sizeof(block), at);
        }
    }
    atomic_store(&is_shrinking_over, true);
    return NULL;
}

// A file is cut and grows again under reads: counts stay in range, and every byte reported is the
// file's or the zero of a block that was being given back.
static void test_truncated_while_read(void **state)
{
    (void)state;
    const size_t bytes = 98304 + 30 * 8192;
    int fd = file_make(7, bytes, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(bytes);
    uint8_t *host = malloc(bytes);
    pthread_t thread;
    atomic_store(&is_shrinking_over, false);
    assert_int_equal(pthread_create(&thread, NULL, shrinker, &fd), 0);
    while (!atomic_load(&is_shrinking_over)) {
        memory_set(memory, 0xEE, bytes);
        ssize_t n = opends_read(h, memory, bytes, 0, 0);
        assert_true(n >= 98304 && n <= (ssize_t)bytes);
        memory_get(host, memory, bytes);
        pattern_check(host, 7, 0, 98304);
        for (ssize_t i = 98304; i < n; i++) {
            assert_true(host[i] == pattern_byte(7, (uint64_t)i) || host[i] == 0);
        }
    }
    join_in_time(thread, "the shrinker");
    free(host);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_odd_descriptors(void **state)
{
    (void)state;
    int sockets[2];
    char path[64];
    opends_handle_t h;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    int plain = file_make_named(path, 7, 4096, 0);
    const int none[] = {open("/dev/null", O_RDWR), open("/dev/zero", O_RDONLY), sockets[0],
                        eventfd(0, 0), open(".", O_RDONLY | O_DIRECTORY)};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_err(opends_handle_register(&h, none[i]), OPENDS_INVALID_FILE_TYPE);
        assert_null(h);
        close(none[i]);
    }
    close(sockets[1]);
    int name_only = open(path, O_PATH);
    assert_err(opends_handle_register(&h, name_only), OPENDS_INVALID_FILE_OPEN_FLAG);
    close(name_only);
    assert_err(opends_handle_register(&h, 1 << 20), OPENDS_INVALID_VALUE);
    unlink(path);
    close(plain);
}

// No descriptor is left: registering says so and leaves nothing behind, and reads still work.
static void test_descriptors_run_out(void **state)
{
    (void)state;
    enum { COUNT = 400 };
    static opends_handle_t h[COUNT];
    struct rlimit old;
    int fd = file_make(7, 65536, O_DIRECT);
    uint8_t *memory = memory_new(65536);
    getrlimit(RLIMIT_NOFILE, &old);
    struct rlimit low = {.rlim_cur = 200, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    int made = 0;
    opends_error_t e = {OPENDS_SUCCESS, 0};
    while (made < COUNT && (e = opends_handle_register(&h[made], fd)).err == OPENDS_SUCCESS) {
        made++;
    }
    assert_in_range(made, 50, 200);
    assert_int_equal(e.err, OPENDS_GETNEWFD_FAILED);
    assert_int_equal(e.dev_err, EMFILE);
    assert_int_equal(opends_use_count(), made);
    // Neither a ring nor a second descriptor can be had now: some way is left, or an error says so.
    ssize_t n = opends_read(h[0], memory, 50001, 3, 5);
    assert_true(n == 50001 || n < -OPENDS_BASE_ERR);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_int_equal(opends_read(h[0], memory, 50001, 3, 5), 50001);
    for (int i = 0; i < made; i++) {
        opends_handle_deregister(h[i]);
    }
    memory_delete(memory);
    close(fd);
}

// A file of an overlay filesystem of our own. -1 when mounting is not allowed.
static int overlay_file(void)
{
    char folder[] = "ds-overlay-XXXXXX";
    char path[64];
    char options[256];
    int fd = -1;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("tmpfs", folder, "tmpfs", 0, "size=4m") == 0) {
        const char *const names[] = {"low", "up", "work", "merged"};
        for (size_t i = 0; i < 4; i++) {
            snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
            mkdir(path, 0700);
        }
        snprintf(path, sizeof(path), "%s/low/file", folder);
        int low = open(path, O_RDWR | O_CREAT, 0600);
        static uint8_t host[10000];
        pattern_fill(host, 7, 0, sizeof(host));
        bool is_written = write(low, host, sizeof(host)) == sizeof(host);
        close(low);
        snprintf(options, sizeof(options), "lowerdir=%s/low,upperdir=%s/up,workdir=%s/work", folder,
                 folder, folder);
        snprintf(path, sizeof(path), "%s/merged", folder);
        if (is_written && mount("overlay", path, "overlay", 0, options) == 0) {
            snprintf(path, sizeof(path), "%s/merged/file", folder);
            fd = open(path, O_RDWR);
        }
        umount2(folder, MNT_DETACH);
    }
    rmdir(folder);
    return fd;
}

static void test_overlay(void **state)
{
    (void)state;
    int fd = overlay_file();
    if (fd < 0) {
        print_message("no overlay may be mounted here\n");
        skip();
    }
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    static uint8_t host[10000];
    assert_int_equal(opends_read(h, memory, 65536, 0, 0), 10000);
    memory_get(host, memory, sizeof(host));
    pattern_check(host, 7, 0, sizeof(host));
    memory_set(memory, 0x33, 65536);
    assert_int_equal(opends_write(h, memory, 5001, 4999, 0), 5001);
    assert_int_equal(pread(fd, host, 5001, 4999), 5001);
    assert_int_equal(host[0], 0x33);
    assert_int_equal(host[5000], 0x33);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

// A synchronous call obeys the timeout too, and the time limit of waiting may be zero.
static void test_time_limits(void **state)
{
    (void)state;
    if (strcmp(backend_name(), "gds") == 0) {
        skip();
    }
    setenv("OPENDS_IO_TIMEOUT_MS", "40", 1);
    driver_reopen("OPENDS_FAULT", "read:delay:30000");
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    errno = 0;
    assert_int_equal(opends_read(h, memory, 65536, 0, 0), -OPENDS_TIMED_OUT);
    assert_int_equal(errno, ETIMEDOUT);
    opends_batch_handle_t b;
    opends_io_params_t p = read_of(h, memory, 0, 4096);
    opends_io_events_t event;
    struct timespec zero = {0};
    unsigned nr = 1;
    assert_ok(opends_batch_io_setup(&b, 1));
    assert_ok(opends_batch_io_get_status(b, 1, &nr, &event, NULL)); // nothing can come
    assert_int_equal(nr, 0);
    assert_ok(opends_batch_io_submit(b, 1, &p, 0));
    nr = 1;
    assert_ok(opends_batch_io_get_status(b, 1, &nr, &event, &zero));
    assert_int_equal(nr, 0);
    nr = 0;
    assert_ok(opends_batch_io_get_status(b, 0, &nr, NULL, NULL)); // a look, no more
    nr = 1;
    assert_ok(opends_batch_io_get_status(b, 1, &nr, &event, NULL));
    assert_int_equal(nr, 1);
    assert_int_equal(event.status, OPENDS_TIMEOUT);
    opends_batch_io_destroy(b);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
#define T(name) cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)
    const struct CMUnitTest tests[] = {
        T(test_shared_fixed_slots),  T(test_two_waiters),         T(test_cancel_race),
        T(test_deregister_under_io), T(test_close_in_flight),     T(test_close_stuck),
        T(test_free_under_queued),   T(test_huge_call),           T(test_truncated_while_read),
        T(test_odd_descriptors),     T(test_descriptors_run_out), T(test_overlay),
        T(test_time_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
