// SPDX-License-Identifier: Apache-2.0
// ListObjects (both versions of the API) and ListObjectVersions.
#include <string.h>

#include "base/text.h"
#include "codec/percent.h"
#include "s3/checksum.h"
#include "s3/headers.h"
#include "s3/list.h"

enum err s3_list_encoding(struct s3_request *rq, bool *is_url)
{
    struct bytes text = s3_param_get(rq, "encoding-type");
    *is_url = bytes_equal_nocase(text, BYTES_LITERAL("url"));
    if (text.len > 0 && !*is_url) {
        return s3_fail_argument(rq, "encoding-type", text,
                                "Invalid Encoding Method specified in Request");
    }
    return OK;
}

enum err s3_list_max(struct s3_request *rq, const char *name, u32 *out)
{
    struct bytes text = s3_param_get(rq, name);
    u64 max = META_LIST_MAX;
    if (text.len > 0 && !u64_parse(text, INT32_MAX, &max)) {
        return s3_fail_argument(rq, name, text,
                                "Argument must be an integer between 0 and 2147483647");
    }
    *out = (u32)MIN(max, (u64)META_LIST_MAX);
    return OK;
}

void s3_list_name(struct xml_writer *w, const char *element, struct bytes name, bool is_url)
{
    if (!is_url) {
        xml_writer_text(w, element, name);
        return;
    }
    char encoded[PERCENT_ENCODED_BYTES_MAX(META_KEY_BYTES_MAX) + 8];
    size_t len = 0;
    if (percent_encode(name, PERCENT_SLASH_KEEP, encoded, sizeof(encoded), &len) != OK) {
        // Longer than any key: an echo of what the client sent, cut.
        len = 0;
    }
    xml_writer_raw(w, element, BYTES(encoded, len));
}

// The prefix as asked for, in ListObjects. botocore does not decode it there, other SDKs do.
// Encoded is only what decoding would change, and what XML cannot carry: so both see what was sent,
// but for those characters.
static void echo_prefix(struct xml_writer *w, struct bytes prefix)
{
    char encoded[PERCENT_ENCODED_BYTES_MAX(META_KEY_BYTES_MAX)];
    size_t len = 0;
    for (size_t i = 0; i < prefix.len && prefix.len <= META_KEY_BYTES_MAX; i++) {
        u8 c = prefix.data[i];
        bool is_kept = c == '\t' || c == '\n' || c == '\r' || (c >= ' ' && c < 0x7f);
        size_t n = 1;
        encoded[len] = (char)c;
        if (!is_kept || c == '%' || c == '+') {
            (void)!percent_encode(BYTES(&c, 1), PERCENT_SLASH_ENCODE, encoded + len,
                                  sizeof(encoded) - len, &n);
        }
        len += n;
    }
    xml_writer_text(w, "Prefix", BYTES(encoded, len));
}

enum list_kind { LIST_V1, LIST_V2, LIST_VERSIONS };

struct listing {
    enum list_kind kind;
    struct list_request request;
    bool is_url;
    bool with_owner;
    struct bytes start; // marker, start-after or key-marker as sent
    struct bytes token; // V2
};

static void xml_item(struct xml_writer *w, const struct listing *l, const struct list_item *item)
{
    bool is_version = l->kind == LIST_VERSIONS;
    xml_writer_open(w, is_version ? "Version" : "Contents");
    s3_list_name(w, "Key", item->name, l->is_url);
    if (is_version) {
        xml_writer_raw(w, "VersionId", BYTES_LITERAL("null"));
        xml_writer_bool(w, "IsLatest", true);
    }
    s3_xml_time(w, "LastModified", item->info.modified_ns);
    s3_xml_etag(w, &item->info.etag);
    if (item->info.checksum.algorithm != CHECKSUM_NONE) {
        const struct checksum *c = &item->info.checksum;
        xml_writer_string(w, "ChecksumAlgorithm",
                          s3_checksum_name((enum checksum_algorithm)c->algorithm));
        xml_writer_string(w, "ChecksumType", s3_checksum_type_name((enum checksum_type)c->type));
    }
    xml_writer_u64(w, "Size", item->info.size);
    if (l->with_owner) {
        s3_xml_owner(w, "Owner");
    }
    xml_writer_raw(w, "StorageClass", BYTES_LITERAL("STANDARD"));
    xml_writer_close(w);
}

