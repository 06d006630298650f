// SPDX-License-Identifier: Apache-2.0
// Inner loops with AVX2 and BMI2. Planes, palette and hash are vectors; lanes of a prefix code run
// the portable loop, which BMI2's shifts make faster. The ends of runs are the portable loops' too.
#include "codec/tensor/tensor_ops_generic.h"

#include <immintrin.h>

static __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

static void store(void *to, __m256i x)
{
    _mm256_storeu_si256(to, x);
}

// Packing instructions work within 128-bit halves; this puts the quarters in order.
static __m256i quarters_in_order(__m256i x)
{
    return _mm256_permute4x64_epi64(x, 0xd8);
}

static u64 avx2_hash(const u8 *data, size_t n, u64 tile)
{
    u64 total = 0;
    size_t at = 0;
    for (; at + TENSOR_HASH_TILE_BYTES <= n; at += TENSOR_HASH_TILE_BYTES) {
        __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (u32 i = 0; i < TENSOR_HASH_TILE_BYTES / 32; i++) {
            __m256i word = load(data + at + (size_t)i * 32);
            word = _mm256_add_epi32(word, load(generic_hash_keys + (size_t)i * 8));
            __m256i product = _mm256_mul_epu32(word, _mm256_srli_epi64(word, 32));
            sums[i & 1u] = _mm256_add_epi64(sums[i & 1u], product);
        }
        u64 parts[4];
        store(parts, _mm256_add_epi64(sums[0], sums[1]));
        total += tensor_hash_tile_finish(parts[0] + parts[1] + parts[2] + parts[3], tile++);
    }
    return total + generic_hash(data + at, n - at, tile);
}

static u32 split16(const u8 *plain, u32 n, struct tensor_planes out)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    u32 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i a = load(plain + 2 * (size_t)i);
        __m256i b = load(plain + 2 * (size_t)i + 32);
        a = _mm256_or_si256(_mm256_slli_epi16(a, 1), _mm256_srli_epi16(a, 15));
        b = _mm256_or_si256(_mm256_slli_epi16(b, 1), _mm256_srli_epi16(b, 15));
        __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
        __m256i rest = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
        store(out.symbols + i, quarters_in_order(high));
        store(out.rest0 + i, quarters_in_order(rest));
    }
    return i;
}

// 32 words with values of at most a byte into 32 bytes, in order.
static __m256i words_to_bytes(const __m256i *words)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i x = _mm256_packus_epi16(_mm256_packus_epi32(words[0], words[1]),
                                    _mm256_packus_epi32(words[2], words[3]));
    return _mm256_permutevar8x32_epi32(x, order);
}

static u32 split32(const u8 *plain, u32 n, struct tensor_planes out)
{
    u32 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i high[4];
        __m256i third[4];
        __m256i low[4];
        for (u32 k = 0; k < 4; k++) {
            __m256i x = load(plain + 4 * ((size_t)i + 8 * k));
            x = _mm256_or_si256(_mm256_slli_epi32(x, 1), _mm256_srli_epi32(x, 31));
            high[k] = _mm256_srli_epi32(x, 24);
            third[k] = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(0xff));
            low[k] = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
        }
        store(out.symbols + i, words_to_bytes(high));
        store(out.rest1 + i, words_to_bytes(third));
        store(out.rest0 + 2 * (size_t)i, quarters_in_order(_mm256_packus_epi32(low[0], low[1])));
        store(out.rest0 + 2 * (size_t)i + 32,
              quarters_in_order(_mm256_packus_epi32(low[2], low[3])));
    }
    return i;
}

// Rotates every byte by `left` bits, 1 or 7.
static u32 rotate8(const u8 *from, u32 n, u8 *to, int left)
{
    const __m256i high = _mm256_set1_epi8((char)(0xff << left));
    u32 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i x = load(from + i);
        __m256i up = _mm256_and_si256(high, _mm256_slli_epi16(x, left));
        __m256i down = _mm256_andnot_si256(high, _mm256_srli_epi16(x, 8 - left));
        store(to + i, _mm256_or_si256(up, down));
    }
    return i;
}

static void avx2_split(u32 type, const u8 *plain, u32 n, struct tensor_planes out)
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
    u32 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i symbols = quarters_in_order(load(in.symbols + i));
        __m256i rest = quarters_in_order(load(in.rest0 + i));
        __m256i a = _mm256_unpacklo_epi8(rest, symbols);
        __m256i b = _mm256_unpackhi_epi8(rest, symbols);
        a = _mm256_or_si256(_mm256_srli_epi16(a, 1), _mm256_slli_epi16(a, 15));
        b = _mm256_or_si256(_mm256_srli_epi16(b, 1), _mm256_slli_epi16(b, 15));
        store(plain + 2 * (size_t)i, a);
        store(plain + 2 * (size_t)i + 32, b);
    }
    return i;
}

static u32 merge32(struct tensor_planes in, u32 n, u8 *plain)
{
    u32 i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i s = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(in.symbols + i)));
        __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(in.rest1 + i)));
        __m256i a =
            _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(in.rest0 + 2 * (size_t)i)));
        __m256i r =
            _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi32(s, 24), a), _mm256_slli_epi32(b, 16));
        r = _mm256_or_si256(_mm256_srli_epi32(r, 1), _mm256_slli_epi32(r, 31));
        store(plain + 4 * (size_t)i, r);
    }
    return i;
}

