// SPDX-License-Identifier: Apache-2.0
// The device's source, compiled for the host: what the GPU's threads compute must be, bit for bit,
// what the processor's loops compute, for every type, mode, kind of data and many sizes; and
// damaged blocks must give an error there too.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "codec/tensor/cuda/device_encode.h"
#include "codec/tensor/tensor_ops.h"
#include "tests/unit/codec/tensor/tensor_data.h"

#include "leat/codec.h"

#define PLAIN   (300 * KIB)
#define SCRATCH (2 * MIB)

struct fixture {
    u8 *plain;
    u8 *stored[2];
    u8 *back;
    u8 *scratch;
    struct encode_shared encode;
    struct decode_shared decode;
};

// Decodes as the kernel's groups do, one segment after the other.
static u32 device_decode(struct fixture *f, const u8 *stored, u32 stored_bytes, u8 *plain, u32 n)
{
    struct decode_shared *s = &f->decode;
    struct decode_block b = {stored, stored_bytes, plain, n};
    u64 sum = 0;
    u32 segment = 0;
    do {
        PHASE(DECODE_THREADS, decode_begin(thread, s, &b));
        if (s->status == 0) {
            decode_segment(s, &b, segment);
        }
        for (u32 i = 0; i < BATCH_TILES; i++) {
            sum += s->sum[i];
        }
    } while (s->status == 0 && ++segment < s->segments);
    return s->status != 0 ? s->status : decode_is_right(s, sum) ? 0 : DEVICE_ERR_CORRUPT;
}

static void check(struct fixture *f, u32 type, u32 mode, u32 n)
{
    struct leat_codec_options o = {.type = type, .mode = mode};
    struct encode_block b = {f->plain, n, f->stored[1], type, mode};
    size_t size;
    memset(f->stored[0], 0x11, n + 32);
    memset(f->stored[1], 0x22, n + 64);
    assert_int_equal(
        leat_codec_block_encode(&o, f->plain, n, f->stored[0], n + 32, f->scratch, SCRATCH, &size),
        LEAT_CODEC_OK);
    encode_block_device(&f->encode, &b);
    assert_int_equal(header_finish(&f->encode, &b), size);
    assert_memory_equal(f->stored[0], f->stored[1], size);
    for (u32 i = 32; i < 64; i++) {
        assert_int_equal(f->stored[1][n + i], 0x22);
    }
    // The input in memory of its exact size.
    u8 *exact = aligned_alloc(64, ALIGN_UP(size, (size_t)64));
    memcpy(exact, f->stored[0], size);
    memset(f->back, 0x33, n + 16);
    assert_int_equal(device_decode(f, exact, (u32)size, f->back, n), LEAT_CODEC_OK);
    assert_memory_equal(f->back, f->plain, n);
    for (u32 i = 0; i < 16; i++) {
        assert_int_equal(f->back[n + i], 0x33);
    }
    free(exact);
}

static void test_device_equals_host(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {41};
    static const u32 sizes[] = {1,     2,     15,    64,     1023,   4096,   4097,   20000,
                                32768, 65535, 65536, 100003, 131072, 131073, 262144, 300000};
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 kind = 0; kind < DATA_KIND_COUNT; kind++) {
            data_fill(&r, kind, type, f->plain, PLAIN);
            for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
                if (sizes[i] < 70000 || i % 4 == kind % 4) {
                    check(f, type, (i + kind) % 4, sizes[i]);
                    check(f, type, 1 + (i + kind) % 2, sizes[i]);
                }
            }
        }
    }
}

// Every bit of a small block flips: the device's verdict is an error, or the exact bytes.
static void test_device_damage(void **state)
{
    struct fixture *f = *state;
    struct data_random r = {42};
    enum { N = 3001 };
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type += 2) {
        for (u32 mode = 0; mode < LEAT_CODEC_MODE_AUTO; mode++) {
            struct leat_codec_options o = {.type = type, .mode = mode};
            size_t size;
            data_fill(&r, mode == 1 ? DATA_RARE : DATA_WEIGHTS, type, f->plain, N);
            assert_int_equal(leat_codec_block_encode(&o, f->plain, N, f->stored[0], N + 32,
                                                     f->scratch, SCRATCH, &size),
                             LEAT_CODEC_OK);
            u8 *exact = aligned_alloc(64, ALIGN_UP(size, (size_t)64));
            memcpy(exact, f->stored[0], size);
            u32 errors = 0;
            for (size_t bit = 0; bit < size * 8; bit += bit < 2400 ? 1 : 5) {
                exact[bit / 8] ^= (u8)(1u << bit % 8);
                if (device_decode(f, exact, (u32)size, f->back, N) == 0) {
                    assert_memory_equal(f->back, f->plain, N);
                } else {
                    errors++;
                }
                exact[bit / 8] ^= (u8)(1u << bit % 8);
            }
            assert_true(errors > 2400 / 2);
            for (size_t n = 0; n < size; n += 7) {
                assert_int_equal(device_decode(f, exact, (u32)n, f->back, N),
                                 LEAT_CODEC_ERR_FORMAT);
            }
            free(exact);
        }
    }
}

static int fixture_create(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->plain = aligned_alloc(64, PLAIN);
    f->stored[0] = aligned_alloc(64, PLAIN + 128);
    f->stored[1] = aligned_alloc(64, PLAIN + 128);
    f->back = aligned_alloc(64, PLAIN + 64);
    f->scratch = aligned_alloc(64, SCRATCH);
    *state = f;
    return 0;
}

static int fixture_destroy(void **state)
{
    struct fixture *f = *state;
    free(f->plain);
    free(f->stored[0]);
    free(f->stored[1]);
    free(f->back);
    free(f->scratch);
    free(f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_equals_host),
        cmocka_unit_test(test_device_damage),
    };
    return cmocka_run_group_tests(tests, fixture_create, fixture_destroy);
}
