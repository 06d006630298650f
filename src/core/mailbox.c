// SPDX-License-Identifier: Apache-2.0
// Messages between cores. A mailbox is a stack that any thread pushes onto with one compare and
// swap, and that its core takes whole and turns round: so messages of one sender arrive in order,
// and taking a batch costs one atomic exchange. Here and in foreign puts (buf.c) are the atomics.
#include "core/internal.h"

void reactor_post(struct reactor *r, struct message *m)
{
    ASSERT(m->fn != NULL);
    struct message *head = __atomic_load_n(&r->mailbox, __ATOMIC_RELAXED);
    do {
        m->next = head;
    } while (!__atomic_compare_exchange_n(&r->mailbox, &head, m, true, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED));
    // From here on `m` is the receiver's.
    if (__atomic_load_n(&r->is_asleep, __ATOMIC_SEQ_CST) == 0) {
        return;
    }
    struct reactor *self = reactor_current();
    if (self != NULL && self->rt == r->rt) {
        self->wakes |= 1ull << r->core; // with whatever else this turn sends there
    } else {
        reactor_wake(r);
    }
}

void reactor_wake(struct reactor *r)
{
    if (__atomic_exchange_n(&r->is_asleep, 0, __ATOMIC_SEQ_CST) != 0) {
        r->io->ops->wake(r->io);
    }
}

void mailbox_wake_others(struct reactor *r)
{
    while (r->wakes != 0) {
        u32 core = (u32)__builtin_ctzll(r->wakes);
        r->wakes &= r->wakes - 1;
        reactor_wake(r->rt->reactors[core]);
    }
}

bool mailbox_is_empty(const struct reactor *r)
{
    return __atomic_load_n(&r->mailbox, __ATOMIC_SEQ_CST) == NULL;
}

// Runs what has arrived; what arrives meanwhile waits for the next turn. False if there was
// nothing.
bool mailbox_run(struct reactor *r)
{
    if (mailbox_is_empty(r)) {
        return false;
    }
    struct message *newest = __atomic_exchange_n(&r->mailbox, NULL, __ATOMIC_SEQ_CST);
    struct message *oldest = NULL;
    while (newest != NULL) {
        struct message *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct message *m = oldest;
        oldest = m->next;
        metric_add(METRIC_CORE_MESSAGES, 1);
        m->fn(m); // may free or post m again
    }
    return true;
}

void core_post(u32 core, struct message *m)
{
    reactor_post(runtime_reactor(reactor_here()->rt, core), m);
}

// A call to another core; on the caller's stack, there and back.
struct call {
    struct message message;
    fiber_fn fn;
    void *arg;
    u64 deadline_ns;
    struct reactor *home;
    struct event returned;
    enum err result;
};

static void call_returned(struct message *m)
{
    event_set(&CONTAINER_OF(m, struct call, message)->returned);
}

// After the post the call is its caller's again.
static void call_reply(struct call *c, enum err result)
{
    c->result = result;
    c->message.fn = call_returned;
    reactor_post(c->home, &c->message);
}

static void call_fiber(void *arg)
{
    struct call *c = arg;
    c->fn(c->arg);
    call_reply(c, OK);
}

static void call_arrived(struct message *m)
{
    struct call *c = CONTAINER_OF(m, struct call, message);
    enum err e = group_spawn_until(&reactor_here()->calls, call_fiber, c, c->deadline_ns);
    if (e != OK) {
        call_reply(c, e);
    }
}

MAY_WAIT enum err core_call(u32 core, fiber_fn fn, void *arg)
{
    struct reactor *r = reactor_here();
    ASSERT(r->current != NULL && core < r->rt->cores);
    if (core == r->core) {
        fn(arg);
        return OK;
    }
    struct call c = {
        .message = {.fn = call_arrived},
        .fn = fn,
        .arg = arg,
        .deadline_ns = fiber_deadline(),
        .home = r,
    };
    event_init(&c.returned);
    reactor_post(r->rt->reactors[core], &c.message);
    event_wait_certain(&c.returned);
    return c.result;
}

// One core after the other; a core that refuses does not keep the others from their turn.
MAY_WAIT enum err core_call_all(fiber_fn fn, void *arg)
{
    enum err result = OK;
    for (u32 core = 0; core < reactor_here()->rt->cores; core++) {
        enum err e = core_call(core, fn, arg);
        result = result == OK ? e : result;
    }
    return result;
}
