// SPDX-License-Identifier: Apache-2.0
// Heads and chunks without sockets: what is refused, the limits, and that the result does not
// depend on how the bytes were cut.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "net/http_chunks.h"
#include "net/http_parse.h"
#include "strict_cases.h"

static struct http_header headers[HTTP_HEADERS_MAX];

// Gives the scanner `step` more bytes at a time; *used is the end of the head.
static enum err parse_in_steps(struct bytes in, size_t step, struct http_exchange *x, size_t *used)
{
    struct http_head_scan scan = {0};
    *x = (struct http_exchange){0};
    *used = 0;
    for (size_t n = MIN(step, in.len);; n = MIN(n + step, in.len)) {
        struct bytes head;
        enum err e = http_head_scan(&scan, BYTES(in.data, n), &head);
        if (e != OK) {
            return e;
        }
        if (head.data != NULL) {
            *used = (size_t)(head.data + head.len - in.data);
            return http_head_parse(head, headers, x);
        }
        if (n == in.len) {
            return ERR_END;
        }
    }
}

static void test_strict_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(strict_cases); i++) {
        const struct strict_case *c = &strict_cases[i];
        // A copy of exactly that size, so that the sanitizer sees a read past the end.
        u8 *copy = malloc(c->len);
        memcpy(copy, c->text, c->len);
        for (size_t step = 1; step <= c->len; step = step < 4 ? step + 1 : step * 2) {
            struct http_exchange x;
            size_t used;
            enum err e = parse_in_steps(BYTES(copy, c->len), step, &x, &used);
            if (e != c->expected) {
                print_error("%s (step %zu): %s, expected %s\n", c->name, step, err_name(e),
                            err_name(c->expected));
            }
            assert_int_equal(e, c->expected);
        }
        free(copy);
    }
}

static struct http_exchange parse_ok(const char *text)
{
    struct http_exchange x;
    size_t used;
    assert_int_equal(parse_in_steps(bytes_from_string(text), strlen(text), &x, &used), OK);
    assert_int_equal(used, strlen(text));
    return x;
}

static void assert_bytes(struct bytes b, const char *expected)
{
    assert_int_equal(b.len, strlen(expected));
    assert_memory_equal(b.data, expected, b.len);
}

static void test_fields(void **state)
{
    (void)state;
    struct http_exchange x = parse_ok("PUT /b/k%20y?uploadId=1&x HTTP/1.1\r\nHOST: h:1\r\n"
                                      "x-Empty:\r\nContent-length:  42 \r\nX-Two: 1\r\nx-two: 2\r\n"
                                      "Expect: 100-Continue\r\n\r\n");
    assert_int_equal(x.method, HTTP_PUT);
    assert_bytes(x.method_text, "PUT");
    assert_bytes(x.target, "/b/k%20y?uploadId=1&x");
    assert_bytes(x.path, "/b/k%20y");
    assert_bytes(x.query, "uploadId=1&x");
    assert_int_equal(x.header_count, 6);
    assert_bytes(http_header_get(&x, "host"), "h:1");
    assert_bytes(http_header_get(&x, "x-two"), "1");
    assert_int_equal(http_header_count(&x, "x-two"), 2);
    assert_int_equal(http_header_count(&x, "x-three"), 0);
    assert_non_null(http_header_get(&x, "x-empty").data);
    assert_int_equal(http_header_get(&x, "x-empty").len, 0);
    assert_null(http_header_get(&x, "x-three").data);
    assert_true(x.has_content_length);
    assert_int_equal(x.content_length, 42);
    assert_true(x.expects_continue && x.is_keep_alive && !x.is_chunked && !x.is_http_1_0);

    x = parse_ok("GET /p? HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n");
    assert_non_null(x.query.data);
    assert_int_equal(x.query.len, 0);
    assert_false(x.is_keep_alive);
    x = parse_ok("GET /p HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    assert_null(x.query.data);
    assert_true(x.is_http_1_0 && !x.is_keep_alive && !x.expects_continue);
    x = parse_ok("GET /p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_true(x.is_keep_alive);
    x = parse_ok("POST https://a/p?q HTTP/1.1\r\nHost: A\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert_true(x.is_chunked && !x.has_content_length);
    x = parse_ok("GET http://a HTTP/1.1\r\nHost: A\r\n\r\n");
    assert_bytes(x.path, "/");
}

static void test_methods(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum http_method method;
    } methods[] = {{"GET", HTTP_GET},
                   {"HEAD", HTTP_HEAD},
                   {"PUT", HTTP_PUT},
                   {"POST", HTTP_POST},
                   {"DELETE", HTTP_DELETE},
                   {"OPTIONS", HTTP_OPTIONS},
                   {"PATCH", HTTP_METHOD_OTHER},
                   {"TRACE", HTTP_METHOD_OTHER}};
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: a\r\n\r\n", methods[i].name);
        struct http_exchange x = parse_ok(text);
        assert_int_equal(x.method, methods[i].method);
        assert_bytes(x.method_text, methods[i].name);
    }
}

// A request whose target has that many bytes, with `count` headers, and padded to `total` bytes.
static struct bytes request_make(size_t target, u32 count, size_t total)
{
    char *text = malloc(target + (size_t)count * 16 + total + 100);
    size_t n = (size_t)sprintf(text, "GET /");
    memset(text + n, 'k', target - 1);
    n += target - 1;
    n += (size_t)sprintf(text + n, " HTTP/1.1\r\nHost: a\r\n");
    for (u32 i = 1; i < count; i++) {
        n += (size_t)sprintf(text + n, "X-H%u: v\r\n", i);
    }
    if (total > n + 2) {
        n += (size_t)sprintf(text + n, "X-Pad: ");
        memset(text + n, 'p', total - n - 4);
        n = total - 4;
        n += (size_t)sprintf(text + n, "\r\n");
    }
    n += (size_t)sprintf(text + n, "\r\n");
    return BYTES(text, n);
}

static void assert_limit(size_t target, u32 count, size_t total, enum err expected)
{
    struct bytes in = request_make(target, count, total);
    static const size_t steps[] = {1, 1000, 8192, SIZE_MAX / 2};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct http_exchange x;
        size_t used;
        assert_int_equal(parse_in_steps(in, steps[i], &x, &used), expected);
    }
    free((void *)(uintptr_t)in.data);
}

