// SPDX-License-Identifier: Apache-2.0
// The life of a request: parse, authenticate, route, answer. Nothing is looked up or changed for a
// request whose signature has not been verified.
#include "s3/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/metrics.h"
#include "codec/hash.h"
#include "s3/auth.h"
#include "s3/s3_private.h"

// Copies a text of 1..cap-1 characters.
static bool text_copy(char *out, size_t cap, const char *from)
{
    size_t len = strlen(from);
    if (len == 0 || len >= cap) {
        return false;
    }
    memcpy(out, from, len + 1);
    return true;
}

enum err s3_create(const struct s3_options *o, u32 cores, struct s3 **out)
{
    ASSERT(o->meta != NULL && o->credential_count > 0);
    ASSERT(o->credential_count <= S3_CREDENTIALS_MAX && o->domain_count <= S3_DOMAINS_MAX);
    struct s3 *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return ERR_NO_MEMORY;
    }
    s->core = aligned_alloc(CACHE_LINE, cores * sizeof(*s->core));
    if (s->core == NULL) {
        free(s);
        return ERR_NO_MEMORY;
    }
    memset(s->core, 0, cores * sizeof(*s->core));
    s->magic = S3_MAGIC;
    s->meta = o->meta;
    s->cores = cores;
    s->credential_count = o->credential_count;
    s->domain_count = o->domain_count;
    core_random(&s->request_salt, sizeof(s->request_salt));
    core_random(&s->xml_salt, sizeof(s->xml_salt));
    bool is_good = text_copy(s->region, sizeof(s->region), o->region);
    for (u32 i = 0; i < o->credential_count; i++) {
        is_good = is_good &&
                  text_copy(s->credentials[i].access_key, sizeof(s->credentials[i].access_key),
                            o->credentials[i].access_key) &&
                  text_copy(s->credentials[i].secret_key, sizeof(s->credentials[i].secret_key),
                            o->credentials[i].secret_key);
    }
    for (u32 i = 0; i < o->domain_count; i++) {
        is_good = is_good && text_copy(s->domains[i], sizeof(s->domains[i]), o->domains[i]);
    }
    if (!is_good) {
        LOG_ERROR("s3_options_invalid",
                  "region, domains and credentials must be 1 to %d characters long",
                  S3_ACCESS_KEY_MAX);
        s3_destroy(s);
        return ERR_INVALID;
    }
    *out = s;
    return OK;
}

void s3_destroy(struct s3 *s)
{
    ASSERT_MAGIC(s, S3_MAGIC);
    s->magic = 0;
    explicit_bzero(s->credentials, sizeof(s->credentials));
    free(s->core);
    free(s);
}

// Sixteen hex digits that no other request of this or another process has, in practice.
static void make_request_id(struct s3_request *rq)
{
    u64 words[2] = {rq->s3->core[core_id()].request_count++, (u64)core_id() << 32 | 1};
    u64 id = hash64(BYTES(words, sizeof(words)), rq->s3->request_salt);
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < S3_REQUEST_ID_CHARS; i++) {
        rq->request_id[i] = digits[id >> (60 - 4 * i) & 15];
    }
    rq->request_id[S3_REQUEST_ID_CHARS] = 0;
}

// A client that says whose bucket it expects is refused when it is somebody else's.
static enum err check_expected_owner(struct s3_request *rq)
{
    static const char *const headers[] = {"x-amz-expected-bucket-owner",
                                          "x-amz-source-expected-bucket-owner"};
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        struct bytes owner = s3_header_get(rq, headers[i]);
        if (owner.data != NULL && !bytes_equal(owner, BYTES_LITERAL(S3_OWNER_ID))) {
            return ERR_S3_ACCESS_DENIED;
        }
    }
    return OK;
}

static MAY_WAIT enum err handle(struct s3_request *rq)
{
    TRY(s3_request_parse(rq));
    if (rq->x->method == HTTP_OPTIONS) {
        // A preflight carries no signature. No bucket has a CORS configuration.
        s3_error_field(rq, "Method", s3_header_get(rq, "access-control-request-method"));
        return s3_fail(rq, ERR_PERMISSION, "CORSResponse: CORS is not enabled for this bucket.");
    }
    enum err e = s3_authenticate(rq);
    if (e != OK) {
        metric_add(METRIC_S3_AUTH_FAILURES, 1);
        return e;
    }
    if (rq->bucket.len > 0 && !bucket_name_is_valid(rq->bucket)) {
        s3_error_field(rq, "BucketName", rq->bucket);
        return ERR_S3_INVALID_BUCKET_NAME;
    }
    TRY(s3_route(rq));
    TRY(check_expected_owner(rq));
    switch (rq->op) {
#define S3_OP(name, handler)                                                                       \
    case S3_OP_##name:                                                                             \
        return handler(rq);
#include "s3/ops.def"
#undef S3_OP
    case S3_OP_COUNT:
        break;
    }
    return ERR_BUG;
}

// Observes how long the request took, by what it was.
static void observe(const struct s3_request *rq)
{
    u64 duration_ns = core_now_ns() - rq->started_ns;
    if (rq->op == S3_OP_GET_OBJECT || rq->op == S3_OP_HEAD_OBJECT) {
        metric_observe_ns(METRIC_S3_GET_NS, duration_ns);
    } else if (rq->op == S3_OP_PUT_OBJECT || rq->op == S3_OP_UPLOAD_PART) {
        metric_observe_ns(METRIC_S3_PUT_NS, duration_ns);
    } else if (rq->op == S3_OP_LIST_OBJECTS || rq->op == S3_OP_LIST_OBJECTS_V2) {
        metric_observe_ns(METRIC_S3_LIST_NS, duration_ns);
    }
}

void s3_handle(void *arg, struct http_exchange *x)
{
    struct s3 *s = arg;
    ASSERT_MAGIC(s, S3_MAGIC);
    metric_add(METRIC_S3_REQUESTS, 1);
    struct s3_request *rq = arena_alloc_zero(&x->arena, sizeof(*rq));
    if (rq == NULL) {
        (void)!http_response_send(x, 503, BYTES_NONE);
        return;
    }
    rq->s3 = s;
    rq->meta = s->meta;
    rq->x = x;
    rq->arena = &x->arena;
    rq->op = S3_OP_COUNT;
    rq->started_ns = core_now_ns();
    rq->wall_ns = core_wall_ns();
    make_request_id(rq);
    enum err e = handle(rq);
    if (e != OK) {
        s3_respond_error(rq, e);
    }
    observe(rq);
}
