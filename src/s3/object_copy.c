// SPDX-License-Identifier: Apache-2.0
// CopyObject: a new object from the bytes of another, with the source's attributes or new ones.
#include "s3/object_copy.h"

#include <string.h>

#include "base/text.h"
#include "codec/percent.h"
#include "s3/checksum.h"
#include "s3/headers.h"
#include "s3/tags.h"

enum err s3_copy_source_parse(struct s3_request *rq, struct s3_copy_source *out)
{
    struct bytes raw = s3_header_get(rq, "x-amz-copy-source");
    // The version is separated by a raw '?': an encoded one is part of the key.
    const u8 *question = raw.len == 0 ? NULL : memchr(raw.data, '?', raw.len);
    if (question != NULL) {
        struct bytes version = bytes_skip(raw, (size_t)(question - raw.data) + 1);
        raw.len = (size_t)(question - raw.data);
        if (!bytes_equal(version, BYTES_LITERAL("versionId=null"))) {
            return s3_fail_argument(rq, "x-amz-copy-source", version,
                                    "Invalid version id specified");
        }
    }
    u8 *p = arena_alloc(rq->arena, raw.len + 1);
    size_t len = 0;
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    if (percent_decode(raw, PERCENT_PLUS_IS_PLUS, p, raw.len + 1, &len) != OK) {
        return s3_fail_argument(rq, "x-amz-copy-source", raw, "Invalid copy source encoding.");
    }
    struct bytes path = BYTES(p, len);
    if (path.len > 0 && path.data[0] == '/') {
        path = bytes_skip(path, 1);
    }
    const u8 *slash = path.len == 0 ? NULL : memchr(path.data, '/', path.len);
    if (slash == NULL || slash == path.data || slash == path.data + path.len - 1) {
        return s3_fail_argument(rq, "x-amz-copy-source", raw,
                                "Copy Source must mention the source bucket and key: "
                                "sourcebucket/sourcekey");
    }
    out->bucket = BYTES(path.data, (size_t)(slash - path.data));
    out->key = bytes_skip(path, out->bucket.len + 1);
    if (!bucket_name_is_valid(out->bucket)) {
        return ERR_S3_INVALID_BUCKET_NAME;
    }
    return out->key.len > META_KEY_BYTES_MAX ? ERR_S3_KEY_TOO_LONG : OK;
}

// What was read is given back before the next wait for memory to write: copies that held the one
// while they waited for the other could wait for each other for ever.
enum err s3_copy_bytes(struct object_reader *r, u64 offset, u64 length, struct object_writer *w)
{
    u64 at = offset;
    u64 end = offset + length;
    while (at < end) {
        u8 *p;
        size_t room;
        TRY(object_write_buffer(w, &p, &room));
        size_t filled = 0;
        size_t wanted = MIN((u64)room, end - at);
        while (filled < wanted) {
            struct bytes piece;
            TRY(object_read(r, at + filled, wanted - filled, &piece));
            memcpy(p + filled, piece.data, piece.len);
            filled += piece.len;
        }
        object_read_release(r);
        TRY(object_write_advance(w, filled));
        at += filled;
    }
    return OK;
}

// COPY (also when absent) or REPLACE.
static enum err parse_directive(struct s3_request *rq, const char *name, bool *is_replace)
{
    struct bytes text = s3_header_get(rq, name);
    *is_replace = bytes_equal(text, BYTES_LITERAL("REPLACE"));
    if (text.data != NULL && !*is_replace && !bytes_equal(text, BYTES_LITERAL("COPY"))) {
        return s3_fail_argument(rq, name, text, "Unknown directive.");
    }
    return OK;
}

// The attributes of the new object, by the two directives.
static enum err copy_attrs(struct s3_request *rq, const struct object_reader *r,
                           bool replaces_metadata, bool replaces_tags, struct s3_attrs *out)
{
    struct s3_attrs given;
    TRY(s3_attrs_from_request(rq, &given));
    out->list = arena_alloc(rq->arena, (given.count + r->attr_count + 1) * sizeof(*out->list));
    out->count = 0;
    if (out->list == NULL) {
        return ERR_NO_MEMORY;
    }
    struct bytes tagging = BYTES_LITERAL(S3_TAGGING_ATTR);
    for (u32 i = 0; i < given.count; i++) {
        bool is_tagging = bytes_equal(given.list[i].name, tagging);
        if (is_tagging ? replaces_tags : replaces_metadata) {
            out->list[out->count++] = given.list[i];
        }
    }
    for (u32 i = 0; i < r->attr_count; i++) {
        bool is_tagging = bytes_equal(r->attrs[i].name, tagging);
        if (!(is_tagging ? replaces_tags : replaces_metadata)) {
            out->list[out->count++] = r->attrs[i];
        }
    }
    return OK;
}

