// SPDX-License-Identifier: Apache-2.0
// One S3 request: what its head says, decoded, and how it is answered. Lives in the exchange's
// arena; used by the one fiber that serves the request.
#pragma once

#include "codec/digest.h"
#include "codec/xml_write.h"
#include "s3/s3.h"

#define S3_OWNER_ID         "leat" // every credential acts for the one owner of everything
#define S3_REQUEST_ID_CHARS 16
#define S3_QUERY_MAX        64 // parameters of one request
#define S3_ERROR_FIELDS_MAX 4

// What an S3 operation is, is told by method, bucket, key and query (s3/route.c).
#define S3_OP(name, handler) S3_OP_##name,
enum s3_op {
#include "s3/ops.def"
    S3_OP_COUNT
};
#undef S3_OP

struct s3_param {
    struct bytes name; // decoded
    struct bytes value;
};

// How the body is vouched for (x-amz-content-sha256).
enum s3_payload {
    S3_PAYLOAD_UNSIGNED,
    S3_PAYLOAD_SIGNED,        // its SHA-256 is in the signature
    S3_PAYLOAD_CHUNKS_SIGNED, // STREAMING-AWS4-HMAC-SHA256-PAYLOAD
    S3_PAYLOAD_CHUNKS_SIGNED_TRAILER,
    S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER,
};

// The outcome of authentication, and what chunk signatures go on from.
struct s3_auth {
    enum s3_payload payload;
    u8 payload_sha256[SHA256_LEN]; // S3_PAYLOAD_SIGNED
    struct hmac_sha256_key signing_key;
    char signature[2 * SHA256_LEN + 1]; // of the request: the first chunk's predecessor
    struct bytes scope;                 // 20260101/us-east-1/s3/aws4_request
    char date[17];                      // 20260101T000000Z
    const char *access_key;
};

// An additional element of an error's XML.
struct s3_error_field {
    const char *name;
    struct bytes value;
};

struct s3_request {
    struct s3 *s3;
    struct meta *meta;
    struct http_exchange *x;
    struct arena *arena;
    struct bytes bucket; // empty: none
    struct bytes key;    // decoded; empty: none
    struct bytes path;   // decoded path as sent, for the signature and <Resource>
    bool is_virtual_host;
    struct s3_param *params;
    u32 param_count;
    enum s3_op op;
    struct s3_auth auth;
    u64 started_ns;
    u64 wall_ns;
    char request_id[S3_REQUEST_ID_CHARS + 1];
    // Details of an error that is being returned.
    const char *error_message; // instead of the table's text
    struct s3_error_field error_fields[S3_ERROR_FIELDS_MAX];
    u32 error_field_count;
};

// Splits and decodes target and Host into bucket, key and parameters. ERR_S3_INVALID_URI,
// ERR_S3_INVALID_BUCKET_NAME, ERR_S3_KEY_TOO_LONG, ERR_INVALID (too many parameters).
NODISCARD enum err s3_request_parse(struct s3_request *rq);
// The parameter's value; data NULL if absent, empty but not NULL for "?uploads".
struct bytes s3_param_get(const struct s3_request *rq, const char *name);
bool s3_param_has(const struct s3_request *rq, const char *name);
struct bytes s3_header_get(const struct s3_request *rq, const char *name);

// Sets the operation, or ERR_S3_NOT_IMPLEMENTED, ERR_S3_METHOD_NOT_ALLOWED: nothing that is not
// understood whole is ever taken for something else.
NODISCARD enum err s3_route(struct s3_request *rq);

// Returns `e`, with a message of its own (static or in the arena).
enum err s3_fail(struct s3_request *rq, enum err e, const char *message);
enum err s3_fail_fmt(struct s3_request *rq, enum err e, const char *fmt, ...) PRINTF_LIKE(3, 4);
// Adds <name>value</name> to the error's XML.
void s3_error_field(struct s3_request *rq, const char *name, struct bytes value);
// ERR_S3_INVALID_ARGUMENT with <ArgumentName> and <ArgumentValue>.
enum err s3_fail_argument(struct s3_request *rq, const char *name, struct bytes value,
                          const char *message);

// Sends the error, or resets the connection if the response had begun.
MAY_WAIT void s3_respond_error(struct s3_request *rq, enum err e);
// Sends the XML collected in w with status 200.
MAY_WAIT NODISCARD enum err s3_respond_xml(struct s3_request *rq, struct xml_writer *w);
// Sends a status without a body.
MAY_WAIT NODISCARD enum err s3_respond_empty(struct s3_request *rq, u32 status);
// A writer for a response body in the request's arena.
void s3_xml_begin(struct s3_request *rq, struct xml_writer *w, size_t guess_bytes);

// <element><ID>...</ID><DisplayName>...</DisplayName></element> of the one owner.
void s3_xml_owner(struct xml_writer *w, const char *element);

// Operation handlers: one per line of ops.def.
#define S3_OP(name, handler) MAY_WAIT NODISCARD enum err handler(struct s3_request *rq);
#include "s3/ops.def"
#undef S3_OP
