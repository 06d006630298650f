// SPDX-License-Identifier: Apache-2.0
// Responses. Headers are written as text the moment the handler gives them, behind room for the
// status line and the server's own headers; so the head is one piece without a second copy, and it
// leaves in one send with the first bytes of the body.
#include "net/connection.h"

#include "base/log.h"
#include "net/status.h"

#define CRLF_BYTES       2
#define CHUNK_LINE_BYTES 20 // 16 digits and two line ends

// Appends to a place that is known to have room.
static u8 *put(u8 *at, const void *from, size_t n)
{
    memcpy(at, from, n);
    return at + n;
}

static u8 *put_text(u8 *at, const char *text)
{
    return put(at, text, strlen(text));
}

static u8 *put_u64(u8 *at, u64 value)
{
    u8 digits[20];
    size_t n = 0;
    do {
        digits[sizeof(digits) - ++n] = (u8)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return put(at, digits + sizeof(digits) - n, n);
}

void response_init(struct exchange *e)
{
    e->response = (struct response){
        .head = e->head_memory,
        .head_capacity = sizeof(e->head_memory),
        .head_end = HTTP_RESPONSE_PREFIX_BYTES,
    };
}

// Room for n more bytes and the empty line; a larger block comes from the request's arena.
static bool head_reserve(struct exchange *e, size_t n)
{
    struct response *r = &e->response;
    size_t need = r->head_end + n + CRLF_BYTES;
    if (LIKELY(need <= r->head_capacity)) {
        return true;
    }
    size_t capacity = MAX(need, (size_t)r->head_capacity * 2);
    u8 *larger = need > HTTP_RESPONSE_HEAD_BYTES_MAX ? NULL : arena_alloc(&e->x.arena, capacity);
    if (larger == NULL) {
        r->is_overflow = true;
        return false;
    }
    memcpy(larger, r->head, r->head_end);
    r->head = larger;
    r->head_capacity = (u32)capacity;
    return true;
}

void http_response_header(struct http_exchange *x, const char *name, struct bytes value)
{
    struct exchange *e = exchange_of(x);
    struct response *r = &e->response;
    ASSERT(!r->is_started);
    size_t name_len = strlen(name);
    if (r->is_overflow || value.len > HTTP_RESPONSE_HEAD_BYTES_MAX ||
        !head_reserve(e, name_len + value.len + 4)) {
        r->is_overflow = true;
        return;
    }
    u8 *at = put(r->head + r->head_end, name, name_len);
    at = put(at, ": ", 2);
    for (size_t i = 0; i < value.len; i++) {
        u8 c = value.data[i];
        *at++ = (c < 0x20 && c != '\t') || c == 0x7f ? ' ' : c;
    }
    at = put(at, "\r\n", CRLF_BYTES);
    r->head_end = (u32)(at - r->head);
}

void http_response_header_text(struct http_exchange *x, const char *name, const char *value)
{
    http_response_header(x, name, bytes_from_string(value));
}

void http_response_header_u64(struct http_exchange *x, const char *name, u64 value)
{
    u8 text[20];
    http_response_header(x, name, BYTES(text, (size_t)(put_u64(text, value) - text)));
}

// What the server itself says about a response.
struct prefix {
    u32 status;
    u64 length;
    bool has_length;
    bool is_chunked;
    bool is_keep_alive;
    bool is_http_1_0;
};

// Writes the prefix so that it ends at `end`; returns where it begins.
static u8 *prefix_write(struct http_server *s, const struct prefix *p, u8 *end)
{
    u8 text[HTTP_RESPONSE_PREFIX_BYTES];
    u8 *at = put_text(text, "HTTP/1.1 ");
    at = put_u64(at, p->status);
    at = put_text(at, " ");
    at = put_text(at, status_phrase(p->status));
    at = put_text(at, "\r\n");
    at = put_text(at, server_date(s));
    if (p->is_chunked) {
        at = put_text(at, "Transfer-Encoding: chunked\r\n");
    } else if (p->has_length) {
        at = put_text(at, "Content-Length: ");
        at = put_u64(at, p->length);
        at = put_text(at, "\r\n");
    }
    if (!p->is_keep_alive) {
        at = put_text(at, "Connection: close\r\n");
    } else if (p->is_http_1_0) {
        at = put_text(at, "Connection: keep-alive\r\n");
    }
    size_t n = (size_t)(at - text);
    ASSERT(n <= sizeof(text));
    memcpy(end - n, text, n);
    return end - n;
}

// The connection must end when the rest of the request cannot be read away, or when the client may
// or may not send a body that was never asked for.
static bool must_close(const struct exchange *e)
{
    if (e->connection->server->is_stopping || e->is_body_broken) {
        return true;
    }
    // Also when the body is empty: see http_body_read about what clients make of it.
    if (e->x.expects_continue && !e->is_continue_sent) {
        return true;
    }
    return !e->is_body_done && !e->x.is_chunked && e->body_remaining > HTTP_DRAIN_BYTES_MAX;
}

enum err http_response_start(struct http_exchange *x, u32 status, u64 content_length)
{
    struct exchange *e = exchange_of(x);
    struct response *r = &e->response;
    ASSERT(!r->is_started && status >= 200 && status <= 599);
    if (r->is_overflow) {
        LOG_WARN("http_response_head_too_large", "peer=%s", x->peer);
        response_init(e);
        return ERR_LIMIT_REACHED;
    }
    bool is_bare = status == 204 || status == 304;
    bool is_streamed = content_length == HTTP_LENGTH_CHUNKED;
    r->has_no_body = is_bare || x->method == HTTP_HEAD;
    r->is_chunked = is_streamed && !x->is_http_1_0 && !is_bare;
    r->length = content_length;
    if (must_close(e) || (is_streamed && x->is_http_1_0 && !r->has_no_body)) {
        x->is_keep_alive = false;
    }
    struct prefix p = {
        .status = status,
        .length = content_length,
        .has_length = !is_streamed && !is_bare,
        .is_chunked = r->is_chunked,
        .is_keep_alive = x->is_keep_alive,
        .is_http_1_0 = x->is_http_1_0,
    };
    u8 *begin = prefix_write(e->connection->server, &p, r->head + HTTP_RESPONSE_PREFIX_BYTES);
    r->head_begin = (u32)(begin - r->head);
    put(r->head + r->head_end, "\r\n", CRLF_BYTES);
    r->head_end += CRLF_BYTES;
    r->is_started = true;
    x->status = status;
    return OK;
}

// Sends the head, if it is not yet sent, and up to three more pieces.
MAY_WAIT static enum err response_push(struct exchange *e, const struct iovec *more, u32 count)
{
    struct response *r = &e->response;
    struct iovec iov[HTTP_IOV_MAX];
    u32 n = 0;
    if (!r->is_head_sent) {
        r->is_head_sent = true;
        iov[n++] = (struct iovec){.iov_base = r->head + r->head_begin,
                                  .iov_len = r->head_end - r->head_begin};
    }
    ASSERT(n + count <= HTTP_IOV_MAX);
    for (u32 i = 0; i < count; i++) {
        iov[n++] = more[i];
    }
    return stream_write(e->connection, iov, n);
}

static struct iovec iov_of(const void *data, size_t len)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = len};
}

