// SPDX-License-Identifier: Apache-2.0
// What goes wrong: I/O errors, full disks, device errors, fork, exec, signals; and what is counted.
#include "ds_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool is_gds(void)
{
    return strcmp(backend_name(), "gds") == 0;
}

static void test_eio(void **state)
{
    (void)state;
    if (is_gds()) {
        driver_reopen("STUB_CUFILE_FAIL", "read:-5"); // -1 with EIO, as cuFile says it
    } else {
        driver_reopen("OPENDS_FAULT", "read:EIO:2");
    }
    int fd = file_make(7, 8192, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(8192);
    if (!is_gds()) {
        assert_int_equal(opends_read(h, memory, 8192, 0, 0), 8192);
    }
    errno = 0;
    assert_int_equal(opends_read(h, memory, 8192, 0, 0), -OPENDS_IO_ERROR);
    assert_int_equal(errno, EIO);
    assert_non_null(strstr(opends_last_error(), "input/output error"));
    // The same through a batch and a stream.
    opends_batch_handle_t b;
    opends_io_params_t p[2];
    opends_io_events_t events[2];
    memset(p, 0, sizeof(p));
    for (int i = 0; i < 2; i++) {
        p[i].mode = OPENDS_BATCH;
        p[i].fh = h;
        p[i].u.batch.dev_ptr_base = memory;
        p[i].u.batch.size = 4096;
    }
    assert_ok(opends_batch_io_setup(&b, 2));
    assert_ok(opends_batch_io_submit(b, 2, p, 0));
    unsigned nr = 2;
    assert_ok(opends_batch_io_get_status(b, 2, &nr, events, NULL));
    int failed = 0;
    for (unsigned i = 0; i < nr; i++) {
        failed += events[i].status == OPENDS_FAILED && events[i].ret == (size_t)-OPENDS_IO_ERROR;
    }
    assert_int_equal(failed, is_gds() ? 2 : 1);
    opends_batch_io_destroy(b);
    size_t size = 4096;
    off_t zero = 0;
    ssize_t got[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got[i], NULL));
    }
    assert_ok(opends_stream_synchronize(NULL));
    assert_true(got[0] == -OPENDS_IO_ERROR || got[1] == -OPENDS_IO_ERROR);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

// A small tmpfs of our own fills up. -1 when mounting is not allowed.
static int small_file(void)
{
    char folder[] = "ds-tmpfs-XXXXXX";
    char path[64];
    int fd = -1;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("tmpfs", folder, "tmpfs", 0, "size=256k") == 0) {
        snprintf(path, sizeof(path), "%s/file", folder);
        fd = open(path, O_RDWR | O_CREAT, 0600);
        umount2(folder, MNT_DETACH);
    }
    rmdir(folder);
    return fd;
}

