// SPDX-License-Identifier: Apache-2.0
// Runs a test's body as the main fiber of a runtime on the real sys.
#pragma once

#include "core/fiber.h"
#include "core/mailbox.h"
#include "core/reactor.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline void run_cores(u32 cores, fiber_fn fn, void *arg)
{
    struct sys *sys;
    struct runtime *rt;
    struct runtime_options options = {.cores = cores, .buf_bytes = 64 * MIB, .fibers_max = 1024};
    assert_int_equal(sys_real_create(&sys), OK);
    assert_int_equal(runtime_create(sys, &options, &rt), OK);
    assert_int_equal(runtime_run(rt, fn, arg), OK);
    runtime_destroy(rt);
    sys->ops->destroy(sys);
}

// A generator that a seed repeats (splitmix64).
static inline u64 draw(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline u64 draw_below(u64 *state, u64 below)
{
    return draw(state) % below;
}
