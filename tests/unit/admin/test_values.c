// SPDX-License-Identifier: Apache-2.0
// Sizes, durations, addresses, suggestions.
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "admin/values.h"

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        u64 bytes;
    } good[] = {
        {"0", 0},
        {"17", 17},
        {"17B", 17},
        {"64KiB", 65536},
        {"64 KiB", 65536},
        {"3MiB", 3 * MIB},
        {"2GiB", 2 * GIB},
        {"16777215TiB", 16777215 * TIB},
        {"10kB", 10000},
        {"10MB", 10000000},
        {"1GB", 1000000000},
        {"1TB", 1000000000000},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        u64 value = 1;
        assert_true(size_parse(good[i].text, &value));
        assert_int_equal(value, good[i].bytes);
    }
    static const char *const bad[] = {
        "",
        " ",
        "KiB",
        "-1",
        "+1",
        "1.5GiB",
        "1 ",
        "1  KiB",
        "1KIB",
        "1K",
        "1MiBs",
        "0x10",
        "18446744073709551616",
        "16777216TiB",
        " 1",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        u64 value = 42;
        assert_false(size_parse(bad[i], &value));
        assert_int_equal(value, 42);
    }
}

static void test_durations(void **state)
{
    (void)state;
    u64 ns;
    assert_true(duration_parse("500ms", &ns));
    assert_int_equal(ns, 500 * NS_PER_MS);
    assert_true(duration_parse("30s", &ns));
    assert_int_equal(ns, 30 * NS_PER_S);
    assert_true(duration_parse("2 m", &ns));
    assert_int_equal(ns, 120 * NS_PER_S);
    assert_true(duration_parse("1h", &ns));
    assert_int_equal(ns, 3600 * NS_PER_S);
    static const char *const bad[] = {"", "5", "s", "1.5s", "-1s", "1s1", "999999999h"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(duration_parse(bad[i], &ns));
    }
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"127.0.0.1:9000", "0.0.0.0:0", "[::1]:9000", "[::]:65535"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(address_is_valid(good[i]));
    }
    static const char *const bad[] = {
        "",           "9000",         ":9000",        "localhost:9000",  "127.0.0.1",
        "127.0.0.1:", "1.2.3:80",     "::1:9000",     "[::1]",           "[::1]9000",
        "[]:9000",    "127.0.0.1:-1", "[1.2.3.4]:80", "127.0.0.1:65536",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(address_is_valid(bad[i]));
    }
}

static void test_suggestions(void **state)
{
    (void)state;
    static const char *const names[] = {"drives", "listen", "log", "store", "tls"};
    assert_string_equal(name_suggest("drvies", names, ARRAY_LEN(names)), "drives");
    assert_string_equal(name_suggest("drive", names, ARRAY_LEN(names)), "drives");
    assert_string_equal(name_suggest("lisen", names, ARRAY_LEN(names)), "listen");
    assert_string_equal(name_suggest("tsl", names, ARRAY_LEN(names)), "tls");
    assert_null(name_suggest("abc", names, ARRAY_LEN(names)));
    assert_null(name_suggest("", names, ARRAY_LEN(names)));
    char lengthy[200];
    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = 0;
    assert_null(name_suggest(lengthy, names, ARRAY_LEN(names)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
