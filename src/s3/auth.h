// SPDX-License-Identifier: Apache-2.0
// Signature Version 4: verifies who sent a request, by header or by presigned URL, and derives what
// the signatures of body chunks go on from. Follows AWS's "Authenticating Requests (AWS Signature
// Version 4)"; errors are the ones that S3 answers.
#pragma once

#include "s3/request.h"

#define S3_CLOCK_SKEW_MAX_NS   (15 * 60 * NS_PER_S)
#define S3_PRESIGN_EXPIRES_MAX ((u64)7 * 24 * 3600) // seconds
#define S3_SIGNED_HEADERS_MAX  128

// Fills rq->auth. ERR_S3_ACCESS_DENIED for an anonymous request, ERR_S3_INVALID_ACCESS_KEY,
// ERR_S3_SIGNATURE_MISMATCH, ERR_S3_AUTH_HEADER_MALFORMED, ERR_S3_AUTH_QUERY_PARAMETERS,
// ERR_S3_REQUEST_TIME_SKEWED, ERR_S3_EXPIRED_TOKEN, ERR_S3_REQUEST_NOT_YET_VALID, ...
NODISCARD enum err s3_authenticate(struct s3_request *rq);
