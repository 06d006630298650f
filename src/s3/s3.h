// SPDX-License-Identifier: Apache-2.0
// The S3 edge: authenticates, routes and answers S3 requests that the HTTP server hands over, by
// means of meta. One `struct s3` a process; what is mutable in it is kept per core.
#pragma once

#include "meta/meta.h"
#include "net/http.h"

#define S3_ACCESS_KEY_MAX  128
#define S3_SECRET_KEY_MAX  128
#define S3_CREDENTIALS_MAX 16
#define S3_DOMAINS_MAX     8

struct s3;

struct s3_credential {
    const char *access_key;
    const char *secret_key;
};

struct s3_options {
    struct meta *meta;
    const struct s3_credential *credentials; // all may do everything
    u32 credential_count;                    // at least 1
    const char *region;                      // "us-east-1"
    const char *const *domains;              // virtual-host style: <bucket>.<domain>; without port
    u32 domain_count;
};

// Copies the options. ERR_INVALID (with a log line) for an empty or too long credential.
NODISCARD enum err s3_create(const struct s3_options *o, u32 cores, struct s3 **out);
void s3_destroy(struct s3 *s);

// http_handler_fn: answers one request. `arg` is the struct s3.
MAY_WAIT void s3_handle(void *arg, struct http_exchange *x);
// http_error_fn: the XML body for a request that could not be parsed.
size_t s3_error_body(void *arg, enum err e, char *out, size_t cap);
