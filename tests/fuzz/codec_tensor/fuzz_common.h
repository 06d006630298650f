// SPDX-License-Identifier: Apache-2.0
// What the tensor codec's fuzz targets share. Targets keep a few buffers for the process's life, as
// a fuzzer calls them millions of times.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/types.h"
#include "leat/codec.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

// Memory that ends exactly where it should: a read past it meets the sanitizer's red zone.
static inline u8 *fuzz_alloc(size_t n)
{
    u8 *p = NULL;
    ASSERT(posix_memalign((void **)&p, 64, n == 0 ? 1 : n) == 0);
    return p;
}

static inline bool fuzz_has(u32 cpu)
{
    return leat_codec_cpu_name(cpu) != NULL;
}
