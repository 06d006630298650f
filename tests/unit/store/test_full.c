// SPDX-License-Identifier: Apache-2.0
// A drive that fills up, and compaction: space comes back, nothing acknowledged is lost, deletes
// and reads go on.
#include "store_test.h"

#include "store/shard.h"

#define VALUE_BYTES 14000u
#define KEYS_MAX    20000u

static struct store_options tiny_options(const struct scratch *s, u32 segments)
{
    struct store_options o = small_options(s);
    o.segment_bytes = STORE_SEGMENT_BYTES_MIN;
    o.drive_bytes_max = segments * o.segment_bytes;
    o.cache_bytes = 0;
    return o;
}

struct full_args {
    struct store_options options;
    u32 version[KEYS_MAX]; // 0: absent
    u32 keys;
    u32 turn;
};

MAY_WAIT static enum err put_version(struct store *s, u32 i, u32 version)
{
    u8 *data = malloc(VALUE_BYTES);
    char key[32];
    snprintf(key, sizeof(key), "key-%06u", i);
    pattern_fill(data, VALUE_BYTES, (u64)i << 20 | version);
    enum err e = kv_put(s, key, data, VALUE_BYTES);
    free(data);
    return e;
}

MAY_WAIT static void check_version(struct store *s, u32 i, u32 version)
{
    u8 *data = malloc(VALUE_BYTES);
    u8 *got = malloc(STORE_INLINE_BYTES_MAX);
    char key[32];
    u32 len = 0;
    snprintf(key, sizeof(key), "key-%06u", i);
    enum err e = kv_get(s, key, got, &len);
    if (version == 0) {
        CHECK(e == ERR_NOT_FOUND);
    } else {
        pattern_fill(data, VALUE_BYTES, (u64)i << 20 | version);
        CHECK(e == OK && len == VALUE_BYTES && memcmp(got, data, len) == 0);
    }
    free(data);
    free(got);
}

MAY_WAIT static void check_all(struct store *s, const struct full_args *a)
{
    for (u32 i = 0; i < a->keys; i++) {
        check_version(s, i, a->version[i]);
    }
    struct store_usage u;
    store_usage(s, &u);
    u64 keys = 0;
    for (u32 i = 0; i < a->keys; i++) {
        keys += a->version[i] != 0;
    }
    if (s->cores == 1) {
        CHECK(u.keys == keys);
    }
}

MAY_WAIT static void key_delete(struct store *s, struct full_args *a, u32 i)
{
    char key[32];
    snprintf(key, sizeof(key), "key-%06u", i);
    CHECK(kv_delete(s, key) == OK);
    a->version[i] = 0;
}

MAY_WAIT static void fill_run(void *arg)
{
    struct full_args *a = arg;
    struct store *s;
    CHECK(store_open(&a->options, &s) == OK);
    check_all(s, a);
    u32 first = a->keys;
    enum err e = OK;
    for (u32 i = a->keys; i < KEYS_MAX && e == OK; i++) {
        e = put_version(s, i, 1);
        if (e == OK) {
            a->version[i] = 1;
            a->keys = i + 1;
        }
    }
    CHECK(e == ERR_DRIVE_FULL);
    CHECK(a->turn > 0 || a->keys - first > 150);
    check_all(s, a); // still readable
    // Deleting works, and goes on working.
    for (u32 i = a->turn % 2; i < a->keys; i += 2) {
        key_delete(s, a, i);
    }
    check_all(s, a);
    CHECK(store_compact_all(s) == OK);
    check_all(s, a);
    // And there is room again.
    u32 again = 0;
    for (u32 i = a->turn % 2; i < a->keys && again < a->keys / 4; i += 2, again++) {
        e = put_version(s, i, a->turn + 3);
        CHECK(e == OK);
        a->version[i] = a->turn + 3;
    }
    check_all(s, a);
    store_close(s);
    a->turn++;
}

static void test_full(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make_fast(&s);
    struct full_args *a = calloc(1, sizeof(*a));
    a->options = tiny_options(&s, 24);
    for (u32 i = 0; i < 3; i++) {
        run_cores(1, fill_run, a);
    }
    run_cores(2, fill_run, a);
    free(a);
    scratch_remove(&s);
}