static void test_limits(void **state)
{
    (void)state;
    assert_limit(HTTP_TARGET_BYTES_MAX, 1, 0, OK);
    assert_limit(HTTP_TARGET_BYTES_MAX + 1, 1, 0, ERR_HTTP_URI_TOO_LONG);
    assert_limit(HTTP_TARGET_BYTES_MAX * 2, 1, 0, ERR_HTTP_URI_TOO_LONG);
    assert_limit(10, HTTP_HEADERS_MAX, 0, OK);
    assert_limit(10, HTTP_HEADERS_MAX + 1, 0, ERR_S3_REQUEST_HEADER_TOO_LARGE);
    assert_limit(10, 1, HTTP_HEAD_BYTES_MAX, OK);
    assert_limit(10, 1, HTTP_HEAD_BYTES_MAX + 1, ERR_S3_REQUEST_HEADER_TOO_LARGE);
    assert_limit(10, 1, HTTP_HEAD_BYTES_MAX * 3, ERR_S3_REQUEST_HEADER_TOO_LARGE);
}

// Feeds a chunked body in steps; the data goes to `out`.
static enum err chunks_decode(struct bytes in, size_t step, u8 *out, size_t *out_len, size_t *used)
{
    struct http_chunks c;
    http_chunks_init(&c);
    *out_len = 0;
    size_t at = 0;
    while (at < in.len && !http_chunks_is_done(&c)) {
        size_t end = MIN(at + step, in.len);
        size_t n = 0;
        enum err e = http_chunks_frame(&c, in.data + at, end - at, &n);
        at += n;
        if (e != OK) {
            return e;
        }
        if (http_chunks_is_data(&c)) {
            n = MIN(end - at, c.remaining);
            memcpy(out + *out_len, in.data + at, n);
            *out_len += n;
            at += n;
            if (n > 0) {
                http_chunks_take(&c, n);
            }
        }
    }
    *used = at;
    return http_chunks_is_done(&c) ? OK : ERR_END;
}

struct chunk_case {
    const char *text;
    size_t len;
    const char *data; // NULL: refused
};
#define CHUNKS(text, data)                                                                         \
    {                                                                                              \
        text, sizeof(text) - 1, data                                                               \
    }

