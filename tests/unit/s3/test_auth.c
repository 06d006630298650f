// SPDX-License-Identifier: Apache-2.0
// Signature V4 against the worked examples of AWS's documentation (their access key, date and
// signatures are public facts), and everything that must be refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/time_text.h"
#include "fake_http.h"
#include "s3/auth.h"

#define KEY    "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define EMPTY  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define CRED   "AWS4-HMAC-SHA256 Credential=" KEY "/20130524/us-east-1/s3/aws4_request"

static struct s3 s3;
static struct s3_core core;

// Parses and authenticates `head` as if it had come `age_s` seconds after 2013-05-24T00:00:00Z.
static enum err check(const char *head, i64 age_s, struct s3_auth *auth)
{
    struct fake_http *f = malloc(sizeof(*f));
    u64 date = 0;
    assert_true(time_amz_parse(BYTES_LITERAL("20130524T000000Z"), &date));
    assert_true(fake_http_init(f, &s3, bytes_from_string(head), BYTES_NONE));
    f->rq.wall_ns = (u64)((i64)date + age_s * (i64)NS_PER_S);
    enum err e = s3_request_parse(&f->rq);
    if (e == OK) {
        e = s3_authenticate(&f->rq);
    }
    if (auth != NULL) {
        *auth = f->rq.auth;
    }
    fake_http_deinit(f);
    free(f);
    return e;
}

static int setup(void **state)
{
    (void)state;
    fake_s3_init(&s3, &core, KEY, SECRET, "s3.amazonaws.com");
    return 0;
}

#define GET_RANGE(target, range, signature)                                                        \
    "GET " target "\nHost: examplebucket.s3.amazonaws.com\nRange: " range                          \
    "\nx-amz-content-sha256: " EMPTY "\nx-amz-date: 20130524T000000Z\nAuthorization: " CRED        \
    ",SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=" signature "\n"
#define GET_RANGE_SIGNATURE "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"

static void test_documented_examples(void **state)
{
    (void)state;
    struct s3_auth auth;
    assert_int_equal(check(GET_RANGE("/test.txt", "bytes=0-9", GET_RANGE_SIGNATURE), 0, &auth), OK);
    assert_int_equal(auth.payload, S3_PAYLOAD_SIGNED);
    assert_int_equal(check("PUT /test%24file.text\nHost: examplebucket.s3.amazonaws.com\n"
                           "Date: Fri, 24 May 2013 00:00:00 GMT\nx-amz-date: 20130524T000000Z\n"
                           "x-amz-storage-class: REDUCED_REDUNDANCY\nx-amz-content-sha256: "
                           "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\n"
                           "Authorization: " CRED
                           ",SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;"
                           "x-amz-storage-class,Signature="
                           "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd\n",
                           0, NULL),
                     OK);
    assert_int_equal(check("GET /?lifecycle\nHost: examplebucket.s3.amazonaws.com\n"
                           "x-amz-date: 20130524T000000Z\nx-amz-content-sha256: " EMPTY
                           "\nAuthorization: " CRED
                           ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="
                           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\n",
                           0, NULL),
                     OK);
    assert_int_equal(check("GET /?max-keys=2&prefix=J\nHost: examplebucket.s3.amazonaws.com\n"
                           "x-amz-date: 20130524T000000Z\nx-amz-content-sha256: " EMPTY
                           "\nAuthorization: " CRED
                           ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="
                           "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\n",
                           0, NULL),
                     OK);
}

