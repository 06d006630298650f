// SPDX-License-Identifier: Apache-2.0
// GetObject, HeadObject and GetObjectAttributes.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "core/metrics.h"
#include "s3/checksum.h"
#include "s3/headers.h"

#define SEND_BYTES_MAX      (2 * MIB) // asked of the reader at once: more than it reads ahead
#define ATTRIBUTE_PARTS_MAX 1000

// Which bytes are wanted: all, a range, or a part.
struct selection {
    u64 offset;
    u64 length;
    u32 status;
    struct object_part part;
    bool is_part;
};

static enum err select_part(struct s3_request *rq, struct object_reader *r, struct bytes text,
                            struct selection *s)
{
    u64 number = 0;
    if (!u64_parse(text, META_PART_NUMBER_MAX, &number) || number == 0) {
        return s3_fail_argument(rq, "partNumber", text,
                                "Part number must be an integer between 1 and 10000, inclusive");
    }
    if (s3_header_get(rq, "range").data != NULL) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "Cannot specify both Range header and partNumber query parameter");
    }
    s->is_part = true;
    s->status = 206;
    if (r->part_count == 0) {
        if (number != 1) {
            s3_error_field(rq, "ActualPartCount", BYTES_LITERAL("1"));
            s3_error_field(rq, "PartNumberRequested", text);
            return s3_fail(rq, ERR_S3_INVALID_PART, "The requested partnumber is not satisfiable");
        }
        s->length = r->info.size;
        // An empty object has no byte to be partial about.
        s->status = r->info.size == 0 ? 200 : 206;
        return OK;
    }
    if (object_part_find(r, (u32)number, &s->part) != OK) {
        s3_error_field(rq, "PartNumberRequested", text);
        return s3_fail(rq, ERR_S3_INVALID_PART, "The requested partnumber is not satisfiable");
    }
    s->offset = s->part.offset;
    s->length = s->part.size;
    return OK;
}

// If-Range: the range counts only while the object is still the one that the client has part of.
static bool range_applies(struct s3_request *rq, const struct object_info *info)
{
    struct bytes text = s3_header_get(rq, "if-range");
    struct etag e;
    return text.data == NULL || (etag_parse(text, &e) && etag_equal(&e, &info->etag));
}

static enum err select_bytes(struct s3_request *rq, struct object_reader *r, struct selection *s)
{
    *s = (struct selection){.length = r->info.size, .status = 200};
    struct bytes part = s3_param_get(rq, "partNumber");
    if (part.data != NULL) {
        return select_part(rq, r, part, s);
    }
    struct bytes text = s3_header_get(rq, "range");
    if (text.data == NULL || !range_applies(rq, &r->info)) {
        return OK;
    }
    struct s3_range range;
    TRY(s3_range_parse(rq, text, r->info.size, &range));
    if (range.is_set) {
        s->offset = range.offset;
        s->length = range.length;
        s->status = 206;
    }
    return OK;
}

static void respond_headers(struct s3_request *rq, struct object_reader *r,
                            const struct selection *s)
{
    s3_respond_time(rq, "last-modified", r->info.modified_ns);
    s3_respond_etag(rq, &r->info.etag);
    http_response_header_text(rq->x, "accept-ranges", "bytes");
    s3_attrs_respond(rq, r->attrs, r->attr_count, true);
    struct bytes mode = s3_header_get(rq, "x-amz-checksum-mode");
    if (bytes_equal_nocase(mode, BYTES_LITERAL("ENABLED"))) {
        if (s->is_part && r->part_count > 0 && s->part.checksum.algorithm != CHECKSUM_NONE) {
            // The part's value, with the type that the whole object's checksum has.
            struct checksum shown = s->part.checksum;
            shown.type = r->info.checksum.type;
            s3_checksum_respond(rq, &shown, 0);
        } else if (s->status == 200 || (s->is_part && r->part_count == 0)) {
            s3_checksum_respond(rq, &r->info.checksum, r->info.etag.parts);
        }
    }
    if (s->is_part && r->part_count > 0) {
        http_response_header_u64(rq->x, "x-amz-mp-parts-count", r->part_count);
    }
    if (s->status == 206) {
        char text[96];
        snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)s->offset,
                 (unsigned long long)(s->offset + s->length - 1), (unsigned long long)r->info.size);
        http_response_header_text(rq->x, "content-range", text);
    }
    http_response_header(rq->x, "x-amz-request-id", BYTES(rq->request_id, S3_REQUEST_ID_CHARS));
}

