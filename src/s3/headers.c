// SPDX-License-Identifier: Apache-2.0
#include "s3/headers.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codec/time_text.h"
#include "s3/tags.h"

#define META_PREFIX "x-amz-meta-"

static const char *const standard_headers[] = {
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
};

static struct bytes trim(struct bytes b)
{
    while (b.len > 0 && (b.data[0] == ' ' || b.data[0] == '\t')) {
        b = bytes_skip(b, 1);
    }
    while (b.len > 0 && (b.data[b.len - 1] == ' ' || b.data[b.len - 1] == '\t')) {
        b.len--;
    }
    return b;
}

// "gzip,aws-chunked" is kept as "gzip": the framing was the request's, not the object's.
static enum err strip_aws_chunked(struct s3_request *rq, struct bytes value, struct bytes *out)
{
    struct bytes whole = value;
    bool is_stripped = false;
    u8 *p = arena_alloc(rq->arena, value.len + 1);
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    size_t len = 0;
    while (value.len > 0) {
        struct bytes one = bytes_split(&value, ',');
        one = trim(one);
        bool is_framing = bytes_equal_nocase(one, BYTES_LITERAL("aws-chunked"));
        is_stripped = is_stripped || is_framing;
        if (one.len == 0 || is_framing) {
            continue;
        }
        if (len > 0) {
            p[len++] = ',';
        }
        memcpy(p + len, one.data, one.len);
        len += one.len;
    }
    *out = is_stripped ? BYTES(p, len) : whole;
    return OK;
}

static enum err lower_copy(struct s3_request *rq, struct bytes name, struct bytes *out)
{
    struct bytes kept = arena_copy(rq->arena, name);
    if (kept.data == NULL) {
        return ERR_NO_MEMORY;
    }
    bytes_lower((u8 *)(uintptr_t)kept.data, kept.len);
    *out = kept;
    return OK;
}

// Adds user metadata; a name that came twice is one value joined with a comma, as HTTP says.
static enum err add_metadata(struct s3_request *rq, const struct http_header *h,
                             struct s3_attrs *out)
{
    struct bytes name;
    TRY(lower_copy(rq, h->name, &name));
    for (u32 i = 0; i < out->count; i++) {
        struct attr *a = &out->list[i];
        if (bytes_equal(a->name, name)) {
            u8 *p = arena_alloc(rq->arena, a->value.len + 1 + h->value.len);
            if (p == NULL) {
                return ERR_NO_MEMORY;
            }
            memcpy(p, a->value.data, a->value.len);
            p[a->value.len] = ',';
            memcpy(p + a->value.len + 1, h->value.data, h->value.len);
            a->value = BYTES(p, a->value.len + 1 + h->value.len);
            return OK;
        }
    }
    out->list[out->count++] = (struct attr){name, h->value};
    return OK;
}

enum err s3_attrs_from_request(struct s3_request *rq, struct s3_attrs *out)
{
    *out = (struct s3_attrs){0};
    const struct http_exchange *x = rq->x;
    out->list = arena_alloc(rq->arena, (x->header_count + ARRAY_LEN(standard_headers) + 1) *
                                           sizeof(*out->list));
    if (out->list == NULL) {
        return ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < ARRAY_LEN(standard_headers); i++) {
        struct bytes value = s3_header_get(rq, standard_headers[i]);
        if (value.data == NULL) {
            continue;
        }
        if (strcmp(standard_headers[i], "content-encoding") == 0) {
            TRY(strip_aws_chunked(rq, value, &value));
        }
        if (value.len > 0) {
            out->list[out->count++] = (struct attr){bytes_from_string(standard_headers[i]), value};
        }
    }
    size_t metadata_bytes = 0;
    for (u32 i = 0; i < x->header_count; i++) {
        const struct http_header *h = &x->headers[i];
        size_t prefix = sizeof(META_PREFIX) - 1;
        if (h->name.len <= prefix ||
            !bytes_equal_nocase(BYTES(h->name.data, prefix), BYTES_LITERAL(META_PREFIX))) {
            continue;
        }
        metadata_bytes += h->name.len - prefix + h->value.len;
        if (metadata_bytes > S3_USER_METADATA_BYTES_MAX) {
            s3_error_field(rq, "MaxSizeAllowed", BYTES_LITERAL("2048"));
            return ERR_S3_METADATA_TOO_LARGE;
        }
        TRY(add_metadata(rq, h, out));
    }
    struct bytes tagging = s3_header_get(rq, "x-amz-tagging");
    if (tagging.len > 0) {
        struct s3_tag_set set;
        TRY(s3_tags_decode(rq, tagging, &set));
        TRY(s3_tags_check(rq, &set));
        out->list[out->count++] = (struct attr){BYTES_LITERAL(S3_TAGGING_ATTR), tagging};
    }
    return OK;
}

