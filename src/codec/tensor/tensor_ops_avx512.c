// SPDX-License-Identifier: Apache-2.0
// Inner loops with AVX-512 (F, BW, DQ, VL, VBMI, VBMI2). Whole vectors are done here, the ends of
// runs by the portable loops. Tables of a code lie in registers: a byte permutation looks up 64
// entries at once, which is what makes decoding of prefix codes faster than any table in memory.
#include "codec/tensor/tensor_ops_generic.h"

#include <immintrin.h>

#define VECTOR_BYTES 64u

static u64 avx512_hash(const u8 *data, size_t n, u64 tile)
{
    u64 total = 0;
    size_t at = 0;
    for (; at + TENSOR_HASH_TILE_BYTES <= n; at += TENSOR_HASH_TILE_BYTES) {
        __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        for (u32 i = 0; i < TENSOR_HASH_TILE_BYTES / VECTOR_BYTES; i++) {
            __m512i word = _mm512_loadu_si512(data + at + (size_t)i * VECTOR_BYTES);
            __m512i key = _mm512_loadu_si512(generic_hash_keys + (size_t)i * 16);
            word = _mm512_add_epi32(word, key);
            __m512i product = _mm512_mul_epu32(word, _mm512_srli_epi64(word, 32));
            sums[i & 1u] = _mm512_add_epi64(sums[i & 1u], product);
        }
        u64 sum = (u64)_mm512_reduce_add_epi64(_mm512_add_epi64(sums[0], sums[1]));
        total += tensor_hash_tile_finish(sum, tile++);
    }
    return total + generic_hash(data + at, n - at, tile);
}

// Permutations of bytes: the odd and the even bytes of two vectors,
_Alignas(64) static const u8 index_odd[64] = {
    1,  3,  5,   7,   9,   11,  13,  15,  17,  19,  21,  23,  25,  27,  29,  31,
    33, 35, 37,  39,  41,  43,  45,  47,  49,  51,  53,  55,  57,  59,  61,  63,
    65, 67, 69,  71,  73,  75,  77,  79,  81,  83,  85,  87,  89,  91,  93,  95,
    97, 99, 101, 103, 105, 107, 109, 111, 113, 115, 117, 119, 121, 123, 125, 127,
};

_Alignas(64) static const u8 index_even[64] = {
    0,  2,  4,   6,   8,   10,  12,  14,  16,  18,  20,  22,  24,  26,  28,  30,
    32, 34, 36,  38,  40,  42,  44,  46,  48,  50,  52,  54,  56,  58,  60,  62,
    64, 66, 68,  70,  72,  74,  76,  78,  80,  82,  84,  86,  88,  90,  92,  94,
    96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126,
};

// the lower and the upper halves of two vectors interleaved,
_Alignas(64) static const u8 index_low[64] = {
    0,  64, 1,  65, 2,  66, 3,  67, 4,  68, 5,  69, 6,  70, 7,  71, 8,  72, 9,  73, 10, 74,
    11, 75, 12, 76, 13, 77, 14, 78, 15, 79, 16, 80, 17, 81, 18, 82, 19, 83, 20, 84, 21, 85,
    22, 86, 23, 87, 24, 88, 25, 89, 26, 90, 27, 91, 28, 92, 29, 93, 30, 94, 31, 95,
};

_Alignas(64) static const u8 index_high[64] = {
    32, 96,  33, 97,  34, 98,  35, 99,  36, 100, 37, 101, 38, 102, 39, 103,
    40, 104, 41, 105, 42, 106, 43, 107, 44, 108, 45, 109, 46, 110, 47, 111,
    48, 112, 49, 113, 50, 114, 51, 115, 52, 116, 53, 117, 54, 118, 55, 119,
    56, 120, 57, 121, 58, 122, 59, 123, 60, 124, 61, 125, 62, 126, 63, 127,
};

