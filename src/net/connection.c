// SPDX-License-Identifier: Apache-2.0
// The connection's state machine: receiving heads, TLS handshakes, error responses, lingering and
// closing. Everything here runs in the loop or at the very end of a serving fiber, and never waits.
// A connection is released only when each of its operations has come back.
#include "net/connection.h"

#include <errno.h>

#include "base/log.h"
#include "net/socket.h"

static void receive_done(struct io_op *op);
static void send_done(struct io_op *op);

static void receive_start(struct connection *c)
{
    if (c->recv_op.state == IO_IN_FLIGHT) {
        return;
    }
    c->recv_op.kind = IO_RECV;
    c->recv_op.flags = IO_FLAG_SELECT;
    c->recv_op.fd = c->fd;
    c->recv_op.buf = NULL;
    c->recv_op.len = 0;
    c->recv_op.done = receive_done;
    io_submit(c->server->io, &c->recv_op);
}

static void send_start(struct connection *c)
{
    ASSERT(c->send_op.state == IO_IDLE && c->out.len > 0);
    c->send_op.kind = IO_SEND;
    c->send_op.flags = 0;
    c->send_op.fd = c->fd;
    c->send_op.const_buf = c->out.data;
    c->send_op.len = (u32)MIN(c->out.len, (size_t)IO_BYTES_MAX);
    c->send_op.done = send_done;
    io_submit(c->server->io, &c->send_op);
}

// ---- time

// The loop reads the clock before it sleeps in the I/O engine, so in a completion core_now_ns may
// be as old as the sleep was long; in a fiber it is of this turn.
static u64 present_ns(void)
{
    return fiber_current() != NULL ? core_now_ns() : sys_mono_ns(core_sys());
}

// A quarter of lateness is accepted so that the timer need not be moved for every request.
void connection_limit_set(struct connection *c, u64 timeout_ns, enum err e)
{
    c->limit_ns = present_ns() + timeout_ns;
    c->limit_error = e;
    if (!timer_is_armed(&c->timer) || c->timer.at_ns > c->limit_ns + timeout_ns / 4) {
        timer_arm(&c->timer, c->limit_ns);
    }
}

static void timed_out(struct connection *c)
{
    c->limit_ns = LIMIT_NONE;
    if (c->state != CONNECTION_IDLE && c->limit_error == ERR_PEER_TIMEOUT) {
        metric_add(METRIC_HTTP_TIMEOUTS, 1);
    }
    switch ((enum connection_state)c->state) {
    case CONNECTION_IDLE:
        connection_finish(c, false);
        break;
    case CONNECTION_HEAD:
        connection_reply_error(c, ERR_PEER_TIMEOUT);
        break;
    case CONNECTION_SERVING:
        connection_fail(c, c->limit_error);
        break;
    case CONNECTION_HANDSHAKE:
        metric_add(METRIC_TLS_FAILURES, 1);
        connection_reset(c);
        break;
    case CONNECTION_REPLYING:
    case CONNECTION_FLUSHING:
    case CONNECTION_LINGERING:
        connection_reset(c);
        break;
    case CONNECTION_CLOSING:
        break;
    }
}

static void timer_fired(struct timer *t)
{
    struct connection *c = CONTAINER_OF(t, struct connection, timer);
    ASSERT_MAGIC(c, CONNECTION_MAGIC);
    if (c->limit_ns == LIMIT_NONE) {
        return; // the next limit arms it again
    }
    if (core_now_ns() < c->limit_ns) {
        timer_arm(t, c->limit_ns);
        return;
    }
    timed_out(c);
}

// ---- the end

static void close_done(struct io_op *op)
{
    struct connection *c = CONTAINER_OF(op, struct connection, close_op);
    server_connection_release(c);
}

static void close_try(struct connection *c)
{
    ASSERT(c->state == CONNECTION_CLOSING);
    if (c->recv_op.state != IO_IDLE || c->send_op.state != IO_IDLE ||
        c->cancel_recv_op.state != IO_IDLE || c->cancel_send_op.state != IO_IDLE ||
        c->close_op.state != IO_IDLE) {
        return;
    }
    c->close_op.kind = IO_CLOSE;
    c->close_op.flags = 0;
    c->close_op.fd = c->fd;
    c->close_op.done = close_done;
    io_submit(c->server->io, &c->close_op);
}