static void test_no_space(void **state)
{
    (void)state;
    int fd = small_file();
    if (fd < 0) {
        print_message("no tmpfs may be mounted here\n");
        skip();
    }
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(1 << 20);
    memory_set(memory, 5, 1 << 20);
    assert_int_equal(opends_write(h, memory, 65536, 0, 0), 65536);
    errno = 0;
    assert_int_equal(opends_write(h, memory, 1 << 20, 0, 0), -OPENDS_NO_SPACE);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(opends_write(h, memory, 65536, 1 << 20, 0), -OPENDS_NO_SPACE);
    assert_ok(opends_flush(h));
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_file_too_big(void **state)
{
    (void)state;
    struct rlimit old;
    int fd = file_make(7, 0, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    memory_set(memory, 5, 65536);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit small = {.rlim_cur = 8192, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    ssize_t n = opends_write(h, memory, 65536, 65536, 0);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(n, -OPENDS_FILE_TOO_BIG);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_durable(void **state)
{
    (void)state;
    int fd = file_make(7, 0, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(400000);
    memory_set(memory, 5, 400000);
    assert_err(opends_handle_set_flags(h, 2), OPENDS_INVALID_VALUE);
    assert_ok(opends_handle_set_flags(h, OPENDS_WRITE_DURABLE));
    assert_int_equal(opends_write(h, memory, 399999, 1, 0), 399999);
    assert_ok(opends_flush(h));
    assert_err(opends_flush(NULL), OPENDS_HANDLE_NOT_REGISTERED);
    opends_handle_deregister(h);
    // A flush that fails is reported, by the call and by a durable write.
    driver_reopen("OPENDS_FAULT", "write:EIO:1");
    h = handle_new(fd);
    assert_err(opends_flush(h), OPENDS_IO_ERROR);
    assert_int_equal(opends_last_error()[0], 'f');
    opends_handle_deregister(h);
    close(fd);
}

static void test_device_errors(void **state)
{
    (void)state;
    if (!memory_is_device() || is_gds()) {
        skip();
    }
    // A copy that is refused at once, and one that fails later.
    const char *const specs[] = {"cuMemcpyHtoDAsync_v2:1:700", "event:1:719"};
    const int codes[] = {700, 719};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork(); // the stub counts calls for the process's whole life
        if (child == 0) {
            setenv("STUB_CUDA_FAIL", specs[i], 1);
            int fd = file_make(7, 300000, O_DIRECT);
            opends_handle_t h = NULL;
            uint8_t host[16];
            bool is_right = opends_driver_open().err == OPENDS_SUCCESS &&
                            opends_handle_register(&h, fd).err == OPENDS_SUCCESS;
            uint8_t *memory = opends_alloc(300000);
            ssize_t n = opends_read(h, memory, 300000, 0, 0);
            is_right = is_right && n == -OPENDS_DEVICE_DRIVER_ERROR;
            char want[16];
            snprintf(want, sizeof(want), "(%d)", codes[i]);
            is_right = is_right && strstr(opends_last_error(), want) != NULL;
            // The next one works: nothing was lost with the failed one.
            is_right = is_right && opends_read(h, memory, 300000, 0, 0) == 300000;
            memory_get(host, memory + 1000, sizeof(host));
            is_right = is_right && host[3] == pattern_byte(7, 1003);
            is_right = is_right && opends_driver_close().err == OPENDS_SUCCESS;
            _exit(is_right ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

// Copies take their time and overlap with reads: bytes must still be right.
static void test_slow_copies(void **state)
{
    (void)state;
    if (!memory_is_device()) {
        skip();
    }
    driver_reopen("STUB_CUDA_DELAY_US", "300");
    const size_t bytes = (40 << 20) + 321;
    int fd = file_make(7, bytes, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(bytes);
    uint8_t *host = malloc(bytes);
    assert_int_equal(opends_read(h, memory, bytes, 0, 0), bytes);
    memory_get(host, memory, bytes);
    pattern_check(host, 7, 0, bytes);
    free(host);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_gds_fallback(void **state)
{
    (void)state;
    if (!is_gds()) {
        skip();
    }
    opends_path_info_t info;
    int fd = file_make(7, 100000, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(100000);
    uint8_t *host = malloc(100000);
    assert_int_equal(opends_read(h, memory, 100000, 0, 0), 100000);
    assert_ok(opends_handle_path(h, &info));
    assert_string_equal(info.backend, "gds");
    assert_int_equal(info.gds_bytes, 100000);
    // cuFile says "not supported": the ring takes over, visibly.
    setenv("STUB_CUFILE_FAIL", "read:5008", 1);
    memory_set(memory, 0, 100000);
    assert_int_equal(opends_read(h, memory, 100000, 0, 0), 100000);
    memory_get(host, memory, 100000);
    pattern_check(host, 7, 0, 100000);
    assert_ok(opends_handle_path(h, &info));
    assert_int_equal(info.fallbacks, 1);
    assert_int_equal(info.bounced_bytes, 100000);
    assert_non_null(strstr(info.last_fallback, "5008"));
    // An error of the device is no refusal and is not papered over.
    setenv("STUB_CUFILE_FAIL", "read:5011", 1);
    assert_int_equal(opends_read(h, memory, 100000, 0, 0), -OPENDS_DEVICE_DRIVER_ERROR);
    unsetenv("STUB_CUFILE_FAIL");
    opends_handle_deregister(h);
    // cuFile refuses the file: the handle is served by the ring and says why.
    setenv("STUB_CUFILE_FAIL", "handle:5018", 1);
    h = handle_new(fd);
    assert_ok(opends_handle_path(h, &info));
    assert_string_equal(info.backend, "uring");
    assert_non_null(strstr(info.reason, "5018"));
    assert_int_equal(opends_read(h, memory, 100000, 0, 0), 100000);
    opends_handle_deregister(h);
    memory_delete(memory);
    free(host);
    close(fd);
}

// Reads `count` pieces of the pattern file as one batch and checks them. Returns the handle's
// report.
static opends_path_info_t gds_batch_read(int fd, size_t bytes, unsigned count)
{
    opends_path_info_t info;
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(count * bytes);
    uint8_t *host = malloc(bytes);
    opends_io_params_t *p = calloc(count, sizeof(*p));
    opends_io_events_t *events = calloc(count, sizeof(*events));
    opends_batch_handle_t b;
    for (unsigned i = 0; i < count; i++) {
        p[i] = (opends_io_params_t){.mode = OPENDS_BATCH, .fh = h};
        p[i].u.batch.dev_ptr_base = memory;
        p[i].u.batch.dev_ptr_offset = (off_t)(i * bytes);
        p[i].u.batch.file_offset = i * 77;
        p[i].u.batch.size = bytes;
        p[i].cookie = (void *)(uintptr_t)i;
    }
    assert_ok(opends_batch_io_setup(&b, count));
    assert_ok(opends_batch_io_submit(b, count, p, 0));
    unsigned nr = count;
    assert_ok(opends_batch_io_get_status(b, count, &nr, events, NULL));
    assert_int_equal(nr, count);
    for (unsigned i = 0; i < count; i++) {
        uintptr_t c = (uintptr_t)events[i].cookie;
        assert_int_equal(events[i].status, OPENDS_COMPLETE);
        assert_int_equal(events[i].ret, bytes);
        memory_get(host, memory + c * bytes, bytes);
        pattern_check(host, 7, c * 77, bytes);
    }
    assert_ok(opends_handle_path(h, &info));
    opends_batch_io_destroy(b);
    opends_handle_deregister(h);
    memory_delete(memory);
    free(events);
    free(p);
    free(host);
    return info;
}

// Batches go by cuFile's own, of which the stub's take 32 entries; where those fail, by plain
// calls.
static void test_gds_batch(void **state)
{
    (void)state;
    if (!is_gds()) {
        skip();
    }
    void *stub = dlopen(getenv("OPENDS_CUFILE_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(stub);
    long (*entries)(void) = (long (*)(void))dlsym(stub, "stub_cufile_batch_entries");
    assert_non_null(entries);
    int fd = file_make(7, 18 << 20, O_DIRECT);
    long before = entries();
    opends_path_info_t info = gds_batch_read(fd, 10000, 500);
    assert_int_equal(entries() - before, 500);
    assert_int_equal(info.gds_bytes, 500 * 10000);
    assert_int_equal(info.fallbacks, 0);
    before = entries();
    info = gds_batch_read(fd, (17 << 20) + 5, 2); // more than an entry may move
    assert_int_equal(entries() - before, 4);
    assert_int_equal(info.fallbacks, 0);
    // An entry that fails is done again by a plain call.
    setenv("STUB_CUFILE_FAIL", "entry:-5", 1);
    info = gds_batch_read(fd, 10000, 50);
    assert_int_equal(info.gds_bytes, 50 * 10000);
    // No status can be had, none be submitted, or no batch be set up: plain calls, and the reason.
    const char *const calls[] = {"status:5030", "submit:5035", "setup:5003"};
    const char *const names[] = {"GetStatus", "Submit", "SetUp"};
    for (int i = 0; i < 3; i++) {
        driver_reopen("STUB_CUFILE_FAIL", calls[i]);
        info = gds_batch_read(fd, 10000, 100);
        assert_int_equal(info.gds_bytes, 100 * 10000);
        assert_true(info.fallbacks > 0);
        assert_non_null(strstr(info.last_fallback, names[i]));
    }
    dlclose(stub);
    close(fd);
}

// How many descriptors of this process lead to something with `text` in its name.
static int descriptors_of(const char *text)
{
    char path[64];
    char target[256];
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = 0;
        count += strstr(target, text) != NULL;
    }
    return count;
}

static void test_fork(void **state)
{
    (void)state;
    int fd = file_make(7, 65536, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    assert_int_equal(opends_read(h, memory, 65536, 0, 0), 65536);
    size_t size = 4096;
    off_t zero = 0;
    ssize_t got = -1;
    assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got, NULL)); // engines run too
    assert_ok(opends_stream_synchronize(NULL));
    opends_batch_handle_t batch;
    assert_ok(opends_batch_io_setup(&batch, 1));
    pid_t child = fork();
    if (child == 0) {
        // No driver here; old names are unknown; one of our own works.
        alarm(20);
        uint8_t *plain = aligned_alloc(4096, 65536);
        opends_handle_t mine = NULL;
        bool is_right = opends_read(h, plain, 10, 0, 0) == -OPENDS_DRIVER_NOT_INITIALIZED &&
                        opends_use_count() == 0 &&
                        opends_driver_close().err == OPENDS_DRIVER_NOT_INITIALIZED;
        // Of the files and rings of the parent only the test's own descriptor is left.
        is_right = is_right && descriptors_of("ds-test-") == (is_gds() ? 2 : 1) &&
                   descriptors_of("io_uring") == 0;
        setenv("OPENDS_ACCEL", "host",
               1); // CUDA cannot be used in a child of a process that used it
        is_right = is_right && opends_driver_open().err == OPENDS_SUCCESS;
        is_right = is_right && opends_read(h, plain, 10, 0, 0) == -OPENDS_HANDLE_NOT_REGISTERED;
        for (int i = 0; i < 500; i++) { // slots are used again under other names
            opends_handle_t other = NULL;
            is_right =
                is_right && opends_handle_register(&other, fd).err == OPENDS_SUCCESS && other != h;
            opends_handle_deregister(other);
        }
        is_right = is_right && opends_handle_register(&mine, fd).err == OPENDS_SUCCESS;
        // Nor does a name of the parent mean something of the child's, now that there is something.
        opends_batch_handle_t my_batch = NULL;
        is_right = is_right && opends_batch_io_setup(&my_batch, 1).err == OPENDS_SUCCESS;
        is_right = is_right && opends_batch_io_cancel(batch).err == OPENDS_INVALID_VALUE;
        is_right = is_right && opends_read(mine, plain, 65536, 0, 0) == 65536;
        is_right = is_right && plain[777] == pattern_byte(7, 777);
        is_right = is_right && opends_driver_close().err == OPENDS_SUCCESS;
        _exit(is_right ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(opends_read(h, memory, 65536, 0, 0), 65536); // the parent goes on
    child = fork();
    if (child == 0) { // and an exec in the middle leaves nothing behind
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static atomic_int ticks;

static void on_tick(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&ticks, 1);
}

// A storm of signals without SA_RESTART: calls go on, none returns early or hangs.
static void test_signals(void **state)
{
    (void)state;
    int fd = file_make(7, 4 << 20, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(4 << 20);
    opends_batch_handle_t b;
    struct sigaction act = {.sa_handler = on_tick};
    struct sigaction old;
    sigaction(SIGALRM, &act, &old);
    struct itimerval storm = {.it_interval = {.tv_usec = 500}, .it_value = {.tv_usec = 500}};
    setitimer(ITIMER_REAL, &storm, NULL);
    assert_ok(opends_batch_io_setup(&b, 4));
    for (int i = 0; i < 60; i++) {
        assert_int_equal(opends_read(h, memory, 4 << 20, 0, 0), 4 << 20);
        assert_int_equal(opends_write(h, memory, 65536, 4096, 0), 65536);
        opends_io_params_t p = {.mode = OPENDS_BATCH, .fh = h};
        opends_io_events_t event;
        p.u.batch.dev_ptr_base = memory;
        p.u.batch.size = 1 << 20;
        unsigned nr = 1;
        assert_ok(opends_batch_io_submit(b, 1, &p, 0));
        assert_ok(opends_batch_io_get_status(b, 1, &nr, &event, NULL));
        assert_int_equal(event.ret, 1 << 20);
    }
    struct itimerval none = {.it_value = {.tv_usec = 0}};
    setitimer(ITIMER_REAL, &none, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_true(atomic_load(&ticks) > 10);
    opends_batch_io_destroy(b);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

// The library's threads take none of the program's signals, whoever made them.
static void test_signals_are_the_programs(void **state)
{
    (void)state;
    int fd = file_make(7, 65536, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    struct sigaction act = {.sa_handler = on_tick};
    struct sigaction old;
    sigset_t usr1;
    sigset_t pending;
    size_t size = 65536;
    off_t zero = 0;
    ssize_t got = 0;
    sigaction(SIGUSR1, &act, &old);
    // Engines or workers, and a stream's thread, start here.
    assert_ok(opends_read_async(h, memory, &size, &zero, &zero, &got, NULL));
    assert_ok(opends_stream_synchronize(NULL));
    assert_int_equal(got, 65536);
    int before = atomic_load(&ticks);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    kill(getpid(), SIGUSR1);
    // A thread that would take it needs a moment to do so.
    struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1)); // nobody else took it
    assert_int_equal(atomic_load(&ticks), before);
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    assert_int_equal(atomic_load(&ticks), before + 1);
    sigaction(SIGUSR1, &old, NULL);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_statistics(void **state)
{
    (void)state;
    assert_ok(opends_stats_reset());
    int fd = file_make(7, 100000, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(100000);
    memory_set(memory, 1, 100000);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(opends_read(h, memory, 10000, i * 10000, 0), 10000);
    }
    assert_int_equal(opends_write(h, memory, 5, 0, 0), 5);
    static opends_stat_t s[8];
    unsigned nr = 8;
    assert_ok(opends_stats_get(s, &nr));
    assert_int_equal(nr, 2);
    for (unsigned i = 0; i < nr; i++) {
        bool is_read = s[i].opcode == OPENDS_READ;
        uint64_t in_buckets = 0;
        for (unsigned j = 0; j < OPENDS_STAT_BUCKETS; j++) {
            in_buckets += s[i].latency_buckets[j];
        }
        assert_int_equal(s[i].calls, is_read ? 10 : 1);
        assert_int_equal(s[i].bytes, is_read ? 100000 : 5);
        assert_int_equal(s[i].errors, 0);
        assert_int_equal(in_buckets, s[i].calls);
        assert_true(s[i].latency_ns_sum > 0);
        if (strcmp(backend_name(), "auto") != 0) {
            assert_string_equal(s[i].backend, backend_name());
        }
    }
    nr = 1; // too little room: filled as far as it goes, counted whole
    assert_ok(opends_stats_get(s, &nr));
    assert_int_equal(nr, 2);
    for (unsigned i = 1; i < OPENDS_STAT_BUCKETS; i++) {
        assert_true(opends_stat_bucket_ns(i) > opends_stat_bucket_ns(i - 1));
    }
    ssize_t need = opends_stats_prometheus(NULL, 0);
    assert_true(need > 500);
    char *text = malloc((size_t)need + 1);
    assert_int_equal(opends_stats_prometheus(text, (size_t)need + 1), need);
    assert_int_equal(strlen(text), need);
    assert_non_null(strstr(text, "operation=\"read\""));
    assert_non_null(strstr(text, "opends_io_latency_seconds_bucket"));
    assert_non_null(strstr(text, "opends_handles 1\n"));
    free(text);

    static opends_trace_entry_t t[32];
    nr = 32;
    assert_ok(opends_trace_get(t, &nr));
    assert_int_equal(nr, 11);
    assert_int_equal(t[0].opcode, OPENDS_WRITE); // newest first
    assert_int_equal(t[0].size, 5);
    assert_int_equal(t[1].file_offset, 90000);
    assert_int_equal(t[1].result, 10000);
    assert_true(t[1].latency_ns > 0 && t[1].time_ns >= t[2].time_ns);
    memory_delete(memory);
    opends_handle_deregister(h);
    driver_reopen("OPENDS_TRACE", "0");
    nr = 32;
    assert_ok(opends_trace_get(t, &nr));
    assert_int_equal(nr, 0);
    close(fd);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_errors), // first: its children load the stub afresh
        T(test_eio),
        T(test_no_space),
        T(test_file_too_big),
        T(test_durable),
        T(test_slow_copies),
        T(test_gds_fallback),
        T(test_gds_batch),
        T(test_fork),
        T(test_signals),
        T(test_signals_are_the_programs),
        T(test_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
