// SPDX-License-Identifier: Apache-2.0
// Streams of one core that are hashed together give the digests that they give alone, whoever waits
// for whom and however their bytes arrive.
#include "harness.h"

#include "meta/md5_batch.h"

#define STREAM_BYTES_MAX (300 * KIB)

struct stream_test {
    struct md5_batch *batch;
    u64 seed;
    const u8 *data;
    size_t len;
    bool is_late; // yields between its pieces
    u32 *failed;
};

static void stream_fiber(void *arg)
{
    struct stream_test *t = arg;
    struct md5_stream s;
    u8 got[MD5_LEN];
    u8 want[MD5_LEN];
    md5_stream_open(&s, t->batch);
    for (size_t at = 0; at < t->len;) {
        size_t n = 1 + draw_below(&t->seed, 100000);
        n = MIN(n, t->len - at);
        md5_stream_add(&s, t->data + at, n);
        at += n;
        if (draw_below(&t->seed, 3) == 0) {
            md5_stream_flush(&s);
        } else if (t->is_late) {
            fiber_yield();
        }
    }
    md5_stream_flush(&s);
    struct md5 ctx = s.ctx;
    md5_stream_close(&s);
    md5_final(&ctx, got);
    md5_digest(BYTES(t->data, t->len), want);
    *t->failed += memcmp(got, want, MD5_LEN) != 0;
}

static void many_streams_body(void *arg)
{
    u8 *data = malloc(STREAM_BYTES_MAX);
    struct md5_batch batch;
    struct group g;
    u32 failed = 0;
    u64 seed = 42;
    (void)arg;
    assert_non_null(data);
    for (size_t i = 0; i < STREAM_BYTES_MAX; i++) {
        data[i] = (u8)draw(&seed);
    }
    for (u32 streams = 1; streams <= 100; streams += 33) {
        struct stream_test tests[100];
        md5_batch_init(&batch);
        group_init(&g);
        for (u32 i = 0; i < streams; i++) {
            tests[i] = (struct stream_test){
                .batch = &batch,
                .seed = draw(&seed),
                .data = data,
                .len = draw_below(&seed, draw_below(&seed, 2) == 0 ? 200 : STREAM_BYTES_MAX),
                .is_late = draw_below(&seed, 2) == 0,
                .failed = &failed,
            };
            assert_int_equal(group_spawn(&g, stream_fiber, &tests[i]), OK);
        }
        group_join(&g);
        group_deinit(&g);
        assert_int_equal(failed, 0);
        assert_int_equal(batch.open, 0);
        assert_true(batch.urgent.next == &batch.urgent && batch.lazy.next == &batch.lazy);
        while (batch.deferred.is_queued) {
            fiber_yield();
        }
    }
    free(data);
}

static void test_many_streams(void **state)
{
    (void)state;
    run_cores(1, many_streams_body, NULL);
}

static void small_fiber(void *arg)
{
    struct stream_test *t = arg;
    t->len = 4096;
    struct md5_stream s;
    md5_stream_open(&s, t->batch);
    md5_stream_add(&s, t->data, t->len);
    md5_stream_flush(&s);
    md5_stream_close(&s);
}

// 64 small streams of one turn share runs: that is what makes a small PUT cheap.
static void lanes_body(void *arg)
{
    static const u8 data[4096];
    struct md5_batch batch;
    struct stream_test tests[64];
    struct group g;
    (void)arg;
    md5_batch_init(&batch);
    group_init(&g);
    for (u32 i = 0; i < 64; i++) {
        tests[i] = (struct stream_test){.batch = &batch, .data = data};
        assert_int_equal(group_spawn(&g, small_fiber, &tests[i]), OK);
    }
    group_join(&g);
    group_deinit(&g);
    assert_int_equal(batch.pieces, 64);
    assert_int_equal(batch.runs, 1);
}

static void test_lanes_are_shared(void **state)
{
    (void)state;
    run_cores(1, lanes_body, NULL);
}

// A stream that nobody waits for comes along in a lane that an urgent one leaves empty.
static void along_body(void *arg)
{
    static const u8 data[8192];
    struct md5_batch batch;
    struct md5_stream lazy;
    struct md5_stream urgent;
    (void)arg;
    md5_batch_init(&batch);
    md5_stream_open(&lazy, &batch);
    md5_stream_open(&urgent, &batch);
    md5_stream_add(&lazy, data, 8192);
    md5_stream_add(&urgent, data, 4096);
    md5_stream_flush(&urgent);
    assert_int_equal(batch.runs, 1);
    assert_int_equal(lazy.len, 4096);
    md5_stream_close(&lazy);
    md5_stream_close(&urgent);
}

static void test_lazy_streams_come_along(void **state)
{
    (void)state;
    run_cores(1, along_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_streams),
        cmocka_unit_test(test_lanes_are_shared),
        cmocka_unit_test(test_lazy_streams_come_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
