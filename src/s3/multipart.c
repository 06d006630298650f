// SPDX-License-Identifier: Apache-2.0
// Multipart uploads: create, upload and copy parts, complete, abort, list.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codec/xml_read.h"
#include "s3/checksum.h"
#include "s3/headers.h"
#include "s3/list.h"
#include "s3/object_copy.h"
#include "s3/object_put.h"
#include "s3/s3_private.h"
#include "s3/small_body.h"

#define COMPLETE_BODY_MAX (8 * MIB)

// x-amz-checksum-algorithm and -type, and what the two allow together.
static enum err upload_checksum(struct s3_request *rq, struct upload_options *o)
{
    struct bytes name = s3_header_get(rq, "x-amz-checksum-algorithm");
    struct bytes type = s3_header_get(rq, "x-amz-checksum-type");
    if (name.data == NULL) {
        return type.data == NULL
                   ? OK
                   : s3_fail(rq, ERR_S3_INVALID_REQUEST,
                             "The x-amz-checksum-type header can only be used with the "
                             "x-amz-checksum-algorithm header.");
    }
    enum checksum_algorithm a = s3_checksum_parse_name(name);
    if (a == CHECKSUM_NONE) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "Checksum algorithm provided is unsupported. Please try again with any of "
                       "the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
    }
    bool is_full = a == CHECKSUM_CRC64NVME;
    if (type.data != NULL) {
        is_full = bytes_equal_nocase(type, BYTES_LITERAL("FULL_OBJECT"));
        if (!is_full && !bytes_equal_nocase(type, BYTES_LITERAL("COMPOSITE"))) {
            return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                           "Value for x-amz-checksum-type header is invalid.");
        }
    }
    if ((is_full && (a == CHECKSUM_SHA1 || a == CHECKSUM_SHA256)) ||
        (!is_full && a == CHECKSUM_CRC64NVME)) {
        return s3_fail_fmt(
            rq, ERR_S3_INVALID_REQUEST,
            "The %s checksum type cannot be used with the %s checksum algorithm.",
            s3_checksum_type_name(is_full ? CHECKSUM_FULL_OBJECT : CHECKSUM_COMPOSITE),
            s3_checksum_name(a));
    }
    o->checksum_algorithm = (u8)a;
    o->checksum_type = is_full ? CHECKSUM_FULL_OBJECT : CHECKSUM_COMPOSITE;
    return OK;
}

