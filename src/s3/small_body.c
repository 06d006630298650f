// SPDX-License-Identifier: Apache-2.0
#include "s3/small_body.h"

#include "base/endian.h"
#include "codec/crc.h"
#include "s3/body.h"
#include "s3/checksum.h"

// Everything that came, at most `max` bytes.
static MAY_WAIT enum err read_all(struct s3_body *body, size_t max, struct bytes *out)
{
    size_t cap = body->size == S3_SIZE_UNKNOWN ? max : (size_t)body->size;
    u8 *p = arena_alloc(body->rq->arena, cap + 1);
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    size_t len = 0;
    while (true) {
        size_t n = 0;
        TRY(s3_body_read(body, p + len, cap + 1 - len, &n));
        len += n;
        if (n == 0) {
            break;
        }
        if (len > cap) {
            return ERR_S3_MAX_MESSAGE_LENGTH;
        }
    }
    *out = BYTES(p, len);
    return OK;
}

static enum err check_claim(struct s3_request *rq, const struct s3_checksum_claim *claim,
                            struct bytes body)
{
    struct object_digests *d = arena_alloc_zero(rq->arena, sizeof(*d));
    if (d == NULL) {
        return ERR_NO_MEMORY;
    }
    if (claim->has_md5) {
        md5_digest(body, d->md5);
    }
    switch ((enum checksum_algorithm)claim->algorithm) {
    case CHECKSUM_CRC32:
        store_be32(d->checksum[CHECKSUM_CRC32], crc32(0, body));
        break;
    case CHECKSUM_CRC32C:
        store_be32(d->checksum[CHECKSUM_CRC32C], crc32c(0, body));
        break;
    case CHECKSUM_CRC64NVME:
        store_be64(d->checksum[CHECKSUM_CRC64NVME], crc64nvme(0, body));
        break;
    case CHECKSUM_SHA1:
        sha1_digest(body, d->checksum[CHECKSUM_SHA1]);
        break;
    case CHECKSUM_SHA256:
        sha256_digest(body, d->checksum[CHECKSUM_SHA256]);
        break;
    case CHECKSUM_NONE:
    case CHECKSUM_COUNT:
        break;
    }
    return s3_checksum_claim_check(rq, claim, d);
}

enum err s3_read_small_body(struct s3_request *rq, size_t max, enum s3_claims claims,
                            struct bytes *out)
{
    struct s3_checksum_claim claim = {0};
    struct s3_body *body = arena_alloc(rq->arena, sizeof(*body));
    if (body == NULL) {
        return ERR_NO_MEMORY;
    }
    *out = BYTES_NONE;
    TRY(claims == S3_CLAIMS_OF_BODY ? s3_checksum_claim_parse(rq, &claim)
                                    : s3_checksum_claim_md5(rq, &claim));
    if (rq->x->has_content_length || rq->x->is_chunked) {
        enum err e = s3_body_init(body, rq, max);
        if (e != OK) {
            return e == ERR_S3_ENTITY_TOO_LARGE ? ERR_S3_MAX_MESSAGE_LENGTH : e;
        }
        TRY(read_all(body, max, out));
        if (claim.is_trailer) {
            const char *name = s3_checksum_header((enum checksum_algorithm)claim.algorithm);
            TRY(s3_checksum_claim_trailer(rq, &claim, s3_body_trailer(body, name)));
        }
    }
    return check_claim(rq, &claim, *out);
}
