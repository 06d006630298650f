// SPDX-License-Identifier: Apache-2.0
// Microbenchmark of the runtime; not a test. Prints nanoseconds an operation.
//   build/tests/unit/core/bench-core [DIRECTORY for the file]
#include "core/buf.h"
#include "core/fiber.h"
#include "core/fileio.h"
#include "core/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(expr) ASSERT((expr) == OK)

// What only computes is timed by the thread's CPU clock: steady on a machine that others use too.
static u64 cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}

static void report(const char *what, u64 total_ns, u64 count)
{
    printf("%-44s %10.1f ns\n", what, (double)total_ns / (double)count);
    fflush(stdout);
}

// What waits for another core or a drive, by the wall clock and by CPU.
static u64 wall_ns(void)
{
    return sys_mono_ns(core_sys());
}

static void report_wall(const char *what, u64 start_wall_ns, u64 start_cpu_ns, u64 count)
{
    printf("%-44s %10.1f ns, %.1f ns of CPU here\n", what,
           (double)(wall_ns() - start_wall_ns) / (double)count,
           (double)(cpu_ns() - start_cpu_ns) / (double)count);
    fflush(stdout);
}

static MAY_WAIT void yield_often(void *arg)
{
    for (u64 i = 0; i < *(u64 *)arg; i++) {
        fiber_yield();
    }
}

// Two fibers that yield to each other: each yield is a switch out, the loop, a switch in, and a
// whole turn every second one. With a hundred the turn is shared.
static MAY_WAIT void bench_yield(u32 fibers, const char *what)
{
    u64 each = 4000000 / fibers;
    struct group g;
    group_init(&g);
    u64 start_ns = cpu_ns();
    for (u32 i = 0; i < fibers; i++) {
        MUST(group_spawn(&g, yield_often, &each));
    }
    group_join(&g);
    group_deinit(&g);
    report(what, cpu_ns() - start_ns, each * fibers);
}

struct ping {
    struct wait_queue queues[2];
    u64 left;
};

static MAY_WAIT void pong(void *arg)
{
    struct ping *p = arg;
    while (p->left > 0) {
        wait_queue_wake_one(&p->queues[0]);
        MUST(wait_queue_wait(&p->queues[1]));
    }
    wait_queue_wake_one(&p->queues[0]);
}

// A wake and a wait, there and back: two wakes a round.
static MAY_WAIT void bench_wake(void)
{
    struct ping p = {.left = 2000000};
    u64 count = p.left * 2;
    struct group g;
    wait_queue_init(&p.queues[0]);
    wait_queue_init(&p.queues[1]);
    group_init(&g);
    u64 start_ns = cpu_ns();
    MUST(group_spawn(&g, pong, &p));
    while (p.left > 0) {
        MUST(wait_queue_wait(&p.queues[0]));
        p.left--;
        wait_queue_wake_one(&p.queues[1]);
    }
    group_join(&g);
    report("wake a fiber and wait", cpu_ns() - start_ns, count);
    group_deinit(&g);
}

static void nothing(void *arg)
{
    (void)arg;
}

static MAY_WAIT void bench_spawn(void)
{
    struct group g;
    group_init(&g);
    u64 start_ns = cpu_ns();
    for (u64 i = 0; i < 1000000; i++) {
        MUST(group_spawn(&g, nothing, NULL));
        group_join(&g);
    }
    report("spawn and join", cpu_ns() - start_ns, 1000000);
    group_deinit(&g);
}

static MAY_WAIT void bench_call(void)
{
    u64 start_cpu_ns = cpu_ns();
    u64 start_ns = wall_ns();
    for (u64 i = 0; i < 50000; i++) {
        MUST(core_call(1, nothing, NULL));
    }
    report_wall("call to another core, asleep", start_ns, start_cpu_ns, 50000);
}

static MAY_WAIT void call_often(void *arg)
{
    for (u64 i = 0; i < *(u64 *)arg; i++) {
        MUST(core_call(1, nothing, NULL));
    }
}

