// SPDX-License-Identifier: Apache-2.0
// Pure functions over text; no state.
#include "admin/values.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"

#define NAME_BYTES_MAX    48 // longer names are not compared
#define DURATION_DAYS_MAX ((u64)100 * 366)

struct unit {
    const char *name;
    u64 factor;
};

// Splits "64 MiB" into its number and its unit's factor. An empty unit is found in the table too.
static bool number_with_unit(const char *text, const struct unit *units, size_t unit_count, u64 max,
                             u64 *out)
{
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    unit += *unit == ' ' && unit[1] != 0 ? 1 : 0;
    u64 number = 0;
    if (!u64_parse(BYTES(text, digits), UINT64_MAX, &number)) {
        return false;
    }
    for (size_t i = 0; i < unit_count; i++) {
        if (strcmp(unit, units[i].name) == 0) {
            if (number > max / units[i].factor) {
                return false;
            }
            *out = number * units[i].factor;
            return true;
        }
    }
    return false;
}

bool size_parse(const char *text, u64 *out_bytes)
{
    static const struct unit units[] = {
        {"", 1},         {"B", 1},           {"KiB", KIB},          {"MiB", MIB},
        {"GiB", GIB},    {"TiB", TIB},       {"kB", 1000},          {"KB", 1000},
        {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000},
    };
    return number_with_unit(text, units, ARRAY_LEN(units), UINT64_MAX, out_bytes);
}

bool duration_parse(const char *text, u64 *out_ns)
{
    static const struct unit units[] = {
        {"ms", NS_PER_MS},      {"s", NS_PER_S},         {"m", 60 * NS_PER_S},
        {"h", 3600 * NS_PER_S}, {"d", 86400 * NS_PER_S},
    };
    return number_with_unit(text, units, ARRAY_LEN(units), DURATION_DAYS_MAX * 86400 * NS_PER_S,
                            out_ns);
}

bool address_is_valid(const char *text)
{
    const char *colon = strrchr(text, ':');
    u64 port;
    char host[INET6_ADDRSTRLEN];
    u8 address[sizeof(struct in6_addr)];
    if (colon == NULL || !u64_parse(bytes_from_string(colon + 1), UINT16_MAX, &port)) {
        return false;
    }
    bool is_v6 = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    const char *from = is_v6 ? text + 1 : text;
    size_t len = (size_t)(colon - from) - (is_v6 ? 1 : 0);
    if (len >= sizeof(host)) {
        return false;
    }
    memcpy(host, from, len);
    host[len] = 0;
    return inet_pton(is_v6 ? AF_INET6 : AF_INET, host, address) == 1;
}

// Edit distance with insertions, deletions, replacements and swaps of neighbours at cost 1.
static u32 edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    ASSERT(a_len <= NAME_BYTES_MAX && b_len <= NAME_BYTES_MAX);
    u32 rows[3][NAME_BYTES_MAX + 1];
    u32 *before = rows[0];
    u32 *last = rows[1];
    u32 *now = rows[2];
    for (u32 j = 0; j <= b_len; j++) {
        last[j] = j;
        before[j] = 0;
    }
    for (u32 i = 1; i <= a_len; i++) {
        now[0] = i;
        for (u32 j = 1; j <= b_len; j++) {
            u32 replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
            u32 moved = MIN(last[j], now[j - 1]) + 1;
            now[j] = MIN(moved, replaced);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = MIN(now[j], before[j - 2] + 1);
            }
        }
        u32 *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_len];
}

const char *name_suggest(const char *given, const char *const *names, size_t count)
{
    size_t len = strlen(given);
    const char *best = NULL;
    u32 best_distance = 0;
    for (size_t i = 0; i < count && len <= NAME_BYTES_MAX; i++) {
        size_t name_len = strlen(names[i]);
        if (name_len > NAME_BYTES_MAX) {
            continue;
        }
        u32 distance = edit_distance(given, len, names[i], name_len);
        // A third of the name may be wrong, but never all of a short one.
        bool is_close = distance <= MAX(name_len / 3, (size_t)1) && distance < name_len;
        if (is_close && (best == NULL || distance < best_distance)) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
