// SPDX-License-Identifier: Apache-2.0
// What all listings share: encoding-type, page sizes, names and owners.
#pragma once

#include "s3/request.h"

// encoding-type: absent or "url". ERR_S3_INVALID_ARGUMENT.
NODISCARD enum err s3_list_encoding(struct s3_request *rq, bool *is_url);
// max-keys and its like: absent is META_LIST_MAX, more is clamped. ERR_S3_INVALID_ARGUMENT.
NODISCARD enum err s3_list_max(struct s3_request *rq, const char *name, u32 *out);
// <element>name</element>, URL-encoded if asked.
void s3_list_name(struct xml_writer *w, const char *element, struct bytes name, bool is_url);
