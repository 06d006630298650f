// SPDX-License-Identifier: Apache-2.0
// Splitting a request's target and Host into bucket, key and parameters. Everything is decoded once
// and nothing is normalised: "a//b", "..", "%2e" and a trailing "/" are parts of keys.
#include "s3/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codec/percent.h"
#include "s3/s3_private.h"

struct bytes s3_param_get(const struct s3_request *rq, const char *name)
{
    struct bytes wanted = bytes_from_string(name);
    for (u32 i = 0; i < rq->param_count; i++) {
        if (bytes_equal(rq->params[i].name, wanted)) {
            return rq->params[i].value;
        }
    }
    return BYTES_NONE;
}

bool s3_param_has(const struct s3_request *rq, const char *name)
{
    return s3_param_get(rq, name).data != NULL;
}

struct bytes s3_header_get(const struct s3_request *rq, const char *name)
{
    return http_header_get(rq->x, name);
}

// Decodes into the arena; the result's data is never NULL.
static enum err decode(struct s3_request *rq, struct bytes raw, enum percent_plus plus,
                       struct bytes *out)
{
    u8 *p = arena_alloc(rq->arena, raw.len + 1);
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    size_t len = 0;
    TRY(percent_decode(raw, plus, p, raw.len + 1, &len));
    *out = BYTES(p, len);
    return OK;
}

static enum err parse_query(struct s3_request *rq)
{
    struct bytes rest = rq->x->query;
    if (rest.len == 0) {
        return OK;
    }
    u32 count = 1;
    for (size_t i = 0; i < rest.len; i++) {
        count += rest.data[i] == '&';
    }
    if (count > S3_QUERY_MAX) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST, "The request has too many query parameters.");
    }
    rq->params = arena_alloc(rq->arena, count * sizeof(*rq->params));
    if (rq->params == NULL) {
        return ERR_NO_MEMORY;
    }
    while (rest.len > 0) {
        struct bytes pair = bytes_split(&rest, '&');
        if (pair.len == 0) {
            continue;
        }
        const u8 *equals = memchr(pair.data, '=', pair.len);
        size_t name_len = equals == NULL ? pair.len : (size_t)(equals - pair.data);
        struct s3_param *p = &rq->params[rq->param_count];
        TRY(decode(rq, BYTES(pair.data, name_len), PERCENT_PLUS_IS_SPACE, &p->name));
        struct bytes value = equals == NULL ? BYTES(pair.data, 0) : bytes_skip(pair, name_len + 1);
        if (value.data == NULL) {
            value = BYTES(pair.data, 0);
        }
        TRY(decode(rq, value, PERCENT_PLUS_IS_SPACE, &p->value));
        rq->param_count++;
    }
    return OK;
}

// The host without its port.
static struct bytes host_name(struct bytes host)
{
    if (host.len > 0 && host.data[0] == '[') {
        const u8 *end = memchr(host.data, ']', host.len);
        return end == NULL ? host : BYTES(host.data, (size_t)(end - host.data) + 1);
    }
    const u8 *colon = memchr(host.data, ':', host.len);
    return colon == NULL ? host : BYTES(host.data, (size_t)(colon - host.data));
}

// The bucket named by <bucket>.<domain> in Host, or nothing. The bucket may contain dots.
static struct bytes host_bucket(const struct s3_request *rq)
{
    struct bytes host = s3_header_get(rq, "host");
    if (host.len == 0) {
        return BYTES_NONE;
    }
    host = host_name(host);
    for (u32 i = 0; i < rq->s3->domain_count; i++) {
        struct bytes domain = bytes_from_string(rq->s3->domains[i]);
        if (host.len > domain.len + 1 && host.data[host.len - domain.len - 1] == '.' &&
            bytes_equal_nocase(BYTES(host.data + host.len - domain.len, domain.len), domain)) {
            return BYTES(host.data, host.len - domain.len - 1);
        }
    }
    return BYTES_NONE;
}

enum err s3_request_parse(struct s3_request *rq)
{
    struct bytes path = rq->x->path;
    // An absolute-form target ("GET http://host/path") is taken apart by the HTTP server.
    if (path.len == 0 || path.data[0] != '/') {
        return ERR_S3_INVALID_URI;
    }
    TRY(decode(rq, path, PERCENT_PLUS_IS_PLUS, &rq->path));
    TRY(parse_query(rq));
    struct bytes rest = BYTES(rq->path.data + 1, rq->path.len - 1);
    struct bytes from_host = host_bucket(rq);
    if (from_host.len > 0) {
        rq->is_virtual_host = true;
        struct bytes name = arena_copy(rq->arena, from_host);
        if (name.data == NULL) {
            return ERR_NO_MEMORY;
        }
        rq->bucket = name;
        rq->key = rest;
    } else {
        // The raw path decides where the bucket ends: "%2F" in the first segment is part of it.
        struct bytes raw = BYTES(path.data + 1, path.len - 1);
        const u8 *slash = raw.len == 0 ? NULL : memchr(raw.data, '/', raw.len);
        size_t raw_len = slash == NULL ? raw.len : (size_t)(slash - raw.data);
        TRY(decode(rq, BYTES(raw.data, raw_len), PERCENT_PLUS_IS_PLUS, &rq->bucket));
        rq->key = slash == NULL ? BYTES_NONE : bytes_skip(rest, rq->bucket.len + 1);
    }
    if (rq->bucket.len == 0 && rq->key.len > 0) {
        return ERR_S3_INVALID_URI;
    }
    if (rq->key.len > META_KEY_BYTES_MAX) {
        char *size = arena_alloc(rq->arena, 24);
        if (size != NULL) {
            int n = snprintf(size, 24, "%zu", rq->key.len);
            s3_error_field(rq, "Size", BYTES(size, (size_t)n));
            s3_error_field(rq, "MaxSizeAllowed", BYTES_LITERAL("1024"));
        }
        return ERR_S3_KEY_TOO_LONG;
    }
    return OK;
}

enum err s3_fail(struct s3_request *rq, enum err e, const char *message)
{
    rq->error_message = message;
    return e;
}

enum err s3_fail_fmt(struct s3_request *rq, enum err e, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    struct bytes kept = arena_copy(rq->arena, bytes_from_string(text));
    return s3_fail(rq, e, (const char *)kept.data);
}

void s3_error_field(struct s3_request *rq, const char *name, struct bytes value)
{
    if (rq->error_field_count < S3_ERROR_FIELDS_MAX) {
        rq->error_fields[rq->error_field_count++] = (struct s3_error_field){name, value};
    }
}

enum err s3_fail_argument(struct s3_request *rq, const char *name, struct bytes value,
                          const char *message)
{
    s3_error_field(rq, "ArgumentName", bytes_from_string(name));
    s3_error_field(rq, "ArgumentValue", value);
    return s3_fail(rq, ERR_S3_INVALID_ARGUMENT, message);
}