static void cancel_recv_done(struct io_op *op)
{
    struct connection *c = CONTAINER_OF(op, struct connection, cancel_recv_op);
    if (c->state == CONNECTION_CLOSING) {
        close_try(c);
    }
}

static void cancel_send_done(struct io_op *op)
{
    struct connection *c = CONTAINER_OF(op, struct connection, cancel_send_op);
    if (c->state == CONNECTION_CLOSING) {
        close_try(c);
    }
}

static void cancel_start(struct connection *c, struct io_op *target, struct io_op *op,
                         void (*done)(struct io_op *op))
{
    if (target->state != IO_IN_FLIGHT || op->state == IO_IN_FLIGHT) {
        return;
    }
    op->kind = IO_CANCEL;
    op->flags = 0;
    op->fd = c->fd;
    op->target = target;
    op->done = done;
    io_submit(c->server->io, op);
}

static void operations_cancel(struct connection *c)
{
    cancel_start(c, &c->recv_op, &c->cancel_recv_op, cancel_recv_done);
    cancel_start(c, &c->send_op, &c->cancel_send_op, cancel_send_done);
}

void connection_fail(struct connection *c, enum err e)
{
    ASSERT(c->state == CONNECTION_SERVING && e != OK);
    if (c->failure == OK) {
        c->failure = e;
    }
    operations_cancel(c);
}

void connection_close(struct connection *c)
{
    ASSERT_MAGIC(c, CONNECTION_MAGIC);
    if (c->state == CONNECTION_CLOSING) {
        return;
    }
    c->state = CONNECTION_CLOSING;
    c->limit_ns = LIMIT_NONE;
    timer_disarm(&c->timer);
    operations_cancel(c);
    close_try(c);
}

void connection_reset(struct connection *c)
{
    if (c->state != CONNECTION_CLOSING) {
        socket_set_reset(c->fd);
        connection_close(c);
    }
}

// Our side is done. A close with unread bytes would reset the connection and could take the
// response from the client; so where there may be some, they are read away for a while.
static void leave(struct connection *c, bool is_linger)
{
    if (!is_linger) {
        connection_close(c);
        return;
    }
    c->state = CONNECTION_LINGERING;
    socket_shutdown_write(c->fd);
    connection_limit_set(c, HTTP_LINGER_NS, ERR_CLOSED);
    receive_start(c);
}

void connection_finish(struct connection *c, bool is_linger)
{
    if (c->ssl != NULL && c->is_handshaken) {
        tls_shutdown(c->ssl);
        c->out = tls_pending(c->ssl);
        if (c->out.len > 0) {
            c->state = CONNECTION_FLUSHING;
            c->is_linger_wanted = is_linger;
            connection_limit_set(c, HTTP_LINGER_NS, ERR_CLOSED);
            send_start(c);
            return;
        }
    }
    leave(c, is_linger);
}

void connection_reply_error(struct connection *c, enum err e)
{
    ASSERT(c->exchange != NULL && c->send_op.state == IO_IDLE);
    c->state = CONNECTION_REPLYING;
    c->out = response_error_format(c->exchange, e);
    if (c->ssl != NULL) {
        if (tls_write(c->ssl, c->out) != OK) {
            connection_reset(c);
            return;
        }
        c->out = tls_pending(c->ssl);
    }
    metric_add(METRIC_HTTP_REQUESTS, 1);
    connection_limit_set(c, c->server->options.progress_timeout_ns, ERR_PEER_TIMEOUT);
    send_start(c);
}

// ---- heads

static void become_idle(struct connection *c)
{
    if (c->exchange != NULL) {
        server_exchange_put(c->server, c->exchange);
        c->exchange = NULL;
    }
    if (c->state != CONNECTION_IDLE) {
        c->state = CONNECTION_IDLE;
        connection_limit_set(c, c->server->options.idle_timeout_ns, ERR_PEER_TIMEOUT);
        if (c->ssl != NULL) {
            tls_trim(c->ssl);
        }
    }
    receive_start(c);
}

static void exchange_begin(struct connection *c)
{
    struct exchange *e = c->exchange;
    e->x.started_ns = present_ns();
    e->x.peer = c->peer;
    e->x.is_tls = c->ssl != NULL;
    e->x.status = 0;
    e->x.response_bytes = 0;
    e->is_aborted = false;
    body_init(e);
    response_init(e);
    c->rate_wait_ns = 0;
    c->rate_bytes = 0;
    c->state = CONNECTION_SERVING;
    connection_limit_clear(c);
}

