// SPDX-License-Identifier: Apache-2.0
#include "bed.h"

#include <ftw.h>
#include <unistd.h>

#include "base/log.h"

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void bed_open(struct bed *bed)
{
    const char *drives[] = {bed->dir};
    struct store_options so = {.drives = drives,
                               .drive_count = 1,
                               .pg_count = 16,
                               .segment_bytes = 4 * MIB,
                               .cache_bytes = 64 * MIB};
    struct meta_options mo = {.part_bytes_min = TEST_PART_MIN, .buckets_max = 100};
    CHECK_OK(store_open(&so, &bed->store));
    CHECK_OK(meta_open(bed->store, &mo, &bed->meta));
}

static void bed_close(struct bed *bed)
{
    meta_close(bed->meta);
    store_close(bed->store);
}

void bed_reopen(struct bed *bed)
{
    bed_close(bed);
    bed_open(bed);
}

static void bed_fiber(void *arg)
{
    struct bed *bed = arg;
    bed_open(bed);
    bed->body(bed);
    bed_check_idle(bed);
    bed_close(bed);
}

static void print_line(enum log_level level, const char *line, size_t len)
{
    (void)level;
    fprintf(stderr, "%.*s\n", (int)len, line);
}

static u64 no_clock(void)
{
    return 0;
}

