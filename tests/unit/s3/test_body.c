// SPDX-License-Identifier: Apache-2.0
// aws-chunked bodies: AWS's documented example of chunk signatures, the same in pieces of every
// size, trailers, and every way in which a body can lie.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fake_http.h"
#include "s3/body.h"

static struct s3 s3;
static struct s3_core core;

struct outcome {
    enum err e;
    size_t len;
    u8 data[70 * KIB];
    char trailer[64];
};

// The signing key and seed of the documented example.
static void example_auth(struct s3_auth *a)
{
    u8 digest[SHA256_LEN];
    struct hmac_sha256_key k;
    hmac_sha256_key_init(&k, BYTES_LITERAL("AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"));
    const char *words[] = {"20130524", "us-east-1", "s3", "aws4_request"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        hmac_sha256(&k, bytes_from_string(words[i]), digest);
        hmac_sha256_key_init(&k, BYTES(digest, sizeof(digest)));
    }
    a->signing_key = k;
    strcpy(a->signature, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
    strcpy(a->date, "20130524T000000Z");
    a->scope = BYTES_LITERAL("20130524/us-east-1/s3/aws4_request");
}

static void run(enum s3_payload payload, const char *headers, struct bytes body, size_t read_max,
                size_t cap, struct outcome *o)
{
    struct fake_http *f = malloc(sizeof(*f));
    struct s3_body *b = malloc(sizeof(*b));
    char head[1024];
    snprintf(head, sizeof(head), "PUT /b/k\nHost: h\nContent-Length: %zu\n%s", body.len, headers);
    assert_true(fake_http_init(f, &s3, bytes_from_string(head), body));
    f->read_max = read_max;
    f->rq.auth.payload = payload;
    example_auth(&f->rq.auth);
    if (payload == S3_PAYLOAD_SIGNED) {
        sha256_digest(BYTES_LITERAL("hello"), f->rq.auth.payload_sha256);
    }
    o->len = 0;
    o->trailer[0] = 0;
    o->e = s3_body_init(b, &f->rq, META_PUT_BYTES_MAX);
    while (o->e == OK) {
        size_t n = 0;
        o->e = s3_body_read(b, o->data + o->len, MIN(cap, sizeof(o->data) - o->len), &n);
        o->len += n;
        if (n == 0) {
            break;
        }
    }
    struct bytes trailer = s3_body_trailer(b, "x-amz-checksum-crc32c");
    snprintf(o->trailer, sizeof(o->trailer), "%.*s", BYTES_PRINTF(trailer));
    fake_http_deinit(f);
    free(b);
    free(f);
}

#define SIG1 "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"
#define SIG2 "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"
#define SIG3 "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"

// 64 KiB and 1 KiB of 'a', as in AWS's "Signature Calculations ... Chunked Upload".
static size_t example_body(u8 *out)
{
    size_t n = (size_t)sprintf((char *)out, "10000;chunk-signature=" SIG1 "\r\n");
    memset(out + n, 'a', 65536);
    n += 65536;
    n += (size_t)sprintf((char *)out + n, "\r\n400;chunk-signature=" SIG2 "\r\n");
    memset(out + n, 'a', 1024);
    n += 1024;
    n += (size_t)sprintf((char *)out + n, "\r\n0;chunk-signature=" SIG3 "\r\n\r\n");
    return n;
}

static void test_documented_chunks(void **state)
{
    (void)state;
    u8 *body = malloc(80 * KIB);
    struct outcome *o = malloc(sizeof(*o));
    size_t len = example_body(body);
    const char *length = "x-amz-decoded-content-length: 66560\n";
    const size_t reads[] = {0, 1, 7, 100, 4096};
    for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
        run(S3_PAYLOAD_CHUNKS_SIGNED, length, BYTES(body, len), reads[i], 5000, o);
        assert_int_equal(o->e, OK);
        assert_int_equal(o->len, 66560);
        for (size_t j = 0; j < o->len; j++) {
            assert_int_equal(o->data[j], 'a');
        }
    }
    // One changed byte of data, of a signature, of a size.
    const size_t spots[] = {200, 30, 65700, len - 10, 0};
    for (size_t i = 0; i < ARRAY_LEN(spots); i++) {
        u8 old = body[spots[i]];
        body[spots[i]] ^= 1;
        run(S3_PAYLOAD_CHUNKS_SIGNED, length, BYTES(body, len), 0, 5000, o);
        assert_int_not_equal(o->e, OK);
        body[spots[i]] = old;
    }
    // Every truncation is incomplete, and a length that lies either way is refused.
    for (size_t cut = 1; cut < len; cut += cut < 200 ? 1 : 997) {
        run(S3_PAYLOAD_CHUNKS_SIGNED, length, BYTES(body, len - cut), 0, 8192, o);
        assert_int_equal(o->e, ERR_S3_INCOMPLETE_BODY);
    }
    run(S3_PAYLOAD_CHUNKS_SIGNED, "x-amz-decoded-content-length: 66559\n", BYTES(body, len), 0,
        5000, o);
    assert_int_equal(o->e, ERR_S3_INCOMPLETE_BODY);
    run(S3_PAYLOAD_CHUNKS_SIGNED, "x-amz-decoded-content-length: 66561\n", BYTES(body, len), 0,
        5000, o);
    assert_int_equal(o->e, ERR_S3_INCOMPLETE_BODY);
    run(S3_PAYLOAD_CHUNKS_SIGNED, "", BYTES(body, len), 0, 5000, o);
    assert_int_equal(o->e, ERR_S3_MISSING_CONTENT_LENGTH);
    free(o);
    free(body);
}

