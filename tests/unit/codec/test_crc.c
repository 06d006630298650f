// SPDX-License-Identifier: Apache-2.0
// CRCs: check values, every implementation against a bitwise one, chaining, joining, and the
// constants computed again from the polynomials.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "codec/crc.h"
#include "codec/crc64nvme.h"
#include "codec/crc_constants.h"
#include "codec/hash.h"

#define DATA_BYTES 5000

// A small deterministic generator, so that a failure repeats.
static u64 random_next(u64 *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 16;
}

// DATA_BYTES of them, to be freed.
static u8 *random_data(u64 seed)
{
    u8 *p = malloc(DATA_BYTES);
    assert_non_null(p);
    for (size_t i = 0; i < DATA_BYTES; i++) {
        p[i] = (u8)random_next(&seed);
    }
    return p;
}

// One bit at a time, straight from the definition.
static u64 crc_bitwise(struct bytes data, u64 poly, u32 bits)
{
    u64 ones = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    u64 crc = ones;
    for (size_t i = 0; i < data.len; i++) {
        crc ^= data.data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? poly : 0);
        }
    }
    return crc ^ ones;
}

static void test_check_values(void **state)
{
    (void)state;
    struct bytes digits = BYTES_LITERAL("123456789");
    assert_int_equal(crc32(0, digits), 0xcbf43926);
    assert_int_equal(crc32c(0, digits), 0xe3069283);
    assert_true(crc64nvme(0, digits) == 0xae8b14860a799888);
    assert_int_equal(crc32(0, BYTES_NONE), 0);
    assert_int_equal(crc32c(0, BYTES_NONE), 0);
    assert_true(crc64nvme(0, BYTES_NONE) == 0);
    u8 zeros[32] = {0};
    assert_int_equal(crc32c(0, BYTES(zeros, 32)), 0x8a9136aa); // RFC 3720, B.4
}

static void test_against_bitwise(void **state)
{
    (void)state;
    u8 *data = random_data(1);
    u64 seed = 2;
    for (size_t round = 0; round < 3000; round++) {
        size_t len = round < 1200 ? round : random_next(&seed) % (DATA_BYTES - 64);
        struct bytes b = BYTES(data + random_next(&seed) % 64, len);
        assert_int_equal(crc32(0, b), crc_bitwise(b, CRC32_POLY, 32));
        assert_int_equal(crc32c(0, b), crc_bitwise(b, CRC32C_POLY, 32));
        u64 want = crc_bitwise(b, CRC64NVME_POLY, 64);
        assert_true(crc64nvme(0, b) == want);
        assert_true(~crc64nvme_update_table(~0ull, b.data, b.len) == want);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
            assert_true(~crc64nvme_update_clmul(~0ull, b.data, b.len) == want);
        }
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
            assert_true(~crc64nvme_update_vclmul(~0ull, b.data, b.len) == want);
        }
#endif
    }
    free(data);
}

static void test_chain_and_combine(void **state)
{
    (void)state;
    u8 *data = random_data(3);
    u64 seed = 4;
    for (size_t round = 0; round < 2000; round++) {
        size_t len = random_next(&seed) % (DATA_BYTES + 1);
        size_t cut = random_next(&seed) % (len + 1);
        struct bytes whole = BYTES(data, len);
        struct bytes a = BYTES(data, cut);
        struct bytes b = BYTES(data + cut, len - cut);
        assert_int_equal(crc32(crc32(0, a), b), crc32(0, whole));
        assert_int_equal(crc32c(crc32c(0, a), b), crc32c(0, whole));
        assert_true(crc64nvme(crc64nvme(0, a), b) == crc64nvme(0, whole));
        assert_int_equal(crc32_combine(crc32(0, a), crc32(0, b), b.len), crc32(0, whole));
        assert_int_equal(crc32c_combine(crc32c(0, a), crc32c(0, b), b.len), crc32c(0, whole));
        assert_true(crc64nvme_combine(crc64nvme(0, a), crc64nvme(0, b), b.len) ==
                    crc64nvme(0, whole));
    }
    free(data);
}

