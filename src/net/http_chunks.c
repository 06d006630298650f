// SPDX-License-Identifier: Apache-2.0
// The decoder of chunked framing. Strict: a size is hexadecimal digits and nothing else, lines end
// with CRLF, and what a client may spend on extensions and trailers is bounded. Trailers are
// checked for form and dropped (S3's own trailers travel inside aws-chunked bodies, not here).
#include "net/http_chunks.h"

#include "base/assert.h"

void http_chunks_init(struct http_chunks *c)
{
    *c = (struct http_chunks){.state = CHUNKS_SIZE_FIRST};
}

void http_chunks_take(struct http_chunks *c, u64 n)
{
    ASSERT(c->state == CHUNKS_DATA && n <= c->remaining);
    c->remaining -= n;
    if (c->remaining == 0) {
        c->state = CHUNKS_DATA_CR;
    }
}

static int hex_value(u8 b)
{
    if (b >= '0' && b <= '9') {
        return b - '0';
    }
    u8 lower = b | 0x20;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static bool is_text(u8 b)
{
    return b == '\t' || (b >= 0x20 && b != 0x7f);
}

static bool is_name(u8 b)
{
    return b > 0x20 && b < 0x7f && b != ':';
}

static enum err size_step(struct http_chunks *c, u8 b)
{
    int v = hex_value(b);
    if (v >= 0) {
        if (c->state == CHUNKS_SIZE_FIRST) {
            c->state = CHUNKS_SIZE;
            c->remaining = 0;
            c->digits = 0;
            c->extension_bytes = 0;
        }
        if (++c->digits > HTTP_CHUNK_DIGITS_MAX || c->remaining > (UINT64_MAX >> 5)) {
            return ERR_HTTP_BAD_REQUEST;
        }
        c->remaining = c->remaining * 16 + (u64)v;
        return OK;
    }
    if (c->state == CHUNKS_SIZE && (b == ';' || b == '\r')) {
        c->state = b == ';' ? CHUNKS_EXTENSION : CHUNKS_SIZE_LF;
        return OK;
    }
    return ERR_HTTP_BAD_REQUEST;
}

static enum err extension_step(struct http_chunks *c, u8 b)
{
    if (b == '\r') {
        c->state = CHUNKS_SIZE_LF;
        return OK;
    }
    c->extension_bytes++;
    c->overhead_bytes++;
    bool is_too_long = c->extension_bytes > HTTP_CHUNK_EXTENSION_BYTES_MAX ||
                       c->overhead_bytes > HTTP_CHUNK_OVERHEAD_BYTES_MAX;
    return is_too_long || !is_text(b) ? ERR_HTTP_BAD_REQUEST : OK;
}

static enum err trailer_step(struct http_chunks *c, u8 b)
{
    if (++c->trailer_bytes > HTTP_TRAILER_BYTES_MAX) {
        return ERR_HTTP_BAD_REQUEST;
    }
    if (c->state == CHUNKS_TRAILER_FIRST && b == '\r') {
        c->state = CHUNKS_END_LF;
        return OK;
    }
    if (c->state == CHUNKS_TRAILER_VALUE) {
        if (b == '\r') {
            c->state = CHUNKS_TRAILER_LF;
            return OK;
        }
        return is_text(b) ? OK : ERR_HTTP_BAD_REQUEST;
    }
    if (c->state == CHUNKS_TRAILER_NAME && b == ':') {
        c->state = CHUNKS_TRAILER_VALUE;
        return OK;
    }
    c->state = CHUNKS_TRAILER_NAME;
    return is_name(b) ? OK : ERR_HTTP_BAD_REQUEST;
}

static enum err expect(struct http_chunks *c, u8 b, u8 wanted, enum http_chunks_state next)
{
    c->state = (u8)next;
    return b == wanted ? OK : ERR_HTTP_BAD_REQUEST;
}

static enum err step(struct http_chunks *c, u8 b)
{
    switch ((enum http_chunks_state)c->state) {
    case CHUNKS_SIZE_FIRST:
    case CHUNKS_SIZE:
        return size_step(c, b);
    case CHUNKS_EXTENSION:
        return extension_step(c, b);
    case CHUNKS_SIZE_LF:
        return expect(c, b, '\n', c->remaining > 0 ? CHUNKS_DATA : CHUNKS_TRAILER_FIRST);
    case CHUNKS_DATA_CR:
        return expect(c, b, '\r', CHUNKS_DATA_LF);
    case CHUNKS_DATA_LF:
        return expect(c, b, '\n', CHUNKS_SIZE_FIRST);
    case CHUNKS_TRAILER_FIRST:
    case CHUNKS_TRAILER_NAME:
    case CHUNKS_TRAILER_VALUE:
        return trailer_step(c, b);
    case CHUNKS_TRAILER_LF:
        return expect(c, b, '\n', CHUNKS_TRAILER_FIRST);
    case CHUNKS_END_LF:
        return expect(c, b, '\n', CHUNKS_DONE);
    case CHUNKS_DATA:
    case CHUNKS_DONE:
        break;
    }
    assert_fail(__FILE__, __LINE__, "a chunk decoder fed past its framing");
}

enum err http_chunks_frame(struct http_chunks *c, const u8 *in, size_t len, size_t *used)
{
    size_t i = 0;
    while (i < len && c->state != CHUNKS_DATA && c->state != CHUNKS_DONE) {
        enum err e = step(c, in[i]);
        i++;
        if (e != OK) {
            *used = i;
            return e;
        }
    }
    *used = i;
    return OK;
}
