// SPDX-License-Identifier: Apache-2.0
// File I/O of fibers, its errors, and operations that another fiber cancels.
#include "harness.h"

#include "core/buf.h"
#include "core/fileio.h"
#include "core/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int temp_file(char *path)
{
    strcpy(path, "/tmp/leat-unit-fileio-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return fd;
}

static void transfer_body(void *arg)
{
    (void)arg;
    char path[64];
    int fd = temp_file(path);
    struct runtime *rt = reactor_runtime(reactor_current());
    struct buf *b = buf_get(MIB);
    memset(b->data, 3, MIB);
    assert_int_equal(fileio_write(fd, b->data, MIB, 4096), OK);
    assert_int_equal(fileio_flush(fd), OK);
    memset(b->data, 4, 4096);
    assert_int_equal(fileio_write_flush(fd, b->data, 4096, 0), OK);
    assert_int_equal(fileio_write_flush(fd, b->data, 0, 0), OK); // a flush alone
    memset(b->data, 0, MIB);
    assert_int_equal(fileio_read(fd, b->data, MIB, 0), OK);
    assert_int_equal(b->data[4095], 4);
    assert_int_equal(b->data[4096], 3);
    assert_int_equal(fileio_read(fd, b->data, MIB, 4097), ERR_END);
    assert_int_equal(fileio_read(fd, b->data, 0, 0), OK);
    assert_int_equal(metric_sum(rt, METRIC_IO_WRITES), 2);
    assert_int_equal(metric_sum(rt, METRIC_IO_WRITE_BYTES), MIB + 4096);
    assert_int_equal(metric_sum(rt, METRIC_IO_FLUSHES), 3);
    assert_int_equal(metric_sum(rt, METRIC_IO_ERRORS), 0);
    buf_put(b);
    close(fd);
    unlink(path);
}

static void test_transfers_are_whole(void **state)
{
    (void)state;
    for (int is_registered = 0; is_registered <= 1; is_registered++) {
        run_with((struct runtime_options){.cores = 1, .is_registered = is_registered == 1},
                 transfer_body, NULL);
    }
}

static void error_body(void *arg)
{
    (void)arg;
    static const u8 data[8192] = {1};
    u8 got[16];
    char path[64];
    int fd = temp_file(path);
    int read_only = open(path, O_RDONLY);
    struct rlimit before;
    assert_int_not_equal(fileio_write(read_only, data, 10, 0), OK);
    assert_int_not_equal(fileio_write_flush(read_only, data, 10, 0), OK);
    assert_int_not_equal(fileio_read(1000000, got, 1, 0), OK);
    assert_int_not_equal(fileio_flush(1000000), OK);
    assert_int_equal(metric_sum(reactor_runtime(reactor_current()), METRIC_IO_ERRORS), 4);
    // The limit cuts the first write short, which cancels the linked flush; the rest is refused.
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    enum err e = fileio_write_flush(fd, data, sizeof(data), 0);
    enum err plain = fileio_write(fd, data, sizeof(data), 0);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(e, ERR_DRIVE_FULL);
    assert_int_equal(plain, ERR_DRIVE_FULL);
    assert_int_equal(lseek(fd, 0, SEEK_END), 4096);
    close(read_only);
    close(fd);
    unlink(path);
}

static void test_errors(void **state)
{
    (void)state;
    run_here(error_body);
}

static void receive(void *arg)
{
    struct io_op *op = arg;
    assert_int_equal(io_run(op), -ECANCELED);
}

static void cancel_body(void *arg)
{
    (void)arg;
    int fds[2];
    char byte;
    struct group g;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    struct io_op recv = {.kind = IO_RECV, .fd = fds[0], .buf = &byte, .len = 1};
    group_init(&g);
    spawn(&g, receive, &recv);
    fiber_yield();
    assert_int_equal(fiber_sleep(NS_PER_MS), OK);
    assert_int_equal(g.live, 1);
    struct io_op cancel = {.kind = IO_CANCEL, .target = &recv};
    assert_int_equal(io_run(&cancel), 0);
    group_join(&g);
    group_deinit(&g);
    close(fds[0]);
    close(fds[1]);
}

static void test_cancel_of_a_waited_operation(void **state)
{
    (void)state;
    run_here(cancel_body);
}

struct writer {
    int fd;
    u32 index;
};

static void write_block(void *arg)
{
    struct writer *w = arg;
    u8 data[512];
    u8 got[512];
    memset(data, (int)w->index, sizeof(data));
    assert_int_equal(fileio_write(w->fd, data, sizeof(data), w->index * 512), OK);
    assert_int_equal(fileio_read(w->fd, got, sizeof(got), w->index * 512), OK);
    assert_memory_equal(data, got, sizeof(data));
}

// More at once than the ring's queue holds.
static void crowd_body(void *arg)
{
    (void)arg;
    static struct writer writers[1000];
    char path[64];
    int fd = temp_file(path);
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < ARRAY_LEN(writers); i++) {
        writers[i] = (struct writer){fd, i};
        spawn(&g, write_block, &writers[i]);
    }
    group_join(&g);
    group_deinit(&g);
    close(fd);
    unlink(path);
}

static void test_a_thousand_at_once(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 1, .io_queue_depth = 8, .fibers_max = 1100},
             crowd_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfers_are_whole),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_cancel_of_a_waited_operation),
        cmocka_unit_test(test_a_thousand_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
