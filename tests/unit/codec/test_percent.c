// SPDX-License-Identifier: Apache-2.0
// Percent coding: every byte there and back, strictness, limits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "codec/percent.h"

static void assert_decodes(const char *in, enum percent_plus plus, const char *want)
{
    u8 out[64];
    size_t len;
    assert_int_equal(percent_decode(bytes_from_string(in), plus, out, sizeof(out), &len), OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(out, want, len);
}

static void test_decode(void **state)
{
    (void)state;
    assert_decodes("", PERCENT_PLUS_IS_PLUS, "");
    assert_decodes("a%20b%2fc%2Fd+e", PERCENT_PLUS_IS_PLUS, "a b/c/d+e");
    assert_decodes("a%20b%2fc%2Fd+e%2B", PERCENT_PLUS_IS_SPACE, "a b/c/d e+");
    assert_decodes("%252e/../%2e%2E", PERCENT_PLUS_IS_PLUS, "%2e/../..");
    static const char *malformed[] = {"%",   "%2",  "a%",  "a%2",  "%g0",   "%0g",    "%%30",
                                      "%-1", "% 1", "%+1", "%0x1", "%2%30", "%\xc0z", "%u0041"};
    for (size_t i = 0; i < ARRAY_LEN(malformed); i++) {
        u8 out[16];
        size_t len;
        assert_int_equal(percent_decode(bytes_from_string(malformed[i]), PERCENT_PLUS_IS_PLUS, out,
                                        sizeof(out), &len),
                         ERR_S3_INVALID_URI);
    }
}

static void test_encode(void **state)
{
    (void)state;
    char out[64];
    size_t len;
    struct bytes in = BYTES_LITERAL("a/b c+d~-_.*'%\xc3\xa9");
    assert_int_equal(percent_encode(in, PERCENT_SLASH_KEEP, out, sizeof(out), &len), OK);
    assert_true(bytes_equal(BYTES(out, len), BYTES_LITERAL("a/b%20c%2Bd~-_.%2A%27%25%C3%A9")));
    assert_int_equal(percent_encoded_len(in, PERCENT_SLASH_KEEP), len);
    assert_int_equal(percent_encode(in, PERCENT_SLASH_ENCODE, out, sizeof(out), &len), OK);
    assert_true(bytes_equal(BYTES(out, len), BYTES_LITERAL("a%2Fb%20c%2Bd~-_.%2A%27%25%C3%A9")));
    assert_int_equal(percent_encoded_len(in, PERCENT_SLASH_ENCODE), len);
}

static void test_all_bytes(void **state)
{
    (void)state;
    for (u32 slash = PERCENT_SLASH_KEEP; slash <= PERCENT_SLASH_ENCODE; slash++) {
        size_t unreserved = 0;
        for (u32 c = 0; c < 256; c++) {
            u8 byte = (u8)c;
            char coded[3];
            u8 back[1];
            size_t len;
            size_t back_len;
            assert_int_equal(percent_encode(BYTES(&byte, 1), (enum percent_slash)slash, coded,
                                            sizeof(coded), &len),
                             OK);
            unreserved += len == 1;
            assert_int_equal(
                percent_decode(BYTES(coded, len), PERCENT_PLUS_IS_SPACE, back, 1, &back_len), OK);
            assert_int_equal(back_len, 1);
            assert_int_equal(back[0], byte);
        }
        assert_int_equal(unreserved, slash == PERCENT_SLASH_KEEP ? 67 : 66);
    }
}

static void test_limits(void **state)
{
    (void)state;
    u8 raw[8] = "a%20b";
    char text[8];
    size_t len;
    assert_int_equal(percent_decode(BYTES(raw, 5), PERCENT_PLUS_IS_PLUS, raw, 2, &len),
                     ERR_LIMIT_REACHED);
    memcpy(raw, "a%20b", 5);
    assert_int_equal(percent_decode(BYTES(raw, 5), PERCENT_PLUS_IS_PLUS, raw, 3, &len), OK);
    assert_memory_equal(raw, "a b", 3);
    assert_int_equal(percent_encode(BYTES_LITERAL("ab"), PERCENT_SLASH_KEEP, text, 1, &len),
                     ERR_LIMIT_REACHED);
    assert_int_equal(percent_encode(BYTES_LITERAL("a "), PERCENT_SLASH_KEEP, text, 3, &len),
                     ERR_LIMIT_REACHED);
    assert_int_equal(percent_encode(BYTES_LITERAL("a "), PERCENT_SLASH_KEEP, text, 4, &len), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_all_bytes),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
