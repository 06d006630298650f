// SPDX-License-Identifier: Apache-2.0
// Buffers: classes, exhaustion, waiting, memory that moves between sizes, references on other
// cores.
#include "harness.h"

#include "core/buf.h"

#define CHUNK_BYTES (1028 * 4 * KIB)

static u32 take_all(size_t bytes, struct buf **out, u32 max)
{
    u32 n = 0;
    while (n < max && (out[n] = buf_get(bytes)) != NULL) {
        assert_true(out[n]->capacity_bytes >= bytes);
        assert_int_equal((uintptr_t)out[n]->data % 4096, 0);
        memset(out[n]->data, (int)n, bytes);
        n++;
    }
    return n;
}

static void put_all(struct buf **bufs, u32 n, size_t bytes)
{
    for (u32 i = 0; i < n; i++) {
        for (size_t at = 0; at < bytes; at += 1023) {
            assert_int_equal(bufs[i]->data[at], (u8)i); // nobody else wrote here
        }
        buf_put(bufs[i]);
    }
}

static struct buf *taken[3000];

static void classes_body(void *arg)
{
    (void)arg;
    size_t total;
    size_t used;
    buf_usage(&total, &used);
    assert_int_equal(total, 2 * CHUNK_BYTES);
    assert_int_equal(used, 0);
    assert_null(buf_get(BUF_BYTES_MAX + 1));
    // Every size can have all of the memory, after every other had it.
    const struct {
        size_t bytes;
        u32 count;
    } sizes[] = {
        {4096, 2048}, {16384, 512}, {65536, 128}, {256 * KIB, 32}, {MIB + 4096, 8},    {4 * MIB, 2},
        {1, 2048},    {4097, 512},  {MIB, 8},     {MIB + 4097, 2}, {BUF_BYTES_MAX, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        u32 n = take_all(sizes[i].bytes, taken, ARRAY_LEN(taken));
        assert_int_equal(n, sizes[i].count);
        buf_usage(&total, &used);
        assert_int_equal(used, n * (size_t)taken[0]->capacity_bytes);
        put_all(taken, n, sizes[i].bytes);
        buf_usage(&total, &used);
        assert_int_equal(used, 0);
    }
}

static void test_memory_moves_between_sizes(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 1, .buf_bytes = 8 * MIB}, classes_body, NULL);
}

// Random gets and puts of all sizes against a list of what is held; contents must survive.
static void random_body(void *arg)
{
    (void)arg;
    static struct buf *held[256];
    static const size_t sizes[] = {100, 4096, 10000, 16384, 65536, 200000, MIB, MIB + 4096};
    u32 count = 0;
    u32 refused = 0;
    for (u32 i = 0; i < 20000; i++) {
        u64 draw = core_random_u64();
        if (count < ARRAY_LEN(held) && draw % 5 < 3) {
            struct buf *b = buf_get(sizes[(draw >> 8) % ARRAY_LEN(sizes)]);
            if (b == NULL) {
                refused++;
                continue;
            }
            memcpy(b->data, &b, sizeof(b));
            memcpy(b->data + b->capacity_bytes - sizeof(b), &b, sizeof(b));
            held[count++] = b;
        } else if (count > 0) {
            u32 at = (u32)(draw >> 8) % count;
            struct buf *b = held[at];
            assert_memory_equal(b->data, &b, sizeof(b));
            assert_memory_equal(b->data + b->capacity_bytes - sizeof(b), &b, sizeof(b));
            buf_put(b);
            held[at] = held[--count];
        }
    }
    assert_true(refused > 0); // the limit was met, and it was no more than an answer
    while (count > 0) {
        buf_put(held[--count]);
    }
    size_t total;
    size_t used;
    buf_usage(&total, &used);
    assert_int_equal(used, 0);
    assert_int_equal(take_all(BUF_BYTES_MAX, held, 8), total / CHUNK_BYTES); // it is whole again
    put_all(held, (u32)(total / CHUNK_BYTES), 1);
}

static void test_random_sizes(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 1, .buf_bytes = 16 * MIB}, random_body, NULL);
}

struct getter {
    size_t bytes;
    u32 order;
    u32 *served;
};

static void get_and_put(void *arg)
{
    struct getter *g = arg;
    struct buf *b;
    assert_int_equal(buf_get_wait(g->bytes, &b), OK);
    g->order = ++*g->served;
    buf_put(b);
}

static void wait_body(void *arg)
{
    (void)arg;
    u32 served = 0;
    struct buf *all = buf_get(BUF_BYTES_MAX);
    struct getter getters[3] = {{BUF_BYTES_MAX, 0, &served}, {1, 0, &served}, {MIB, 0, &served}};
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < 3; i++) {
        spawn(&g, get_and_put, &getters[i]);
    }
    fiber_yield();
    assert_int_equal(served, 0);
    buf_put(all);
    group_join(&g);
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(getters[i].order, i + 1); // first come, first served
    }
    group_deinit(&g);
}

static void test_waiters_are_served_in_order(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 1, .buf_bytes = 1}, wait_body, NULL);
}

static void get_expect_limit(void *arg)
{
    struct buf *b;
    u32 *limits = arg;
    enum err e = buf_get_wait(1, &b);
    if (e == OK) {
        buf_put(b);
    } else {
        assert_int_equal(e, ERR_LIMIT_REACHED);
        ++*limits;
    }
}

static void wait_limit_body(void *arg)
{
    (void)arg;
    u32 limits = 0;
    struct buf *all = buf_get(BUF_BYTES_MAX);
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < BUF_WAITERS_MAX + 3; i++) {
        spawn(&g, get_expect_limit, &limits);
    }
    while (limits < 3) {
        fiber_yield();
    }
    buf_put(all);
    group_join(&g);
    assert_int_equal(limits, 3);
    group_deinit(&g);
}

static void test_waiters_are_limited(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 1, .buf_bytes = 1, .fibers_max = 2048},
             wait_limit_body, NULL);
}

static void read_and_put(void *arg)
{
    struct buf *b = arg;
    assert_int_equal(b->data[0], 42);
    assert_int_not_equal(b->core, core_id());
    buf_put(b);
    buf_put(b);
}

static void foreign_body(void *arg)
{
    (void)arg;
    size_t total;
    size_t used;
    struct buf *b = buf_get(100);
    b->data[0] = 42;
    for (u32 i = 0; i < 4; i++) {
        buf_ref(b);
    }
    assert_int_equal(core_call(1, read_and_put, b), OK);
    assert_int_equal(core_call(2, read_and_put, b), OK);
    while (b->refs > 1) { // the messages are on their way home
        assert_int_equal(fiber_sleep(10 * NS_PER_US), OK);
    }
    assert_int_equal(b->data[0], 42);
    buf_put(b);
    buf_usage(&total, &used);
    assert_int_equal(used, 0);
    buf_put(NULL);
    // The last reference may be dropped elsewhere, even while the runtime stops.
    b = buf_get(100);
    b->data[0] = 42;
    buf_ref(b);
    assert_int_equal(core_call(1, read_and_put, b), OK);
}

static void test_put_on_another_core(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 3}, foreign_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_moves_between_sizes),
        cmocka_unit_test(test_random_sizes),
        cmocka_unit_test(test_waiters_are_served_in_order),
        cmocka_unit_test(test_waiters_are_limited),
        cmocka_unit_test(test_put_on_another_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
