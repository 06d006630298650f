// SPDX-License-Identifier: Apache-2.0
// Any text as a request's head: parsing, routing, authentication and the meaning of its headers
// never crash, and nothing that was not signed with the key is let in. Lines are separated by line
// feeds.
#include "../unit/s3/fake_http.c"
#include "fuzz.h"

#include <stdlib.h>
#include "s3/auth.h"
#include "s3/checksum.h"
#include "s3/headers.h"
#include "s3/tags.h"

// What was taken can be kept and read again.
static void examine_tags(struct s3_request *rq, struct bytes kept)
{
    struct s3_tag_set set;
    struct s3_tag_set again;
    struct bytes text;
    ASSERT(s3_tags_decode(rq, kept, &set) == OK && set.count == s3_tag_count(kept));
    ASSERT(s3_tags_encode(rq, &set, &text) == OK && s3_tags_decode(rq, text, &again) == OK);
    ASSERT(again.count == set.count && s3_tags_check(rq, &again) == OK);
    for (u32 i = 0; i < set.count; i++) {
        ASSERT(bytes_equal(again.list[i].key, set.list[i].key));
        ASSERT(bytes_equal(again.list[i].value, set.list[i].value));
    }
}

static void examine(struct s3_request *rq)
{
    struct s3_attrs attrs;
    struct write_condition condition;
    struct s3_range range;
    struct s3_checksum_claim claim;
    struct object_info info = {.size = 1000, .modified_ns = 1700000000 * NS_PER_S};
    (void)!s3_refuse_unsupported_headers(rq);
    (void)!s3_write_condition(rq, &condition);
    (void)!s3_read_condition(rq, "", &info);
    (void)!s3_checksum_claim_parse(rq, &claim);
    if (s3_attrs_from_request(rq, &attrs) == OK) {
        ASSERT(attrs.count <= HTTP_HEADERS_MAX + 8);
        examine_tags(rq, s3_attr_get(attrs.list, attrs.count, S3_TAGGING_ATTR));
    }
    if (s3_range_parse(rq, s3_header_get(rq, "range"), info.size, &range) == OK && range.is_set) {
        ASSERT(range.length > 0 && range.offset + range.length <= info.size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3 *s3 = calloc(1, sizeof(*s3));
    struct s3_core *core = aligned_alloc(CACHE_LINE, sizeof(*core));
    struct fake_http *f = malloc(sizeof(*f));
    fake_s3_init(s3, core, "AKIAIOSFODNN7EXAMPLE", "a secret that the fuzzer does not know",
                 "s3.example.com");
    if (fake_http_init(f, s3, BYTES(data, size), BYTES_NONE)) {
        f->rq.wall_ns = 1369353600 * NS_PER_S; // 2013-05-24
        if (s3_request_parse(&f->rq) == OK) {
            ASSERT(f->rq.key.len <= META_KEY_BYTES_MAX);
            ASSERT(s3_authenticate(&f->rq) != OK);
            if (s3_route(&f->rq) == OK) {
                ASSERT(f->rq.op < S3_OP_COUNT);
            }
            examine(&f->rq);
        }
    }
    fake_http_deinit(f);
    free(f);
    free(core);
    free(s3);
    return 0;
}
