// SPDX-License-Identifier: Apache-2.0
#include "fake_http.h"

#include <string.h>

#include "base/text.h"

// The next line without its end.
static struct bytes next_line(struct bytes *text)
{
    const u8 *end = text->len == 0 ? NULL : memchr(text->data, '\n', text->len);
    struct bytes line = BYTES(text->data, end ? (size_t)(end - text->data) : text->len);
    *text = end == NULL ? BYTES_NONE : bytes_skip(*text, line.len + 1);
    return line;
}

static enum http_method method_of(struct bytes text)
{
    static const char *const names[] = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (bytes_equal(text, bytes_from_string(names[i]))) {
            return (enum http_method)i;
        }
    }
    return HTTP_METHOD_OTHER;
}

bool fake_http_init(struct fake_http *f, struct s3 *s3, struct bytes head, struct bytes body)
{
    memset(f, 0, sizeof(*f));
    arena_init(&f->x.arena, HTTP_REQUEST_ARENA_MAX);
    f->s3 = s3;
    f->body = body;
    struct bytes first = next_line(&head);
    const u8 *space = first.len == 0 ? NULL : memchr(first.data, ' ', first.len);
    if (space == NULL) {
        return false;
    }
    f->x.method_text = BYTES(first.data, (size_t)(space - first.data));
    f->x.method = method_of(f->x.method_text);
    f->x.target = bytes_skip(first, f->x.method_text.len + 1);
    f->x.path = f->x.target;
    const u8 *q = f->x.target.len == 0 ? NULL : memchr(f->x.target.data, '?', f->x.target.len);
    if (q != NULL) {
        f->x.path.len = (size_t)(q - f->x.target.data);
        f->x.query = BYTES(q + 1, f->x.target.len - f->x.path.len - 1);
    }
    f->x.headers = f->headers;
    while (head.len > 0 && f->x.header_count < HTTP_HEADERS_MAX) {
        struct bytes line = next_line(&head);
        const u8 *colon = line.len == 0 ? NULL : memchr(line.data, ':', line.len);
        if (colon == NULL) {
            return false;
        }
        struct http_header *h = &f->headers[f->x.header_count++];
        h->name = BYTES(line.data, (size_t)(colon - line.data));
        h->value = BYTES(colon + 1, line.len - h->name.len - 1);
        while (h->value.len > 0 && h->value.data[0] == ' ') {
            h->value = BYTES(h->value.data + 1, h->value.len - 1);
        }
    }
    struct bytes length = http_header_get(&f->x, "content-length");
    f->x.has_content_length = u64_parse(length, INT64_MAX, &f->x.content_length);
    f->rq.s3 = s3;
    f->rq.x = &f->x;
    f->rq.arena = &f->x.arena;
    f->rq.op = S3_OP_COUNT;
    return true;
}

void fake_http_deinit(struct fake_http *f)
{
    arena_deinit(&f->x.arena);
}

void fake_s3_init(struct s3 *s, struct s3_core *core, const char *access_key,
                  const char *secret_key, const char *domain)
{
    memset(s, 0, sizeof(*s));
    memset(core, 0, sizeof(*core));
    s->magic = S3_MAGIC;
    s->core = core;
    s->cores = 1;
    s->credential_count = 1;
    strcpy(s->credentials[0].access_key, access_key);
    strcpy(s->credentials[0].secret_key, secret_key);
    strcpy(s->region, "us-east-1");
    if (domain != NULL) {
        strcpy(s->domains[0], domain);
        s->domain_count = 1;
    }
}

// ---- the functions of net/http.h and core/reactor.h that the edge's pure parts call

struct bytes http_header_get(const struct http_exchange *x, const char *name)
{
    for (u32 i = 0; i < x->header_count; i++) {
        if (bytes_equal_nocase(x->headers[i].name, bytes_from_string(name))) {
            return x->headers[i].value;
        }
    }
    return BYTES_NONE;
}

enum err http_body_read(struct http_exchange *x, void *buf, size_t cap, size_t *out)
{
    struct fake_http *f = CONTAINER_OF(x, struct fake_http, x);
    size_t n = MIN(cap, f->body.len - f->body_at);
    n = f->read_max > 0 ? MIN(n, f->read_max) : n;
    if (n > 0) {
        memcpy(buf, f->body.data + f->body_at, n);
    }
    f->body_at += n;
    *out = n;
    return OK;
}

void http_response_header(struct http_exchange *x, const char *name, struct bytes value)
{
    (void)x;
    (void)name;
    (void)value;
}

void http_response_header_text(struct http_exchange *x, const char *name, const char *value)
{
    http_response_header(x, name, bytes_from_string(value));
}

void http_response_header_u64(struct http_exchange *x, const char *name, u64 value)
{
    (void)value;
    http_response_header(x, name, BYTES_NONE);
}

u32 core_id(void)
{
    return 0;
}
