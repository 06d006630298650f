// SPDX-License-Identifier: Apache-2.0
// aws-chunked:  size[;chunk-signature=hex] CRLF data CRLF ... 0[;chunk-signature=hex] CRLF
//               [name:value CRLF ...] [x-amz-trailer-signature:hex CRLF] CRLF
// Chunk data is read straight into the caller's buffer; only lines pass through the small
// look-ahead.
#include "s3/body.h"

#include <string.h>

#include "base/text.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// A number of bytes given in a header that must be one.
static enum err parse_length(struct s3_request *rq, const char *name, struct bytes text, u64 *out)
{
    if (!u64_parse(text, INT64_MAX, out)) {
        return s3_fail_argument(rq, name, text, "The length must be a whole number of bytes.");
    }
    return OK;
}

enum err s3_body_init(struct s3_body *b, struct s3_request *rq, u64 size_max)
{
    *b = (struct s3_body){.rq = rq, .size = S3_SIZE_UNKNOWN, .state = S3_BODY_PLAIN};
    enum s3_payload p = rq->auth.payload;
    bool is_framed = p != S3_PAYLOAD_UNSIGNED && p != S3_PAYLOAD_SIGNED;
    if (is_framed) {
        struct bytes decoded = s3_header_get(rq, "x-amz-decoded-content-length");
        if (decoded.data == NULL) {
            return ERR_S3_MISSING_CONTENT_LENGTH;
        }
        TRY(parse_length(rq, "x-amz-decoded-content-length", decoded, &b->size));
        b->state = S3_BODY_HEAD;
        b->is_chunk_signed = p != S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER;
        b->has_trailer = p != S3_PAYLOAD_CHUNKS_SIGNED;
        memcpy(b->previous, rq->auth.signature, sizeof(b->previous));
    } else if (rq->x->has_content_length) {
        b->size = rq->x->content_length;
    } else if (!rq->x->is_chunked) {
        return ERR_S3_MISSING_CONTENT_LENGTH;
    }
    if (b->size != S3_SIZE_UNKNOWN && b->size > size_max) {
        return ERR_S3_ENTITY_TOO_LARGE;
    }
    if (p == S3_PAYLOAD_SIGNED || b->is_chunk_signed) {
        sha256_init(&b->sha);
    }
    return OK;
}

// What a failed read of the connection means to the client.
static enum err body_error(enum err e)
{
    if (e == ERR_CLOSED) {
        return ERR_S3_INCOMPLETE_BODY;
    }
    return e == ERR_PEER_TIMEOUT ? ERR_S3_REQUEST_TIMEOUT : e;
}

// Raw bytes, from the look-ahead first.
static MAY_WAIT enum err raw_read(struct s3_body *b, void *buf, size_t cap, size_t *out)
{
    if (b->ahead_at < b->ahead_len) {
        size_t n = MIN(cap, (size_t)(b->ahead_len - b->ahead_at));
        memcpy(buf, b->ahead + b->ahead_at, n);
        b->ahead_at += (u32)n;
        *out = n;
        return OK;
    }
    enum err e = http_body_read(b->rq->x, buf, cap, out);
    return e == OK ? OK : body_error(e);
}

// The next line without its CRLF; valid until the next read.
static MAY_WAIT enum err raw_line(struct s3_body *b, struct bytes *out)
{
    while (true) {
        u8 *start = b->ahead + b->ahead_at;
        size_t have = b->ahead_len - b->ahead_at;
        u8 *end = have == 0 ? NULL : memchr(start, '\n', have);
        if (end != NULL) {
            size_t len = (size_t)(end - start);
            if (len == 0 || start[len - 1] != '\r') {
                return s3_fail(b->rq, ERR_S3_INVALID_REQUEST,
                               "The chunked body is malformed: a line must end with CRLF.");
            }
            b->ahead_at += (u32)len + 1;
            *out = BYTES(start, len - 1);
            return OK;
        }
        if (have >= S3_CHUNK_LINE_MAX) {
            return s3_fail(b->rq, ERR_S3_INVALID_REQUEST,
                           "The chunked body is malformed: a chunk header is too long.");
        }
        memmove(b->ahead, start, have);
        b->ahead_at = 0;
        b->ahead_len = (u32)have;
        size_t n = 0;
        enum err e = http_body_read(b->rq->x, b->ahead + have, sizeof(b->ahead) - have, &n);
        if (e != OK) {
            return body_error(e);
        }
        if (n == 0) {
            return ERR_S3_INCOMPLETE_BODY;
        }
        b->ahead_len += (u32)n;
    }
}

