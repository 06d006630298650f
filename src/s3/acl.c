// SPDX-License-Identifier: Apache-2.0
// ACLs: what holds for everything here is that the owner has full control and nobody else has
// anything. That is what is told, and setting exactly that (x-amz-acl: private) is accepted; any
// other ACL is 501.
#include "s3/headers.h"
#include "s3/request.h"
#include "s3/small_body.h"

#define ACL_BODY_MAX (64 * KIB)

static MAY_WAIT enum err respond_acl(struct s3_request *rq)
{
    struct xml_writer w;
    s3_xml_begin(rq, &w, 1024);
    xml_writer_open_root(&w, "AccessControlPolicy");
    s3_xml_owner(&w, "Owner");
    xml_writer_open(&w, "AccessControlList");
    xml_writer_open(&w, "Grant");
    xml_writer_open_with(&w, "Grantee",
                         "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
                         "xsi:type=\"CanonicalUser\"");
    xml_writer_string(&w, "ID", S3_OWNER_ID);
    xml_writer_string(&w, "DisplayName", S3_OWNER_ID);
    xml_writer_close(&w);
    xml_writer_string(&w, "Permission", "FULL_CONTROL");
    xml_writer_close(&w);
    xml_writer_close(&w);
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

enum err s3_op_get_bucket_acl(struct s3_request *rq)
{
    struct bucket b;
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    return respond_acl(rq);
}

enum err s3_op_get_object_acl(struct s3_request *rq)
{
    struct object_reader r;
    TRY(object_open(rq->meta, rq->bucket, rq->key, true, rq->arena, &r));
    object_close(&r);
    return respond_acl(rq);
}

// The header that names a canned ACL has been checked; grants in a body are not there.
static MAY_WAIT enum err accept_private_acl(struct s3_request *rq)
{
    struct bytes body;
    TRY(s3_refuse_unsupported_headers(rq));
    TRY(s3_read_small_body(rq, ACL_BODY_MAX, S3_CLAIMS_OF_BODY, &body));
    if (body.len > 0 || s3_header_get(rq, "x-amz-acl").data == NULL) {
        return s3_fail(rq, ERR_S3_NOT_IMPLEMENTED,
                       "Only the canned ACL \"private\" is implemented. Nothing was changed.");
    }
    return OK;
}

enum err s3_op_put_bucket_acl(struct s3_request *rq)
{
    struct bucket b;
    TRY(accept_private_acl(rq));
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    return s3_respond_empty(rq, 200);
}

enum err s3_op_put_object_acl(struct s3_request *rq)
{
    struct object_reader r;
    TRY(accept_private_acl(rq));
    TRY(object_open(rq->meta, rq->bucket, rq->key, true, rq->arena, &r));
    object_close(&r);
    return s3_respond_empty(rq, 200);
}
