// SPDX-License-Identifier: Apache-2.0
// PutObject, and the way of a body into the store: straight from the connection into the memory
// that is written to the drive, hashed on the way, committed only when every claim held.
#include "s3/object_put.h"

#include <string.h>

#include "core/metrics.h"
#include "s3/headers.h"

static MAY_WAIT enum err receive_body(struct s3_body *body, struct object_writer *w)
{
    while (true) {
        u8 *p;
        size_t room;
        size_t n = 0;
        TRY(object_write_buffer(w, &p, &room));
        TRY(s3_body_read(body, p, room, &n));
        if (n == 0) {
            metric_add(METRIC_S3_BYTES_IN, (i64)body->received);
            return OK;
        }
        TRY(object_write_advance(w, n));
    }
}

static MAY_WAIT enum err verify(struct s3_request *rq, struct s3_receive *r,
                                const struct s3_body *body)
{
    TRY(object_write_digests(r->writer, &r->digests));
    if (r->claim.is_trailer) {
        const char *name = s3_checksum_header((enum checksum_algorithm)r->claim.algorithm);
        TRY(s3_checksum_claim_trailer(rq, &r->claim, s3_body_trailer(body, name)));
    }
    return s3_checksum_claim_check(rq, &r->claim, &r->digests);
}

enum err s3_receive(struct s3_request *rq, struct s3_receive *r)
{
    r->writer = NULL;
    struct s3_body *body = arena_alloc(rq->arena, sizeof(*body));
    if (body == NULL) {
        return ERR_NO_MEMORY;
    }
    TRY(s3_body_init(body, rq, META_PUT_BYTES_MAX));
    u8 algorithm = r->claim.algorithm != CHECKSUM_NONE ? r->claim.algorithm : r->keep_algorithm;
    // The algorithm to keep may differ from the claimed one (a part of an upload with its own).
    u32 wanted = 1u << algorithm | 1u << r->keep_algorithm;
    struct object_write_options o = {
        .bucket = rq->bucket,
        .key = rq->key,
        .size_expected = body->size,
        .checksums = wanted & ~(1u << CHECKSUM_NONE),
        .needs_md5 = true,
        .upload_id = r->upload_id,
        .part_number = r->part_number,
    };
    TRY(object_write_begin(rq->meta, &o, &r->writer));
    enum err e = receive_body(body, r->writer);
    if (e == OK) {
        e = verify(rq, r, body);
    }
    if (e != OK) {
        object_write_abort(r->writer);
        r->writer = NULL;
    }
    return e;
}

struct checksum s3_receive_checksum(const struct s3_receive *r)
{
    u8 a = r->claim.algorithm != CHECKSUM_NONE ? r->claim.algorithm : r->keep_algorithm;
    return s3_checksum_of(&r->digests, a);
}

enum err s3_op_put_object(struct s3_request *rq)
{
    struct s3_attrs attrs;
    struct object_finish f = {0};
    TRY(s3_refuse_unsupported_headers(rq));
    TRY(s3_attrs_from_request(rq, &attrs));
    TRY(s3_write_condition(rq, &f.condition));
    // Objects without a checksum of the client's own get a CRC64NVME, as at AWS.
    struct s3_receive r = {.keep_algorithm = CHECKSUM_CRC64NVME};
    TRY(s3_checksum_claim_parse(rq, &r.claim));
    TRY(s3_receive(rq, &r));
    f.attrs = attrs.list;
    f.attr_count = attrs.count;
    f.checksum = s3_receive_checksum(&r);
    struct object_info info;
    TRY(object_write_finish(r.writer, &f, &info));
    s3_respond_etag(rq, &info.etag);
    s3_checksum_respond(rq, &f.checksum, 0);
    return s3_respond_empty(rq, 200);
}
