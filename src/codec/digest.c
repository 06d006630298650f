// SPDX-License-Identifier: Apache-2.0
// Buffering and padding are ours; whole blocks go to OpenSSL's block functions. Those are reached
// through MD5_Update() and its kin on a context made for the call: with nothing buffered and a
// multiple of 64 bytes they do nothing but run the block function over the state. OpenSSL marks
// them deprecated in favour of EVP, whose contexts live on the heap and are the cost avoided here.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/digest.h"

#include <openssl/md5.h>
#include <openssl/sha.h>

#include "base/assert.h"
#include "base/endian.h"

typedef void (*compress_fn)(u32 *state, const u8 *blocks, size_t bytes);

// The state sits at the front of OpenSSL's contexts: A to D, h0 to h4, h[8].
static void md5_compress(u32 *state, const u8 *blocks, size_t bytes)
{
    MD5_CTX c = {.A = state[0], .B = state[1], .C = state[2], .D = state[3]};
    MD5_Update(&c, blocks, bytes);
    state[0] = c.A;
    state[1] = c.B;
    state[2] = c.C;
    state[3] = c.D;
}

static void sha1_compress(u32 *state, const u8 *blocks, size_t bytes)
{
    SHA_CTX c = {.h0 = state[0], .h1 = state[1], .h2 = state[2], .h3 = state[3], .h4 = state[4]};
    SHA1_Update(&c, blocks, bytes);
    state[0] = c.h0;
    state[1] = c.h1;
    state[2] = c.h2;
    state[3] = c.h3;
    state[4] = c.h4;
}

static void sha256_compress(u32 *state, const u8 *blocks, size_t bytes)
{
    SHA256_CTX c;
    memcpy(c.h, state, sizeof(c.h));
    c.Nl = 0;
    c.Nh = 0;
    c.num = 0;
    c.md_len = SHA256_LEN;
    SHA256_Update(&c, blocks, bytes);
    memcpy(state, c.h, sizeof(c.h));
}

// Adds data to a context given by its parts.
static inline void digest_update(u32 *state, u64 *len, u8 *block, struct bytes data,
                                 compress_fn compress)
{
    size_t waiting = *len % DIGEST_BLOCK;
    *len += data.len;
    if (waiting > 0) {
        size_t n = MIN(data.len, DIGEST_BLOCK - waiting);
        if (n > 0) {
            memcpy(block + waiting, data.data, n);
        }
        if (waiting + n < DIGEST_BLOCK) {
            return;
        }
        compress(state, block, DIGEST_BLOCK);
        data = bytes_skip(data, n);
    }
    size_t whole = ALIGN_DOWN(data.len, (size_t)DIGEST_BLOCK);
    if (whole > 0) {
        compress(state, data.data, whole);
    }
    if (data.len > whole) {
        memcpy(block, data.data + whole, data.len - whole);
    }
}

// Pads: a one bit, zeros, and the length in bits in the last eight bytes.
static inline void digest_pad(u32 *state, u64 len, u8 *block, bool is_big_endian,
                              compress_fn compress)
{
    size_t waiting = len % DIGEST_BLOCK;
    block[waiting++] = 0x80;
    if (waiting > DIGEST_BLOCK - 8) {
        memset(block + waiting, 0, DIGEST_BLOCK - waiting);
        compress(state, block, DIGEST_BLOCK);
        waiting = 0;
    }
    memset(block + waiting, 0, DIGEST_BLOCK - 8 - waiting);
    u64 bits = len << 3;
    store_le64(block + DIGEST_BLOCK - 8, is_big_endian ? __builtin_bswap64(bits) : bits);
    compress(state, block, DIGEST_BLOCK);
}

void md5_init(struct md5 *ctx)
{
    ctx->state[0] = 0x67452301;
    ctx->state[1] = 0xefcdab89;
    ctx->state[2] = 0x98badcfe;
    ctx->state[3] = 0x10325476;
    ctx->len = 0;
}

void md5_update(struct md5 *ctx, struct bytes data)
{
    digest_update(ctx->state, &ctx->len, ctx->block, data, md5_compress);
}

void md5_final(struct md5 *ctx, u8 out[MD5_LEN])
{
    digest_pad(ctx->state, ctx->len, ctx->block, false, md5_compress);
    for (size_t i = 0; i < 4; i++) {
        store_le32(out + 4 * i, ctx->state[i]);
    }
}

