// SPDX-License-Identifier: Apache-2.0
// Operations: checking what the caller gave, handing them to whoever executes them, and ending
// them. Synchronous reads and writes are an operation on the caller's stack.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ds/driver.h"
#include "ds/ring.h"

opends_op_error_t ds_op_prepare(struct ds_op *op, opends_handle_t fh, enum opends_opcode opcode,
                                void *base, u64 size, i64 offset, i64 base_offset)
{
    if (UNLIKELY(!ds_is_open())) {
        return OPENDS_DRIVER_NOT_INITIALIZED;
    }
    if (UNLIKELY(offset < 0 || base_offset < 0 || size > (u64)SSIZE_MAX ||
                 (u64)offset > (u64)INT64_MAX - size ||
                 (opcode != OPENDS_READ && opcode != OPENDS_WRITE))) {
        return OPENDS_INVALID_VALUE;
    }
    if (UNLIKELY(base == NULL ? size != 0
                              : (u64)base_offset > UINTPTR_MAX - (uintptr_t)base ||
                                    size > UINTPTR_MAX - (uintptr_t)base - (u64)base_offset)) {
        return OPENDS_POINTER_INVALID;
    }
    struct ds_handle *h = ds_handle_get(fh);
    if (UNLIKELY(h == NULL)) {
        return OPENDS_HANDLE_NOT_REGISTERED;
    }
    int access = h->user_flags & O_ACCMODE;
    opends_op_error_t code = OPENDS_SUCCESS;
    struct ds_buffer *buffer = NULL;
    if (opcode == OPENDS_READ ? access == O_WRONLY : access == O_RDONLY) {
        code = OPENDS_INVALID_FILE_OPEN_FLAG;
    } else if (base != NULL) {
        code = ds_buffer_find(base, (u64)base_offset, size, &buffer);
    }
    enum ds_memory_kind kind = DS_MEMORY_HOST;
    if (code == OPENDS_SUCCESS && base != NULL) {
        kind = buffer != NULL          ? (buffer->is_device ? DS_MEMORY_DEVICE : DS_MEMORY_HOST)
               : op->known_memory != 0 ? (enum ds_memory_kind)(op->known_memory - 1)
                                       : ds_accel_current()->memory_kind(base);
        code = kind == DS_MEMORY_UNKNOWN ? OPENDS_MEMORY_TYPE_INVALID : OPENDS_SUCCESS;
    }
    if (UNLIKELY(code != OPENDS_SUCCESS)) {
        if (buffer != NULL) {
            ds_buffer_put(buffer);
        }
        ds_handle_put(h);
        return code;
    }
    op->handle = h;
    op->buffer = buffer;
    op->memory = base == NULL ? NULL : (u8 *)base + base_offset;
    op->size = size;
    op->offset = (u64)offset;
    op->opcode = (u8)opcode;
    op->backend = h->backend;
    op->path = h->path;
    op->is_device_memory = kind == DS_MEMORY_DEVICE;
    op->is_durable = opcode == OPENDS_WRITE &&
                     (atomic_load_explicit(&h->flags, memory_order_relaxed) & OPENDS_WRITE_DURABLE);
    // cuFile moves device memory; host memory goes the usual way.
    if (h->backend == DS_GDS && !op->is_device_memory) {
        op->backend = ds_backend_is_present(DS_URING, NULL) ? DS_URING : DS_REF;
        op->path = h->direct_fd >= 0 ? OPENDS_PATH_DIRECT : OPENDS_PATH_BUFFERED;
    }
    op->submit_ns = ds_now_ns();
    if (ds_config()->io_timeout_ms != 0) {
        op->deadline_ns = op->submit_ns + ds_config()->io_timeout_ms * NS_PER_MS;
    }
    return OPENDS_SUCCESS;
}

void ds_op_release(struct ds_op *op)
{
    if (op->buffer != NULL) {
        ds_buffer_put(op->buffer);
    }
    ds_handle_put(op->handle);
}

void ds_op_finish(struct ds_op *op)
{
    struct ds_handle *h = op->handle;
    u64 latency_ns = ds_now_ns() - op->submit_ns;
    if (op->result >= 0) {
        op->status = OPENDS_COMPLETE;
    } else {
        op->status = op->result == -OPENDS_CANCELED_ERROR ? OPENDS_CANCELED
                     : op->result == -OPENDS_TIMED_OUT    ? OPENDS_TIMEOUT
                                                          : OPENDS_FAILED;
    }
    ds_stats_record(h->stats, op, latency_ns);
    ds_trace_record(op, latency_ns);
    ds_handle_account(h, op);
    void (*done)(struct ds_op *) = op->done;
    ds_op_release(op);
    if (done != NULL) {
        done(op);
    }
}

static bool is_blocking(const struct ds_op *op)
{
    return ds_backend((enum ds_backend_id)op->backend)->blocking_exec != NULL;
}

void ds_ops_submit_list(struct list *ops, u32 count)
{
    struct list blocking;
    u32 blocking_count = 0;
    list_init(&blocking);
    LIST_FOREACH_SAFE (node, ops) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        if (is_blocking(op)) {
            list_remove(node);
            list_add_tail(&blocking, node);
            blocking_count++;
        }
    }
    const struct ds_backend *gds = ds_backend(DS_GDS);
    if (blocking_count > 0) {
        gds->batch_take(&blocking);
    }
    if (!list_is_empty(&blocking)) {
        ds_pool_submit(&blocking);
    }
    if (!list_is_empty(ops)) {
        ds_engines_submit(ops, count - blocking_count);
    }
}