static MAY_WAIT enum err send_bytes(struct s3_request *rq, struct object_reader *r,
                                    const struct selection *s)
{
    u64 at = s->offset;
    u64 end = s->offset + s->length;
    while (at < end) {
        struct bytes piece;
        TRY(object_read(r, at, MIN(end - at, (u64)SEND_BYTES_MAX), &piece));
        ASSERT(piece.len > 0 && piece.len <= end - at);
        TRY(http_response_write(rq->x, piece));
        at += piece.len;
    }
    metric_add(METRIC_S3_BYTES_OUT, (i64)s->length);
    return OK;
}

static MAY_WAIT enum err get_opened(struct s3_request *rq, struct object_reader *r, bool is_head)
{
    struct selection s;
    enum err e = s3_read_condition(rq, "", &r->info);
    if (e != OK) {
        if (e == ERR_S3_NOT_MODIFIED) {
            s3_respond_etag(rq, &r->info.etag);
            s3_respond_time(rq, "last-modified", r->info.modified_ns);
        }
        return e;
    }
    TRY(select_bytes(rq, r, &s));
    // The first bytes are read before the head is fixed: what cannot be read is an error response,
    // not a broken one.
    struct bytes first = BYTES_NONE;
    if (!is_head && s.length > 0) {
        TRY(object_read(r, s.offset, MIN(s.length, (u64)SEND_BYTES_MAX), &first));
    }
    respond_headers(rq, r, &s);
    TRY(http_response_start(rq->x, s.status, s.length));
    if (is_head || s.length == 0) {
        return OK;
    }
    TRY(http_response_write(rq->x, first));
    metric_add(METRIC_S3_BYTES_OUT, (i64)first.len);
    s.offset += first.len;
    s.length -= first.len;
    return send_bytes(rq, r, &s);
}

static MAY_WAIT enum err get_or_head(struct s3_request *rq, bool is_head)
{
    struct object_reader r;
    enum err e = object_open(rq->meta, rq->bucket, rq->key, is_head, rq->arena, &r);
    if (e == ERR_S3_NO_SUCH_KEY) {
        // Nothing is there, as opposed to a marker that something was deleted.
        http_response_header_text(rq->x, "x-amz-delete-marker", "false");
    }
    TRY(e);
    e = get_opened(rq, &r, is_head);
    object_close(&r);
    return e;
}

enum err s3_op_get_object(struct s3_request *rq)
{
    return get_or_head(rq, false);
}

enum err s3_op_head_object(struct s3_request *rq)
{
    return get_or_head(rq, true);
}

#define WANT_ETAG     1u
#define WANT_CHECKSUM 2u
#define WANT_PARTS    4u
#define WANT_CLASS    8u
#define WANT_SIZE     16u

static enum err parse_wanted(struct s3_request *rq, u32 *wanted)
{
    static const char *const names[] = {"ETag", "Checksum", "ObjectParts", "StorageClass",
                                        "ObjectSize"};
    *wanted = 0;
    for (u32 i = 0; i < rq->x->header_count; i++) {
        if (!bytes_equal_nocase(rq->x->headers[i].name, BYTES_LITERAL("x-amz-object-attributes"))) {
            continue;
        }
        struct bytes list = rq->x->headers[i].value;
        while (list.len > 0) {
            struct bytes one = bytes_split(&list, ',');
            while (one.len > 0 && one.data[0] == ' ') {
                one = bytes_skip(one, 1);
            }
            while (one.len > 0 && one.data[one.len - 1] == ' ') {
                one.len--;
            }
            u32 bit = 0;
            for (size_t n = 0; n < ARRAY_LEN(names); n++) {
                bit |= bytes_equal(one, bytes_from_string(names[n])) ? 1u << n : 0;
            }
            if (bit == 0) {
                return s3_fail_argument(rq, "x-amz-object-attributes", one,
                                        "Invalid attribute name specified.");
            }
            *wanted |= bit;
        }
    }
    if (*wanted == 0) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "Missing required header for this request: x-amz-object-attributes");
    }
    return OK;
}

