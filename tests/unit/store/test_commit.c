// SPDX-License-Identifier: Apache-2.0
// Commits: atomic batches, limits, group commit, key locks, cursors, records released elsewhere.
#include "store_test.h"

#include "store/shard.h"

MAY_WAIT static u32 count_keys(struct store *s, u32 pg)
{
    struct pg_cursor c;
    u32 n = 0;
    u8 last[STORE_KEY_BYTES_MAX];
    u32 last_len = 0;
    for (bool ok = pg_cursor_seek(&c, s, pg, BYTES_NONE, false); ok; ok = pg_cursor_next(&c)) {
        CHECK(n == 0 || bytes_compare(BYTES(last, last_len), BYTES(c.key, c.key_len)) < 0);
        memcpy(last, c.key, c.key_len);
        last_len = c.key_len;
        n++;
    }
    return n;
}

#define MANY 1000

MAY_WAIT static void batch_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    struct store_change *changes = calloc(STORE_BATCH_MAX + 1, sizeof(*changes));
    char(*keys)[16] = calloc(STORE_BATCH_MAX + 1, sizeof(*keys));
    for (u32 i = 0; i <= STORE_BATCH_MAX; i++) {
        snprintf(keys[i], sizeof(keys[i]), "b%05u", i);
        changes[i].key = bytes_from_string(keys[i]);
        changes[i].payload = changes[i].key;
    }
    CHECK(pg_commit(s, 3, changes, 0) == OK);
    CHECK(pg_commit(s, 3, changes, STORE_BATCH_MAX + 1) == ERR_LIMIT_REACHED);
    CHECK(pg_commit(s, 3, changes, MANY) == OK);
    CHECK(count_keys(s, 3) == MANY);
    for (u32 i = 0; i < MANY; i++) {
        changes[i].is_delete = i % 10 != 0;
    }
    CHECK(pg_commit(s, 3, changes, MANY) == OK);
    CHECK(count_keys(s, 3) == MANY / 10);

    // Limits of one record.
    u8 *large = calloc(1, STORE_ATTRS_BYTES_MAX + 1);
    struct store_change c = {.key = BYTES_LITERAL("limits")};
    c.attrs = BYTES(large, STORE_ATTRS_BYTES_MAX + 1);
    CHECK(pg_commit(s, 3, &c, 1) == ERR_INVALID);
    c.attrs = BYTES(large, STORE_ATTRS_BYTES_MAX);
    CHECK(pg_commit(s, 3, &c, 1) == OK);
    c.payload = BYTES(large, STORE_INLINE_BYTES_MAX + 1);
    CHECK(pg_commit(s, 3, &c, 1) == ERR_INVALID);
    c.payload = BYTES(large, STORE_INLINE_BYTES_MAX);
    c.key = BYTES(large, STORE_KEY_BYTES_MAX + 1);
    CHECK(pg_commit(s, 3, &c, 1) == ERR_INVALID);
    c.key = BYTES(large, STORE_KEY_BYTES_MAX);
    CHECK(pg_commit(s, 3, &c, 1) == OK);
    struct pg_record r;
    CHECK(pg_read(s, 3, c.key, &r) == OK);
    CHECK(r.attrs.len == STORE_ATTRS_BYTES_MAX && r.payload.len == STORE_INLINE_BYTES_MAX);
    pg_record_release(&r);
    // The batch as a whole.
    struct store_change two[2] = {c, c};
    two[1].key = BYTES_LITERAL("second of a large batch");
    CHECK(pg_commit(s, 3, two, 2) == ERR_LIMIT_REACHED);
    CHECK(!pg_lookup(s, 3, two[1].key, &(struct pg_entry){0}));
    free(large);
    free(keys);
    free(changes);
    store_close(s);
}

MAY_WAIT static void batch_check_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    CHECK(count_keys(s, 3) == MANY / 10 + 2);
    struct pg_entry e;
    CHECK(pg_lookup(s, 3, BYTES_LITERAL("b00990"), &e) && !e.has_refs);
    CHECK(!pg_lookup(s, 3, BYTES_LITERAL("b00991"), &e));
    struct pg_cursor c;
    CHECK(pg_cursor_seek(&c, s, 3, BYTES_LITERAL("b00010"), true));
    CHECK(bytes_equal(BYTES(c.key, c.key_len), BYTES_LITERAL("b00020")));
    CHECK(!pg_cursor_seek(&c, s, 2, BYTES_NONE, false));
    store_close(s);
}

static void test_batches(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    run_cores(1, batch_run, &s);
    run_cores(1, batch_check_run, &s);
    scratch_remove(&s);
}

// ---- group commit

struct putter {
    struct store *store;
    u32 number;
    u32 rounds;
};

MAY_WAIT static void putter_fiber(void *arg)
{
    struct putter *p = arg;
    for (u32 i = 0; i < p->rounds; i++) {
        char key[32];
        snprintf(key, sizeof(key), "p%u-%u", p->number, i);
        CHECK(kv_put(p->store, key, key, (u32)strlen(key)) == OK);
    }
}

