// SPDX-License-Identifier: Apache-2.0
// Round trips over every type, mode and kind of data, sizes from nothing to a few blocks, on every
// set of loops that this machine has; all sets must write the same container, bit for bit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "codec/tensor/tensor_block.h"
#include "codec/tensor/tensor_hash_keys.h"
#include "tests/unit/codec/tensor/tensor_data.h"

#include "leat/codec.h"

#define BLOCK   (64 * KIB)
#define PLAIN   (4 * BLOCK)
#define SCRATCH (2 * MIB)

struct fixture {
    u8 *plain;
    u8 *back;
    u8 *container[4];
    u8 *scratch;
};

static int fixture_create(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->plain = malloc(PLAIN);
    f->back = malloc(PLAIN);
    for (u32 i = 0; i < 4; i++) {
        f->container[i] = malloc(2 * PLAIN);
    }
    f->scratch = aligned_alloc(64, SCRATCH);
    *state = f;
    return 0;
}

static int fixture_destroy(void **state)
{
    struct fixture *f = *state;
    free(f->plain);
    free(f->back);
    for (u32 i = 0; i < 4; i++) {
        free(f->container[i]);
    }
    free(f->scratch);
    free(f);
    return 0;
}

// Encodes with every set of loops, compares the containers, decodes with every set.
static u64 trip(struct fixture *f, u32 type, u32 mode, u32 block, size_t n)
{
    u64 size_first = 0;
    u32 first = 0;
    for (u32 cpu = LEAT_CODEC_CPU_C; cpu <= LEAT_CODEC_CPU_AVX512; cpu++) {
        if (leat_codec_cpu_name(cpu) == NULL) {
            continue;
        }
        struct leat_codec_options o = {
            .block_bytes = block, .type = type, .mode = mode, .cpu = cpu};
        u64 bound;
        u64 size;
        u64 back;
        assert_int_equal(leat_codec_encode_bound(&o, n, 1, &bound), LEAT_CODEC_OK);
        assert_true(bound <= 2 * PLAIN);
        memset(f->container[cpu], 0xa5, bound);
        assert_int_equal(leat_codec_encode(&o, f->plain, n, f->container[cpu], bound, f->scratch,
                                           leat_codec_encode_scratch_bytes(block), &size),
                         LEAT_CODEC_OK);
        assert_true(size <= bound);
        if (first == 0) {
            first = cpu;
            size_first = size;
        }
        assert_int_equal(size, size_first);
        assert_memory_equal(f->container[cpu], f->container[first], size);
        memset(f->back, 0x5a, n);
        assert_int_equal(leat_codec_decode(f->container[first], size, f->back, n, f->scratch,
                                           leat_codec_decode_scratch_bytes(block), cpu, &back),
                         LEAT_CODEC_OK);
        assert_int_equal(back, n);
        assert_memory_equal(f->back, f->plain, n);
    }
    return size_first;
}

static void test_every_type_mode_and_kind(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {1};
    static const size_t sizes[] = {BLOCK - 1, BLOCK, 2 * BLOCK + 7, 3 * BLOCK + 4 * 777 + 3};
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 kind = 0; kind < DATA_KIND_COUNT; kind++) {
            data_fill(&r, kind, type, f->plain, PLAIN);
            for (u32 mode = 0; mode <= LEAT_CODEC_MODE_AUTO; mode++) {
                size_t n = sizes[(kind + mode) % ARRAY_LEN(sizes)];
                u64 size = trip(f, type, mode, BLOCK, n);
                u64 blocks = (n + BLOCK - 1) / BLOCK;
                assert_true(size <= n + 32 + 64 + blocks * (32 + 16) + 15);
            }
        }
    }
}

static void test_every_small_size(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {2};
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        data_fill(&r, DATA_WEIGHTS, type, f->plain, PLAIN);
        for (size_t n = 0; n < 700; n += n < 80 ? 1 : 13) {
            for (u32 mode = 0; mode <= LEAT_CODEC_MODE_AUTO; mode++) {
                trip(f, type, mode, 1024, n);
            }
        }
        for (size_t n = 1000; n < 9000; n += 331) {
            trip(f, type, LEAT_CODEC_MODE_FAST, 1024, n);
            trip(f, type, LEAT_CODEC_MODE_DENSE, 4096, n);
        }
        // Around the borders of segments, whose lanes are then of unequal length.
        size_t segment = 32768 * (size_t)leat_codec_element_bytes(type);
        for (size_t delta = 0; delta < 3; delta++) {
            trip(f, type, LEAT_CODEC_MODE_DENSE, 256 * 1024, segment - 1 + delta);
            trip(f, type, LEAT_CODEC_MODE_DENSE, 256 * 1024, segment + 64 * delta + 1);
        }
    }
}

