// SPDX-License-Identifier: Apache-2.0
// What the files about multipart uploads share.
#pragma once

#include "meta/meta_internal.h"

struct upload_place {
    struct place object;
    struct upload_id id;
    struct meta_key key; // of the upload's record
};
// ERR_S3_NO_SUCH_BUCKET, ERR_S3_NO_SUCH_UPLOAD (not an id of ours), ...
enum err upload_place_find(struct meta *m, struct bytes bucket, struct bytes key,
                           struct bytes upload_id, struct upload_place *out) NODISCARD;

// A part's record, on the owner core: everything about it, and where its bytes are (bytes 0 for an
// empty part; NULL: not asked). ERR_NOT_FOUND, ERR_CORRUPT, ERR_FORMAT, ...
MAY_WAIT enum err part_read(struct meta *m, const struct upload_place *place, u32 number,
                            struct object_info *info, struct extent_ref *ref) NODISCARD;
