// SPDX-License-Identifier: Apache-2.0
// The queue's life: start operations, have pieces cut and begun, take completions, cancel, sleep,
// finish. What happens to a piece is piece.c. See ring.h.
//
// Invariant: an operation is in `waiting`, in `active`, or finished; it is finished only when none
// of its pieces is in the kernel or copying, so its memory is the caller's again.
#include "ds/ring.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ds/driver.h"
#include "ds/nvme.h"

#define TAG_WAKE   ((u64)UINT64_MAX)
#define TAG_CANCEL ((u64)UINT64_MAX - 1)
// While a copy is in flight beside reads, completions are looked at in between.
#define COPY_POLL_NS 30000

static int ring_make(struct ds_queue *q)
{
    bool is_wide = ds_config()->backend == DS_NVME && ds_backend_is_present(DS_NVME, NULL);
    u32 wide = is_wide ? IORING_SETUP_SQE128 | IORING_SETUP_CQE32 : 0;
    const u32 engine_flags[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                                IORING_SETUP_COOP_TASKRUN, 0};
    int rc = -EINVAL;
    for (u32 i = q->is_engine ? 0 : 1; i < ARRAY_LEN(engine_flags) && rc == -EINVAL; i++) {
        struct io_uring_params params;
        memset(&params, 0, sizeof(params));
        params.flags = engine_flags[i] | wide | IORING_SETUP_CLAMP;
        rc = io_uring_queue_init_params(q->depth, &q->ring, &params);
    }
    q->is_wide = is_wide;
    return rc;
}

static u32 ring_id_take(void)
{
    return atomic_fetch_add(&ds_driver()->ring_ids, 1);
}

static bool queue_memory(struct ds_queue *q)
{
    q->pieces = calloc(q->depth, sizeof(*q->pieces));
    q->edges = ds_accel_current()->pinned_alloc((size_t)q->depth * 2 * RING_EDGE_BYTES);
    if (q->pieces == NULL || q->edges == NULL) {
        return false;
    }
    for (u32 i = 0; i < q->depth; i++) {
        q->pieces[i].index = i;
        list_add_tail(&q->free_pieces, &q->pieces[i].link);
    }
    return true;
}

struct ds_queue *ds_queue_create(bool is_engine, int *sys_errno)
{
    struct ds_queue *q = calloc(1, sizeof(*q));
    if (q == NULL) {
        *sys_errno = ENOMEM;
        return NULL;
    }
    q->is_engine = is_engine;
    q->depth = ds_config()->queue_depth;
    q->bounce_bytes = ds_config()->chunk_bytes;
    q->wake_fd = -1;
    list_init(&q->free_pieces);
    list_init(&q->copying);
    list_init(&q->waiting);
    list_init(&q->active);
    int rc = ring_make(q);
    if (rc < 0) {
        free(q);
        *sys_errno = -rc;
        return NULL;
    }
    pthread_mutex_init(&q->lock, NULL);
    pthread_mutex_init(&q->forget.lock, NULL);
    q->wake_fd = is_engine ? eventfd(0, EFD_CLOEXEC) : -1;
    if ((is_engine && q->wake_fd < 0) || !queue_memory(q)) {
        *sys_errno = ENOMEM;
        ds_queue_destroy(q);
        return NULL;
    }
    q->id = ring_id_take();
    ds_fixed_init(q);
    return q;
}

void ds_queue_destroy(struct ds_queue *q)
{
    const struct ds_accel *a = ds_accel_current();
    ASSERT(q->inflight == 0 && list_is_empty(&q->active) && list_is_empty(&q->waiting));
    io_uring_queue_exit(&q->ring);
    if (q->wake_fd >= 0) {
        close(q->wake_fd);
    }
    for (u32 i = 0; q->pieces != NULL && i < q->depth; i++) {
        a->copy_deinit(&q->pieces[i].copy);
    }
    if (q->has_accel) {
        a->queue_destroy(q->copy_queue);
    }
    for (u32 i = 0; i < q->bounce_count; i++) {
        a->pinned_free(q->bounces[i], q->bounce_bytes);
    }
    if (q->edges != NULL) {
        a->pinned_free(q->edges, (size_t)q->depth * 2 * RING_EDGE_BYTES);
    }
    pthread_mutex_destroy(&q->forget.lock);
    pthread_mutex_destroy(&q->lock);
    free(q->pieces);
    free(q);
}

void ds_queue_fork_child(struct ds_queue *q)
{
    close(q->ring.ring_fd);
    if (q->wake_fd >= 0) {
        close(q->wake_fd);
    }
}

bool ds_queue_is_idle(const struct ds_queue *q)
{
    return q->active_count == 0 && q->waiting_count == 0;
}

