// SPDX-License-Identifier: Apache-2.0
// ETags as text and the rules for bucket names. Pure functions.
#include "meta/meta.h"

#include "base/assert.h"
#include "base/text.h"

#define MD5_HEX_CHARS 32

void etag_text(const struct etag *e, char out[ETAG_TEXT_MAX])
{
    ASSERT(e->parts <= META_PART_NUMBER_MAX);
    hex_encode(BYTES(e->md5, sizeof(e->md5)), out);
    char *to = out + MD5_HEX_CHARS;
    for (u32 unit = 10000; e->parts > 0 && unit > 0; unit /= 10) {
        if (unit == 10000) {
            *to++ = '-';
        }
        if (e->parts >= unit) {
            *to++ = (char)('0' + e->parts / unit % 10);
        }
    }
    *to = 0;
}

bool etag_parse(struct bytes text, struct etag *out)
{
    struct etag e = {0};
    u64 parts = 0;
    if (text.len >= 2 && text.data[0] == '"' && text.data[text.len - 1] == '"') {
        text = BYTES(text.data + 1, text.len - 2);
    }
    if (text.len < MD5_HEX_CHARS || !hex_decode(BYTES(text.data, MD5_HEX_CHARS), e.md5, 16)) {
        return false;
    }
    struct bytes tail = bytes_skip(text, MD5_HEX_CHARS);
    if (tail.len > 0 &&
        (tail.data[0] != '-' || !u64_parse(bytes_skip(tail, 1), META_PART_NUMBER_MAX, &parts) ||
         parts == 0)) {
        return false;
    }
    e.parts = (u32)parts;
    *out = e;
    return true;
}

bool etag_equal(const struct etag *a, const struct etag *b)
{
    return a->parts == b->parts && memcmp(a->md5, b->md5, sizeof(a->md5)) == 0;
}

static bool is_letter_or_digit(u8 c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool bytes_has_suffix(struct bytes b, struct bytes suffix)
{
    return b.len >= suffix.len && memcmp(b.data + b.len - suffix.len, suffix.data, suffix.len) == 0;
}

// Four groups of one to three digits: a client would take the virtual host for an address.
static bool looks_like_ipv4(struct bytes name)
{
    u32 dots = 0;
    u32 digits = 0;
    for (size_t i = 0; i < name.len; i++) {
        if (name.data[i] == '.') {
            dots++;
            if (digits == 0) {
                return false;
            }
            digits = 0;
        } else if (name.data[i] < '0' || name.data[i] > '9' || ++digits > 3) {
            return false;
        }
    }
    return dots == 3 && digits > 0;
}

// Prefixes and suffixes that AWS keeps for access points, directory buckets and the like.
static bool is_reserved(struct bytes name)
{
    return bytes_has_prefix(name, BYTES_LITERAL("xn--")) ||
           bytes_has_prefix(name, BYTES_LITERAL("sthree-")) ||
           bytes_has_prefix(name, BYTES_LITERAL("amzn-s3-demo-")) ||
           bytes_has_suffix(name, BYTES_LITERAL("-s3alias")) ||
           bytes_has_suffix(name, BYTES_LITERAL("--ol-s3")) ||
           bytes_has_suffix(name, BYTES_LITERAL(".mrap")) ||
           bytes_has_suffix(name, BYTES_LITERAL("--x-s3")) ||
           bytes_has_suffix(name, BYTES_LITERAL("--table-s3"));
}

bool bucket_name_is_valid(struct bytes name)
{
    if (name.len < META_BUCKET_NAME_MIN || name.len > META_BUCKET_NAME_MAX ||
        !is_letter_or_digit(name.data[0]) || !is_letter_or_digit(name.data[name.len - 1])) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        u8 c = name.data[i];
        if (!is_letter_or_digit(c) && c != '-' && c != '.') {
            return false;
        }
        // Labels between dots begin and end with a letter or digit, as in host names.
        if (c == '.' &&
            (!is_letter_or_digit(name.data[i - 1]) || !is_letter_or_digit(name.data[i + 1]))) {
            return false;
        }
    }
    return !looks_like_ipv4(name) && !is_reserved(name);
}
