// SPDX-License-Identifier: Apache-2.0
// Runs a test's body as the main fiber of a runtime on the real sys.
#pragma once

#include "core/fiber.h"
#include "core/mailbox.h"
#include "core/reactor.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline void run_with(struct runtime_options options, fiber_fn fn, void *arg)
{
    struct sys *sys;
    struct runtime *rt;
    assert_int_equal(sys_real_create(&sys), OK);
    options.buf_bytes = options.buf_bytes == 0 ? MIB : options.buf_bytes;
    options.fibers_max = options.fibers_max == 0 ? 64 : options.fibers_max;
    assert_int_equal(runtime_create(sys, &options, &rt), OK);
    assert_int_equal(runtime_run(rt, fn, arg), OK);
    runtime_destroy(rt);
    sys->ops->destroy(sys);
}

// On one core, on the calling thread.
static inline void run_here(fiber_fn fn)
{
    run_with((struct runtime_options){.cores = 1}, fn, NULL);
}

static inline void spawn(struct group *g, fiber_fn fn, void *arg)
{
    assert_int_equal(group_spawn(g, fn, arg), OK);
}
