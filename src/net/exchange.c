// SPDX-License-Identifier: Apache-2.0
// The fiber that serves requests: started by the machine when a head is whole, it runs the handler
// and goes on with further requests as long as they are buffered already (pipelining); then it
// hands the connection back to the machine and ends.
#include "net/connection.h"

// Gives back what the request took.
static void exchange_end(struct exchange *e)
{
    arena_reset(&e->x.arena);
    e->in_floor = 0;
    struct connection *c = e->connection;
    if (c->tls_buf != NULL) {
        buf_put(c->tls_buf);
        c->tls_buf = NULL;
    }
}

// One request. True when the connection can take another.
MAY_WAIT static bool exchange_run(struct connection *c)
{
    struct exchange *e = c->exchange;
    struct http_server *s = c->server;
    s->options.handler(s->options.arg, &e->x);
    (void)fiber_set_deadline(0);
    enum err error = response_finish(e);
    metric_add(METRIC_HTTP_REQUESTS, 1);
    bool is_drained = error == OK && e->x.is_keep_alive && body_drain(e);
    bool is_unread = !e->is_body_done || e->in_begin < e->in_end;
    bool is_kept = is_drained && e->x.is_keep_alive;
    exchange_end(e);
    if (error != OK || c->failure != OK) {
        connection_reset(c);
        return false;
    }
    if (!is_kept) {
        connection_finish(c, is_unread);
        return false;
    }
    return true;
}

MAY_WAIT void exchange_serve(void *connection)
{
    struct connection *c = connection;
    ASSERT_MAGIC(c, CONNECTION_MAGIC);
    do {
        if (!exchange_run(c)) {
            return;
        }
    } while (connection_continue(c));
}