// The elements before the entries.
static void xml_head(struct xml_writer *w, const struct listing *l, const struct list_result *r)
{
    static const char *const start_names[] = {"Marker", "StartAfter", "KeyMarker"};
    xml_writer_text(w, "Name", l->request.bucket);
    if (l->kind == LIST_V1 && l->is_url) {
        echo_prefix(w, l->request.prefix);
    } else {
        s3_list_name(w, "Prefix", l->request.prefix, l->is_url);
    }
    if (l->kind != LIST_V2 || l->start.len > 0) {
        s3_list_name(w, start_names[l->kind], l->start, l->is_url);
    }
    if (l->kind == LIST_VERSIONS) {
        xml_writer_empty(w, "VersionIdMarker");
    }
    if (l->kind == LIST_V2) {
        if (l->token.data != NULL) {
            xml_writer_text(w, "ContinuationToken", l->token);
        }
        xml_writer_u64(w, "KeyCount", r->count);
    }
    xml_writer_u64(w, "MaxKeys", l->request.max);
    if (l->request.delimiter.len > 0) {
        s3_list_name(w, "Delimiter", l->request.delimiter, l->is_url);
    }
    if (l->is_url) {
        xml_writer_raw(w, "EncodingType", BYTES_LITERAL("url"));
    }
    xml_writer_bool(w, "IsTruncated", r->is_truncated);
}

static enum err xml_next(struct s3_request *rq, struct xml_writer *w, const struct listing *l,
                         const struct list_result *r)
{
    if (!r->is_truncated) {
        return OK;
    }
    if (l->kind == LIST_V1) {
        // AWS tells the next marker only where a delimiter hides what it would be.
        if (l->request.delimiter.len > 0) {
            s3_list_name(w, "NextMarker", r->next_after, l->is_url);
        }
        return OK;
    }
    if (l->kind == LIST_VERSIONS) {
        s3_list_name(w, "NextKeyMarker", r->next_after, l->is_url);
        xml_writer_raw(w, "NextVersionIdMarker", BYTES_LITERAL("null"));
        return OK;
    }
    char *text = arena_alloc(rq->arena, BASE64_LEN(r->next_after.len) + 1);
    if (text == NULL) {
        return ERR_NO_MEMORY;
    }
    base64_encode(r->next_after, text);
    xml_writer_string(w, "NextContinuationToken", text);
    return OK;
}

static MAY_WAIT enum err respond_listing(struct s3_request *rq, struct listing *l)
{
    static const char *const roots[] = {"ListBucketResult", "ListBucketResult",
                                        "ListVersionsResult"};
    struct list_result r;
    l->request.bucket = rq->bucket;
    l->request.prefix = s3_param_get(rq, "prefix");
    l->request.delimiter = s3_param_get(rq, "delimiter");
    TRY(s3_list_encoding(rq, &l->is_url));
    TRY(s3_list_max(rq, "max-keys", &l->request.max));
    TRY(object_list(rq->meta, &l->request, rq->arena, &r));
    struct xml_writer w;
    s3_xml_begin(rq, &w, 2 * KIB + (size_t)r.count * 352);
    xml_writer_open_root(&w, roots[l->kind]);
    xml_head(&w, l, &r);
    TRY(xml_next(rq, &w, l, &r));
    for (u32 i = 0; i < r.count; i++) {
        if (!r.items[i].is_prefix) {
            xml_item(&w, l, &r.items[i]);
        }
    }
    for (u32 i = 0; i < r.count; i++) {
        if (r.items[i].is_prefix) {
            xml_writer_open(&w, "CommonPrefixes");
            s3_list_name(&w, "Prefix", r.items[i].name, l->is_url);
            xml_writer_close(&w);
        }
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

enum err s3_op_list_objects(struct s3_request *rq)
{
    struct listing l = {.kind = LIST_V1, .with_owner = true};
    l.start = s3_param_get(rq, "marker");
    l.request.after = l.start;
    return respond_listing(rq, &l);
}

enum err s3_op_list_objects_v2(struct s3_request *rq)
{
    struct bytes type = s3_param_get(rq, "list-type");
    if (!bytes_equal(type, BYTES_LITERAL("2"))) {
        return s3_fail_argument(rq, "list-type", type, "Invalid List Type specified in Request");
    }
    struct listing l = {.kind = LIST_V2};
    l.with_owner = bytes_equal_nocase(s3_param_get(rq, "fetch-owner"), BYTES_LITERAL("true"));
    l.start = s3_param_get(rq, "start-after");
    l.token = s3_param_get(rq, "continuation-token");
    l.request.after = l.start;
    if (l.token.len > 0) {
        u8 *p = arena_alloc(rq->arena, l.token.len + 1);
        size_t len = 0;
        if (p == NULL) {
            return ERR_NO_MEMORY;
        }
        if (!base64_decode(l.token, p, l.token.len, &len)) {
            return s3_fail_argument(rq, "continuation-token", l.token,
                                    "The continuation token provided is incorrect");
        }
        l.request.after = BYTES(p, len);
    }
    return respond_listing(rq, &l);
}

// Without versioning every object is its own only version, "null".
enum err s3_op_list_object_versions(struct s3_request *rq)
{
    struct listing l = {.kind = LIST_VERSIONS, .with_owner = true};
    l.start = s3_param_get(rq, "key-marker");
    struct bytes version = s3_param_get(rq, "version-id-marker");
    if (version.len > 0 && l.start.len == 0) {
        return s3_fail_argument(rq, "version-id-marker", version,
                                "A version-id marker cannot be specified without a key marker.");
    }
    l.request.after = l.start;
    return respond_listing(rq, &l);
}
