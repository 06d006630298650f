// SPDX-License-Identifier: Apache-2.0
// The calendar is computed, not looked up: years are taken to begin in March, so that the leap day
// is a year's last, and 400 years (146,097 days) are one cycle.
#include "codec/time_text.h"

#include "base/assert.h"

#define SECONDS_PER_DAY    86400u
#define SECONDS_MAX        (UINT64_MAX / NS_PER_S - 1) // so that any fraction still fits
#define DAYS_PER_400_YEARS 146097u
#define DAYS_PER_100_YEARS 36524u
#define DAYS_PER_4_YEARS   1461u
#define DAYS_TO_1970       719468u // from 1 March of year 0

struct civil_time {
    u32 year;
    u32 month; // 1 to 12
    u32 day;   // 1 to 31
    u32 hour;
    u32 minute;
    u32 second;
    u32 weekday; // 0 is Sunday
};

static const char weekday_names[7][10] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                          "Thursday", "Friday", "Saturday"};
static const char month_names[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char two_digits[] = "00010203040506070809101112131415161718192021222324"
                                 "25262728293031323334353637383940414243444546474849"
                                 "50515253545556575859606162636465666768697071727374"
                                 "75767778798081828384858687888990919293949596979899";

static struct civil_time civil_from_seconds(u64 seconds)
{
    u32 days = (u32)(seconds / SECONDS_PER_DAY);
    u32 rest = (u32)(seconds % SECONDS_PER_DAY);
    u32 shifted = days + DAYS_TO_1970;
    u32 cycle = shifted / DAYS_PER_400_YEARS;
    u32 day_of_cycle = shifted % DAYS_PER_400_YEARS;
    // Take the leap days out; what remains is years of 365 days.
    u32 year_of_cycle =
        (day_of_cycle - day_of_cycle / (DAYS_PER_4_YEARS - 1) + day_of_cycle / DAYS_PER_100_YEARS -
         day_of_cycle / (DAYS_PER_400_YEARS - 1)) /
        365;
    u32 day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // March to July and August to December are 153 days each: a line through their starts.
    u32 month_from_march = (5 * day_of_year + 2) / 153;
    u32 month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    return (struct civil_time){
        .year = 400 * cycle + year_of_cycle + (month <= 2 ? 1 : 0),
        .month = month,
        .day = day_of_year - (153 * month_from_march + 2) / 5 + 1,
        .hour = rest / 3600,
        .minute = rest / 60 % 60,
        .second = rest % 60,
        .weekday = (days + 4) % 7, // 1 January 1970 was a Thursday
    };
}

// Checks every field and gives nanoseconds since 1970; false if there is no such time.
static bool civil_to_ns(const struct civil_time *c, u32 fraction_ns, u64 *time_ns)
{
    static const u8 month_days[13] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (c->year < 1970 || c->month < 1 || c->month > 12 || c->hour > 23 || c->minute > 59 ||
        c->second > 59) {
        return false;
    }
    bool is_leap = (c->year % 4 == 0 && c->year % 100 != 0) || c->year % 400 == 0;
    u32 days_in_month = c->month == 2 && is_leap ? 29 : month_days[c->month];
    if (c->day < 1 || c->day > days_in_month) {
        return false;
    }
    u32 year = c->month <= 2 ? c->year - 1 : c->year;
    u32 month_from_march = c->month > 2 ? c->month - 3 : c->month + 9;
    u32 year_of_cycle = year % 400;
    u32 day_of_cycle = 365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100 +
                       (153 * month_from_march + 2) / 5 + c->day - 1;
    u32 days = year / 400 * DAYS_PER_400_YEARS + day_of_cycle - DAYS_TO_1970;
    u64 seconds = (u64)days * SECONDS_PER_DAY + c->hour * 3600 + c->minute * 60 + c->second;
    if (seconds > SECONDS_MAX) {
        return false;
    }
    *time_ns = seconds * NS_PER_S + fraction_ns;
    return true;
}

static char *put2(char *to, u32 value)
{
    memcpy(to, &two_digits[2 * value], 2);
    return to + 2;
}

static char *put4(char *to, u32 value)
{
    return put2(put2(to, value / 100), value % 100);
}

static char *put_char(char *to, char c)
{
    *to = c;
    return to + 1;
}

// hh:mm:ss
static char *put_clock(char *to, const struct civil_time *c)
{
    to = put_char(put2(to, c->hour), ':');
    to = put_char(put2(to, c->minute), ':');
    return put2(to, c->second);
}

void time_iso8601_format(u64 time_ns, char out[TIME_ISO8601_LEN + 1])
{
    struct civil_time c = civil_from_seconds(time_ns / NS_PER_S);
    u32 ms = (u32)(time_ns % NS_PER_S / NS_PER_MS);
    char *to = put_char(put4(out, c.year), '-');
    to = put_char(put2(to, c.month), '-');
    to = put_char(put2(to, c.day), 'T');
    to = put_char(put_clock(to, &c), '.');
    to = put_char(to, (char)('0' + ms / 100));
    to = put_char(put2(to, ms % 100), 'Z');
    *to = 0;
    ASSERT(to == out + TIME_ISO8601_LEN);
}

void time_http_format(u64 time_ns, char out[TIME_HTTP_LEN + 1])
{
    struct civil_time c = civil_from_seconds(time_ns / NS_PER_S);
    memcpy(out, weekday_names[c.weekday], 3);
    memcpy(out + 3, ", ", 2);
    char *to = put_char(put2(out + 5, c.day), ' ');
    memcpy(to, month_names[c.month - 1], 3);
    to = put_char(put4(put_char(to + 3, ' '), c.year), ' ');
    to = put_clock(to, &c);
    memcpy(to, " GMT", 5);
    ASSERT(to + 4 == out + TIME_HTTP_LEN);
}

void time_amz_day_format(u64 time_ns, char out[TIME_AMZ_DAY_LEN + 1])
{
    struct civil_time c = civil_from_seconds(time_ns / NS_PER_S);
    *put2(put2(put4(out, c.year), c.month), c.day) = 0;
}

void time_amz_format(u64 time_ns, char out[TIME_AMZ_LEN + 1])
{
    struct civil_time c = civil_from_seconds(time_ns / NS_PER_S);
    char *to = put_char(put2(put2(put4(out, c.year), c.month), c.day), 'T');
    to = put2(put2(put2(to, c.hour), c.minute), c.second);
    memcpy(to, "Z", 2);
}

// What is left to parse. Every take_ function consumes what it names or returns false.

static bool take_digits(struct bytes *in, size_t digits, u32 *out)
{
    if (in->len < digits) {
        return false;
    }
    u32 value = 0;
    for (size_t i = 0; i < digits; i++) {
        u8 c = in->data[i];
        if (c < '0' || c > '9') {
            return false;
        }
        value = value * 10 + (u32)(c - '0');
    }
    *out = value;
    *in = bytes_skip(*in, digits);
    return true;
}

static bool take_text(struct bytes *in, const char *text)
{
    struct bytes t = bytes_from_string(text);
    if (!bytes_has_prefix(*in, t)) {
        return false;
    }
    *in = bytes_skip(*in, t.len);
    return true;
}

static bool take_month(struct bytes *in, u32 *month)
{
    for (u32 i = 0; i < 12; i++) {
        if (take_text(in, month_names[i])) {
            *month = i + 1;
            return true;
        }
    }
    return false;
}

// hh:mm:ss
static bool take_clock(struct bytes *in, struct civil_time *c)
{
    return take_digits(in, 2, &c->hour) && take_text(in, ":") && take_digits(in, 2, &c->minute) &&
           take_text(in, ":") && take_digits(in, 2, &c->second);
}

// A dot and one to nine digits; nothing at all is a fraction of zero.
static bool take_fraction(struct bytes *in, u32 *fraction_ns)
{
    u32 value = 0;
    *fraction_ns = 0;
    if (!take_text(in, ".")) {
        return true;
    }
    u32 scale = (u32)NS_PER_S;
    u32 digit;
    while (scale > 1 && take_digits(in, 1, &digit)) {
        scale /= 10;
        value += digit * scale;
    }
    *fraction_ns = value;
    return scale < NS_PER_S;
}

bool time_iso8601_parse(struct bytes text, u64 *time_ns)
{
    struct civil_time c;
    u32 fraction_ns;
    return take_digits(&text, 4, &c.year) && take_text(&text, "-") &&
           take_digits(&text, 2, &c.month) && take_text(&text, "-") &&
           take_digits(&text, 2, &c.day) && take_text(&text, "T") && take_clock(&text, &c) &&
           take_fraction(&text, &fraction_ns) && take_text(&text, "Z") && text.len == 0 &&
           civil_to_ns(&c, fraction_ns, time_ns);
}

bool time_amz_parse(struct bytes text, u64 *time_ns)
{
    struct civil_time c;
    return take_digits(&text, 4, &c.year) && take_digits(&text, 2, &c.month) &&
           take_digits(&text, 2, &c.day) && take_text(&text, "T") &&
           take_digits(&text, 2, &c.hour) && take_digits(&text, 2, &c.minute) &&
           take_digits(&text, 2, &c.second) && take_text(&text, "Z") && text.len == 0 &&
           civil_to_ns(&c, 0, time_ns);
}

// A blank and UTC as HTTP calls it, or as mail does.
static bool take_utc(struct bytes *in)
{
    return take_text(in, " GMT") || take_text(in, " UTC") || take_text(in, " +0000") ||
           take_text(in, " -0000");
}

// After "Sun": ", 06 Nov 1994 08:49:37 GMT"
static bool parse_rfc1123(struct bytes in, struct civil_time *c)
{
    return take_text(&in, ", ") && take_digits(&in, 2, &c->day) && take_text(&in, " ") &&
           take_month(&in, &c->month) && take_text(&in, " ") && take_digits(&in, 4, &c->year) &&
           take_text(&in, " ") && take_clock(&in, c) && take_utc(&in) && in.len == 0;
}

// After "Sunday": ", 06-Nov-94 08:49:37 GMT"
static bool parse_rfc850(struct bytes in, struct civil_time *c)
{
    bool ok = take_text(&in, ", ") && take_digits(&in, 2, &c->day) && take_text(&in, "-") &&
              take_month(&in, &c->month) && take_text(&in, "-") && take_digits(&in, 2, &c->year) &&
              take_text(&in, " ") && take_clock(&in, c) && take_text(&in, " GMT") && in.len == 0;
    if (ok) {
        c->year += c->year < 70 ? 2000 : 1900;
    }
    return ok;
}

// After "Sun": " Nov  6 08:49:37 1994", the day padded with a blank
static bool parse_asctime(struct bytes in, struct civil_time *c)
{
    if (!take_text(&in, " ") || !take_month(&in, &c->month) || !take_text(&in, " ")) {
        return false;
    }
    size_t day_digits = take_text(&in, " ") ? 1 : 2;
    return take_digits(&in, day_digits, &c->day) && take_text(&in, " ") && take_clock(&in, c) &&
           take_text(&in, " ") && take_digits(&in, 4, &c->year) && in.len == 0;
}

bool time_http_parse(struct bytes text, u64 *time_ns)
{
    struct civil_time c = {0};
    for (size_t i = 0; i < ARRAY_LEN(weekday_names); i++) {
        struct bytes name = bytes_from_string(weekday_names[i]);
        struct bytes abbreviation = BYTES(name.data, 3);
        if (bytes_has_prefix(text, name)) {
            return parse_rfc850(bytes_skip(text, name.len), &c) && civil_to_ns(&c, 0, time_ns);
        }
        if (bytes_has_prefix(text, abbreviation)) {
            struct bytes rest = bytes_skip(text, 3);
            return (parse_rfc1123(rest, &c) || parse_asctime(rest, &c)) &&
                   civil_to_ns(&c, 0, time_ns);
        }
    }
    return false;
}