void ds_queue_wake(struct ds_queue *q)
{
    u64 one = 1;
    ssize_t rc;
    do {
        rc = write(q->wake_fd, &one, sizeof(one));
    } while (rc < 0 && errno == EINTR);
}

void ds_queue_start(struct ds_queue *q, struct ds_op *op)
{
    list_add_tail(&q->waiting, &op->link);
    q->waiting_count++;
    if (op->deadline_ns != 0 &&
        (q->next_deadline_ns == 0 || op->deadline_ns < q->next_deadline_ns)) {
        q->next_deadline_ns = op->deadline_ns;
    }
}

// A submission entry; the ring is flushed when it is full.
struct io_uring_sqe *ds_queue_sqe(struct ds_queue *q)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring);
    while (sqe == NULL) {
        io_uring_submit(&q->ring);
        sqe = io_uring_get_sqe(&q->ring);
    }
    if (q->is_wide) {
        memset(sqe, 0, 128);
    }
    return sqe;
}

static void op_set_result(struct ds_op *op)
{
    u8 cancel = atomic_load(&op->cancel);
    if (op->ring.sys_errno != 0) {
        op->result = -(i64)ds_code_from_errno(op->ring.sys_errno);
        op->dev_err = op->ring.sys_errno;
    } else if (op->ring.fail_code != 0) {
        op->result = -(i64)op->ring.fail_code;
        op->dev_err = op->ring.failed_dev_err;
    } else if (op->ring.is_cut) {
        op->result =
            cancel == DS_CANCEL_TIMEOUT ? -(i64)OPENDS_TIMED_OUT : -(i64)OPENDS_CANCELED_ERROR;
    } else {
        op->result = (i64)op->ring.short_at;
    }
}

// No piece of the operation is left anywhere.
static void op_complete(struct ds_queue *q, struct ds_op *op)
{
    if (op->ring.extents != NULL && !ds_nvme_end(op)) {
        op->ring.is_passthrough_off = true; // the map changed: the filesystem answers instead
        op->traffic = (struct ds_traffic){0};
        ds_plan_begin(op);
        if (!op->ring.is_planned) {
            return;
        }
    }
    list_remove(&op->link);
    q->active_count--;
    op_set_result(op);
    if (q->is_engine) {
        ds_op_finish(op);
    }
}

// Goes on with the operation when its stage has no piece left.
void ds_queue_step(struct ds_queue *q, struct ds_op *op)
{
    if (op->ring.inflight > 0 || !op->ring.is_planned) {
        return;
    }
    if (op->ring.is_cut || !ds_plan_advance(op)) {
        op_complete(q, op);
    }
}

static void send_cancel(struct ds_queue *q, struct ring_piece *p)
{
    struct io_uring_sqe *sqe = ds_queue_sqe(q);
    if (p->kind == PIECE_DELAY) {
        io_uring_prep_timeout_remove(sqe, p->index, 0);
    } else {
        io_uring_prep_cancel64(sqe, p->index, 0);
    }
    sqe->user_data = TAG_CANCEL;
    p->is_cancel_sent = true;
}

// Ends what was cancelled or ran out of time, as far as the kernel lets go of it.
static void look_at_cancels(struct ds_queue *q, u64 now_ns)
{
    q->next_deadline_ns = 0;
    struct list *lists[] = {&q->waiting, &q->active};
    for (u32 i = 0; i < 2; i++) {
        LIST_FOREACH_SAFE (node, lists[i]) {
            struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
            u8 none = DS_CANCEL_NONE;
            if (op->deadline_ns != 0 && now_ns >= op->deadline_ns) {
                atomic_compare_exchange_strong(&op->cancel, &none, DS_CANCEL_TIMEOUT);
            } else if (op->deadline_ns != 0 &&
                       (q->next_deadline_ns == 0 || op->deadline_ns < q->next_deadline_ns)) {
                q->next_deadline_ns = op->deadline_ns;
            }
            if (atomic_load(&op->cancel) == DS_CANCEL_NONE) {
                continue;
            }
            if (i == 0) { // never started
                list_remove(node);
                q->waiting_count--;
                list_add_tail(&q->active, node);
                q->active_count++;
                op->ring.is_planned = true;
                op->ring.is_cut = true;
            }
            if (!op->ring.is_planned) {
                op->ring.is_planned = true;
                op->ring.is_cut = true;
            }
        }
    }
    for (u32 i = 0; i < q->depth; i++) {
        struct ring_piece *p = &q->pieces[i];
        if (p->state == PIECE_IO && !p->is_cancel_sent &&
            atomic_load(&p->op->cancel) != DS_CANCEL_NONE) {
            send_cancel(q, p);
        }
    }
    LIST_FOREACH_SAFE (node, &q->active) {
        ds_queue_step(q, CONTAINER_OF(node, struct ds_op, link));
    }
}

