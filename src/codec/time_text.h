// SPDX-License-Identifier: Apache-2.0
// Times as S3 and HTTP write them. All are UTC between 1970 and 2554 (a u64 of nanoseconds); no
// locale, no time zone table, no libc calendar. Formatting is on the hot path of every response.
// Each formatter writes its fixed length and a terminating zero. Parsers take the whole text,
// refuse blanks around it, impossible dates (31 June, 29 February 2023), hour 24, and years before
// 1970 or past the range; second 60 is refused too. They return false and leave *out alone.
#pragma once

#include "base/slice.h"
#include "base/types.h"

#define TIME_ISO8601_LEN 24 // 2006-01-02T15:04:05.000Z
#define TIME_HTTP_LEN    29 // Mon, 02 Jan 2006 15:04:05 GMT
#define TIME_AMZ_LEN     16 // 20060102T150405Z
#define TIME_AMZ_DAY_LEN 8  // 20060102

// Fractions of a millisecond (of a second, in the other formats) are cut off, not rounded.
void time_iso8601_format(u64 time_ns, char out[TIME_ISO8601_LEN + 1]);
void time_http_format(u64 time_ns, char out[TIME_HTTP_LEN + 1]);
void time_amz_format(u64 time_ns, char out[TIME_AMZ_LEN + 1]);
void time_amz_day_format(u64 time_ns, char out[TIME_AMZ_DAY_LEN + 1]);

// 2006-01-02T15:04:05Z with up to nine digits of fraction after a dot.
bool time_iso8601_parse(struct bytes text, u64 *time_ns);
// RFC 1123, and the two older forms that RFC 9110 asks recipients to accept: RFC 850 (a two-digit
// year: 70 to 99 are 19xx, 00 to 69 are 20xx) and asctime(). The weekday must be a weekday's name
// but need not be the right one. In the first form UTC may also be written as RFC 5322 does ("-0000",
// "+0000") or as "UTC": libraries that write mail's dates are used for HTTP's, botocore's signer too.
bool time_http_parse(struct bytes text, u64 *time_ns);
// 20060102T150405Z only.
bool time_amz_parse(struct bytes text, u64 *time_ns);
