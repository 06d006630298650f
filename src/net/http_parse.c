// SPDX-License-Identifier: Apache-2.0
// Request heads. Three layers, so that no single parser decides where a message ends:
// http_head_scan accepts CRLF line ends only, llhttp checks the grammar, and what decides over
// framing (Content-Length, Transfer-Encoding, Host, the version) is checked once more here, with
// every doubtful combination refused: a proxy in front may have read it the other way.
#include "net/http_parse.h"

#include "base/assert.h"
#include "base/text.h"
#include "net/llhttp_head.h"

// The request line holds, beside its target, a method, two blanks and the version.
#define REQUEST_LINE_EXTRA_BYTES 64
#define VERSION_BYTES            8 // "HTTP/1.1"

static enum err scan_limits_check(const struct http_head_scan *s, size_t len)
{
    if (s->lines == 0 && len - s->line_at > HTTP_TARGET_BYTES_MAX + REQUEST_LINE_EXTRA_BYTES) {
        return ERR_HTTP_URI_TOO_LONG;
    }
    return len - s->begin > HTTP_HEAD_BYTES_MAX ? ERR_S3_REQUEST_HEADER_TOO_LARGE : OK;
}

// Judges one line of `len` bytes, the last of which is LF.
static enum err line_check(const struct http_head_scan *s, const u8 *line, size_t len)
{
    if (len < 2 || line[len - 2] != '\r' || memchr(line, '\r', len - 2) != NULL) {
        return ERR_HTTP_BAD_REQUEST;
    }
    if (s->lines > 0 && (line[0] == ' ' || line[0] == '\t')) {
        return ERR_HTTP_BAD_REQUEST;
    }
    return OK;
}

enum err http_head_scan(struct http_head_scan *s, struct bytes in, struct bytes *head)
{
    ASSERT(in.len >= s->scanned && in.len <= UINT32_MAX);
    *head = BYTES_NONE;
    while (s->scanned < in.len) {
        const u8 *lf = memchr(in.data + s->scanned, '\n', in.len - s->scanned);
        if (lf == NULL) {
            s->scanned = (u32)in.len;
            break;
        }
        const u8 *line = in.data + s->line_at;
        size_t len = (size_t)(lf + 1 - line);
        TRY(line_check(s, line, len));
        TRY(scan_limits_check(s, s->line_at + len));
        s->line_at += (u32)len;
        s->scanned = s->line_at;
        if (len > 2) {
            s->lines++;
        } else if (s->lines > 0) {
            *head = BYTES(in.data + s->begin, s->line_at - s->begin);
            return OK;
        } else {
            s->begin = s->line_at;
            if (++s->leading > HTTP_LEADING_LINES_MAX) {
                return ERR_HTTP_BAD_REQUEST;
            }
        }
    }
    return scan_limits_check(s, in.len);
}

