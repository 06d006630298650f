// SPDX-License-Identifier: Apache-2.0
// The decision, the estimates behind it, guesses of types, and the headers of tensor files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/codec/tensor/tensor_data.h"

#include "leat/codec.h"

#define SCRATCH MIB
#define PLAIN   (512 * KIB)

static const struct leat_codec_plan_input gigabyte = {
    .plain_bytes = 1e9,
    .link_bytes_per_s = 1e9,
    .ratio = {1.33, 1.5},
    .rates = {.encode = {4e9, 1.5e9}, .decode = {8e9, 4e9}},
    .reuse = 1.0,
};

static struct leat_codec_plan plan(struct leat_codec_plan_input in)
{
    struct leat_codec_plan p;
    assert_int_equal(leat_codec_plan(&in, &p), LEAT_CODEC_OK);
    return p;
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-9 * (fabs(a) + fabs(b)) + 1e-12);
}

static void test_plan_formula(void **state)
{
    (void)state;
    struct leat_codec_plan_input in = gigabyte;
    struct leat_codec_plan p = plan(in);
    near(p.seconds_plain, 1.0);
    near(p.seconds_mode[0], 1.0 / 4.0 + 1.0 / 1.33 + 1.0 / 8.0);
    near(p.seconds_mode[1], 1.0 / 1.5 + 1.0 / 1.5 + 1.0 / 4.0);
    assert_int_equal(p.mode, LEAT_CODEC_MODE_RAW); // one use of a fast link does not pay
    in.reuse = 10.0;
    p = plan(in);
    near(p.seconds_mode[1], 1.0 / 1.5 / 10.0 + 1.0 / 1.5 + 1.0 / 4.0);
    assert_int_equal(p.mode, LEAT_CODEC_MODE_FAST);
    in.link_bytes_per_s = 1e8;
    assert_int_equal(plan(in).mode, LEAT_CODEC_MODE_DENSE);
    in.link_bytes_per_s = 5e10;
    assert_int_equal(plan(in).mode, LEAT_CODEC_MODE_RAW);
    in = gigabyte;
    in.is_encoded = true;
    near(plan(in).seconds_mode[0], 1.0 / 1.33 + 1.0 / 8.0);
    in.is_encoded = false;
    in.is_overlapped = true;
    p = plan(in);
    near(p.seconds_mode[0], 1.0 / 1.33);
    near(p.seconds_mode[1], 1.0 / 1.5);
    assert_int_equal(p.mode, LEAT_CODEC_MODE_DENSE);
    in.rates.encode[1] = 0.5e9; // now the encoder is the narrow place, once
    in.reuse = 4.0;
    near(plan(in).seconds_mode[1], (2.0 + 3.0 / 1.5) / 4.0);
}

static void test_plan_refuses(void **state)
{
    (void)state;
    struct leat_codec_plan p;
    for (u32 i = 0; i < 8; i++) {
        struct leat_codec_plan_input in = gigabyte;
        double *fields[] = {&in.plain_bytes,     &in.link_bytes_per_s, &in.reuse,
                            &in.ratio[0],        &in.ratio[1],         &in.rates.encode[0],
                            &in.rates.decode[1], &in.rates.decode[0]};
        static const double bad[] = {0.0, -1.0, INFINITY, NAN};
        for (u32 k = 0; k < ARRAY_LEN(bad); k++) {
            *fields[i] = bad[k];
            assert_int_equal(leat_codec_plan(&in, &p), LEAT_CODEC_ERR_INVALID);
        }
    }
    struct leat_codec_plan_input in = gigabyte;
    in.reuse = 0.5;
    assert_int_equal(leat_codec_plan(&in, &p), LEAT_CODEC_ERR_INVALID);
}

// The sampled ratio is close to what encoding really gives.
static void test_estimate(void **state)
{
    (void)state;
    struct data_random r = {21};
    u8 *plain = malloc(PLAIN);
    u8 *out = malloc(2 * PLAIN);
    u8 *scratch = aligned_alloc(64, SCRATCH);
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 kind = 0; kind <= DATA_KV; kind++) {
            double ratio[2];
            data_fill(&r, kind, type, plain, PLAIN);
            assert_int_equal(leat_codec_estimate(plain, PLAIN, type, scratch, SCRATCH, ratio),
                             LEAT_CODEC_OK);
            for (u32 mode = 1; mode <= 2; mode++) {
                struct leat_codec_options o = {.type = type, .mode = mode};
                u64 size;
                assert_int_equal(
                    leat_codec_encode(&o, plain, PLAIN, out, 2 * PLAIN, scratch, SCRATCH, &size),
                    LEAT_CODEC_OK);
                double real = (double)PLAIN / (double)size;
                assert_true(fabs(ratio[mode - 1] - real) < 0.02 * real);
            }
        }
    }
    free(plain);
    free(out);
    free(scratch);
}

