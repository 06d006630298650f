// SPDX-License-Identifier: Apache-2.0
// What the headers of a request mean for an object: attributes to keep, conditions, ranges, and the
// headers that imply something which is not there yet and must be refused rather than ignored.
#pragma once

#include "s3/request.h"

#define S3_USER_METADATA_BYTES_MAX (2 * KIB) // names without the prefix, and values

struct s3_attrs {
    struct attr *list; // in the arena
    u32 count;
};

// Standard headers, x-amz-meta-* and (under the name "tagging") x-amz-tagging of a writing request.
// ERR_S3_METADATA_TOO_LARGE, ERR_S3_INVALID_TAG.
NODISCARD enum err s3_attrs_from_request(struct s3_request *rq, struct s3_attrs *out);
// Puts kept attributes into the response, with the response-* overrides of a GET.
void s3_attrs_respond(struct s3_request *rq, const struct attr *attrs, u32 count,
                      bool with_overrides);
struct bytes s3_attr_get(const struct attr *attrs, u32 count, const char *name);

// Encryption, object lock, ACL grants, storage classes other than STANDARD: 501 or a clear error.
NODISCARD enum err s3_refuse_unsupported_headers(struct s3_request *rq);

// If-Match and If-None-Match of PUT, Complete and DELETE.
NODISCARD enum err s3_write_condition(struct s3_request *rq, struct write_condition *out);
// The four conditions of a read. `prefix` is "" or "x-amz-copy-source-". ERR_S3_NOT_MODIFIED (never
// for a copy: there it is ERR_S3_PRECONDITION_FAILED), ERR_S3_PRECONDITION_FAILED.
NODISCARD enum err s3_read_condition(struct s3_request *rq, const char *prefix,
                                     const struct object_info *info);

struct s3_range {
    bool is_set;
    u64 offset;
    u64 length;
};
// The Range header against a size. A header that is not one valid range of bytes is ignored, as AWS
// does. ERR_S3_INVALID_RANGE when it starts past the end.
NODISCARD enum err s3_range_parse(struct s3_request *rq, struct bytes text, u64 size,
                                  struct s3_range *out);

// "Tue, 02 Jan 2024 ..." of a response.
void s3_respond_time(struct s3_request *rq, const char *name, u64 time_ns);
void s3_respond_etag(struct s3_request *rq, const struct etag *e);
// <LastModified> and the like.
void s3_xml_time(struct xml_writer *w, const char *name, u64 time_ns);
void s3_xml_etag(struct xml_writer *w, const struct etag *e);
