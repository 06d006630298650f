// SPDX-License-Identifier: Apache-2.0
// The cache: budget, pins, replacement, scan resistance, and every value released exactly once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "store/cache.h"

#define VALUES 512

// A value that knows how often it was released.
struct value {
    u32 releases;
    u8 data[64];
};

static void value_release(void *arg)
{
    struct value *v = arg;
    v->releases++;
    memset(v->data, 0xdd, sizeof(v->data));
}

static u64 next_random(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static struct cache_entry *insert(struct cache *c, u64 key, struct value *v, u32 memory_bytes)
{
    struct cache_item item = {
        .key = {key, ~key},
        .data = v->data,
        .data_bytes = sizeof(v->data),
        .memory_bytes = memory_bytes,
        .value = v,
        .release = value_release,
    };
    memset(v->data, (u8)key, sizeof(v->data));
    return cache_insert(c, &item);
}

static bool is_cached(struct cache *c, u64 key)
{
    struct cache_entry *e = cache_get(c, key, ~key);
    if (e != NULL) {
        assert_int_equal(e->data[5], (u8)key);
        cache_unpin(c, e);
    }
    return e != NULL;
}

static void test_budget(void **state)
{
    (void)state;
    struct cache *c = cache_create(64 * KIB);
    static struct value values[VALUES];
    memset(values, 0, sizeof(values));
    for (u64 i = 0; i < VALUES; i++) {
        struct cache_entry *e = insert(c, i, &values[i], 1000);
        assert_non_null(e);
        cache_unpin(c, e);
        struct cache_stats s;
        cache_stats(c, &s);
        assert_true(s.bytes <= s.bytes_max && s.entries <= 64);
        assert_true(is_cached(c, i));
    }
    u32 kept = 0;
    for (u64 i = 0; i < VALUES; i++) {
        assert_int_equal(values[i].releases, is_cached(c, i) ? 0 : 1);
        kept += values[i].releases == 0;
    }
    assert_true(kept > 50);
    cache_destroy(c);
    for (u64 i = 0; i < VALUES; i++) {
        assert_int_equal(values[i].releases, 1);
    }
}

static void test_pinned_survives(void **state)
{
    (void)state;
    struct cache *c = cache_create(64 * KIB);
    static struct value values[VALUES];
    memset(values, 0, sizeof(values));
    struct cache_entry *removed = insert(c, 0, &values[0], 1000);
    struct cache_entry *evicted = insert(c, 1, &values[1], 1000);
    struct cache_entry *replaced = insert(c, 2, &values[2], 1000);
    cache_remove(c, 0, ~(u64)0);
    cache_remove(c, 0, ~(u64)0);
    cache_unpin(c, insert(c, 2, &values[3], 1000));
    for (u64 i = 4; i < VALUES; i++) {
        cache_unpin(c, insert(c, i, &values[i], 1000));
    }
    assert_false(is_cached(c, 0));
    assert_false(is_cached(c, 1));
    assert_int_equal(removed->data[0], 0);
    assert_int_equal(evicted->data[0], 1);
    assert_int_equal(replaced->data[0], 2);
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(values[i].releases, 0);
    }
    cache_unpin(c, removed);
    cache_unpin(c, evicted);
    cache_unpin(c, replaced);
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(values[i].releases, 1);
    }
    cache_destroy(c);
}

static void test_refused(void **state)
{
    (void)state;
    struct value v = {0};
    struct cache *none = cache_create(0);
    assert_null(insert(none, 1, &v, 10));
    assert_null(cache_insert_copy(none, 1, 2, "x", 1));
    assert_null(cache_get(none, 1, 2));
    cache_destroy(none);
    struct cache *c = cache_create(64 * KIB);
    struct value small = {0};
    cache_unpin(c, insert(c, 1, &small, 10));
    // Too large: it is not kept, and neither is what it would have replaced.
    assert_null(insert(c, 1, &v, 32 * KIB));
    assert_false(is_cached(c, 1));
    assert_int_equal(small.releases, 1);
    assert_int_equal(v.releases, 0);
    cache_destroy(c);
}