// Looks for a whole head in what is buffered, decrypting what there is. ERR_END and ERR_CLOSED: the
// TLS session is over; any other error is to be told to the client.
static enum err head_find(struct connection *c, bool *is_ready)
{
    struct exchange *e = c->exchange;
    TRY(input_parse(e, is_ready));
    while (!*is_ready && c->ssl != NULL) {
        u32 room = input_room(e, HTTP_INPUT_SLACK_BYTES);
        size_t n = 0;
        TRY(room == 0 ? ERR_S3_REQUEST_HEADER_TOO_LARGE
                      : tls_read(c->ssl, e->in + e->in_end, room, &n));
        if (n == 0) {
            break;
        }
        e->in_end += (u32)n;
        TRY(input_parse(e, is_ready));
    }
    return OK;
}

// True when a whole request is ready; else the connection has gone on to wait or to end.
static bool head_advance(struct connection *c)
{
    bool is_ready = false;
    enum err e = head_find(c, &is_ready);
    if (e == ERR_END || e == ERR_CLOSED) {
        connection_finish(c, false);
        return false;
    }
    if (e != OK) {
        metric_add(METRIC_HTTP_PARSE_ERRORS, 1);
        LOG_DEBUG("http_request_refused", "peer=%s error=%s", c->peer, err_name(e));
        connection_reply_error(c, e);
        return false;
    }
    if (is_ready) {
        exchange_begin(c);
        return true;
    }
    if (c->exchange->in_begin == c->exchange->in_end) {
        become_idle(c);
        return false;
    }
    if (c->state != CONNECTION_HEAD) {
        c->state = CONNECTION_HEAD;
        connection_limit_set(c, c->server->options.head_timeout_ns, ERR_PEER_TIMEOUT);
    }
    receive_start(c);
    return false;
}

bool connection_continue(struct connection *c)
{
    ASSERT(c->state == CONNECTION_SERVING);
    if (c->server->is_stopping) {
        connection_finish(c, false);
        return false;
    }
    return head_advance(c);
}

static void head_serve(struct connection *c)
{
    if (!head_advance(c)) {
        return;
    }
    enum err e = group_spawn(&c->server->fibers, exchange_serve, c);
    if (e != OK) {
        connection_reply_error(c, e);
    }
}

// ---- TLS handshake

static void handshake_step(struct connection *c)
{
    bool is_done = false;
    enum err e = tls_handshake(c->ssl, &is_done);
    c->is_handshaken = is_done;
    c->out = tls_pending(c->ssl);
    if (e != OK) {
        metric_add(METRIC_TLS_FAILURES, 1);
        if (c->out.len == 0) {
            connection_close(c);
            return;
        }
        c->state = CONNECTION_FLUSHING; // the alert
        c->is_linger_wanted = true;
    } else if (is_done) {
        metric_add(METRIC_TLS_HANDSHAKES, 1);
    }
    if (c->out.len > 0) {
        send_start(c);
    } else if (is_done) {
        become_idle(c);
    } else {
        receive_start(c);
    }
}

static bool exchange_ensure(struct connection *c)
{
    if (c->exchange == NULL) {
        c->exchange = server_exchange_get(c->server);
        if (c->exchange == NULL) {
            connection_reset(c);
            return false;
        }
        c->exchange->connection = c;
    }
    return true;
}

// The handshake is through; the first request may have come with its last message.
static void handshake_sent(struct connection *c)
{
    tls_pending_done(c->ssl);
    if (!c->is_handshaken) {
        receive_start(c);
    } else if (exchange_ensure(c)) {
        head_serve(c);
    }
}

// ---- completions

static void received(struct connection *c, struct bytes got)
{
    if (c->ssl != NULL) {
        if (tls_feed(c->ssl, got) != OK) {
            connection_reset(c);
        } else if (!c->is_handshaken) {
            handshake_step(c);
        } else if (exchange_ensure(c)) {
            head_serve(c);
        }
        return;
    }
    if (!exchange_ensure(c)) {
        return;
    }
    struct exchange *e = c->exchange;
    u32 room = input_room(e, (u32)got.len);
    ASSERT(room >= got.len); // a longer head has been refused before
    memcpy(e->in + e->in_end, got.data, got.len);
    e->in_end += (u32)got.len;
    head_serve(c);
}