// A block never grows by more than its header, whatever it holds, and its mode is as requested or
// RAW.
static void test_block_growth(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {3};
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 kind = 0; kind < DATA_KIND_COUNT; kind++) {
            data_fill(&r, kind, type, f->plain, PLAIN);
            for (size_t n = 1; n <= PLAIN; n = n * 3 + 1) {
                for (u32 mode = 0; mode <= LEAT_CODEC_MODE_AUTO; mode++) {
                    struct leat_codec_options o = {.type = type, .mode = mode};
                    size_t size;
                    u8 *out = f->container[0];
                    memset(out + n + 32, 0xee, 64);
                    assert_int_equal(leat_codec_block_encode(&o, f->plain, n, out, n + 32,
                                                             f->scratch, SCRATCH, &size),
                                     LEAT_CODEC_OK);
                    assert_true(size <= n + LEAT_CODEC_BLOCK_HEADER_BYTES);
                    for (u32 i = 0; i < 64; i++) {
                        assert_int_equal(out[n + 32 + i], 0xee);
                    }
                    assert_true(mode == LEAT_CODEC_MODE_AUTO || out[4] == mode || out[4] == 0);
                    assert_int_equal(leat_codec_block_decode(out, size, f->back, n, f->scratch,
                                                             SCRATCH, LEAT_CODEC_CPU_AUTO),
                                     LEAT_CODEC_OK);
                    assert_memory_equal(f->back, f->plain, n);
                }
            }
        }
    }
}

// The gains that the documentation promises, on data where entropy is known.
static void test_gain(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {4};
    struct leat_codec_options o = {.type = LEAT_CODEC_TYPE_BF16, .mode = LEAT_CODEC_MODE_DENSE};
    size_t size;
    data_fill(&r, DATA_WEIGHTS, o.type, f->plain, PLAIN);
    assert_int_equal(leat_codec_block_encode(&o, f->plain, PLAIN, f->container[0], 2 * PLAIN,
                                             f->scratch, SCRATCH, &size),
                     LEAT_CODEC_OK);
    assert_true((double)PLAIN / (double)size >= 1.49);
    o.mode = LEAT_CODEC_MODE_FAST;
    assert_int_equal(leat_codec_block_encode(&o, f->plain, PLAIN, f->container[0], 2 * PLAIN,
                                             f->scratch, SCRATCH, &size),
                     LEAT_CODEC_OK);
    assert_true((double)PLAIN / (double)size >= 1.33);
}

static u32 auto_mode(struct fixture *f, u32 type, size_t n)
{
    struct leat_codec_options o = {.type = type, .mode = LEAT_CODEC_MODE_AUTO};
    size_t size;
    assert_int_equal(leat_codec_block_encode(&o, f->plain, n, f->container[0], n + 32, f->scratch,
                                             SCRATCH, &size),
                     LEAT_CODEC_OK);
    return f->container[0][4];
}

// AUTO: DENSE where entropy is what gains, FAST where it is as small, RAW where nothing gains.
static void test_auto_takes_the_best(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {6};
    static const u32 types[] = {LEAT_CODEC_TYPE_BF16, LEAT_CODEC_TYPE_FP16, LEAT_CODEC_TYPE_FP32};
    for (u32 i = 0; i < ARRAY_LEN(types); i++) {
        data_fill(&r, DATA_WEIGHTS, types[i], f->plain, PLAIN);
        assert_int_equal(auto_mode(f, types[i], PLAIN), LEAT_CODEC_MODE_DENSE);
        data_fill(&r, DATA_RANDOM, types[i], f->plain, PLAIN);
        assert_int_equal(auto_mode(f, types[i], PLAIN), LEAT_CODEC_MODE_RAW);
    }
    for (size_t i = 0; i < PLAIN; i++) {
        f->plain[i] = (u8)(data_random_u64(&r) % 16 * 5); // four bits either way
    }
    assert_int_equal(auto_mode(f, LEAT_CODEC_TYPE_INT8, PLAIN), LEAT_CODEC_MODE_FAST);
}

static void test_hash_keys(void **state)
{
    (void)state;
    static const u32 keys[] = TENSOR_HASH_KEYS;
    struct data_random r = {0x4c454154};
    assert_int_equal(ARRAY_LEN(keys), 256);
    for (u32 i = 0; i < 128; i++) {
        u64 both = data_random_u64(&r);
        assert_int_equal(keys[2 * i], (u32)both);
        assert_int_equal(keys[2 * i + 1], (u32)(both >> 32));
    }
}

// Lengths are always a complete code, however skewed the counts are.
static void test_huffman_is_complete(void **state)
{
    (void)state;
    struct data_random r = {5};
    static struct huffman_work work;
    for (u32 round = 0; round < 3000; round++) {
        u32 histogram[256] = {0};
        u8 lengths[256];
        u8 table[128];
        u32 symbols = 1 + (u32)(data_random_u64(&r) % 256);
        for (u32 i = 0; i < symbols; i++) {
            u32 s = (u32)(data_random_u64(&r) % 256);
            histogram[s] = 1 + ((u32)data_random_u64(&r) & 0xfffffu) % (1u << (i % 20 + 1));
        }
        u32 longest = huffman_build(histogram, &work, lengths);
        for (u32 i = 0; i < 128; i++) {
            table[i] = (u8)(lengths[2 * i] | lengths[2 * i + 1] << 4);
        }
        assert_true(huffman_is_complete(table, longest));
        for (u32 s = 0; s < 256; s++) {
            assert_true(histogram[s] == 0 || lengths[s] != 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_keys),           cmocka_unit_test(test_huffman_is_complete),
        cmocka_unit_test(test_every_small_size),    cmocka_unit_test(test_every_type_mode_and_kind),
        cmocka_unit_test(test_block_growth),        cmocka_unit_test(test_gain),
        cmocka_unit_test(test_auto_takes_the_best),
    };
    return cmocka_run_group_tests(tests, fixture_create, fixture_destroy);
}