// the low three bytes of each eight, together and apart again.
_Alignas(64) static const u8 index_pack24[64] = {
    0,  1,  2, 8, 9, 10, 16, 17, 18, 24, 25, 26, 32, 33, 34, 40, 41, 42, 48, 49, 50, 56,
    57, 58, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
    0,  0,  0, 0, 0, 0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
};

_Alignas(64) static const u8 index_unpack24[64] = {
    0,  1,  2,  63, 63, 63, 63, 63, 3,  4,  5,  63, 63, 63, 63, 63, 6,  7,  8,  63, 63, 63,
    63, 63, 9,  10, 11, 63, 63, 63, 63, 63, 12, 13, 14, 63, 63, 63, 63, 63, 15, 16, 17, 63,
    63, 63, 63, 63, 18, 19, 20, 63, 63, 63, 63, 63, 21, 22, 23, 63, 63, 63, 63, 63,
};

static __m512i table_load(const void *table)
{
    return _mm512_loadu_si512(table);
}

static u32 split16(const u8 *plain, u32 n, struct tensor_planes out)
{
    const __m512i odd = table_load(index_odd);
    const __m512i even = table_load(index_even);
    u32 i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i a = _mm512_loadu_si512(plain + 2 * (size_t)i);
        __m512i b = _mm512_loadu_si512(plain + 2 * (size_t)i + 64);
        a = _mm512_shldi_epi16(a, a, 1);
        b = _mm512_shldi_epi16(b, b, 1);
        _mm512_storeu_si512(out.symbols + i, _mm512_permutex2var_epi8(a, odd, b));
        _mm512_storeu_si512(out.rest0 + i, _mm512_permutex2var_epi8(a, even, b));
    }
    return i;
}

static u32 split32(const u8 *plain, u32 n, struct tensor_planes out)
{
    u32 i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i r = _mm512_rol_epi32(_mm512_loadu_si512(plain + 4 * (size_t)i), 1);
        _mm_storeu_si128((__m128i *)(void *)(out.symbols + i),
                         _mm512_cvtepi32_epi8(_mm512_srli_epi32(r, 24)));
        _mm_storeu_si128((__m128i *)(void *)(out.rest1 + i),
                         _mm512_cvtepi32_epi8(_mm512_srli_epi32(r, 16)));
        _mm256_storeu_si256((__m256i *)(void *)(out.rest0 + 2 * (size_t)i),
                            _mm512_cvtepi32_epi16(r));
    }
    return i;
}

// Rotates every byte by `left` bits, 1 or 7.
static u32 rotate8(const u8 *from, u32 n, u8 *to, int left)
{
    const __m512i high = _mm512_set1_epi8((char)(0xff << left));
    u32 i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i x = _mm512_loadu_si512(from + i);
        __m512i up = _mm512_sll_epi16(x, _mm_cvtsi32_si128(left));
        __m512i down = _mm512_srl_epi16(x, _mm_cvtsi32_si128(8 - left));
        _mm512_storeu_si512(to + i, _mm512_ternarylogic_epi32(high, up, down, 0xca));
    }
    return i;
}

static void avx512_split(u32 type, const u8 *plain, u32 n, struct tensor_planes out)
{
    u32 done = 0;
    if (type == TENSOR_TYPE_BF16 || type == TENSOR_TYPE_FP16) {
        done = split16(plain, n, out);
    } else if (type == TENSOR_TYPE_FP32) {
        done = split32(plain, n, out);
    } else if (type == TENSOR_TYPE_FP8_E5M2) {
        done = rotate8(plain, n, out.symbols, 1);
    }
    u32 bytes = tensor_element_bytes(type);
    struct tensor_planes rest = {out.symbols + done, out.rest0 + (size_t)done * (bytes / 2),
                                 out.rest1 + done};
    generic_split(type, plain + (size_t)done * bytes, n - done, rest);
}