static void test_changed_requests_fail(void **state)
{
    (void)state;
    assert_int_equal(check(GET_RANGE("/test.txt", "bytes=0-8", GET_RANGE_SIGNATURE), 0, NULL),
                     ERR_S3_SIGNATURE_MISMATCH);
    assert_int_equal(check(GET_RANGE("/tesT.txt", "bytes=0-9", GET_RANGE_SIGNATURE), 0, NULL),
                     ERR_S3_SIGNATURE_MISMATCH);
    assert_int_equal(check(GET_RANGE("/test.txt?acl", "bytes=0-9", GET_RANGE_SIGNATURE), 0, NULL),
                     ERR_S3_SIGNATURE_MISMATCH);
    assert_int_equal(check(GET_RANGE("/test.txt", "bytes=0-9", "f0"), 0, NULL),
                     ERR_S3_SIGNATURE_MISMATCH);
    // An x-amz- header that is not signed could change what the request does.
    assert_int_equal(
        check(GET_RANGE("/test.txt", "bytes=0-9\nx-amz-acl: private", GET_RANGE_SIGNATURE), 0,
              NULL),
        ERR_S3_ACCESS_DENIED);
}

static void test_equal_spellings_pass(void **state)
{
    (void)state;
    // Blanks around and inside values fold; a path encoded more than needed means the same.
    assert_int_equal(check(GET_RANGE("/%74est.txt", "  bytes=0-9  ", GET_RANGE_SIGNATURE), 0, NULL),
                     OK);
}

static void test_time(void **state)
{
    (void)state;
    const char *head = GET_RANGE("/test.txt", "bytes=0-9", GET_RANGE_SIGNATURE);
    assert_int_equal(check(head, 15 * 60, NULL), OK);
    assert_int_equal(check(head, 15 * 60 + 1, NULL), ERR_S3_REQUEST_TIME_SKEWED);
    assert_int_equal(check(head, -15 * 60, NULL), OK);
    assert_int_equal(check(head, -15 * 60 - 1, NULL), ERR_S3_REQUEST_TIME_SKEWED);
}

#define PRESIGNED(expires, signature)                                                              \
    "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY                         \
    "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-"               \
    "Expires=" expires "&X-Amz-SignedHeaders=host&X-Amz-Signature=" signature                      \
    "\nHost: examplebucket.s3.amazonaws.com\n"
#define PRESIGNED_SIGNATURE "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"

