// SPDX-License-Identifier: Apache-2.0
// Request bodies. What came together with the head is in the exchange's input buffer and is
// consumed first; after that a reader of 4 KiB or more gets the bytes straight from the socket.
#include "net/connection.h"

#include "base/log.h"

static u32 buffered(const struct exchange *e)
{
    return e->in_end - e->in_begin;
}

void body_init(struct exchange *e)
{
    e->is_continue_sent = false;
    e->is_body_broken = false;
    e->body_remaining = e->x.content_length;
    e->is_body_done = !e->x.is_chunked && e->x.content_length == 0;
    if (e->x.is_chunked) {
        http_chunks_init(&e->chunks);
    }
}

// Receives into the input buffer, behind the head.
MAY_WAIT static enum err body_fill(struct exchange *e)
{
    u32 room = input_room(e, HTTP_INPUT_SLACK_BYTES);
    ASSERT(room > 0);
    size_t n = 0;
    TRY(stream_read(e->connection, e->in + e->in_end, room, &n));
    e->in_end += (u32)n;
    return OK;
}

// Reads 1 to cap bytes of those that belong to the body without interruption.
MAY_WAIT static enum err body_take(struct exchange *e, u8 *buf, size_t cap, size_t *out)
{
    if (buffered(e) == 0) {
        if (cap >= HTTP_DIRECT_BYTES_MIN) {
            return stream_read(e->connection, buf, cap, out);
        }
        TRY(body_fill(e));
    }
    size_t n = MIN(cap, (size_t)buffered(e));
    memcpy(buf, e->in + e->in_begin, n);
    e->in_begin += (u32)n;
    *out = n;
    return OK;
}

MAY_WAIT static enum err body_read_sized(struct exchange *e, u8 *buf, size_t cap, size_t *out)
{
    TRY(body_take(e, buf, MIN(cap, e->body_remaining), out));
    e->body_remaining -= *out;
    e->is_body_done = e->body_remaining == 0;
    return OK;
}

MAY_WAIT static enum err body_read_chunked(struct exchange *e, u8 *buf, size_t cap, size_t *out)
{
    while (true) {
        size_t used = 0;
        TRY(http_chunks_frame(&e->chunks, e->in + e->in_begin, buffered(e), &used));
        e->in_begin += (u32)used;
        if (http_chunks_is_done(&e->chunks)) {
            e->is_body_done = true;
            return OK;
        }
        if (http_chunks_is_data(&e->chunks)) {
            TRY(body_take(e, buf, MIN(cap, e->chunks.remaining), out));
            http_chunks_take(&e->chunks, *out);
            return OK;
        }
        TRY(body_fill(e));
    }
}

// The client waits for a word before it sends. If bytes are here already, it did not wait.
MAY_WAIT static enum err continue_send(struct exchange *e)
{
    e->is_continue_sent = true;
    if (buffered(e) > 0 || e->response.is_started) {
        return OK;
    }
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = sizeof(text) - 1};
    return stream_write(e->connection, &iov, 1);
}

MAY_WAIT enum err http_body_read(struct http_exchange *x, void *buf, size_t cap, size_t *out)
{
    struct exchange *e = exchange_of(x);
    *out = 0;
    if (cap == 0) {
        return OK;
    }
    if (e->is_body_broken) {
        return ERR_CLOSED;
    }
    enum err error = OK;
    // Also for an empty body: botocore keeps the state of a final answer that came without
    // "100 Continue" and then waits for ever on the connection's next response.
    if (x->expects_continue && !e->is_continue_sent) {
        error = continue_send(e);
    }
    if (error == OK && e->is_body_done) {
        return OK;
    }
    if (error == OK) {
        error =
            x->is_chunked ? body_read_chunked(e, buf, cap, out) : body_read_sized(e, buf, cap, out);
    }
    if (error != OK) {
        *out = 0;
        e->is_body_broken = true; // where the next request begins is lost
        x->is_keep_alive = false;
        if (error == ERR_PEER_TIMEOUT && e->connection->failure == ERR_PEER_TIMEOUT) {
            e->connection->failure = OK; // the handler may still say so
        }
        if (error == ERR_HTTP_BAD_REQUEST) {
            metric_add(METRIC_HTTP_PARSE_ERRORS, 1);
        }
    }
    return error;
}

MAY_WAIT enum err http_body_read_full(struct http_exchange *x, void *buf, size_t cap, size_t *out)
{
    *out = 0;
    while (*out < cap) {
        size_t n = 0;
        TRY(http_body_read(x, (u8 *)buf + *out, cap - *out, &n));
        if (n == 0) {
            break;
        }
        *out += n;
    }
    return OK;
}

bool http_body_is_done(const struct http_exchange *x)
{
    return exchange_of(x)->is_body_done;
}

MAY_WAIT bool body_drain(struct exchange *e)
{
    if (e->is_body_done) {
        return true;
    }
    if (e->is_body_broken || (!e->x.is_chunked && e->body_remaining > HTTP_DRAIN_BYTES_MAX) ||
        (e->x.expects_continue && !e->is_continue_sent)) {
        return false;
    }
    struct buf *b = buf_get(HTTP_DRAIN_BUFFER_BYTES);
    if (b == NULL) {
        return false;
    }
    size_t total = 0;
    while (!e->is_body_done && total <= HTTP_DRAIN_BYTES_MAX) {
        size_t n = 0;
        if (http_body_read(&e->x, b->data, HTTP_DRAIN_BUFFER_BYTES, &n) != OK) {
            break;
        }
        total += n;
    }
    buf_put(b);
    return e->is_body_done;
}
