// SPDX-License-Identifier: Apache-2.0
// The timers of one core: a binary heap by time. It grows by doubling and never shrinks; there are
// at most as many armed timers as there are structs that hold one, and those are limited by whoever
// owns them (fibers, connections).
#include "core/internal.h"

#include <stdlib.h>

#define TIMERS_INITIAL 256u

static void heap_set(struct timer_heap *h, u32 i, struct timer_entry entry)
{
    h->entries[i] = entry;
    entry.timer->heap_index = i;
}

static void heap_up(struct timer_heap *h, u32 i, struct timer_entry entry)
{
    while (i > 0) {
        u32 parent = (i - 1) / 2;
        if (h->entries[parent].at_ns <= entry.at_ns) {
            break;
        }
        heap_set(h, i, h->entries[parent]);
        i = parent;
    }
    heap_set(h, i, entry);
}

static void heap_down(struct timer_heap *h, u32 i, struct timer_entry entry)
{
    for (;;) {
        u32 child = 2 * i + 1;
        if (child >= h->count) {
            break;
        }
        if (child + 1 < h->count && h->entries[child + 1].at_ns < h->entries[child].at_ns) {
            child++;
        }
        if (h->entries[child].at_ns >= entry.at_ns) {
            break;
        }
        heap_set(h, i, h->entries[child]);
        i = child;
    }
    heap_set(h, i, entry);
}

static void heap_grow(struct timer_heap *h)
{
    u32 capacity = h->capacity == 0 ? TIMERS_INITIAL : h->capacity * 2;
    ASSERT(capacity > h->capacity);
    struct timer_entry *entries = realloc(h->entries, capacity * sizeof(*entries));
    ASSERT(entries != NULL);
    h->entries = entries;
    h->capacity = capacity;
}

void timer_init(struct timer *t, void (*fn)(struct timer *t))
{
    *t = (struct timer){.fn = fn, .heap_index = TIMER_NOT_ARMED};
}

bool timer_is_armed(const struct timer *t)
{
    return t->heap_index != TIMER_NOT_ARMED;
}

void timer_arm(struct timer *t, u64 at_ns)
{
    ASSERT(t->fn != NULL);
    timer_disarm(t);
    struct timer_heap *h = &reactor_here()->timers;
    if (h->count == h->capacity) {
        heap_grow(h);
    }
    t->at_ns = at_ns;
    h->count++;
    heap_up(h, h->count - 1, (struct timer_entry){.at_ns = at_ns, .timer = t});
}

void timer_disarm(struct timer *t)
{
    if (!timer_is_armed(t)) {
        return;
    }
    struct timer_heap *h = &reactor_here()->timers;
    u32 i = t->heap_index;
    ASSERT(i < h->count && h->entries[i].timer == t);
    t->heap_index = TIMER_NOT_ARMED;
    h->count--;
    struct timer_entry last = h->entries[h->count];
    if (i == h->count) {
        return;
    }
    if (i > 0 && last.at_ns < h->entries[(i - 1) / 2].at_ns) {
        heap_up(h, i, last);
    } else {
        heap_down(h, i, last);
    }
}

u64 timer_heap_next_ns(const struct timer_heap *h)
{
    return h->count == 0 ? UINT64_MAX : h->entries[0].at_ns;
}

// Calls what is due, at most once for each timer that was armed when it began: one that re-arms
// itself into the past gets its next call in the next turn. True if any was due.
bool timer_heap_run(struct reactor *r)
{
    struct timer_heap *h = &r->timers;
    u32 budget = h->count;
    bool was_due = false;
    while (budget > 0 && h->count > 0 && h->entries[0].at_ns <= r->now_ns) {
        struct timer *t = h->entries[0].timer;
        timer_disarm(t);
        t->fn(t); // may free t
        was_due = true;
        budget--;
    }
    return was_due;
}

void timer_heap_deinit(struct timer_heap *h)
{
    ASSERT(h->count == 0);
    free(h->entries);
    *h = (struct timer_heap){0};
}
