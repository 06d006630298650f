// SPDX-License-Identifier: Apache-2.0
// The loop of one core. A turn is: messages, due timers, ready fibers, deferred work, I/O. The
// clock is read at the start of a turn, and again only before a sleep that a timer will end.
//
// Sleeping and waking: the reactor sets `is_asleep` and then looks into its mailbox once more; a
// sender puts its message in and then looks at `is_asleep`. Both orders are sequentially
// consistent, so at least one of them sees the other.
#include "core/internal.h"

#include <string.h>

_Thread_local struct reactor *reactor_tls;

struct reactor *reactor_current(void)
{
    return reactor_tls;
}

void reactor_set_current(struct reactor *r)
{
    reactor_tls = r;
}

struct runtime *reactor_runtime(struct reactor *r)
{
    return r->rt;
}

struct sys *reactor_sys(struct reactor *r)
{
    return r->rt->sys;
}

struct io_engine *reactor_io(struct reactor *r)
{
    return r->io;
}

u32 reactor_core(const struct reactor *r)
{
    return r->core;
}

u32 core_id(void)
{
    return reactor_here()->core;
}

struct sys *core_sys(void)
{
    return reactor_here()->rt->sys;
}

u64 core_now_ns(void)
{
    return reactor_here()->now_ns;
}

u64 core_wall_ns(void)
{
    return sys_wall_ns(core_sys());
}

// Small draws come from a pool, so that a random number is not a system call.
void core_random(void *out, size_t len)
{
    struct reactor *r = reactor_here();
    if (len > sizeof(r->random_pool)) {
        r->rt->sys->ops->random_bytes(r->rt->sys, out, len);
        return;
    }
    if (r->random_left < len) {
        r->rt->sys->ops->random_bytes(r->rt->sys, r->random_pool, sizeof(r->random_pool));
        r->random_left = sizeof(r->random_pool);
    }
    u8 *from = r->random_pool + sizeof(r->random_pool) - r->random_left;
    memcpy(out, from, len);
    memset(from, 0, len); // what was handed out may be a secret
    r->random_left -= len;
}

u64 core_random_u64(void)
{
    u64 value;
    core_random(&value, sizeof(value));
    return value;
}

// A number below `below` from the scheduler's own generator (splitmix64), apart from the program's
// randomness: a changed program must not change the schedule more than it has to.
u64 schedule_draw(struct runtime *rt, u64 below)
{
    ASSERT(rt->schedule != 0 && below > 0);
    rt->schedule += 0x9e3779b97f4a7c15u;
    u64 z = rt->schedule;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

void core_defer(struct deferred *d)
{
    ASSERT(d->fn != NULL);
    if (!d->is_queued) {
        d->is_queued = true;
        list_add_tail(&reactor_here()->deferred, &d->node);
    }
}

static struct fiber *pick_ready(struct reactor *r)
{
    struct list *node = r->ready.next;
    if (UNLIKELY(r->rt->schedule != 0) && r->ready_count > 1) {
        u64 skip = schedule_draw(r->rt, MIN(r->ready_count, SCHEDULE_DRAW_MAX));
        while (skip-- > 0) {
            node = node->next;
        }
    }
    list_remove(node);
    r->ready_count--;
    return CONTAINER_OF(node, struct fiber, node);
}

static void run_ready(struct reactor *r)
{
    while (!list_is_empty(&r->yielded)) {
        list_add_tail(&r->ready, list_pop_head(&r->yielded));
        r->ready_count++;
    }
    for (u32 n = 0; n < TURN_FIBERS_MAX && r->ready_count > 0; n++) {
        fiber_run(r, pick_ready(r));
    }
}

// What is deferred while this runs waits for the next turn.
static void run_deferred(struct reactor *r)
{
    if (list_is_empty(&r->deferred)) {
        return;
    }
    struct list now;
    list_init(&now);
    list_splice_tail(&now, &r->deferred);
    struct list *node;
    while ((node = list_pop_head(&now)) != NULL) {
        struct deferred *d = CONTAINER_OF(node, struct deferred, node);
        d->is_queued = false;
        d->fn(d); // may free d
    }
}

bool reactor_is_busy(const struct reactor *r)
{
    return r->ready_count > 0 || !list_is_empty(&r->yielded) || !list_is_empty(&r->deferred) ||
           !mailbox_is_empty(r);
}

static u64 sleep_ns(const struct reactor *r)
{
    u64 next_ns = timer_heap_next_ns(&r->timers);
    if (next_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    u64 now_ns = sys_mono_ns(r->rt->sys);
    return next_ns > now_ns ? next_ns - now_ns : 0;
}

static void poll_asleep(struct reactor *r, u64 timeout_ns)
{
    __atomic_store_n(&r->is_asleep, 1, __ATOMIC_SEQ_CST);
    r->io->ops->poll(r->io, mailbox_is_empty(r) ? timeout_ns : 0);
    __atomic_store_n(&r->is_asleep, 0, __ATOMIC_RELAXED);
}

void reactor_turn(struct reactor *r, bool is_sleep_allowed)
{
    ASSERT(reactor_here() == r);
    r->now_ns = sys_mono_ns(r->rt->sys);
    metric_add(METRIC_CORE_LOOPS, 1);
    mailbox_run(r);
    timer_heap_run(r);
    run_ready(r);
    run_deferred(r);
    mailbox_wake_others(r);
    u64 timeout_ns = 0;
    if (is_sleep_allowed && !r->is_stopping && !reactor_is_busy(r)) {
        timeout_ns = sleep_ns(r);
    }
    if (timeout_ns == 0) {
        r->io->ops->poll(r->io, 0);
    } else {
        poll_asleep(r, timeout_ns);
    }
}

void reactor_run(struct reactor *r)
{
    while (!r->is_stopping || reactor_is_busy(r)) {
        reactor_turn(r, true);
    }
}
