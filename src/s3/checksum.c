// SPDX-License-Identifier: Apache-2.0
#include "s3/checksum.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const struct {
    const char *name;
    const char *header;
    const char *element;
} algorithms[CHECKSUM_COUNT] = {
    [CHECKSUM_NONE] = {"", "", ""},
    [CHECKSUM_CRC32] = {"CRC32", "x-amz-checksum-crc32", "ChecksumCRC32"},
    [CHECKSUM_CRC32C] = {"CRC32C", "x-amz-checksum-crc32c", "ChecksumCRC32C"},
    [CHECKSUM_CRC64NVME] = {"CRC64NVME", "x-amz-checksum-crc64nvme", "ChecksumCRC64NVME"},
    [CHECKSUM_SHA1] = {"SHA1", "x-amz-checksum-sha1", "ChecksumSHA1"},
    [CHECKSUM_SHA256] = {"SHA256", "x-amz-checksum-sha256", "ChecksumSHA256"},
};

const char *s3_checksum_name(enum checksum_algorithm a)
{
    return algorithms[a].name;
}

const char *s3_checksum_header(enum checksum_algorithm a)
{
    return algorithms[a].header;
}

const char *s3_checksum_element(enum checksum_algorithm a)
{
    return algorithms[a].element;
}

const char *s3_checksum_type_name(enum checksum_type t)
{
    return t == CHECKSUM_COMPOSITE ? "COMPOSITE" : "FULL_OBJECT";
}

enum checksum_algorithm s3_checksum_parse_name(struct bytes name)
{
    for (int a = CHECKSUM_NONE + 1; a < CHECKSUM_COUNT; a++) {
        if (bytes_equal_nocase(name, bytes_from_string(algorithms[a].name))) {
            return (enum checksum_algorithm)a;
        }
    }
    return CHECKSUM_NONE;
}

bool s3_checksum_value_parse(enum checksum_algorithm a, struct bytes text, u8 *value)
{
    const u8 *dash = text.len == 0 ? NULL : memchr(text.data, '-', text.len);
    if (dash != NULL) {
        u64 parts;
        struct bytes count = bytes_skip(text, (size_t)(dash - text.data) + 1);
        if (!u64_parse(count, META_PART_NUMBER_MAX, &parts)) {
            return false;
        }
        text.len = (size_t)(dash - text.data);
    }
    u8 raw[CHECKSUM_BYTES_MAX];
    size_t len = 0;
    if (!base64_decode(text, raw, sizeof(raw), &len) || len != checksum_bytes(a)) {
        return false;
    }
    memcpy(value, raw, len);
    return true;
}

// The algorithm whose header name this is.
static enum checksum_algorithm algorithm_of_header(struct bytes name)
{
    for (int a = CHECKSUM_NONE + 1; a < CHECKSUM_COUNT; a++) {
        if (bytes_equal_nocase(name, bytes_from_string(algorithms[a].header))) {
            return (enum checksum_algorithm)a;
        }
    }
    return CHECKSUM_NONE;
}

enum err s3_checksum_claim_md5(struct s3_request *rq, struct s3_checksum_claim *out)
{
    struct bytes text = s3_header_get(rq, "content-md5");
    if (text.data == NULL) {
        return OK;
    }
    u8 raw[MD5_LEN + 2];
    size_t len = 0;
    if (!base64_decode(text, raw, sizeof(raw), &len) || len != MD5_LEN) {
        s3_error_field(rq, "Content-MD5", text);
        return ERR_S3_INVALID_DIGEST;
    }
    memcpy(out->md5, raw, MD5_LEN);
    out->has_md5 = true;
    return OK;
}

// x-amz-trailer may name several headers; only a checksum is known.
static enum err parse_trailer_names(struct s3_request *rq, struct s3_checksum_claim *out)
{
    struct bytes names = s3_header_get(rq, "x-amz-trailer");
    while (names.len > 0) {
        struct bytes one = bytes_split(&names, ',');
        while (one.len > 0 && one.data[0] == ' ') {
            one = bytes_skip(one, 1);
        }
        enum checksum_algorithm a = algorithm_of_header(one);
        if (a == CHECKSUM_NONE) {
            return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                           "The value specified in the x-amz-trailer header is not supported");
        }
        if (out->algorithm != CHECKSUM_NONE) {
            return s3_fail(rq, ERR_S3_INVALID_REQUEST, "Expecting a single x-amz-checksum- header");
        }
        out->algorithm = (u8)a;
        out->is_trailer = true;
    }
    return OK;
}

