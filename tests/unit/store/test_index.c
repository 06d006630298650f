// SPDX-License-Identifier: Apache-2.0
// The index against a plain sorted array: every operation, awkward keys, churn, limits, memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/index.h"

#define MODEL_MAX 6000

// A small deterministic generator (splitmix64).
static u64 next_random(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct model_entry {
    u8 *key;
    size_t len;
    struct index_value value;
};

struct model {
    struct model_entry entries[MODEL_MAX];
    u32 count;
};

static struct bytes entry_key(const struct model_entry *e)
{
    return BYTES(e->key, e->len);
}

// The first entry >= key.
static u32 model_lower_bound(const struct model *m, struct bytes key, bool *is_equal)
{
    u32 low = 0;
    u32 high = m->count;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (bytes_compare(entry_key(&m->entries[mid]), key) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    *is_equal = low < m->count && bytes_equal(entry_key(&m->entries[low]), key);
    return low;
}

static void model_remove(struct model *m, u32 at)
{
    free(m->entries[at].key);
    memmove(&m->entries[at], &m->entries[at + 1], (m->count - at - 1) * sizeof(m->entries[0]));
    m->count--;
}

static void model_put(struct model *m, struct bytes key, const struct index_value *v)
{
    bool is_equal;
    u32 at = model_lower_bound(m, key, &is_equal);
    if (!is_equal) {
        assert_true(m->count < MODEL_MAX);
        memmove(&m->entries[at + 1], &m->entries[at], (m->count - at) * sizeof(m->entries[0]));
        m->count++;
        m->entries[at].key = malloc(key.len + 1);
        assert_non_null(m->entries[at].key);
        memcpy(m->entries[at].key, key.data, key.len);
        m->entries[at].len = key.len;
    }
    m->entries[at].value = *v;
}

// Shapes of keys that hurt a prefix-compressed tree in different ways.
enum key_shape {
    SHAPE_SHORT,       // few distinct bytes, many prefixes of one another, the empty key
    SHAPE_LONG_SHARED, // up to the limit, alike but for the last bytes
    SHAPE_BUCKETS,     // an id, then a path
    SHAPE_BINARY,      // any bytes, any length
    SHAPE_COUNT
};

static size_t key_make(enum key_shape shape, u64 *random, u8 out[STORE_KEY_BYTES_MAX])
{
    size_t len = 0;
    switch (shape) {
    case SHAPE_SHORT:
        len = next_random(random) % 9;
        for (size_t i = 0; i < len; i++) {
            out[i] = (u8) "\0\001ab\377"[next_random(random) % 5];
        }
        return len;
    case SHAPE_LONG_SHARED:
        memset(out, 'k', STORE_KEY_BYTES_MAX);
        len = STORE_KEY_BYTES_MAX - next_random(random) % 4;
        for (size_t i = len - 4; i < len; i++) {
            out[i] = (u8)('a' + next_random(random) % 8);
        }
        return len;
    case SHAPE_BUCKETS: {
        memset(out, 0, 8);
        out[7] = (u8)(next_random(random) % 5);
        out[8] = (u8)(next_random(random) % 2);
        char text[64];
        int n = snprintf(text, sizeof(text), "data/%s/part-%05u.bin",
                         next_random(random) % 2 == 0 ? "train" : "test",
                         (unsigned)(next_random(random) % 3000));
        memcpy(out + 9, text, (size_t)n);
        return 9 + (size_t)n;
    }
    case SHAPE_BINARY:
        len = next_random(random) % (next_random(random) % 4 == 0 ? STORE_KEY_BYTES_MAX + 1 : 20);
        for (size_t i = 0; i < len; i++) {
            out[i] = (u8)next_random(random);
        }
        return len;
    case SHAPE_COUNT:
        break;
    }
    abort();
}

static void value_make(u64 *random, struct index_value *v)
{
    memset(v, 0, sizeof(*v));
    for (size_t i = 0; i < sizeof(v->summary); i++) {
        v->summary[i] = (u8)next_random(random);
    }
    v->location.segment = (u32)next_random(random);
    v->location.offset_units = (u32)next_random(random);
    v->location.bytes = (u32)next_random(random);
    v->seq = next_random(random);
    v->shadows = (u16)next_random(random);
    v->flags = (u8)(next_random(random) % 4);
    if ((v->flags & INDEX_HAS_REFS) != 0) {
        v->object_id = next_random(random);
    }
}

static void assert_value_equal(const struct index_value *a, const struct index_value *b)
{
    assert_memory_equal(a->summary, b->summary, sizeof(a->summary));
    assert_int_equal(a->location.segment, b->location.segment);
    assert_int_equal(a->location.offset_units, b->location.offset_units);
    assert_int_equal(a->location.bytes, b->location.bytes);
    assert_true(a->seq == b->seq && a->object_id == b->object_id);
    assert_int_equal(a->shadows, b->shadows);
    assert_int_equal(a->flags, b->flags);
}

// Walks index and model together from a key.
static void compare_walk(const struct index *ix, const struct model *m, struct bytes from,
                         bool is_after, bool skip_tombstones, u32 limit)
{
    bool is_equal;
    u32 at = model_lower_bound(m, from, &is_equal);
    at += is_equal && is_after;
    struct index_cursor c;
    bool has = index_cursor_seek(ix, &c, from, is_after, skip_tombstones);
    u8 key[STORE_KEY_BYTES_MAX];
    for (; limit > 0; limit--) {
        while (at < m->count && skip_tombstones &&
               (m->entries[at].value.flags & INDEX_TOMBSTONE) != 0) {
            at++;
        }
        assert_int_equal(has, at < m->count);
        if (!has) {
            return;
        }
        u32 len = index_cursor_key(&c, key);
        assert_true(bytes_equal(BYTES(key, len), entry_key(&m->entries[at])));
        struct index_value v;
        index_cursor_value(&c, &v);
        assert_value_equal(&v, &m->entries[at].value);
        assert_memory_equal(index_cursor_summary(&c), v.summary, sizeof(v.summary));
        has = index_cursor_next(&c, skip_tombstones);
        at++;
    }
}

// One random operation on both.
static void step(struct index *ix, struct model *m, enum key_shape shape, u64 *random,
                 u32 removal_percent)
{
    u8 bytes[STORE_KEY_BYTES_MAX];
    struct bytes key = BYTES(bytes, key_make(shape, random, bytes));
    if (m->count > 0 && next_random(random) % 2 == 0) {
        key = entry_key(&m->entries[next_random(random) % m->count]);
    }
    memmove(bytes, key.data, key.len);
    key.data = bytes; // the model's copy may go
    bool is_equal;
    u32 at = model_lower_bound(m, key, &is_equal);
    struct index_value v;
    if (next_random(random) % 100 < removal_percent) {
        assert_int_equal(index_remove(ix, key, &v), is_equal);
        if (is_equal) {
            assert_value_equal(&v, &m->entries[at].value);
            model_remove(m, at);
        }
    } else if (m->count < MODEL_MAX) {
        struct index_value old;
        bool existed = !is_equal;
        value_make(random, &v);
        assert_int_equal(index_put(ix, key, &v, &existed, &old), OK);
        assert_int_equal(existed, is_equal);
        if (is_equal) {
            assert_value_equal(&old, &m->entries[at].value);
        }
        model_put(m, key, &v);
    }
    bool in_model;
    key.len = key_make(shape, random, bytes);
    at = model_lower_bound(m, key, &in_model);
    assert_int_equal(index_find(ix, key, &v), in_model);
    if (in_model) {
        assert_value_equal(&v, &m->entries[at].value);
    }
    if (next_random(random) % 32 == 0) {
        compare_walk(ix, m, key, next_random(random) % 2 == 0, next_random(random) % 2 == 0, 40);
    }
}

// Grows, churns, shrinks to nothing, for one shape of keys.
static void run_shape(enum key_shape shape, u64 seed)
{
    u64 random = seed;
    struct index_pool *pool = index_pool_create(0);
    struct model *m = calloc(1, sizeof(*m));
    assert_non_null(pool);
    assert_non_null(m);
    struct index ix;
    index_init(&ix, pool);
    const u32 removal_percent[] = {10, 50, 90, 20, 100};
    for (u32 phase = 0; phase < ARRAY_LEN(removal_percent); phase++) {
        for (u32 i = 0; i < 6000; i++) {
            step(&ix, m, shape, &random, removal_percent[phase]);
            if (i % 500 == 0) {
                index_check(&ix);
            }
        }
        index_check(&ix);
        u64 tombstones = 0;
        for (u32 i = 0; i < m->count; i++) {
            tombstones += (m->entries[i].value.flags & INDEX_TOMBSTONE) != 0;
        }
        assert_true(ix.entries == m->count && ix.tombstones == tombstones);
        assert_true(index_count(&ix) == m->count - tombstones);
        compare_walk(&ix, m, BYTES_NONE, false, false, UINT32_MAX);
        compare_walk(&ix, m, BYTES_NONE, false, true, UINT32_MAX);
    }
    while (m->count > 0) {
        u32 at = (u32)(next_random(&random) % m->count);
        assert_true(index_remove(&ix, entry_key(&m->entries[at]), NULL));
        model_remove(m, at);
    }
    index_check(&ix);
    assert_true(ix.root == NULL && index_pool_used_bytes(pool) == 0);
    index_deinit(&ix);
    index_pool_destroy(pool);
    free(m);
}

static void test_model(void **state)
{
    (void)state;
    for (u32 shape = 0; shape < SHAPE_COUNT; shape++) {
        for (u64 seed = 1; seed <= 3; seed++) {
            run_shape((enum key_shape)shape, seed * 7919 + shape);
        }
    }
}

// Several indexes share a pool, and deinit gives back what is still in one.
static void test_pool_is_shared(void **state)
{
    (void)state;
    struct index_pool *pool = index_pool_create(0);
    struct index ix[4];
    struct index_value v = {.seq = 1};
    u64 random = 5;
    for (u32 i = 0; i < ARRAY_LEN(ix); i++) {
        index_init(&ix[i], pool);
    }
    for (u32 i = 0; i < 40000; i++) {
        u64 key = next_random(&random);
        assert_int_equal(index_put(&ix[i % 4], BYTES(&key, 8), &v, NULL, NULL), OK);
    }
    size_t full_bytes = index_pool_used_bytes(pool);
    assert_true(full_bytes > 40000 * 70);
    index_check(&ix[2]);
    index_deinit(&ix[2]);
    assert_true(index_pool_used_bytes(pool) < full_bytes / 5 * 4);
    for (u32 i = 0; i < ARRAY_LEN(ix); i++) {
        if (i != 2) {
            index_deinit(&ix[i]);
        }
    }
    assert_true(index_pool_used_bytes(pool) == 0);
    // Empty chunks went back to the heap, but for a few.
    assert_true(index_pool_heap_bytes(pool) < 2 * MIB);
    index_pool_destroy(pool);
}

// The limit is an error before anything changed, and a reservation keeps its promise up to it.
static void test_limit(void **state)
{
    (void)state;
    struct index_pool *pool = index_pool_create(MIB);
    struct index ix;
    index_init(&ix, pool);
    struct index_value v = {.seq = 9};
    u64 random = 1;
    u64 entries = 0;
    u32 refused = 0;
    while (refused < 3) {
        enum err e = index_pool_reserve(pool, 10);
        if (e != OK) {
            assert_int_equal(e, ERR_NO_MEMORY);
            refused++;
        }
        // What was reserved must go through, and one that was not may be refused.
        for (u32 i = 0; i < (e == OK ? 10u : 1u); i++) {
            u8 key[STORE_KEY_BYTES_MAX] = {0};
            u64 number = next_random(&random);
            memcpy(key, &number, sizeof(number));
            enum err put = index_put(&ix, BYTES(key, sizeof(key)), &v, NULL, NULL);
            assert_true(put == OK || e != OK);
            entries += put == OK;
        }
    }
    assert_true(index_pool_used_bytes(pool) <= MIB);
    assert_true(ix.entries == entries);
    // Fill up without reservations until it refuses; everything is still there and in order.
    for (;;) {
        u64 number = next_random(&random);
        if (index_put(&ix, BYTES(&number, 8), &v, NULL, NULL) != OK) {
            break;
        }
        entries++;
    }
    index_check(&ix);
    assert_true(ix.entries == entries && index_pool_used_bytes(pool) <= MIB);
    index_deinit(&ix);
    index_pool_destroy(pool);
}

#define MILLION 1000000u

static size_t object_key(u32 number, u8 out[16])
{
    return (size_t)snprintf((char *)out, 16, "o%08u", number);
}

// Bytes an object beside its key; the budget is 100 on average.
static double bytes_beside_key(const struct index_pool *pool, const struct index *ix)
{
    return (double)index_pool_used_bytes(pool) / (double)ix->entries - 9.0;
}

static u32 *shuffled(u64 seed)
{
    u32 *order = malloc(MILLION * sizeof(*order));
    assert_non_null(order);
    for (u32 i = 0; i < MILLION; i++) {
        order[i] = i;
    }
    for (u32 i = MILLION - 1; i > 0; i--) {
        u32 j = (u32)(next_random(&seed) % (i + 1));
        u32 t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    return order;
}

static void test_memory_budget(void **state)
{
    (void)state;
    struct index_pool *pool = index_pool_create(0);
    struct index ix;
    index_init(&ix, pool);
    struct index_value v = {.seq = 9};
    u8 key[16];
    u32 *order = shuffled(3);
    for (u32 i = 0; i < MILLION; i++) {
        assert_int_equal(index_put(&ix, BYTES(key, object_key(order[i], key)), &v, NULL, NULL), OK);
    }
    double random_order = bytes_beside_key(pool, &ix);
    assert_true(index_pool_heap_bytes(pool) <= index_pool_used_bytes(pool) / 100 * 102 + 2 * MIB);
    // Churn: half of the keys go and come back, in random order, three times over.
    u64 random = 11;
    for (u32 i = 0; i < 3 * MILLION / 2; i++) {
        u32 number = (u32)(next_random(&random) % MILLION);
        if (!index_remove(&ix, BYTES(key, object_key(number, key)), NULL)) {
            assert_int_equal(index_put(&ix, BYTES(key, 9), &v, NULL, NULL), OK);
        }
    }
    double churned = bytes_beside_key(pool, &ix);
    index_check(&ix);
    for (u32 i = 0; i < MILLION; i++) {
        if (order[i] % 10 != 0) {
            (void)index_remove(&ix, BYTES(key, object_key(order[i], key)), NULL);
        }
    }
    double thinned = bytes_beside_key(pool, &ix);
    index_check(&ix);
    index_deinit(&ix);
    index_init(&ix, pool);
    for (u32 i = 0; i < MILLION; i++) {
        assert_int_equal(index_put(&ix, BYTES(key, object_key(i, key)), &v, NULL, NULL), OK);
    }
    double sorted_order = bytes_beside_key(pool, &ix);
    printf("bytes an object beside its key: random %.1f, sorted %.1f, churned %.1f, thinned to a "
           "tenth %.1f\n",
           random_order, sorted_order, churned, thinned);
    assert_true(random_order < 100.0);
    assert_true(sorted_order < 80.0);
    assert_true(churned < 150.0);
    assert_true(thinned < 150.0);
    index_deinit(&ix);
    index_pool_destroy(pool);
    free(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_pool_is_shared),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_memory_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
