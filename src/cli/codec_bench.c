// SPDX-License-Identifier: Apache-2.0
// bench: the codec against zstd, LZ4, planes with zstd, and a copy, in one run, on one core, in
// blocks of 256 KiB. Each figure is the best of the rounds that fit into the time given. Two sets
// of blocks: one that stays in the caches, and one that comes from memory.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <lz4.h>
#include <zstd.h>

#include "cli/codec_internal.h"

#define BLOCK         LEAT_CODEC_BLOCK_BYTES_DEFAULT
#define BLOCKS_CACHED 4u
#define BLOCKS_MEMORY 256u
#define ROOM          (BLOCK + BLOCK / 8 + 4096u) // what any of the codecs may need for a block
#define ELEMENTS      (BLOCK / 2)

struct random {
    u64 state;
};

static u64 random_u64(struct random *r)
{
    u64 z = r->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Two Gaussian numbers.
static void random_gauss(struct random *r, float out[2])
{
    float u = ((float)(random_u64(r) >> 40) + 1.0f) * 0x1p-24f;
    float v = (float)(random_u64(r) >> 40) * (0x1p-24f * 6.2831853f);
    float length = sqrtf(-2.0f * logf(u));
    out[0] = length * cosf(v);
    out[1] = length * sinf(v);
}

static u16 bf16_from(float x)
{
    u32 bits;
    memcpy(&bits, &x, 4);
    return (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Weights: one Gaussian. KV-like: every one of 128 channels with a scale of its own, spread over a
// factor of about sixty as keys' channels are.
static void data_fill(struct random *r, bool is_kv, u16 *out, size_t n)
{
    float scale[128];
    for (u32 i = 0; i < 128; i++) {
        float g[2];
        random_gauss(r, g);
        scale[i] = is_kv ? expf(g[0]) * 0.5f : 0.02f;
    }
    for (size_t i = 0; i < n; i += 2) {
        float g[2];
        random_gauss(r, g);
        out[i] = bf16_from(g[0] * scale[i % 128]);
        out[i + 1] = bf16_from(g[1] * scale[(i + 1) % 128]);
    }
}

// The mean entropy floor of the blocks: sign and mantissa raw, the exponent at its entropy.
static double floor_ratio(const u16 *data, u32 blocks)
{
    double bits = 0.0;
    for (u32 b = 0; b < blocks; b++) {
        u32 counts[256] = {0};
        for (u32 i = 0; i < ELEMENTS; i++) {
            counts[data[(size_t)b * ELEMENTS + i] >> 7 & 255u]++;
        }
        bits += 8.0;
        for (u32 s = 0; s < 256; s++) {
            double p = (double)counts[s] / ELEMENTS;
            bits -= counts[s] == 0 ? 0.0 : p * log2(p);
        }
    }
    return 16.0 / (bits / blocks);
}

// One way to compress a block. encode returns the bytes it wrote, decode whether it worked.
struct bench;
struct way {
    const char *name;
    size_t (*encode)(struct bench *b, const struct way *w, const u8 *plain, u8 *out);
    bool (*decode)(struct bench *b, const struct way *w, const u8 *in, size_t n, u8 *plain);
    u32 mode;
    u32 cpu;
};

struct bench {
    u8 *plain;
    u8 *stored;
    size_t *sizes;
    u8 *back;
    u8 *scratch;
    size_t scratch_bytes;
    u8 *planes;
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    double seconds;
    FILE *csv;
};

static size_t leat_encode(struct bench *b, const struct way *w, const u8 *plain, u8 *out)
{
    struct leat_codec_options o = {.type = LEAT_CODEC_TYPE_BF16, .mode = w->mode, .cpu = w->cpu};
    size_t n = 0;
    enum leat_codec_err e =
        leat_codec_block_encode(&o, plain, BLOCK, out, ROOM, b->scratch, b->scratch_bytes, &n);
    return e == LEAT_CODEC_OK ? n : 0;
}

static bool leat_decode(struct bench *b, const struct way *w, const u8 *in, size_t n, u8 *plain)
{
    return leat_codec_block_decode(in, n, plain, BLOCK, b->scratch, b->scratch_bytes, w->cpu) ==
           LEAT_CODEC_OK;
}

static size_t zstd_encode(struct bench *b, const struct way *w, const u8 *plain, u8 *out)
{
    (void)w;
    size_t n = ZSTD_compressCCtx(b->compress, out, ROOM, plain, BLOCK, 1);
    return ZSTD_isError(n) != 0 ? 0 : n;
}

static bool zstd_decode(struct bench *b, const struct way *w, const u8 *in, size_t n, u8 *plain)
{
    (void)w;
    return ZSTD_decompressDCtx(b->decompress, plain, BLOCK, in, n) == BLOCK;
}

static size_t lz4_encode(struct bench *b, const struct way *w, const u8 *plain, u8 *out)
{
    (void)b;
    (void)w;
    int n = LZ4_compress_default((const char *)plain, (char *)out, (int)BLOCK, (int)ROOM);
    return n <= 0 ? 0 : (size_t)n;
}

static bool lz4_decode(struct bench *b, const struct way *w, const u8 *in, size_t n, u8 *plain)
{
    (void)b;
    (void)w;
    return LZ4_decompress_safe((const char *)in, (char *)plain, (int)n, (int)BLOCK) == (int)BLOCK;
}

// The exponents as a plane through zstd -1, the other bytes as they are.
static size_t planes_encode(struct bench *b, const struct way *w, const u8 *plain, u8 *out)
{
    (void)w;
    for (u32 i = 0; i < ELEMENTS; i++) {
        u32 x = (u32)plain[2 * i] | (u32)plain[2 * i + 1] << 8;
        x = x << 1 | x >> 15;
        out[i] = (u8)x;
        b->planes[i] = (u8)(x >> 8);
    }
    size_t n =
        ZSTD_compressCCtx(b->compress, out + ELEMENTS, ROOM - ELEMENTS, b->planes, ELEMENTS, 1);
    return ZSTD_isError(n) != 0 ? 0 : ELEMENTS + n;
}

static bool planes_decode(struct bench *b, const struct way *w, const u8 *in, size_t n, u8 *plain)
{
    (void)w;
    if (ZSTD_decompressDCtx(b->decompress, b->planes, ELEMENTS, in + ELEMENTS, n - ELEMENTS) !=
        ELEMENTS) {
        return false;
    }
    for (u32 i = 0; i < ELEMENTS; i++) {
        u32 x = (u32)in[i] | (u32)b->planes[i] << 8;
        x = x >> 1 | (x & 1u) << 15;
        plain[2 * i] = (u8)x;
        plain[2 * i + 1] = (u8)(x >> 8);
    }
    return true;
}

static size_t copy_encode(struct bench *b, const struct way *w, const u8 *plain, u8 *out)
{
    (void)b;
    (void)w;
    memcpy(out, plain, BLOCK);
    return BLOCK;
}

static bool copy_decode(struct bench *b, const struct way *w, const u8 *in, size_t n, u8 *plain)
{
    (void)b;
    (void)w;
    memcpy(plain, in, n);
    return true;
}

static const struct way ways[] = {
    {"copy", copy_encode, copy_decode, 0, 0},
    {"raw", leat_encode, leat_decode, LEAT_CODEC_MODE_RAW, LEAT_CODEC_CPU_AUTO},
    {"fast-avx512", leat_encode, leat_decode, LEAT_CODEC_MODE_FAST, LEAT_CODEC_CPU_AVX512},
    {"fast-avx2", leat_encode, leat_decode, LEAT_CODEC_MODE_FAST, LEAT_CODEC_CPU_AVX2},
    {"fast-c", leat_encode, leat_decode, LEAT_CODEC_MODE_FAST, LEAT_CODEC_CPU_C},
    {"dense-avx512", leat_encode, leat_decode, LEAT_CODEC_MODE_DENSE, LEAT_CODEC_CPU_AVX512},
    {"dense-avx2", leat_encode, leat_decode, LEAT_CODEC_MODE_DENSE, LEAT_CODEC_CPU_AVX2},
    {"dense-c", leat_encode, leat_decode, LEAT_CODEC_MODE_DENSE, LEAT_CODEC_CPU_C},
    {"zstd-1", zstd_encode, zstd_decode, 0, 0},
    {"planes+zstd-1", planes_encode, planes_decode, 0, 0},
    {"lz4", lz4_encode, lz4_decode, 0, 0},
};

// One round over all blocks; false when a codec failed.
static bool round_run(struct bench *b, const struct way *w, u32 blocks, bool is_decoding)
{
    bool ok = true;
    for (u32 i = 0; i < blocks; i++) {
        u8 *stored = b->stored + (size_t)i * ROOM;
        if (is_decoding) {
            ok = w->decode(b, w, stored, b->sizes[i], b->back + (size_t)i * BLOCK) && ok;
        } else {
            b->sizes[i] = w->encode(b, w, b->plain + (size_t)i * BLOCK, stored);
            ok = b->sizes[i] != 0 && ok;
        }
    }
    return ok;
}

// Plain bytes a second of the best round, 0 when the codec failed.
static double rate_measure(struct bench *b, const struct way *w, u32 blocks, bool is_decoding)
{
    u64 begin = codec_now_ns(NULL);
    u64 best = UINT64_MAX;
    u64 now = begin;
    for (u32 i = 0; i < 3 || (double)(now - begin) < b->seconds * 1e9; i++) {
        u64 from = codec_now_ns(NULL);
        if (!round_run(b, w, blocks, is_decoding)) {
            return 0.0;
        }
        now = codec_now_ns(NULL);
        best = MIN(best, now - from);
    }
    return (double)blocks * BLOCK * 1e9 / (double)best;
}

static bool way_measure(struct bench *b, const struct way *w, const char *data, const char *set,
                        u32 blocks, double *copy)
{
    if (w->cpu != LEAT_CODEC_CPU_AUTO && leat_codec_cpu_name(w->cpu) == NULL) {
        return true;
    }
    double encode = rate_measure(b, w, blocks, false);
    memset(b->back, 0, (size_t)blocks * BLOCK);
    double decode = encode > 0.0 ? rate_measure(b, w, blocks, true) : 0.0;
    if (decode <= 0.0 || memcmp(b->back, b->plain, (size_t)blocks * BLOCK) != 0) {
        fprintf(stderr, "leat codec: %s does not give back what it was given\n", w->name);
        return false;
    }
    u64 stored = 0;
    for (u32 i = 0; i < blocks; i++) {
        stored += b->sizes[i];
    }
    double ratio = (double)blocks * BLOCK / (double)stored;
    *copy = w == &ways[0] ? decode : *copy;
    printf("%-8s %-7s %-14s %6.4f  %8.2f  %8.2f  %6.2f\n", data, set, w->name, ratio, encode / 1e9,
           decode / 1e9, decode / *copy);
    fflush(stdout);
    if (b->csv != NULL) {
        fprintf(b->csv, "%s,%s,%s,%.4f,%.3f,%.3f,%.3f\n", data, set, w->name, ratio, encode / 1e9,
                decode / 1e9, decode / *copy);
    }
    return true;
}

static bool data_measure(struct bench *b, bool is_kv, u32 blocks)
{
    static const struct {
        const char *name;
        u32 blocks;
    } sets[] = {{"cached", BLOCKS_CACHED}, {"memory", BLOCKS_MEMORY}};
    const char *name = is_kv ? "kv" : "weights";
    struct random r = {is_kv ? 2 : 1};
    double copy = 1.0;
    bool ok = true;
    data_fill(&r, is_kv, (u16 *)(void *)b->plain, (size_t)blocks * ELEMENTS);
    for (u32 s = 0; s < ARRAY_LEN(sets) && sets[s].blocks <= blocks; s++) {
        printf("# %s, bf16, %u blocks of %u bytes; entropy floor %.4f\n", name, sets[s].blocks,
               BLOCK, floor_ratio((const u16 *)(void *)b->plain, sets[s].blocks));
        for (u32 i = 0; i < ARRAY_LEN(ways); i++) {
            ok = way_measure(b, &ways[i], name, sets[s].name, sets[s].blocks, &copy) && ok;
        }
    }
    return ok;
}

int codec_bench_run(const struct codec_args *a)
{
    struct bench b = {.seconds = a->seconds};
    b.scratch_bytes = MAX(leat_codec_encode_scratch_bytes(0), leat_codec_decode_scratch_bytes(0));
    b.scratch = codec_alloc(b.scratch_bytes);
    u32 blocks = a->is_cached ? BLOCKS_CACHED : BLOCKS_MEMORY;
    b.plain = codec_alloc((size_t)blocks * BLOCK);
    b.back = codec_alloc((size_t)blocks * BLOCK);
    b.stored = codec_alloc((size_t)blocks * ROOM);
    b.sizes = codec_alloc(blocks * sizeof(*b.sizes));
    b.planes = codec_alloc(ELEMENTS);
    b.compress = ZSTD_createCCtx();
    b.decompress = ZSTD_createDCtx();
    bool ok = b.compress != NULL && b.decompress != NULL;
    if (a->csv != NULL) {
        b.csv = fopen(a->csv, "we");
        ok = ok && b.csv != NULL && fprintf(b.csv, "data,set,codec,ratio,encode,decode,copy\n") > 0;
    }
    printf("# one core, GB/s of plain bytes, best round of %.2f s; last column: decode / copy\n",
           a->seconds);
    printf("%-8s %-7s %-14s %6s  %8s  %8s  %6s\n", "data", "set", "codec", "ratio", "encode",
           "decode", "/copy");
    ok = ok && data_measure(&b, false, blocks) && data_measure(&b, true, blocks);
    if (b.csv != NULL) {
        ok = fclose(b.csv) == 0 && ok;
    }
    ZSTD_freeCCtx(b.compress);
    ZSTD_freeDCtx(b.decompress);
    free(b.planes);
    free(b.sizes);
    free(b.stored);
    free(b.back);
    free(b.plain);
    free(b.scratch);
    return ok ? 0 : 1;
}