static MAY_WAIT void bench_call_busy(void)
{
    u64 each = 5000;
    struct group g;
    group_init(&g);
    u64 start_cpu_ns = cpu_ns();
    u64 start_ns = wall_ns();
    for (u32 i = 0; i < 64; i++) {
        MUST(group_spawn(&g, call_often, &each));
    }
    group_join(&g);
    report_wall("call to another core, 64 at once", start_ns, start_cpu_ns, each * 64);
    group_deinit(&g);
}

static void bench_timer_fired(struct timer *t)
{
    (void)t;
}

static void bench_timers(void)
{
    static struct timer timers[4096];
    for (u32 i = 0; i < ARRAY_LEN(timers); i++) {
        timer_init(&timers[i], bench_timer_fired);
        timer_arm(&timers[i], core_now_ns() + 1000 * NS_PER_S + core_random_u64() % NS_PER_S);
    }
    u64 start_ns = cpu_ns();
    for (u64 i = 0; i < 2000000; i++) {
        timer_arm(&timers[i * 2654435761u % ARRAY_LEN(timers)],
                  core_now_ns() + 1000 * NS_PER_S + i);
    }
    report("re-arm one of 4,096 timers", cpu_ns() - start_ns, 2000000);
    for (u32 i = 0; i < ARRAY_LEN(timers); i++) {
        timer_disarm(&timers[i]);
    }
}

static void bench_bufs(void)
{
    struct buf *keep = buf_get(4096);
    u64 start_ns = cpu_ns();
    for (u64 i = 0; i < 10000000; i++) {
        buf_put(buf_get(4096));
    }
    report("take and put a 4 KiB buffer", cpu_ns() - start_ns, 10000000);
    buf_put(keep);
}

static MAY_WAIT void bench_file(const char *dir)
{
    char path[512];
    int fd;
    struct sys *s = core_sys();
    snprintf(path, sizeof(path), "%s/leat-bench-core.dat", dir);
    MUST(s->ops->file_open(
        s, path, SYS_OPEN_READ | SYS_OPEN_WRITE | SYS_OPEN_CREATE | SYS_OPEN_DIRECT, &fd));
    MUST(s->ops->file_allocate(s, fd, 16 * MIB, true));
    struct buf *b = buf_get(4096);
    memset(b->data, 1, 4096);
    u64 start_cpu_ns = cpu_ns();
    u64 start_ns = wall_ns();
    for (u64 i = 0; i < 500; i++) {
        MUST(fileio_write_flush(fd, b->data, 4096, i % 4096 * 4096));
    }
    report_wall("write 4 KiB and flush, direct", start_ns, start_cpu_ns, 500);
    start_cpu_ns = cpu_ns();
    start_ns = wall_ns();
    for (u64 i = 0; i < 5000; i++) {
        MUST(fileio_read(fd, b->data, 4096, i * 2654435761u % 4096 * 4096));
    }
    report_wall("read 4 KiB, direct", start_ns, start_cpu_ns, 5000);
    buf_put(b);
    s->ops->file_close(s, fd);
    MUST(s->ops->file_remove(s, path));
}

static MAY_WAIT void bench_main(void *arg)
{
    bench_yield(2, "yield, 2 fibers");
    bench_yield(100, "yield, 100 fibers");
    bench_yield(1000, "yield, 1,000 fibers");
    bench_wake();
    bench_spawn();
    bench_timers();
    bench_bufs();
    bench_call();
    bench_call_busy();
    bench_file(arg);
}

int main(int argc, char **argv)
{
    struct sys *sys;
    struct runtime *rt;
    struct runtime_options options = {
        .cores = 2, .is_pinned = true, .is_registered = true, .buf_bytes = 16 * MIB};
    MUST(sys_real_create(&sys));
    MUST(runtime_create(sys, &options, &rt));
    MUST(runtime_run(rt, bench_main, argc > 1 ? argv[1] : "."));
    runtime_destroy(rt);
    sys->ops->destroy(sys);
    return 0;
}