static u32 merge16(struct tensor_planes in, u32 n, u8 *plain)
{
    const __m512i low = table_load(index_low);
    const __m512i high = table_load(index_high);
    u32 i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i symbols = _mm512_loadu_si512(in.symbols + i);
        __m512i rest = _mm512_loadu_si512(in.rest0 + i);
        __m512i a = _mm512_permutex2var_epi8(rest, low, symbols);
        __m512i b = _mm512_permutex2var_epi8(rest, high, symbols);
        _mm512_storeu_si512(plain + 2 * (size_t)i, _mm512_shldi_epi16(a, a, 15));
        _mm512_storeu_si512(plain + 2 * (size_t)i + 64, _mm512_shldi_epi16(b, b, 15));
    }
    return i;
}

static u32 merge32(struct tensor_planes in, u32 n, u8 *plain)
{
    u32 i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i s =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in.symbols + i)));
        __m512i b =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in.rest1 + i)));
        __m512i a = _mm512_cvtepu16_epi32(
            _mm256_loadu_si256((const __m256i *)(const void *)(in.rest0 + 2 * (size_t)i)));
        __m512i r =
            _mm512_ternarylogic_epi32(_mm512_slli_epi32(s, 24), _mm512_slli_epi32(b, 16), a, 0xfe);
        _mm512_storeu_si512(plain + 4 * (size_t)i, _mm512_ror_epi32(r, 1));
    }
    return i;
}

static void avx512_merge(u32 type, struct tensor_planes in, u32 n, u8 *plain)
{
    u32 done = 0;
    if (type == TENSOR_TYPE_BF16 || type == TENSOR_TYPE_FP16) {
        done = merge16(in, n, plain);
    } else if (type == TENSOR_TYPE_FP32) {
        done = merge32(in, n, plain);
    } else if (type == TENSOR_TYPE_FP8_E5M2) {
        done = rotate8(in.symbols, n, plain, 7);
    }
    u32 bytes = tensor_element_bytes(type);
    struct tensor_planes rest = {in.symbols + done, in.rest0 + (size_t)done * (bytes / 2),
                                 in.rest1 + done};
    generic_merge(type, rest, n - done, plain + (size_t)done * bytes);
}

// Three bits of each of 64 bytes into 24 bytes: pairs, fours and eights are joined in place.
static void low_store(u8 *to, __m512i symbols)
{
    __m512i x = _mm512_and_si512(symbols, _mm512_set1_epi8(7));
    x = _mm512_maddubs_epi16(x, _mm512_set1_epi16(0x0801));
    x = _mm512_madd_epi16(x, _mm512_set1_epi32(0x00400001));
    x = _mm512_or_si512(x, _mm512_srli_epi64(x, 20));
    x = _mm512_permutexvar_epi8(table_load(index_pack24), x);
    _mm512_mask_storeu_epi8(to, 0xffffff, x);
}

static __m512i low_load(const u8 *from)
{
    __m512i x = _mm512_maskz_loadu_epi8(0xffffff, from);
    x = _mm512_permutexvar_epi8(table_load(index_unpack24), x);
    x = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x15120f0c09060300), x);
    return _mm512_and_si512(x, _mm512_set1_epi8(7));
}

// A table of 256 bytes in four registers.
struct table256 {
    __m512i part[4];
};

static struct table256 table256_load(const u8 *table)
{
    struct table256 t;
    for (u32 i = 0; i < 4; i++) {
        t.part[i] = table_load(table + (size_t)i * 64);
    }
    return t;
}

