// SPDX-License-Identifier: Apache-2.0
// The body of a request as the client meant it: plain, or taken out of aws-chunked framing with the
// signatures of its chunks and trailer verified. The bytes flow before they are verified; nothing
// may be committed until s3_body_read has returned OK with 0 bytes.
#pragma once

#include "s3/request.h"

#define S3_CHUNK_LINE_MAX    256       // "size;chunk-signature=..."
#define S3_TRAILER_BYTES_MAX (4 * KIB) // all trailing headers
#define S3_TRAILERS_MAX      8
#define S3_SIZE_UNKNOWN      UINT64_MAX

enum s3_body_state { S3_BODY_PLAIN, S3_BODY_HEAD, S3_BODY_DATA, S3_BODY_DATA_END, S3_BODY_END };

struct s3_body {
    struct s3_request *rq;
    u64 size;     // as announced, decoded; S3_SIZE_UNKNOWN with a plain chunked transfer
    u64 received; // decoded bytes so far
    enum s3_body_state state;
    bool is_chunk_signed;
    bool has_trailer;
    u64 chunk_left;
    struct sha256 sha;               // of the chunk or of the whole body
    char previous[65];               // signature that the next one builds on
    char chunk_signature[65];        // as claimed by the chunk at hand
    u8 ahead[S3_CHUNK_LINE_MAX + 2]; // raw bytes read while looking for a line's end
    u32 ahead_at;
    u32 ahead_len;
    u32 trailer_count;
    struct s3_error_field trailers[S3_TRAILERS_MAX]; // name lower-case, in the arena
};

// Looks at the head only. ERR_S3_MISSING_CONTENT_LENGTH, ERR_S3_INVALID_ARGUMENT,
// ERR_S3_ENTITY_TOO_LARGE past size_max.
NODISCARD enum err s3_body_init(struct s3_body *b, struct s3_request *rq, u64 size_max);
// Decoded bytes, at least 1; *out 0 at the end, when all was verified: length, payload hash, chunk
// and trailer signatures. ERR_S3_INCOMPLETE_BODY, ERR_S3_SIGNATURE_MISMATCH,
// ERR_S3_SHA256_MISMATCH, ERR_S3_MALFORMED_TRAILER, ERR_S3_REQUEST_TIMEOUT, ...
MAY_WAIT NODISCARD enum err s3_body_read(struct s3_body *b, void *buf, size_t cap, size_t *out);
// A trailing header's value after the end; data NULL if it did not come.
struct bytes s3_body_trailer(const struct s3_body *b, const char *name);
