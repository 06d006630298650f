// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include "base/assert.h"

static const char hex_digits[] = "0123456789abcdef";

void hex_encode(struct bytes in, char *out)
{
    for (size_t i = 0; i < in.len; i++) {
        out[2 * i] = hex_digits[in.data[i] >> 4];
        out[2 * i + 1] = hex_digits[in.data[i] & 15];
    }
    out[2 * in.len] = 0;
}

// The value of one hex digit, or -1.
static int hex_value(u8 c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

bool hex_decode(struct bytes text, u8 *out, size_t out_len)
{
    if (text.len != 2 * out_len) {
        return false;
    }
    for (size_t i = 0; i < out_len; i++) {
        int high = hex_value(text.data[2 * i]);
        int low = hex_value(text.data[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (u8)(high << 4 | low);
    }
    return true;
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct bytes in, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; i += 3) {
        size_t left = in.len - i;
        u32 v = (u32)in.data[i] << 16 | (left > 1 ? (u32)in.data[i + 1] << 8 : 0) |
                (left > 2 ? (u32)in.data[i + 2] : 0);
        out[n++] = base64_digits[v >> 18];
        out[n++] = base64_digits[v >> 12 & 63];
        out[n++] = left > 1 ? base64_digits[v >> 6 & 63] : '=';
        out[n++] = left > 2 ? base64_digits[v & 63] : '=';
    }
    out[n] = 0;
}

static int base64_value(u8 c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct bytes text, u8 *out, size_t cap, size_t *out_len)
{
    if (text.len % 4 != 0) {
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i < text.len; i += 4) {
        size_t pad = 0;
        u32 v = 0;
        for (size_t j = 0; j < 4; j++) {
            u8 c = text.data[i + j];
            int digit = base64_value(c);
            if (c == '=' && i + 4 == text.len && j >= 2) {
                pad++;
                digit = 0;
            } else if (digit < 0 || pad > 0) {
                return false;
            }
            v = v << 6 | (u32)digit;
        }
        if (n + 3 - pad > cap) {
            return false;
        }
        out[n++] = (u8)(v >> 16);
        if (pad < 2) {
            out[n++] = (u8)(v >> 8);
        }
        if (pad < 1) {
            out[n++] = (u8)v;
        }
    }
    *out_len = n;
    return true;
}

bool u64_parse(struct bytes text, u64 max, u64 *out)
{
    if (text.len == 0) {
        return false;
    }
    u64 v = 0;
    for (size_t i = 0; i < text.len; i++) {
        u8 c = text.data[i];
        if (c < '0' || c > '9' || v > (UINT64_MAX - (u64)(c - '0')) / 10) {
            return false;
        }
        v = v * 10 + (u64)(c - '0');
    }
    if (v > max) {
        return false;
    }
    *out = v;
    return true;
}

static u8 lower(u8 c)
{
    return c >= 'A' && c <= 'Z' ? (u8)(c | 0x20) : c;
}

void bytes_lower(u8 *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = lower(data[i]);
    }
}

struct bytes bytes_split(struct bytes *rest, u8 separator)
{
    const u8 *end = rest->len == 0 ? NULL : memchr(rest->data, separator, rest->len);
    struct bytes piece = BYTES(rest->data, end == NULL ? rest->len : (size_t)(end - rest->data));
    *rest = end == NULL ? BYTES_NONE : bytes_skip(*rest, piece.len + 1);
    return piece;
}

bool bytes_equal_nocase(struct bytes a, struct bytes b)
{
    if (a.len != b.len) {
        return false;
    }
    for (size_t i = 0; i < a.len; i++) {
        if (lower(a.data[i]) != lower(b.data[i])) {
            return false;
        }
    }
    return true;
}

size_t utf8_decode(const u8 *p, size_t left, u32 *code)
{
    static const u32 smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    u8 c = p[0];
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || n > left) {
        return 0;
    }
    u32 v = c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v < smallest[n] || (v >= 0xd800 && v <= 0xdfff) || v > 0x10ffff) {
        return 0;
    }
    *code = v;
    return n;
}
