// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ARENA_BLOCK_BYTES (8 * KIB)
#define ARENA_ALIGN       16

struct arena_block {
    struct arena_block *older;
    size_t bytes; // of the whole block
    _Alignas(ARENA_ALIGN) u8 data[];
};

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes};
}

void arena_deinit(struct arena *a)
{
    while (a->blocks != NULL) {
        struct arena_block *b = a->blocks;
        a->blocks = b->older;
        free(b);
    }
    *a = (struct arena){.limit_bytes = a->limit_bytes};
}

void arena_reset(struct arena *a)
{
    while (a->blocks != NULL && a->blocks != a->first) {
        struct arena_block *b = a->blocks;
        a->blocks = b->older;
        a->used_bytes -= b->bytes;
        free(b);
    }
    if (a->first != NULL) {
        a->next = a->first->data;
        a->end = (u8 *)a->first + a->first->bytes;
    }
}

// Adds a block that holds at least `bytes`; false when a limit forbids it.
static bool arena_grow(struct arena *a, size_t bytes)
{
    size_t block_bytes = MAX(sizeof(struct arena_block) + bytes, ARENA_BLOCK_BYTES);
    if (a->used_bytes + block_bytes > a->limit_bytes) {
        return false;
    }
    struct arena_block *b = malloc(block_bytes);
    if (b == NULL) {
        return false;
    }
    b->older = a->blocks;
    b->bytes = block_bytes;
    a->blocks = b;
    a->used_bytes += block_bytes;
    a->next = b->data;
    a->end = (u8 *)b + block_bytes;
    if (a->first == NULL && block_bytes == ARENA_BLOCK_BYTES) {
        a->first = b->older == NULL ? b : NULL;
    }
    return true;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > a->limit_bytes) {
        return NULL;
    }
    size_t need = ALIGN_UP(bytes == 0 ? 1 : bytes, ARENA_ALIGN);
    if ((size_t)(a->end - a->next) < need && !arena_grow(a, need)) {
        return NULL;
    }
    void *p = a->next;
    a->next += need;
    return p;
}

void *arena_alloc_zero(struct arena *a, size_t bytes)
{
    void *p = arena_alloc(a, bytes);
    if (p != NULL) {
        memset(p, 0, bytes);
    }
    return p;
}

struct bytes arena_copy(struct arena *a, struct bytes from)
{
    u8 *p = arena_alloc(a, from.len + 1);
    if (p == NULL) {
        return BYTES_NONE;
    }
    if (from.len > 0) {
        memcpy(p, from.data, from.len);
    }
    p[from.len] = 0;
    return BYTES(p, from.len);
}