static void avx2_merge(u32 type, struct tensor_planes in, u32 n, u8 *plain)
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

// The map by rows of 16: only rows that hold a palette class are searched, mostly two or three.
struct map_rows {
    u32 count;
    u8 number[16];
};

static struct map_rows map_rows_find(const u8 *map)
{
    struct map_rows rows = {0};
    for (u32 row = 0; row < 16; row++) {
        bool is_used = false;
        for (u32 i = 0; i < 16; i++) {
            is_used = is_used || map[row * 16 + i] != 0xff;
        }
        if (is_used) {
            rows.number[rows.count++] = (u8)row;
        }
    }
    return rows;
}

static __m256i map_get(const u8 *map, const struct map_rows *rows, __m256i class)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i column = _mm256_and_si256(class, nibble);
    __m256i row = _mm256_and_si256(_mm256_srli_epi16(class, 4), nibble);
    __m256i place = _mm256_set1_epi8((char)0xff);
    for (u32 i = 0; i < rows->count; i++) {
        u32 number = rows->number[i];
        __m128i table = _mm_loadu_si128((const void *)(map + (size_t)number * 16));
        __m256i found = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), column);
        __m256i is_here = _mm256_cmpeq_epi8(row, _mm256_set1_epi8((char)number));
        place = _mm256_blendv_epi8(place, found, is_here);
    }
    return place;
}

// 24 bits of each of four eights of symbols.
static void low_store(u8 *to, __m256i symbols)
{
    u64 eights[4];
    store(eights, symbols);
    for (u32 i = 0; i < 4; i++) {
        u32 bits = (u32)_pext_u64(eights[i], 0x0707070707070707ull);
        to[3 * i] = (u8)bits;
        to[3 * i + 1] = (u8)(bits >> 8);
        to[3 * i + 2] = (u8)(bits >> 16);
    }
}

static __m256i low_load(const u8 *from)
{
    u64 eights[4];
    for (u32 i = 0; i < 4; i++) {
        u64 bits = from[3 * i] | (u64)from[3 * i + 1] << 8 | (u64)from[3 * i + 2] << 16;
        eights[i] = _pdep_u64(bits, 0x0707070707070707ull);
    }
    return load(eights);
}

static u32 avx2_pack(const u8 *symbols, u32 n, struct tensor_pack *to)
{
    const struct map_rows rows = map_rows_find(to->map);
    const __m256i class_mask = _mm256_set1_epi8((char)(0xffu >> to->shift));
    const __m128i shift = _mm_cvtsi32_si128((int)to->shift);
    u32 patches = 0;
    u32 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i x = load(symbols + i);
        __m256i class = _mm256_and_si256(_mm256_srl_epi16(x, shift), class_mask);
        __m256i place = map_get(to->map, &rows, class);
        u32 escapes = (u32)_mm256_movemask_epi8(place);
        place = _mm256_and_si256(place, _mm256_cmpgt_epi8(place, _mm256_set1_epi8(-1)));
        __m256i pairs = _mm256_maddubs_epi16(place, _mm256_set1_epi16(0x1001));
        pairs = quarters_in_order(_mm256_packus_epi16(pairs, pairs));
        _mm_storeu_si128((void *)(to->codes + i / 2), _mm256_castsi256_si128(pairs));
        if (to->shift != 0) {
            low_store(to->low + i / 8 * 3, x);
        }
        for (; escapes != 0; escapes &= escapes - 1) {
            u32 at = i + (u32)__builtin_ctz(escapes);
            generic_patch(to, patches++, to->first + at, symbols[at]);
        }
    }
    return generic_pack_from(symbols, i, n, to, patches);
}

static void avx2_unpack(const struct tensor_pack *from, const u8 *palette, u32 n, u8 *symbols)
{
    u8 shifted[TENSOR_PALETTE_SYMBOLS];
    for (u32 i = 0; i < TENSOR_PALETTE_SYMBOLS; i++) {
        shifted[i] = (u8)(palette[i] << from->shift);
    }
    const __m256i lookup = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)shifted));
    u32 i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i pairs = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(from->codes + i / 2)));
        __m256i place = _mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4));
        place = _mm256_and_si256(place, _mm256_set1_epi8(15));
        __m256i x = _mm256_shuffle_epi8(lookup, place);
        if (from->shift != 0) {
            x = _mm256_or_si256(x, low_load(from->low + i / 8 * 3));
        }
        store(symbols + i, x);
    }
    generic_unpack_from(from, palette, i, n, symbols);
}

const struct tensor_ops tensor_ops_avx2 = {
    .name = "avx2",
    .hash = avx2_hash,
    .split = avx2_split,
    .merge = avx2_merge,
    .histogram = generic_histogram,
    .pack = avx2_pack,
    .unpack = avx2_unpack,
    .encode_lanes = generic_encode_lanes,
    .decode_lanes = generic_decode_lanes,
};
