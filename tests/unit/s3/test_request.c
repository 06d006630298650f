// SPDX-License-Identifier: Apache-2.0
// Which bucket, key and operation a request is, and that what is not understood is never taken for
// something else.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_http.h"
#include "s3/headers.h"
#include "s3/tags.h"

static struct s3 s3;
static struct s3_core core;
static struct fake_http f;

static enum err parse(const char *head)
{
    fake_http_deinit(&f);
    assert_true(fake_http_init(&f, &s3, bytes_from_string(head), BYTES_NONE));
    return s3_request_parse(&f.rq);
}

static enum err route(const char *head)
{
    enum err e = parse(head);
    return e == OK ? s3_route(&f.rq) : e;
}

static void expect_names(const char *head, const char *bucket, const char *key)
{
    assert_int_equal(parse(head), OK);
    assert_true(bytes_equal(f.rq.bucket, bytes_from_string(bucket)));
    assert_true(bytes_equal(f.rq.key, bytes_from_string(key)));
}

static void test_names(void **state)
{
    (void)state;
    expect_names("GET /\nHost: h\n", "", "");
    expect_names("GET /b\nHost: h\n", "b", "");
    expect_names("GET /b/\nHost: h\n", "b", "");
    expect_names("GET /b/k\nHost: h\n", "b", "k");
    expect_names("GET /b//k\nHost: h\n", "b", "/k");
    expect_names("GET /b/k/\nHost: h\n", "b", "k/");
    expect_names("GET /b/a//b\nHost: h\n", "b", "a//b");
    expect_names("GET /b/../c\nHost: h\n", "b", "../c");
    expect_names("GET /b/%2e%2e/c\nHost: h\n", "b", "../c");
    expect_names("GET /b/%2f\nHost: h\n", "b", "/");
    expect_names("GET /b/a+b%2Bc%20d\nHost: h\n", "b", "a+b+c d");
    expect_names("GET /b/%25\nHost: h\n", "b", "%");
    expect_names("GET /b/\xc3\xa9%C3%A9\nHost: h\n", "b", "\xc3\xa9\xc3\xa9");
    expect_names("GET /k/x?a=b\nHost: bucket.s3.example.com:9000\n", "bucket", "k/x");
    expect_names("GET /k\nHost: with.dots.S3.Example.com\n", "with.dots", "k");
    expect_names("GET /b/k\nHost: s3.example.com\n", "b", "k");
    expect_names("GET /b/k\nHost: [::1]:9000\n", "b", "k");
    assert_int_equal(parse("GET /b/%zz\nHost: h\n"), ERR_S3_INVALID_URI);
    assert_int_equal(parse("GET /b/%2\nHost: h\n"), ERR_S3_INVALID_URI);
    assert_int_equal(parse("GET //k\nHost: h\n"), ERR_S3_INVALID_URI);
    assert_int_equal(parse("GET b\nHost: h\n"), ERR_S3_INVALID_URI);
    char head[4096];
    char key[META_KEY_BYTES_MAX + 2];
    memset(key, 'k', sizeof(key));
    key[META_KEY_BYTES_MAX] = 0;
    snprintf(head, sizeof(head), "GET /b/%s\nHost: h\n", key);
    expect_names(head, "b", key);
    key[META_KEY_BYTES_MAX] = 'k';
    key[META_KEY_BYTES_MAX + 1] = 0;
    snprintf(head, sizeof(head), "GET /b/%s\nHost: h\n", key);
    assert_int_equal(parse(head), ERR_S3_KEY_TOO_LONG);
}

static void test_parameters(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /b?uploads&prefix=a+b%2F&x=&&y=1=2\nHost: h\n"), OK);
    assert_true(s3_param_has(&f.rq, "uploads"));
    assert_int_equal(s3_param_get(&f.rq, "uploads").len, 0);
    assert_true(bytes_equal(s3_param_get(&f.rq, "prefix"), BYTES_LITERAL("a b/")));
    assert_true(bytes_equal(s3_param_get(&f.rq, "y"), BYTES_LITERAL("1=2")));
    assert_false(s3_param_has(&f.rq, "z"));
    char head[2048] = "GET /b?";
    for (int i = 0; i < S3_QUERY_MAX + 1; i++) {
        strcat(head, "a=1&");
    }
    strcat(head, "\nHost: h\n");
    assert_int_equal(parse(head), ERR_S3_INVALID_REQUEST);
}

