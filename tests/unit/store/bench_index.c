// SPDX-License-Identifier: Apache-2.0
// Times of the index with a million keys, for docs/performance.md; run by hand, asserts nothing.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "store/index.h"

#define KEYS 1000000u

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static u64 next_random(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Keys are made beforehand, so that making them is not measured.
static void fill(struct index *ix, const char (*keys)[16], const u32 *order, const char *what)
{
    struct index_value v = {.seq = 1};
    double start = now_ns();
    for (u32 i = 0; i < KEYS; i++) {
        if (index_put(ix, BYTES(keys[order[i]], 9), &v, NULL, NULL) != OK) {
            abort();
        }
    }
    double middle = now_ns();
    struct index_value out;
    u64 random = 5;
    u64 sum = 0;
    for (u32 i = 0; i < KEYS; i++) {
        sum += index_find(ix, BYTES(keys[next_random(&random) % KEYS], 9), &out);
    }
    double end = now_ns();
    printf("%s: insert %.0f ns, find %.0f ns", what, (middle - start) / KEYS,
           (end - middle) / KEYS);
    start = now_ns();
    u8 key[STORE_KEY_BYTES_MAX];
    for (u32 i = 0; i < 1000; i++) {
        struct index_cursor c;
        bool has =
            index_cursor_seek(ix, &c, BYTES(keys[next_random(&random) % KEYS], 9), false, true);
        for (u32 n = 0; has && n < 1000; n++) {
            sum += index_cursor_key(&c, key) + index_cursor_summary(&c)[3];
            has = index_cursor_next(&c, true);
        }
    }
    printf(", seek and 1000 next %.1f us", (now_ns() - start) / 1e6);
    start = now_ns();
    for (u32 i = 0; i < KEYS; i++) {
        sum += index_remove(ix, BYTES(keys[order[i]], 9), NULL);
    }
    printf(", remove %.0f ns (%llu)\n", (now_ns() - start) / KEYS, (unsigned long long)sum);
}

int main(void)
{
    struct index_pool *pool = index_pool_create(0);
    char(*keys)[16] = malloc(KEYS * sizeof(*keys));
    u32 *order = malloc(KEYS * sizeof(*order));
    if (pool == NULL || keys == NULL || order == NULL) {
        return 1;
    }
    for (u32 i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "o%08u", i);
        order[i] = i;
    }
    struct index ix;
    index_init(&ix, pool);
    fill(&ix, (const char(*)[16])keys, order, "sorted");
    u64 random = 7;
    for (u32 i = KEYS - 1; i > 0; i--) {
        u32 j = (u32)(next_random(&random) % (i + 1));
        u32 t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    fill(&ix, (const char(*)[16])keys, order, "random");
    index_deinit(&ix);
    index_pool_destroy(pool);
    free(keys);
    free(order);
    return 0;
}
