// SPDX-License-Identifier: Apache-2.0
// The path of a request's words into a signature: parse the claim, rebuild the canonical request
// from what was received, derive the day's key (kept per core), compare in constant time.
//
// S3's rule for the canonical URI: the decoded path is encoded once and never normalised.
#include "s3/auth.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codec/percent.h"
#include "codec/time_text.h"
#include "s3/s3_private.h"

#define ALGORITHM       "AWS4-HMAC-SHA256"
#define SERVICE         "s3"
#define SIGNATURE_CHARS (2 * SHA256_LEN)
#define CHECK_UNSIGNED  "UNSIGNED-PAYLOAD"

// What the request claims, taken from the Authorization header or from the query.
struct claim {
    bool is_presigned;
    struct bytes access_key;
    struct bytes day;
    struct bytes region;
    struct bytes service;
    struct bytes terminator;
    struct bytes scope; // day/region/service/aws4_request, as sent
    struct bytes signed_headers;
    struct bytes signature;
    struct bytes date; // YYYYMMDDTHHMMSSZ
    u64 date_ns;
    u64 expires_s;
    struct bytes payload_hash; // goes into the canonical request
};

// A growing text in one arena allocation whose size was computed beforehand.
struct text {
    char *p;
    size_t len;
    size_t cap;
};

static void text_add(struct text *t, struct bytes b)
{
    ASSERT(t->len + b.len <= t->cap);
    if (b.len > 0) {
        memcpy(t->p + t->len, b.data, b.len);
    }
    t->len += b.len;
}

static void text_add_char(struct text *t, char c)
{
    ASSERT(t->len < t->cap);
    t->p[t->len++] = c;
}

static enum err malformed(struct s3_request *rq, const struct claim *c, const char *what)
{
    if (c->is_presigned) {
        return s3_fail_fmt(rq, ERR_S3_AUTH_QUERY_PARAMETERS,
                           "Error parsing the X-Amz-Credential parameter; %s", what);
    }
    return s3_fail_fmt(rq, ERR_S3_AUTH_HEADER_MALFORMED,
                       "The authorization header is malformed; %s", what);
}

// Cuts "AK/day/region/service/aws4_request" from its end: an access key may contain slashes.
static enum err parse_credential(struct s3_request *rq, struct bytes credential, struct claim *c)
{
    struct bytes *fields[] = {&c->terminator, &c->service, &c->region, &c->day};
    size_t end = credential.len;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const u8 *slash = end == 0 ? NULL : memrchr(credential.data, '/', end);
        if (slash == NULL) {
            return malformed(rq, c,
                             "the Credential is mal-formed; expecting "
                             "\"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".");
        }
        size_t at = (size_t)(slash - credential.data);
        *fields[i] = BYTES(credential.data + at + 1, end - at - 1);
        end = at;
    }
    c->access_key = BYTES(credential.data, end);
    c->scope = bytes_skip(credential, end + 1);
    return OK;
}

// The value of `name` in "Credential=..., SignedHeaders=..., Signature=...".
static struct bytes authorization_field(struct bytes list, const char *name)
{
    struct bytes wanted = bytes_from_string(name);
    while (list.len > 0) {
        struct bytes item = bytes_split(&list, ',');
        while (item.len > 0 && (item.data[0] == ' ' || item.data[0] == '\t')) {
            item = bytes_skip(item, 1);
        }
        while (item.len > 0 && item.data[item.len - 1] == ' ') {
            item.len--;
        }
        if (item.len > wanted.len && item.data[wanted.len] == '=' &&
            bytes_has_prefix(item, wanted)) {
            return bytes_skip(item, wanted.len + 1);
        }
    }
    return BYTES_NONE;
}

