// SPDX-License-Identifier: Apache-2.0
#include "codec/hash.h"

// Compiled in here, so that short keys cost no call through a shared library.
#define XXH_INLINE_ALL
#include <xxhash.h>

u64 hash64(struct bytes data, u64 seed)
{
    return XXH3_64bits_withSeed(data.data, data.len, seed);
}
