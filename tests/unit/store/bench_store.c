// SPDX-License-Identifier: Apache-2.0
// Load tool: puts many small records from many fibers, then measures memory a key, commits a flush,
// server CPU an operation, and how long a start takes.
//
// usage: bench-store [--keys N] [--value BYTES] [--fibers N] [--cores N] [--dir DIR]
#include "store_test.h"

#include <sys/resource.h>
#include <time.h>

struct bench {
    struct store_options options;
    struct store *store;
    u64 keys;
    u32 value_bytes;
    u32 fibers;
    u32 cores;
    u64 next[CORES_MAX];
    u64 index_bytes[CORES_MAX];
    u64 found[CORES_MAX];
};

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double now_s(void)
{
    return (double)sys_mono_ns(core_sys()) / 1e9;
}

static void key_make(u64 i, char out[64])
{
    snprintf(out, 64, "bucket/%08llx/object-%08llu",
             (unsigned long long)(i * 0x9e3779b97f4a7c15ull >> 32), (unsigned long long)i);
}

// Each core puts the keys of its own groups: no messages in the measurement.
MAY_WAIT static void put_fiber(void *arg)
{
    struct bench *b = arg;
    u32 core = core_id();
    u8 *payload = calloc(1, b->value_bytes + 1);
    while (b->next[core] < b->keys) {
        u64 i = b->next[core]++;
        char text[64];
        key_make(i, text);
        struct bytes key = bytes_from_string(text);
        u32 pg = store_pg_of(b->store, key);
        if (store_pg_core(b->store, pg) != core) {
            continue;
        }
        struct pg_key_lock lock;
        CHECK(pg_key_lock(b->store, pg, key, &lock) == OK);
        struct store_change c = {.key = key,
                                 .attrs = BYTES_LITERAL("content-type: application/octet-stream"),
                                 .payload = BYTES(payload, b->value_bytes)};
        CHECK(pg_commit(b->store, pg, &c, 1) == OK);
        pg_key_unlock(&lock);
    }
    free(payload);
}

MAY_WAIT static void get_fiber(void *arg)
{
    struct bench *b = arg;
    u32 core = core_id();
    while (b->next[core] < b->keys) {
        u64 i = b->next[core]++;
        char text[64];
        key_make(i, text);
        struct bytes key = bytes_from_string(text);
        u32 pg = store_pg_of(b->store, key);
        if (store_pg_core(b->store, pg) != core) {
            continue;
        }
        struct pg_record r;
        CHECK(pg_read(b->store, pg, key, &r) == OK);
        CHECK(r.payload.len == b->value_bytes);
        pg_record_release(&r);
        b->found[core]++;
    }
}

MAY_WAIT static void fibers_run(struct bench *b, fiber_fn fn)
{
    struct group g;
    group_init(&g);
    b->next[core_id()] = 0;
    for (u32 i = 0; i < b->fibers; i++) {
        CHECK(group_spawn(&g, fn, b) == OK);
    }
    group_join(&g);
    group_deinit(&g);
}

MAY_WAIT static void puts_on_core(void *arg)
{
    fibers_run(arg, put_fiber);
}

MAY_WAIT static void gets_on_core(void *arg)
{
    fibers_run(arg, get_fiber);
}

MAY_WAIT static void usage_on_core(void *arg)
{
    struct bench *b = arg;
    struct store_usage u;
    store_usage(b->store, &u);
    b->index_bytes[core_id()] = u.index_bytes;
}

MAY_WAIT static void write_run(void *arg)
{
    struct bench *b = arg;
    struct runtime *rt = reactor_runtime(reactor_current());
    CHECK(store_open(&b->options, &b->store) == OK);
    double t = now_s();
    double cpu = cpu_s();
    CHECK(core_call_all(puts_on_core, b) == OK);
    t = now_s() - t;
    cpu = cpu_s() - cpu;
    i64 commits = metric_sum(rt, METRIC_STORE_COMMITS);
    printf("put: %.0f/s, CPU %.1f us each, %.1f records a flush\n", (double)b->keys / t,
           cpu * 1e6 / (double)b->keys, (double)b->keys / (double)commits);
    store_close(b->store);
}

MAY_WAIT static void read_run(void *arg)
{
    struct bench *b = arg;
    double t = now_s();
    double cpu = cpu_s();
    CHECK(store_open(&b->options, &b->store) == OK);
    printf("open: %.3f s, CPU %.3f s\n", now_s() - t, cpu_s() - cpu);
    CHECK(core_call_all(usage_on_core, b) == OK);
    u64 index_bytes = 0;
    for (u32 i = 0; i < b->cores; i++) {
        index_bytes += b->index_bytes[i];
    }
    char text[64];
    key_make(0, text);
    printf("index: %.1f bytes a key, of which the key is %zu\n",
           (double)index_bytes / (double)b->keys, strlen(text));
    t = now_s();
    cpu = cpu_s();
    CHECK(core_call_all(gets_on_core, b) == OK);
    u64 found = 0;
    for (u32 i = 0; i < b->cores; i++) {
        found += b->found[i];
    }
    CHECK(found == b->keys);
    printf("get: %.0f/s, CPU %.1f us each\n", (double)b->keys / (now_s() - t),
           (cpu_s() - cpu) * 1e6 / (double)b->keys);
    store_close(b->store);
}

static void log_sink(enum log_level level, const char *line, size_t len)
{
    (void)level;
    fprintf(stderr, "%.*s\n", (int)len, line);
}

static u64 log_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * NS_PER_S + (u64)now.tv_nsec;
}

int main(int argc, char **argv)
{
    static struct bench b = {.keys = 1000000, .value_bytes = 128, .fibers = 256, .cores = 2};
    struct scratch s;
    log_init(log_sink, log_clock, LOG_LEVEL_INFO, false);
    scratch_make(&s);
    for (int i = 1; i + 1 < argc; i += 2) {
        u64 n = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--keys") == 0) {
            b.keys = n;
        } else if (strcmp(argv[i], "--value") == 0) {
            b.value_bytes = (u32)MIN(n, (u64)STORE_INLINE_BYTES_MAX);
        } else if (strcmp(argv[i], "--fibers") == 0) {
            b.fibers = (u32)n;
        } else if (strcmp(argv[i], "--cores") == 0) {
            b.cores = (u32)n;
        }
    }
    b.options = (struct store_options){.drives = s.drive_list, .drive_count = 1};
    run_cores(b.cores, write_run, &b);
    run_cores(b.cores, read_run, &b);
    scratch_remove(&s);
    return 0;
}