struct bytes s3_attr_get(const struct attr *attrs, u32 count, const char *name)
{
    struct bytes wanted = bytes_from_string(name);
    for (u32 i = 0; i < count; i++) {
        if (bytes_equal(attrs[i].name, wanted)) {
            return attrs[i].value;
        }
    }
    return BYTES_NONE;
}

// A header that a response-* parameter replaces, if there is one.
static struct bytes override_of(const struct s3_request *rq, struct bytes name)
{
    static const struct {
        const char *header;
        const char *param;
    } overrides[] = {
        {"content-type", "response-content-type"},
        {"content-language", "response-content-language"},
        {"expires", "response-expires"},
        {"cache-control", "response-cache-control"},
        {"content-disposition", "response-content-disposition"},
        {"content-encoding", "response-content-encoding"},
    };
    for (size_t i = 0; i < ARRAY_LEN(overrides) && rq->param_count > 0; i++) {
        if (bytes_equal(name, bytes_from_string(overrides[i].header))) {
            return s3_param_get(rq, overrides[i].param);
        }
    }
    return BYTES_NONE;
}

// A value that cannot stand in a header line is left out rather than let a client write headers.
static bool value_is_safe(struct bytes v)
{
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] < 0x20 && v.data[i] != '\t') {
            return false;
        }
    }
    return true;
}

static void respond_value(struct s3_request *rq, struct bytes name, struct bytes value)
{
    // Names were copied with a terminating zero when the object's attributes were read or written.
    char text[256];
    if (name.len >= sizeof(text) || !value_is_safe(value)) {
        return;
    }
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    http_response_header(rq->x, text, value);
}

void s3_attrs_respond(struct s3_request *rq, const struct attr *attrs, u32 count,
                      bool with_overrides)
{
    bool has_type = false;
    bool replaced[ARRAY_LEN(standard_headers)] = {false};
    if (with_overrides && rq->param_count > 0) {
        for (size_t i = 0; i < ARRAY_LEN(standard_headers); i++) {
            struct bytes name = bytes_from_string(standard_headers[i]);
            struct bytes value = override_of(rq, name);
            if (value.data != NULL) {
                respond_value(rq, name, value);
                replaced[i] = true;
                has_type = has_type || bytes_equal(name, BYTES_LITERAL("content-type"));
            }
        }
    }
    for (u32 i = 0; i < count; i++) {
        struct bytes name = attrs[i].name;
        bool is_replaced = false;
        for (size_t j = 0; j < ARRAY_LEN(standard_headers); j++) {
            is_replaced =
                is_replaced ||
                (replaced[j] && bytes_equal(name, bytes_from_string(standard_headers[j])));
        }
        if (is_replaced) {
            continue;
        }
        if (bytes_equal(name, BYTES_LITERAL(S3_TAGGING_ATTR))) {
            http_response_header_u64(rq->x, "x-amz-tagging-count", s3_tag_count(attrs[i].value));
            continue;
        }
        has_type = has_type || bytes_equal(name, BYTES_LITERAL("content-type"));
        respond_value(rq, name, attrs[i].value);
    }
    if (!has_type) {
        http_response_header_text(rq->x, "content-type", "binary/octet-stream");
    }
}

static bool value_is_one_of(struct bytes v, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes_equal_nocase(v, bytes_from_string(list[i]))) {
            return true;
        }
    }
    return false;
}

