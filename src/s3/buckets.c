// SPDX-License-Identifier: Apache-2.0
// Operations on buckets and on the service.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codec/xml_read.h"
#include "s3/headers.h"
#include "s3/request.h"
#include "s3/s3_private.h"
#include "s3/small_body.h"

#define CONFIG_MAX (64 * KIB)

// State of one ListBuckets page.
struct bucket_page {
    struct xml_writer *w;
    u32 left;
    bool is_truncated;
    char last[META_BUCKET_NAME_MAX + 1];
};

static bool list_one(void *arg, const struct bucket *b)
{
    struct bucket_page *page = arg;
    if (page->left == 0) {
        page->is_truncated = true;
        return false;
    }
    page->left--;
    memcpy(page->last, b->name, sizeof(page->last));
    xml_writer_open(page->w, "Bucket");
    xml_writer_string(page->w, "Name", b->name);
    s3_xml_time(page->w, "CreationDate", b->created_ns);
    xml_writer_close(page->w);
    return true;
}

// The token is the base64 of the last name given; anything else is refused.
static enum err bucket_token_parse(struct s3_request *rq, struct bytes token, struct bytes *after)
{
    u8 *p = arena_alloc(rq->arena, token.len + 1);
    size_t len = 0;
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    if (!base64_decode(token, p, token.len, &len) || !bucket_name_is_valid(BYTES(p, len))) {
        return s3_fail_argument(rq, "continuation-token", token,
                                "The continuation token provided is incorrect");
    }
    *after = BYTES(p, len);
    return OK;
}

enum err s3_op_list_buckets(struct s3_request *rq)
{
    struct bytes prefix = s3_param_get(rq, "prefix");
    struct bytes token = s3_param_get(rq, "continuation-token");
    struct bytes max = s3_param_get(rq, "max-buckets");
    struct bytes region = s3_param_get(rq, "bucket-region");
    struct bytes after = BYTES_NONE;
    u64 limit = META_BUCKETS_MAX;
    if (max.data != NULL && (!u64_parse(max, META_BUCKETS_MAX, &limit) || limit == 0)) {
        return s3_fail_argument(rq, "max-buckets", max, "max-buckets must be between 1 and 10000");
    }
    if (token.len > 0) {
        TRY(bucket_token_parse(rq, token, &after));
    }
    struct xml_writer w;
    s3_xml_begin(rq, &w, 4 * KIB);
    xml_writer_open_root(&w, "ListAllMyBucketsResult");
    s3_xml_owner(&w, "Owner");
    xml_writer_open(&w, "Buckets");
    struct bucket_page page = {.w = &w, .left = (u32)limit};
    if (region.len == 0 || bytes_equal(region, bytes_from_string(rq->s3->region))) {
        bucket_list(rq->meta, prefix, after, list_one, &page);
    }
    xml_writer_close(&w);
    if (prefix.len > 0) {
        xml_writer_text(&w, "Prefix", prefix);
    }
    if (page.is_truncated) {
        char text[BASE64_LEN(META_BUCKET_NAME_MAX) + 1];
        base64_encode(bytes_from_string(page.last), text);
        xml_writer_string(&w, "ContinuationToken", text);
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

// CreateBucketConfiguration may name our region and nothing else.
static MAY_WAIT enum err check_bucket_configuration(struct s3_request *rq)
{
    struct bytes body;
    TRY(s3_read_small_body(rq, CONFIG_MAX, S3_CLAIMS_OF_BODY, &body));
    if (body.len == 0) {
        return OK;
    }
    struct xml_limits limits = XML_LIMITS_S3;
    limits.hash_salt = rq->s3->xml_salt;
    const struct xml_node *root;
    TRY(xml_parse(body, rq->arena, &limits, &root));
    if (!xml_node_is(root, "CreateBucketConfiguration")) {
        return ERR_S3_MALFORMED_XML;
    }
    for (const struct xml_node *n = root->first_child; n != NULL; n = n->next) {
        if (!xml_node_is(n, "LocationConstraint")) {
            return s3_fail(rq, ERR_S3_NOT_IMPLEMENTED,
                           "Only LocationConstraint is implemented in a bucket's configuration.");
        }
        if (n->text.len > 0 && !bytes_equal(n->text, bytes_from_string(rq->s3->region))) {
            return s3_fail(rq, ERR_S3_INVALID_LOCATION,
                           "The specified location-constraint is not valid");
        }
    }
    return OK;
}

enum err s3_op_create_bucket(struct s3_request *rq)
{
    TRY(s3_refuse_unsupported_headers(rq));
    struct bytes ownership = s3_header_get(rq, "x-amz-object-ownership");
    if (ownership.data != NULL && !bytes_equal(ownership, BYTES_LITERAL("BucketOwnerEnforced"))) {
        return s3_fail(rq, ERR_S3_NOT_IMPLEMENTED,
                       "Only the object ownership BucketOwnerEnforced is implemented.");
    }
    TRY(check_bucket_configuration(rq));
    struct bucket b;
    enum err e = bucket_create(rq->meta, rq->bucket, &b);
    // In us-east-1 creating one's own bucket again succeeds; elsewhere it is a conflict.
    if (e == ERR_S3_BUCKET_ALREADY_OWNED && strcmp(rq->s3->region, "us-east-1") == 0) {
        e = OK;
    }
    TRY(e);
    char location[META_BUCKET_NAME_MAX + 2];
    snprintf(location, sizeof(location), "/%s", b.name);
    http_response_header_text(rq->x, "location", location);
    return s3_respond_empty(rq, 200);
}

enum err s3_op_head_bucket(struct s3_request *rq)
{
    struct bucket b;
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    http_response_header_text(rq->x, "x-amz-bucket-region", rq->s3->region);
    return s3_respond_empty(rq, 200);
}

enum err s3_op_delete_bucket(struct s3_request *rq)
{
    TRY(bucket_delete(rq->meta, rq->bucket));
    return s3_respond_empty(rq, 204);
}

enum err s3_op_get_bucket_location(struct s3_request *rq)
{
    struct bucket b;
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    struct xml_writer w;
    s3_xml_begin(rq, &w, 512);
    // us-east-1 is told by an empty element: older than regions themselves.
    xml_writer_open_root(&w, "LocationConstraint");
    if (strcmp(rq->s3->region, "us-east-1") != 0) {
        xml_writer_append_text(&w, bytes_from_string(rq->s3->region));
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

// Versioning was never enabled on any bucket, which AWS says with an empty configuration.
enum err s3_op_get_bucket_versioning(struct s3_request *rq)
{
    struct bucket b;
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    struct xml_writer w;
    s3_xml_begin(rq, &w, 512);
    xml_writer_open_root(&w, "VersioningConfiguration");
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}