// Cuts pieces while there are free ones: first of operations already started, then of new ones.
static void plan_more(struct ds_queue *q)
{
    LIST_FOREACH_SAFE (node, &q->active) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        op->ring.inflight++; // holds the operation while its pieces may come and go
        while (!op->ring.is_planned && !list_is_empty(&q->free_pieces)) {
            struct ring_piece *p = CONTAINER_OF(q->free_pieces.next, struct ring_piece, link);
            if (!ds_plan_next(q, op, p)) {
                break;
            }
            list_remove(&p->link);
            ds_piece_begin(q, p);
        }
        op->ring.inflight--;
        ds_queue_step(q, op);
        if (list_is_empty(&q->free_pieces)) {
            return;
        }
    }
}

static void start_waiting(struct ds_queue *q)
{
    while (q->waiting_count > 0 && q->active_count < q->depth) {
        struct ds_op *op = CONTAINER_OF(q->waiting.next, struct ds_op, link);
        list_remove(&op->link);
        q->waiting_count--;
        list_add_tail(&q->active, &op->link);
        q->active_count++;
        op->is_started = true;
        ds_plan_begin(op);
        ds_queue_step(q, op);
    }
}

static void arm_wake(struct ds_queue *q)
{
    if (!q->is_engine || q->is_wake_armed) {
        return;
    }
    struct io_uring_sqe *sqe = ds_queue_sqe(q);
    io_uring_prep_read(sqe, q->wake_fd, &q->wake_value, sizeof(q->wake_value), 0);
    sqe->user_data = TAG_WAKE;
    q->is_wake_armed = true;
}

static u32 reap(struct ds_queue *q)
{
    u32 count = 0;
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&q->ring, &cqe) == 0 && cqe != NULL) {
        u64 tag = cqe->user_data;
        int res = cqe->res;
        io_uring_cqe_seen(&q->ring, cqe);
        count++;
        if (tag == TAG_WAKE) {
            q->is_wake_armed = false;
        } else if (tag != TAG_CANCEL) {
            ASSERT(tag < q->depth);
            ds_piece_completed(q, &q->pieces[tag], res);
        }
    }
    return count;
}

// Sleeps in the kernel until a completion, a copy's turn, or the next deadline.
static void sleep_for_completion(struct ds_queue *q, u64 now_ns)
{
    bool is_copying = !list_is_empty(&q->copying);
    if (is_copying && q->inflight == 0 && !q->is_engine) {
        io_uring_submit(&q->ring);
        ds_copies_poll(q, true);
        return;
    }
    u64 limit_ns = 0;
    if (q->next_deadline_ns != 0) {
        limit_ns = q->next_deadline_ns > now_ns ? q->next_deadline_ns - now_ns : 1;
    }
    if (is_copying && (limit_ns == 0 || limit_ns > COPY_POLL_NS)) {
        limit_ns = COPY_POLL_NS;
    }
    if (limit_ns == 0) {
        io_uring_submit_and_wait(&q->ring, 1);
        return;
    }
    struct __kernel_timespec t = {.tv_sec = (long long)(limit_ns / NS_PER_S),
                                  .tv_nsec = (long long)(limit_ns % NS_PER_S)};
    struct io_uring_cqe *cqe;
    io_uring_submit_and_wait_timeout(&q->ring, &cqe, 1, &t, NULL);
}

void ds_queue_pump(struct ds_queue *q, bool wait)
{
    u64 now_ns = 0;
    if (UNLIKELY(atomic_load_explicit(&q->is_kicked, memory_order_relaxed) ||
                 q->next_deadline_ns != 0)) {
        now_ns = ds_now_ns();
        if (atomic_exchange(&q->is_kicked, false) || now_ns >= q->next_deadline_ns) {
            look_at_cancels(q, now_ns);
        }
    }
    start_waiting(q);
    plan_more(q);
    u32 progress = list_is_empty(&q->copying) ? 0 : ds_copies_poll(q, false);
    if (!wait || progress > 0 || (!q->is_engine && ds_queue_is_idle(q))) {
        io_uring_submit(&q->ring);
        if (q->is_engine) {
            io_uring_get_events(&q->ring); // deferred completions run only when asked for
        }
        reap(q);
        return;
    }
    arm_wake(q);
    // A stage that began just now has nothing in flight yet: plan again before sleeping.
    bool is_stalled = q->inflight == 0 && list_is_empty(&q->copying) && !ds_queue_is_idle(q);
    if (!is_stalled) {
        sleep_for_completion(q, now_ns);
    }
    reap(q);
}