static MAY_WAIT enum err respond_copied(struct s3_request *rq, const struct object_info *info)
{
    struct xml_writer w;
    s3_xml_begin(rq, &w, 1024);
    xml_writer_open_root(&w, "CopyObjectResult");
    s3_xml_time(&w, "LastModified", info->modified_ns);
    s3_xml_etag(&w, &info->etag);
    s3_checksum_xml(&w, &info->checksum, info->etag.parts);
    if (info->checksum.algorithm != CHECKSUM_NONE) {
        xml_writer_string(&w, "ChecksumType",
                          s3_checksum_type_name((enum checksum_type)info->checksum.type));
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

static MAY_WAIT enum err copy_whole(struct s3_request *rq, struct object_reader *r,
                                    const struct s3_attrs *attrs, enum checksum_algorithm a,
                                    struct object_info *out)
{
    struct object_finish f = {.attrs = attrs->list, .attr_count = attrs->count};
    struct object_writer *w;
    struct object_write_options o = {
        .bucket = rq->bucket,
        .key = rq->key,
        .size_expected = r->info.size,
        .checksums = 1u << a,
        .needs_md5 = true,
    };
    TRY(s3_write_condition(rq, &f.condition));
    TRY(object_write_begin(rq->meta, &o, &w));
    struct object_digests d;
    enum err e = s3_copy_bytes(r, 0, r->info.size, w);
    if (e == OK) {
        e = object_write_digests(w, &d);
    }
    if (e != OK) {
        object_write_abort(w);
        return e;
    }
    f.checksum = s3_checksum_of(&d, (u8)a);
    TRY(object_write_finish(w, &f, out));
    out->checksum = f.checksum;
    return OK;
}

static MAY_WAIT enum err copy_opened(struct s3_request *rq, struct object_reader *r, bool is_self)
{
    bool replaces_metadata;
    bool replaces_tags;
    struct s3_attrs attrs;
    struct object_info info;
    TRY(parse_directive(rq, "x-amz-metadata-directive", &replaces_metadata));
    TRY(parse_directive(rq, "x-amz-tagging-directive", &replaces_tags));
    TRY(s3_read_condition(rq, "x-amz-copy-source-", &r->info));
    if (is_self && !replaces_metadata && !replaces_tags) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "This copy request is illegal because it is trying to copy an object to "
                       "itself without changing the object's metadata, storage class, website "
                       "redirect location or encryption attributes.");
    }
    if (r->info.size > META_PUT_BYTES_MAX) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "The specified copy source is larger than the maximum allowable size for a "
                       "copy source: 5368709120");
    }
    TRY(copy_attrs(rq, r, replaces_metadata, replaces_tags, &attrs));
    enum checksum_algorithm a = (enum checksum_algorithm)r->info.checksum.algorithm;
    struct bytes wanted = s3_header_get(rq, "x-amz-checksum-algorithm");
    if (wanted.data != NULL) {
        a = s3_checksum_parse_name(wanted);
        if (a == CHECKSUM_NONE) {
            return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                           "Checksum algorithm provided is unsupported. Please try again with any "
                           "of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
        }
    } else if (a == CHECKSUM_NONE) {
        a = CHECKSUM_CRC64NVME;
    }
    if (is_self && a == (enum checksum_algorithm)r->info.checksum.algorithm) {
        struct write_condition c;
        TRY(s3_write_condition(rq, &c));
        if (!c.has_if_match && !c.if_match_any && !c.if_etag_is_foreign) {
            // The bytes that were looked at are the bytes that stay.
            c.has_if_match = true;
            c.if_match = r->info.etag;
        }
        TRY(object_rewrite_attrs(rq->meta, rq->bucket, rq->key, attrs.list, attrs.count, &c,
                                 &info));
    } else {
        TRY(copy_whole(rq, r, &attrs, a, &info));
    }
    return respond_copied(rq, &info);
}

enum err s3_op_copy_object(struct s3_request *rq)
{
    struct s3_copy_source source;
    struct object_reader r;
    struct bucket b;
    TRY(s3_refuse_unsupported_headers(rq));
    TRY(s3_copy_source_parse(rq, &source));
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    bool is_self = bytes_equal(source.bucket, rq->bucket) && bytes_equal(source.key, rq->key);
    TRY(object_open(rq->meta, source.bucket, source.key, false, rq->arena, &r));
    enum err e = copy_opened(rq, &r, is_self);
    object_close(&r);
    return e;
}
