// SPDX-License-Identifier: Apache-2.0
// Fibers: their stacks, their life, and the one way in which they suspend. A fiber's slot and stack
// are made at its first use and then reused, last used first, so a core touches as few stacks as it
// has fibers alive at once. Tops of stacks are coloured (192 bytes apart, modulo a page): with all
// tops at the same offset a thousand fibers would fight for one set of the cache.
//
// Invariant: a fiber is FREE, on the ready list (READY), on the CPU (RUNNING), or suspended
// (PARKED), where `node` may stand in one queue. Only its own core touches it.
#include "core/annotate.h"
#include "core/internal.h"
#include "core/switch.h"

#include <sys/mman.h>

#define STACK_COLOUR_BYTES 192u
#define STACK_COLOUR_RANGE 4096u

struct fiber *fiber_current(void)
{
    struct reactor *r = reactor_tls;
    return r == NULL ? NULL : r->current;
}

// The caller's fiber, which must be one.
static struct fiber *fiber_here(void)
{
    struct fiber *f = fiber_current();
    ASSERT_MAGIC(f, FIBER_MAGIC);
    return f;
}

// Goes back to the loop; returns when the loop runs this fiber again.
static void switch_to_loop(struct reactor *r, struct fiber *f)
{
    void *fake_stack = NULL;
    annotate_leave(&r->loop, &fake_stack);
    fiber_switch(&f->sp, r->loop.sp);
    annotate_entered_fiber(&r->loop, fake_stack);
}

static void fiber_finish(struct reactor *r, struct fiber *f)
{
    struct group *g = f->group;
    ASSERT(f->shield == 0);
    ASSERT_MAGIC(g, GROUP_MAGIC);
    timer_disarm(&f->deadline);
    list_remove(&f->group_node);
    f->group = NULL;
    f->state = FIBER_FREE;
    f->next_free = r->fibers_free;
    r->fibers_free = f;
    r->fibers_live--;
    metric_add(METRIC_CORE_FIBERS, -1);
    ASSERT(g->live > 0);
    g->live--;
    if (g->live == 0 && g->joiner != NULL) {
        fiber_ready(g->joiner, OK);
    }
}

// The first and last frame of every stack: one turn of its loop is one fiber's life. It is never
// left, so the next fiber on this stack starts by an ordinary switch.
static void fiber_main(void)
{
    struct reactor *r = reactor_here();
    struct fiber *f = r->current;
    void *fake_stack = NULL;
    for (;;) {
        annotate_entered_fiber(&r->loop, fake_stack);
        f->fn(f->arg);
        fiber_finish(r, f);
        annotate_leave(&r->loop, &fake_stack);
        fiber_switch(&f->sp, r->loop.sp);
        ASSERT(f->state == FIBER_RUNNING && r->current == f);
    }
}

void fiber_run(struct reactor *r, struct fiber *f)
{
    ASSERT(f->state == FIBER_READY && r->current == NULL);
    f->state = FIBER_RUNNING;
    r->current = f;
    annotate_enter(&r->loop, f);
    fiber_switch(&r->loop.sp, f->sp);
    annotate_entered_loop(&r->loop);
    r->current = NULL;
}

// A deadline passed: ends the wait that the fiber is in, if that wait can end early. A wait that
// begins later looks at the clock itself.
static void deadline_passed(struct timer *t)
{
    struct fiber *f = CONTAINER_OF(t, struct fiber, deadline);
    if (f->state == FIBER_PARKED && !f->is_certain) {
        fiber_ready(f, ERR_DEADLINE);
    }
}