enum err s3_checksum_claim_parse(struct s3_request *rq, struct s3_checksum_claim *out)
{
    *out = (struct s3_checksum_claim){0};
    TRY(s3_checksum_claim_md5(rq, out));
    for (int a = CHECKSUM_NONE + 1; a < CHECKSUM_COUNT; a++) {
        struct bytes text = s3_header_get(rq, algorithms[a].header);
        if (text.data == NULL) {
            continue;
        }
        if (out->algorithm != CHECKSUM_NONE) {
            return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                           "Expecting a single x-amz-checksum- header. Multiple checksum Types are "
                           "not allowed.");
        }
        if (!s3_checksum_value_parse((enum checksum_algorithm)a, text, out->value)) {
            return s3_fail_fmt(rq, ERR_S3_BAD_DIGEST, "Value for %s header is invalid.",
                               algorithms[a].header);
        }
        out->algorithm = (u8)a;
        out->has_value = true;
    }
    TRY(parse_trailer_names(rq, out));
    struct bytes sdk = s3_header_get(rq, "x-amz-sdk-checksum-algorithm");
    if (sdk.data == NULL) {
        return OK;
    }
    enum checksum_algorithm named = s3_checksum_parse_name(sdk);
    if (named == CHECKSUM_NONE) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "Value for x-amz-sdk-checksum-algorithm header is invalid.");
    }
    if (out->algorithm != CHECKSUM_NONE && out->algorithm != named) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "Value for x-amz-sdk-checksum-algorithm header is invalid.");
    }
    if (out->algorithm == CHECKSUM_NONE && !out->has_md5) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "x-amz-sdk-checksum-algorithm specified, but no corresponding "
                       "x-amz-checksum-* or x-amz-trailer headers were found.");
    }
    return OK;
}

enum err s3_checksum_claim_trailer(struct s3_request *rq, struct s3_checksum_claim *claim,
                                   struct bytes value)
{
    if (value.data == NULL) {
        return ERR_S3_MALFORMED_TRAILER;
    }
    if (!s3_checksum_value_parse((enum checksum_algorithm)claim->algorithm, value, claim->value)) {
        return s3_fail_fmt(rq, ERR_S3_BAD_DIGEST, "Value for %s trailing header is invalid.",
                           algorithms[claim->algorithm].header);
    }
    claim->has_value = true;
    return OK;
}

enum err s3_checksum_claim_check(struct s3_request *rq, const struct s3_checksum_claim *claim,
                                 const struct object_digests *digests)
{
    if (claim->has_md5 && memcmp(claim->md5, digests->md5, MD5_LEN) != 0) {
        return s3_fail(rq, ERR_S3_BAD_DIGEST,
                       "The Content-MD5 you specified did not match what we received.");
    }
    enum checksum_algorithm a = (enum checksum_algorithm)claim->algorithm;
    if (a != CHECKSUM_NONE && claim->has_value &&
        memcmp(claim->value, digests->checksum[a], checksum_bytes(a)) != 0) {
        return s3_fail_fmt(rq, ERR_S3_BAD_DIGEST,
                           "The %s you specified did not match the calculated checksum.",
                           algorithms[a].name);
    }
    return OK;
}

struct checksum s3_checksum_of(const struct object_digests *d, u8 algorithm)
{
    struct checksum c = {.algorithm = algorithm, .type = CHECKSUM_FULL_OBJECT};
    memcpy(c.value, d->checksum[algorithm], sizeof(c.value));
    return c;
}

void s3_checksum_text(const struct checksum *c, u32 parts, char out[S3_CHECKSUM_TEXT_MAX])
{
    size_t len = checksum_bytes((enum checksum_algorithm)c->algorithm);
    base64_encode(BYTES(c->value, len), out);
    if (c->type == CHECKSUM_COMPOSITE && parts > 0) {
        size_t at = BASE64_LEN(len);
        snprintf(out + at, S3_CHECKSUM_TEXT_MAX - at, "-%u", parts);
    }
}

void s3_checksum_respond(struct s3_request *rq, const struct checksum *c, u32 parts)
{
    if (c->algorithm == CHECKSUM_NONE) {
        return;
    }
    char text[S3_CHECKSUM_TEXT_MAX];
    s3_checksum_text(c, parts, text);
    http_response_header_text(rq->x, algorithms[c->algorithm].header, text);
    http_response_header_text(rq->x, "x-amz-checksum-type",
                              s3_checksum_type_name((enum checksum_type)c->type));
}

void s3_checksum_xml(struct xml_writer *w, const struct checksum *c, u32 parts)
{
    if (c->algorithm == CHECKSUM_NONE) {
        return;
    }
    char text[S3_CHECKSUM_TEXT_MAX];
    s3_checksum_text(c, parts, text);
    xml_writer_string(w, algorithms[c->algorithm].element, text);
}
