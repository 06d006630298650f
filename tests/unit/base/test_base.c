// SPDX-License-Identifier: Apache-2.0
// base/: conversions refuse what is malformed, the arena keeps its limit, the error table is whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/list.h"
#include "base/text.h"

static void test_hex(void **state)
{
    (void)state;
    u8 raw[4];
    char text[9];
    assert_true(hex_decode(BYTES_LITERAL("00fFa501"), raw, 4));
    hex_encode(BYTES(raw, 4), text);
    assert_string_equal(text, "00ffa501");
    assert_false(hex_decode(BYTES_LITERAL("00ffa50"), raw, 4));
    assert_false(hex_decode(BYTES_LITERAL("00ffa50g"), raw, 4));
}

static void test_base64(void **state)
{
    (void)state;
    const char *plain[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    const char *coded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        char out[16];
        u8 back[16];
        size_t len;
        base64_encode(bytes_from_string(plain[i]), out);
        assert_string_equal(out, coded[i]);
        assert_true(base64_decode(bytes_from_string(coded[i]), back, sizeof(back), &len));
        assert_int_equal(len, strlen(plain[i]));
        assert_memory_equal(back, plain[i], len);
    }
    const char *bad[] = {"Z", "Zg=", "Z===", "Zg==Zg==", "Zm9 ", "=m9v", "Zm=v"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        u8 back[16];
        size_t len;
        assert_false(base64_decode(bytes_from_string(bad[i]), back, sizeof(back), &len));
    }
    u8 small[2];
    size_t len;
    assert_false(base64_decode(BYTES_LITERAL("Zm9v"), small, sizeof(small), &len));
}

static void test_u64(void **state)
{
    (void)state;
    u64 v = 7;
    assert_true(u64_parse(BYTES_LITERAL("18446744073709551615"), UINT64_MAX, &v));
    assert_true(v == UINT64_MAX);
    assert_false(u64_parse(BYTES_LITERAL("18446744073709551616"), UINT64_MAX, &v));
    assert_false(u64_parse(BYTES_LITERAL(""), 9, &v));
    assert_false(u64_parse(BYTES_LITERAL("+1"), 9, &v));
    assert_false(u64_parse(BYTES_LITERAL("1 "), 9, &v));
    assert_false(u64_parse(BYTES_LITERAL("10"), 9, &v));
}

static void test_split(void **state)
{
    (void)state;
    struct bytes rest = BYTES_LITERAL("a,, b,");
    assert_true(bytes_equal(bytes_split(&rest, ','), BYTES_LITERAL("a")));
    assert_int_equal(bytes_split(&rest, ',').len, 0);
    assert_true(bytes_equal(bytes_split(&rest, ','), BYTES_LITERAL(" b")));
    assert_int_equal(rest.len, 0);
    assert_int_equal(bytes_split(&rest, ',').len, 0);
    u8 text[] = "AZaz@[`{";
    bytes_lower(text, sizeof(text) - 1);
    assert_string_equal((char *)text, "azaz@[`{");
}

static void test_arena(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 64 * KIB);
    for (int round = 0; round < 3; round++) {
        size_t got = 0;
        for (u8 *p; (p = arena_alloc(&a, 1000)) != NULL; got++) {
            assert_int_equal((uintptr_t)p % 16, 0);
            memset(p, 0xa5, 1000);
        }
        assert_in_range(got, 40, 64);
        assert_true(a.used_bytes <= 64 * KIB);
        arena_reset(&a);
    }
    assert_null(arena_alloc(&a, 65 * KIB));
    assert_non_null(arena_alloc(&a, 20 * KIB));
    arena_deinit(&a);
}

static void test_errors(void **state)
{
    (void)state;
    for (int e = OK; e < ERR_COUNT; e++) {
        const struct err_info *info = err_info((enum err)e);
        assert_non_null(info->name);
        assert_non_null(info->text);
        assert_in_range(info->http_status, 200, 599);
    }
    assert_int_equal(err_from_errno(-ENOSPC), ERR_DRIVE_FULL);
    assert_int_equal(err_from_errno(0), OK);
}

static void test_list(void **state)
{
    (void)state;
    struct list head, other, n[3];
    list_init(&head);
    list_init(&other);
    for (int i = 0; i < 3; i++) {
        list_add_tail(&other, &n[i]);
    }
    list_splice_tail(&head, &other);
    assert_true(list_is_empty(&other));
    list_remove(&n[1]);
    list_remove(&n[1]);
    assert_ptr_equal(list_pop_head(&head), &n[0]);
    assert_ptr_equal(list_pop_head(&head), &n[2]);
    assert_null(list_pop_head(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hex),   cmocka_unit_test(test_base64), cmocka_unit_test(test_u64),
        cmocka_unit_test(test_split), cmocka_unit_test(test_arena),  cmocka_unit_test(test_errors),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
