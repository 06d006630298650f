// SPDX-License-Identifier: Apache-2.0
// Which tags are taken, from a header and from XML, and that what was taken comes back the same.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "fake_http.h"
#include "s3/tags.h"

#define HEAD "PUT /b/k?tagging\nHost: h\n"

static struct s3 s3;
static struct s3_core core;
static struct fake_http f;
static struct s3_tag_set set;

static void begin(void)
{
    fake_http_deinit(&f);
    assert_true(fake_http_init(&f, &s3, BYTES_LITERAL(HEAD), BYTES_NONE));
    assert_int_equal(s3_request_parse(&f.rq), OK);
}

static enum err from_header(const char *text)
{
    begin();
    TRY(s3_tags_decode(&f.rq, bytes_from_string(text), &set));
    return s3_tags_check(&f.rq, &set);
}

static enum err from_xml(const char *text)
{
    begin();
    TRY(s3_tags_parse_xml(&f.rq, bytes_from_string(text), &set));
    return s3_tags_check(&f.rq, &set);
}

// What the set is as kept, and that reading it again gives the same tags.
static void expect_kept(const char *expected)
{
    struct bytes text;
    struct s3_tag_set again;
    assert_int_equal(s3_tags_encode(&f.rq, &set, &text), OK);
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.data, expected, text.len);
    assert_int_equal(s3_tag_count(text), set.count);
    assert_int_equal(s3_tags_decode(&f.rq, text, &again), OK);
    assert_int_equal(again.count, set.count);
    for (u32 i = 0; i < set.count; i++) {
        assert_true(bytes_equal(again.list[i].key, set.list[i].key));
        assert_true(bytes_equal(again.list[i].value, set.list[i].value));
    }
}

struct tags_case {
    const char *text;
    enum err expected;
    const char *kept; // NULL: not looked at
};

static void expect_each(enum err (*from)(const char *text), const struct tags_case *cases,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(from(cases[i].text), cases[i].expected);
        if (cases[i].kept != NULL) {
            expect_kept(cases[i].kept);
        }
    }
}

static void test_header(void **state)
{
    (void)state;
    static const struct tags_case cases[] = {
        {"a=1&b=2", OK, "a=1&b=2"},
        {"", OK, ""},
        {"&&a&", OK, "a="},
        {"a=&b", OK, "a=&b="},
        {"a+b=c%20d", OK, "a%20b=c%20d"},
        {"a=b=c", OK, "a=b%3Dc"},
        {"%C3%BC=%2F%3A%40", OK, "%C3%BC=%2F%3A%40"},
        {"1=&2=&3=&4=&5=&6=&7=&8=&9=&0=", OK, "1=&2=&3=&4=&5=&6=&7=&8=&9=&0="},
        {"1=&2=&3=&4=&5=&6=&7=&8=&9=&0=&a=", ERR_S3_INVALID_TAG, NULL},
        {"=v", ERR_S3_INVALID_TAG, NULL},
        {"a=1&a=2", ERR_S3_INVALID_TAG, NULL},
        {"a=%zz", ERR_S3_INVALID_ARGUMENT, NULL},
        {"a=%26", ERR_S3_INVALID_TAG, NULL},
        {"a%00=1", ERR_S3_INVALID_TAG, NULL},
        {"a=b%0A", ERR_S3_INVALID_TAG, NULL},
        {"aws:a=1", ERR_S3_INVALID_TAG, NULL},
        {"AWS:a=1", ERR_S3_INVALID_TAG, NULL},
        {"aws=1", OK, "aws=1"},
        // Not UTF-8: alone, cut, longer than needed, a surrogate, past the last character.
        {"a=%80", ERR_S3_INVALID_TAG, NULL},
        {"a=%C3", ERR_S3_INVALID_TAG, NULL},
        {"a=%C0%AF", ERR_S3_INVALID_TAG, NULL},
        {"a=%E0%80%80", ERR_S3_INVALID_TAG, NULL},
        {"a=%ED%A0%80", ERR_S3_INVALID_TAG, NULL},
        {"a=%F4%90%80%80", ERR_S3_INVALID_TAG, NULL},
        {"a=%F0%9F%98%80", OK, "a=%F0%9F%98%80"},
    };
    expect_each(from_header, cases, ARRAY_LEN(cases));
}

static void test_xml(void **state)
{
    (void)state;
    static const struct tags_case cases[] = {
        {"<Tagging><TagSet/></Tagging>", OK, ""},
        {"<Tagging xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><TagSet><Tag><Key>k &amp;</Key>"
         "<Value></Value></Tag></TagSet></Tagging>",
         ERR_S3_INVALID_TAG, NULL},
        {"<Tagging><TagSet><Tag><Key>k</Key><Value>v w</Value></Tag><Tag><Value/><Key>l</Key></Tag>"
         "</TagSet></Tagging>",
         OK, "k=v%20w&l="},
        {"<Tagging><TagSet><Tag><Key>k</Key><Value/></Tag><Tag><Key>k</Key><Value/></Tag></TagSet>"
         "</Tagging>",
         ERR_S3_INVALID_TAG, NULL},
        {"<Tagging><TagSet><Tag><Key/><Value/></Tag></TagSet></Tagging>", ERR_S3_INVALID_TAG, NULL},
        {"<Tagging><TagSet><Tag><Key>k</Key></Tag></TagSet></Tagging>", ERR_S3_MALFORMED_XML, NULL},
        {"<Tagging><TagSet><Tag><Value>v</Value></Tag></TagSet></Tagging>", ERR_S3_MALFORMED_XML,
         NULL},
        {"<Tagging><TagSet><Tug/></TagSet></Tagging>", ERR_S3_MALFORMED_XML, NULL},
        {"<Tagging/>", ERR_S3_MALFORMED_XML, NULL},
        {"<TagSet/>", ERR_S3_MALFORMED_XML, NULL},
        {"<Tagging><TagSet>", ERR_S3_MALFORMED_XML, NULL},
        {"", ERR_S3_MALFORMED_XML, NULL},
    };
    expect_each(from_xml, cases, ARRAY_LEN(cases));
}

// Limits count characters, not bytes.
static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        u32 key_chars;
        u32 value_chars;
        enum err expected;
    } cases[] = {{S3_TAG_KEY_CHARS_MAX, S3_TAG_VALUE_CHARS_MAX, OK},
                 {S3_TAG_KEY_CHARS_MAX + 1, 1, ERR_S3_INVALID_TAG},
                 {1, S3_TAG_VALUE_CHARS_MAX + 1, ERR_S3_INVALID_TAG}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (u32 width = 1; width <= 2; width++) {
            char text[4096];
            size_t at = 0;
            for (u32 k = 0; k < cases[i].key_chars; k++) {
                at += (size_t)snprintf(text + at, sizeof(text) - at, width == 1 ? "k" : "%%C3%%BC");
            }
            text[at++] = '=';
            for (u32 v = 0; v < cases[i].value_chars; v++) {
                at += (size_t)snprintf(text + at, sizeof(text) - at, width == 1 ? "v" : "%%C3%%BC");
            }
            text[at] = 0;
            assert_int_equal(from_header(text), cases[i].expected);
        }
    }
}

int main(void)
{
    fake_s3_init(&s3, &core, "AKIDEXAMPLE", "secret-key", NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_xml),
        cmocka_unit_test(test_lengths),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_http_deinit(&f);
    return failed;
}
