// SPDX-License-Identifier: Apache-2.0
// The I/O engine on io_uring. Operations gather in `pending` and go to the kernel in the next poll,
// so a loop turn costs one io_uring_enter however many operations it started, and none when there
// is nothing to submit and no completion to fetch. A chain of linked operations always enters the
// ring whole: the kernel ends a chain at the end of a submission.
//
// The ring is created disabled and enabled by the first poll, which makes the polling thread its
// single issuer; so a runtime can create all engines before it starts their threads. Another thread
// wakes a sleeping one through an eventfd that the ring polls (edge-triggered: it is never read,
// and costs nothing while nobody writes).
#include "sys/uring.h"

#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

// user_data of the poll on wake_fd; operations have their address there.
#define WAKE_TAG ((u64)1)

// From what is best to what works in a restricted kernel.
static const unsigned setup_flags[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_SUBMIT_ALL,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
    0,
};

static int ring_init(struct io_uring *ring, u32 depth)
{
    int rc = -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(setup_flags) && rc == -EINVAL; i++) {
        struct io_uring_params params = {
            .flags =
                setup_flags[i] | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
            .cq_entries = depth * 4,
        };
        rc = io_uring_queue_init_params(depth, ring, &params);
        if (rc == 0 && (params.features & (IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG)) !=
                           (IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG)) {
            io_uring_queue_exit(ring);
            rc = -ENOSYS;
        }
    }
    return rc;
}

int uring_probe(void)
{
    struct io_uring ring;
    int rc = ring_init(&ring, 4);
    if (rc == 0) {
        io_uring_queue_exit(&ring);
    }
    return rc;
}

static void uring_submit(struct io_engine *e, struct io_op *op)
{
    struct uring *u = uring_of(e);
    u->in_flight++;
    list_add_tail(&u->pending, &op->queue);
}

// Operations in the chain at the head of `pending`: 1 without a link.
static u32 chain_length(const struct uring *u)
{
    u32 n = 0;
    LIST_FOREACH (node, &u->pending) {
        n++;
        if ((CONTAINER_OF(node, struct io_op, queue)->flags & IO_FLAG_LINK) == 0) {
            return n;
        }
    }
    assert_fail(__FILE__, __LINE__, "a linked operation without its follower");
    return n;
}

// Moves whole chains into the submission ring while they fit.
static void fill_ring(struct uring *u)
{
    if (UNLIKELY(!u->is_wake_armed) && io_uring_sq_space_left(&u->ring) > 0) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        ASSERT(sqe != NULL);
        io_uring_prep_poll_multishot(sqe, u->wake_fd, POLLIN);
        io_uring_sqe_set_data64(sqe, WAKE_TAG);
        u->is_wake_armed = true;
    }
    while (!list_is_empty(&u->pending)) {
        u32 n = chain_length(u);
        ASSERT(n <= u->ring.sq.ring_entries);
        if (n > io_uring_sq_space_left(&u->ring)) {
            return;
        }
        for (u32 i = 0; i < n; i++) {
            struct list *node = list_pop_head(&u->pending);
            struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
            ASSERT(sqe != NULL);
            uring_prep(u, sqe, CONTAINER_OF(node, struct io_op, queue));
        }
    }
}

// Calls `done` for what is in the completion ring now; what completes meanwhile is for the next
// poll, so that a fast drive cannot keep the loop from its other duties. Returns how many.
static u32 reap(struct uring *u)
{
    u32 ready = io_uring_cq_ready(&u->ring);
    for (u32 i = 0; i < ready; i++) {
        struct io_uring_cqe *cqe = NULL;
        int rc = io_uring_peek_cqe(&u->ring, &cqe);
        ASSERT(rc == 0 && cqe != NULL);
        u64 tag = cqe->user_data;
        i32 result = cqe->res;
        u32 flags = cqe->flags;
        io_uring_cqe_seen(&u->ring, cqe);
        if (tag == WAKE_TAG) {
            u->is_wake_armed = (flags & IORING_CQE_F_MORE) != 0;
            continue;
        }
        struct io_op *op = (struct io_op *)(uintptr_t)tag;
        ASSERT(op->state == IO_IN_FLIGHT && u->in_flight > 0);
        op->recv_id = IO_RECV_NONE;
        if ((flags & IORING_CQE_F_BUFFER) != 0) {
            u32 id = flags >> IORING_CQE_BUFFER_SHIFT;
            if (result > 0) {
                op->recv_id = id;
            } else {
                uring_recv_recycle(&u->base, id);
            }
        }
        op->result = result;
        op->state = IO_IDLE;
        u->in_flight--;
        op->done(op); // may free op
    }
    return ready;
}

