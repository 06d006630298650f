// SPDX-License-Identifier: Apache-2.0
// File I/O for fibers over the core's I/O engine. Each call is one suspension in the common case;
// the loops are for what a kernel may do and rarely does: short transfers and EINTR.
#include "core/fileio.h"

#include "core/internal.h"

#include <errno.h>

// One or more operations that one fiber waits for.
struct io_wait {
    struct event done;
    u32 left;
};

static void waited_op_done(struct io_op *op)
{
    struct io_wait *wait = op->user;
    ASSERT(wait->left > 0);
    wait->left--;
    if (wait->left == 0) {
        event_set(&wait->done);
    }
}

static void io_wait_submit(struct io_wait *wait, struct io_op *op)
{
    op->user = wait;
    op->done = waited_op_done;
    wait->left++;
    io_submit(reactor_here()->io, op);
}

MAY_WAIT i32 io_run(struct io_op *op)
{
    struct io_wait wait = {0};
    event_init(&wait.done);
    io_wait_submit(&wait, op);
    event_wait_certain(&wait.done);
    return op->result;
}

static void count_transfer(const struct io_op *op)
{
    bool is_read = op->kind == IO_READ;
    if (op->result < 0) {
        metric_add(METRIC_IO_ERRORS, 1);
        return;
    }
    metric_add(is_read ? METRIC_IO_READS : METRIC_IO_WRITES, 1);
    metric_add(is_read ? METRIC_IO_READ_BYTES : METRIC_IO_WRITE_BYTES, op->result);
}

static u16 fixed_flag(const void *buf, size_t len)
{
    return buf_pool_holds(reactor_here()->bufs, buf, len) ? IO_FLAG_FIXED : 0;
}

static u32 piece(size_t len)
{
    return (u32)MIN(len, (size_t)IO_BYTES_MAX);
}

MAY_WAIT enum err fileio_read(int fd, void *buf, size_t len, u64 offset)
{
    u8 *next = buf;
    u16 flags = fixed_flag(buf, len);
    while (len > 0) {
        struct io_op op = {.kind = IO_READ, .flags = flags, .fd = fd, .offset = offset};
        op.buf = next;
        op.len = piece(len);
        i32 n = io_run(&op);
        if (n == -EINTR || n == -EAGAIN) {
            continue;
        }
        count_transfer(&op);
        if (n < 0) {
            return err_from_errno(n);
        }
        if (n == 0) {
            return ERR_END;
        }
        next += n;
        len -= (size_t)n;
        offset += (u64)n;
    }
    return OK;
}

MAY_WAIT enum err fileio_write(int fd, const void *buf, size_t len, u64 offset)
{
    const u8 *next = buf;
    u16 flags = fixed_flag(buf, len);
    while (len > 0) {
        struct io_op op = {.kind = IO_WRITE, .flags = flags, .fd = fd, .offset = offset};
        op.const_buf = next;
        op.len = piece(len);
        i32 n = io_run(&op);
        if (n == -EINTR || n == -EAGAIN) {
            continue;
        }
        count_transfer(&op);
        if (n <= 0) {
            return n == 0 ? ERR_IO : err_from_errno(n);
        }
        next += n;
        len -= (size_t)n;
        offset += (u64)n;
    }
    return OK;
}

static enum err flush_result(i32 n)
{
    metric_add(n < 0 ? METRIC_IO_ERRORS : METRIC_IO_FLUSHES, 1);
    return n < 0 ? err_from_errno(n) : OK;
}

MAY_WAIT enum err fileio_flush(int fd)
{
    i32 n;
    do {
        struct io_op op = {.kind = IO_FLUSH, .fd = fd};
        n = io_run(&op);
    } while (n == -EINTR || n == -EAGAIN);
    return flush_result(n);
}

// Goes on where a write was cut short, and flushes all of it.
MAY_WAIT static enum err rest_write_flush(const struct io_op *write)
{
    size_t done = 0;
    if (write->result != -EINTR && write->result != -EAGAIN) {
        count_transfer(write);
        if (write->result <= 0) {
            return write->result == 0 ? ERR_IO : err_from_errno(write->result);
        }
        done = (size_t)write->result;
    }
    const u8 *rest = (const u8 *)write->const_buf + done;
    TRY(fileio_write(write->fd, rest, write->len - done, write->offset + done));
    return fileio_flush(write->fd);
}

// The write and the flush enter the kernel as one chain. When the write is cut short the kernel
// cancels the flush, and the rest goes as a plain write and flush. A flush that failed is never
// tried again: the kernel may have dropped the pages and would answer OK.
MAY_WAIT enum err fileio_write_flush(int fd, const void *buf, size_t len, u64 offset)
{
    if (len == 0 || len > IO_BYTES_MAX) {
        TRY(fileio_write(fd, buf, len, offset));
        return fileio_flush(fd);
    }
    struct io_wait wait = {0};
    event_init(&wait.done);
    struct io_op write = {.kind = IO_WRITE, .fd = fd, .offset = offset};
    write.flags = (u16)(fixed_flag(buf, len) | IO_FLAG_LINK);
    write.const_buf = buf;
    write.len = (u32)len;
    struct io_op flush = {.kind = IO_FLUSH, .fd = fd};
    io_wait_submit(&wait, &write);
    io_wait_submit(&wait, &flush);
    event_wait_certain(&wait.done);
    if (write.result == (i32)len) {
        count_transfer(&write);
        return flush_result(flush.result);
    }
    return rest_write_flush(&write);
}

MAY_WAIT enum err fileio_write_durable(int fd, const void *buf, size_t len, u64 offset)
{
    if (len == 0 || len > IO_BYTES_MAX) {
        return fileio_write_flush(fd, buf, len, offset);
    }
    struct io_op write = {.kind = IO_WRITE, .fd = fd, .offset = offset};
    write.flags = (u16)(fixed_flag(buf, len) | IO_FLAG_DURABLE);
    write.const_buf = buf;
    write.len = (u32)len;
    if (io_run(&write) == (i32)len) {
        count_transfer(&write);
        return flush_result(0);
    }
    return write.result == -EOPNOTSUPP ? fileio_write_flush(fd, buf, len, offset)
                                       : rest_write_flush(&write);
}