static void test_routes(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        enum s3_op op;
    } cases[] = {
        {"GET /", S3_OP_LIST_BUCKETS},
        {"PUT /b", S3_OP_CREATE_BUCKET},
        {"HEAD /b", S3_OP_HEAD_BUCKET},
        {"DELETE /b", S3_OP_DELETE_BUCKET},
        {"GET /b?location", S3_OP_GET_BUCKET_LOCATION},
        {"GET /b?versioning", S3_OP_GET_BUCKET_VERSIONING},
        {"GET /b?acl", S3_OP_GET_BUCKET_ACL},
        {"GET /b/k?acl", S3_OP_GET_OBJECT_ACL},
        {"GET /b?versions&prefix=x", S3_OP_LIST_OBJECT_VERSIONS},
        {"GET /b?list-type=2", S3_OP_LIST_OBJECTS_V2},
        {"GET /b?prefix=a&unknown=1", S3_OP_LIST_OBJECTS},
        {"GET /b?uploads", S3_OP_LIST_MULTIPART_UPLOADS},
        {"POST /b?delete", S3_OP_DELETE_OBJECTS},
        {"PUT /b/k?x-id=PutObject", S3_OP_PUT_OBJECT},
        {"GET /b/k?response-content-type=a", S3_OP_GET_OBJECT},
        {"GET /b/k?partNumber=1&versionId=null", S3_OP_GET_OBJECT},
        {"HEAD /b/k", S3_OP_HEAD_OBJECT},
        {"DELETE /b/k", S3_OP_DELETE_OBJECT},
        {"GET /b/k?attributes", S3_OP_GET_OBJECT_ATTRIBUTES},
        {"POST /b/k?uploads", S3_OP_CREATE_MULTIPART_UPLOAD},
        {"PUT /b/k?partNumber=1&uploadId=u", S3_OP_UPLOAD_PART},
        {"POST /b/k?uploadId=u", S3_OP_COMPLETE_MULTIPART_UPLOAD},
        {"DELETE /b/k?uploadId=u", S3_OP_ABORT_MULTIPART_UPLOAD},
        {"GET /b/k?uploadId=u", S3_OP_LIST_PARTS},
        {"GET /b/k?tagging", S3_OP_GET_OBJECT_TAGGING},
        {"PUT /b/k?tagging&versionId=null", S3_OP_PUT_OBJECT_TAGGING},
        {"DELETE /b/k?tagging", S3_OP_DELETE_OBJECT_TAGGING},
    };
    char head[512];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(head, sizeof(head), "%s\nHost: h\n", cases[i].request);
        assert_int_equal(route(head), OK);
        assert_int_equal(f.rq.op, cases[i].op);
    }
    snprintf(head, sizeof(head), "PUT /b/k\nHost: h\nx-amz-copy-source: /a/b\n");
    assert_int_equal(route(head), OK);
    assert_int_equal(f.rq.op, S3_OP_COPY_OBJECT);
    snprintf(head, sizeof(head),
             "PUT /b/k?uploadId=u&partNumber=2\nHost: h\nx-amz-copy-source: /a/b\n");
    assert_int_equal(route(head), OK);
    assert_int_equal(f.rq.op, S3_OP_UPLOAD_PART_COPY);
}

