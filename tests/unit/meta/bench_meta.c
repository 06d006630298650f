// SPDX-License-Identifier: Apache-2.0
// What meta and the store cost without HTTP: CPU and wall time an operation, on one core.
//   bench_meta [cores]
#include "bed.h"

#include <sys/resource.h>
#include <time.h>

struct bench {
    struct bed *bed;
    u32 fibers;
    u32 ops;
    u32 next;
    u64 size;
    void (*fn)(struct bench *b, u32 i);
};

static u64 cpu_us(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (u64)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000 +
           (u64)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

static void bench_fiber(void *arg)
{
    struct bench *b = arg;
    u32 i;
    while ((i = __atomic_fetch_add(&b->next, 1, __ATOMIC_RELAXED)) < b->ops) {
        b->fn(b, i);
    }
}

static void bench_run(struct bench *b, const char *name)
{
    struct group g;
    struct timespec from;
    struct timespec to;
    b->next = 0;
    group_init(&g);
    u64 cpu = cpu_us();
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (u32 i = 0; i < b->fibers; i++) {
        CHECK_OK(group_spawn(&g, bench_fiber, b));
    }
    group_join(&g);
    clock_gettime(CLOCK_MONOTONIC, &to);
    cpu = cpu_us() - cpu;
    double wall_us =
        (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
    struct meta_usage u;
    meta_usage(b->bed->meta, &u);
    printf("%-24s %8u ops %10.1f us cpu/op %10.1f us wall/op  md5 %.1f lanes\n", name, b->ops,
           (double)cpu / b->ops, wall_us / b->ops,
           u.md5_runs == 0 ? 0.0 : (double)u.md5_pieces / (double)u.md5_runs);
    group_deinit(&g);
}

static void op_put(struct bench *b, u32 i)
{
    struct object_writer *w;
    struct object_digests d;
    struct object_finish f = {0};
    struct object_info info;
    char key[64];
    struct object_write_options o = {
        .bucket = B("bkt"),
        .key = key_of(key, sizeof(key), b->size > 64 * KIB ? "large" : "small", i),
        .size_expected = b->size,
        .checksums = 1u << CHECKSUM_CRC64NVME,
        .needs_md5 = true};
    CHECK_OK(object_write_begin(b->bed->meta, &o, &w));
    for (u64 at = 0; at < b->size;) {
        u8 *to;
        size_t room;
        CHECK_OK(object_write_buffer(w, &to, &room));
        room = MIN(room, 128 * KIB);
        memset(to, (int)i, room);
        CHECK_OK(object_write_advance(w, room));
        at += room;
        if (at < b->size) {
            fiber_yield(); // the rest has not come yet
        }
    }
    CHECK_OK(object_write_digests(w, &d));
    CHECK_OK(object_write_finish(w, &f, &info));
}

static void get(struct bench *b, u32 i, const char *prefix, u64 offset, u64 len, bool is_head)
{
    struct object_reader r;
    struct arena arena;
    char key[64];
    arena_init(&arena, MIB);
    CHECK_OK(object_open(b->bed->meta, B("bkt"), key_of(key, sizeof(key), prefix, i), is_head,
                         &arena, &r));
    for (u64 at = 0; at < len && !is_head;) {
        struct bytes got;
        CHECK_OK(object_read(&r, offset + at, len - at, &got));
        at += got.len;
    }
    object_close(&r);
    arena_deinit(&arena);
}

static void op_get_small(struct bench *b, u32 i)
{
    get(b, i % 4000, "small", 0, 4096, false);
}

static void op_head(struct bench *b, u32 i)
{
    get(b, i % 4000, "small", 0, 0, true);
}

static void op_get_large(struct bench *b, u32 i)
{
    get(b, i % 200, "large", 0, MIB, false);
}

static void op_range(struct bench *b, u32 i)
{
    get(b, i % 200, "large", (u64)(i * 7919u % 255) * 4096, 4096, false);
}

static void op_list(struct bench *b, u32 i)
{
    struct arena arena;
    struct list_result got;
    (void)i;
    struct list_request rq = {.bucket = B("bkt"), .prefix = B("small"), .max = 1000};
    arena_init(&arena, 8 * MIB);
    CHECK_OK(object_list(b->bed->meta, &rq, &arena, &got));
    CHECK(got.count == 1000);
    arena_deinit(&arena);
}

static void op_delete(struct bench *b, u32 i)
{
    char key[64];
    bool existed;
    CHECK_OK(object_delete(b->bed->meta, B("bkt"), key_of(key, sizeof(key), "small", i), NULL,
                           &existed));
    CHECK(existed);
}

static void bench_body(struct bed *bed)
{
    struct bucket bucket;
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &bucket));
    struct bench b = {.bed = bed};
#define RUN(name, fibers_, ops_, size_, fn_)                                                       \
    b.fibers = fibers_;                                                                            \
    b.ops = ops_;                                                                                  \
    b.size = size_;                                                                                \
    b.fn = fn_;                                                                                    \
    bench_run(&b, name)
    RUN("PUT 4 KiB, 64", 64, 8000, 4096, op_put);
    RUN("PUT 4 KiB, 1", 1, 300, 4096, op_put);
    RUN("PUT 1 MiB, 16", 16, 400, MIB, op_put);
    RUN("PUT 1 MiB, 1", 1, 100, MIB, op_put);
    RUN("HEAD, 16", 16, 100000, 0, op_head);
    RUN("GET 4 KiB, 64", 64, 100000, 0, op_get_small);
    RUN("GET 4 KiB of 1 MiB, 16", 16, 20000, 0, op_range);
    RUN("GET 1 MiB, 8", 8, 1000, 0, op_get_large);
    RUN("LIST 1000, 4", 4, 1000, 0, op_list);
    RUN("DELETE, 16", 16, 4000, 0, op_delete);
#undef RUN
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    bed_run(argc > 1 ? (u32)atoi(argv[1]) : 1, bench_body);
    return 0;
}
