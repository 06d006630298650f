// SPDX-License-Identifier: Apache-2.0
// What the store's unit tests share: a scratch directory, a runtime on the real sys, and short ways
// to put, get and check. A failed CHECK aborts: cmocka's jumps do not leave a fiber's stack.
#pragma once

#include "base/log.h"
#include "core/fiber.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "core/reactor.h"
#include "store/store.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define CHECK(expr) ASSERT(expr)
#define TEST_PATH   96

// The scratch directory of one test, under TMPDIR or /var/tmp (a filesystem with O_DIRECT).
struct scratch {
    char path[TEST_PATH];
    char drives[4][TEST_PATH + 16];
    const char *drive_list[4];
};

static inline void scratch_make_in(struct scratch *s, const char *base)
{
    snprintf(s->path, sizeof(s->path), "%s/leat-store-XXXXXX", base);
    CHECK(mkdtemp(s->path) != NULL);
    for (u32 i = 0; i < 4; i++) {
        snprintf(s->drives[i], sizeof(s->drives[i]), "%s/drive%u", s->path, i);
        s->drive_list[i] = s->drives[i];
    }
}

static inline void scratch_make(struct scratch *s)
{
    const char *base = getenv("TMPDIR");
    scratch_make_in(s, base == NULL ? "/var/tmp" : base);
}

// For thousands of small writes and starts: in memory, where there is such a filesystem.
static inline void scratch_make_fast(struct scratch *s)
{
    scratch_make_in(s, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/var/tmp");
}

static inline void scratch_remove(const struct scratch *s)
{
    char command[TEST_PATH + 16];
    snprintf(command, sizeof(command), "rm -rf '%s'", s->path);
    CHECK(system(command) == 0);
}

static inline struct store_options small_options(const struct scratch *s)
{
    return (struct store_options){.drives = s->drive_list,
                                  .drive_count = 1,
                                  .pg_count = 8,
                                  .segment_bytes = 4 * MIB,
                                  .cache_bytes = 4 * MIB};
}

struct runtime_run_args {
    fiber_fn fn;
    void *arg;
};

static inline void run_cores(u32 cores, fiber_fn fn, void *arg)
{
    struct sys *sys;
    struct runtime *rt;
    CHECK(sys_real_create(&sys) == OK);
    struct runtime_options options = {.cores = cores, .buf_bytes = 64 * MIB, .fibers_max = 512};
    CHECK(runtime_create(sys, &options, &rt) == OK);
    CHECK(runtime_run(rt, fn, arg) == OK);
    runtime_destroy(rt);
    sys->ops->destroy(sys);
}

// On the core of the key's group. The value comes with fixed attributes, which kv_get checks.
MAY_WAIT enum err kv_put(struct store *s, const char *key, const void *data, u32 len);
MAY_WAIT enum err kv_delete(struct store *s, const char *key);
// `out` has room for STORE_INLINE_BYTES_MAX.
MAY_WAIT enum err kv_get(struct store *s, const char *key, u8 *out, u32 *len);
u32 kv_pg(struct store *s, const char *key);

// Bytes that depend on the seed in every place.
static inline void pattern_fill(u8 *out, size_t len, u64 seed)
{
    u64 x = seed * 0x9e3779b97f4a7c15ull + 1;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out[i] = (u8)(x >> 32);
    }
}
