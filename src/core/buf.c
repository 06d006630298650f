// SPDX-License-Identifier: Apache-2.0
// The buffer memory of one core. It is cut into chunks of 1,028 pages, which hold one buffer of
// 4 MiB, or exactly four of 1 MiB + 4 KiB, or sixteen blocks of 256 KiB; 256 KiB blocks are cut
// into 64 or 16 KiB ones, and 64 KiB blocks into pages. A block that was cut (a slab) goes back to
// its parent when it is whole again, so memory moves between sizes and nothing is set aside for
// one.
//
// One whole slab a class is kept for the next caller; when memory runs out those are given up too.
#include "core/annotate.h"
#include "core/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BUF_MAGIC      0x42756621u
#define BUF_POOL_MAGIC 0x42756650u
#define PAGE_BYTES     (4 * KIB)
#define CHUNK_PAGES    1028u
#define CHUNK_BLOCKS   16u // of 256 KiB in a chunk
#define CHUNK_SMALLS   64u // of 64 KiB in a chunk
#define BUF_CLASSES    6u
#define PARENT_CHUNK   BUF_CLASSES
#define CLASS_64K      2u
#define CLASS_256K     3u

struct buf_class {
    u32 pages;
    u32 parent;     // class of the block that it is cut from, or PARENT_CHUNK
    u32 per_parent; // at most 16: slab.free_mask
};

static const struct buf_class buf_classes[BUF_CLASSES] = {
    {1, CLASS_64K, 16},     {4, CLASS_256K, 16},    {16, CLASS_256K, 4},
    {64, PARENT_CHUNK, 16}, {257, PARENT_CHUNK, 4}, {1024, PARENT_CHUNK, 1},
};

// A block that is cut into buffers or smaller blocks of one class.
struct slab {
    struct list node; // in partial[class] while anything is free in it
    u32 page;         // its first
    u16 free_mask;
};

struct buf_pool {
    u32 magic;
    u32 core;
    u8 *memory;
    size_t total_bytes;
    size_t used_bytes;
    bool is_registered;
    u32 chunks;
    u32 chunks_free;
    u32 *free_chunks; // a stack of chunk numbers
    struct list partial[BUF_CLASSES];
    struct slab *chunk_slabs; // one a chunk
    struct slab *block_slabs; // one a 256 KiB block
    struct slab *small_slabs; // one a 64 KiB block
    struct buf *bufs;         // one a page: the header of the buffer that begins there
    struct wait_queue waiters;
    u32 waiting;
};

static u16 full_mask(u32 class)
{
    return (u16)((1u << buf_classes[class].per_parent) - 1);
}

// The slab that a block of this class at this page was cut from.
static struct slab *slab_of(struct buf_pool *p, u32 class, u32 page)
{
    u32 chunk = page / CHUNK_PAGES;
    u32 within = page % CHUNK_PAGES;
    ASSERT(chunk < p->chunks);
    switch (buf_classes[class].parent) {
    case PARENT_CHUNK:
        return &p->chunk_slabs[chunk];
    case CLASS_256K:
        return &p->block_slabs[chunk * CHUNK_BLOCKS + within / 64];
    default:
        return &p->small_slabs[chunk * CHUNK_SMALLS + within / 16];
    }
}

static bool block_get(struct buf_pool *p, u32 class, u32 *out_page);

// Takes a block from the parent and cuts it for `class`.
static struct slab *slab_make(struct buf_pool *p, u32 class)
{
    u32 page;
    if (buf_classes[class].parent == PARENT_CHUNK) {
        if (p->chunks_free == 0) {
            return NULL;
        }
        page = p->free_chunks[--p->chunks_free] * CHUNK_PAGES;
    } else if (!block_get(p, buf_classes[class].parent, &page)) {
        return NULL;
    }
    struct slab *s = slab_of(p, class, page);
    s->page = page;
    s->free_mask = full_mask(class);
    list_add_head(&p->partial[class], &s->node);
    return s;
}

// At most three levels deep: pages from 64 KiB from 256 KiB from a chunk.
static bool block_get(struct buf_pool *p, u32 class, u32 *out_page)
{
    struct slab *s = list_is_empty(&p->partial[class])
                         ? slab_make(p, class)
                         : CONTAINER_OF(p->partial[class].next, struct slab, node);
    if (s == NULL) {
        return false;
    }
    ASSERT(s->free_mask != 0);
    u32 i = (u32)__builtin_ctz(s->free_mask);
    s->free_mask = (u16)(s->free_mask & ~(1u << i));
    if (s->free_mask == 0) {
        list_remove(&s->node);
    }
    *out_page = s->page + i * buf_classes[class].pages;
    return true;
}

static void block_put(struct buf_pool *p, u32 class, u32 page);

