// SPDX-License-Identifier: Apache-2.0
// GetBucketAcl and GetObjectAcl: what holds for everything here, the owner has full control and
// nobody else has anything. Setting an ACL is not there (501).
#include "s3/request.h"

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
