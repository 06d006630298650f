// SPDX-License-Identifier: Apache-2.0
// See walk.h. Runs on the owner core of its PGs.
#include "meta/walk.h"

#include <stdlib.h>

#include "base/assert.h"

static struct bytes cursor_key(const struct walk *w, u32 heap_index)
{
    const struct pg_cursor *c = &w->cursors[w->heap[heap_index]];
    return BYTES(c->key, c->key_len);
}

static void sift_down(struct walk *w, u32 i)
{
    u32 moving = w->heap[i];
    struct bytes key = cursor_key(w, i);
    for (;;) {
        u32 child = 2 * i + 1;
        if (child >= w->count) {
            break;
        }
        if (child + 1 < w->count &&
            bytes_compare(cursor_key(w, child + 1), cursor_key(w, child)) < 0) {
            child++;
        }
        if (bytes_compare(cursor_key(w, child), key) >= 0) {
            break;
        }
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = moving;
}

static void heapify(struct walk *w)
{
    for (u32 i = w->count / 2; i > 0; i--) {
        sift_down(w, i - 1);
    }
}

static bool in_range(const struct walk *w, const struct pg_cursor *c)
{
    return bytes_has_prefix(BYTES(c->key, c->key_len), w->range);
}

// The cursor on top moved: finds its new place, or drops it at its end.
static void top_moved(struct walk *w, bool has)
{
    if (!has || !in_range(w, &w->cursors[w->heap[0]])) {
        w->heap[0] = w->heap[--w->count];
    }
    if (w->count > 0) {
        sift_down(w, 0);
    }
    w->steps++;
}

void walk_next(struct walk *w)
{
    ASSERT(w->count > 0);
    top_moved(w, pg_cursor_next(&w->cursors[w->heap[0]]));
}

void walk_skip(struct walk *w, const struct meta_key *to)
{
    ASSERT(w->count > 0 && bytes_compare(walk_key(w), meta_key_bytes(to)) < 0);
    struct pg_cursor *c = &w->cursors[w->heap[0]];
    top_moved(w, pg_cursor_seek(c, c->store, c->pg, meta_key_bytes(to), false));
}

// Sets every live cursor up again on its own key, or on the next if that has gone meanwhile.
static void walk_resume(struct walk *w)
{
    u32 kept = 0;
    for (u32 i = 0; i < w->count; i++) {
        struct pg_cursor *c = &w->cursors[w->heap[i]];
        struct meta_key at = {.len = c->key_len};
        memcpy(at.data, c->key, c->key_len);
        if (pg_cursor_seek(c, c->store, c->pg, meta_key_bytes(&at), false) && in_range(w, c)) {
            w->heap[kept++] = w->heap[i];
        }
    }
    w->count = kept;
    heapify(w);
}

MAY_WAIT void walk_breathe(struct walk *w)
{
    if (w->steps < WALK_STEPS_MAX) {
        return;
    }
    w->steps = 0;
    fiber_yield();
    walk_resume(w);
}

static struct walk *walk_create(u32 capacity)
{
    struct walk *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return NULL;
    }
    w->capacity = capacity;
    w->heap = calloc(capacity, sizeof(*w->heap));
    w->cursors = calloc(capacity, sizeof(*w->cursors));
    if (w->heap == NULL || w->cursors == NULL) {
        free(w->heap);
        free(w->cursors);
        free(w);
        return NULL;
    }
    return w;
}

static void walk_destroy(struct walk *w)
{
    if (w != NULL) {
        free(w->heap);
        free(w->cursors);
        free(w);
    }
}

void walk_spare_free(struct meta_core *mc)
{
    walk_destroy(mc->walk_spare);
    mc->walk_spare = NULL;
}

MAY_WAIT enum err walk_open(struct meta_core *mc, struct bytes range, const struct meta_key *from,
                            bool is_after, struct walk **out)
{
    ASSERT(mc->core == core_id());
    struct walk *w = mc->walk_spare;
    mc->walk_spare = NULL;
    if (w == NULL) {
        w = walk_create(MAX(mc->pg_count, (u32)1));
    }
    if (w == NULL) {
        return ERR_NO_MEMORY;
    }
    w->mc = mc;
    w->range = range;
    w->steps = 0;
    w->count = 0;
    for (u32 i = 0; i < mc->pg_count; i++) {
        struct pg_cursor *c = &w->cursors[i];
        if (pg_cursor_seek(c, mc->meta->store, mc->pgs[i], meta_key_bytes(from), is_after) &&
            in_range(w, c)) {
            w->heap[w->count++] = i;
        }
        if (++w->steps >= WALK_STEPS_MAX) {
            walk_breathe(w); // thousands of PGs
        }
    }
    heapify(w);
    *out = w;
    return OK;
}

void walk_close(struct walk *w)
{
    struct meta_core *mc = w->mc;
    ASSERT(mc->core == core_id());
    if (mc->walk_spare == NULL) {
        mc->walk_spare = w;
    } else {
        walk_destroy(w);
    }
}