static bool is_digit(u8 c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(u8 c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Checks the end of the request line and leaves in *method the word it begins with.
static enum err request_line_check(struct bytes head, struct bytes *method, bool *is_1_0)
{
    const u8 *end = memchr(head.data, '\r', head.len);
    ASSERT(end != NULL);
    size_t len = (size_t)(end - head.data);
    const u8 *blank = memchr(head.data, ' ', len);
    if (blank == NULL || blank == head.data || len < VERSION_BYTES + 3) {
        return ERR_HTTP_BAD_REQUEST;
    }
    *method = BYTES(head.data, (size_t)(blank - head.data));
    for (size_t i = 0; i < method->len; i++) {
        if (!is_alnum(method->data[i]) && method->data[i] != '-' && method->data[i] != '_') {
            return ERR_HTTP_BAD_REQUEST;
        }
    }
    const u8 *version = end - VERSION_BYTES;
    if (version[-1] != ' ' || memcmp(version, "HTTP/", 5) != 0 || !is_digit(version[5]) ||
        version[6] != '.' || !is_digit(version[7])) {
        return ERR_HTTP_BAD_REQUEST;
    }
    if (version[5] != '1' || version[7] > '1') {
        return ERR_HTTP_VERSION;
    }
    *is_1_0 = version[7] == '0';
    return OK;
}

// The request line is a method, a target and a version with one blank between each; llhttp 8.1 lets
// several pass.
static bool target_is_alone(struct bytes head, struct bytes method, struct bytes target)
{
    const u8 *end = target.data + target.len;
    return target.data == method.data + method.len + 1 && end < head.data + head.len &&
           end[0] == ' ' && end[1 + VERSION_BYTES] == '\r';
}

static enum http_method method_of(struct bytes text)
{
    static const struct {
        const char *name;
        enum http_method method;
    } methods[] = {
        {"GET", HTTP_GET},   {"HEAD", HTTP_HEAD},     {"PUT", HTTP_PUT},
        {"POST", HTTP_POST}, {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS},
    };
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (bytes_equal(text, bytes_from_string(methods[i].name))) {
            return methods[i].method;
        }
    }
    return HTTP_METHOD_OTHER;
}

// Headers that decide over framing and the connection; each at most once.
struct head_facts {
    const struct http_header *host;
    const struct http_header *content_length;
    const struct http_header *transfer_encoding;
    const struct http_header *expect;
};

static bool is_named(const struct http_header *h, struct bytes name)
{
    return h->name.len == name.len && bytes_equal_nocase(h->name, name);
}

static void value_trim(struct bytes *v)
{
    while (v->len > 0 && (v->data[v->len - 1] == ' ' || v->data[v->len - 1] == '\t')) {
        v->len--;
    }
    while (v->len > 0 && (v->data[0] == ' ' || v->data[0] == '\t')) {
        v->data++;
        v->len--;
    }
}

static enum err fact_set(const struct http_header **fact, const struct http_header *h)
{
    if (*fact != NULL) {
        return ERR_HTTP_BAD_REQUEST;
    }
    *fact = h;
    return OK;
}

static enum err facts_collect(struct http_header *headers, u32 count, struct head_facts *f)
{
    for (u32 i = 0; i < count; i++) {
        struct http_header *h = &headers[i];
        if (h->name.len == 0) {
            return ERR_HTTP_BAD_REQUEST; // llhttp 8.1 lets ": value" pass
        }
        if (h->value.data == NULL) {
            h->value.data = h->name.data + h->name.len; // present, though empty
        }
        value_trim(&h->value);
        switch (h->name.len) {
        case 4:
            TRY(is_named(h, BYTES_LITERAL("host")) ? fact_set(&f->host, h) : OK);
            break;
        case 6:
            TRY(is_named(h, BYTES_LITERAL("expect")) ? fact_set(&f->expect, h) : OK);
            break;
        case 14:
            TRY(is_named(h, BYTES_LITERAL("content-length")) ? fact_set(&f->content_length, h)
                                                             : OK);
            break;
        case 17:
            TRY(is_named(h, BYTES_LITERAL("transfer-encoding")) ? fact_set(&f->transfer_encoding, h)
                                                                : OK);
            break;
        default:
            break;
        }
    }
    return OK;
}

// A registered name, an address or a bracketed IPv6 address, and perhaps a port.
static bool host_is_valid(struct bytes host)
{
    for (size_t i = 0; i < host.len; i++) {
        u8 c = host.data[i];
        if (!is_alnum(c) && memchr("-._~:[]%!$&'()*+;=", c, 18) == NULL) {
            return false;
        }
    }
    return true;
}

static enum err framing_set(const struct head_facts *f, struct http_exchange *x)
{
    x->has_content_length = f->content_length != NULL;
    x->content_length = 0;
    x->is_chunked = false;
    if (f->transfer_encoding != NULL) {
        if (f->content_length != NULL || x->is_http_1_0) {
            return ERR_HTTP_BAD_REQUEST;
        }
        if (!bytes_equal_nocase(f->transfer_encoding->value, BYTES_LITERAL("chunked"))) {
            return ERR_UNSUPPORTED;
        }
        x->is_chunked = true;
    }
    if (f->content_length != NULL &&
        !u64_parse(f->content_length->value, INT64_MAX, &x->content_length)) {
        return ERR_HTTP_BAD_REQUEST;
    }
    x->expects_continue = f->expect != NULL && !x->is_http_1_0 &&
                          bytes_equal_nocase(f->expect->value, BYTES_LITERAL("100-continue"));
    return OK;
}

// Splits the target. "http://host/path" (a client that takes us for a proxy) must name the same
// host as the Host header, and is then treated as "/path".
static enum err target_set(struct bytes target, const struct head_facts *f, struct http_exchange *x)
{
    struct bytes scheme = target.len > 7 && target.data[4] == 's' ? BYTES_LITERAL("https://")
                                                                  : BYTES_LITERAL("http://");
    if (target.len > scheme.len && bytes_equal_nocase(BYTES(target.data, scheme.len), scheme)) {
        struct bytes rest = bytes_skip(target, scheme.len);
        size_t n = 0;
        while (n < rest.len && rest.data[n] != '/' && rest.data[n] != '?') {
            n++;
        }
        if (f->host == NULL || !bytes_equal_nocase(BYTES(rest.data, n), f->host->value)) {
            return ERR_HTTP_BAD_REQUEST;
        }
        target = n == rest.len ? BYTES_LITERAL("/") : BYTES(rest.data + n, rest.len - n);
    }
    bool is_star = target.len == 1 && target.data[0] == '*' && x->method == HTTP_OPTIONS;
    if (target.len == 0 || (target.data[0] != '/' && !is_star) ||
        memchr(target.data, '#', target.len) != NULL) {
        return ERR_HTTP_BAD_REQUEST;
    }
    x->target = target;
    const u8 *mark = memchr(target.data, '?', target.len);
    size_t path_len = mark == NULL ? target.len : (size_t)(mark - target.data);
    x->path = BYTES(target.data, path_len);
    x->query = mark == NULL ? BYTES_NONE : BYTES(mark + 1, target.len - path_len - 1);
    return OK;
}

enum err http_head_parse(struct bytes head, struct http_header *headers, struct http_exchange *x)
{
    ASSERT(head.len >= 4 && head.data[head.len - 1] == '\n');
    TRY(request_line_check(head, &x->method_text, &x->is_http_1_0));
    x->method = method_of(x->method_text);
    if (memchr(head.data, 0, head.len) != NULL) {
        return ERR_HTTP_BAD_REQUEST;
    }
    struct llhttp_head parsed = {.headers = headers, .headers_max = HTTP_HEADERS_MAX};
    TRY(llhttp_head_parse(head, &parsed));
    if (!target_is_alone(head, x->method_text, parsed.target)) {
        return ERR_HTTP_BAD_REQUEST;
    }
    if (parsed.target.len > HTTP_TARGET_BYTES_MAX) {
        return ERR_HTTP_URI_TOO_LONG;
    }
    struct head_facts facts = {0};
    TRY(facts_collect(headers, parsed.header_count, &facts));
    if (facts.host == NULL ? !x->is_http_1_0 : !host_is_valid(facts.host->value)) {
        return ERR_HTTP_BAD_REQUEST;
    }
    TRY(framing_set(&facts, x));
    TRY(target_set(parsed.target, &facts, x));
    x->headers = headers;
    x->header_count = parsed.header_count;
    x->is_keep_alive = parsed.is_keep_alive;
    return OK;
}

struct bytes http_header_get(const struct http_exchange *x, const char *name)
{
    struct bytes wanted = bytes_from_string(name);
    for (u32 i = 0; i < x->header_count; i++) {
        if (is_named(&x->headers[i], wanted)) {
            return x->headers[i].value;
        }
    }
    return BYTES_NONE;
}

u32 http_header_count(const struct http_exchange *x, const char *name)
{
    struct bytes wanted = bytes_from_string(name);
    u32 count = 0;
    for (u32 i = 0; i < x->header_count; i++) {
        count += is_named(&x->headers[i], wanted) ? 1 : 0;
    }
    return count;
}
