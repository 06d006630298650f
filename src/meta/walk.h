// SPDX-License-Identifier: Apache-2.0
// One ordered walk over the keys of all PGs of a core: a heap of cursors. A cursor dies whenever
// its fiber waits, so a walk that gives the loop its turn stands up again by seeking.
#pragma once

#include "meta/meta_internal.h"

#define WALK_STEPS_MAX 512 // steps between two turns of the loop: some 200 us

struct walk {
    struct meta_core *mc;
    struct bytes range; // all keys of the walk begin with this; the caller's memory
    u32 steps;          // since the loop had its turn
    u32 count;          // cursors that stand on a key of the range
    u32 capacity;
    u32 *heap;                 // indices of `cursors`, the least key first
    struct pg_cursor *cursors; // one for each PG of the core
};

// Stands on the first key >= from (> from with is_after) that begins with `range`. The walk is
// memory that the core keeps for the next one: close it. ERR_NO_MEMORY.
MAY_WAIT enum err walk_open(struct meta_core *mc, struct bytes range, const struct meta_key *from,
                            bool is_after, struct walk **out) NODISCARD;
void walk_close(struct walk *w);

static inline bool walk_has(const struct walk *w)
{
    return w->count > 0;
}
// Of the least key; valid until the walk moves or breathes.
static inline struct bytes walk_key(const struct walk *w)
{
    const struct pg_cursor *c = &w->cursors[w->heap[0]];
    return BYTES(c->key, c->key_len);
}
static inline const u8 *walk_summary(const struct walk *w)
{
    return w->cursors[w->heap[0]].summary;
}
void walk_next(struct walk *w);
// Moves the cursor that stands on the least key to the first key >= `to`.
void walk_skip(struct walk *w, const struct meta_key *to);
// Gives the loop its turn when enough steps were made.
MAY_WAIT void walk_breathe(struct walk *w);

void walk_spare_free(struct meta_core *mc);