void sha1_init(struct sha1 *ctx)
{
    ctx->state[0] = 0x67452301;
    ctx->state[1] = 0xefcdab89;
    ctx->state[2] = 0x98badcfe;
    ctx->state[3] = 0x10325476;
    ctx->state[4] = 0xc3d2e1f0;
    ctx->len = 0;
}

void sha1_update(struct sha1 *ctx, struct bytes data)
{
    digest_update(ctx->state, &ctx->len, ctx->block, data, sha1_compress);
}

void sha1_final(struct sha1 *ctx, u8 out[SHA1_LEN])
{
    digest_pad(ctx->state, ctx->len, ctx->block, true, sha1_compress);
    for (size_t i = 0; i < 5; i++) {
        store_be32(out + 4 * i, ctx->state[i]);
    }
}

void sha256_init(struct sha256 *ctx)
{
    static const u32 start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(ctx->state, start, sizeof(start));
    ctx->len = 0;
}

void sha256_update(struct sha256 *ctx, struct bytes data)
{
    digest_update(ctx->state, &ctx->len, ctx->block, data, sha256_compress);
}

void sha256_final(struct sha256 *ctx, u8 out[SHA256_LEN])
{
    digest_pad(ctx->state, ctx->len, ctx->block, true, sha256_compress);
    for (size_t i = 0; i < 8; i++) {
        store_be32(out + 4 * i, ctx->state[i]);
    }
}

void md5_digest(struct bytes data, u8 out[MD5_LEN])
{
    struct md5 ctx;
    md5_init(&ctx);
    md5_update(&ctx, data);
    md5_final(&ctx, out);
}

void sha1_digest(struct bytes data, u8 out[SHA1_LEN])
{
    struct sha1 ctx;
    sha1_init(&ctx);
    sha1_update(&ctx, data);
    sha1_final(&ctx, out);
}

void sha256_digest(struct bytes data, u8 out[SHA256_LEN])
{
    struct sha256 ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, data);
    sha256_final(&ctx, out);
}

// The state after one block of the secret combined with a pad byte.
static void hmac_half(u32 state[8], const u8 secret[DIGEST_BLOCK], u8 pad)
{
    struct sha256 ctx;
    u8 block[DIGEST_BLOCK];
    for (size_t i = 0; i < DIGEST_BLOCK; i++) {
        block[i] = secret[i] ^ pad;
    }
    sha256_init(&ctx);
    sha256_compress(ctx.state, block, DIGEST_BLOCK);
    memcpy(state, ctx.state, sizeof(ctx.state));
    explicit_bzero(block, sizeof(block));
}

void hmac_sha256_key_init(struct hmac_sha256_key *key, struct bytes secret)
{
    u8 block[DIGEST_BLOCK] = {0};
    if (secret.len > DIGEST_BLOCK) {
        sha256_digest(secret, block);
    } else if (secret.len > 0) {
        memcpy(block, secret.data, secret.len);
    }
    hmac_half(key->inner, block, 0x36);
    hmac_half(key->outer, block, 0x5c);
    explicit_bzero(block, sizeof(block));
}

void hmac_sha256_start(const struct hmac_sha256_key *key, struct sha256 *ctx)
{
    memcpy(ctx->state, key->inner, sizeof(ctx->state));
    ctx->len = DIGEST_BLOCK;
}

void hmac_sha256_finish(const struct hmac_sha256_key *key, struct sha256 *ctx, u8 out[SHA256_LEN])
{
    ASSERT(ctx->len >= DIGEST_BLOCK);
    u8 inner[SHA256_LEN];
    sha256_final(ctx, inner);
    memcpy(ctx->state, key->outer, sizeof(ctx->state));
    ctx->len = DIGEST_BLOCK;
    sha256_update(ctx, BYTES(inner, SHA256_LEN));
    sha256_final(ctx, out);
}

void hmac_sha256(const struct hmac_sha256_key *key, struct bytes data, u8 out[SHA256_LEN])
{
    struct sha256 ctx;
    hmac_sha256_start(key, &ctx);
    sha256_update(&ctx, data);
    hmac_sha256_finish(key, &ctx, out);
}

bool digest_equal(const void *a, const void *b, size_t len)
{
    const u8 *x = a;
    const u8 *y = b;
    volatile u8 difference = 0;
    for (size_t i = 0; i < len; i++) {
        difference = (u8)(difference | (x[i] ^ y[i]));
    }
    return difference == 0;
}