// Gives a whole slab back to its parent.
static void slab_release(struct buf_pool *p, u32 class, struct slab *s)
{
    ASSERT(s->free_mask == full_mask(class));
    list_remove(&s->node);
    if (buf_classes[class].parent == PARENT_CHUNK) {
        p->free_chunks[p->chunks_free++] = s->page / CHUNK_PAGES;
        ASSERT(p->chunks_free <= p->chunks);
    } else {
        block_put(p, buf_classes[class].parent, s->page);
    }
}

static void block_put(struct buf_pool *p, u32 class, u32 page)
{
    struct slab *s = slab_of(p, class, page);
    u32 i = (page - s->page) / buf_classes[class].pages;
    ASSERT(page == s->page + i * buf_classes[class].pages && i < buf_classes[class].per_parent);
    ASSERT((s->free_mask & (1u << i)) == 0);
    if (s->free_mask == 0) {
        list_add_head(&p->partial[class], &s->node);
    }
    s->free_mask = (u16)(s->free_mask | (1u << i));
    struct list *head = &p->partial[class];
    bool is_only = head->next == head->prev;
    if (s->free_mask == full_mask(class) && !is_only) {
        slab_release(p, class, s);
    }
}

// Gives up the whole slabs that are kept, small classes first so that their parents become whole.
static void pool_trim(struct buf_pool *p)
{
    for (u32 class = 0; class < BUF_CLASSES; class ++) {
        LIST_FOREACH_SAFE (node, &p->partial[class]) {
            struct slab *s = CONTAINER_OF(node, struct slab, node);
            if (s->free_mask == full_mask(class)) {
                slab_release(p, class, s);
            }
        }
    }
}

static struct buf *pool_get(struct buf_pool *p, size_t bytes)
{
    u32 class = 0;
    while (class < BUF_CLASSES && bytes > buf_classes[class].pages * PAGE_BYTES) {
        class ++;
    }
    u32 page;
    if (class == BUF_CLASSES) {
        return NULL;
    }
    if (!block_get(p, class, &page)) {
        pool_trim(p);
        if (!block_get(p, class, &page)) {
            return NULL;
        }
    }
    struct buf *b = &p->bufs[page];
    ASSERT(b->magic == 0 && b->foreign_puts == 0);
    b->magic = BUF_MAGIC;
    b->refs = 1;
    b->capacity_bytes = (u32)(buf_classes[class].pages * PAGE_BYTES);
    b->core = (u16)p->core;
    b->size_class = (u8) class;
    b->is_pinned = false;
    b->data = p->memory + page * PAGE_BYTES;
    annotate_unpoison(b->data, b->capacity_bytes);
    p->used_bytes += b->capacity_bytes;
    metric_add(METRIC_CORE_BUF_USED_BYTES, b->capacity_bytes);
    return b;
}

// Serves waiters in order for as long as there is memory for the first.
static void pool_serve(struct buf_pool *p)
{
    while (!list_is_empty(&p->waiters.waiters)) {
        struct fiber *f = CONTAINER_OF(p->waiters.waiters.next, struct fiber, node);
        struct buf *b = pool_get(p, f->amount);
        if (b == NULL) {
            return;
        }
        f->granted = b;
        p->waiting--;
        fiber_ready(f, OK);
    }
}

static void pool_put(struct buf_pool *p, struct buf *b, u32 refs)
{
    ASSERT(b->refs >= refs);
    b->refs -= refs;
    if (b->refs > 0) {
        return;
    }
    ASSERT(!b->is_pinned);
    b->magic = 0;
    annotate_poison(b->data, b->capacity_bytes);
    p->used_bytes -= b->capacity_bytes;
    metric_add(METRIC_CORE_BUF_USED_BYTES, -(i64)b->capacity_bytes);
    block_put(p, b->size_class, (u32)((size_t)(b->data - p->memory) / PAGE_BYTES));
    if (UNLIKELY(p->waiting > 0)) {
        pool_serve(p);
    }
}

struct buf *buf_get(size_t bytes)
{
    return pool_get(reactor_here()->bufs, bytes);
}

MAY_WAIT enum err buf_get_wait(size_t bytes, struct buf **out)
{
    struct buf_pool *p = reactor_here()->bufs;
    struct fiber *f = fiber_current();
    ASSERT(f != NULL && bytes <= BUF_BYTES_MAX);
    if (p->waiting == 0) {
        *out = pool_get(p, bytes);
        if (*out != NULL) {
            return OK;
        }
    }
    if (p->waiting == BUF_WAITERS_MAX) {
        return ERR_LIMIT_REACHED;
    }
    f->amount = bytes;
    p->waiting++;
    enum err e = wait_queue_wait(&p->waiters);
    if (e != OK) {
        p->waiting--;
        pool_serve(p); // those behind may have waited only for this one's large buffer
        return e;
    }
    *out = f->granted;
    return OK;
}

