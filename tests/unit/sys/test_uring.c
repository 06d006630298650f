// SPDX-License-Identifier: Apache-2.0
// The io_uring engine by itself: every kind of operation, links, cancelling, more operations than
// the ring holds, the receive pool, waking, and what an idle poll costs.
#include "sys/io.h"
#include "sys/sys.h"

#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

struct fixture {
    struct sys *sys;
    struct io_engine *io;
    char path[64];
    int fd;
    u32 done; // completions seen
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(sys_real_create(&f->sys), OK);
    assert_int_equal(f->sys->ops->io_create(f->sys, 8, &f->io), OK);
    strcpy(f->path, "/tmp/leat-unit-uring-XXXXXX");
    f->fd = mkstemp(f->path);
    assert_true(f->fd >= 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close(f->fd);
    unlink(f->path);
    f->io->ops->destroy(f->io);
    f->sys->ops->destroy(f->sys);
    free(f);
    return 0;
}

static void count_done(struct io_op *op)
{
    struct fixture *f = op->user;
    f->done++;
}

static void submit(struct fixture *f, struct io_op *op)
{
    op->user = f;
    op->done = count_done;
    io_submit(f->io, op);
}

// Polls until `count` completions came; fails after 10 s of nothing.
static void wait_for(struct fixture *f, u32 count)
{
    while (f->done < count) {
        u32 before = f->done;
        u64 start_ns = sys_mono_ns(f->sys);
        f->io->ops->poll(f->io, 10 * NS_PER_S);
        assert_true(f->done > before || sys_mono_ns(f->sys) - start_ns < 9 * NS_PER_S);
    }
    assert_int_equal(f->done, count);
}

static i32 run(struct fixture *f, struct io_op *op)
{
    f->done = 0;
    submit(f, op);
    assert_int_equal(op->state, IO_IN_FLIGHT);
    assert_int_equal(f->done, 0); // never inline
    wait_for(f, 1);
    assert_int_equal(op->state, IO_IDLE);
    return op->result;
}

static void test_file_operations(void **state)
{
    struct fixture *f = *state;
    char data[] = "hello, drive";
    char got[32] = {0};
    struct io_op write = {.kind = IO_WRITE, .fd = f->fd, .const_buf = data, .len = 12, .offset = 7};
    assert_int_equal(run(f, &write), 12);
    struct io_op flush = {.kind = IO_FLUSH, .fd = f->fd};
    assert_int_equal(run(f, &flush), 0);
    struct io_op read = {.kind = IO_READ, .fd = f->fd, .buf = got, .len = 32, .offset = 7};
    assert_int_equal(run(f, &read), 12);
    assert_string_equal(got, data);
    struct iovec iov[2] = {{data, 5}, {data + 7, 5}};
    struct io_op writev = {.kind = IO_WRITEV, .fd = f->fd, .iov = iov, .len = 2};
    assert_int_equal(run(f, &writev), 10);
    struct io_op bad = {.kind = IO_READ, .fd = 1000000, .buf = got, .len = 1};
    assert_int_equal(run(f, &bad), -EBADF);
    int spare = dup(f->fd);
    struct io_op closing = {.kind = IO_CLOSE, .fd = spare};
    assert_int_equal(run(f, &closing), 0);
    assert_int_equal(close(spare), -1);
}

static void test_link_runs_in_order_and_breaks_on_failure(void **state)
{
    struct fixture *f = *state;
    struct io_op write = {.kind = IO_WRITE, .flags = IO_FLAG_LINK, .fd = f->fd, .len = 4};
    write.const_buf = "data";
    struct io_op flush = {.kind = IO_FLUSH, .fd = f->fd};
    submit(f, &write);
    submit(f, &flush);
    wait_for(f, 2);
    assert_int_equal(write.result, 4);
    assert_int_equal(flush.result, 0);
    int read_only = open(f->path, O_RDONLY);
    write.fd = read_only;
    f->done = 0;
    submit(f, &write);
    submit(f, &flush);
    wait_for(f, 2);
    assert_int_equal(write.result, -EBADF);
    assert_int_equal(flush.result, -ECANCELED);
    close(read_only);
}

// The ring has 8 entries; chains must never be torn apart by a full ring.
static void test_more_operations_than_the_ring_holds(void **state)
{
    struct fixture *f = *state;
    enum { PAIRS = 501 };
    struct io_op *ops = calloc(2 * PAIRS, sizeof(*ops));
    int read_only = open(f->path, O_RDONLY);
    for (u32 i = 0; i < PAIRS; i++) {
        bool is_bad = i % 3 == 0;
        ops[2 * i] = (struct io_op){.kind = IO_WRITE,
                                    .flags = IO_FLAG_LINK,
                                    .fd = is_bad ? read_only : f->fd,
                                    .const_buf = "x",
                                    .len = 1,
                                    .offset = i};
        ops[2 * i + 1] = (struct io_op){.kind = IO_FLUSH, .fd = f->fd};
        submit(f, &ops[2 * i]);
        submit(f, &ops[2 * i + 1]);
    }
    wait_for(f, 2 * PAIRS);
    for (u32 i = 0; i < PAIRS; i++) {
        bool is_bad = i % 3 == 0;
        assert_int_equal(ops[2 * i].result, is_bad ? -EBADF : 1);
        assert_int_equal(ops[2 * i + 1].result, is_bad ? -ECANCELED : 0);
    }
    close(read_only);
    free(ops);
}

static void socket_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

static void test_cancel_ends_a_receive(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    char byte;
    socket_pair(fds);
    struct io_op recv = {.kind = IO_RECV, .fd = fds[0], .buf = &byte, .len = 1};
    struct io_op cancel = {.kind = IO_CANCEL, .target = &recv};
    submit(f, &recv);
    submit(f, &cancel); // in the same turn: the target must be found
    wait_for(f, 2);
    assert_int_equal(recv.result, -ECANCELED);
    assert_int_equal(cancel.result, 0);
    assert_int_equal(run(f, &cancel), -ENOENT); // it has completed
    close(fds[0]);
    close(fds[1]);
}

static void test_sockets(void **state)
{
    struct fixture *f = *state;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t addr_len = sizeof(addr);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, addr_len), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &addr_len), 0);
    struct io_op accepting = {.kind = IO_ACCEPT, .fd = listener};
    struct io_op connecting = {.kind = IO_CONNECT, .fd = client, .len = addr_len};
    connecting.addr = (struct sockaddr *)&addr;
    submit(f, &accepting);
    f->io->ops->poll(f->io, 0); // it waits for a connection although the listener is non-blocking
    assert_int_equal(f->done, 0);
    submit(f, &connecting);
    wait_for(f, 2);
    assert_int_equal(connecting.result, 0);
    int server = accepting.result;
    assert_true(server >= 0);
    assert_true((fcntl(server, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(server, F_GETFD) & FD_CLOEXEC) != 0);

    // A transfer far larger than the socket buffers, whole on both sides.
    size_t len = 8 * MIB;
    u8 *out = malloc(len);
    u8 *in = calloc(1, len);
    memset(out, 0x5a, len);
    struct io_op send = {.kind = IO_SEND, .flags = IO_FLAG_WAITALL, .fd = client, .len = (u32)len};
    send.const_buf = out;
    struct io_op recv = {.kind = IO_RECV, .flags = IO_FLAG_WAITALL, .fd = server, .len = (u32)len};
    recv.buf = in;
    f->done = 0;
    submit(f, &send);
    submit(f, &recv);
    wait_for(f, 2);
    assert_int_equal(send.result, len);
    assert_int_equal(recv.result, len);
    assert_memory_equal(in, out, len);

    struct iovec iov[2] = {{out, 3}, {out, 4}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    struct io_op sendmsg = {.kind = IO_SENDMSG, .fd = client, .msg = &msg};
    assert_int_equal(run(f, &sendmsg), 7);
    recv.flags = 0;
    assert_int_equal(run(f, &recv), 7);
    close(client);
    assert_int_equal(run(f, &recv), 0);
    struct io_op late = {.kind = IO_SEND, .fd = server, .const_buf = out, .len = 1};
    while (run(f, &late) == 1) { // until the peer's reset has arrived; no SIGPIPE comes
    }
    assert_true(late.result == -EPIPE || late.result == -ECONNRESET);
    close(server);
    close(listener);
    free(out);
    free(in);
}

static void test_receive_pool(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    socket_pair(fds);
    assert_true(f->io->ops->recv_pool(f->io, 2, 1024));
    struct io_op recv = {.kind = IO_RECV, .flags = IO_FLAG_SELECT, .fd = fds[0]};
    u32 held[2];
    for (u32 i = 0; i < 2; i++) {
        assert_int_equal(write(fds[1], "abc", 3), 3);
        assert_int_equal(run(f, &recv), 3);
        held[i] = recv.recv_id;
        assert_true(held[i] < 2);
        assert_memory_equal(f->io->ops->recv_buffer(f->io, held[i]), "abc", 3);
    }
    assert_int_not_equal(held[0], held[1]);
    assert_int_equal(write(fds[1], "def", 3), 3);
    assert_int_equal(run(f, &recv), -ENOBUFS);
    assert_int_equal(recv.recv_id, IO_RECV_NONE);
    f->io->ops->recv_recycle(f->io, held[1]);
    assert_int_equal(run(f, &recv), 3);
    assert_int_equal(recv.recv_id, held[1]);
    assert_memory_equal(f->io->ops->recv_buffer(f->io, held[1]), "def", 3);
    f->io->ops->recv_recycle(f->io, held[0]);
    f->io->ops->recv_recycle(f->io, held[1]);
    // The end of the stream holds no buffer, however often it is read.
    close(fds[1]);
    for (u32 i = 0; i < 5; i++) {
        assert_int_equal(run(f, &recv), 0);
        assert_int_equal(recv.recv_id, IO_RECV_NONE);
    }
    close(fds[0]);
}

// A receive that is larger than a buffer is cut; the rest stays in the socket.
static void test_receive_pool_cuts(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    u8 data[3000];
    memset(data, 7, sizeof(data));
    socket_pair(fds);
    assert_true(f->io->ops->recv_pool(f->io, 4, 1024));
    assert_int_equal(write(fds[1], data, sizeof(data)), sizeof(data));
    struct io_op recv = {.kind = IO_RECV, .flags = IO_FLAG_SELECT, .fd = fds[0]};
    i32 sizes[3] = {1024, 1024, 952};
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(run(f, &recv), sizes[i]);
        f->io->ops->recv_recycle(f->io, recv.recv_id);
    }
    close(fds[0]);
    close(fds[1]);
}

