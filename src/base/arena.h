// SPDX-License-Identifier: Apache-2.0
// A bump allocator for one request: memory is taken in blocks from the heap, and everything goes at
// once. A limit bounds it: past that, allocation fails with NULL and the request answers SlowDown.
// Not thread-safe; owned by the fiber that serves the request.
#pragma once

#include "base/slice.h"
#include "base/types.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; // newest first
    size_t used_bytes;          // taken from the heap so far
    size_t limit_bytes;
    u8 *next;
    u8 *end;
    struct arena_block *first; // kept by arena_reset
};

void arena_init(struct arena *a, size_t limit_bytes);
// Frees all memory.
void arena_deinit(struct arena *a);
// Forgets everything but keeps the first block for the next request.
void arena_reset(struct arena *a);
// 16-byte aligned, not zeroed; NULL when the limit or the heap is exhausted.
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_alloc_zero(struct arena *a, size_t bytes);
// Copies with a terminating zero; data == NULL on failure.
struct bytes arena_copy(struct arena *a, struct bytes from);
