// SPDX-License-Identifier: Apache-2.0
// Which operation a request is. The rule that keeps data safe: a request that carries a
// sub-resource or a parameter that its operation does not know is refused with 501 and touches
// nothing. It never falls through to the plain operation: PUT ?retention must not overwrite the
// object, DELETE ?uploadId must not delete it.
#include <string.h>

#include "base/text.h"
#include "s3/request.h"

// Every sub-resource of S3's API. Reading requests may carry other parameters (they are ignored, as
// AWS does); writing requests may carry nothing that is not listed for them.
static const char *const subresources[] = {
    "accelerate",
    "acl",
    "analytics",
    "annotations",
    "append",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "abac",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
};

// Parameters that any request may carry: the signature's, and the SDKs' "x-id=PutObject".
static bool param_is_common(struct bytes name)
{
    return bytes_equal(name, BYTES_LITERAL("x-id")) ||
           (name.len >= 6 && bytes_equal_nocase(BYTES(name.data, 6), BYTES_LITERAL("x-amz-")));
}

static bool name_is_in(struct bytes name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes_equal(name, bytes_from_string(list[i]))) {
            return true;
        }
    }
    return false;
}

struct route {
    enum http_method method;
    u8 scope;            // 0 service, 1 bucket, 2 object
    const char *selects; // the parameter that makes a request this operation; NULL: none needed
    enum s3_op op;
    const char *also[6]; // further sub-resources (reads) or parameters (writes) it understands
};

// In order: the first whose selecting parameter is there wins, so plain operations come last.
static const struct route routes[] = {
    {HTTP_GET, 0, NULL, S3_OP_LIST_BUCKETS, {NULL}},
    {HTTP_GET, 1, "location", S3_OP_GET_BUCKET_LOCATION, {NULL}},
    {HTTP_GET, 1, "versioning", S3_OP_GET_BUCKET_VERSIONING, {NULL}},
    {HTTP_GET, 1, "acl", S3_OP_GET_BUCKET_ACL, {NULL}},
    {HTTP_GET, 1, "uploads", S3_OP_LIST_MULTIPART_UPLOADS, {NULL}},
    {HTTP_GET, 1, "versions", S3_OP_LIST_OBJECT_VERSIONS, {NULL}},
    {HTTP_GET, 1, "list-type", S3_OP_LIST_OBJECTS_V2, {NULL}},
    {HTTP_GET, 1, NULL, S3_OP_LIST_OBJECTS, {NULL}},
    {HTTP_HEAD, 1, NULL, S3_OP_HEAD_BUCKET, {NULL}},
    {HTTP_PUT, 1, "acl", S3_OP_PUT_BUCKET_ACL, {NULL}},
    {HTTP_PUT, 1, NULL, S3_OP_CREATE_BUCKET, {NULL}},
    {HTTP_DELETE, 1, NULL, S3_OP_DELETE_BUCKET, {NULL}},
    {HTTP_POST, 1, "delete", S3_OP_DELETE_OBJECTS, {NULL}},
    {HTTP_GET, 2, "uploadId", S3_OP_LIST_PARTS, {NULL}},
    {HTTP_GET, 2, "acl", S3_OP_GET_OBJECT_ACL, {"versionId"}},
    {HTTP_GET, 2, "tagging", S3_OP_GET_OBJECT_TAGGING, {"versionId"}},
    {HTTP_GET, 2, "attributes", S3_OP_GET_OBJECT_ATTRIBUTES, {"versionId"}},
    {HTTP_GET, 2, NULL, S3_OP_GET_OBJECT, {"partNumber", "versionId"}},
    {HTTP_HEAD, 2, NULL, S3_OP_HEAD_OBJECT, {"partNumber", "versionId"}},
    {HTTP_PUT, 2, "uploadId", S3_OP_UPLOAD_PART, {"partNumber"}},
    {HTTP_PUT, 2, "tagging", S3_OP_PUT_OBJECT_TAGGING, {"versionId"}},
    {HTTP_PUT, 2, "acl", S3_OP_PUT_OBJECT_ACL, {"versionId"}},
    {HTTP_PUT, 2, NULL, S3_OP_PUT_OBJECT, {NULL}},
    {HTTP_POST, 2, "uploads", S3_OP_CREATE_MULTIPART_UPLOAD, {NULL}},
    {HTTP_POST, 2, "uploadId", S3_OP_COMPLETE_MULTIPART_UPLOAD, {NULL}},
    {HTTP_DELETE, 2, "uploadId", S3_OP_ABORT_MULTIPART_UPLOAD, {NULL}},
    {HTTP_DELETE, 2, "tagging", S3_OP_DELETE_OBJECT_TAGGING, {"versionId"}},
    {HTTP_DELETE, 2, NULL, S3_OP_DELETE_OBJECT, {"versionId"}},
};