static enum err attributes_parts(struct s3_request *rq, struct object_reader *r,
                                 struct xml_writer *w)
{
    u64 max = ATTRIBUTE_PARTS_MAX;
    u64 marker = 0;
    struct bytes max_text = s3_header_get(rq, "x-amz-max-parts");
    struct bytes marker_text = s3_header_get(rq, "x-amz-part-number-marker");
    if (max_text.data != NULL && !u64_parse(max_text, INT32_MAX, &max)) {
        return s3_fail_argument(rq, "x-amz-max-parts", max_text,
                                "Provided max-parts not an integer or within integer range");
    }
    if (marker_text.data != NULL && !u64_parse(marker_text, INT32_MAX, &marker)) {
        return s3_fail_argument(rq, "x-amz-part-number-marker", marker_text,
                                "Provided part-number-marker not an integer or within integer "
                                "range");
    }
    max = MIN(max, (u64)ATTRIBUTE_PARTS_MAX);
    xml_writer_open(w, "ObjectParts");
    struct object_part part;
    u64 last = marker;
    u64 given = 0;
    bool is_truncated = false;
    for (u32 i = 0; i < r->part_count; i++) {
        TRY(object_part_at(r, i, &part));
        if (part.number <= marker) {
            continue;
        }
        if (given == max) {
            is_truncated = true;
            break;
        }
        xml_writer_open(w, "Part");
        xml_writer_u64(w, "PartNumber", part.number);
        xml_writer_u64(w, "Size", part.size);
        s3_checksum_xml(w, &part.checksum, 0);
        xml_writer_close(w);
        last = part.number;
        given++;
    }
    xml_writer_u64(w, "PartNumberMarker", marker);
    xml_writer_u64(w, "NextPartNumberMarker", last);
    xml_writer_u64(w, "MaxParts", max);
    xml_writer_bool(w, "IsTruncated", is_truncated);
    xml_writer_u64(w, "PartsCount", r->part_count);
    xml_writer_close(w);
    return OK;
}

static MAY_WAIT enum err attributes_opened(struct s3_request *rq, struct object_reader *r,
                                           u32 wanted)
{
    TRY(s3_read_condition(rq, "", &r->info));
    struct xml_writer w;
    s3_xml_begin(rq, &w, 2 * KIB);
    xml_writer_open_root(&w, "GetObjectAttributesResponse");
    if (wanted & WANT_ETAG) {
        char text[ETAG_TEXT_MAX];
        etag_text(&r->info.etag, text);
        xml_writer_string(&w, "ETag", text); // this one answer has no quotes
    }
    if (wanted & WANT_CHECKSUM && r->info.checksum.algorithm != CHECKSUM_NONE) {
        xml_writer_open(&w, "Checksum");
        s3_checksum_xml(&w, &r->info.checksum, r->info.etag.parts);
        xml_writer_string(&w, "ChecksumType",
                          s3_checksum_type_name((enum checksum_type)r->info.checksum.type));
        xml_writer_close(&w);
    }
    if (wanted & WANT_PARTS && r->part_count > 0) {
        TRY(attributes_parts(rq, r, &w));
    }
    if (wanted & WANT_CLASS) {
        xml_writer_string(&w, "StorageClass", "STANDARD");
    }
    if (wanted & WANT_SIZE) {
        xml_writer_u64(&w, "ObjectSize", r->info.size);
    }
    xml_writer_close(&w);
    s3_respond_time(rq, "last-modified", r->info.modified_ns);
    return s3_respond_xml(rq, &w);
}

enum err s3_op_get_object_attributes(struct s3_request *rq)
{
    u32 wanted;
    struct object_reader r;
    TRY(parse_wanted(rq, &wanted));
    TRY(object_open(rq->meta, rq->bucket, rq->key, true, rq->arena, &r));
    enum err e = attributes_opened(rq, &r, wanted);
    object_close(&r);
    return e;
}