static enum err payload_of(struct s3_request *rq, struct bytes hash)
{
    static const struct {
        const char *text;
        enum s3_payload payload;
    } names[] = {
        {CHECK_UNSIGNED, S3_PAYLOAD_UNSIGNED},
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", S3_PAYLOAD_CHUNKS_SIGNED},
        {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", S3_PAYLOAD_CHUNKS_SIGNED_TRAILER},
        {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER},
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (bytes_equal(hash, bytes_from_string(names[i].text))) {
            rq->auth.payload = names[i].payload;
            return OK;
        }
    }
    if (hash.len == SIGNATURE_CHARS && hex_decode(hash, rq->auth.payload_sha256, SHA256_LEN)) {
        rq->auth.payload = S3_PAYLOAD_SIGNED;
        return OK;
    }
    if (bytes_has_prefix(hash, BYTES_LITERAL("STREAMING-AWS4-ECDSA-"))) {
        return s3_fail(rq, ERR_S3_NOT_IMPLEMENTED,
                       "Signature Version 4A (ECDSA) is not implemented.");
    }
    s3_error_field(rq, "ArgumentName", BYTES_LITERAL("x-amz-content-sha256"));
    s3_error_field(rq, "ArgumentValue", hash);
    return ERR_S3_CONTENT_SHA256_INVALID;
}

// The request's date: x-amz-date, or the Date header where that is missing.
static enum err header_date(struct s3_request *rq, struct claim *c)
{
    c->date = s3_header_get(rq, "x-amz-date");
    if (c->date.data != NULL && time_amz_parse(c->date, &c->date_ns)) {
        return OK;
    }
    struct bytes date = s3_header_get(rq, "date");
    if (c->date.data == NULL && date.data != NULL &&
        (time_http_parse(date, &c->date_ns) || time_amz_parse(date, &c->date_ns))) {
        char *text = arena_alloc(rq->arena, TIME_AMZ_LEN + 1);
        if (text == NULL) {
            return ERR_NO_MEMORY;
        }
        time_amz_format(c->date_ns, text);
        c->date = BYTES(text, TIME_AMZ_LEN);
        return OK;
    }
    return s3_fail(rq, ERR_S3_ACCESS_DENIED,
                   "AWS authentication requires a valid Date or x-amz-date header");
}

static enum err parse_header_claim(struct s3_request *rq, struct bytes authorization,
                                   struct claim *c)
{
    struct bytes algorithm = BYTES_LITERAL(ALGORITHM);
    if (!bytes_has_prefix(authorization, algorithm) || authorization.len == algorithm.len ||
        authorization.data[algorithm.len] != ' ') {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "The authorization mechanism you have provided is not supported. Please use "
                       "AWS4-HMAC-SHA256.");
    }
    struct bytes fields = bytes_skip(authorization, algorithm.len + 1);
    struct bytes credential = authorization_field(fields, "Credential");
    c->signed_headers = authorization_field(fields, "SignedHeaders");
    c->signature = authorization_field(fields, "Signature");
    if (credential.data == NULL || c->signed_headers.data == NULL || c->signature.data == NULL) {
        return malformed(rq, c,
                         "the authorization header requires three components: Credential, "
                         "SignedHeaders, and Signature.");
    }
    TRY(parse_credential(rq, credential, c));
    TRY(header_date(rq, c));
    c->payload_hash = s3_header_get(rq, "x-amz-content-sha256");
    if (c->payload_hash.data == NULL) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "Missing required header for this request: x-amz-content-sha256");
    }
    return payload_of(rq, c->payload_hash);
}