static void test_detect(void **state)
{
    (void)state;
    static const u32 found[] = {LEAT_CODEC_TYPE_BF16, LEAT_CODEC_TYPE_FP16, LEAT_CODEC_TYPE_FP32,
                                LEAT_CODEC_TYPE_FP8_E5M2};
    struct data_random r = {22};
    u8 *plain = malloc(PLAIN);
    u8 *scratch = aligned_alloc(64, SCRATCH);
    u32 type;
    for (u32 i = 0; i < ARRAY_LEN(found); i++) {
        for (u32 kind = 0; kind <= DATA_KV; kind++) {
            data_fill(&r, kind, found[i], plain, PLAIN);
            assert_int_equal(leat_codec_detect(plain, PLAIN, scratch, SCRATCH, &type),
                             LEAT_CODEC_OK);
            // E5M2's whole bytes and its rotated bytes have the same entropy.
            if (found[i] != LEAT_CODEC_TYPE_FP8_E5M2 || type != LEAT_CODEC_TYPE_BYTES) {
                assert_int_equal(type, found[i]);
            }
        }
    }
    data_fill(&r, DATA_RANDOM, 0, plain, PLAIN);
    assert_int_equal(leat_codec_detect(plain, PLAIN, scratch, SCRATCH, &type), LEAT_CODEC_OK);
    assert_int_equal(type, LEAT_CODEC_TYPE_BYTES);
    assert_int_equal(leat_codec_detect(plain, 0, scratch, SCRATCH, &type), LEAT_CODEC_OK);
    assert_int_equal(leat_codec_detect(plain, 3, scratch, SCRATCH, &type), LEAT_CODEC_OK);
    free(plain);
    free(scratch);
}

// A clock that advances 1 ms a look: rates then follow from the number of rounds alone.
static uint64_t fake_now(void *context)
{
    u64 *now = context;
    return *now += 1000000;
}

static void test_calibrate(void **state)
{
    (void)state;
    struct data_random r = {23};
    u64 clock = 0;
    u8 *plain = malloc(65536);
    u8 *out = malloc(65536 + 32);
    u8 *back = malloc(65536);
    u8 *scratch = aligned_alloc(64, SCRATCH);
    struct leat_codec_rates rates;
    data_fill(&r, DATA_WEIGHTS, LEAT_CODEC_TYPE_BF16, plain, 65536);
    struct leat_codec_calibration how = {.plain = plain,
                                         .n = 65536,
                                         .type = LEAT_CODEC_TYPE_BF16,
                                         .out = out,
                                         .back = back,
                                         .round_ns = 5000000,
                                         .now_ns = fake_now,
                                         .context = &clock};
    assert_int_equal(leat_codec_calibrate(&how, scratch, SCRATCH, &rates), LEAT_CODEC_OK);
    for (u32 i = 0; i < 2; i++) {
        near(rates.encode[i], 65536 * 1000.0);
        near(rates.decode[i], 65536 * 1000.0);
    }
    assert_memory_equal(plain, back, 65536);
    how.n = 0;
    assert_int_equal(leat_codec_calibrate(&how, scratch, SCRATCH, &rates), LEAT_CODEC_ERR_INVALID);
    free(plain);
    free(out);
    free(back);
    free(scratch);
}

// Puts the header's length before it and checks the regions.
static enum leat_codec_err safetensors(const char *json, u64 data_bytes,
                                       struct leat_codec_region *regions, size_t capacity,
                                       size_t *count)
{
    u8 head[1024];
    u64 length = strlen(json);
    memcpy(head, &length, 8);
    memcpy(head + 8, json, length);
    return leat_codec_file_regions(head, 8 + length, 8 + length + data_bytes, regions, capacity,
                                   count);
}

static void test_safetensors(void **state)
{
    (void)state;
    struct leat_codec_region r[16];
    size_t count;
    const char *json = "{ \"__metadata__\": {\"a\": \"}\\\"\"},\n"
                       " \"b\": {\"shape\":[2,[3]],\"data_offsets\":[8,20],\"dtype\":\"F16\"},"
                       "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                       "\"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}";
    u64 header = 8 + strlen(json);
    assert_int_equal(safetensors(json, 25, r, 16, &count), LEAT_CODEC_OK);
    assert_int_equal(count, 4);
    assert_int_equal(r[0].bytes, header);
    assert_int_equal(r[1].type, LEAT_CODEC_TYPE_BF16);
    assert_int_equal(r[1].offset, header);
    assert_int_equal(r[1].bytes, 8);
    assert_int_equal(r[1].name_bytes, 1);
    assert_int_equal(r[2].type, LEAT_CODEC_TYPE_FP16);
    assert_int_equal(r[2].bytes, 12);
    assert_int_equal(r[3].bytes, 5);
    assert_int_equal(safetensors(json, 25, r, 6, &count), LEAT_CODEC_ERR_SPACE);
    assert_int_equal(count, 7);
    static const char *const bad[] = {
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,26]}}",
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[4,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]},\"b\":{\"data_offsets\":[4,12]}}",
        "{\"a\":{\"dtype\":\"F32\"}}",
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,99999999999999999999]}}",
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]",
        "{\"a",
        "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    };
    for (u32 i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(safetensors(bad[i], 25, r, 16, &count), LEAT_CODEC_ERR_FORMAT);
    }
}

