// SPDX-License-Identifier: Apache-2.0
// The door to llhttp: one whole request head in, spans of it out. The only user of llhttp's names.
#pragma once

#include "base/err.h"
#include "net/http_header.h"

struct llhttp_head {
    struct bytes target;
    struct http_header *headers; // the caller's array
    u32 header_count;
    u32 headers_max;
    bool is_keep_alive; // by the version and the Connection header
    // private
    bool has_value; // the newest header's value has been seen
    bool is_whole;
    enum err error;
};

// `head` ends with the empty line. Fills *out, whose headers and headers_max the caller sets.
// ERR_HTTP_BAD_REQUEST, ERR_S3_METHOD_NOT_ALLOWED (a method llhttp does not know),
// ERR_S3_REQUEST_HEADER_TOO_LARGE (more than headers_max).
enum err llhttp_head_parse(struct bytes head, struct llhttp_head *out) NODISCARD;