// HMAC over kind, date, scope, the previous signature and the given tail; becomes the previous one.
static bool signature_next(struct s3_body *b, struct bytes kind, struct bytes tail,
                           const char *claimed)
{
    const struct s3_auth *a = &b->rq->auth;
    struct sha256 ctx;
    u8 digest[SHA256_LEN];
    struct bytes newline = BYTES_LITERAL("\n");
    hmac_sha256_start(&a->signing_key, &ctx);
    const struct bytes lines[] = {kind, bytes_from_string(a->date), a->scope,
                                  BYTES(b->previous, 64)};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        sha256_update(&ctx, lines[i]);
        sha256_update(&ctx, newline);
    }
    sha256_update(&ctx, tail);
    hmac_sha256_finish(&a->signing_key, &ctx, digest);
    hex_encode(BYTES(digest, SHA256_LEN), b->previous);
    return digest_equal(b->previous, claimed, 64);
}

// The chunk's data is complete: its signature must match.
static enum err chunk_verify(struct s3_body *b)
{
    if (!b->is_chunk_signed) {
        return OK;
    }
    u8 digest[SHA256_LEN];
    char tail[64 + 1 + 64 + 1];
    sha256_final(&b->sha, digest);
    memcpy(tail, EMPTY_SHA256 "\n", 65);
    hex_encode(BYTES(digest, SHA256_LEN), tail + 65);
    sha256_init(&b->sha);
    return signature_next(b, BYTES_LITERAL("AWS4-HMAC-SHA256-PAYLOAD"), BYTES(tail, 129),
                          b->chunk_signature)
               ? OK
               : ERR_S3_SIGNATURE_MISMATCH;
}

static enum err chunk_head_parse(struct s3_body *b, struct bytes line)
{
    u64 size = 0;
    size_t at = 0;
    for (; at < line.len && at < 16 && line.data[at] != ';'; at++) {
        u8 c = line.data[at];
        u8 low = (u8)(c | 0x20);
        bool is_digit = c >= '0' && c <= '9';
        if (!is_digit && (low < 'a' || low > 'f')) {
            break;
        }
        size = size << 4 | (u64)(is_digit ? c - '0' : low - 'a' + 10);
    }
    struct bytes rest = bytes_skip(line, at);
    struct bytes tag = BYTES_LITERAL(";chunk-signature=");
    if (at == 0 || size > INT64_MAX || (rest.len > 0 && rest.data[0] != ';')) {
        return s3_fail(b->rq, ERR_S3_INVALID_REQUEST,
                       "The chunked body is malformed: a chunk size is not a hexadecimal number.");
    }
    if (b->is_chunk_signed) {
        if (rest.len != tag.len + 64 || !bytes_has_prefix(rest, tag)) {
            return ERR_S3_SIGNATURE_MISMATCH;
        }
        memcpy(b->chunk_signature, rest.data + tag.len, 64);
    }
    if (size > b->size - b->received) {
        return s3_fail(b->rq, ERR_S3_INCOMPLETE_BODY,
                       "The chunks are longer than x-amz-decoded-content-length.");
    }
    b->chunk_left = size;
    return OK;
}

// Keeps one "name:value" line; the signature of the trailer is taken out.
static enum err trailer_keep(struct s3_body *b, struct bytes line, struct sha256 *canonical,
                             char signature[65])
{
    const u8 *colon = memchr(line.data, ':', line.len);
    if (colon == NULL || colon == line.data) {
        return ERR_S3_MALFORMED_TRAILER;
    }
    struct bytes name = BYTES(line.data, (size_t)(colon - line.data));
    struct bytes value = bytes_skip(line, name.len + 1);
    while (value.len > 0 && value.data[0] == ' ') {
        value = bytes_skip(value, 1);
    }
    while (value.len > 0 && value.data[value.len - 1] == ' ') {
        value.len--;
    }
    if (bytes_equal_nocase(name, BYTES_LITERAL("x-amz-trailer-signature"))) {
        if (value.len != 64) {
            return ERR_S3_SIGNATURE_MISMATCH;
        }
        memcpy(signature, value.data, 64);
        return OK;
    }
    if (b->trailer_count == S3_TRAILERS_MAX) {
        return ERR_S3_MALFORMED_TRAILER;
    }
    struct bytes kept_name = arena_copy(b->rq->arena, name);
    struct bytes kept_value = arena_copy(b->rq->arena, value);
    if (kept_name.data == NULL || kept_value.data == NULL) {
        return ERR_NO_MEMORY;
    }
    bytes_lower((u8 *)(uintptr_t)kept_name.data, kept_name.len);
    b->trailers[b->trailer_count++] =
        (struct s3_error_field){(const char *)kept_name.data, kept_value};
    sha256_update(canonical, kept_name);
    sha256_update(canonical, BYTES_LITERAL(":"));
    sha256_update(canonical, kept_value);
    sha256_update(canonical, BYTES_LITERAL("\n"));
    return OK;
}

