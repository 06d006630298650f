// SPDX-License-Identifier: Apache-2.0
// The first to see a request: answers /-/live, /-/ready and /-/metrics (no signature) and hands all
// else to S3, or answers 503 while the store is not ready. "-" is too short to be a bucket's name,
// so no object lies below /-/ in path style; in virtual-host style, where the path is a key,
// nothing is answered here. What these three tell is fixed below: states and counters, no names and
// no data.
//
// One `struct admin` a process. Its state and the S3 server are kept per core, each copy written by
// its own core (admin_set_state), so a request looks at no memory that another core writes.
#pragma once

#include "net/http.h"
#include "s3/s3.h"

enum admin_state {
    ADMIN_STARTING, // listening, the store is being recovered
    ADMIN_READY,
    ADMIN_DRAINING, // stopping: answers what is under way
};

struct admin;

struct admin_options {
    u32 cores;
    const char *version;
    const char *const *domains; // as given to s3_create; they must outlive the struct
    u32 domain_count;
    u64 started_wall_ns;
};

enum err admin_create(const struct admin_options *o, struct admin **out) NODISCARD;
void admin_destroy(struct admin *a);
// Sets the calling core's copy. `s3` is needed from ADMIN_READY on, until no request is left.
void admin_set_state(struct admin *a, enum admin_state state, struct s3 *s3);

// http_handler_fn and http_error_fn; arg is the struct admin.
MAY_WAIT void admin_handle(void *arg, struct http_exchange *x);
size_t admin_error_body(void *arg, enum err e, char *out, size_t cap);

// True if Host names a bucket: <bucket>.<domain>, with or without a port.
bool admin_host_is_bucket(struct bytes host, const char *const *domains, u32 domain_count);