static void test_presigned(void **state)
{
    (void)state;
    const char *head = PRESIGNED("86400", PRESIGNED_SIGNATURE);
    struct s3_auth auth;
    assert_int_equal(check(head, 0, &auth), OK);
    assert_int_equal(auth.payload, S3_PAYLOAD_UNSIGNED);
    // It lives by its own expiry, not by the clock skew.
    assert_int_equal(check(head, 86399, NULL), OK);
    assert_int_equal(check(head, 86400, NULL), ERR_S3_EXPIRED_TOKEN);
    assert_int_equal(check(head, -3600, NULL), ERR_S3_REQUEST_NOT_YET_VALID);
    assert_int_equal(check(PRESIGNED("86401", PRESIGNED_SIGNATURE), 0, NULL),
                     ERR_S3_SIGNATURE_MISMATCH);
    const char *bad[] = {"604801", "x", ""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[1024];
        snprintf(text, sizeof(text),
                 "GET /t?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY
                 "%%2F20130524%%2Fus-east-1%%2Fs3%%2Faws4_request&X-Amz-Date=20130524T000000Z"
                 "&X-Amz-Expires=%s&X-Amz-SignedHeaders=host&X-Amz-Signature=00\n"
                 "Host: examplebucket.s3.amazonaws.com\n",
                 bad[i]);
        assert_int_equal(check(text, 0, NULL), ERR_S3_AUTH_QUERY_PARAMETERS);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *authorization;
        enum err expected;
    } cases[] = {
        {"AWS " KEY ":abc", ERR_S3_INVALID_REQUEST},
        {"Bearer x", ERR_S3_INVALID_REQUEST},
        {"AWS4-HMAC-SHA256", ERR_S3_INVALID_REQUEST},
        {"AWS4-HMAC-SHA256 Credential=a", ERR_S3_AUTH_HEADER_MALFORMED},
        {"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=1",
         ERR_S3_AUTH_HEADER_MALFORMED},
        {"AWS4-HMAC-SHA256 Credential=nobody/20130524/us-east-1/s3/aws4_request, "
         "SignedHeaders=host, Signature=1",
         ERR_S3_INVALID_ACCESS_KEY},
        {"AWS4-HMAC-SHA256 Credential=" KEY "/20130523/us-east-1/s3/aws4_request, "
         "SignedHeaders=host, Signature=1",
         ERR_S3_AUTH_HEADER_MALFORMED},
        {"AWS4-HMAC-SHA256 Credential=" KEY "/20130524/eu-west-1/s3/aws4_request, "
         "SignedHeaders=host, Signature=1",
         ERR_S3_AUTH_HEADER_MALFORMED},
        {"AWS4-HMAC-SHA256 Credential=" KEY "/20130524/us-east-1/sts/aws4_request, "
         "SignedHeaders=host, Signature=1",
         ERR_S3_AUTH_HEADER_MALFORMED},
        {"AWS4-HMAC-SHA256 Credential=" KEY "/20130524/us-east-1/s3/aws4, "
         "SignedHeaders=host, Signature=1",
         ERR_S3_AUTH_HEADER_MALFORMED},
        // host must be signed; names must be sorted, lower-case and each there once
        {CRED ", SignedHeaders=x-amz-content-sha256;x-amz-date, Signature=1", ERR_S3_ACCESS_DENIED},
        {CRED ", SignedHeaders=x-amz-date;host;x-amz-content-sha256, Signature=1",
         ERR_S3_SIGNATURE_MISMATCH},
        {CRED ", SignedHeaders=host;host;x-amz-content-sha256;x-amz-date, Signature=1",
         ERR_S3_SIGNATURE_MISMATCH},
        {CRED ", SignedHeaders=host;x-amz-content-sha256;x-amz-date;, Signature=1",
         ERR_S3_SIGNATURE_MISMATCH},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char head[1024];
        snprintf(head, sizeof(head),
                 "GET /b/k\nHost: localhost\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: "
                 "UNSIGNED-PAYLOAD\nAuthorization: %s\n",
                 cases[i].authorization);
        assert_int_equal(check(head, 0, NULL), cases[i].expected);
    }
    assert_int_equal(check("GET /b/k\nHost: localhost\n", 0, NULL), ERR_S3_ACCESS_DENIED);
    // No date, no payload hash, a payload hash that is none.
    assert_int_equal(check("GET /\nHost: h\nAuthorization: " CRED
                           ", SignedHeaders=host, Signature=1\n",
                           0, NULL),
                     ERR_S3_ACCESS_DENIED);
    assert_int_equal(check("GET /\nHost: h\nx-amz-date: 20130524T000000Z\nAuthorization: " CRED
                           ", SignedHeaders=host, Signature=1\n",
                           0, NULL),
                     ERR_S3_INVALID_REQUEST);
    assert_int_equal(check("GET /\nHost: h\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: "
                           "abc\nAuthorization: " CRED ", SignedHeaders=host, Signature=1\n",
                           0, NULL),
                     ERR_S3_CONTENT_SHA256_INVALID);
}

static void test_many_signed_headers(void **state)
{
    (void)state;
    char head[16 * KIB];
    int n = snprintf(head, sizeof(head),
                     "GET /\nHost: h\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: "
                     "UNSIGNED-PAYLOAD\nAuthorization: " CRED ", SignedHeaders=host");
    for (int i = 0; i < 1000; i++) {
        n += snprintf(head + n, sizeof(head) - (size_t)n, ";i%05d", i);
    }
    snprintf(head + n, sizeof(head) - (size_t)n, ", Signature=1\n");
    assert_int_equal(check(head, 0, NULL), ERR_S3_AUTH_HEADER_MALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documented_examples),
        cmocka_unit_test(test_changed_requests_fail),
        cmocka_unit_test(test_equal_spellings_pass),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_presigned),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_many_signed_headers),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
