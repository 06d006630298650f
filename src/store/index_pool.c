// SPDX-License-Identifier: Apache-2.0
// Pages for the indexes of one core. They are cut from chunks of 512 KiB that lie on a multiple of
// their size, so that a page finds its chunk by masking its address. The first page of a chunk
// describes it. A chunk whose pages are all free goes back to the heap as soon as another one has
// free pages, so an index that shrinks gives its memory back.
#include <stdlib.h>

#include "base/list.h"
#include "store/index_node.h"

#define POOL_MAGIC  0x49584b50u
#define CHUNK_MAGIC 0x49584b43u
#define CHUNK_BYTES (512 * KIB)
#define CHUNK_PAGES (CHUNK_BYTES / INDEX_PAGE_BYTES - 1)
// A put makes at most one new leaf; new inner nodes are at most as many as new leaves, plus one
// chain of splits that was already due, plus a root. A put that splits wants a whole chain's worth
// to be there beforehand, hence twice.
#define PAGES_PER_PUT   2
#define PAGES_PER_BURST (2 * (INDEX_HEIGHT_MAX + 2))

struct chunk {
    u32 magic;
    u32 used;         // pages handed out
    u32 fresh;        // the first page that was never used: its memory was not touched yet
    struct list node; // in `with_free` when a page is free
    struct index_node *free;
};

struct index_pool {
    u32 magic;
    struct list with_free; // chunks
    size_t bytes_max;      // 0: none
    size_t used_pages;
    size_t free_pages; // in all chunks
    size_t reserved_pages;
    size_t chunks;
    struct index_scratch scratch;
};

struct index_pool *index_pool_create(size_t bytes_max)
{
    struct index_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return NULL;
    }
    pool->magic = POOL_MAGIC;
    pool->bytes_max = bytes_max;
    list_init(&pool->with_free);
    return pool;
}

static void chunk_free(struct index_pool *pool, struct chunk *c)
{
    ASSERT(c->used == 0);
    list_remove(&c->node);
    pool->free_pages -= CHUNK_PAGES;
    pool->chunks--;
    c->magic = 0;
    free(c);
}

void index_pool_destroy(struct index_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    ASSERT_MAGIC(pool, POOL_MAGIC);
    ASSERT(pool->used_pages == 0);
    LIST_FOREACH_SAFE (node, &pool->with_free) {
        chunk_free(pool, CONTAINER_OF(node, struct chunk, node));
    }
    ASSERT(pool->chunks == 0);
    pool->magic = 0;
    free(pool);
}

static bool chunk_add(struct index_pool *pool)
{
    struct chunk *c = aligned_alloc(CHUNK_BYTES, CHUNK_BYTES);
    if (c == NULL) {
        return false;
    }
    c->magic = CHUNK_MAGIC;
    c->used = 0;
    c->fresh = 0;
    c->free = NULL;
    list_add_tail(&pool->with_free, &c->node);
    pool->free_pages += CHUNK_PAGES;
    pool->chunks++;
    return true;
}

bool index_pool_ensure(struct index_pool *pool, u32 pages)
{
    ASSERT_MAGIC(pool, POOL_MAGIC);
    // What was reserved has passed the limit already.
    if (pages <= pool->reserved_pages && pages <= pool->free_pages) {
        return true;
    }
    if (pool->bytes_max != 0 && (pool->used_pages + pages) * INDEX_PAGE_BYTES > pool->bytes_max) {
        return false;
    }
    while (pool->free_pages < pages) {
        if (!chunk_add(pool)) {
            return false;
        }
    }
    return true;
}

enum err index_pool_reserve(struct index_pool *pool, u32 puts)
{
    u32 pages = puts * PAGES_PER_PUT + PAGES_PER_BURST;
    pool->reserved_pages = 0;
    if (!index_pool_ensure(pool, pages)) {
        return ERR_NO_MEMORY;
    }
    pool->reserved_pages = pages;
    return OK;
}

struct index_node *index_pool_get(struct index_pool *pool)
{
    ASSERT_MAGIC(pool, POOL_MAGIC);
    if (pool->free_pages == 0 && !index_pool_ensure(pool, 1)) {
        return NULL;
    }
    struct chunk *c = CONTAINER_OF(pool->with_free.next, struct chunk, node);
    ASSERT_MAGIC(c, CHUNK_MAGIC);
    struct index_node *n = c->free;
    if (n != NULL) {
        c->free = n->next;
    } else {
        n = (struct index_node *)(void *)((u8 *)c + (size_t)(1 + c->fresh) * INDEX_PAGE_BYTES);
        c->fresh++;
    }
    c->used++;
    if (c->used == CHUNK_PAGES) {
        list_remove(&c->node);
    }
    pool->free_pages--;
    pool->used_pages++;
    if (pool->reserved_pages > 0) {
        pool->reserved_pages--;
    }
    return n;
}

void index_pool_put(struct index_pool *pool, struct index_node *n)
{
    struct chunk *c = (struct chunk *)((uintptr_t)n & ~(uintptr_t)(CHUNK_BYTES - 1));
    ASSERT_MAGIC(c, CHUNK_MAGIC);
    ASSERT(c->used > 0);
    if (c->used == CHUNK_PAGES) {
        list_add_head(&pool->with_free, &c->node);
    }
    n->next = c->free;
    c->free = n;
    c->used--;
    pool->free_pages++;
    pool->used_pages--;
    if (c->used == 0 && pool->free_pages >= 2 * CHUNK_PAGES + pool->reserved_pages) {
        chunk_free(pool, c);
    }
}

struct index_scratch *index_pool_scratch(struct index_pool *pool)
{
    return &pool->scratch;
}

size_t index_pool_used_bytes(const struct index_pool *pool)
{
    return pool->used_pages * INDEX_PAGE_BYTES;
}

size_t index_pool_heap_bytes(const struct index_pool *pool)
{
    return pool->chunks * CHUNK_BYTES + sizeof(*pool);
}
