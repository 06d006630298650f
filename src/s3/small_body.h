// SPDX-License-Identifier: Apache-2.0
// Request bodies that are held whole: the XML of operations that bring no object.
#pragma once

#include "s3/request.h"

// What the request's x-amz-checksum-* speak of. Content-MD5 is always the body's.
enum s3_claims {
    S3_CLAIMS_OF_BODY,
    S3_CLAIMS_OF_OBJECT, // CompleteMultipartUpload: the caller looks at them
};

// Reads the body into the arena and verifies what was claimed of it: length, signature, digests in
// headers and in the trailer. ERR_S3_MAX_MESSAGE_LENGTH past `max`, ERR_S3_BAD_DIGEST, and the
// errors of s3_body_read and s3_checksum_claim_parse.
MAY_WAIT NODISCARD enum err s3_read_small_body(struct s3_request *rq, size_t max,
                                               enum s3_claims claims, struct bytes *out);
