// SPDX-License-Identifier: Apache-2.0
// Moves bytes between a serving fiber and its socket, with or without TLS. One operation at a time;
// each is watched by the connection's timer, and the time spent waiting for the peer is held
// against the bytes that moved, so that a trickle is found out too.
#include "net/connection.h"

#include "core/fileio.h"

#define TLS_RECORD_BYTES ((size_t)16 * KIB)
#define TLS_WRITE_BYTES  ((size_t)64 * KIB) // encrypted at once

// A peer may be slow, but over each progress timeout of waiting it must average the minimum rate.
static enum err rate_check(struct connection *c, u64 waited_ns, u64 bytes)
{
    const struct http_server_options *o = &c->server->options;
    c->rate_wait_ns += waited_ns;
    c->rate_bytes += bytes;
    if (LIKELY(c->rate_wait_ns < o->progress_timeout_ns)) {
        return OK;
    }
    u64 wanted = o->body_rate_min * (c->rate_wait_ns / NS_PER_MS) / 1000;
    bool is_slow = c->rate_bytes < wanted;
    c->rate_wait_ns = 0;
    c->rate_bytes = 0;
    if (is_slow) {
        metric_add(METRIC_HTTP_TIMEOUTS, 1);
        c->failure = ERR_PEER_TIMEOUT;
    }
    return is_slow ? ERR_PEER_TIMEOUT : OK;
}

// Runs one operation to its end. *out: bytes moved, 0 at the end of the peer's bytes.
MAY_WAIT static enum err stream_io(struct connection *c, struct io_op *op, u32 *out)
{
    *out = 0;
    if (c->failure != OK) {
        return c->failure;
    }
    u64 started_ns = core_now_ns();
    u64 timeout_ns = c->server->options.progress_timeout_ns;
    enum err limit_error = ERR_PEER_TIMEOUT;
    u64 deadline_ns = fiber_deadline();
    // A request that is out of time may still send its error response.
    if (op == &c->recv_op && deadline_ns != 0 && deadline_ns < started_ns + timeout_ns) {
        if (deadline_ns <= started_ns) {
            return ERR_DEADLINE;
        }
        timeout_ns = deadline_ns - started_ns;
        limit_error = ERR_DEADLINE;
    }
    connection_limit_set(c, timeout_ns, limit_error);
    op->fd = c->fd;
    i32 n = io_run(op);
    connection_limit_clear(c);
    if (n < 0) {
        if (c->failure == ERR_DEADLINE) {
            c->failure = OK; // the deadline was the handler's; it may still answer
            return ERR_DEADLINE;
        }
        if (c->failure == OK) {
            c->failure = ERR_CLOSED;
        }
        return c->failure;
    }
    if (c->failure == ERR_DEADLINE || c->failure == ERR_PEER_TIMEOUT) {
        c->failure = OK; // it came in just before the cancellation
    }
    *out = (u32)n;
    return rate_check(c, core_now_ns() - started_ns, (u64)n);
}

MAY_WAIT static enum err plain_read(struct connection *c, u8 *buf, size_t cap, size_t *out)
{
    struct io_op *op = &c->recv_op;
    op->kind = IO_RECV;
    op->flags = 0;
    op->buf = buf;
    op->len = (u32)MIN(cap, (size_t)IO_BYTES_MAX);
    u32 n = 0;
    TRY(stream_io(c, op, &n));
    metric_add(METRIC_HTTP_BYTES_IN, n);
    *out = n;
    return n == 0 ? ERR_CLOSED : OK;
}

MAY_WAIT static enum err tls_receive(struct connection *c)
{
    if (c->tls_buf == NULL) {
        c->tls_buf = buf_get(HTTP_TLS_BUFFER_BYTES);
        if (c->tls_buf == NULL) {
            return ERR_NO_MEMORY;
        }
    }
    size_t n = 0;
    TRY(plain_read(c, c->tls_buf->data, c->tls_buf->capacity_bytes, &n));
    return tls_feed(c->ssl, BYTES(c->tls_buf->data, n));
}

MAY_WAIT enum err stream_read(struct connection *c, u8 *buf, size_t cap, size_t *out)
{
    ASSERT(c->state == CONNECTION_SERVING && cap > 0);
    *out = 0;
    if (c->ssl == NULL) {
        return plain_read(c, buf, cap, out);
    }
    while (true) {
        enum err e = tls_read(c->ssl, buf, cap, out);
        if (e != OK) {
            return ERR_CLOSED;
        }
        if (*out > 0) {
            return OK;
        }
        TRY(tls_receive(c));
    }
}

// Forgets the first n bytes of the vector.
static u32 iov_skip(struct iovec **iov, u32 count, size_t n)
{
    while (count > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        count--;
    }
    if (count > 0) {
        (*iov)->iov_base = (u8 *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
    return count;
}

MAY_WAIT static enum err plain_write(struct connection *c, struct iovec *iov, u32 count)
{
    struct io_op *op = &c->send_op;
    count = iov_skip(&iov, count, 0);
    while (count > 0) {
        op->flags = 0;
        if (count == 1) {
            op->kind = IO_SEND;
            op->const_buf = iov->iov_base;
            op->len = (u32)MIN(iov->iov_len, (size_t)IO_BYTES_MAX);
        } else {
            c->msg = (struct msghdr){.msg_iov = iov, .msg_iovlen = count};
            op->kind = IO_SENDMSG;
            op->msg = &c->msg;
            op->len = 0;
        }
        u32 n = 0;
        TRY(stream_io(c, op, &n));
        metric_add(METRIC_HTTP_BYTES_OUT, n);
        count = iov_skip(&iov, count, n);
    }
    return OK;
}

MAY_WAIT static enum err tls_flush(struct connection *c)
{
    struct bytes pending = tls_pending(c->ssl);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)pending.data, .iov_len = pending.len};
    TRY(plain_write(c, &iov, 1));
    tls_pending_done(c->ssl);
    return OK;
}

static size_t iov_bytes(const struct iovec *iov, u32 count)
{
    size_t n = 0;
    for (u32 i = 0; i < count; i++) {
        n += iov[i].iov_len;
    }
    return n;
}

// Head and body of a small response go into one record.
MAY_WAIT static enum err tls_write_gathered(struct connection *c, const struct iovec *iov,
                                            u32 count)
{
    u8 *scratch = c->server->tls_scratch;
    size_t n = 0;
    for (u32 i = 0; i < count; i++) {
        memcpy(scratch + n, iov[i].iov_base, iov[i].iov_len);
        n += iov[i].iov_len;
    }
    TRY(tls_write(c->ssl, BYTES(scratch, n)));
    return tls_flush(c);
}

MAY_WAIT enum err stream_write(struct connection *c, struct iovec *iov, u32 count)
{
    ASSERT(c->state == CONNECTION_SERVING);
    if (c->ssl == NULL) {
        return plain_write(c, iov, count);
    }
    count = iov_skip(&iov, count, 0);
    if (c->failure != OK) {
        return c->failure;
    }
    if (count > 1 && iov_bytes(iov, count) <= TLS_RECORD_BYTES) {
        return tls_write_gathered(c, iov, count);
    }
    while (count > 0) {
        size_t n = MIN(iov->iov_len, TLS_WRITE_BYTES);
        TRY(tls_write(c->ssl, BYTES(iov->iov_base, n)));
        count = iov_skip(&iov, count, n);
        // A short head goes out together with the first piece of the body.
        if (count == 0 || tls_pending(c->ssl).len >= TLS_RECORD_BYTES) {
            TRY(tls_flush(c));
        }
    }
    return OK;
}
