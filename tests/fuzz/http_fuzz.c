// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a client sends on one connection: heads, bodies with a length, chunked bodies,
// one request behind the other, until something is refused. The first byte chooses in what pieces
// they come. Whatever the pieces, the same requests must come out of the same bytes.
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fuzz.h"
#include "net/http_chunks.h"
#include "net/http_parse.h"

// What a connection would have understood.
struct outcome {
    u64 hash;
    u32 requests;
    enum err error;
};

static void outcome_add(struct outcome *o, struct bytes b)
{
    for (size_t i = 0; i < b.len; i++) {
        o->hash = (o->hash ^ b.data[i]) * 1099511628211ull;
    }
    o->hash = (o->hash ^ b.len) * 1099511628211ull;
}

static void assert_inside(struct bytes part, struct bytes whole)
{
    static const char root[] = "/";
    if (part.len > 0 && !(part.len == 1 && part.data[0] == root[0])) {
        ASSERT(part.data >= whole.data && part.data + part.len <= whole.data + whole.len);
    }
}

// What holds for every head that is accepted.
static void request_check(const struct http_exchange *x, struct bytes head)
{
    ASSERT(head.len <= HTTP_HEAD_BYTES_MAX && x->header_count <= HTTP_HEADERS_MAX);
    ASSERT(x->target.len > 0 && x->target.len <= HTTP_TARGET_BYTES_MAX);
    ASSERT(!(x->is_chunked && x->has_content_length));
    ASSERT(x->is_http_1_0 || http_header_count(x, "host") == 1);
    ASSERT(http_header_count(x, "content-length") == (x->has_content_length ? 1 : 0));
    ASSERT(http_header_count(x, "transfer-encoding") == (x->is_chunked ? 1 : 0));
    for (u32 i = 0; i < x->header_count; i++) {
        const struct http_header *h = &x->headers[i];
        assert_inside(h->name, head);
        assert_inside(h->value, head);
        ASSERT(h->name.len > 0 && h->value.data != NULL);
        ASSERT(memchr(h->name.data, ' ', h->name.len) == NULL);
        ASSERT(memchr(h->name.data, ':', h->name.len) == NULL);
        ASSERT(memchr(h->value.data, '\n', h->value.len) == NULL);
        ASSERT(memchr(h->value.data, '\r', h->value.len) == NULL);
        ASSERT(memchr(h->value.data, 0, h->value.len) == NULL);
    }
    assert_inside(x->target, head);
    ASSERT(x->path.len + (x->query.data == NULL ? 0 : x->query.len + 1) == x->target.len);
}

// Consumes a chunked body that begins at in[*at], of which `end` bytes may be seen at most `step`
// more at a time.
static enum err chunked_run(struct outcome *o, struct bytes in, size_t *at, size_t step)
{
    struct http_chunks c;
    http_chunks_init(&c);
    while (*at < in.len && !http_chunks_is_done(&c)) {
        size_t end = MIN(*at + step, in.len);
        size_t used = 0;
        TRY(http_chunks_frame(&c, in.data + *at, end - *at, &used));
        *at += used;
        if (http_chunks_is_data(&c) && *at < end) {
            size_t n = MIN(end - *at, c.remaining);
            for (size_t i = 0; i < n; i++) {
                o->hash = (o->hash ^ in.data[*at + i]) * 1099511628211ull;
            }
            http_chunks_take(&c, n);
            *at += n;
        }
    }
    return http_chunks_is_done(&c) ? OK : ERR_END;
}

static enum err request_run(struct outcome *o, struct bytes in, size_t *at, size_t step)
{
    static struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head_scan scan = {0};
    struct http_exchange x = {0};
    struct bytes head = BYTES_NONE;
    for (size_t n = 0; head.data == NULL; n = MIN(n + step, in.len - *at)) {
        TRY(http_head_scan(&scan, BYTES(in.data + *at, n), &head));
        if (head.data == NULL && n == in.len - *at) {
            return ERR_END;
        }
    }
    TRY(http_head_parse(head, headers, &x));
    request_check(&x, head);
    o->requests++;
    outcome_add(o, x.method_text);
    outcome_add(o, x.target);
    outcome_add(o, x.query);
    for (u32 i = 0; i < x.header_count; i++) {
        outcome_add(o, x.headers[i].name);
        outcome_add(o, x.headers[i].value);
    }
    *at = (size_t)(head.data + head.len - in.data);
    if (x.is_chunked) {
        return chunked_run(o, in, at, step);
    }
    if (x.content_length > in.len - *at) {
        return ERR_END;
    }
    outcome_add(o, BYTES(in.data + *at, x.content_length));
    *at += x.content_length;
    return x.is_keep_alive ? OK : ERR_CLOSED;
}

static struct outcome connection_run(struct bytes in, size_t step)
{
    struct outcome o = {.hash = 14695981039346656037ull};
    size_t at = 0;
    while (o.error == OK && at < in.len) {
        o.error = request_run(&o, in, &at, step);
    }
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    // A copy without the first byte, so that the sanitizer sees every read outside of it.
    struct bytes in = BYTES(malloc(size), size - 1);
    ASSERT(in.data != NULL);
    memcpy((u8 *)(uintptr_t)in.data, data + 1, in.len);
    struct outcome whole = connection_run(in, in.len);
    struct outcome pieces = connection_run(in, (size_t)data[0] + 1);
    ASSERT(whole.requests == pieces.requests && whole.hash == pieces.hash);
    // Which limit an endless line reaches first may depend on the pieces.
    ASSERT(whole.error == pieces.error || size > HTTP_TARGET_BYTES_MAX);
    free((void *)(uintptr_t)in.data);
    return 0;
}