// Joining is associative, so lengths that no test can hash are checked against each other; this
// covers every power in the tables.
static void test_combine_long(void **state)
{
    (void)state;
    u64 seed = 5;
    for (size_t round = 0; round < 2000; round++) {
        u64 len_b = random_next(&seed) << 16 >> (round % 60);
        u64 len_c = random_next(&seed) << 15 >> (round % 59);
        if (len_b > UINT64_MAX - len_c) {
            continue;
        }
        u64 a = random_next(&seed) * 0x9e3779b97f4a7c15ull;
        u64 b = random_next(&seed) * 0x9e3779b97f4a7c15ull;
        u64 c = random_next(&seed) * 0x9e3779b97f4a7c15ull;
        u64 left = crc64nvme_combine(crc64nvme_combine(a, b, len_b), c, len_c);
        u64 right = crc64nvme_combine(a, crc64nvme_combine(b, c, len_c), len_b + len_c);
        assert_true(left == right);
        u32 left32 = crc32_combine(crc32_combine((u32)a, (u32)b, len_b), (u32)c, len_c);
        u32 right32 = crc32_combine((u32)a, crc32_combine((u32)b, (u32)c, len_c), len_b + len_c);
        assert_int_equal(left32, right32);
        left32 = crc32c_combine(crc32c_combine((u32)a, (u32)b, len_b), (u32)c, len_c);
        right32 = crc32c_combine((u32)a, crc32c_combine((u32)b, (u32)c, len_c), len_b + len_c);
        assert_int_equal(left32, right32);
    }
}

// x^n modulo the polynomial, reflected, one multiplication by x after the other.
static u64 power_of_x(u32 n)
{
    u64 v = 1ull << 63;
    for (u32 i = 0; i < n; i++) {
        v = (v >> 1) ^ ((v & 1) != 0 ? CRC64NVME_POLY : 0);
    }
    return v;
}

static void test_constants(void **state)
{
    (void)state;
    assert_true(power_of_x(128 + 63) == CRC64NVME_FOLD_128_LOW);
    assert_true(power_of_x(127) == CRC64NVME_FOLD_128_HIGH);
    assert_true(power_of_x(512 + 63) == CRC64NVME_FOLD_512_LOW);
    assert_true(power_of_x(511) == CRC64NVME_FOLD_512_HIGH);
    assert_true(power_of_x(2048 + 63) == CRC64NVME_FOLD_2048_LOW);
    assert_true(power_of_x(2047) == CRC64NVME_FOLD_2048_HIGH);
    assert_true(power_of_x(127) == CRC64NVME_X127);
    // Long division of x^128: the remainder after i steps is x^(64+i) mod P, and the quotient's
    // next digit is its leading coefficient.
    u64 quotient = 0;
    for (u32 i = 0; i < 64; i++) {
        quotient = quotient << 1 | (power_of_x(64 + i) & 1);
    }
    u64 reflected = 0;
    for (u32 i = 0; i < 64; i++) {
        reflected |= (quotient >> i & 1) << (63 - i);
    }
    assert_true(reflected == CRC64NVME_QUOTIENT);
}

static void test_hash(void **state)
{
    (void)state;
    // The placement of stored objects depends on these values: they may never change.
    assert_true(hash64(BYTES_NONE, 0) == 0x2d06800538d394c2);
    assert_true(hash64(BYTES_LITERAL("bucket/key"), 0) == 0xbfd6d28ff64148aa);
    assert_true(hash64(BYTES_LITERAL("bucket/key"), 1) == 0xb77d4c83cbeb25de);
    assert_true(hash64(BYTES_LITERAL("a"), 0) != hash64(BYTES_LITERAL("b"), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_values),      cmocka_unit_test(test_against_bitwise),
        cmocka_unit_test(test_chain_and_combine), cmocka_unit_test(test_combine_long),
        cmocka_unit_test(test_constants),         cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
