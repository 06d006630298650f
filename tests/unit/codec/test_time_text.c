// SPDX-License-Identifier: Apache-2.0
// Times as text: the C library's calendar as reference, every form there and back, strictness.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <time.h>

#include "codec/time_text.h"

#define SECONDS_MAX 18446744072ull // of a u64 of nanoseconds, less one

static void assert_second(u64 seconds)
{
    time_t t = (time_t)seconds;
    struct tm tm;
    char want[64];
    char got[64];
    u64 back = 0;
    u64 ns = seconds * NS_PER_S;
    assert_non_null(gmtime_r(&t, &tm));
    strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.000Z", &tm);
    time_iso8601_format(ns, got);
    assert_string_equal(got, want);
    assert_true(time_iso8601_parse(bytes_from_string(got), &back) && back == ns);
    strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    time_http_format(ns, got);
    assert_string_equal(got, want);
    back = 0;
    assert_true(time_http_parse(bytes_from_string(got), &back) && back == ns);
    strftime(want, sizeof(want), "%Y%m%dT%H%M%SZ", &tm);
    time_amz_format(ns, got);
    assert_string_equal(got, want);
    back = 0;
    assert_true(time_amz_parse(bytes_from_string(got), &back) && back == ns);
    time_amz_day_format(ns, got);
    assert_memory_equal(got, want, TIME_AMZ_DAY_LEN);
    assert_int_equal(strlen(got), TIME_AMZ_DAY_LEN);
    strftime(got, sizeof(got), "%a %b %e %H:%M:%S %Y", &tm);
    back = 0;
    assert_true(time_http_parse(bytes_from_string(got), &back) && back == ns);
}

static void test_against_libc(void **state)
{
    (void)state;
    u64 seed = 1;
    for (u64 day = 0; day < SECONDS_MAX / 86400; day++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        assert_second(day * 86400 + (seed >> 33) % 86400);
    }
    assert_second(0);
    assert_second(951782400 - 1); // around 29 February 2000
    assert_second(951782400);
    assert_second(951868800);
    assert_second(SECONDS_MAX);
}

static void test_fractions(void **state)
{
    (void)state;
    char got[TIME_ISO8601_LEN + 1];
    u64 ns;
    time_iso8601_format(1136214245999999999ull, got);
    assert_string_equal(got, "2006-01-02T15:04:05.999Z");
    time_iso8601_format(1136214245007000000ull, got);
    assert_string_equal(got, "2006-01-02T15:04:05.007Z");
    assert_true(time_iso8601_parse(BYTES_LITERAL("2006-01-02T15:04:05Z"), &ns));
    assert_true(ns == 1136214245000000000ull);
    assert_true(time_iso8601_parse(BYTES_LITERAL("2006-01-02T15:04:05.5Z"), &ns));
    assert_true(ns == 1136214245500000000ull);
    assert_true(time_iso8601_parse(BYTES_LITERAL("2006-01-02T15:04:05.123456789Z"), &ns));
    assert_true(ns == 1136214245123456789ull);
    time_iso8601_format(UINT64_MAX, got);
    assert_string_equal(got, "2554-07-21T23:34:33.709Z");
}

static void test_older_http(void **state)
{
    (void)state;
    u64 ns;
    assert_true(time_http_parse(BYTES_LITERAL("Sunday, 06-Nov-94 08:49:37 GMT"), &ns));
    assert_true(ns == 784111777ull * NS_PER_S);
    assert_true(time_http_parse(BYTES_LITERAL("Sun Nov  6 08:49:37 1994"), &ns));
    assert_true(ns == 784111777ull * NS_PER_S);
    assert_true(time_http_parse(BYTES_LITERAL("Wednesday, 06-Nov-24 08:49:37 GMT"), &ns));
    assert_true(ns == 1730882977ull * NS_PER_S);
}

// UTC as mail writes it.
static void test_mail_zones(void **state)
{
    (void)state;
    static const char *const zones[] = {"GMT", "UTC", "+0000", "-0000"};
    for (size_t i = 0; i < ARRAY_LEN(zones); i++) {
        char text[64];
        u64 ns;
        snprintf(text, sizeof(text), "Sun, 06 Nov 1994 08:49:37 %s", zones[i]);
        assert_true(time_http_parse(bytes_from_string(text), &ns));
        assert_true(ns == 784111777ull * NS_PER_S);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *iso[] = {
        "",
        "2006-01-02",
        "2006-01-02T15:04:05",
        "2006-01-02T15:04:05.Z",
        "2006-01-02T15:04:05.1234567890Z",
        "2006-01-02T15:04:05.000Z ",
        " 2006-01-02T15:04:05.000Z",
        "2006-01-02t15:04:05.000Z",
        "2006-01-02T15:04:05.000+00:00",
        "2006-13-02T15:04:05Z",
        "2006-00-02T15:04:05Z",
        "2006-01-32T15:04:05Z",
        "2006-01-00T15:04:05Z",
        "2006-06-31T15:04:05Z",
        "2023-02-29T15:04:05Z",
        "2100-02-29T15:04:05Z",
        "2006-01-02T24:00:00Z",
        "2006-01-02T15:60:05Z",
        "2006-01-02T15:04:60Z",
        "1969-12-31T23:59:59Z",
        "2555-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "-006-01-02T15:04:05Z",
        "2006-1-02T15:04:05Z",
    };
    static const char *http[] = {
        "",
        "Mon",
        "Mon, 02 Jan 2006 15:04:05",
        "Mon, 02 Jan 2006 15:04:05 CET",
        "Mon, 02 Jan 2006 15:04:05 +0100",
        "Mon, 02 Jan 2006 15:04:05 -00000",
        "Monday, 02-Jan-06 15:04:05 UTC",
        "Mon, 02 Jan 2006 15:04:05 GMT ",
        "mon, 02 Jan 2006 15:04:05 GMT",
        "Mon, 02 jan 2006 15:04:05 GMT",
        "Mon, 2 Jan 2006 15:04:05 GMT",
        "Mon 02 Jan 2006 15:04:05 GMT",
        "Mun, 02 Jan 2006 15:04:05 GMT",
        "Mon, 30 Feb 2006 15:04:05 GMT",
        "Monday, 02-Jan-2006 15:04:05 GMT",
        "Mon, 02-Jan-06 15:04:05 GMT",
        "Mon Jan 2 15:04:05 2006",
        "Mon Jan  2 15:04:05 06",
    };
    static const char *amz[] = {
        "",
        "20060102T150405",
        "20060102T150405z",
        "20060102150405Z",
        "2006-01-02T15:04:05Z",
        "20060102T150405Z0",
        "20060132T150405Z",
        "20060102T250405Z",
    };
    u64 ns = 7;
    for (size_t i = 0; i < ARRAY_LEN(iso); i++) {
        assert_false(time_iso8601_parse(bytes_from_string(iso[i]), &ns));
    }
    for (size_t i = 0; i < ARRAY_LEN(http); i++) {
        assert_false(time_http_parse(bytes_from_string(http[i]), &ns));
    }
    for (size_t i = 0; i < ARRAY_LEN(amz); i++) {
        assert_false(time_amz_parse(bytes_from_string(amz[i]), &ns));
    }
    assert_true(ns == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_libc), cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_older_http),   cmocka_unit_test(test_mail_zones),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
