// SPDX-License-Identifier: Apache-2.0
// The set of reactors of a process: creating them, running them on one thread each or, for the
// simulator, all on the caller's thread in seeded order (the contract is in core/reactor.h).
#include "core/internal.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

// Fills in the defaults and refuses what is out of range.
static enum err options_resolve(const struct runtime_options *from, struct runtime_options *to)
{
    *to = *from;
    if (to->fibers_max == 0) {
        to->fibers_max = FIBERS_MAX_DEFAULT;
    }
    if (to->buf_bytes == 0) {
        to->buf_bytes = BUF_BYTES_DEFAULT;
    }
    if (to->cores == 0 || to->cores > CORES_MAX || to->fibers_max > FIBERS_MAX_LIMIT) {
        return ERR_INVALID;
    }
    return OK;
}

enum err runtime_create(struct sys *sys, const struct runtime_options *options,
                        struct runtime **out)
{
    struct runtime *rt = calloc(1, sizeof(*rt));
    if (rt == NULL) {
        return ERR_NO_MEMORY;
    }
    rt->magic = RUNTIME_MAGIC;
    rt->sys = sys;
    enum err e = options_resolve(options, &rt->options);
    if (e != OK) {
        free(rt);
        return e;
    }
    rt->schedule = rt->options.is_single_thread ? rt->options.schedule_seed : 0;
    group_init(&rt->main_group);
    sys_thread_cpus(&rt->cpus);
    TRY_OUT(e, blocking_pool_create(rt, &rt->blocking));
    for (u32 i = 0; i < rt->options.cores; i++) {
        TRY_OUT(e, reactor_create(rt, i, &rt->reactors[i]));
        rt->cores++;
    }
    *out = rt;
out:
    if (e != OK) {
        runtime_destroy(rt);
    }
    return e;
}

void runtime_destroy(struct runtime *rt)
{
    ASSERT_MAGIC(rt, RUNTIME_MAGIC);
    group_deinit(&rt->main_group);
    // The helpers first: one may have posted its last message and be about to wake its reactor.
    if (rt->blocking != NULL) {
        blocking_pool_destroy(rt->blocking);
    }
    for (u32 i = 0; i < rt->cores; i++) {
        reactor_destroy(rt->reactors[i]);
    }
    rt->magic = 0;
    free(rt);
}

u32 runtime_cores(const struct runtime *rt)
{
    return rt->cores;
}

struct reactor *runtime_reactor(struct runtime *rt, u32 core)
{
    ASSERT(core < rt->cores);
    return rt->reactors[core];
}

static void main_fiber(void *arg)
{
    struct runtime *rt = arg;
    rt->main_fn(rt->main_arg);
    for (u32 i = 0; i < rt->cores; i++) {
        reactor_post(rt->reactors[i], &rt->reactors[i]->stop);
    }
}

static void *reactor_thread(void *arg)
{
    struct reactor *r = arg;
    reactor_set_current(r);
    reactor_run(r);
    reactor_set_current(NULL);
    return NULL;
}

static enum err start_thread(struct runtime *rt, struct reactor *r)
{
    char name[16];
    snprintf(name, sizeof(name), "leat-core-%u", r->core % CORES_MAX);
    cpu_set_t cpus = rt->cpus;
    if (rt->options.is_pinned) {
        sys_cpu_pick(&rt->cpus, r->core, &cpus);
    }
    return sys_thread_start(&r->thread, name, &cpus, reactor_thread, r);
}

