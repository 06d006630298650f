// SPDX-License-Identifier: Apache-2.0
// `struct bytes` is a view of bytes that somebody else owns. It is passed by value and never freed;
// it need not end with a zero. NULL data is allowed only with length 0.
#pragma once

#include <string.h>

#include "base/types.h"

struct bytes {
    const u8 *data;
    size_t len;
};

#define BYTES(ptr, length)  ((struct bytes){.data = (const u8 *)(ptr), .len = (length)})
#define BYTES_LITERAL(text) BYTES("" text, sizeof(text) - 1)
#define BYTES_NONE          ((struct bytes){0})
// For printf("%.*s", BYTES_PRINTF(b)).
#define BYTES_PRINTF(b) (int)(b).len, (const char *)(b).data

static inline struct bytes bytes_from_string(const char *text)
{
    return BYTES(text, strlen(text));
}

static inline bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

// Byte order, a shorter prefix first: the order of S3 listings.
static inline int bytes_compare(struct bytes a, struct bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n == 0 ? 0 : memcmp(a.data, b.data, n);
    return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

static inline bool bytes_has_prefix(struct bytes b, struct bytes prefix)
{
    return b.len >= prefix.len && (prefix.len == 0 || memcmp(b.data, prefix.data, prefix.len) == 0);
}

static inline struct bytes bytes_skip(struct bytes b, size_t n)
{
    return n >= b.len ? BYTES_NONE : BYTES(b.data + n, b.len - n);
}
