// SPDX-License-Identifier: Apache-2.0
// Request heads: finding where one ends, and turning it into the fields of an exchange. No I/O, no
// memory of its own: driven by connections, by unit tests and by the fuzzer alike.
#pragma once

#include "net/http.h"

// Empty lines that may precede a request line (RFC 9112, 2.2: some clients send one after a body).
#define HTTP_LEADING_LINES_MAX 4

// Where the search stands in the bytes given so far; zero-initialised for each head.
struct http_head_scan {
    u32 begin;   // of the request line
    u32 line_at; // of the line that is not yet complete
    u32 scanned; // bytes looked at
    u32 lines;   // complete lines of this head
    u32 leading; // empty lines skipped
};

// Looks for the end of the head in `in`, which begins where it began at the last call and holds
// more. Sets *head to the whole head (with its empty line), or to data NULL when more is needed.
// Line ends are checked here, since llhttp 8.1 lets some bare CR and LF pass:
// ERR_HTTP_BAD_REQUEST for a bare CR or LF, a folded line, too many leading empty lines;
// ERR_HTTP_URI_TOO_LONG; ERR_S3_REQUEST_HEADER_TOO_LARGE past HTTP_HEAD_BYTES_MAX.
enum err http_head_scan(struct http_head_scan *s, struct bytes in, struct bytes *head) NODISCARD;

// Parses a head found by http_head_scan and fills what x says about the request. `headers` has room
// for HTTP_HEADERS_MAX. x then points into both.
// ERR_HTTP_BAD_REQUEST, ERR_HTTP_URI_TOO_LONG, ERR_HTTP_VERSION, ERR_S3_METHOD_NOT_ALLOWED,
// ERR_S3_REQUEST_HEADER_TOO_LARGE, ERR_UNSUPPORTED (a transfer coding other than chunked).
enum err http_head_parse(struct bytes head, struct http_header *headers,
                         struct http_exchange *x) NODISCARD;