static bool is_kernel_work_waiting(const struct uring *u)
{
    unsigned flags = __atomic_load_n(u->ring.sq.kflags, __ATOMIC_RELAXED);
    return (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

// One io_uring_enter: submits, and waits if asked to.
static void enter(struct uring *u, u64 timeout_ns)
{
    int rc;
    if (timeout_ns == 0) {
        bool is_submitting = io_uring_sq_ready(&u->ring) > 0;
        if (!is_submitting && !is_kernel_work_waiting(u)) {
            return;
        }
        rc = is_submitting ? io_uring_submit_and_get_events(&u->ring)
                           : io_uring_get_events(&u->ring);
    } else {
        struct io_uring_cqe *cqe = NULL;
        struct __kernel_timespec ts = {
            .tv_sec = (i64)(timeout_ns / NS_PER_S),
            .tv_nsec = (i64)(timeout_ns % NS_PER_S),
        };
        rc = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1,
                                              timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
    }
    // -ETIME: nothing came. -EINTR: a signal. -EBUSY, -EAGAIN: the kernel wants completions to be
    // fetched first, or memory; what was not taken stays in the ring and goes with the next enter.
    ASSERT(rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EBUSY || rc == -EAGAIN);
}

static void uring_poll(struct io_engine *e, u64 timeout_ns)
{
    struct uring *u = uring_of(e);
    if (UNLIKELY(!u->is_enabled)) {
        // By number: liburing 2.3 declares io_uring_enable_rings and does not export it.
        long rc =
            syscall(__NR_io_uring_register, u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
        ASSERT(rc == 0);
        u->is_enabled = true;
    }
    fill_ring(u);
    while (UNLIKELY(!list_is_empty(&u->pending))) {
        // More than the ring holds: feed it in portions. What completes meanwhile is kept by the
        // kernel; a portion that it refuses waits for the next poll.
        enter(u, 0);
        if (io_uring_sq_space_left(&u->ring) < chain_length(u)) {
            timeout_ns = 0;
            break;
        }
        fill_ring(u);
    }
    enter(u, io_uring_cq_ready(&u->ring) > 0 ? 0 : timeout_ns);
    reap(u);
}

static void uring_wake(struct io_engine *e)
{
    struct uring *u = uring_of(e);
    u64 one = 1;
    ssize_t n;
    do {
        n = write(u->wake_fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    ASSERT(n == (ssize_t)sizeof(one));
}

static void uring_destroy(struct io_engine *e)
{
    struct uring *u = uring_of(e);
    ASSERT(u->in_flight == 0 && list_is_empty(&u->pending));
    io_uring_queue_exit(&u->ring);
    uring_memory_deinit(u);
    close(u->wake_fd);
    __atomic_sub_fetch(&u->sys->engines_live, 1, __ATOMIC_RELEASE);
    u->magic = 0;
    free(u);
}

static const struct io_engine_ops uring_ops = {
    .destroy = uring_destroy,
    .submit = uring_submit,
    .poll = uring_poll,
    .wake = uring_wake,
    .register_memory = uring_register_memory,
    .recv_pool = uring_recv_pool,
    .recv_buffer = uring_recv_buffer,
    .recv_recycle = uring_recv_recycle,
};

enum err uring_create(struct sys *s, u32 queue_depth, struct io_engine **out)
{
    u32 depth = queue_depth == 0 ? URING_DEPTH_DEFAULT : MIN(queue_depth, URING_DEPTH_MAX);
    struct uring *u = calloc(1, sizeof(*u));
    if (u == NULL) {
        return ERR_NO_MEMORY;
    }
    u->base.ops = &uring_ops;
    u->sys = sys_real_of(s);
    list_init(&u->pending);
    u->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (u->wake_fd < 0) {
        enum err e = err_from_errno(errno);
        LOG_ERROR("io_engine_failed", "errno=%d hint=\"raise the limit of open files\"", errno);
        free(u);
        return e;
    }
    int rc = ring_init(&u->ring, depth);
    if (rc != 0) {
        LOG_ERROR("io_engine_failed", "errno=%d depth=%u", -rc, depth);
        close(u->wake_fd);
        free(u);
        return err_from_errno(rc);
    }
    __atomic_add_fetch(&u->sys->engines_live, 1, __ATOMIC_RELAXED);
    u->magic = URING_MAGIC;
    *out = &u->base;
    return OK;
}