void buf_ref(struct buf *b)
{
    ASSERT_MAGIC(b, BUF_MAGIC);
    ASSERT(b->core == core_id() && b->refs > 0 && b->refs < UINT32_MAX);
    b->refs++;
}

// On the owner core: takes off what other cores dropped since the message was sent.
static void foreign_puts_arrived(struct message *m)
{
    struct buf *b = CONTAINER_OF(m, struct buf, home);
    u32 refs = __atomic_exchange_n(&b->foreign_puts, 0, __ATOMIC_ACQ_REL);
    ASSERT(refs > 0);
    pool_put(reactor_here()->bufs, b, refs);
}

void buf_put(struct buf *b)
{
    if (b == NULL) {
        return;
    }
    struct reactor *r = reactor_here();
    ASSERT_MAGIC(b, BUF_MAGIC);
    if (LIKELY(b->core == r->core)) {
        pool_put(r->bufs, b, 1);
        return;
    }
    // Whoever drops the first reference sends the message; the others' ride along.
    if (__atomic_fetch_add(&b->foreign_puts, 1, __ATOMIC_ACQ_REL) == 0) {
        b->home.fn = foreign_puts_arrived;
        core_post(b->core, &b->home);
    }
}

void buf_usage(size_t *total_bytes, size_t *used_bytes)
{
    struct buf_pool *p = reactor_here()->bufs;
    *total_bytes = p->total_bytes;
    *used_bytes = p->used_bytes;
}

bool buf_pool_holds(const struct buf_pool *p, const void *ptr, size_t len)
{
    uintptr_t at = (uintptr_t)ptr - (uintptr_t)p->memory;
    return p->is_registered && at < p->total_bytes && len <= p->total_bytes - at;
}

static enum err pool_arrays_create(struct buf_pool *p)
{
    size_t chunks = p->chunks;
    p->free_chunks = calloc(chunks, sizeof(*p->free_chunks));
    p->chunk_slabs = calloc(chunks, sizeof(*p->chunk_slabs));
    p->block_slabs = calloc(chunks * CHUNK_BLOCKS, sizeof(*p->block_slabs));
    p->small_slabs = calloc(chunks * CHUNK_SMALLS, sizeof(*p->small_slabs));
    p->bufs = calloc(chunks * CHUNK_PAGES, sizeof(*p->bufs));
    bool is_complete = p->free_chunks != NULL && p->chunk_slabs != NULL && p->block_slabs != NULL &&
                       p->small_slabs != NULL && p->bufs != NULL;
    return is_complete ? OK : ERR_NO_MEMORY;
}

enum err buf_pool_create(struct reactor *r, size_t bytes, struct buf_pool **out)
{
    size_t chunk_bytes = CHUNK_PAGES * PAGE_BYTES;
    if (bytes > (size_t)UINT32_MAX / 2 * PAGE_BYTES) {
        return ERR_INVALID;
    }
    struct buf_pool *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    p->magic = BUF_POOL_MAGIC;
    p->core = r->core;
    p->chunks = (u32)((bytes + chunk_bytes - 1) / chunk_bytes);
    p->total_bytes = p->chunks * chunk_bytes;
    wait_queue_init(&p->waiters);
    for (u32 i = 0; i < BUF_CLASSES; i++) {
        list_init(&p->partial[i]);
    }
    p->memory = mmap(NULL, p->total_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    enum err e = p->memory == MAP_FAILED ? ERR_NO_MEMORY : pool_arrays_create(p);
    if (e != OK) {
        p->memory = p->memory == MAP_FAILED ? NULL : p->memory;
        buf_pool_destroy(p);
        return e;
    }
    // The first chunk of the memory is the first to be used.
    for (u32 i = 0; i < p->chunks; i++) {
        p->free_chunks[p->chunks_free++] = p->chunks - 1 - i;
    }
    if (r->rt->options.is_registered) {
        p->is_registered = r->io->ops->register_memory(r->io, p->memory, p->total_bytes);
    }
    annotate_poison(p->memory, p->total_bytes);
    *out = p;
    return OK;
}

// After the I/O engine, which may hold the memory. Also takes down a pool that is only half made.
void buf_pool_destroy(struct buf_pool *p)
{
    ASSERT_MAGIC(p, BUF_POOL_MAGIC);
    ASSERT(p->used_bytes == 0 && p->waiting == 0);
    if (p->memory != NULL) {
        annotate_unpoison(p->memory, p->total_bytes);
        munmap(p->memory, p->total_bytes);
    }
    free(p->free_chunks);
    free(p->chunk_slabs);
    free(p->block_slabs);
    free(p->small_slabs);
    free(p->bufs);
    p->magic = 0;
    free(p);
}