static void test_chunks(void **state)
{
    (void)state;
    static const struct chunk_case cases[] = {
        CHUNKS("0\r\n\r\n", ""),
        CHUNKS("3\r\nabc\r\n0\r\n\r\n", "abc"),
        CHUNKS("3\r\nabc\r\nA\r\n0123456789\r\n000\r\n\r\n", "abc0123456789"),
        CHUNKS("00000003\r\nabc\r\n0\r\n\r\n", "abc"),
        CHUNKS("3;a=b;c=\"d\"\r\nabc\r\n0;z\r\n\r\n", "abc"),
        CHUNKS("3\r\nabc\r\n0\r\nX-T: v\r\nx-u:\r\n\r\n", "abc"),
        CHUNKS("3\nabc\r\n0\r\n\r\n", NULL), // bare LF after the size
        CHUNKS("3\r\nabc\n0\r\n\r\n", NULL), // after the data
        CHUNKS("3\r\nabc\r\n0\n\r\n", NULL), // after the last size
        CHUNKS("3\r\nabc\r\n0\r\n\n", NULL), // at the end
        CHUNKS("3\r\nabc\r\n0\r\nX-T: v\n\r\n", NULL),
        CHUNKS("3\rabc\r\n0\r\n\r\n", NULL), // bare CR
        CHUNKS("3;a\rb\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("3;a\nb\r\nabc\r\n0\r\n\r\n", NULL), // LF hidden in an extension
        CHUNKS("3;a\0\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("\r\nabc\r\n0\r\n\r\n", NULL), // no size
        CHUNKS(";a\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("g\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("-3\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("+3\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("0x3\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS(" 3\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("3 \r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("3\r\nabcd\r\n0\r\n\r\n", NULL), // more data than announced
        CHUNKS("3\r\nab\r\n0\r\n\r\n", NULL),   // less
        CHUNKS("10000000000000000\r\n", NULL),  // 17 digits
        CHUNKS("ffffffffffffffff\r\n", NULL),   // 2^64 - 1
        CHUNKS("00000000000000003\r\nabc\r\n0\r\n\r\n", NULL),
        CHUNKS("0\r\n X: folded\r\n\r\n", NULL),
        CHUNKS("0\r\nno colon\r\n\r\n", NULL),
        CHUNKS("0\r\n: no name\r\n\r\n", NULL),
        CHUNKS("0\r\nX-T: a\x01\r\n\r\n", NULL),
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t step = 1; step <= cases[i].len; step++) {
            u8 out[64];
            size_t len;
            size_t used = 0;
            enum err e = chunks_decode(BYTES(cases[i].text, cases[i].len), step, out, &len, &used);
            if (cases[i].data == NULL) {
                assert_int_equal(e, ERR_HTTP_BAD_REQUEST);
            } else {
                assert_int_equal(e, OK);
                assert_int_equal(used, cases[i].len);
                assert_int_equal(len, strlen(cases[i].data));
                assert_memory_equal(out, cases[i].data, len);
            }
        }
    }
}

static enum err chunks_run(const char *text, size_t len)
{
    u8 *out = malloc(len);
    size_t out_len;
    size_t used;
    enum err e = chunks_decode(BYTES(text, len), len, out, &out_len, &used);
    free(out);
    return e;
}

// A chunk with an extension of n bytes (with its semicolon not counted), then the end.
static enum err extension_run(size_t n, u32 chunks)
{
    char *text = malloc((n + 16) * chunks + 16);
    size_t len = 0;
    for (u32 i = 0; i < chunks; i++) {
        len += (size_t)sprintf(text + len, "1;");
        memset(text + len, 'e', n);
        len += n;
        len += (size_t)sprintf(text + len, "\r\nx\r\n");
    }
    len += (size_t)sprintf(text + len, "0\r\n\r\n");
    enum err e = chunks_run(text, len);
    free(text);
    return e;
}

static void test_chunk_limits(void **state)
{
    (void)state;
    assert_int_equal(extension_run(HTTP_CHUNK_EXTENSION_BYTES_MAX, 1), OK);
    assert_int_equal(extension_run(HTTP_CHUNK_EXTENSION_BYTES_MAX + 1, 1), ERR_HTTP_BAD_REQUEST);
    u32 most = HTTP_CHUNK_OVERHEAD_BYTES_MAX / HTTP_CHUNK_EXTENSION_BYTES_MAX;
    assert_int_equal(extension_run(HTTP_CHUNK_EXTENSION_BYTES_MAX, most), OK);
    assert_int_equal(extension_run(HTTP_CHUNK_EXTENSION_BYTES_MAX, most + 1), ERR_HTTP_BAD_REQUEST);
    char *text = malloc(HTTP_TRAILER_BYTES_MAX + 100);
    size_t len = (size_t)sprintf(text, "0\r\nX: ");
    memset(text + len, 't', HTTP_TRAILER_BYTES_MAX);
    size_t end = len + HTTP_TRAILER_BYTES_MAX;
    memcpy(text + end, "\r\n\r\n", 4);
    assert_int_equal(chunks_run(text, end + 4), ERR_HTTP_BAD_REQUEST);
    end = len + HTTP_TRAILER_BYTES_MAX - 8;
    memcpy(text + end, "\r\n\r\n", 4);
    assert_int_equal(chunks_run(text, end + 4), OK);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strict_cases), cmocka_unit_test(test_fields),
        cmocka_unit_test(test_methods),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_chunk_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