MAY_WAIT static void group_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    struct runtime *rt = reactor_runtime(reactor_current());
    i64 before = metric_sum(rt, METRIC_STORE_COMMITS);
    struct group g;
    struct putter putters[64];
    group_init(&g);
    for (u32 i = 0; i < 64; i++) {
        putters[i] = (struct putter){.store = s, .number = i, .rounds = 20};
        CHECK(group_spawn(&g, putter_fiber, &putters[i]) == OK);
    }
    group_join(&g);
    group_deinit(&g);
    i64 commits = metric_sum(rt, METRIC_STORE_COMMITS) - before;
    CHECK(commits * 20 <= 64 * 20); // at least 20 records a flush
    u8 *got = malloc(STORE_INLINE_BYTES_MAX);
    u32 len;
    CHECK(kv_get(s, "p63-19", got, &len) == OK && len == 6);
    free(got);
    store_close(s);
}

static void test_group_commit(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    run_cores(1, group_run, &s);
    scratch_remove(&s);
}

// ---- key locks

struct locker {
    struct store *store;
    u32 *holders;
    u32 *order;
    u32 *next;
    u32 number;
    struct bytes key;
    enum err result;
};

MAY_WAIT static void locker_fiber(void *arg)
{
    struct locker *l = arg;
    struct pg_key_lock lock;
    l->result = pg_key_lock(l->store, 0, l->key, &lock);
    if (l->result != OK) {
        return;
    }
    CHECK(++*l->holders == 1);
    l->order[(*l->next)++] = l->number;
    fiber_yield();
    fiber_yield();
    --*l->holders;
    pg_key_unlock(&lock);
}

MAY_WAIT static void locks_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    struct group g;
    struct locker lockers[10];
    u32 holders = 0;
    u32 order[10];
    u32 next = 0;
    group_init(&g);
    for (u32 i = 0; i < 10; i++) {
        lockers[i] = (struct locker){.store = s,
                                     .holders = &holders,
                                     .order = order,
                                     .next = &next,
                                     .number = i,
                                     .key = BYTES_LITERAL("same")};
        CHECK(group_spawn(&g, locker_fiber, &lockers[i]) == OK);
    }
    // Another key, and the same key in another group, are free.
    struct pg_key_lock other;
    CHECK(pg_key_lock(s, 0, BYTES_LITERAL("other"), &other) == OK);
    struct pg_key_lock elsewhere;
    CHECK(pg_key_lock(s, 1, BYTES_LITERAL("same"), &elsewhere) == OK);
    group_join(&g);
    for (u32 i = 0; i < 10; i++) {
        CHECK(order[i] == i); // first come, first served
    }
    // A waiter that is cancelled holds nothing and leaves nothing behind.
    lockers[0].key = BYTES_LITERAL("other");
    CHECK(group_spawn(&g, locker_fiber, &lockers[0]) == OK);
    fiber_yield();
    group_cancel(&g);
    group_join(&g);
    group_deinit(&g);
    CHECK(lockers[0].result == ERR_CANCELLED);
    pg_key_unlock(&other);
    pg_key_unlock(&elsewhere);
    store_close(s); // asserts that no slot is left
}

static void test_key_locks(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    run_cores(1, locks_run, &s);
    scratch_remove(&s);
}

// ---- a record that travels to another core and is released there

struct traveller {
    struct store *store;
    struct pg_record record;
};

MAY_WAIT static void read_there(void *arg)
{
    struct traveller *t = arg;
    CHECK(pg_read(t->store, 1, BYTES_LITERAL("travels"), &t->record) == OK);
}

MAY_WAIT static void put_there(void *arg)
{
    struct traveller *t = arg;
    struct store_change c = {.key = BYTES_LITERAL("travels"), .payload = BYTES_LITERAL("light")};
    CHECK(pg_commit(t->store, 1, &c, 1) == OK);
}

MAY_WAIT static void pins_there(void *arg)
{
    struct traveller *t = arg;
    CHECK(shard_here(t->store)->pins_out == 0);
}

MAY_WAIT static void travel_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    CHECK(store_pg_core(s, 1) == 1);
    struct traveller t = {.store = s};
    CHECK(core_call(1, put_there, &t) == OK);
    for (u32 i = 0; i < 100; i++) {
        CHECK(core_call(1, read_there, &t) == OK);
        CHECK(bytes_equal(t.record.payload, BYTES_LITERAL("light")));
        pg_record_release(&t.record);
        CHECK(t.record.pin == NULL);
    }
    CHECK(core_call(1, pins_there, &t) == OK); // messages between two cores keep their order
    store_close(s);
}

static void test_release_elsewhere(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    run_cores(2, travel_run, &s);
    scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_group_commit),
        cmocka_unit_test(test_key_locks),
        cmocka_unit_test(test_release_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
