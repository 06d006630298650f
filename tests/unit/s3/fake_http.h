// SPDX-License-Identifier: Apache-2.0
// An HTTP exchange made from text, without a connection: for tests and fuzz targets of the S3 edge.
#pragma once

#include "s3/request.h"
#include "s3/s3_private.h"

struct fake_http {
    struct http_exchange x;
    struct http_header headers[HTTP_HEADERS_MAX];
    struct bytes body;
    size_t body_at;
    size_t read_max; // bytes that one read gives at most; 0: all
    struct s3 *s3;   // signing keys of one core
    struct s3_request rq;
};

// `head` is "METHOD target\nname: value\n..."; lines end with \n. False if it is not that. The text
// and the body must outlive the exchange.
bool fake_http_init(struct fake_http *f, struct s3 *s3, struct bytes head, struct bytes body);
void fake_http_deinit(struct fake_http *f);
// A server with one credential, in us-east-1, for virtual hosts below `domain` (may be NULL).
void fake_s3_init(struct s3 *s, struct s3_core *core, const char *access_key,
                  const char *secret_key, const char *domain);