static __m512i table256_get(const struct table256 *t, __m512i index)
{
    __m512i low = _mm512_permutex2var_epi8(t->part[0], index, t->part[1]);
    __m512i high = _mm512_permutex2var_epi8(t->part[2], index, t->part[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(index), high);
}

static u32 avx512_pack(const u8 *symbols, u32 n, struct tensor_pack *to)
{
    const struct table256 map = table256_load(to->map);
    const __m512i class_mask = _mm512_set1_epi8((char)(0xffu >> to->shift));
    const __m128i shift = _mm_cvtsi32_si128((int)to->shift);
    u32 patches = 0;
    u32 i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i x = _mm512_loadu_si512(symbols + i);
        __m512i class = _mm512_and_si512(_mm512_srl_epi16(x, shift), class_mask);
        __m512i place = table256_get(&map, class);
        u64 escapes = _mm512_movepi8_mask(place);
        place = _mm512_maskz_mov_epi8(~escapes, place);
        __m512i pairs = _mm512_maddubs_epi16(place, _mm512_set1_epi16(0x1001));
        _mm256_storeu_si256((__m256i *)(void *)(to->codes + i / 2), _mm512_cvtepi16_epi8(pairs));
        if (to->shift != 0) {
            low_store(to->low + i / 8 * 3, x);
        }
        for (; escapes != 0; escapes &= escapes - 1) {
            u32 at = i + (u32)__builtin_ctzll(escapes);
            generic_patch(to, patches++, to->first + at, symbols[at]);
        }
    }
    return generic_pack_from(symbols, i, n, to, patches);
}

static void avx512_unpack(const struct tensor_pack *from, const u8 *palette, u32 n, u8 *symbols)
{
    u8 shifted[TENSOR_PALETTE_SYMBOLS];
    for (u32 i = 0; i < TENSOR_PALETTE_SYMBOLS; i++) {
        shifted[i] = (u8)(palette[i] << from->shift);
    }
    const __m512i lookup =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)shifted));
    u32 i = 0;
    for (; i + 64 <= n; i += 64) {
        __m512i pairs = _mm512_cvtepu8_epi16(
            _mm256_loadu_si256((const __m256i *)(const void *)(from->codes + i / 2)));
        __m512i place = _mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4));
        place = _mm512_and_si512(place, _mm512_set1_epi8(15));
        __m512i x = _mm512_shuffle_epi8(lookup, place);
        if (from->shift != 0) {
            x = _mm512_or_si512(x, low_load(from->low + i / 8 * 3));
        }
        _mm512_storeu_si512(symbols + i, x);
    }
    generic_unpack_from(from, palette, i, n, symbols);
}

// The tables of a short code in registers, and the state of 64 lanes: 16 lanes a vector, up to 57
// bits of each in a low and a high word.
struct lane_tables {
    __m512i low_symbol[2];
    __m512i low_length[2];
    __m512i high_symbol[2];
    __m512i high_length[2];
};

struct lane_state {
    __m512i bit[4];
    __m512i low[4];
    __m512i high[4];
};

#define BYTE_OF_WORD 0x1111111111111111ull // the low byte of each of 16 words

// Loads the next 57 bits of every lane.
static inline __attribute__((always_inline)) void lanes_load(struct lane_state *s, const u8 *data,
                                                             __m512i limit)
{
    const __m512i evens =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds =
        _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
#pragma GCC unroll 4
    for (u32 g = 0; g < 4; g++) {
        __m512i byte = _mm512_min_epu32(_mm512_srli_epi32(s->bit[g], 3), limit);
        __m512i skip = _mm512_and_si512(s->bit[g], _mm512_set1_epi32(7));
        __m512i a = _mm512_i32gather_epi64(_mm512_castsi512_si256(byte), (const void *)data, 1);
        __m512i b =
            _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(byte, 1), (const void *)data, 1);
        a = _mm512_srlv_epi64(a, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(skip)));
        b = _mm512_srlv_epi64(b, _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(skip, 1)));
        s->low[g] = _mm512_permutex2var_epi32(a, evens, b);
        s->high[g] = _mm512_permutex2var_epi32(a, odds, b);
    }
}