static MAY_WAIT enum err trailer_read(struct s3_body *b)
{
    struct sha256 canonical;
    char signature[65] = {0};
    size_t bytes = 0;
    sha256_init(&canonical);
    while (true) {
        struct bytes line;
        TRY(raw_line(b, &line));
        if (line.len == 0) {
            break;
        }
        bytes += line.len;
        if (bytes > S3_TRAILER_BYTES_MAX || !b->has_trailer) {
            return ERR_S3_MALFORMED_TRAILER;
        }
        TRY(trailer_keep(b, line, &canonical, signature));
    }
    if (b->is_chunk_signed && b->has_trailer) {
        u8 digest[SHA256_LEN];
        char tail[65];
        sha256_final(&canonical, digest);
        hex_encode(BYTES(digest, SHA256_LEN), tail);
        if (!signature_next(b, BYTES_LITERAL("AWS4-HMAC-SHA256-TRAILER"), BYTES(tail, 64),
                            signature)) {
            return ERR_S3_SIGNATURE_MISMATCH;
        }
    }
    // Nothing may follow.
    u8 extra;
    size_t n = 0;
    TRY(raw_read(b, &extra, 1, &n));
    return n == 0 ? OK
                  : s3_fail(b->rq, ERR_S3_INVALID_REQUEST, "The chunked body has trailing bytes.");
}

static MAY_WAIT enum err plain_read(struct s3_body *b, void *buf, size_t cap, size_t *out)
{
    enum err e = http_body_read(b->rq->x, buf, cap, out);
    if (e != OK) {
        return body_error(e);
    }
    bool is_signed = b->rq->auth.payload == S3_PAYLOAD_SIGNED;
    if (*out > 0) {
        b->received += *out;
        if (is_signed) {
            sha256_update(&b->sha, BYTES(buf, *out));
        }
        return b->received > META_PUT_BYTES_MAX ? ERR_S3_ENTITY_TOO_LARGE : OK;
    }
    b->state = S3_BODY_END;
    if (b->size != S3_SIZE_UNKNOWN && b->received != b->size) {
        return ERR_S3_INCOMPLETE_BODY;
    }
    if (is_signed) {
        u8 digest[SHA256_LEN];
        sha256_final(&b->sha, digest);
        if (!digest_equal(digest, b->rq->auth.payload_sha256, SHA256_LEN)) {
            return ERR_S3_SHA256_MISMATCH;
        }
    }
    return OK;
}

// The next chunk's header; at the last one everything up to the end.
static MAY_WAIT enum err framed_head(struct s3_body *b)
{
    struct bytes line;
    TRY(raw_line(b, &line));
    TRY(chunk_head_parse(b, line));
    if (b->chunk_left > 0) {
        b->state = S3_BODY_DATA;
        return OK;
    }
    TRY(chunk_verify(b));
    TRY(trailer_read(b));
    if (b->received != b->size) {
        return ERR_S3_INCOMPLETE_BODY;
    }
    b->state = S3_BODY_END;
    return OK;
}

static MAY_WAIT enum err framed_data_end(struct s3_body *b)
{
    struct bytes line;
    TRY(chunk_verify(b));
    TRY(raw_line(b, &line));
    if (line.len != 0) {
        return s3_fail(b->rq, ERR_S3_INVALID_REQUEST,
                       "The chunked body is malformed: a chunk is longer than it says.");
    }
    b->state = S3_BODY_HEAD;
    return OK;
}

enum err s3_body_read(struct s3_body *b, void *buf, size_t cap, size_t *out)
{
    ASSERT(cap > 0);
    *out = 0;
    while (true) {
        switch (b->state) {
        case S3_BODY_PLAIN:
            return plain_read(b, buf, cap, out);
        case S3_BODY_HEAD:
            TRY(framed_head(b));
            break;
        case S3_BODY_DATA: {
            size_t n = 0;
            TRY(raw_read(b, buf, (size_t)MIN((u64)cap, b->chunk_left), &n));
            if (n == 0) {
                return ERR_S3_INCOMPLETE_BODY;
            }
            if (b->is_chunk_signed) {
                sha256_update(&b->sha, BYTES(buf, n));
            }
            b->received += n;
            b->chunk_left -= n;
            b->state = b->chunk_left == 0 ? S3_BODY_DATA_END : S3_BODY_DATA;
            *out = n;
            return OK;
        }
        case S3_BODY_DATA_END:
            TRY(framed_data_end(b));
            break;
        case S3_BODY_END:
            return OK;
        }
    }
}

struct bytes s3_body_trailer(const struct s3_body *b, const char *name)
{
    for (u32 i = 0; i < b->trailer_count; i++) {
        if (strcmp(b->trailers[i].name, name) == 0) {
            return b->trailers[i].value;
        }
    }
    return BYTES_NONE;
}