// Every sub-resource with every method on bucket and object: the ones that are not there are 501,
// and none becomes a plain write or delete.
static void test_nothing_falls_through(void **state)
{
    (void)state;
    static const char *const subresources[] = {"accelerate",
                                               "acl",
                                               "analytics",
                                               "cors",
                                               "encryption",
                                               "inventory",
                                               "legal-hold",
                                               "lifecycle",
                                               "logging",
                                               "metrics",
                                               "notification",
                                               "policy",
                                               "object-lock",
                                               "ownershipControls",
                                               "policyStatus",
                                               "replication",
                                               "restore",
                                               "requestPayment",
                                               "publicAccessBlock",
                                               "retention",
                                               "select",
                                               "tagging",
                                               "torrent",
                                               "website",
                                               "intelligent-tiering",
                                               "append",
                                               "renameObject",
                                               "session",
                                               "no-such-thing"};
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
    char head[512];
    for (size_t i = 0; i < ARRAY_LEN(subresources); i++) {
        for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
            for (int object = 0; object < 2; object++) {
                bool is_read = m < 2;
                if ((m == 0 || m == 2) && strcmp(subresources[i], "acl") == 0) {
                    continue; // GET and PUT of an ACL are there
                }
                if (object && (m == 0 || m == 2 || m == 4) &&
                    strcmp(subresources[i], "tagging") == 0) {
                    continue; // tags of an object are there
                }
                if (is_read && strcmp(subresources[i], "no-such-thing") == 0) {
                    continue; // reads may carry parameters that mean nothing
                }
                snprintf(head, sizeof(head), "%s /b%s?%s\nHost: h\n", methods[m],
                         object ? "/k" : "", subresources[i]);
                assert_int_equal(route(head), ERR_S3_NOT_IMPLEMENTED);
            }
        }
    }
    assert_int_equal(route("DELETE /b/k?versionId=abc\nHost: h\n"), ERR_S3_INVALID_ARGUMENT);
    assert_int_equal(route("PUT /b/k?versionId=null\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("PUT /b/k?uploadId=u&tagging\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("PUT /b/k?acl&tagging\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("DELETE /b/k?uploadId=u&tagging\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("PUT /b/k?tagging\nHost: h\nx-amz-copy-source: /a/b\n"), OK);
    assert_int_equal(f.rq.op, S3_OP_PUT_OBJECT_TAGGING);
    assert_int_equal(route("PUT /b/k?partNumber=1\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("POST /b\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("POST /b/k\nHost: h\n"), ERR_S3_NOT_IMPLEMENTED);
    assert_int_equal(route("PATCH /b/k\nHost: h\n"), ERR_S3_METHOD_NOT_ALLOWED);
    assert_int_equal(route("PUT /\nHost: h\n"), ERR_S3_METHOD_NOT_ALLOWED);
}

static void expect_range(const char *text, u64 size, bool is_set, u64 offset, u64 length)
{
    struct s3_range r;
    assert_int_equal(s3_range_parse(&f.rq, bytes_from_string(text), size, &r), OK);
    assert_int_equal(r.is_set, is_set);
    if (is_set) {
        assert_int_equal(r.offset, offset);
        assert_int_equal(r.length, length);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    assert_int_equal(parse("GET /b/k\nHost: h\n"), OK);
    expect_range("bytes=0-0", 10, true, 0, 1);
    expect_range("bytes=0-9", 10, true, 0, 10);
    expect_range("bytes=3-", 10, true, 3, 7);
    expect_range("bytes=3-99999", 10, true, 3, 7);
    expect_range("bytes=-3", 10, true, 7, 3);
    expect_range("bytes=-30", 10, true, 0, 10);
    expect_range("bytes=9-9", 10, true, 9, 1);
    // What is not one range of bytes is ignored.
    const char *ignored[] = {"bytes=5-3", "bytes=a-b", "bytes=0-1,3-4", "lines=0-1", "bytes=",
                             "bytes=-",   "bytes",     "bytes=1",       "",          "bytes=--1"};
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++) {
        expect_range(ignored[i], 10, false, 0, 0);
    }
    const char *unsatisfiable[] = {"bytes=10-", "bytes=10-20", "bytes=-0"};
    struct s3_range r;
    for (size_t i = 0; i < ARRAY_LEN(unsatisfiable); i++) {
        assert_int_equal(s3_range_parse(&f.rq, bytes_from_string(unsatisfiable[i]), 10, &r),
                         ERR_S3_INVALID_RANGE);
    }
    assert_int_equal(s3_range_parse(&f.rq, BYTES_LITERAL("bytes=0-"), 0, &r), ERR_S3_INVALID_RANGE);
    assert_int_equal(s3_range_parse(&f.rq, BYTES_LITERAL("bytes=-1"), 0, &r), ERR_S3_INVALID_RANGE);
}

static void test_attributes(void **state)
{
    (void)state;
    struct s3_attrs a;
    assert_int_equal(parse("PUT /b/k\nHost: h\nContent-Encoding: gzip,aws-chunked\n"
                           "X-Amz-Meta-One: 1\nx-amz-meta-one: 2\nContent-Type: text/plain\n"
                           "x-amz-tagging: a=b&c=d\n"),
                     OK);
    assert_int_equal(s3_attrs_from_request(&f.rq, &a), OK);
    assert_true(
        bytes_equal(s3_attr_get(a.list, a.count, "content-encoding"), BYTES_LITERAL("gzip")));
    assert_true(bytes_equal(s3_attr_get(a.list, a.count, "x-amz-meta-one"), BYTES_LITERAL("1,2")));
    assert_true(bytes_equal(s3_attr_get(a.list, a.count, "tagging"), BYTES_LITERAL("a=b&c=d")));
    assert_int_equal(s3_tag_count(BYTES_LITERAL("a=b&c=d")), 2);
    assert_int_equal(parse("PUT /b/k\nHost: h\nContent-Encoding: aws-chunked\n"), OK);
    assert_int_equal(s3_attrs_from_request(&f.rq, &a), OK);
    assert_int_equal(a.count, 0);
    char head[4096];
    char value[2049];
    memset(value, 'v', sizeof(value) - 1);
    value[2048] = 0;
    snprintf(head, sizeof(head), "PUT /b/k\nHost: h\nx-amz-meta-x: %s\n", value + 1);
    assert_int_equal(parse(head), OK);
    assert_int_equal(s3_attrs_from_request(&f.rq, &a), OK);
    snprintf(head, sizeof(head), "PUT /b/k\nHost: h\nx-amz-meta-x: %s\n", value);
    assert_int_equal(parse(head), OK);
    assert_int_equal(s3_attrs_from_request(&f.rq, &a), ERR_S3_METADATA_TOO_LARGE);
    assert_int_equal(parse("PUT /b/k\nHost: h\nx-amz-tagging: a=b&a=c\n"), OK);
    assert_int_equal(s3_attrs_from_request(&f.rq, &a), ERR_S3_INVALID_TAG);
}

static void test_refused_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        enum err expected;
    } cases[] = {
        {"x-amz-server-side-encryption: AES256", ERR_S3_NOT_IMPLEMENTED},
        {"x-amz-server-side-encryption-customer-algorithm: AES256", ERR_S3_NOT_IMPLEMENTED},
        {"x-amz-object-lock-mode: GOVERNANCE", ERR_S3_NOT_IMPLEMENTED},
        {"x-amz-grant-read: id=1", ERR_S3_NOT_IMPLEMENTED},
        {"x-amz-acl: public-read", ERR_S3_NOT_IMPLEMENTED},
        {"x-amz-acl: private", OK},
        {"x-amz-acl: public-ready", ERR_S3_INVALID_ARGUMENT},
        {"x-amz-storage-class: STANDARD", OK},
        {"x-amz-storage-class: GLACIER", ERR_S3_INVALID_STORAGE_CLASS},
        {"x-amz-meta-server-side-encryption: 1", OK},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char head[256];
        snprintf(head, sizeof(head), "PUT /b/k\nHost: h\n%s\n", cases[i].header);
        assert_int_equal(parse(head), OK);
        assert_int_equal(s3_refuse_unsupported_headers(&f.rq), cases[i].expected);
    }
}

