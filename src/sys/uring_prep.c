// SPDX-License-Identifier: Apache-2.0
// Translates an io_op into a submission entry: one line a kind, and the flags they share.
#include "sys/uring.h"

#include <fcntl.h>
#include <limits.h>

static void prep_transfer(struct uring *u, struct io_uring_sqe *sqe, struct io_op *op)
{
    bool is_read = op->kind == IO_READ;
    int region = (op->flags & IO_FLAG_FIXED) != 0 ? uring_region_of(u, op->buf, op->len) : -1;
    if (region >= 0 && is_read) {
        io_uring_prep_read_fixed(sqe, op->fd, op->buf, op->len, op->offset, region);
    } else if (region >= 0) {
        io_uring_prep_write_fixed(sqe, op->fd, op->const_buf, op->len, op->offset, region);
    } else if (is_read) {
        io_uring_prep_read(sqe, op->fd, op->buf, op->len, op->offset);
    } else {
        io_uring_prep_write(sqe, op->fd, op->const_buf, op->len, op->offset);
    }
}

static void prep_recv(struct io_uring_sqe *sqe, struct io_op *op, int message_flags)
{
    if ((op->flags & IO_FLAG_SELECT) == 0) {
        io_uring_prep_recv(sqe, op->fd, op->buf, op->len, message_flags);
        return;
    }
    io_uring_prep_recv(sqe, op->fd, NULL, 0, message_flags);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = URING_RECV_GROUP;
}

void uring_prep(struct uring *u, struct io_uring_sqe *sqe, struct io_op *op)
{
    ASSERT(op->kind != IO_WRITEV || op->len <= IOV_MAX);
    ASSERT(op->len <= IO_BYTES_MAX);
    int message_flags = 0;
    message_flags |= (op->flags & IO_FLAG_WAITALL) != 0 ? MSG_WAITALL : 0;
    message_flags |= (op->flags & IO_FLAG_MORE) != 0 ? MSG_MORE : 0;
    switch ((enum io_kind)op->kind) {
    case IO_READ:
    case IO_WRITE:
        prep_transfer(u, sqe, op);
        sqe->rw_flags = (op->flags & IO_FLAG_DURABLE) != 0 ? RWF_DSYNC : 0;
        break;
    case IO_WRITEV:
        io_uring_prep_writev(sqe, op->fd, op->iov, op->len, op->offset);
        break;
    case IO_FLUSH:
        io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC);
        break;
    case IO_ACCEPT:
        io_uring_prep_accept(sqe, op->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        break;
    case IO_RECV:
        prep_recv(sqe, op, message_flags & ~MSG_MORE);
        break;
    case IO_SEND:
        io_uring_prep_send(sqe, op->fd, op->const_buf, op->len, message_flags | MSG_NOSIGNAL);
        break;
    case IO_SENDMSG:
        io_uring_prep_sendmsg(sqe, op->fd, op->msg, (unsigned)(message_flags | MSG_NOSIGNAL));
        break;
    case IO_CONNECT:
        io_uring_prep_connect(sqe, op->fd, op->addr, op->len);
        break;
    case IO_CLOSE:
        io_uring_prep_close(sqe, op->fd);
        break;
    case IO_CANCEL:
        io_uring_prep_cancel64(sqe, (u64)(uintptr_t)op->target, 0);
        break;
    default:
        assert_fail(__FILE__, __LINE__, "unknown kind of I/O operation");
    }
    if ((op->flags & IO_FLAG_LINK) != 0) {
        sqe->flags |= IOSQE_IO_LINK;
    }
    io_uring_sqe_set_data64(sqe, (u64)(uintptr_t)op);
}