static struct fiber *fiber_make(struct reactor *r)
{
    if (r->fibers_made == r->rt->options.fibers_max) {
        return NULL;
    }
    u8 *memory = mmap(NULL, FIBER_GUARD_BYTES + FIBER_STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (mprotect(memory, FIBER_GUARD_BYTES, PROT_NONE) != 0) {
        munmap(memory, FIBER_GUARD_BYTES + FIBER_STACK_BYTES);
        return NULL;
    }
    struct fiber *f = &r->fibers[r->fibers_made];
    f->magic = FIBER_MAGIC;
    f->slot = r->fibers_made++;
    f->stack = memory + FIBER_GUARD_BYTES;
    list_init(&f->node);
    list_init(&f->group_node);
    timer_init(&f->deadline, deadline_passed);
    annotate_stack_made(f);
    u32 colour = f->slot * STACK_COLOUR_BYTES % STACK_COLOUR_RANGE;
    f->sp = fiber_switch_prepare(f->stack, f->stack + FIBER_STACK_BYTES - colour, fiber_main);
    return f;
}

void fibers_deinit(struct reactor *r)
{
    ASSERT(r->fibers_live == 0);
    for (u32 i = 0; i < r->fibers_made; i++) {
        struct fiber *f = &r->fibers[i];
        annotate_stack_gone(f);
        munmap(f->stack - FIBER_GUARD_BYTES, FIBER_GUARD_BYTES + FIBER_STACK_BYTES);
        f->magic = 0;
    }
}

enum err group_spawn_until(struct group *g, fiber_fn fn, void *arg, u64 deadline_ns)
{
    struct reactor *r = reactor_here();
    ASSERT_MAGIC(g, GROUP_MAGIC);
    struct fiber *f = r->fibers_free;
    if (f != NULL) {
        r->fibers_free = f->next_free;
    } else {
        f = fiber_make(r);
        if (f == NULL) {
            return ERR_LIMIT_REACHED;
        }
    }
    ASSERT(f->state == FIBER_FREE);
    f->fn = fn;
    f->arg = arg;
    f->group = g;
    f->deadline.at_ns = deadline_ns;
    f->shield = 0;
    f->is_certain = true;
    f->state = FIBER_PARKED;
    g->live++;
    list_add_tail(&g->children, &f->group_node);
    r->fibers_live++;
    metric_add(METRIC_CORE_FIBERS, 1);
    fiber_ready(f, OK);
    return OK;
}

void fiber_ready(struct fiber *f, enum err result)
{
    struct reactor *r = reactor_here();
    ASSERT_MAGIC(f, FIBER_MAGIC);
    ASSERT(f->state == FIBER_PARKED);
    f->state = FIBER_READY;
    f->result = result;
    list_remove(&f->node);
    list_add_tail(&r->ready, &f->node);
    r->ready_count++;
}

enum err fiber_wait_check(struct fiber *f)
{
    if (f->shield > 0) {
        return OK;
    }
    if (f->group->is_cancelled) {
        return ERR_CANCELLED;
    }
    if (f->deadline.at_ns != 0 && f->deadline.at_ns <= reactor_here()->now_ns) {
        return ERR_DEADLINE;
    }
    return OK;
}

MAY_WAIT enum err fiber_park(struct fiber *f)
{
    struct reactor *r = reactor_here();
    ASSERT(f == r->current && f->state == FIBER_RUNNING);
    f->is_certain = f->shield > 0;
    if (!f->is_certain && f->deadline.at_ns != 0 && !timer_is_armed(&f->deadline)) {
        timer_arm(&f->deadline, f->deadline.at_ns);
    }
    f->state = FIBER_PARKED;
    switch_to_loop(r, f);
    return f->result;
}

MAY_WAIT void fiber_park_certain(struct fiber *f)
{
    struct reactor *r = reactor_here();
    ASSERT(f == r->current && f->state == FIBER_RUNNING);
    f->is_certain = true;
    f->state = FIBER_PARKED;
    switch_to_loop(r, f);
}

MAY_WAIT void fiber_yield(void)
{
    struct reactor *r = reactor_here();
    struct fiber *f = fiber_here();
    f->state = FIBER_READY;
    list_add_tail(&r->yielded, &f->node);
    switch_to_loop(r, f);
}

struct sleep {
    struct timer timer;
    struct fiber *fiber;
};

static void sleep_over(struct timer *t)
{
    struct sleep *s = CONTAINER_OF(t, struct sleep, timer);
    if (s->fiber->state == FIBER_PARKED) {
        fiber_ready(s->fiber, OK);
    }
}

MAY_WAIT enum err fiber_sleep(u64 duration_ns)
{
    struct fiber *f = fiber_here();
    TRY(fiber_wait_check(f));
    struct sleep s = {.fiber = f};
    timer_init(&s.timer, sleep_over);
    timer_arm(&s.timer, core_now_ns() + duration_ns);
    enum err e = fiber_park(f);
    timer_disarm(&s.timer);
    return e;
}

u64 fiber_set_deadline(u64 deadline_ns)
{
    struct fiber *f = fiber_here();
    u64 before = f->deadline.at_ns;
    if (deadline_ns != before) {
        timer_disarm(&f->deadline);
        f->deadline.at_ns = deadline_ns;
    }
    return before;
}

u64 fiber_deadline(void)
{
    return fiber_here()->deadline.at_ns;
}

bool fiber_is_cancelled(void)
{
    return fiber_here()->group->is_cancelled;
}

void fiber_shield_enter(void)
{
    struct fiber *f = fiber_here();
    ASSERT(f->shield < UINT16_MAX);
    f->shield++;
}

void fiber_shield_leave(void)
{
    struct fiber *f = fiber_here();
    ASSERT(f->shield > 0);
    f->shield--;
}