enum err s3_op_create_multipart_upload(struct s3_request *rq)
{
    struct s3_attrs attrs;
    struct upload_options o = {.bucket = rq->bucket, .key = rq->key};
    char id[META_UPLOAD_ID_CHARS + 1];
    TRY(s3_refuse_unsupported_headers(rq));
    TRY(s3_attrs_from_request(rq, &attrs));
    TRY(upload_checksum(rq, &o));
    o.attrs = attrs.list;
    o.attr_count = attrs.count;
    TRY(upload_create(rq->meta, &o, id));
    if (o.checksum_algorithm != CHECKSUM_NONE) {
        http_response_header_text(rq->x, "x-amz-checksum-algorithm",
                                  s3_checksum_name((enum checksum_algorithm)o.checksum_algorithm));
        http_response_header_text(rq->x, "x-amz-checksum-type",
                                  s3_checksum_type_name((enum checksum_type)o.checksum_type));
    }
    struct xml_writer w;
    s3_xml_begin(rq, &w, 2 * KIB);
    xml_writer_open_root(&w, "InitiateMultipartUploadResult");
    xml_writer_text(&w, "Bucket", rq->bucket);
    xml_writer_text(&w, "Key", rq->key);
    xml_writer_string(&w, "UploadId", id);
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

static enum err part_number(struct s3_request *rq, u32 *out)
{
    struct bytes text = s3_param_get(rq, "partNumber");
    u64 number = 0;
    if (!u64_parse(text, META_PART_NUMBER_MAX, &number) || number == 0) {
        return s3_fail_argument(rq, "partNumber", text,
                                "Part number must be an integer between 1 and 10000, inclusive");
    }
    *out = (u32)number;
    return OK;
}

// The algorithm that the upload's parts keep: the declared one, or CRC64NVME as at AWS.
static u8 part_algorithm(const struct upload_info *upload)
{
    return upload->checksum_algorithm != CHECKSUM_NONE ? upload->checksum_algorithm
                                                       : (u8)CHECKSUM_CRC64NVME;
}

static enum err checksum_mismatch(struct s3_request *rq, u8 expected, u8 actual)
{
    return s3_fail_fmt(rq, ERR_S3_INVALID_REQUEST,
                       "Checksum Type mismatch occurred, expected checksum Type: %s, actual "
                       "checksum Type: %s",
                       s3_checksum_name((enum checksum_algorithm)expected),
                       s3_checksum_name((enum checksum_algorithm)actual));
}

enum err s3_op_upload_part(struct s3_request *rq)
{
    struct s3_receive r = {.upload_id = s3_param_get(rq, "uploadId")};
    struct upload_info upload;
    TRY(s3_refuse_unsupported_headers(rq));
    TRY(part_number(rq, &r.part_number));
    TRY(upload_find(rq->meta, rq->bucket, rq->key, r.upload_id, &upload));
    r.keep_algorithm = part_algorithm(&upload);
    TRY(s3_checksum_claim_parse(rq, &r.claim));
    if (upload.checksum_algorithm != CHECKSUM_NONE && r.claim.algorithm != CHECKSUM_NONE &&
        r.claim.algorithm != upload.checksum_algorithm) {
        return checksum_mismatch(rq, upload.checksum_algorithm, r.claim.algorithm);
    }
    TRY(s3_receive(rq, &r));
    struct checksum shown = s3_receive_checksum(&r);
    struct object_finish f = {.checksum = s3_checksum_of(&r.digests, r.keep_algorithm)};
    struct object_info info;
    TRY(object_write_finish(r.writer, &f, &info));
    s3_respond_etag(rq, &info.etag);
    char text[S3_CHECKSUM_TEXT_MAX];
    s3_checksum_text(&shown, 0, text);
    http_response_header_text(rq->x, s3_checksum_header((enum checksum_algorithm)shown.algorithm),
                              text);
    return s3_respond_empty(rq, 200);
}

// x-amz-copy-source-range must be exactly bytes=first-last, inside the source.
static enum err copy_range(struct s3_request *rq, u64 size, u64 *offset, u64 *length)
{
    struct bytes text = s3_header_get(rq, "x-amz-copy-source-range");
    *offset = 0;
    *length = size;
    if (text.data == NULL) {
        return OK;
    }
    struct bytes unit = BYTES_LITERAL("bytes=");
    struct bytes spec = bytes_has_prefix(text, unit) ? bytes_skip(text, unit.len) : BYTES_NONE;
    const u8 *dash = spec.len == 0 ? NULL : memchr(spec.data, '-', spec.len);
    u64 first;
    u64 last;
    if (dash == NULL ||
        !u64_parse(BYTES(spec.data, (size_t)(dash - spec.data)), INT64_MAX, &first) ||
        !u64_parse(bytes_skip(spec, (size_t)(dash - spec.data) + 1), INT64_MAX, &last) ||
        last < first) {
        return s3_fail_argument(rq, "x-amz-copy-source-range", text,
                                "The x-amz-copy-source-range value must be of the form "
                                "bytes=first-last where first and last are the zero-based offsets "
                                "of the first and last bytes to copy");
    }
    if (last >= size) {
        s3_error_field(rq, "RangeRequested", text);
        return s3_fail_fmt(rq, ERR_S3_INVALID_RANGE,
                           "Range specified is not valid for source object of size: %llu",
                           (unsigned long long)size);
    }
    *offset = first;
    *length = last - first + 1;
    return OK;
}

static MAY_WAIT enum err part_copy_opened(struct s3_request *rq, struct object_reader *r,
                                          u32 number, struct bytes upload_id, u8 algorithm,
                                          struct object_info *info)
{
    u64 offset;
    u64 length;
    TRY(s3_read_condition(rq, "x-amz-copy-source-", &r->info));
    TRY(copy_range(rq, r->info.size, &offset, &length));
    if (length > META_PUT_BYTES_MAX) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "The specified copy source is larger than the maximum allowable size for a "
                       "copy source: 5368709120");
    }
    struct object_writer *w;
    struct object_write_options o = {
        .bucket = rq->bucket,
        .key = rq->key,
        .size_expected = length,
        .checksums = 1u << algorithm,
        .needs_md5 = true,
        .upload_id = upload_id,
        .part_number = number,
    };
    TRY(object_write_begin(rq->meta, &o, &w));
    struct object_digests d;
    enum err e = s3_copy_bytes(r, offset, length, w);
    if (e == OK) {
        e = object_write_digests(w, &d);
    }
    if (e != OK) {
        object_write_abort(w);
        return e;
    }
    struct object_finish f = {.checksum = s3_checksum_of(&d, algorithm)};
    TRY(object_write_finish(w, &f, info));
    info->checksum = f.checksum;
    return OK;
}

