// SPDX-License-Identifier: Apache-2.0
// Unaligned little-endian (and, for sort keys, big-endian) loads and stores.
#pragma once

#include <string.h>

#include "base/types.h"

static inline u16 load_le16(const void *p)
{
    u16 v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline u32 load_le32(const void *p)
{
    u32 v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline u64 load_le64(const void *p)
{
    u64 v;
    memcpy(&v, p, sizeof(v));
    return v;
}
static inline void store_le16(void *p, u16 v)
{
    memcpy(p, &v, sizeof(v));
}
static inline void store_le32(void *p, u32 v)
{
    memcpy(p, &v, sizeof(v));
}
static inline void store_le64(void *p, u64 v)
{
    memcpy(p, &v, sizeof(v));
}
static inline u32 load_be32(const void *p)
{
    return __builtin_bswap32(load_le32(p));
}
static inline void store_be32(void *p, u32 v)
{
    store_le32(p, __builtin_bswap32(v));
}
static inline u64 load_be64(const void *p)
{
    return __builtin_bswap64(load_le64(p));
}
static inline void store_be64(void *p, u64 v)
{
    store_le64(p, __builtin_bswap64(v));
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Leat runs on little-endian machines");