static void test_unsigned_trailer(void **state)
{
    (void)state;
    struct outcome *o = malloc(sizeof(*o));
    const char *length = "x-amz-decoded-content-length: 11\n";
    static const struct {
        const char *body;
        enum err expected;
    } cases[] = {
        {"5\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32c: abcd== \r\n\r\n", OK},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", OK},
        {"B\r\nhello world\r\n0\r\nX-Amz-Checksum-Crc32c:abcd==\r\n\r\n", OK},
        {"5\nhello\r\n6\r\n world\r\n0\r\n\r\n", ERR_S3_INVALID_REQUEST},
        {"5\r\nhello!\r\n6\r\n world\r\n0\r\n\r\n", ERR_S3_INVALID_REQUEST},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\nbad trailer\r\n\r\n", ERR_S3_MALFORMED_TRAILER},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\n:x\r\n\r\n", ERR_S3_MALFORMED_TRAILER},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nmore", ERR_S3_INVALID_REQUEST},
        {"5\r\nhello\r\n6\r\n world\r\n0\r\n", ERR_S3_INCOMPLETE_BODY},
        {"5\r\nhello\r\n0\r\n\r\n", ERR_S3_INCOMPLETE_BODY},
        {"ffffffffffffffff\r\nx", ERR_S3_INVALID_REQUEST},
        {"7fffffffffffffff\r\nx", ERR_S3_INCOMPLETE_BODY},
        {"12345678901234567890\r\nx", ERR_S3_INVALID_REQUEST},
        {"\r\nhello", ERR_S3_INVALID_REQUEST},
        {"g\r\nhello", ERR_S3_INVALID_REQUEST},
        {"-5\r\nhello", ERR_S3_INVALID_REQUEST},
        {"", ERR_S3_INCOMPLETE_BODY},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t read_max = 0; read_max < 4; read_max++) {
            run(S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER, length, bytes_from_string(cases[i].body),
                read_max, 3, o);
            assert_int_equal(o->e, cases[i].expected);
            if (o->e == OK) {
                assert_int_equal(o->len, 11);
                assert_memory_equal(o->data, "hello world", 11);
                assert_string_equal(o->trailer, i == 1 ? "" : "abcd==");
            }
        }
    }
    // A chunk header and a trailer section of any length are bounded.
    char *long_text = malloc(20 * KIB);
    memset(long_text, 'x', 20 * KIB);
    memcpy(long_text, "5;", 2);
    run(S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER, length, BYTES(long_text, 20 * KIB), 0, 100, o);
    assert_int_equal(o->e, ERR_S3_INVALID_REQUEST);
    int n = sprintf(long_text, "b\r\nhello world\r\n0\r\n");
    for (int i = 0; i < 100; i++) {
        n += sprintf(long_text + n, "x-amz-trailer-number-%05d:%080d\r\n", i, i);
    }
    n += sprintf(long_text + n, "\r\n");
    run(S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER, length, BYTES(long_text, (size_t)n), 0, 100, o);
    assert_int_equal(o->e, ERR_S3_MALFORMED_TRAILER);
    free(long_text);
    free(o);
}

static void test_signed_trailer_is_needed(void **state)
{
    (void)state;
    u8 *body = malloc(80 * KIB);
    struct outcome *o = malloc(sizeof(*o));
    size_t len = example_body(body);
    // The chunks are good, but the trailer's signature is missing.
    run(S3_PAYLOAD_CHUNKS_SIGNED_TRAILER, "x-amz-decoded-content-length: 66560\n", BYTES(body, len),
        0, 5000, o);
    assert_int_equal(o->e, ERR_S3_SIGNATURE_MISMATCH);
    free(o);
    free(body);
}

static void test_plain(void **state)
{
    (void)state;
    struct outcome *o = malloc(sizeof(*o));
    run(S3_PAYLOAD_UNSIGNED, "", BYTES_LITERAL("hello"), 2, 3, o);
    assert_int_equal(o->e, OK);
    assert_int_equal(o->len, 5);
    run(S3_PAYLOAD_SIGNED, "", BYTES_LITERAL("hello"), 2, 3, o);
    assert_int_equal(o->e, OK);
    run(S3_PAYLOAD_SIGNED, "", BYTES_LITERAL("hellO"), 2, 3, o);
    assert_int_equal(o->e, ERR_S3_SHA256_MISMATCH);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documented_chunks),
        cmocka_unit_test(test_unsigned_trailer),
        cmocka_unit_test(test_signed_trailer_is_needed),
        cmocka_unit_test(test_plain),
    };
    fake_s3_init(&s3, &core, "a", "b", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
