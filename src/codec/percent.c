// SPDX-License-Identifier: Apache-2.0
#include "codec/percent.h"

// The value of one hex digit, or -1.
static int hex_value(u8 c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    u8 lower = c | 0x20;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

enum err percent_decode(struct bytes in, enum percent_plus plus, u8 *out, size_t cap,
                        size_t *out_len)
{
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++) {
        u8 c = in.data[i];
        if (c == '%') {
            int high = in.len - i > 2 ? hex_value(in.data[i + 1]) : -1;
            int low = high >= 0 ? hex_value(in.data[i + 2]) : -1;
            if (low < 0) {
                return ERR_S3_INVALID_URI;
            }
            c = (u8)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus == PERCENT_PLUS_IS_SPACE) {
            c = ' ';
        }
        if (n == cap) {
            return ERR_LIMIT_REACHED;
        }
        out[n++] = c;
    }
    *out_len = n;
    return OK;
}

// 1 for the unreserved characters of RFC 3986, 2 for the slash.
#define U 1
#define S 2
static const u8 keeps[256] = {
    ['-'] = U, ['.'] = U, ['_'] = U, ['~'] = U, ['/'] = S, ['0'] = U, ['1'] = U, ['2'] = U,
    ['3'] = U, ['4'] = U, ['5'] = U, ['6'] = U, ['7'] = U, ['8'] = U, ['9'] = U, ['A'] = U,
    ['B'] = U, ['C'] = U, ['D'] = U, ['E'] = U, ['F'] = U, ['G'] = U, ['H'] = U, ['I'] = U,
    ['J'] = U, ['K'] = U, ['L'] = U, ['M'] = U, ['N'] = U, ['O'] = U, ['P'] = U, ['Q'] = U,
    ['R'] = U, ['S'] = U, ['T'] = U, ['U'] = U, ['V'] = U, ['W'] = U, ['X'] = U, ['Y'] = U,
    ['Z'] = U, ['a'] = U, ['b'] = U, ['c'] = U, ['d'] = U, ['e'] = U, ['f'] = U, ['g'] = U,
    ['h'] = U, ['i'] = U, ['j'] = U, ['k'] = U, ['l'] = U, ['m'] = U, ['n'] = U, ['o'] = U,
    ['p'] = U, ['q'] = U, ['r'] = U, ['s'] = U, ['t'] = U, ['u'] = U, ['v'] = U, ['w'] = U,
    ['x'] = U, ['y'] = U, ['z'] = U,
};

// The bits of `keeps` that count.
static u8 kept_mask(enum percent_slash slash)
{
    return slash == PERCENT_SLASH_KEEP ? U | S : U;
}

size_t percent_encoded_len(struct bytes in, enum percent_slash slash)
{
    u8 mask = kept_mask(slash);
    size_t n = in.len;
    for (size_t i = 0; i < in.len; i++) {
        n += (keeps[in.data[i]] & mask) != 0 ? 0 : 2;
    }
    return n;
}

enum err percent_encode(struct bytes in, enum percent_slash slash, char *out, size_t cap,
                        size_t *out_len)
{
    static const char digits[] = "0123456789ABCDEF";
    u8 mask = kept_mask(slash);
    size_t n = 0;
    for (size_t i = 0; i < in.len; i++) {
        u8 c = in.data[i];
        if ((keeps[c] & mask) != 0) {
            if (n == cap) {
                return ERR_LIMIT_REACHED;
            }
            out[n++] = (char)c;
        } else {
            if (cap - n < 3) {
                return ERR_LIMIT_REACHED;
            }
            out[n++] = '%';
            out[n++] = digits[c >> 4];
            out[n++] = digits[c & 15];
        }
    }
    *out_len = n;
    return OK;
}
