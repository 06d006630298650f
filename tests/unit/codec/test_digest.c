// SPDX-License-Identifier: Apache-2.0
// Digests: published vectors, OpenSSL's EVP on random data in random pieces, HMAC vectors of RFC
// 4231, and MD5 lanes of every kind against one-stream MD5.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#include "base/text.h"
#include "codec/digest.h"
#include "codec/md5_lanes.h"

#define DATA_BYTES 8192
#define JOBS_MAX   45

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

static void assert_hex(const u8 *digest, size_t len, const char *want)
{
    char text[2 * SHA256_LEN + 1];
    hex_encode(BYTES(digest, len), text);
    assert_string_equal(text, want);
}

static void test_vectors(void **state)
{
    (void)state;
    u8 out[SHA256_LEN];
    md5_digest(BYTES_NONE, out);
    assert_hex(out, MD5_LEN, "d41d8cd98f00b204e9800998ecf8427e");
    md5_digest(BYTES_LITERAL("abc"), out);
    assert_hex(out, MD5_LEN, "900150983cd24fb0d6963f7d28e17f72");
    sha1_digest(BYTES_LITERAL("abc"), out);
    assert_hex(out, SHA1_LEN, "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1_digest(BYTES_NONE, out);
    assert_hex(out, SHA1_LEN, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha256_digest(BYTES_NONE, out);
    assert_hex(out, SHA256_LEN, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_digest(BYTES_LITERAL("abc"), out);
    assert_hex(out, SHA256_LEN, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// Every length around the block borders, and random cuts.
static void test_against_evp(void **state)
{
    (void)state;
    u8 *data = random_data(1);
    u64 seed = 2;
    for (size_t round = 0; round < 1500; round++) {
        size_t len = round < 300 ? round : random_next(&seed) % (DATA_BYTES + 1);
        struct md5 md5;
        struct sha1 sha1;
        struct sha256 sha256;
        md5_init(&md5);
        sha1_init(&sha1);
        sha256_init(&sha256);
        for (size_t at = 0; at < len;) {
            size_t n = MIN(len - at, (size_t)random_next(&seed) % 200);
            md5_update(&md5, BYTES(data + at, n));
            sha1_update(&sha1, BYTES(data + at, n));
            sha256_update(&sha256, BYTES(data + at, n));
            at += n;
        }
        u8 got[SHA256_LEN];
        u8 want[EVP_MAX_MD_SIZE];
        md5_final(&md5, got);
        assert_true(EVP_Digest(data, len, want, NULL, EVP_md5(), NULL) == 1);
        assert_memory_equal(got, want, MD5_LEN);
        sha1_final(&sha1, got);
        assert_true(EVP_Digest(data, len, want, NULL, EVP_sha1(), NULL) == 1);
        assert_memory_equal(got, want, SHA1_LEN);
        sha256_final(&sha256, got);
        assert_true(EVP_Digest(data, len, want, NULL, EVP_sha256(), NULL) == 1);
        assert_memory_equal(got, want, SHA256_LEN);
    }
    free(data);
}

static void test_hmac(void **state)
{
    (void)state;
    struct hmac_sha256_key key;
    u8 out[SHA256_LEN];
    hmac_sha256_key_init(&key, BYTES_LITERAL("Jefe"));
    hmac_sha256(&key, BYTES_LITERAL("what do ya want for nothing?"), out);
    assert_hex(out, SHA256_LEN, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    u8 *data = random_data(3);
    for (size_t secret_len = 0; secret_len < 200; secret_len++) {
        size_t len = secret_len * 2;
        u8 want[SHA256_LEN];
        struct sha256 ctx;
        hmac_sha256_key_init(&key, BYTES(data, secret_len));
        hmac_sha256_start(&key, &ctx);
        sha256_update(&ctx, BYTES(data, len / 3));
        sha256_update(&ctx, BYTES(data + len / 3, len - len / 3));
        hmac_sha256_finish(&key, &ctx, out);
        assert_non_null(HMAC(EVP_sha256(), data, (int)secret_len, data, len, want, NULL));
        assert_memory_equal(out, want, SHA256_LEN);
        hmac_sha256(&key, BYTES(data, len), out);
        assert_memory_equal(out, want, SHA256_LEN);
    }
    free(data);
}

// The chain of Signature V4's signing key, with the values of AWS's documentation.
static void test_signing_key(void **state)
{
    (void)state;
    const char *parts[] = {"20150830", "us-east-1", "iam", "aws4_request"};
    struct hmac_sha256_key key;
    u8 out[SHA256_LEN];
    hmac_sha256_key_init(&key, BYTES_LITERAL("AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"));
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        hmac_sha256(&key, bytes_from_string(parts[i]), out);
        hmac_sha256_key_init(&key, BYTES(out, SHA256_LEN));
    }
    assert_hex(out, SHA256_LEN, "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

static void test_equal(void **state)
{
    (void)state;
    assert_true(digest_equal("abcd", "abcd", 4));
    assert_false(digest_equal("abcd", "abce", 4));
    assert_false(digest_equal("\x80", "\x00", 1));
    assert_true(digest_equal("x", "y", 0));
}

struct lanes_test {
    struct md5 lanes[JOBS_MAX];
    struct md5 alone[JOBS_MAX];
    struct md5_lane_job jobs[JOBS_MAX];
};

// One round: n streams with random waiting bytes and random lengths, through lanes and alone.
static void lanes_round(enum md5_lanes_isa isa, size_t n, size_t len_max, const u8 *data, u64 *seed)
{
    struct lanes_test *t = malloc(sizeof(*t));
    assert_non_null(t);
    struct md5 *lanes = t->lanes;
    struct md5 *alone = t->alone;
    struct md5_lane_job *jobs = t->jobs;
    for (size_t i = 0; i < n; i++) {
        md5_init(&alone[i]);
        size_t waiting = random_next(seed) % 3 == 0 ? 0 : random_next(seed) % 130;
        md5_update(&alone[i], BYTES(data, waiting));
        lanes[i] = alone[i];
    }
    for (size_t piece = 0; piece < 3; piece++) {
        for (size_t i = 0; i < n; i++) {
            size_t len = random_next(seed) % (len_max + 1);
            jobs[i].ctx = &lanes[i];
            jobs[i].data = BYTES(data + random_next(seed) % (DATA_BYTES - len + 1), len);
            md5_update(&alone[i], jobs[i].data);
        }
        md5_lanes_update_isa(jobs, n, isa);
    }
    for (size_t i = 0; i < n; i++) {
        u8 got[MD5_LEN];
        u8 want[MD5_LEN];
        assert_true(lanes[i].len == alone[i].len);
        md5_final(&lanes[i], got);
        md5_final(&alone[i], want);
        assert_memory_equal(got, want, MD5_LEN);
    }
    free(t);
}

static void test_lanes(void **state)
{
    (void)state;
    static const size_t len_max[] = {10, 64, 300, DATA_BYTES};
    u8 *data = random_data(4);
    u64 seed = 5;
    for (u32 isa = MD5_LANES_PORTABLE; isa <= (u32)md5_lanes_isa_best(); isa++) {
        for (size_t n = 0; n <= JOBS_MAX; n++) {
            for (size_t i = 0; i < ARRAY_LEN(len_max); i++) {
                lanes_round((enum md5_lanes_isa)isa, n, len_max[i], data, &seed);
            }
        }
    }
    // And the public entry, equal lengths as a reactor gives them.
    struct md5 ctx[MD5_LANES_MAX];
    struct md5_lane_job jobs[MD5_LANES_MAX];
    for (size_t i = 0; i < MD5_LANES_MAX; i++) {
        md5_init(&ctx[i]);
        jobs[i] = (struct md5_lane_job){&ctx[i], BYTES(data + i, 4096)};
    }
    md5_lanes_update(jobs, MD5_LANES_MAX);
    for (size_t i = 0; i < MD5_LANES_MAX; i++) {
        u8 got[MD5_LEN];
        u8 want[EVP_MAX_MD_SIZE];
        md5_final(&ctx[i], got);
        assert_true(EVP_Digest(data + i, 4096, want, NULL, EVP_md5(), NULL) == 1);
        assert_memory_equal(got, want, MD5_LEN);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_against_evp),
        cmocka_unit_test(test_hmac),    cmocka_unit_test(test_signing_key),
        cmocka_unit_test(test_equal),   cmocka_unit_test(test_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
