// SPDX-License-Identifier: Apache-2.0
// GetObjectTagging, PutObjectTagging and DeleteObjectTagging. Changing tags writes one record: the
// bytes, the other attributes and the time of the object stay.
#include "s3/headers.h"
#include "s3/small_body.h"
#include "s3/tags.h"

#define TAGGING_BODY_MAX (64 * KIB) // ten tags with each character as a reference, and some air

// By key, so that the same tags read the same however they came.
static void sort_tags(struct s3_tag_set *set)
{
    for (u32 i = 1; i < set->count; i++) {
        struct s3_tag tag = set->list[i];
        u32 j = i;
        for (; j > 0 && bytes_compare(set->list[j - 1].key, tag.key) > 0; j--) {
            set->list[j] = set->list[j - 1];
        }
        set->list[j] = tag;
    }
}

enum err s3_op_get_object_tagging(struct s3_request *rq)
{
    struct object_reader r;
    TRY(object_open(rq->meta, rq->bucket, rq->key, true, rq->arena, &r));
    struct bytes text = s3_attr_get(r.attrs, r.attr_count, S3_TAGGING_ATTR);
    object_close(&r);
    struct s3_tag_set set;
    TRY(s3_tags_decode(rq, text, &set));
    sort_tags(&set);
    struct xml_writer w;
    s3_xml_begin(rq, &w, 2 * KIB);
    xml_writer_open_root(&w, "Tagging");
    xml_writer_open(&w, "TagSet");
    for (u32 i = 0; i < set.count; i++) {
        xml_writer_open(&w, "Tag");
        xml_writer_text(&w, "Key", set.list[i].key);
        xml_writer_text(&w, "Value", set.list[i].value);
        xml_writer_close(&w);
    }
    xml_writer_close(&w);
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

static MAY_WAIT enum err set_tagging(struct s3_request *rq, struct bytes text)
{
    // No tags: no attribute.
    struct attr attr = {BYTES_LITERAL(S3_TAGGING_ATTR), text.len > 0 ? text : BYTES_NONE};
    return object_set_attr(rq->meta, rq->bucket, rq->key, &attr);
}

enum err s3_op_put_object_tagging(struct s3_request *rq)
{
    struct bucket b;
    struct bytes body;
    struct bytes text;
    struct s3_tag_set set;
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    TRY(s3_read_small_body(rq, TAGGING_BODY_MAX, S3_CLAIMS_OF_BODY, &body));
    TRY(s3_tags_parse_xml(rq, body, &set));
    TRY(s3_tags_check(rq, &set));
    TRY(s3_tags_encode(rq, &set, &text));
    TRY(set_tagging(rq, text));
    return s3_respond_empty(rq, 200);
}

enum err s3_op_delete_object_tagging(struct s3_request *rq)
{
    TRY(set_tagging(rq, BYTES_NONE));
    return s3_respond_empty(rq, 204);
}