// Takes one symbol from every lane.
static inline __attribute__((always_inline)) void
lanes_step(struct lane_state *s, const struct lane_tables *t, bool has_long, u8 *out)
{
#pragma GCC unroll 4
    for (u32 g = 0; g < 4; g++) {
        __m512i word = s->low[g];
        __m512i length =
            _mm512_maskz_permutex2var_epi8(BYTE_OF_WORD, t->low_length[0], word, t->low_length[1]);
        __m512i symbol =
            _mm512_maskz_permutex2var_epi8(BYTE_OF_WORD, t->low_symbol[0], word, t->low_symbol[1]);
        if (has_long) {
            __mmask16 is_long = _mm512_test_epi32_mask(length, _mm512_set1_epi32(0x80));
            // (a & b) | c: four bits after the prefix, then the prefix's number above them.
            __m512i index = _mm512_ternarylogic_epi32(_mm512_srli_epi32(word, 7),
                                                      _mm512_set1_epi32(15), symbol, 0xea);
            __m512i far_length = _mm512_maskz_permutex2var_epi8(BYTE_OF_WORD, t->high_length[0],
                                                                index, t->high_length[1]);
            __m512i far_symbol = _mm512_maskz_permutex2var_epi8(BYTE_OF_WORD, t->high_symbol[0],
                                                                index, t->high_symbol[1]);
            length = _mm512_mask_mov_epi32(length, is_long, far_length);
            symbol = _mm512_mask_mov_epi32(symbol, is_long, far_symbol);
        }
        s->low[g] = _mm512_shrdv_epi32(word, s->high[g], length);
        s->high[g] = _mm512_srlv_epi32(s->high[g], length);
        s->bit[g] = _mm512_add_epi32(s->bit[g], length);
        _mm_storeu_si128((__m128i *)(void *)(out + (size_t)g * 16), _mm512_cvtepi32_epi8(symbol));
    }
}

// Decodes whole steps while `per_load` of them are left and returns how many it did.
static inline __attribute__((always_inline)) u32 lanes_run(const struct tensor_decode_table *t,
                                                           struct tensor_lanes from,
                                                           struct generic_positions *p,
                                                           bool has_long, u32 per_load, u8 *symbols)
{
    struct lane_tables tables;
    struct lane_state state;
    for (u32 i = 0; i < 2; i++) {
        tables.low_symbol[i] = table_load(t->low_symbol + (size_t)i * 64);
        tables.low_length[i] = table_load(t->low_length + (size_t)i * 64);
        tables.high_symbol[i] = table_load(t->high_symbol + (size_t)i * 64);
        tables.high_length[i] = table_load(t->high_length + (size_t)i * 64);
    }
    for (u32 g = 0; g < 4; g++) {
        state.bit[g] = table_load(p->bit + (size_t)g * 16);
    }
    const __m512i limit = _mm512_set1_epi32((int)(from.bytes - 8));
    u32 steps = from.symbols / TENSOR_LANES;
    u32 step = 0;
    for (; step + per_load <= steps; step += per_load) {
        lanes_load(&state, from.data, limit);
        for (u32 k = 0; k < per_load; k++) {
            lanes_step(&state, &tables, has_long, symbols + (size_t)(step + k) * TENSOR_LANES);
        }
    }
    for (u32 g = 0; g < 4; g++) {
        _mm512_storeu_si512(p->bit + (size_t)g * 16, state.bit[g]);
    }
    return step;
}

static bool avx512_decode_lanes(const struct tensor_decode_table *t, struct tensor_lanes from,
                                u8 *symbols)
{
    if (!t->is_short) {
        return generic_decode_lanes(t, from, symbols);
    }
    struct generic_positions p;
    generic_positions_begin(from, &p);
    u32 step;
    if (t->code_bits <= 7) {
        step = lanes_run(t, from, &p, false, 8, symbols);
    } else {
        step = lanes_run(t, from, &p, true, 5, symbols);
    }
    generic_decode_steps(t, from, step, &p, symbols);
    return generic_positions_end(from, &p);
}

const struct tensor_ops tensor_ops_avx512 = {
    .name = "avx512",
    .hash = avx512_hash,
    .split = avx512_split,
    .merge = avx512_merge,
    .histogram = generic_histogram,
    .pack = avx512_pack,
    .unpack = avx512_unpack,
    .encode_lanes = generic_encode_lanes,
    .decode_lanes = avx512_decode_lanes,
};
