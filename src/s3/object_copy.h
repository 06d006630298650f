// SPDX-License-Identifier: Apache-2.0
// Copying bytes from an object into a writer, shared by CopyObject and UploadPartCopy.
#pragma once

#include "s3/request.h"

struct s3_copy_source {
    struct bytes bucket;
    struct bytes key;
};

// Decodes x-amz-copy-source, once. ERR_S3_INVALID_ARGUMENT and the like.
NODISCARD enum err s3_copy_source_parse(struct s3_request *rq, struct s3_copy_source *out);
// Copies [offset, offset + length) into the writer.
MAY_WAIT NODISCARD enum err s3_copy_bytes(struct object_reader *r, u64 offset, u64 length,
                                          struct object_writer *w);
