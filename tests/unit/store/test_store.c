// SPDX-License-Identifier: Apache-2.0
// The store on a real filesystem: what is committed comes back, over restarts, cores and drives.
#include "store_test.h"

#define KEYS 300

static u32 value_bytes(u32 i)
{
    return (i * 37) % 5000 + (i % 50 == 0 ? 40000 : 0);
}

MAY_WAIT static void put_keys(struct store *s, u32 version)
{
    u8 *data = malloc(STORE_INLINE_BYTES_MAX);
    for (u32 i = 0; i < KEYS; i++) {
        char key[32];
        snprintf(key, sizeof(key), "key-%05u", i);
        pattern_fill(data, value_bytes(i), i * 1000 + version);
        CHECK(kv_put(s, key, data, value_bytes(i)) == OK);
    }
    free(data);
}

MAY_WAIT static void check_keys(struct store *s, u32 version)
{
    u8 *data = malloc(STORE_INLINE_BYTES_MAX);
    u8 *got = malloc(STORE_INLINE_BYTES_MAX);
    for (u32 i = 0; i < KEYS; i++) {
        char key[32];
        u32 len = 0;
        snprintf(key, sizeof(key), "key-%05u", i);
        pattern_fill(data, value_bytes(i), i * 1000 + version);
        CHECK(kv_get(s, key, got, &len) == OK);
        CHECK(len == value_bytes(i) && memcmp(got, data, len) == 0);
    }
    free(data);
    free(got);
}

MAY_WAIT static void first_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    u8 byte;
    u32 len;
    CHECK(kv_get(s, "key-00000", &byte, &len) == ERR_NOT_FOUND);
    put_keys(s, 1);
    check_keys(s, 1);
    put_keys(s, 2);
    CHECK(kv_put(s, "doomed", "x", 1) == OK);
    CHECK(kv_delete(s, "doomed") == OK);
    CHECK(kv_delete(s, "never there") == OK);
    CHECK(kv_get(s, "doomed", &byte, &len) == ERR_NOT_FOUND);
    store_close(s);
}

MAY_WAIT static void second_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    u8 byte;
    u32 len;
    CHECK(store_open(&o, &s) == OK);
    check_keys(s, 2);
    check_keys(s, 2);
    CHECK(kv_get(s, "doomed", &byte, &len) == ERR_NOT_FOUND);
    store_close(s);
}

static void test_reopen(void **state)
{
    (void)state;
    struct scratch scratch;
    scratch_make(&scratch);
    run_cores(1, first_run, &scratch);
    run_cores(1, second_run, &scratch);
    run_cores(2, second_run, &scratch);
    run_cores(3, second_run, &scratch);
    run_cores(1, second_run, &scratch);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reopen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