// ---- compaction while others read and write

struct load {
    struct store *store;
    struct full_args *args;
    u32 first;
    u32 step;
    bool is_stopped;
    u32 written;
};

MAY_WAIT static void writer_fiber(void *arg)
{
    struct load *l = arg;
    for (u32 round = 1; round <= 12; round++) {
        for (u32 i = l->first; i < l->args->keys; i += l->step) {
            enum err e = put_version(l->store, i, round);
            if (e == ERR_DRIVE_FULL) { // compaction is behind: the old version stays
                CHECK(fiber_sleep(NS_PER_MS) == OK);
                continue;
            }
            CHECK(e == OK);
            l->args->version[i] = round;
            l->written++;
            check_version(l->store, i, round);
        }
    }
    l->is_stopped = true;
}

MAY_WAIT static void load_run(void *arg)
{
    struct full_args *a = arg;
    struct store *s;
    CHECK(store_open(&a->options, &s) == OK);
    struct group g;
    struct load loads[4];
    group_init(&g);
    a->keys = 120;
    for (u32 i = 0; i < 4; i++) {
        loads[i] = (struct load){.store = s, .args = a, .first = i, .step = 4};
        CHECK(group_spawn(&g, writer_fiber, &loads[i]) == OK);
    }
    while (!loads[0].is_stopped) {
        enum err e = store_compact_all(s);
        CHECK(e == OK || e == ERR_DRIVE_FULL);
        CHECK(fiber_sleep(5 * NS_PER_MS) == OK);
    }
    group_join(&g);
    group_deinit(&g);
    check_all(s, a);
    CHECK(metric_sum(reactor_runtime(reactor_current()), METRIC_STORE_COMPACTIONS) > 10);
    // Everything deleted and compacted: no tombstone stays for ever.
    for (u32 i = 0; i < a->keys; i++) {
        key_delete(s, a, i);
    }
    for (u32 i = 0; i < 3; i++) {
        CHECK(store_compact_all(s) == OK);
    }
    check_all(s, a);
    store_close(s);
}

MAY_WAIT static void verify_run(void *arg)
{
    struct full_args *a = arg;
    struct store *s;
    CHECK(store_open(&a->options, &s) == OK);
    check_all(s, a);
    store_close(s);
}

static void compact_under_load(u32 cores)
{
    struct scratch s;
    scratch_make_fast(&s);
    struct full_args *a = calloc(1, sizeof(*a));
    a->options = tiny_options(&s, 40);
    run_cores(cores, load_run, a);
    run_cores(1, verify_run, a);
    run_cores(3, verify_run, a);
    free(a);
    scratch_remove(&s);
}

static void test_compact_under_load(void **state)
{
    (void)state;
    compact_under_load(1);
    compact_under_load(2);
}

// ---- a deleted key stays deleted, whatever compaction does in between

MAY_WAIT static void tombstone_run(void *arg)
{
    struct full_args *a = arg;
    struct store *s;
    CHECK(store_open(&a->options, &s) == OK);
    check_all(s, a);
    for (u32 i = 0; i < a->keys; i++) {
        if ((i + a->turn) % 3 == 0) {
            CHECK(put_version(s, i, a->turn + 1) == OK);
            a->version[i] = a->turn + 1;
        } else if ((i + a->turn) % 3 == 1) {
            key_delete(s, a, i);
        }
    }
    CHECK(store_compact_all(s) == OK);
    check_all(s, a);
    store_close(s);
    a->turn++;
}

static void test_deleted_stays_deleted(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make_fast(&s);
    struct full_args *a = calloc(1, sizeof(*a));
    a->options = tiny_options(&s, 40);
    a->options.compact_percent = 20;
    a->keys = 100;
    for (u32 i = 0; i < 12; i++) {
        run_cores(1 + i % 2, tombstone_run, a);
    }
    free(a);
    scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_compact_under_load),
        cmocka_unit_test(test_deleted_stays_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