enum err s3_op_upload_part_copy(struct s3_request *rq)
{
    struct bytes upload_id = s3_param_get(rq, "uploadId");
    struct s3_copy_source source;
    struct upload_info upload;
    struct object_reader r;
    struct object_info info;
    u32 number = 0;
    TRY(s3_refuse_unsupported_headers(rq));
    TRY(part_number(rq, &number));
    TRY(s3_copy_source_parse(rq, &source));
    TRY(upload_find(rq->meta, rq->bucket, rq->key, upload_id, &upload));
    TRY(object_open(rq->meta, source.bucket, source.key, false, rq->arena, &r));
    enum err e = part_copy_opened(rq, &r, number, upload_id, part_algorithm(&upload), &info);
    object_close(&r);
    TRY(e);
    struct xml_writer w;
    s3_xml_begin(rq, &w, 1024);
    xml_writer_open_root(&w, "CopyPartResult");
    s3_xml_time(&w, "LastModified", info.modified_ns);
    s3_xml_etag(&w, &info.etag);
    if (upload.checksum_algorithm != CHECKSUM_NONE) {
        s3_checksum_xml(&w, &info.checksum, 0);
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

// One <Part>. Checksums of an algorithm that the upload does not keep say nothing and are passed
// over.
static enum err complete_part_parse(struct s3_request *rq, const struct xml_node *node,
                                    const struct upload_info *upload, struct complete_part *out)
{
    *out = (struct complete_part){0};
    u64 number = 0;
    struct bytes etag = xml_child_text(node, "ETag");
    if (!u64_parse(xml_child_text(node, "PartNumber"), INT32_MAX, &number) || etag.data == NULL) {
        return ERR_S3_MALFORMED_XML;
    }
    if (number == 0 || number > META_PART_NUMBER_MAX) {
        return s3_fail(rq, ERR_S3_INVALID_ARGUMENT, "PartNumber must be >= 1 and <= 10000");
    }
    out->number = (u32)number;
    if (!etag_parse(etag, &out->etag)) {
        return ERR_S3_INVALID_PART;
    }
    enum checksum_algorithm a = (enum checksum_algorithm)upload->checksum_algorithm;
    if (a == CHECKSUM_NONE) {
        return OK;
    }
    struct bytes text = xml_child_text(node, s3_checksum_element(a));
    if (text.data != NULL) {
        if (!s3_checksum_value_parse(a, text, out->checksum.value)) {
            return ERR_S3_INVALID_PART;
        }
        out->checksum.algorithm = (u8)a;
    }
    return OK;
}

// Ascending numbers. Of one number that stands twice, sent again before the first answer came, the
// last counts.
static enum err complete_parts_parse(struct s3_request *rq, const struct xml_node *root,
                                     const struct upload_info *upload, struct complete_request *c)
{
    u32 count = 0;
    XML_FOREACH_CHILD(node, root, "Part")
    {
        count++;
    }
    if (count == 0 || count > META_PART_NUMBER_MAX) {
        return ERR_S3_MALFORMED_XML;
    }
    struct complete_part *parts = arena_alloc(rq->arena, count * sizeof(*parts));
    if (parts == NULL) {
        return ERR_NO_MEMORY;
    }
    c->parts = parts;
    c->part_count = 0;
    XML_FOREACH_CHILD(node, root, "Part")
    {
        struct complete_part part;
        TRY(complete_part_parse(rq, node, upload, &part));
        u32 last = c->part_count == 0 ? 0 : parts[c->part_count - 1].number;
        if (part.number < last) {
            return ERR_S3_INVALID_PART_ORDER;
        }
        if (part.number > last) {
            c->part_count++;
        }
        parts[c->part_count - 1] = part;
    }
    return OK;
}

// What the headers of Complete say of the whole object.
static enum err complete_claims(struct s3_request *rq, const struct upload_info *upload,
                                struct complete_request *c)
{
    struct s3_checksum_claim claim;
    TRY(s3_write_condition(rq, &c->condition));
    TRY(s3_checksum_claim_parse(rq, &claim));
    if (claim.algorithm != CHECKSUM_NONE && claim.has_value) {
        u8 expected = part_algorithm(upload);
        if (claim.algorithm != expected) {
            return checksum_mismatch(rq, expected, claim.algorithm);
        }
        c->checksum.algorithm = claim.algorithm;
        c->checksum.type = upload->checksum_type;
        memcpy(c->checksum.value, claim.value, sizeof(c->checksum.value));
    }
    struct bytes type = s3_header_get(rq, "x-amz-checksum-type");
    if (type.data != NULL &&
        !bytes_equal_nocase(type, bytes_from_string(s3_checksum_type_name(
                                      (enum checksum_type)upload->checksum_type)))) {
        return s3_fail_fmt(rq, ERR_S3_INVALID_REQUEST,
                           "The upload was created using the %s checksum mode. The complete "
                           "request must use the same checksum mode.",
                           s3_checksum_type_name((enum checksum_type)upload->checksum_type));
    }
    struct bytes size = s3_header_get(rq, "x-amz-mp-object-size");
    if (size.data != NULL) {
        if (!u64_parse(size, INT64_MAX, &c->size)) {
            return s3_fail_argument(rq, "x-amz-mp-object-size", size,
                                    "Value for x-amz-mp-object-size header is invalid.");
        }
        c->has_size = true;
    }
    return OK;
}

static MAY_WAIT enum err respond_completed(struct s3_request *rq, const struct object_info *info)
{
    struct xml_writer w;
    s3_xml_begin(rq, &w, 4 * KIB);
    xml_writer_open_root(&w, "CompleteMultipartUploadResult");
    xml_writer_open(&w, "Location");
    xml_writer_append_text(&w,
                           rq->x->is_tls ? BYTES_LITERAL("https://") : BYTES_LITERAL("http://"));
    xml_writer_append_text(&w, s3_header_get(rq, "host"));
    xml_writer_append_text(&w, rq->path);
    xml_writer_close(&w);
    xml_writer_text(&w, "Bucket", rq->bucket);
    xml_writer_text(&w, "Key", rq->key);
    s3_xml_etag(&w, &info->etag);
    s3_checksum_xml(&w, &info->checksum, info->etag.parts);
    if (info->checksum.algorithm != CHECKSUM_NONE) {
        xml_writer_string(&w, "ChecksumType",
                          s3_checksum_type_name((enum checksum_type)info->checksum.type));
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

enum err s3_op_complete_multipart_upload(struct s3_request *rq)
{
    struct complete_request c = {
        .bucket = rq->bucket, .key = rq->key, .upload_id = s3_param_get(rq, "uploadId")};
    struct upload_info upload = {0};
    struct bytes body;
    const struct xml_node *root;
    TRY(s3_read_small_body(rq, COMPLETE_BODY_MAX, S3_CLAIMS_OF_OBJECT, &body));
    struct xml_limits limits = XML_LIMITS_S3;
    limits.hash_salt = rq->s3->xml_salt;
    TRY(xml_parse(body, rq->arena, &limits, &root));
    if (!xml_node_is(root, "CompleteMultipartUpload")) {
        return ERR_S3_MALFORMED_XML;
    }
    // A completed upload is gone, but its Complete may come again: meta decides about that.
    enum err e = upload_find(rq->meta, rq->bucket, rq->key, c.upload_id, &upload);
    bool is_known = e == OK;
    if (!is_known && e != ERR_S3_NO_SUCH_UPLOAD) {
        return e;
    }
    e = complete_parts_parse(rq, root, &upload, &c);
    if (!is_known && e != OK && e != ERR_S3_MALFORMED_XML) {
        return ERR_S3_NO_SUCH_UPLOAD; // what its parts would be does not matter
    }
    TRY(e);
    if (is_known) {
        TRY(complete_claims(rq, &upload, &c));
    }
    struct object_info info;
    TRY(upload_complete(rq->meta, &c, &info));
    return respond_completed(rq, &info);
}

enum err s3_op_abort_multipart_upload(struct s3_request *rq)
{
    TRY(upload_abort(rq->meta, rq->bucket, rq->key, s3_param_get(rq, "uploadId")));
    return s3_respond_empty(rq, 204);
}

enum err s3_op_list_parts(struct s3_request *rq)
{
    struct bytes upload_id = s3_param_get(rq, "uploadId");
    struct bytes marker_text = s3_param_get(rq, "part-number-marker");
    struct upload_info upload;
    struct part_info *parts;
    u64 marker = 0;
    u32 max;
    u32 count;
    bool is_truncated;
    bool is_url;
    TRY(s3_list_max(rq, "max-parts", &max));
    TRY(s3_list_encoding(rq, &is_url));
    if (marker_text.len > 0 && !u64_parse(marker_text, INT32_MAX, &marker)) {
        return s3_fail_argument(rq, "part-number-marker", marker_text,
                                "Argument part-number-marker must be an integer between 0 and "
                                "2147483647");
    }
    TRY(upload_find(rq->meta, rq->bucket, rq->key, upload_id, &upload));
    TRY(upload_list_parts(rq->meta, rq->bucket, rq->key, upload_id, (u32)marker, max, rq->arena,
                          &parts, &count, &is_truncated));
    struct xml_writer w;
    s3_xml_begin(rq, &w, 2 * KIB + (size_t)count * 256);
    xml_writer_open_root(&w, "ListPartsResult");
    xml_writer_text(&w, "Bucket", rq->bucket);
    s3_list_name(&w, "Key", rq->key, is_url);
    xml_writer_text(&w, "UploadId", upload_id);
    s3_xml_owner(&w, "Initiator");
    s3_xml_owner(&w, "Owner");
    xml_writer_string(&w, "StorageClass", "STANDARD");
    xml_writer_u64(&w, "PartNumberMarker", marker);
    xml_writer_u64(&w, "NextPartNumberMarker", count > 0 ? parts[count - 1].number : 0);
    xml_writer_u64(&w, "MaxParts", max);
    xml_writer_bool(&w, "IsTruncated", is_truncated);
    if (upload.checksum_algorithm != CHECKSUM_NONE) {
        xml_writer_string(&w, "ChecksumAlgorithm",
                          s3_checksum_name((enum checksum_algorithm)upload.checksum_algorithm));
        xml_writer_string(&w, "ChecksumType",
                          s3_checksum_type_name((enum checksum_type)upload.checksum_type));
    }
    for (u32 i = 0; i < count; i++) {
        xml_writer_open(&w, "Part");
        xml_writer_u64(&w, "PartNumber", parts[i].number);
        s3_xml_time(&w, "LastModified", parts[i].info.modified_ns);
        s3_xml_etag(&w, &parts[i].info.etag);
        xml_writer_u64(&w, "Size", parts[i].info.size);
        s3_checksum_xml(&w, &parts[i].info.checksum, 0);
        xml_writer_close(&w);
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

static void xml_upload(struct xml_writer *w, const struct upload_item *u, bool is_url)
{
    if (u->is_prefix) {
        xml_writer_open(w, "CommonPrefixes");
        s3_list_name(w, "Prefix", u->key, is_url);
        xml_writer_close(w);
        return;
    }
    xml_writer_open(w, "Upload");
    s3_list_name(w, "Key", u->key, is_url);
    xml_writer_string(w, "UploadId", u->upload_id);
    s3_xml_owner(w, "Initiator");
    s3_xml_owner(w, "Owner");
    xml_writer_string(w, "StorageClass", "STANDARD");
    s3_xml_time(w, "Initiated", u->info.initiated_ns);
    if (u->info.checksum_algorithm != CHECKSUM_NONE) {
        xml_writer_string(w, "ChecksumAlgorithm",
                          s3_checksum_name((enum checksum_algorithm)u->info.checksum_algorithm));
        xml_writer_string(w, "ChecksumType",
                          s3_checksum_type_name((enum checksum_type)u->info.checksum_type));
    }
    xml_writer_close(w);
}

enum err s3_op_list_multipart_uploads(struct s3_request *rq)
{
    struct upload_list_request l = {
        .bucket = rq->bucket,
        .prefix = s3_param_get(rq, "prefix"),
        .delimiter = s3_param_get(rq, "delimiter"),
        .after_key = s3_param_get(rq, "key-marker"),
        .after_upload_id = s3_param_get(rq, "upload-id-marker"),
    };
    struct upload_item *items;
    u32 count;
    bool is_truncated;
    bool is_url;
    TRY(s3_list_encoding(rq, &is_url));
    TRY(s3_list_max(rq, "max-uploads", &l.max));
    TRY(upload_list(rq->meta, &l, rq->arena, &items, &count, &is_truncated));
    struct xml_writer w;
    s3_xml_begin(rq, &w, 2 * KIB + (size_t)count * 512);
    xml_writer_open_root(&w, "ListMultipartUploadsResult");
    xml_writer_text(&w, "Bucket", rq->bucket);
    s3_list_name(&w, "KeyMarker", l.after_key, is_url);
    xml_writer_text(&w, "UploadIdMarker", l.after_upload_id);
    if (is_truncated && count > 0) {
        s3_list_name(&w, "NextKeyMarker", items[count - 1].key, is_url);
        xml_writer_string(&w, "NextUploadIdMarker",
                          items[count - 1].is_prefix ? "" : items[count - 1].upload_id);
    }
    s3_list_name(&w, "Prefix", l.prefix, is_url);
    if (l.delimiter.len > 0) {
        s3_list_name(&w, "Delimiter", l.delimiter, is_url);
    }
    if (is_url) {
        xml_writer_raw(&w, "EncodingType", BYTES_LITERAL("url"));
    }
    xml_writer_u64(&w, "MaxUploads", l.max);
    xml_writer_bool(&w, "IsTruncated", is_truncated);
    for (u32 i = 0; i < count; i++) {
        xml_upload(&w, &items[i], is_url);
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}