static u8 *put_hex(u8 *at, u64 value)
{
    int shift = 60;
    while (shift > 0 && (value >> shift) == 0) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        *at++ = (u8) "0123456789abcdef"[(value >> shift) & 15];
    }
    return at;
}

MAY_WAIT enum err http_response_write(struct http_exchange *x, struct bytes data)
{
    struct exchange *e = exchange_of(x);
    struct response *r = &e->response;
    ASSERT(r->is_started);
    if (e->is_aborted) {
        return ERR_CLOSED;
    }
    ASSERT(r->length == HTTP_LENGTH_CHUNKED || data.len <= r->length - r->written);
    r->written += data.len;
    if (data.len == 0 || r->has_no_body) {
        return OK;
    }
    x->response_bytes += data.len;
    if (!r->is_chunked) {
        struct iovec body = iov_of(data.data, data.len);
        return response_push(e, &body, 1);
    }
    u8 line[CHUNK_LINE_BYTES];
    u8 *at = put(put_hex(line, data.len), "\r\n", CRLF_BYTES);
    struct iovec chunk[] = {
        iov_of(line, (size_t)(at - line)),
        iov_of(data.data, data.len),
        iov_of("\r\n", CRLF_BYTES),
    };
    return response_push(e, chunk, ARRAY_LEN(chunk));
}