enum err s3_refuse_unsupported_headers(struct s3_request *rq)
{
    static const char *const prefixes[] = {
        "x-amz-server-side-encryption",
        "x-amz-copy-source-server-side-encryption",
        "x-amz-object-lock-",
        "x-amz-bucket-object-lock-",
        "x-amz-grant-",
        "x-amz-write-offset-bytes",
        "x-amz-rename-source",
    };
    // What these ACLs say is what holds anyway: the owner has everything, nobody else anything.
    static const char *const private_acls[] = {"private", "bucket-owner-full-control",
                                               "bucket-owner-read"};
    static const char *const other_acls[] = {"public-read", "public-read-write",
                                             "authenticated-read", "aws-exec-read",
                                             "log-delivery-write"};
    for (u32 i = 0; i < rq->x->header_count; i++) {
        struct bytes name = rq->x->headers[i].name;
        struct bytes value = rq->x->headers[i].value;
        if (name.len < 9 || !bytes_equal_nocase(BYTES(name.data, 6), BYTES_LITERAL("x-amz-"))) {
            continue;
        }
        for (size_t j = 0; j < ARRAY_LEN(prefixes); j++) {
            struct bytes p = bytes_from_string(prefixes[j]);
            if (name.len >= p.len && bytes_equal_nocase(BYTES(name.data, p.len), p)) {
                s3_error_field(rq, "Header", name);
                return ERR_S3_NOT_IMPLEMENTED;
            }
        }
        if (bytes_equal_nocase(name, BYTES_LITERAL("x-amz-acl")) &&
            !value_is_one_of(value, private_acls, ARRAY_LEN(private_acls))) {
            if (!value_is_one_of(value, other_acls, ARRAY_LEN(other_acls))) {
                return s3_fail_argument(rq, "x-amz-acl", value, "Invalid canned ACL");
            }
            s3_error_field(rq, "Header", name);
            return ERR_S3_NOT_IMPLEMENTED;
        }
        if (bytes_equal_nocase(name, BYTES_LITERAL("x-amz-storage-class")) &&
            !bytes_equal(value, BYTES_LITERAL("STANDARD"))) {
            return ERR_S3_INVALID_STORAGE_CLASS;
        }
    }
    return OK;
}

// An entity tag in a condition: '*', one of ours, or something that can never match.
static void condition_etag(struct bytes text, bool *is_any, bool *has, bool *is_foreign,
                           struct etag *out)
{
    if (bytes_equal(text, BYTES_LITERAL("*"))) {
        *is_any = true;
    } else if (etag_parse(text, out)) {
        *has = true;
    } else {
        *is_foreign = true;
    }
}

enum err s3_write_condition(struct s3_request *rq, struct write_condition *out)
{
    *out = (struct write_condition){0};
    struct bytes match = s3_header_get(rq, "if-match");
    struct bytes none = s3_header_get(rq, "if-none-match");
    if (match.data != NULL) {
        condition_etag(match, &out->if_match_any, &out->has_if_match, &out->if_etag_is_foreign,
                       &out->if_match);
    }
    if (none.data != NULL) {
        bool is_foreign = false; // an ETag that nothing has: the condition holds
        condition_etag(none, &out->if_none_match_any, &out->has_if_none_match, &is_foreign,
                       &out->if_none_match);
    }
    if (rq->op != S3_OP_DELETE_OBJECT) {
        return OK;
    }
    struct bytes size = s3_header_get(rq, "x-amz-if-match-size");
    struct bytes time = s3_header_get(rq, "x-amz-if-match-last-modified-time");
    if (size.data != NULL) {
        if (!u64_parse(size, UINT64_MAX, &out->if_size)) {
            return s3_fail_argument(rq, "x-amz-if-match-size", size, "Invalid size");
        }
        out->has_if_size = true;
    }
    if (time.data != NULL) {
        u64 ns;
        if (!time_http_parse(time, &ns) && !time_iso8601_parse(time, &ns)) {
            return s3_fail_argument(rq, "x-amz-if-match-last-modified-time", time, "Invalid time");
        }
        out->has_if_modified_at = true;
        out->if_modified_at_s = ns / NS_PER_S;
    }
    return OK;
}

// Whether one of the listed tags ("a", "b" or *) is the object's. Weak tags compare by their value.
static bool etag_list_matches(struct bytes list, const struct etag *e)
{
    while (list.len > 0) {
        struct bytes one = bytes_split(&list, ',');
        one = trim(one);
        if (bytes_has_prefix(one, BYTES_LITERAL("W/"))) {
            one = bytes_skip(one, 2);
        }
        struct etag parsed;
        if (bytes_equal(one, BYTES_LITERAL("*")) ||
            (etag_parse(one, &parsed) && etag_equal(&parsed, e))) {
            return true;
        }
    }
    return false;
}

static struct bytes prefixed_header(const struct s3_request *rq, const char *prefix,
                                    const char *name)
{
    char text[64];
    snprintf(text, sizeof(text), "%s%s", prefix, name);
    return s3_header_get(rq, text);
}

