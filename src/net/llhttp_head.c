// SPDX-License-Identifier: Apache-2.0
// Runs llhttp (built strict, no leniency) over one request head and collects where its parts lie.
// Nothing is copied: spans point into the head. Bodies are not its business: chunks are decoded by
// net/http_chunks.c, which knows how many bytes may be received straight into the handler's memory.
#include "net/llhttp_head.h"

#include <llhttp/llhttp.h>

#include "base/assert.h"

static struct llhttp_head *head_of(llhttp_t *parser)
{
    return parser->data;
}

// A part may come in several spans; within one buffer they touch.
static int span_extend(struct llhttp_head *h, struct bytes *part, const char *at, size_t len)
{
    if (part->data == NULL) {
        *part = BYTES(at, len);
        return 0;
    }
    if (part->data + part->len != (const u8 *)at) {
        h->error = ERR_HTTP_BAD_REQUEST;
        return -1;
    }
    part->len += len;
    return 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct llhttp_head *h = head_of(parser);
    return span_extend(h, &h->target, at, len);
}

static int on_field(llhttp_t *parser, const char *at, size_t len)
{
    struct llhttp_head *h = head_of(parser);
    if (h->has_value) {
        if (h->header_count == h->headers_max) {
            h->error = ERR_S3_REQUEST_HEADER_TOO_LARGE;
            return -1;
        }
        h->headers[h->header_count] = (struct http_header){0};
        h->header_count++;
        h->has_value = false;
    }
    return span_extend(h, &h->headers[h->header_count - 1].name, at, len);
}

static int on_value(llhttp_t *parser, const char *at, size_t len)
{
    struct llhttp_head *h = head_of(parser);
    if (h->header_count == 0) {
        h->error = ERR_HTTP_BAD_REQUEST;
        return -1;
    }
    return span_extend(h, &h->headers[h->header_count - 1].value, at, len);
}

static int on_value_complete(llhttp_t *parser)
{
    head_of(parser)->has_value = true;
    return 0;
}

// Returns 1: llhttp is not to expect a body, whatever the head announces.
static int on_headers_complete(llhttp_t *parser)
{
    struct llhttp_head *h = head_of(parser);
    h->is_whole = true;
    h->is_keep_alive = llhttp_should_keep_alive(parser) != 0;
    return 1;
}

static const llhttp_settings_t head_settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
};

enum err llhttp_head_parse(struct bytes head, struct llhttp_head *out)
{
    ASSERT(out->headers != NULL && out->headers_max > 0);
    out->header_count = 0;
    out->has_value = true;
    out->target = BYTES_NONE;
    out->is_whole = false;
    out->error = OK;
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &head_settings);
    parser.data = out;
    llhttp_errno_t rc = llhttp_execute(&parser, (const char *)head.data, head.len);
    if (out->error != OK) {
        return out->error;
    }
    if (rc == HPE_INVALID_METHOD) {
        return ERR_S3_METHOD_NOT_ALLOWED;
    }
    // An upgrade that the client asks for is ignored, as HTTP allows.
    if (!out->is_whole || (rc != HPE_OK && rc != HPE_PAUSED_UPGRADE)) {
        return ERR_HTTP_BAD_REQUEST;
    }
    return OK;
}
