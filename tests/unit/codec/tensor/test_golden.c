// SPDX-License-Identifier: Apache-2.0
// The committed containers: today's decoder reads them, and today's encoder still writes them byte
// for byte. With `--write FOLDER` it writes them anew, which is a change of the format.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/codec/tensor/tensor_data.h"

#include "leat/codec.h"

#define PLAIN   4607 // a full block and a short one with a tail
#define ROOM    (3 * PLAIN)
#define SCRATCH MIB

struct golden {
    const char *folder;
    u8 plain[PLAIN];
    u8 out[ROOM];
    u8 back[ROOM];
    u8 *scratch;
};

// Bell-shaped elements from integer arithmetic alone, so that no library's rounding matters: the
// exponent falls with probability 1/2 a step, some elements are special.
static u32 golden_element(struct data_random *r, u32 type)
{
    u64 x = data_random_u64(r);
    u32 down = (u32)__builtin_ctzll(x >> 32 | 1ull << 20);
    u32 low = (u32)x;
    if ((x >> 24 & 63u) == 0) {
        return low * 0x9e3779b1u; // anything: NaNs and what falls outside a palette
    }
    switch (type) {
    case LEAT_CODEC_TYPE_BF16:
        return (low & 0x807fu) | (122 - down) << 7;
    case LEAT_CODEC_TYPE_FP16:
        return (low & 0x83ffu) | (down > 13 ? 0 : 13 - down) << 10;
    case LEAT_CODEC_TYPE_FP32:
        return (low & 0x807fffffu) | (122 - down) << 23;
    case LEAT_CODEC_TYPE_FP8_E4M3:
        return (low & 0x87u) | (down > 7 ? 0 : 7 - down) << 3;
    case LEAT_CODEC_TYPE_FP8_E5M2:
        return (low & 0x83u) | (down > 13 ? 0 : 13 - down) << 2;
    default:
        return (low & 1u) != 0 ? down * 3 : 256 - down * 3;
    }
}

static void golden_plain(u32 type, u8 *out)
{
    struct data_random r = {1000 + type};
    size_t bytes = leat_codec_element_bytes(type);
    for (size_t at = 0; at < PLAIN; at += bytes) {
        u32 element = golden_element(&r, type);
        memcpy(out + at, &element, MIN(bytes, PLAIN - at));
    }
}

static size_t golden_encode(struct golden *g, u32 type, u32 mode)
{
    struct leat_codec_options o = {.block_bytes = 4096, .type = type, .mode = mode};
    u64 size;
    golden_plain(type, g->plain);
    assert_int_equal(
        leat_codec_encode(&o, g->plain, PLAIN, g->out, ROOM, g->scratch, SCRATCH, &size),
        LEAT_CODEC_OK);
    return size;
}

static FILE *golden_open(const struct golden *g, u32 type, u32 mode, const char *how)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s-%s.ltc", g->folder, leat_codec_type_name(type),
             leat_codec_mode_name(mode));
    return fopen(path, how);
}

static void test_golden(void **state)
{
    struct golden *g = *state;
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 mode = 0; mode < LEAT_CODEC_MODE_AUTO; mode++) {
            size_t size = golden_encode(g, type, mode);
            FILE *f = golden_open(g, type, mode, "rb");
            assert_non_null(f);
            size_t n = fread(g->back, 1, ROOM, f);
            fclose(f);
            assert_int_equal(n, size);
            assert_memory_equal(g->back, g->out, n);
            u64 written;
            assert_int_equal(
                leat_codec_decode(g->back, n, g->out, PLAIN, g->scratch, SCRATCH, 0, &written),
                LEAT_CODEC_OK);
            assert_int_equal(written, PLAIN);
            assert_memory_equal(g->out, g->plain, PLAIN);
        }
    }
}

int main(int argc, char **argv)
{
    static struct golden golden;
    bool is_writing = argc == 3 && strcmp(argv[1], "--write") == 0;
    golden.folder = argv[argc - 1];
    golden.scratch = aligned_alloc(64, SCRATCH);
    if (argc < 2 || golden.scratch == NULL) {
        return 2;
    }
    for (u32 type = 0; is_writing && type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 mode = 0; mode < LEAT_CODEC_MODE_AUTO; mode++) {
            size_t size = golden_encode(&golden, type, mode);
            FILE *f = golden_open(&golden, type, mode, "wb");
            if (f == NULL || fwrite(golden.out, 1, size, f) != size || fclose(f) != 0) {
                return 1;
            }
        }
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_golden, &golden)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(golden.scratch);
    return failed;
}