MAY_WAIT enum err http_response_send(struct http_exchange *x, u32 status, struct bytes body)
{
    TRY(http_response_start(x, status, body.len));
    return http_response_write(x, body);
}

bool http_response_is_started(const struct http_exchange *x)
{
    return exchange_of(x)->response.is_started;
}

void http_response_abort(struct http_exchange *x)
{
    exchange_of(x)->is_aborted = true;
    x->is_keep_alive = false;
}

static size_t error_body(struct http_server *s, enum err error, u8 *out, size_t cap)
{
    size_t n = s->options.error_body == NULL
                   ? 0
                   : s->options.error_body(s->options.arg, error, (char *)out, cap);
    ASSERT(n <= cap);
    return n;
}

struct bytes response_error_format(struct exchange *e, enum err error)
{
    struct http_server *s = e->connection->server;
    static const char type[] = "Content-Type: application/xml\r\n\r\n";
    // The input is given up, so its buffer serves: room for the prefix, headers, body.
    u8 *headers = e->in + HTTP_RESPONSE_PREFIX_BYTES;
    u8 *body = headers + sizeof(type) - 1;
    static_assert(HTTP_INPUT_BYTES >=
                      HTTP_RESPONSE_PREFIX_BYTES + sizeof(type) + HTTP_ERROR_BODY_BYTES_MAX,
                  "an error response fits into an input buffer");
    size_t n = error_body(s, error, body, HTTP_ERROR_BODY_BYTES_MAX);
    memcpy(headers, type, sizeof(type) - 1);
    struct prefix p = {
        .status = (u32)err_info(error)->http_status,
        .length = n,
        .has_length = true,
    };
    if (n == 0) {
        headers = body - CRLF_BYTES; // without the type
    }
    u8 *begin = prefix_write(s, &p, headers);
    return BYTES(begin, (size_t)(body + n - begin));
}

// A handler that answered nothing.
MAY_WAIT static enum err response_default(struct exchange *e)
{
    LOG_ERROR("http_handler_silent", "peer=%s method=%.*s", e->x.peer,
              BYTES_PRINTF(e->x.method_text));
    response_init(e);
    u8 body[HTTP_ERROR_BODY_BYTES_MAX];
    size_t n = error_body(e->connection->server, ERR_BUG, body, sizeof(body));
    if (n > 0) {
        http_response_header_text(&e->x, "Content-Type", "application/xml");
    }
    return http_response_send(&e->x, 500, BYTES(body, n));
}

MAY_WAIT enum err response_finish(struct exchange *e)
{
    struct response *r = &e->response;
    if (e->is_aborted) {
        return ERR_CLOSED;
    }
    if (!r->is_started) {
        TRY(response_default(e));
    }
    if (r->length != HTTP_LENGTH_CHUNKED && !r->has_no_body && r->written < r->length) {
        // The client must not take it for whole: the connection is reset.
        if (e->connection->failure == OK) {
            LOG_ERROR("http_response_short", "peer=%s written=%llu promised=%llu", e->x.peer,
                      (unsigned long long)r->written, (unsigned long long)r->length);
        }
        return ERR_BUG;
    }
    if (r->is_chunked && !r->has_no_body) {
        struct iovec end = iov_of("0\r\n\r\n", 5);
        return response_push(e, &end, 1);
    }
    return r->is_head_sent ? e->connection->failure : response_push(e, NULL, 0);
}
