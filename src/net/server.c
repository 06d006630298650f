// SPDX-License-Identifier: Apache-2.0
// One HTTP server of one core: accepting, the pools of connections and exchanges, and stopping.
// Connections and exchanges are made when first needed, at most connections_max (and a few to be
// refused), and then reused, last used first.
#include "net/connection.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "codec/time_text.h"
#include "net/socket.h"

#define SERVER_LINE       "Server: Leat\r\nDate: "
#define TLS_SCRATCH_BYTES ((size_t)16 * KIB)

static void accept_start(struct http_server *s);

// ---- pools

struct exchange *server_exchange_get(struct http_server *s)
{
    struct exchange *e = s->exchanges_free;
    if (e != NULL) {
        s->exchanges_free = e->next_free;
        return e;
    }
    e = calloc(1, sizeof(*e));
    if (e == NULL) {
        LOG_WARN("http_no_memory", "bytes=%zu", sizeof(*e));
        return NULL;
    }
    e->magic = EXCHANGE_MAGIC;
    e->in = e->in_memory;
    e->in_capacity = sizeof(e->in_memory);
    arena_init(&e->x.arena, HTTP_REQUEST_ARENA_MAX);
    return e;
}

void server_exchange_put(struct http_server *s, struct exchange *e)
{
    ASSERT_MAGIC(e, EXCHANGE_MAGIC);
    if (e->in != e->in_memory) {
        free(e->in);
        e->in = e->in_memory;
        e->in_capacity = sizeof(e->in_memory);
    }
    e->in_floor = 0;
    e->in_begin = 0;
    e->in_end = 0;
    e->scan = (struct http_head_scan){0};
    e->connection = NULL;
    e->next_free = s->exchanges_free;
    s->exchanges_free = e;
}

static struct connection *connection_get(struct http_server *s)
{
    struct list *node = list_pop_head(&s->connections_free);
    struct connection *c = node != NULL ? CONTAINER_OF(node, struct connection, node)
                                        : malloc(sizeof(struct connection));
    if (c != NULL) {
        *c = (struct connection){.magic = CONNECTION_MAGIC, .server = s};
        list_init(&c->node);
    }
    return c;
}

static void drained_check(struct http_server *s)
{
    if (s->is_stopping && s->is_accept_done && s->connection_count == 0 &&
        s->accept_cancel_op.state == IO_IDLE) {
        event_set(&s->is_drained);
    }
}

void server_connection_release(struct connection *c)
{
    struct http_server *s = c->server;
    ASSERT(c->recv_op.state == IO_IDLE && c->send_op.state == IO_IDLE);
    if (c->exchange != NULL) {
        arena_reset(&c->exchange->x.arena);
        server_exchange_put(s, c->exchange);
    }
    tls_session_destroy(c->ssl);
    ASSERT(c->tls_buf == NULL);
    list_remove(&c->node);
    s->connection_count--;
    s->refused_count -= c->is_refused ? 1 : 0;
    metric_add(METRIC_HTTP_CONNECTIONS, -1);
    c->magic = 0;
    list_add_head(&s->connections_free, &c->node);
    drained_check(s);
}

// ---- accepting

static void connection_admit(struct http_server *s, int fd)
{
    u32 live = s->connection_count - s->refused_count;
    bool is_refused = live >= s->options.connections_max;
    struct connection *c = NULL;
    if (is_refused) {
        metric_add(METRIC_HTTP_REFUSED, 1);
    }
    if (!is_refused || s->refused_count < HTTP_REFUSALS_MAX) {
        c = connection_get(s);
    }
    if (c == NULL) {
        socket_close(fd);
        return;
    }
    c->fd = fd;
    c->is_refused = is_refused;
    s->refused_count += is_refused ? 1 : 0;
    s->connection_count++;
    list_add_tail(&s->connections, &c->node);
    metric_add(METRIC_HTTP_CONNECTIONS, 1);
    metric_add(METRIC_HTTP_ACCEPTED, 1);
    socket_prepare(fd, c->peer, sizeof(c->peer));
    connection_start(c);
}

static void accept_retry_fired(struct timer *t)
{
    struct http_server *s = CONTAINER_OF(t, struct http_server, accept_retry);
    accept_start(s);
}

static void accept_done(struct io_op *op)
{
    struct http_server *s = CONTAINER_OF(op, struct http_server, accept_op);
    ASSERT_MAGIC(s, SERVER_MAGIC);
    i32 n = op->result;
    if (s->is_stopping) {
        if (n >= 0) {
            socket_close(n);
        }
        s->is_accept_done = true;
        drained_check(s);
        return;
    }
    if (n >= 0) {
        connection_admit(s, n);
    } else if (n == -EMFILE || n == -ENFILE || n == -ENOMEM || n == -ENOBUFS) {
        LOG_WARN("http_accept_failed", "errno=%d hint=\"raise the limit of open files\"", -n);
        timer_arm(&s->accept_retry, sys_mono_ns(core_sys()) + HTTP_ACCEPT_RETRY_NS);
        return;
    }
    accept_start(s); // the other errors are the failed connection's own
}

static void accept_start(struct http_server *s)
{
    s->accept_op.kind = IO_ACCEPT;
    s->accept_op.flags = 0;
    s->accept_op.fd = s->options.listen_fd;
    s->accept_op.done = accept_done;
    io_submit(s->io, &s->accept_op);
}

