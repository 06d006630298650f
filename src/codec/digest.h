// SPDX-License-Identifier: Apache-2.0
// MD5, SHA-1 and SHA-256 as plain values: a context is a small struct inside the caller's own, is
// copied by assignment, needs no clean-up, and no function here allocates or fails.
//
// Why not EVP contexts: they live on the heap and cost 100 to 300 ns before the first byte, more
// than the hash of a canonical request. The block functions underneath are still OpenSSL's, which
// choose SHA-NI, AVX2 or portable code by themselves. Many MD5 streams at once: codec/md5_lanes.h.
#pragma once

#include "base/slice.h"
#include "base/types.h"

#define MD5_LEN      16
#define SHA1_LEN     20
#define SHA256_LEN   32
#define DIGEST_BLOCK 64 // the block length of all three

// `len` counts all bytes so far; len % 64 of them wait in `block`.
struct md5 {
    u32 state[4];
    u64 len;
    u8 block[DIGEST_BLOCK];
};

struct sha1 {
    u32 state[5];
    u64 len;
    u8 block[DIGEST_BLOCK];
};

struct sha256 {
    u32 state[8];
    u64 len;
    u8 block[DIGEST_BLOCK];
};

// final() writes the digest and leaves the context used up: init() before it is used again. To read
// a running digest, copy the struct and finish the copy.
void md5_init(struct md5 *ctx);
void md5_update(struct md5 *ctx, struct bytes data);
void md5_final(struct md5 *ctx, u8 out[MD5_LEN]);

void sha1_init(struct sha1 *ctx);
void sha1_update(struct sha1 *ctx, struct bytes data);
void sha1_final(struct sha1 *ctx, u8 out[SHA1_LEN]);

void sha256_init(struct sha256 *ctx);
void sha256_update(struct sha256 *ctx, struct bytes data);
void sha256_final(struct sha256 *ctx, u8 out[SHA256_LEN]);

// The whole digest of one range of bytes.
void md5_digest(struct bytes data, u8 out[MD5_LEN]);
void sha1_digest(struct bytes data, u8 out[SHA1_LEN]);
void sha256_digest(struct bytes data, u8 out[SHA256_LEN]);

// HMAC-SHA-256 with the key's two first blocks hashed beforehand: keep one per signing key.
struct hmac_sha256_key {
    u32 inner[8];
    u32 outer[8];
};

void hmac_sha256_key_init(struct hmac_sha256_key *key, struct bytes secret);
// `out` may be the bytes that the next key is made of (SigV4's chain).
void hmac_sha256(const struct hmac_sha256_key *key, struct bytes data, u8 out[SHA256_LEN]);
// The same over several ranges: start, sha256_update() any number of times, finish.
void hmac_sha256_start(const struct hmac_sha256_key *key, struct sha256 *ctx);
void hmac_sha256_finish(const struct hmac_sha256_key *key, struct sha256 *ctx, u8 out[SHA256_LEN]);

// Compares in a time that does not depend on the bytes: for signatures and other secrets.
bool digest_equal(const void *a, const void *b, size_t len);