static void test_copy(void **state)
{
    (void)state;
    struct cache *c = cache_create(MIB);
    char text[] = "hello";
    cache_unpin(c, cache_insert_copy(c, 7, 8, text, sizeof(text)));
    text[0] = 'j';
    struct cache_entry *e = cache_get(c, 7, 8);
    assert_non_null(e);
    assert_int_equal(e->data_bytes, 6);
    assert_string_equal((const char *)e->data, "hello");
    assert_null(cache_get(c, 8, 7));
    cache_unpin(c, e);
    e = cache_insert_copy(c, 7, 9, NULL, 0);
    assert_non_null(e);
    assert_int_equal(e->data_bytes, 0);
    cache_unpin(c, e);
    cache_clear(c);
    assert_null(cache_get(c, 7, 8));
    cache_destroy(c);
}

// A hot set that is asked for again and again survives a scan of names used once.
static void test_scan_resistance(void **state)
{
    (void)state;
    struct cache *c = cache_create(100 * KIB);
    u8 data[900] = {0};
    u64 scan = 1000000;
    u32 hits = 0;
    u32 asked = 0;
    for (u32 round = 0; round < 200; round++) {
        for (u64 hot = 0; hot < 60; hot++) {
            struct cache_entry *e = cache_get(c, hot, 0);
            asked += round > 10;
            hits += round > 10 && e != NULL;
            if (e == NULL) {
                e = cache_insert_copy(c, hot, 0, data, sizeof(data));
            }
            cache_unpin(c, e);
        }
        for (u32 i = 0; i < 200; i++) {
            cache_unpin(c, cache_insert_copy(c, scan++, 0, data, sizeof(data)));
        }
    }
    assert_true(hits * 100 > asked * 95);
    cache_destroy(c);
}

// Random operations; the cache may forget, but never lies, overruns, leaks or releases twice.
static void test_random(void **state)
{
    (void)state;
    u64 random = 42;
    struct cache *c = cache_create(32 * KIB);
    static u32 versions[256];
    struct cache_entry *pinned[8] = {0};
    u32 pinned_version[8] = {0};
    for (u32 i = 0; i < 200000; i++) {
        u64 key = next_random(&random) % 256;
        u32 p = (u32)(next_random(&random) % 8);
        u64 action = next_random(&random) % 10;
        if (action < 4) {
            versions[key]++;
            u32 data[200];
            for (u32 w = 0; w < 200; w++) {
                data[w] = versions[key];
            }
            u32 bytes = (u32)(4 + next_random(&random) % 790);
            struct cache_entry *e = cache_insert_copy(c, key, 1, data, bytes);
            assert_non_null(e);
            cache_unpin(c, e);
        } else if (action == 4) {
            versions[key]++;
            cache_remove(c, key, 1);
        } else if (action == 5 && pinned[p] != NULL) {
            assert_memory_equal(pinned[p]->data, &pinned_version[p], 4);
            cache_unpin(c, pinned[p]);
            pinned[p] = NULL;
        } else {
            struct cache_entry *e = cache_get(c, key, 1);
            if (e != NULL) {
                assert_memory_equal(e->data, &versions[key], 4);
                if (pinned[p] == NULL) {
                    pinned[p] = e;
                    pinned_version[p] = versions[key];
                } else {
                    cache_unpin(c, e);
                }
            }
        }
        struct cache_stats s;
        cache_stats(c, &s);
        assert_true(s.bytes <= s.bytes_max);
    }
    for (u32 p = 0; p < 8; p++) {
        if (pinned[p] != NULL) {
            cache_unpin(c, pinned[p]);
        }
    }
    cache_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),          cmocka_unit_test(test_pinned_survives),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_copy),
        cmocka_unit_test(test_scan_resistance), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
