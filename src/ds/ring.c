// SPDX-License-Identifier: Apache-2.0
// The queue's life: start operations, submit pieces, take completions, copy, finish. See ring.h.
//
// Invariants: a piece is free, in the kernel, or copying; `inflight` counts those in the kernel. An
// operation is in `waiting`, in `active`, or finished; it is finished only when none of its pieces
// is in the kernel or copying, so its memory is the caller's again.
#include "ds/ring.h"

#include <errno.h>
#include <poll.h>
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
static struct io_uring_sqe *sqe_get(struct ds_queue *q)
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

static void op_fail(struct ds_op *op, int sys_errno)
{
    if (op->ring.sys_errno == 0 && op->ring.fail_code == 0) {
        op->ring.sys_errno = sys_errno;
    }
    op->ring.is_planned = true;
}

static void op_fail_code(struct ds_op *op, opends_op_error_t code, int dev_err)
{
    if (op->ring.sys_errno == 0 && op->ring.fail_code == 0) {
        op->ring.fail_code = (int)code;
        op->ring.failed_dev_err = dev_err;
    }
    op->ring.is_planned = true;
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
static void op_step(struct ds_queue *q, struct ds_op *op)
{
    if (op->ring.inflight > 0 || !op->ring.is_planned) {
        return;
    }
    if (op->ring.is_cut || !ds_plan_advance(op)) {
        op_complete(q, op);
    }
}

static void piece_free(struct ds_queue *q, struct ring_piece *p)
{
    struct ds_op *op = p->op;
    ds_bounce_put(q, p);
    p->state = PIECE_FREE;
    p->op = NULL;
    list_add_head(&q->free_pieces, &p->link);
    op->ring.inflight--;
    op_step(q, op);
}

// The file or fixed file that the piece goes to; -1 with errno.
static int piece_fd(struct ds_queue *q, struct ring_piece *p, bool *is_fixed)
{
    struct ds_handle *h = p->op->handle;
    *is_fixed = false;
    if (!p->is_direct) {
        return ds_handle_buffered_fd(h);
    }
    int fixed = ds_fixed_file(q, h);
    *is_fixed = fixed >= 0;
    return fixed >= 0 ? fixed : h->direct_fd;
}

static int piece_fixed_buffer(struct ds_queue *q, const struct ring_piece *p)
{
    if (p->iov_count != 1) {
        return -1;
    }
    if (p->bounce != NULL) {
        return q->is_bounce_fixed[p->bounce_index] ? (int)p->bounce_index : -1;
    }
    return ds_fixed_buffer(q, p->op);
}

// `fixed` is the fixed buffer that the piece's memory lies in, or -1.
static void prepare_transfer(const struct ring_piece *p, struct io_uring_sqe *sqe, int fd,
                             int fixed)
{
    u64 at = p->file_at + p->io_done;
    bool is_read = p->kind == PIECE_READ;
    if (fixed >= 0 && is_read) {
        io_uring_prep_read_fixed(sqe, fd, p->left[0].iov_base, (u32)p->left[0].iov_len, at, fixed);
    } else if (fixed >= 0) {
        io_uring_prep_write_fixed(sqe, fd, p->left[0].iov_base, (u32)p->left[0].iov_len, at, fixed);
    } else if (p->iov_count == 1 && is_read) {
        io_uring_prep_read(sqe, fd, p->left[0].iov_base, (u32)p->left[0].iov_len, at);
    } else if (p->iov_count == 1) {
        io_uring_prep_write(sqe, fd, p->left[0].iov_base, (u32)p->left[0].iov_len, at);
    } else {
        io_uring_prep_readv(sqe, fd, p->left, p->iov_count, at);
    }
}

static void prepare_command(struct ds_queue *q, struct ring_piece *p, struct io_uring_sqe *sqe)
{
    (void)q;
    struct ds_op *op = p->op;
    ds_nvme_transport_kernel()->prepare(op->handle->nvme, sqe, op->opcode == OPENDS_WRITE,
                                        p->device_at, p->iov[0].iov_base, (u32)p->io_bytes,
                                        op->is_durable);
}

// Puts what is left of a piece into the ring.
static void piece_issue(struct ds_queue *q, struct ring_piece *p)
{
    struct ds_op *op = p->op;
    bool is_fixed = false;
    int fixed_buffer = -1;
    int fd = -1;
    if (p->kind == PIECE_READ || p->kind == PIECE_WRITE || p->kind == PIECE_FSYNC) {
        if (p->kind == PIECE_FSYNC) {
            p->is_direct = op->handle->direct_fd >= 0;
        }
        fd = piece_fd(q, p, &is_fixed);
        if (fd < 0) {
            op_fail(op, errno);
            piece_free(q, p);
            return;
        }
        fixed_buffer = p->kind == PIECE_FSYNC ? -1 : piece_fixed_buffer(q, p);
    }
    struct io_uring_sqe *sqe = sqe_get(q);
    switch ((enum piece_kind)p->kind) {
    case PIECE_READ:
    case PIECE_WRITE:
        prepare_transfer(p, sqe, fd, fixed_buffer);
        break;
    case PIECE_FSYNC:
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
    case PIECE_DELAY:
        io_uring_prep_timeout(sqe, &p->delay, 0, 0);
        break;
    case PIECE_COMMAND:
        prepare_command(q, p, sqe);
        break;
    case PIECE_ZERO:
        ASSERT(p->kind != PIECE_ZERO); // those do not reach the kernel
    }
    if (is_fixed) {
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    sqe->user_data = p->index;
    p->state = PIECE_IO;
    q->inflight++;
}

// Makes the accelerator's copy queue on first need. False (and the operation failed) when it
// cannot.
static bool copy_ready(struct ds_queue *q, struct ds_op *op)
{
    const struct ds_accel *a = ds_accel_current();
    int rc = a->enter();
    if (rc == 0 && !q->has_accel) {
        rc = a->queue_create(&q->copy_queue);
        q->has_accel = rc == 0;
    }
    if (rc != 0) {
        op_fail_code(op, OPENDS_DEVICE_DRIVER_ERROR, rc);
    }
    return rc == 0;
}

enum copy_outcome { COPY_FAILED, COPY_DONE, COPY_STARTED };

// Copies between the piece's bounce buffer and the operation's memory; `state` says which way. Host
// memory is copied at once, an accelerator's in the background.
static enum copy_outcome copy_start(struct ds_queue *q, struct ring_piece *p, u8 state, u64 bytes)
{
    const struct ds_accel *a = ds_accel_current();
    struct ds_op *op = p->op;
    u8 *memory = op->memory + p->op_at;
    p->copy.is_done = false;
    p->copy.dev_err = 0;
    if (!op->is_device_memory) {
        if (p->kind == PIECE_ZERO) {
            memset(memory, 0, bytes);
        } else if (state == PIECE_COPY_IN) {
            memcpy(memory, p->bounce + p->lead, bytes);
        } else {
            memcpy(p->bounce + p->lead, memory, bytes);
        }
        return COPY_DONE;
    }
    if (!copy_ready(q, op)) {
        return COPY_FAILED;
    }
    int rc = p->kind == PIECE_ZERO ? a->zero(q->copy_queue, memory, bytes, &p->copy)
             : state == PIECE_COPY_IN
                 ? a->copy_in(q->copy_queue, memory, p->bounce + p->lead, bytes, &p->copy)
                 : a->copy_out(q->copy_queue, p->bounce + p->lead, memory, bytes, &p->copy);
    a->leave();
    if (rc != 0) {
        op_fail_code(op, OPENDS_DEVICE_DRIVER_ERROR, rc);
        return COPY_FAILED;
    }
    p->state = state;
    list_add_tail(&q->copying, &p->link);
    return COPY_STARTED;
}

static void account(struct ring_piece *p, u64 bytes);

static void piece_begin(struct ds_queue *q, struct ring_piece *p)
{
    struct ds_op *op = p->op;
    op->ring.inflight++;
    memcpy(p->left, p->iov, sizeof(p->left));
    bool is_zero = p->kind == PIECE_ZERO;
    if (!is_zero && (p->bounce == NULL || op->opcode == OPENDS_READ)) {
        piece_issue(q, p);
        return;
    }
    enum copy_outcome outcome =
        copy_start(q, p, is_zero ? PIECE_COPY_IN : PIECE_COPY_OUT, p->op_bytes);
    if (outcome == COPY_DONE && !is_zero) {
        piece_issue(q, p);
    } else if (outcome != COPY_STARTED) {
        if (outcome == COPY_DONE) {
            account(p, p->op_bytes);
        }
        piece_free(q, p);
    }
}

static void account(struct ring_piece *p, u64 bytes)
{
    struct ds_traffic *t = &p->op->traffic;
    if (p->kind == PIECE_ZERO) {
        t->zeroed += bytes;
    } else if (p->kind == PIECE_COMMAND) {
        t->passthrough += bytes;
    } else if (!p->is_direct) {
        t->buffered += bytes;
    } else if (p->bounce != NULL) {
        t->bounced += bytes;
    } else {
        u64 edges = MIN((u64)p->head_bytes + p->tail_bytes, bytes);
        t->bounced += edges;
        t->direct += bytes - edges;
    }
}

// Copies the operation's part of the edge blocks to where it belongs.
static void copy_edges(struct ds_queue *q, struct ring_piece *p, u64 useful)
{
    u8 *edge = q->edges + (size_t)p->index * 2 * RING_EDGE_BYTES;
    u8 *memory = p->op->memory + p->op_at;
    if (p->head_bytes > 0) {
        memcpy(memory, edge + p->lead, MIN((u64)p->head_bytes, useful));
    }
    u64 tail_at = p->op_bytes - p->tail_bytes;
    if (p->tail_bytes > 0 && useful > tail_at) {
        memcpy(memory + tail_at, edge + RING_EDGE_BYTES, useful - tail_at);
    }
}

// The kernel is through with the piece: `io_done` bytes of its range were moved.
static void piece_moved(struct ds_queue *q, struct ring_piece *p)
{
    struct ds_op *op = p->op;
    u64 useful = p->io_done <= p->lead ? 0 : MIN(p->io_done - p->lead, p->op_bytes);
    if (useful < p->op_bytes) {
        op->ring.short_at = MIN(op->ring.short_at, p->op_at + useful);
    }
    account(p, useful);
    bool is_read = op->opcode == OPENDS_READ;
    if (is_read && p->bounce != NULL && useful > 0) {
        if (copy_start(q, p, PIECE_COPY_IN, useful) == COPY_STARTED) {
            return;
        }
    } else if (is_read) {
        copy_edges(q, p, useful);
    }
    piece_free(q, p);
}

// Drops `bytes` from the front of the piece's remaining vector.
static void advance_left(struct ring_piece *p, u64 bytes)
{
    while (bytes > 0) {
        u64 n = MIN(bytes, (u64)p->left[0].iov_len);
        p->left[0].iov_base = (u8 *)p->left[0].iov_base + n;
        p->left[0].iov_len -= n;
        bytes -= n;
        if (p->left[0].iov_len == 0 && p->iov_count > 1) {
            p->left[0] = p->left[1];
            p->left[1] = p->left[2];
            p->iov_count--;
        }
    }
}

static bool is_refusal(int sys_errno)
{
    return sys_errno == EINVAL || sys_errno == EOPNOTSUPP;
}

// Turns the piece into one through the page cache and notes why.
static bool fall_back_to_cache(struct ds_queue *q, struct ring_piece *p)
{
    const char *why = p->kind == PIECE_COMMAND ? "the namespace refused a command"
                                               : "the kernel refused direct I/O for a request";
    if (!ds_plan_rebuild_buffered(q, p)) {
        return false;
    }
    ds_handle_note_fallback(p->op->handle, why);
    return true;
}

// The request failed. Retries, takes the lesser path where the policy allows, or fails the
// operation.
static void piece_failed(struct ds_queue *q, struct ring_piece *p, int sys_errno)
{
    struct ds_op *op = p->op;
    bool is_asked = atomic_load(&op->cancel) != DS_CANCEL_NONE;
    // The kernel cancels requests by itself when signals keep it from making a worker thread:
    // whatever was not cancelled by us is simply asked for again.
    bool is_passing = sys_errno == EAGAIN || sys_errno == EINTR || sys_errno == ECANCELED;
    if (is_passing && !is_asked) {
        piece_issue(q, p);
        return;
    }
    if (is_passing) {
        op->ring.is_cut = true;
        op->ring.is_planned = true;
    } else if (p->is_direct && is_refusal(sys_errno) &&
               ds_config()->policy != DS_POLICY_REQUIRE_DIRECT && fall_back_to_cache(q, p)) {
        op->fell_back = true;
        memcpy(p->left, p->iov, sizeof(p->left));
        piece_issue(q, p);
        return;
    } else {
        op_fail(op, sys_errno);
    }
    piece_free(q, p);
}

static void transfer_done(struct ds_queue *q, struct ring_piece *p, int res)
{
    if (res < 0) {
        piece_failed(q, p, -res);
        return;
    }
    p->io_done += (u64)res;
    bool is_whole = p->io_done >= p->io_bytes;
    u32 align = p->is_direct ? p->op->handle->offset_align : 1;
    // A direct read that ends inside a block has met the end of the file.
    bool is_end = p->kind == PIECE_READ && (res == 0 || p->io_done % align != 0);
    if (!is_whole && p->kind == PIECE_WRITE && res == 0) {
        op_fail(p->op, EIO); // a write that moves nothing and says nothing would repeat for ever
        piece_free(q, p);
        return;
    }
    if (!is_whole && !is_end) {
        advance_left(p, (u64)res);
        piece_issue(q, p);
        return;
    }
    piece_moved(q, p);
}

static void piece_completed(struct ds_queue *q, struct ring_piece *p, int res)
{
    ASSERT(p->state == PIECE_IO);
    q->inflight--;
    switch ((enum piece_kind)p->kind) {
    case PIECE_READ:
    case PIECE_WRITE:
        transfer_done(q, p, res);
        break;
    case PIECE_COMMAND:
        if (res > 0) { // an NVMe status
            op_fail_code(p->op, OPENDS_IO_ERROR, res);
            piece_free(q, p);
        } else if (res < 0) {
            p->is_direct = true;
            piece_failed(q, p, -res);
        } else {
            p->io_done = p->io_bytes;
            piece_moved(q, p);
        }
        break;
    case PIECE_FSYNC:
        if (res < 0) {
            piece_failed(q, p, -res);
        } else {
            piece_free(q, p);
        }
        break;
    case PIECE_DELAY:
        if (res == -ECANCELED) {
            piece_failed(q, p, ECANCELED);
        } else {
            piece_free(q, p);
        }
        break;
    case PIECE_ZERO:
        ASSERT(p->kind != PIECE_ZERO); // those do not reach the kernel
    }
}

// Looks at the copies in flight; with `wait`, waits for the oldest.
static u32 copies_poll(struct ds_queue *q, bool wait)
{
    const struct ds_accel *a = ds_accel_current();
    u32 done = 0;
    LIST_FOREACH_SAFE (node, &q->copying) {
        struct ring_piece *p = CONTAINER_OF(node, struct ring_piece, link);
        if (!p->copy.is_done) {
            a->copy_poll(&p->copy, wait);
            wait = false;
        }
        if (!p->copy.is_done) {
            continue;
        }
        list_remove(node);
        done++;
        if (p->copy.dev_err != 0) {
            op_fail_code(p->op, OPENDS_DEVICE_DRIVER_ERROR, p->copy.dev_err);
            piece_free(q, p);
        } else if (p->state == PIECE_COPY_OUT) {
            piece_issue(q, p);
        } else {
            if (p->kind == PIECE_ZERO) {
                account(p, p->op_bytes);
            }
            piece_free(q, p);
        }
    }
    return done;
}

static void send_cancel(struct ds_queue *q, struct ring_piece *p)
{
    struct io_uring_sqe *sqe = sqe_get(q);
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
        op_step(q, CONTAINER_OF(node, struct ds_op, link));
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
            piece_begin(q, p);
        }
        op->ring.inflight--;
        op_step(q, op);
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
        op_step(q, op);
    }
}

static void arm_wake(struct ds_queue *q)
{
    if (!q->is_engine || q->is_wake_armed) {
        return;
    }
    struct io_uring_sqe *sqe = sqe_get(q);
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
            piece_completed(q, &q->pieces[tag], res);
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
        copies_poll(q, true);
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
    u32 progress = list_is_empty(&q->copying) ? 0 : copies_poll(q, false);
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