static void test_registered_memory(void **state)
{
    struct fixture *f = *state;
    u8 *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    u8 other[16] = "outside";
    f->io->ops->register_memory(f->io, memory, MIB); // false under a tight limit: works as well
    memcpy(memory + 4096, "registered", 10);
    struct io_op op = {.kind = IO_WRITE, .flags = IO_FLAG_FIXED, .fd = f->fd, .len = 10};
    op.buf = memory + 4096;
    assert_int_equal(run(f, &op), 10);
    op.kind = IO_READ;
    op.buf = memory + MIB - 10; // up to the very end
    assert_int_equal(run(f, &op), 10);
    assert_memory_equal(memory + MIB - 10, "registered", 10);
    op.kind = IO_WRITE;
    op.buf = other; // the flag on foreign memory does no harm
    assert_int_equal(run(f, &op), 10);
    munmap(memory, MIB);
}

static u64 thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}

static void *wake_twice(void *arg)
{
    struct fixture *f = arg;
    f->io->ops->wake(f->io);
    f->io->ops->wake(f->io);
    return NULL;
}

static void test_poll_sleeps_and_wakes(void **state)
{
    struct fixture *f = *state;
    u64 start_ns = sys_mono_ns(f->sys);
    f->io->ops->poll(f->io, 20 * NS_PER_MS);
    assert_true(sys_mono_ns(f->sys) - start_ns >= 19 * NS_PER_MS);
    for (u32 i = 0; i < 100; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wake_twice, f), 0);
        f->io->ops->poll(f->io, UINT64_MAX); // returns only if the wake arrives
        pthread_join(thread, NULL);
        f->io->ops->poll(f->io, 0);
    }
    // The eventfd has been written 200 times and never read: it must not wake us any more.
    start_ns = sys_mono_ns(f->sys);
    u64 cpu_ns = thread_cpu_ns();
    f->io->ops->poll(f->io, 50 * NS_PER_MS);
    assert_true(sys_mono_ns(f->sys) - start_ns >= 49 * NS_PER_MS);
    assert_true(thread_cpu_ns() - cpu_ns < 5 * NS_PER_MS);
}

// A done that submits again must not keep poll from returning.
static void resubmit(struct io_op *op)
{
    struct fixture *f = op->user;
    f->done++;
    io_submit(f->io, op);
}

static void test_poll_is_bounded(void **state)
{
    struct fixture *f = *state;
    char byte;
    struct io_op read = {.kind = IO_READ, .fd = f->fd, .buf = &byte, .len = 1};
    read.user = f;
    read.done = resubmit;
    io_submit(f->io, &read);
    for (u32 i = 0; i < 50; i++) {
        f->io->ops->poll(f->io, NS_PER_S);
    }
    assert_in_range(f->done, 1, 50);
    read.done = count_done;
    wait_for(f, f->done + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_operations, setup, teardown),
        cmocka_unit_test_setup_teardown(test_link_runs_in_order_and_breaks_on_failure, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_more_operations_than_the_ring_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel_ends_a_receive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sockets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_pool, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_pool_cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_registered_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_poll_sleeps_and_wakes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_poll_is_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