static void accept_cancel_done(struct io_op *op)
{
    drained_check(CONTAINER_OF(op, struct http_server, accept_cancel_op));
}

// ---- start and stop

const char *server_date(struct http_server *s)
{
    u64 now = core_wall_ns();
    if (UNLIKELY(now / NS_PER_S != s->date_second)) {
        s->date_second = now / NS_PER_S;
        memcpy(s->date, SERVER_LINE, sizeof(SERVER_LINE) - 1);
        time_http_format(now, s->date + sizeof(SERVER_LINE) - 1);
        memcpy(s->date + sizeof(SERVER_LINE) - 1 + TIME_HTTP_LEN, "\r\n", 3);
    }
    return s->date;
}

static void options_default(struct http_server_options *o)
{
    o->connections_max = o->connections_max == 0 ? HTTP_CONNECTIONS_DEFAULT : o->connections_max;
    o->head_timeout_ns = o->head_timeout_ns == 0 ? 30 * NS_PER_S : o->head_timeout_ns;
    o->idle_timeout_ns = o->idle_timeout_ns == 0 ? 75 * NS_PER_S : o->idle_timeout_ns;
    o->progress_timeout_ns = o->progress_timeout_ns == 0 ? 60 * NS_PER_S : o->progress_timeout_ns;
    o->body_rate_min = o->body_rate_min == 0 ? 1024 : o->body_rate_min;
}

enum err http_server_start(const struct http_server_options *o, struct http_server **out)
{
    ASSERT(o->handler != NULL && o->listen_fd >= 0);
    struct http_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return ERR_NO_MEMORY;
    }
    s->magic = SERVER_MAGIC;
    s->options = *o;
    options_default(&s->options);
    s->io = reactor_io(reactor_current());
    list_init(&s->connections);
    list_init(&s->connections_free);
    event_init(&s->is_drained);
    group_init(&s->fibers);
    timer_init(&s->accept_retry, accept_retry_fired);
    if (o->tls != NULL) {
        s->tls_scratch = malloc(TLS_SCRATCH_BYTES);
    }
    if ((o->tls != NULL && s->tls_scratch == NULL) ||
        !s->io->ops->recv_pool(s->io, HTTP_RECV_BUFFERS, HTTP_RECV_BUFFER_BYTES)) {
        LOG_ERROR("http_start_failed", "reason=\"no memory for receive buffers\"");
        free(s->tls_scratch);
        free(s);
        return ERR_NO_MEMORY;
    }
    accept_start(s);
    *out = s;
    return OK;
}

// Idle connections and those that have no request yet end at once; the others end by themselves
// after their response.
static void connections_stop(struct http_server *s)
{
    LIST_FOREACH_SAFE (node, &s->connections) {
        struct connection *c = CONTAINER_OF(node, struct connection, node);
        if (c->state == CONNECTION_IDLE || c->state == CONNECTION_HEAD) {
            connection_finish(c, false);
        } else if (c->state == CONNECTION_HANDSHAKE) {
            connection_close(c);
        }
    }
}

static void connections_kill(struct http_server *s)
{
    group_cancel(&s->fibers);
    LIST_FOREACH_SAFE (node, &s->connections) {
        struct connection *c = CONTAINER_OF(node, struct connection, node);
        if (c->state == CONNECTION_SERVING) {
            connection_fail(c, ERR_CANCELLED);
        } else {
            connection_reset(c);
        }
    }
}

static void server_destroy(struct http_server *s)
{
    socket_close(s->options.listen_fd);
    struct list *node;
    while ((node = list_pop_head(&s->connections_free)) != NULL) {
        free(CONTAINER_OF(node, struct connection, node));
    }
    while (s->exchanges_free != NULL) {
        struct exchange *e = s->exchanges_free;
        s->exchanges_free = e->next_free;
        arena_deinit(&e->x.arena);
        free(e);
    }
    group_deinit(&s->fibers);
    free(s->tls_scratch);
    s->magic = 0;
    free(s);
}

MAY_WAIT void http_server_stop(struct http_server *s, u64 deadline_ns)
{
    ASSERT_MAGIC(s, SERVER_MAGIC);
    ASSERT(!s->is_stopping && reactor_io(reactor_current()) == s->io);
    s->is_stopping = true;
    timer_disarm(&s->accept_retry);
    if (s->accept_op.state == IO_IN_FLIGHT) {
        s->accept_cancel_op.kind = IO_CANCEL;
        s->accept_cancel_op.target = &s->accept_op;
        s->accept_cancel_op.done = accept_cancel_done;
        io_submit(s->io, &s->accept_cancel_op);
    } else {
        s->is_accept_done = true;
    }
    connections_stop(s);
    drained_check(s);
    u64 previous_ns = fiber_set_deadline(MAX(deadline_ns, (u64)1));
    enum err e = event_wait(&s->is_drained);
    (void)fiber_set_deadline(previous_ns);
    if (e != OK) {
        LOG_INFO("http_stop_forced", "connections=%u", s->connection_count);
        connections_kill(s);
        event_wait_certain(&s->is_drained);
    }
    group_join(&s->fibers);
    server_destroy(s);
}