static void test_read_conditions(void **state)
{
    (void)state;
    struct object_info info = {.modified_ns = 1700000000 * NS_PER_S + 5};
    assert_true(etag_parse(BYTES_LITERAL("\"0123456789abcdef0123456789abcdef\""), &info.etag));
    static const struct {
        const char *headers;
        enum err expected;
    } cases[] = {
        {"If-Match: \"0123456789abcdef0123456789abcdef\"\n", OK},
        {"If-Match: 0123456789abcdef0123456789abcdef\n", OK},
        {"If-Match: *\n", OK},
        {"If-Match: \"x\", \"0123456789abcdef0123456789abcdef\"\n", OK},
        {"If-Match: \"ABC\"\n", ERR_S3_PRECONDITION_FAILED},
        {"If-None-Match: \"0123456789abcdef0123456789abcdef\"\n", ERR_S3_NOT_MODIFIED},
        {"If-None-Match: \"ABC\"\n", OK},
        {"If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\n", ERR_S3_NOT_MODIFIED},
        {"If-Modified-Since: Tue, 14 Nov 2023 22:13:19 GMT\n", OK},
        {"If-Modified-Since: nonsense\n", OK},
        {"If-Unmodified-Since: Tue, 14 Nov 2023 22:13:20 GMT\n", OK},
        {"If-Unmodified-Since: Tue, 14 Nov 2023 22:13:19 GMT\n", ERR_S3_PRECONDITION_FAILED},
        {"If-Match: *\nIf-Unmodified-Since: Tue, 14 Nov 2023 22:13:19 GMT\n", OK},
        {"If-None-Match: \"x\"\nIf-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\n", OK},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char head[512];
        snprintf(head, sizeof(head), "GET /b/k\nHost: h\n%s", cases[i].headers);
        assert_int_equal(parse(head), OK);
        f.rq.wall_ns = 1800000000 * NS_PER_S;
        assert_int_equal(s3_read_condition(&f.rq, "", &info), cases[i].expected);
    }
    assert_int_equal(parse("PUT /b/k\nHost: h\nx-amz-copy-source-if-none-match: "
                           "0123456789abcdef0123456789abcdef\n"),
                     OK);
    assert_int_equal(s3_read_condition(&f.rq, "x-amz-copy-source-", &info),
                     ERR_S3_PRECONDITION_FAILED);
}

static int teardown(void **state)
{
    (void)state;
    fake_http_deinit(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),           cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_routes),          cmocka_unit_test(test_nothing_falls_through),
        cmocka_unit_test(test_ranges),          cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_refused_headers), cmocka_unit_test(test_read_conditions),
    };
    fake_s3_init(&s3, &core, "a", "b", "s3.example.com");
    return cmocka_run_group_tests(tests, NULL, teardown);
}