static void receive_ended(struct connection *c)
{
    switch ((enum connection_state)c->state) {
    case CONNECTION_HANDSHAKE:
        metric_add(METRIC_TLS_FAILURES, 1);
        connection_close(c);
        break;
    case CONNECTION_IDLE:
    case CONNECTION_HEAD:
    case CONNECTION_LINGERING:
        connection_close(c);
        break;
    case CONNECTION_CLOSING:
        close_try(c);
        break;
    case CONNECTION_REPLYING:
    case CONNECTION_FLUSHING:
    case CONNECTION_SERVING:
        break; // what is being sent tells how it ends
    }
}

static void receive_done(struct io_op *op)
{
    struct connection *c = CONTAINER_OF(op, struct connection, recv_op);
    ASSERT_MAGIC(c, CONNECTION_MAGIC);
    struct io_engine *io = c->server->io;
    if (op->result == -ENOBUFS && c->state != CONNECTION_CLOSING) {
        receive_start(c); // all buffers hold completions of this very turn
        return;
    }
    if (op->result <= 0) {
        receive_ended(c);
        return;
    }
    u32 recv_id = op->recv_id;
    struct bytes got = BYTES(io->ops->recv_buffer(io, recv_id), (size_t)op->result);
    metric_add(METRIC_HTTP_BYTES_IN, op->result);
    switch ((enum connection_state)c->state) {
    case CONNECTION_HANDSHAKE:
    case CONNECTION_IDLE:
    case CONNECTION_HEAD:
        received(c, got);
        break;
    case CONNECTION_LINGERING:
        receive_start(c);
        break;
    case CONNECTION_CLOSING:
        close_try(c);
        break;
    case CONNECTION_REPLYING:
    case CONNECTION_FLUSHING:
        break;
    case CONNECTION_SERVING:
        assert_fail(__FILE__, __LINE__, "a receive of the machine while a fiber serves");
    }
    io->ops->recv_recycle(io, recv_id);
}

static void sent(struct connection *c)
{
    switch ((enum connection_state)c->state) {
    case CONNECTION_HANDSHAKE:
        handshake_sent(c);
        break;
    case CONNECTION_REPLYING:
        if (c->ssl != NULL) {
            tls_pending_done(c->ssl);
        }
        connection_finish(c, true);
        break;
    case CONNECTION_FLUSHING:
        tls_pending_done(c->ssl);
        leave(c, c->is_linger_wanted);
        break;
    case CONNECTION_CLOSING:
        close_try(c);
        break;
    case CONNECTION_IDLE:
    case CONNECTION_HEAD:
    case CONNECTION_SERVING:
    case CONNECTION_LINGERING:
        assert_fail(__FILE__, __LINE__, "a send of the machine in a state without one");
    }
}

static void send_done(struct io_op *op)
{
    struct connection *c = CONTAINER_OF(op, struct connection, send_op);
    ASSERT_MAGIC(c, CONNECTION_MAGIC);
    if (op->result > 0) {
        metric_add(METRIC_HTTP_BYTES_OUT, op->result);
        c->out = bytes_skip(c->out, (size_t)op->result);
    }
    if (c->state == CONNECTION_CLOSING) {
        close_try(c);
    } else if (op->result <= 0) {
        connection_close(c);
    } else if (c->out.len > 0) {
        send_start(c);
    } else {
        sent(c);
    }
}

void connection_start(struct connection *c)
{
    struct http_server *s = c->server;
    timer_init(&c->timer, timer_fired);
    c->limit_ns = LIMIT_NONE;
    c->state = CONNECTION_IDLE;
    if (c->is_refused) {
        if (s->options.tls == NULL && exchange_ensure(c)) {
            connection_reply_error(c, ERR_LIMIT_REACHED);
        } else {
            connection_reset(c);
        }
        return;
    }
    if (s->options.tls != NULL) {
        c->ssl = tls_session_create(s->options.tls);
        if (c->ssl == NULL) {
            connection_reset(c);
            return;
        }
        c->state = CONNECTION_HANDSHAKE;
        connection_limit_set(c, s->options.head_timeout_ns, ERR_PEER_TIMEOUT);
    } else {
        connection_limit_set(c, s->options.idle_timeout_ns, ERR_PEER_TIMEOUT);
    }
    receive_start(c);
}