// Cores 1 and up on threads of their own, core 0 here.
static enum err run_threads(struct runtime *rt)
{
    u32 started = 1;
    enum err e = OK;
    while (started < rt->cores && e == OK) {
        e = start_thread(rt, rt->reactors[started]);
        started += e == OK;
    }
    if (e == OK) {
        if (rt->options.is_pinned) {
            cpu_set_t cpus;
            sys_cpu_pick(&rt->cpus, 0, &cpus);
            if (!sys_thread_set_cpus(&cpus)) {
                LOG_WARN("core_not_pinned", "core=0");
            }
        }
        reactor_set_current(rt->reactors[0]);
        e = group_spawn(&rt->main_group, main_fiber, rt);
        ASSERT(e == OK); // nothing else has taken a fiber yet
        reactor_run(rt->reactors[0]);
        reactor_set_current(NULL);
        if (rt->options.is_pinned) {
            sys_thread_set_cpus(&rt->cpus);
        }
    } else {
        LOG_ERROR("core_not_started", "core=%u hint=\"raise the limit of processes\"", started);
        for (u32 i = 1; i < started; i++) {
            reactor_post(rt->reactors[i], &rt->reactors[i]->stop);
        }
    }
    for (u32 i = 1; i < started; i++) {
        sys_thread_join(rt->reactors[i]->thread);
    }
    return e;
}

// A permutation of the cores for the next round.
static void draw_order(struct runtime *rt, u32 order[CORES_MAX])
{
    for (u32 i = 0; i < rt->cores; i++) {
        order[i] = i;
    }
    for (u32 i = rt->cores - 1; rt->schedule != 0 && i > 0; i--) {
        u32 j = (u32)schedule_draw(rt, i + 1);
        u32 swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

static bool is_any_busy(const struct runtime *rt)
{
    for (u32 i = 0; i < rt->cores; i++) {
        if (reactor_is_busy(rt->reactors[i])) {
            return true;
        }
    }
    return false;
}

static bool is_all_stopping(const struct runtime *rt)
{
    for (u32 i = 0; i < rt->cores; i++) {
        if (!rt->reactors[i]->is_stopping) {
            return false;
        }
    }
    return true;
}

// Nothing is ready anywhere: lets time pass to the next timer or completion.
static void pass_time(struct runtime *rt)
{
    u64 next_ns = UINT64_MAX;
    for (u32 i = 0; i < rt->cores; i++) {
        next_ns = MIN(next_ns, timer_heap_next_ns(&rt->reactors[i]->timers));
    }
    u64 timeout_ns = UINT64_MAX;
    if (next_ns != UINT64_MAX) {
        u64 now_ns = sys_mono_ns(rt->sys);
        timeout_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    }
    if (timeout_ns > 0) {
        struct reactor *r = rt->reactors[0];
        reactor_set_current(r);
        // A completion callback looks at the clock of the turn that it belongs to: still the last.
        r->io->ops->poll(r->io, timeout_ns);
    }
}

static enum err run_single_thread(struct runtime *rt)
{
    reactor_set_current(rt->reactors[0]);
    enum err e = group_spawn(&rt->main_group, main_fiber, rt);
    ASSERT(e == OK);
    u32 order[CORES_MAX];
    while (!is_all_stopping(rt) || is_any_busy(rt)) {
        draw_order(rt, order);
        for (u32 i = 0; i < rt->cores; i++) {
            struct reactor *r = rt->reactors[order[i]];
            reactor_set_current(r);
            reactor_turn(r, false);
        }
        if (!is_any_busy(rt) && !is_all_stopping(rt)) {
            pass_time(rt);
        }
    }
    reactor_set_current(NULL);
    return OK;
}

// Runs what cores sent each other while they stopped (buffers on their way home).
static void drain_mailboxes(struct runtime *rt)
{
    bool is_quiet;
    do {
        is_quiet = true;
        for (u32 i = 0; i < rt->cores; i++) {
            reactor_set_current(rt->reactors[i]);
            is_quiet &= !mailbox_run(rt->reactors[i]);
        }
    } while (!is_quiet);
    reactor_set_current(NULL);
}

enum err runtime_run(struct runtime *rt, fiber_fn fn, void *arg)
{
    ASSERT_MAGIC(rt, RUNTIME_MAGIC);
    ASSERT(!rt->has_run && reactor_current() == NULL);
    rt->has_run = true;
    rt->main_fn = fn;
    rt->main_arg = arg;
    TRY(rt->options.is_single_thread ? run_single_thread(rt) : run_threads(rt));
    drain_mailboxes(rt);
    for (u32 i = 0; i < rt->cores; i++) {
        ASSERT(rt->reactors[i]->fibers_live == 0);
    }
    return OK;
}