enum err s3_read_condition(struct s3_request *rq, const char *prefix,
                           const struct object_info *info)
{
    bool is_copy = prefix[0] != 0;
    struct bytes match = prefixed_header(rq, prefix, "if-match");
    struct bytes none = prefixed_header(rq, prefix, "if-none-match");
    struct bytes since = prefixed_header(rq, prefix, "if-modified-since");
    struct bytes unmodified = prefixed_header(rq, prefix, "if-unmodified-since");
    u64 modified_s = info->modified_ns / NS_PER_S;
    u64 ns;
    enum err failed = OK;
    const char *condition = NULL;
    if (match.data != NULL) {
        if (!etag_list_matches(match, &info->etag)) {
            failed = ERR_S3_PRECONDITION_FAILED;
            condition = "If-Match";
        }
    } else if (unmodified.data != NULL && time_http_parse(unmodified, &ns) &&
               modified_s > ns / NS_PER_S) {
        failed = ERR_S3_PRECONDITION_FAILED;
        condition = "If-Unmodified-Since";
    }
    if (failed == OK && none.data != NULL) {
        if (etag_list_matches(none, &info->etag)) {
            failed = is_copy ? ERR_S3_PRECONDITION_FAILED : ERR_S3_NOT_MODIFIED;
            condition = "If-None-Match";
        }
    } else if (failed == OK && since.data != NULL && time_http_parse(since, &ns) &&
               ns <= rq->wall_ns && modified_s <= ns / NS_PER_S) {
        failed = is_copy ? ERR_S3_PRECONDITION_FAILED : ERR_S3_NOT_MODIFIED;
        condition = "If-Modified-Since";
    }
    if (failed == ERR_S3_PRECONDITION_FAILED) {
        char text[64];
        snprintf(text, sizeof(text), "%s%s", prefix, condition);
        s3_error_field(rq, "Condition", arena_copy(rq->arena, bytes_from_string(text)));
    }
    return failed;
}

enum err s3_range_parse(struct s3_request *rq, struct bytes text, u64 size, struct s3_range *out)
{
    *out = (struct s3_range){.length = size};
    struct bytes unit = BYTES_LITERAL("bytes=");
    if (text.data == NULL || text.len < unit.len ||
        !bytes_equal_nocase(BYTES(text.data, unit.len), unit)) {
        return OK;
    }
    struct bytes spec = trim(bytes_skip(text, unit.len));
    const u8 *dash = spec.len == 0 ? NULL : memchr(spec.data, '-', spec.len);
    if (dash == NULL || memchr(spec.data, ',', spec.len) != NULL) {
        return OK;
    }
    struct bytes first = trim(BYTES(spec.data, (size_t)(dash - spec.data)));
    struct bytes last = trim(bytes_skip(spec, (size_t)(dash - spec.data) + 1));
    u64 from = 0;
    u64 to = UINT64_MAX;
    if (first.len == 0) {
        u64 suffix;
        if (!u64_parse(last, UINT64_MAX, &suffix)) {
            return OK;
        }
        from = suffix >= size ? 0 : size - suffix;
        if (suffix == 0 || size == 0) {
            from = size;
        }
    } else if (!u64_parse(first, UINT64_MAX, &from) ||
               (last.len > 0 && !u64_parse(last, UINT64_MAX, &to)) || to < from) {
        return OK;
    }
    if (from >= size) {
        s3_error_field(rq, "RangeRequested", text);
        char *actual = arena_alloc(rq->arena, 24);
        if (actual != NULL) {
            int n = snprintf(actual, 24, "%llu", (unsigned long long)size);
            s3_error_field(rq, "ActualObjectSize", BYTES(actual, (size_t)n));
        }
        return ERR_S3_INVALID_RANGE;
    }
    out->is_set = true;
    out->offset = from;
    out->length = to >= size ? size - from : to - from + 1;
    return OK;
}

void s3_respond_time(struct s3_request *rq, const char *name, u64 time_ns)
{
    char text[TIME_HTTP_LEN + 1];
    time_http_format(time_ns, text);
    http_response_header(rq->x, name, BYTES(text, TIME_HTTP_LEN));
}

void s3_respond_etag(struct s3_request *rq, const struct etag *e)
{
    char text[ETAG_TEXT_MAX + 2];
    text[0] = '"';
    etag_text(e, text + 1);
    size_t len = strlen(text);
    text[len] = '"';
    http_response_header(rq->x, "etag", BYTES(text, len + 1));
}

void s3_xml_time(struct xml_writer *w, const char *name, u64 time_ns)
{
    char text[TIME_ISO8601_LEN + 1];
    time_iso8601_format(time_ns, text);
    xml_writer_raw(w, name, BYTES(text, TIME_ISO8601_LEN));
}

void s3_xml_etag(struct xml_writer *w, const struct etag *e)
{
    char text[ETAG_TEXT_MAX + 16];
    memcpy(text, "&quot;", 6);
    etag_text(e, text + 6);
    size_t len = strlen(text);
    memcpy(text + len, "&quot;", 6);
    xml_writer_raw(w, "ETag", BYTES(text, len + 6));
}
