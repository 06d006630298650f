// SPDX-License-Identifier: Apache-2.0
// Small conversions between bytes and text that several folders need.
#pragma once

#include "base/err.h"
#include "base/slice.h"

// Writes 2 * len lower-case hex digits and a terminating zero.
void hex_encode(struct bytes in, char *out);
// Decodes exactly 2 * out_len hex digits of either case; false on any other length or character.
bool hex_decode(struct bytes text, u8 *out, size_t out_len);

#define BASE64_LEN(n) (((n) + 2) / 3 * 4)
// Writes BASE64_LEN(in.len) characters and a terminating zero.
void base64_encode(struct bytes in, char *out);
// Strict RFC 4648 with padding, no blanks. Sets *out_len; false if malformed or larger than cap.
bool base64_decode(struct bytes text, u8 *out, size_t cap, size_t *out_len);

// Whole-text decimal without sign or blanks; false on anything else or above `max`.
bool u64_parse(struct bytes text, u64 max, u64 *out);

// Takes the piece before the next separator (or all that is left) off the front of *rest. Blanks
// stay.
struct bytes bytes_split(struct bytes *rest, u8 separator);

// Makes ASCII letters lower-case in place.
void bytes_lower(u8 *data, size_t len);

// ASCII-only comparison without regard to case, as HTTP header names need.
bool bytes_equal_nocase(struct bytes a, struct bytes b);

// The length of the UTF-8 sequence of two to four bytes at p and its code point; 0 if it is not
// valid (overlong, a surrogate, cut short, past the last code point).
size_t utf8_decode(const u8 *p, size_t left, u32 *code);
