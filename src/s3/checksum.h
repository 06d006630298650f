// SPDX-License-Identifier: Apache-2.0
// x-amz-checksum-*: what a client claims of its bytes, and how a stored checksum is shown.
#pragma once

#include "s3/request.h"

#define S3_CHECKSUM_TEXT_MAX 64

// What a request says of the checksum of its body.
struct s3_checksum_claim {
    u8 algorithm;    // enum checksum_algorithm; NONE: it says nothing
    bool has_value;  // `value` came in a header; else it comes in the trailer
    bool is_trailer; // x-amz-trailer announces it
    bool has_md5;    // Content-MD5
    u8 value[CHECKSUM_BYTES_MAX];
    u8 md5[MD5_LEN];
};

// Reads Content-MD5, x-amz-checksum-*, x-amz-trailer and x-amz-sdk-checksum-algorithm.
// ERR_S3_INVALID_DIGEST, ERR_S3_INVALID_REQUEST (more than one, or not base64 of the right length).
NODISCARD enum err s3_checksum_claim_parse(struct s3_request *rq, struct s3_checksum_claim *out);
// Content-MD5 alone. ERR_S3_INVALID_DIGEST.
NODISCARD enum err s3_checksum_claim_md5(struct s3_request *rq, struct s3_checksum_claim *out);
// The trailer's value for the announced algorithm. ERR_S3_MALFORMED_TRAILER.
NODISCARD enum err s3_checksum_claim_trailer(struct s3_request *rq, struct s3_checksum_claim *claim,
                                             struct bytes value);
// Compares every claim with the digests of what was received. ERR_S3_BAD_DIGEST.
NODISCARD enum err s3_checksum_claim_check(struct s3_request *rq,
                                           const struct s3_checksum_claim *claim,
                                           const struct object_digests *digests);

// The checksum of a whole body from its digests.
struct checksum s3_checksum_of(const struct object_digests *d, u8 algorithm);

// "CRC32", ... (as in XML and in x-amz-checksum-algorithm); parse takes any case, NONE if unknown.
const char *s3_checksum_name(enum checksum_algorithm a);
enum checksum_algorithm s3_checksum_parse_name(struct bytes name);
// "x-amz-checksum-crc32" and "ChecksumCRC32"
const char *s3_checksum_header(enum checksum_algorithm a);
const char *s3_checksum_element(enum checksum_algorithm a);
const char *s3_checksum_type_name(enum checksum_type t); // "FULL_OBJECT", "COMPOSITE"
// Base64, with "-<parts>" for a composite one.
void s3_checksum_text(const struct checksum *c, u32 parts, char out[S3_CHECKSUM_TEXT_MAX]);
// Base64 of the right length, a "-N" after it allowed. False if it is neither.
bool s3_checksum_value_parse(enum checksum_algorithm a, struct bytes text, u8 *value);
// Adds the checksum and its type to the response's headers.
void s3_checksum_respond(struct s3_request *rq, const struct checksum *c, u32 parts);
// Adds <ChecksumCRC32>...</ChecksumCRC32> (nothing for NONE).
void s3_checksum_xml(struct xml_writer *w, const struct checksum *c, u32 parts);