void ds_op_submit(struct ds_op *op)
{
    struct list one;
    list_init(&one);
    list_add_tail(&one, &op->link);
    ds_ops_submit_list(&one, 1);
}

// On a ring of the calling thread. Without one (descriptors or memory ran out) the plain way is
// left.
void ds_op_run_on_ring(struct ds_op *op)
{
    struct ds_queue *q = ds_sync_queue_get();
    if (q == NULL) {
        if (op->is_device_memory) {
            op->result = -(i64)OPENDS_NO_MEMORY;
            op->dev_err = errno;
            return;
        }
        ds_handle_note_fallback(op->handle, "no io_uring could be made for this thread");
        op->fell_back = true;
        ds_backend(DS_REF)->blocking_exec(op);
        return;
    }
    ds_queue_start(q, op);
    while (!ds_queue_is_idle(q)) {
        ds_queue_pump(q, true);
    }
    ds_sync_queue_put(q);
}

// A small call that needs no second request and no copy: one pread or pwrite costs less than a trip
// through a ring, and nothing else could be done meanwhile.
static bool is_plain(const struct ds_op *op, bool is_direct)
{
    const struct ds_config *c = ds_config();
    u64 align = op->opcode == OPENDS_WRITE ? MAX(op->handle->offset_align, 4096u)
                                           : op->handle->offset_align;
    bool is_aligned = !is_direct || (((op->offset | op->size) & (align - 1)) == 0 &&
                                     ((uintptr_t)op->memory & (op->handle->memory_align - 1)) == 0);
    return op->backend == DS_URING && !op->is_device_memory && !op->is_durable && op->size > 0 &&
           op->deadline_ns == 0 && is_aligned && op->size <= ds_chunk_bytes() &&
           c->fault.every == 0 && c->fault.delay_ms == 0;
}

// False when the ring has to do it, because the kernel refused the request.
static bool run_plain(struct ds_op *op, bool is_direct)
{
    struct ds_handle *h = op->handle;
    int fd = is_direct ? h->direct_fd : h->buffered_fd; // neither changes: there is only the one
    u64 done = 0;
    while (done < op->size) {
        off_t at = (off_t)(op->offset + done);
        ssize_t n = op->opcode == OPENDS_READ ? pread(fd, op->memory + done, op->size - done, at)
                                              : pwrite(fd, op->memory + done, op->size - done, at);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (n < 0 && is_direct && (errno == EINVAL || errno == EOPNOTSUPP)) {
            return false;
        }
        if (n < 0) {
            op->dev_err = errno;
            op->result = -(i64)ds_code_from_errno(errno);
            return true;
        }
        done += (u64)n;
        // A direct read that ends inside a block has met the end of the file.
        if (n == 0 || (is_direct && done % h->offset_align != 0)) {
            break;
        }
    }
    op->result = (i64)done;
    *(is_direct ? &op->traffic.direct : &op->traffic.buffered) += done;
    return true;
}

void ds_op_run(struct ds_op *op)
{
    const struct ds_backend *b = ds_backend((enum ds_backend_id)op->backend);
    if (b->blocking_exec != NULL) {
        b->blocking_exec(op);
        return;
    }
    bool is_direct = op->path != OPENDS_PATH_BUFFERED && op->handle->direct_fd >= 0;
    if (!is_plain(op, is_direct) || !run_plain(op, is_direct)) {
        ds_op_run_on_ring(op);
    }
}

static ssize_t io_sync(enum opends_opcode opcode, opends_handle_t fh, void *base, size_t size,
                       off_t file_offset, off_t base_offset)
{
    struct ds_op op;
    memset(&op, 0, sizeof(op));
    opends_op_error_t code = ds_op_prepare(&op, fh, opcode, base, size, file_offset, base_offset);
    if (UNLIKELY(code != OPENDS_SUCCESS)) {
        ds_fail(code, 0, "%s: %s", opcode == OPENDS_READ ? "read" : "write",
                opends_op_status_error(code));
        errno = ds_errno_from_code(code);
        return -(ssize_t)code;
    }
    ds_op_run(&op);
    ds_op_finish(&op);
    if (UNLIKELY(op.result < 0)) {
        code = (opends_op_error_t)-op.result;
        ds_fail(code, op.dev_err, "%s of %zu bytes at %lld: %s (%d)",
                opcode == OPENDS_READ ? "read" : "write", size, (long long)file_offset,
                opends_op_status_error(code), op.dev_err);
        errno = ds_errno_from_code(code);
    }
    return (ssize_t)op.result;
}

ssize_t opends_read(opends_handle_t fh, void *buf_base, size_t size, off_t file_offset,
                    off_t buf_offset)
{
    return io_sync(OPENDS_READ, fh, buf_base, size, file_offset, buf_offset);
}

ssize_t opends_write(opends_handle_t fh, const void *buf_base, size_t size, off_t file_offset,
                     off_t buf_offset)
{
    return io_sync(OPENDS_WRITE, fh, (void *)(uintptr_t)buf_base, size, file_offset, buf_offset);
}