void bed_run(u32 cores, bed_body body)
{
    struct bed bed = {.cores = cores, .body = body, .seed = 1};
    log_init(print_line, no_clock, LOG_LEVEL_WARN, false);
    snprintf(bed.dir, sizeof(bed.dir), "/var/tmp/leat-meta-XXXXXX");
    CHECK(mkdtemp(bed.dir) != NULL);
    run_cores(cores, bed_fiber, &bed);
    nftw(bed.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void run_both(void **state)
{
    bed_body body = ((const struct bed_test *)*state)->body;
    bed_run(1, body);
    bed_run(2, body);
}

int bed_main(int argc, char **argv, const struct bed_test *tests, size_t count)
{
    struct CMUnitTest *both = calloc(count, sizeof(*both));
    CHECK(both != NULL);
    for (size_t i = 0; i < count; i++) {
        both[i] = (struct CMUnitTest){.name = tests[i].name,
                                      .test_func = run_both,
                                      .initial_state = (void *)(uintptr_t)&tests[i]};
    }
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    int failed = _cmocka_run_group_tests("meta", both, count, NULL, NULL);
    free(both);
    return failed;
}

void bed_on(u32 core, fiber_fn fn, void *arg)
{
    CHECK_OK(core_call(core, fn, arg));
}

struct parallel {
    void (*fn)(void *arg, u32 i);
    void *arg;
    u32 next;
    u32 count;
};

static void parallel_fiber(void *arg)
{
    struct parallel *p = arg;
    while (p->next < p->count) {
        p->fn(p->arg, p->next++);
    }
}

void bed_parallel(u32 count, void (*fn)(void *arg, u32 i), void *arg)
{
    struct parallel p = {.fn = fn, .arg = arg, .count = count};
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < 64; i++) {
        CHECK_OK(group_spawn(&g, parallel_fiber, &p));
    }
    group_join(&g);
    group_deinit(&g);
}

struct count_call {
    struct bed *bed;
    struct bed_counts *out;
};

static void count_core(void *arg)
{
    struct count_call *c = arg;
    struct meta_usage m;
    struct store_usage s;
    size_t total;
    size_t used;
    meta_usage(c->bed->meta, &m);
    store_usage(c->bed->store, &s);
    buf_usage(&total, &used);
    c->out->meta.writers += m.writers;
    c->out->meta.readers += m.readers;
    c->out->meta.commits += m.commits;
    c->out->meta.upload_gates += m.upload_gates;
    c->out->meta.buckets += m.buckets;
    c->out->keys += s.keys;
    c->out->live_bytes += s.live_bytes;
    c->out->buf_bytes += used;
}

void bed_counts(struct bed *bed, struct bed_counts *out)
{
    struct count_call c = {.bed = bed, .out = out};
    *out = (struct bed_counts){0};
    // Twice round first: what cores have sent home by message has arrived then.
    for (u32 i = 0; i < 3; i++) {
        *out = (struct bed_counts){0};
        CHECK_OK(core_call_all(count_core, &c));
    }
}

void bed_check_idle(struct bed *bed)
{
    struct bed_counts c;
    bed_counts(bed, &c);
    CHECK(c.meta.writers == 0 && c.meta.readers == 0);
    CHECK(c.meta.commits == 0 && c.meta.upload_gates == 0);
}

void pattern(u64 seed, u64 at, u8 *out, size_t len)
{
    for (size_t i = 0; i < len;) {
        u64 word_at = (at + i) / 8;
        u64 state = seed * 0x9e3779b97f4a7c15u + word_at;
        u64 word = draw(&state);
        for (size_t j = (at + i) % 8; j < 8 && i < len; j++) {
            out[i++] = (u8)(word >> 8 * j);
        }
    }
}

static enum err put_bytes(struct object_writer *w, const struct put *p)
{
    u64 seed = p->seed + p->size;
    for (u64 at = 0; at < p->size;) {
        u8 *to;
        size_t room;
        TRY(object_write_buffer(w, &to, &room));
        CHECK(room > 0);
        size_t n = draw_below(&seed, 4) == 0 ? 1 + draw_below(&seed, 70000) : room;
        n = MIN(n, room);
        n = MIN(n, p->size - at);
        pattern(p->seed, at, to, n);
        TRY(object_write_advance(w, n));
        at += n;
    }
    return OK;
}

enum err put_run(struct meta *m, const struct put *p, struct object_info *info)
{
    struct object_writer *w;
    struct object_digests d;
    struct object_finish f = {
        .attrs = p->attrs, .attr_count = p->attr_count, .condition = p->condition};
    struct object_write_options o = {
        .bucket = p->bucket,
        .key = p->key,
        .size_expected = p->is_size_unknown ? UINT64_MAX : p->size,
        .checksums = p->checksums | (1u << p->checksum & ~1u),
        .needs_md5 = true,
        .upload_id = p->upload_id,
        .part_number = p->part_number,
    };
    TRY(object_write_begin(m, &o, &w));
    enum err e = put_bytes(w, p);
    e = e == OK ? object_write_digests(w, &d) : e;
    if (e != OK) {
        object_write_abort(w);
        return e;
    }
    CHECK(d.size == p->size);
    f.checksum.algorithm = p->checksum;
    memcpy(f.checksum.value, d.checksum[p->checksum], CHECKSUM_BYTES_MAX);
    return object_write_finish(w, &f, info);
}

enum err put_simple(struct meta *m, struct bytes bucket, struct bytes key, u64 size, u64 seed)
{
    struct object_info info;
    struct put p = {.bucket = bucket, .key = key, .size = size, .seed = seed};
    return put_run(m, &p, &info);
}

void check_bytes(struct object_reader *r, u64 seed, u64 offset, u64 len)
{
    u8 *want = malloc(MIB);
    CHECK(want != NULL);
    u64 end = MIN(offset + len, r->info.size);
    while (offset < end) {
        struct bytes got;
        CHECK_OK(object_read(r, offset, end - offset, &got));
        CHECK(got.len > 0 && got.len <= end - offset && got.len <= MIB);
        pattern(seed, offset, want, got.len);
        CHECK(memcmp(got.data, want, got.len) == 0);
        offset += got.len;
    }
    free(want);
}

void check_object(struct meta *m, struct bytes bucket, struct bytes key, u64 size, u64 seed)
{
    struct object_reader r;
    struct arena arena;
    struct bytes end;
    arena_init(&arena, 4 * MIB);
    CHECK_OK(object_open(m, bucket, key, false, &arena, &r));
    CHECK(r.info.size == size);
    check_bytes(&r, seed, 0, size);
    CHECK_OK(object_read(&r, size, 10, &end));
    CHECK(end.len == 0);
    object_close(&r);
    arena_deinit(&arena);
}

enum err head(struct meta *m, struct bytes bucket, struct bytes key, struct object_info *info)
{
    struct object_reader r;
    struct arena arena;
    arena_init(&arena, 4 * MIB);
    enum err e = object_open(m, bucket, key, true, &arena, &r);
    if (e == OK) {
        *info = r.info;
        object_close(&r);
    }
    arena_deinit(&arena);
    return e;
}

struct bytes key_of(char *buf, size_t cap, const char *prefix, u64 n)
{
    int len = snprintf(buf, cap, "%s%llu", prefix, (unsigned long long)n);
    CHECK(len > 0 && (size_t)len < cap);
    return BYTES(buf, (size_t)len);
}
