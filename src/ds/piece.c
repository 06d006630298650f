// SPDX-License-Identifier: Apache-2.0
// A piece's way through a ring: issued to the kernel, what the kernel answers (retried, taken to
// the lesser path, or the operation's failure), copied between bounce buffer and memory, and given
// back.
//
// Invariant: a piece is free, in the kernel, or copying; the queue's `inflight` counts those in the
// kernel, its operation's those that are not free.
#include "ds/ring.h"

#include <errno.h>
#include <string.h>

#include "ds/driver.h"
#include "ds/nvme.h"

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

static void piece_free(struct ds_queue *q, struct ring_piece *p)
{
    struct ds_op *op = p->op;
    ds_bounce_put(q, p);
    p->state = PIECE_FREE;
    p->op = NULL;
    list_add_head(&q->free_pieces, &p->link);
    op->ring.inflight--;
    ds_queue_step(q, op);
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
    struct io_uring_sqe *sqe = ds_queue_sqe(q);
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

void ds_piece_begin(struct ds_queue *q, struct ring_piece *p)
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

void ds_piece_completed(struct ds_queue *q, struct ring_piece *p, int res)
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
u32 ds_copies_poll(struct ds_queue *q, bool wait)
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
