// SPDX-License-Identifier: Apache-2.0
// Tags of an object: as the x-amz-tagging header and as XML, and the rules that both must keep.
// They are kept with the object as the attribute "tagging", URL-encoded as in the header.
#pragma once

#include "s3/request.h"

#define S3_TAGGING_ATTR        "tagging"
#define S3_TAGS_MAX            10
#define S3_TAG_KEY_CHARS_MAX   128
#define S3_TAG_VALUE_CHARS_MAX 256

struct s3_tag {
    struct bytes key; // decoded
    struct bytes value;
};
struct s3_tag_set {
    struct s3_tag list[S3_TAGS_MAX];
    u32 count;
};

// Decodes "a=1&b=2" into the arena, unchecked but for encoding and count: what is stored was
// checked when it came. ERR_S3_INVALID_ARGUMENT, ERR_S3_INVALID_TAG (more than S3_TAGS_MAX).
NODISCARD enum err s3_tags_decode(struct s3_request *rq, struct bytes text, struct s3_tag_set *out);
// <Tagging><TagSet><Tag><Key/><Value/></Tag>...; ERR_S3_MALFORMED_XML and as above.
NODISCARD enum err s3_tags_parse_xml(struct s3_request *rq, struct bytes body,
                                     struct s3_tag_set *out);
// Lengths, characters and doubles. ERR_S3_INVALID_TAG.
NODISCARD enum err s3_tags_check(struct s3_request *rq, const struct s3_tag_set *set);
// URL-encodes into the arena.
NODISCARD enum err s3_tags_encode(struct s3_request *rq, const struct s3_tag_set *set,
                                  struct bytes *out);
// The number of tags in a kept attribute.
u32 s3_tag_count(struct bytes tagging);