static size_t also_count(const struct route *r)
{
    size_t n = 0;
    while (n < ARRAY_LEN(r->also) && r->also[n] != NULL) {
        n++;
    }
    return n;
}

// Whether the operation understands everything that the request asks for.
static bool route_understands(const struct route *r, const struct s3_request *rq,
                              struct bytes *culprit)
{
    bool is_read = r->method == HTTP_GET || r->method == HTTP_HEAD;
    for (u32 i = 0; i < rq->param_count; i++) {
        struct bytes name = rq->params[i].name;
        if (param_is_common(name) ||
            (r->selects != NULL && bytes_equal(name, bytes_from_string(r->selects))) ||
            name_is_in(name, r->also, also_count(r)) ||
            (is_read && !name_is_in(name, subresources, ARRAY_LEN(subresources)))) {
            continue;
        }
        *culprit = name;
        return false;
    }
    return true;
}

// A version id can only be that of an object in a bucket that never had versioning: "null".
static enum err check_version_id(struct s3_request *rq)
{
    struct bytes id = s3_param_get(rq, "versionId");
    if (id.data == NULL || bytes_equal(id, BYTES_LITERAL("null"))) {
        return OK;
    }
    return s3_fail_argument(rq, "versionId", id, "Invalid version id specified");
}

enum err s3_route(struct s3_request *rq)
{
    u8 scope = rq->bucket.len == 0 ? 0 : rq->key.len == 0 ? 1 : 2;
    bool is_method_known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        const struct route *r = &routes[i];
        if (r->method != rq->x->method || r->scope != scope) {
            continue;
        }
        is_method_known = true;
        if (r->selects != NULL && !s3_param_has(rq, r->selects)) {
            continue;
        }
        struct bytes culprit = BYTES_NONE;
        if (!route_understands(r, rq, &culprit)) {
            s3_error_field(rq, "Parameter", culprit);
            return s3_fail(rq, ERR_S3_NOT_IMPLEMENTED,
                           "A query parameter you provided implies functionality that is not "
                           "implemented. Nothing was changed.");
        }
        TRY(check_version_id(rq));
        rq->op = r->op;
        bool is_copy = s3_header_get(rq, "x-amz-copy-source").data != NULL;
        if (is_copy && rq->op == S3_OP_PUT_OBJECT) {
            rq->op = S3_OP_COPY_OBJECT;
        } else if (is_copy && rq->op == S3_OP_UPLOAD_PART) {
            rq->op = S3_OP_UPLOAD_PART_COPY;
        }
        return OK;
    }
    if (is_method_known || rq->x->method == HTTP_POST) {
        return s3_fail(rq, ERR_S3_NOT_IMPLEMENTED,
                       "The operation is not implemented. Nothing was changed.");
    }
    s3_error_field(rq, "Method", rq->x->method_text);
    s3_error_field(rq, "ResourceType",
                   scope == 0   ? BYTES_LITERAL("SERVICE")
                   : scope == 1 ? BYTES_LITERAL("BUCKET")
                                : BYTES_LITERAL("OBJECT"));
    return ERR_S3_METHOD_NOT_ALLOWED;
}