// Appends little-endian numbers and strings as GGUF writes them.
struct gguf {
    u8 data[1024];
    size_t n;
};

static void put(struct gguf *g, u64 v, size_t bytes)
{
    memcpy(g->data + g->n, &v, bytes);
    g->n += bytes;
}

static void put_string(struct gguf *g, const char *text)
{
    put(g, strlen(text), 8);
    memcpy(g->data + g->n, text, strlen(text));
    g->n += strlen(text);
}

static void put_tensor(struct gguf *g, const char *name, u64 rows, u32 type, u64 offset)
{
    put_string(g, name);
    put(g, 2, 4);
    put(g, 4, 8);
    put(g, rows, 8);
    put(g, type, 4);
    put(g, offset, 8);
}

static void test_gguf(void **state)
{
    (void)state;
    struct leat_codec_region r[16];
    size_t count;
    struct gguf g = {.n = 0};
    memcpy(g.data, "GGUF", 4);
    g.n = 4;
    put(&g, 3, 4);
    put(&g, 3, 8); // tensors
    put(&g, 3, 8); // values
    put_string(&g, "general.alignment");
    put(&g, 4, 4);
    put(&g, 64, 4);
    put_string(&g, "names");
    put(&g, 9, 4);
    put(&g, 8, 4);
    put(&g, 2, 8);
    put_string(&g, "x");
    put_string(&g, "yz");
    put_string(&g, "scale");
    put(&g, 6, 4);
    put(&g, 0, 4);
    put_tensor(&g, "half", 8, 1, 0);
    put_tensor(&g, "quantized", 8, 2, 64);
    put_tensor(&g, "brain", 4, 30, 128);
    u64 data = ALIGN_UP(g.n, 64u);
    u64 file = data + 128 + 32;
    assert_int_equal(leat_codec_file_regions(g.data, g.n, file, r, 16, &count), LEAT_CODEC_OK);
    assert_int_equal(count, 4);
    assert_int_equal(r[0].bytes, data);
    assert_int_equal(r[1].type, LEAT_CODEC_TYPE_FP16);
    assert_int_equal(r[1].offset, data);
    assert_int_equal(r[1].bytes, 64);
    assert_int_equal(r[2].type, LEAT_CODEC_TYPE_BYTES);
    assert_int_equal(r[2].bytes, 64);
    assert_int_equal(r[2].name_bytes, 9);
    assert_int_equal(r[3].type, LEAT_CODEC_TYPE_BF16);
    assert_int_equal(r[3].bytes, 32);
    for (size_t n = 0; n < g.n; n++) {
        assert_int_equal(leat_codec_file_regions(g.data, n, file, r, 16, &count),
                         LEAT_CODEC_ERR_FORMAT);
    }
    assert_int_equal(leat_codec_file_regions(g.data, g.n, file - 1, r, 16, &count),
                     LEAT_CODEC_ERR_FORMAT);
}

static void test_names(void **state)
{
    (void)state;
    u32 v;
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        assert_int_equal(leat_codec_type_from_name(leat_codec_type_name(type), &v), LEAT_CODEC_OK);
        assert_int_equal(v, type);
    }
    for (u32 mode = 0; mode <= LEAT_CODEC_MODE_AUTO; mode++) {
        assert_int_equal(leat_codec_mode_from_name(leat_codec_mode_name(mode), &v), LEAT_CODEC_OK);
        assert_int_equal(v, mode);
    }
    assert_int_equal(leat_codec_type_from_name("float", &v), LEAT_CODEC_ERR_INVALID);
    assert_string_equal(leat_codec_type_name(99), "unknown");
    assert_string_equal(leat_codec_err_text((enum leat_codec_err)99), "unknown");
    assert_string_equal(leat_codec_cpu_name(LEAT_CODEC_CPU_C), "c");
    assert_int_equal(leat_codec_element_bytes(99), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_formula), cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_estimate),     cmocka_unit_test(test_detect),
        cmocka_unit_test(test_calibrate),    cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_gguf),         cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