static enum err parse_presigned_claim(struct s3_request *rq, struct claim *c)
{
    c->is_presigned = true;
    struct bytes algorithm = s3_param_get(rq, "X-Amz-Algorithm");
    struct bytes credential = s3_param_get(rq, "X-Amz-Credential");
    struct bytes expires = s3_param_get(rq, "X-Amz-Expires");
    c->date = s3_param_get(rq, "X-Amz-Date");
    c->signed_headers = s3_param_get(rq, "X-Amz-SignedHeaders");
    c->signature = s3_param_get(rq, "X-Amz-Signature");
    if (algorithm.data == NULL || credential.data == NULL || expires.data == NULL ||
        c->date.data == NULL || c->signed_headers.data == NULL || c->signature.data == NULL) {
        return ERR_S3_AUTH_QUERY_PARAMETERS;
    }
    if (!bytes_equal(algorithm, BYTES_LITERAL(ALGORITHM))) {
        return s3_fail(rq, ERR_S3_AUTH_QUERY_PARAMETERS,
                       "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
    }
    TRY(parse_credential(rq, credential, c));
    if (!time_amz_parse(c->date, &c->date_ns)) {
        return s3_fail(rq, ERR_S3_AUTH_QUERY_PARAMETERS,
                       "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"");
    }
    if (expires.len > 0 && expires.data[0] == '-') {
        return ERR_S3_EXPIRED_TOKEN; // it was over before it began
    }
    if (!u64_parse(expires, UINT64_MAX, &c->expires_s)) {
        return s3_fail(rq, ERR_S3_AUTH_QUERY_PARAMETERS, "X-Amz-Expires should be a number");
    }
    if (c->expires_s > S3_PRESIGN_EXPIRES_MAX) {
        return s3_fail(rq, ERR_S3_AUTH_QUERY_PARAMETERS,
                       "X-Amz-Expires must be less than a week (in seconds); that is, the given "
                       "X-Amz-Expires must be less than 604800 seconds");
    }
    c->payload_hash = s3_header_get(rq, "x-amz-content-sha256");
    if (c->payload_hash.data == NULL) {
        c->payload_hash = s3_param_get(rq, "X-Amz-Content-Sha256");
    }
    if (c->payload_hash.data == NULL) {
        c->payload_hash = BYTES_LITERAL(CHECK_UNSIGNED);
    }
    return payload_of(rq, c->payload_hash);
}

// Time, scope and region, in the order in which AWS complains about them.
static enum err check_claim(struct s3_request *rq, const struct claim *c)
{
    if (c->day.len != TIME_AMZ_DAY_LEN || !bytes_has_prefix(c->date, c->day)) {
        return malformed(rq, c,
                         "Invalid credential date. This date is not the same as X-Amz-Date.");
    }
    struct bytes region = bytes_from_string(rq->s3->region);
    if (!bytes_equal(c->region, region)) {
        s3_error_field(rq, "Region", region);
        return s3_fail_fmt(
            rq, c->is_presigned ? ERR_S3_AUTH_QUERY_PARAMETERS : ERR_S3_AUTH_HEADER_MALFORMED,
            c->is_presigned
                ? "Error parsing the X-Amz-Credential parameter; the region '%.*s' is wrong; "
                  "expecting '%s'"
                : "The authorization header is malformed; the region '%.*s' is wrong; expecting "
                  "'%s'",
            BYTES_PRINTF(BYTES(c->region.data, MIN(c->region.len, (size_t)64))), rq->s3->region);
    }
    if (!bytes_equal(c->service, BYTES_LITERAL(SERVICE))) {
        return malformed(rq, c, "incorrect service. This endpoint belongs to \"s3\".");
    }
    if (!bytes_equal(c->terminator, BYTES_LITERAL("aws4_request"))) {
        return malformed(rq, c, "incorrect terminal. This endpoint uses \"aws4_request\".");
    }
    u64 now = rq->wall_ns;
    if (c->is_presigned) {
        if (c->date_ns > now + S3_CLOCK_SKEW_MAX_NS) {
            return ERR_S3_REQUEST_NOT_YET_VALID;
        }
        if (now > c->date_ns && (now - c->date_ns) / NS_PER_S >= c->expires_s) {
            return ERR_S3_EXPIRED_TOKEN;
        }
        return OK;
    }
    u64 skew = now > c->date_ns ? now - c->date_ns : c->date_ns - now;
    if (skew > S3_CLOCK_SKEW_MAX_NS) {
        s3_error_field(rq, "RequestTime", c->date);
        s3_error_field(rq, "MaxAllowedSkewMilliseconds", BYTES_LITERAL("900000"));
        return ERR_S3_REQUEST_TIME_SKEWED;
    }
    return OK;
}

static bool header_is_signed(const struct claim *c, struct bytes name)
{
    struct bytes rest = c->signed_headers;
    while (rest.len > 0) {
        if (bytes_equal_nocase(bytes_split(&rest, ';'), name)) {
            return true;
        }
    }
    return false;
}

// Host and everything that changes what the request means must be in the signature.
static enum err check_signed_headers(struct s3_request *rq, const struct claim *c)
{
    size_t count = 1;
    for (size_t i = 0; i < c->signed_headers.len; i++) {
        count += c->signed_headers.data[i] == ';';
    }
    if (count > S3_SIGNED_HEADERS_MAX) {
        return malformed(rq, c, "SignedHeaders names too many headers.");
    }
    if (!header_is_signed(c, BYTES_LITERAL("host"))) {
        return s3_fail(rq, ERR_S3_ACCESS_DENIED,
                       "There were headers present in the request which were not signed");
    }
    for (u32 i = 0; i < rq->x->header_count; i++) {
        struct bytes name = rq->x->headers[i].name;
        if (name.len > 6 && bytes_equal_nocase(BYTES(name.data, 6), BYTES_LITERAL("x-amz-")) &&
            !(c->is_presigned && bytes_equal_nocase(name, BYTES_LITERAL("x-amz-content-sha256"))) &&
            !header_is_signed(c, name)) {
            s3_error_field(rq, "HeadersNotSigned", name);
            return s3_fail(rq, ERR_S3_ACCESS_DENIED,
                           "There were headers present in the request which were not signed");
        }
    }
    return OK;
}

// Adds a header's value with outer blanks cut and inner runs of blanks made one.
static void canonical_value(struct text *t, struct bytes v)
{
    bool was_blank = false;
    size_t start = t->len;
    for (size_t i = 0; i < v.len; i++) {
        bool is_blank = v.data[i] == ' ' || v.data[i] == '\t';
        if (!is_blank) {
            if (was_blank && t->len > start) {
                text_add_char(t, ' ');
            }
            text_add_char(t, (char)v.data[i]);
        }
        was_blank = is_blank;
    }
}

static enum err canonical_headers(struct s3_request *rq, const struct claim *c, struct text *t)
{
    struct bytes rest = c->signed_headers;
    while (rest.len > 0) {
        struct bytes name = bytes_split(&rest, ';');
        text_add(t, name);
        text_add_char(t, ':');
        bool is_found = false;
        for (u32 i = 0; i < rq->x->header_count; i++) {
            if (!bytes_equal_nocase(rq->x->headers[i].name, name)) {
                continue;
            }
            if (is_found) {
                text_add_char(t, ',');
            }
            is_found = true;
            canonical_value(t, rq->x->headers[i].value);
        }
        text_add_char(t, '\n');
    }
    return OK;
}

static int param_compare(const struct s3_param *a, const struct s3_param *b)
{
    int c = bytes_compare(a->name, b->name);
    return c != 0 ? c : bytes_compare(a->value, b->value);
}

static enum err encode_copy(struct s3_request *rq, struct bytes raw, struct bytes *out)
{
    size_t cap = PERCENT_ENCODED_BYTES_MAX(raw.len) + 1;
    char *p = arena_alloc(rq->arena, cap);
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    size_t len = 0;
    TRY(percent_encode(raw, PERCENT_SLASH_ENCODE, p, cap, &len));
    *out = BYTES(p, len);
    return OK;
}

// Encoded and sorted parameters, without the signature itself.
static enum err canonical_query(struct s3_request *rq, const struct claim *c, struct text *t)
{
    struct s3_param *sorted = arena_alloc(rq->arena, (rq->param_count + 1) * sizeof(*sorted));
    if (sorted == NULL) {
        return ERR_NO_MEMORY;
    }
    u32 count = 0;
    for (u32 i = 0; i < rq->param_count; i++) {
        if (c->is_presigned && bytes_equal(rq->params[i].name, BYTES_LITERAL("X-Amz-Signature"))) {
            continue;
        }
        struct s3_param p;
        TRY(encode_copy(rq, rq->params[i].name, &p.name));
        TRY(encode_copy(rq, rq->params[i].value, &p.value));
        u32 at = count++;
        for (; at > 0 && param_compare(&sorted[at - 1], &p) > 0; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = p;
    }
    for (u32 i = 0; i < count; i++) {
        if (i > 0) {
            text_add_char(t, '&');
        }
        text_add(t, sorted[i].name);
        text_add_char(t, '=');
        text_add(t, sorted[i].value);
    }
    return OK;
}

static enum err canonical_request(struct s3_request *rq, const struct claim *c, struct text *t)
{
    size_t bytes = 64 + rq->x->method_text.len + PERCENT_ENCODED_BYTES_MAX(rq->path.len) +
                   PERCENT_ENCODED_BYTES_MAX(rq->x->query.len) + 2 * S3_QUERY_MAX +
                   2 * c->signed_headers.len + 2 * S3_SIGNED_HEADERS_MAX + c->payload_hash.len;
    for (u32 i = 0; i < rq->x->header_count; i++) {
        bytes += rq->x->headers[i].value.len + 1;
    }
    t->p = arena_alloc(rq->arena, bytes);
    if (t->p == NULL) {
        return ERR_NO_MEMORY;
    }
    t->cap = bytes;
    text_add(t, rq->x->method_text);
    text_add_char(t, '\n');
    size_t path_len = 0;
    TRY(percent_encode(rq->path, PERCENT_SLASH_KEEP, t->p + t->len, t->cap - t->len, &path_len));
    t->len += path_len;
    text_add_char(t, '\n');
    if (rq->param_count > 0) {
        TRY(canonical_query(rq, c, t));
    }
    text_add_char(t, '\n');
    TRY(canonical_headers(rq, c, t));
    text_add_char(t, '\n');
    text_add(t, c->signed_headers);
    text_add_char(t, '\n');
    text_add(t, c->payload_hash);
    return OK;
}

// SignedHeaders must be a strictly ascending list of lower-case names: otherwise it is not
// canonical, and a repeated name would make the canonical request longer than the head that it came
// from.
static bool signed_headers_are_canonical(struct bytes list)
{
    struct bytes previous = BYTES_NONE;
    while (true) {
        const u8 *semi = list.len == 0 ? NULL : memchr(list.data, ';', list.len);
        struct bytes name = BYTES(list.data, semi ? (size_t)(semi - list.data) : list.len);
        if (name.len == 0 || (previous.len > 0 && bytes_compare(previous, name) >= 0)) {
            return false;
        }
        for (size_t i = 0; i < name.len; i++) {
            if (name.data[i] >= 'A' && name.data[i] <= 'Z') {
                return false;
            }
        }
        if (semi == NULL) {
            return true;
        }
        previous = name;
        list = bytes_skip(list, name.len + 1);
        if (list.data == NULL) {
            return false;
        }
    }
}

// The day's key of a credential, from this core's cache or derived: four HMACs.
static void signing_key(struct s3 *s, u32 credential, struct bytes day, struct hmac_sha256_key *out)
{
    struct s3_core *core = &s->core[core_id()];
    for (size_t i = 0; i < S3_KEY_CACHE_SIZE; i++) {
        struct s3_signing_key *k = &core->keys[i];
        if (k->credential == credential + 1 && memcmp(k->day, day.data, TIME_AMZ_DAY_LEN) == 0) {
            *out = k->key;
            return;
        }
    }
    u8 digest[SHA256_LEN];
    char secret[4 + S3_SECRET_KEY_MAX + 1];
    int n = snprintf(secret, sizeof(secret), "AWS4%s", s->credentials[credential].secret_key);
    struct hmac_sha256_key step;
    hmac_sha256_key_init(&step, BYTES(secret, (size_t)n));
    const struct bytes words[] = {day, bytes_from_string(s->region), BYTES_LITERAL(SERVICE),
                                  BYTES_LITERAL("aws4_request")};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        hmac_sha256(&step, words[i], digest);
        hmac_sha256_key_init(&step, BYTES(digest, SHA256_LEN));
    }
    struct s3_signing_key *k = &core->keys[core->next_key++ % S3_KEY_CACHE_SIZE];
    k->credential = credential + 1;
    memcpy(k->day, day.data, TIME_AMZ_DAY_LEN);
    k->key = step;
    *out = step;
}

// Finds the credential; the comparison of access keys need not be secret.
static bool find_credential(const struct s3 *s, struct bytes access_key, u32 *out)
{
    for (u32 i = 0; i < s->credential_count; i++) {
        if (bytes_equal(access_key, bytes_from_string(s->credentials[i].access_key))) {
            *out = i;
            return true;
        }
    }
    return false;
}

static enum err check_signature(struct s3_request *rq, const struct claim *c, u32 credential)
{
    struct text canonical = {0};
    TRY(canonical_request(rq, c, &canonical));
    u8 digest[SHA256_LEN];
    char hex[SIGNATURE_CHARS + 1];
    sha256_digest(BYTES(canonical.p, canonical.len), digest);
    hex_encode(BYTES(digest, SHA256_LEN), hex);

    size_t sts_cap = sizeof(ALGORITHM) + c->date.len + c->scope.len + SIGNATURE_CHARS + 4;
    struct text sts = {.p = arena_alloc(rq->arena, sts_cap), .cap = sts_cap};
    if (sts.p == NULL) {
        return ERR_NO_MEMORY;
    }
    text_add(&sts, BYTES_LITERAL(ALGORITHM "\n"));
    text_add(&sts, c->date);
    text_add_char(&sts, '\n');
    text_add(&sts, c->scope);
    text_add_char(&sts, '\n');
    text_add(&sts, BYTES(hex, SIGNATURE_CHARS));

    signing_key(rq->s3, credential, c->day, &rq->auth.signing_key);
    hmac_sha256(&rq->auth.signing_key, BYTES(sts.p, sts.len), digest);
    hex_encode(BYTES(digest, SHA256_LEN), rq->auth.signature);
    if (c->signature.len != SIGNATURE_CHARS ||
        !digest_equal(c->signature.data, rq->auth.signature, SIGNATURE_CHARS)) {
        s3_error_field(rq, "AWSAccessKeyId", c->access_key);
        s3_error_field(rq, "StringToSign", BYTES(sts.p, sts.len));
        s3_error_field(rq, "SignatureProvided", c->signature);
        s3_error_field(rq, "CanonicalRequest", BYTES(canonical.p, canonical.len));
        return ERR_S3_SIGNATURE_MISMATCH;
    }
    return OK;
}

enum err s3_authenticate(struct s3_request *rq)
{
    struct claim c = {0};
    struct bytes authorization = s3_header_get(rq, "authorization");
    if (authorization.data != NULL) {
        if (s3_param_has(rq, "X-Amz-Algorithm")) {
            return s3_fail(rq, ERR_S3_INVALID_ARGUMENT,
                           "Only one auth mechanism allowed; only the X-Amz-Algorithm query "
                           "parameter, Signature query string parameter or the Authorization "
                           "header should be specified");
        }
        TRY(parse_header_claim(rq, authorization, &c));
    } else if (s3_param_has(rq, "X-Amz-Algorithm") || s3_param_has(rq, "X-Amz-Signature") ||
               s3_param_has(rq, "X-Amz-Credential")) {
        TRY(parse_presigned_claim(rq, &c));
    } else if (s3_param_has(rq, "AWSAccessKeyId") && s3_param_has(rq, "Signature")) {
        return s3_fail(rq, ERR_S3_INVALID_REQUEST,
                       "The authorization mechanism you have provided is not supported. Please use "
                       "AWS4-HMAC-SHA256.");
    } else {
        return ERR_S3_ACCESS_DENIED;
    }
    u32 credential = 0;
    if (!find_credential(rq->s3, c.access_key, &credential)) {
        s3_error_field(rq, "AWSAccessKeyId", c.access_key);
        return ERR_S3_INVALID_ACCESS_KEY;
    }
    TRY(check_claim(rq, &c));
    TRY(check_signed_headers(rq, &c));
    if (!signed_headers_are_canonical(c.signed_headers)) {
        s3_error_field(rq, "SignatureProvided", c.signature);
        return ERR_S3_SIGNATURE_MISMATCH;
    }
    TRY(check_signature(rq, &c, credential));
    rq->auth.access_key = rq->s3->credentials[credential].access_key;
    rq->auth.scope = c.scope;
    memcpy(rq->auth.date, c.date.data, TIME_AMZ_LEN);
    rq->auth.date[TIME_AMZ_LEN] = 0;
    return OK;
}
