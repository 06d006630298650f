// SPDX-License-Identifier: Apache-2.0
// Encoding one block: look at a sample, choose a mode, write it, fall back to RAW where it does not
// pay. A payload never exceeds its plain bytes. Every step is integer arithmetic in a fixed order,
// so that each instruction set writes the same bytes.
#include "codec/tensor/tensor_block.h"

#include "base/assert.h"
#include "base/endian.h"

u64 tensor_hash(const struct tensor_ops *ops, const void *data, size_t n)
{
    return tensor_hash_finish(ops->hash(data, n, 0), n);
}

// Counts the symbols of a sample (of everything, when there is little) and returns how many.
static u32 sample_count(const struct tensor_ops *ops, u32 type, const u8 *plain, u32 elements,
                        struct tensor_encode_scratch *s)
{
    u8 rest0[2 * SAMPLE_RUN_SYMBOLS];
    u8 rest1[SAMPLE_RUN_SYMBOLS];
    u32 bytes = tensor_element_bytes(type);
    u32 taken = sample_taken(elements);
    for (u32 at = 0, run = 0; at < taken; at += SAMPLE_RUN_SYMBOLS, run++) {
        u32 n = MIN(taken - at, SAMPLE_RUN_SYMBOLS);
        u32 from = sample_run_begin(elements, run);
        struct tensor_planes planes = {s->symbols + at, rest0, rest1};
        ops->split(type, plain + (size_t)from * bytes, n, planes);
    }
    memset(s->choice.histogram, 0, sizeof(s->choice.histogram));
    ops->histogram(s->symbols, taken, s->choice.histogram);
    return taken;
}

void tensor_estimate(const struct tensor_ops *ops, u32 type, const u8 *plain, u32 n,
                     struct tensor_encode_scratch *s, struct tensor_estimate *e)
{
    u32 elements = n / tensor_element_bytes(type);
    if (elements == 0) {
        for (u32 mode = 0; mode < TENSOR_MODE_COUNT; mode++) {
            e->bytes[mode] = n;
        }
        return;
    }
    u32 taken = sample_count(ops, type, plain, elements, s);
    estimate_make(&s->choice, type, n, taken, e);
}

// Writes a FAST payload and returns its size, or 0 when it would not be smaller than `n`.
static u32 fast_encode(const struct tensor_ops *ops, u32 type, const u8 *plain, u32 n, u8 *payload,
                       struct tensor_encode_scratch *s, struct tensor_block_header *header)
{
    struct tensor_layout l;
    u32 bytes = tensor_element_bytes(type);
    tensor_layout_fast(&l, type, n, 0);
    if (l.elements == 0 || l.end >= n) {
        return 0;
    }
    memcpy(payload, s->choice.palette, TENSOR_PALETTE_SYMBOLS);
    u32 patches = 0;
    u64 sum = 0;
    for (u32 at = 0; at < l.elements; at += TENSOR_CHUNK_SYMBOLS) {
        u32 count = MIN(l.elements - at, TENSOR_CHUNK_SYMBOLS);
        bool is_last = at + count == l.elements;
        const u8 *from = plain + (size_t)at * bytes;
        struct tensor_planes planes = {s->symbols, payload + l.rest0 + (size_t)at * (bytes / 2),
                                       payload + l.rest1 + at};
        struct tensor_pack pack = {
            .map = s->choice.map,
            .shift = tensor_palette_shift(type),
            .first = at,
            .codes = payload + l.codes + at / 2,
            .low = payload + l.low + at / 8 * 3,
            .patches = s->symbols + TENSOR_CHUNK_SYMBOLS,
        };
        ops->split(type, from, count, planes);
        u32 written = ops->pack(s->symbols, count, &pack);
        if (l.variable + (patches + written) * TENSOR_PATCH_BYTES + n % bytes >= n) {
            return 0;
        }
        memcpy(payload + l.variable + (size_t)patches * TENSOR_PATCH_BYTES, pack.patches,
               (size_t)written * TENSOR_PATCH_BYTES);
        patches += written;
        size_t hashed = is_last ? n - (size_t)at * bytes : (size_t)count * bytes;
        sum += ops->hash(from, hashed, (u64)at * bytes / TENSOR_HASH_TILE_BYTES);
    }
    tensor_layout_fast(&l, type, n, patches);
    memcpy(payload + l.tail, plain + (size_t)l.elements * bytes, n % bytes);
    header->patch_count = patches;
    header->check = tensor_hash_finish(sum, n);
    return l.end;
}

// Splits the whole block, counts all symbols and hashes the plain bytes.
static u64 dense_split(const struct tensor_ops *ops, u32 type, const u8 *plain, u32 n, u8 *payload,
                       const struct tensor_layout *l, struct tensor_encode_scratch *s)
{
    u32 bytes = tensor_element_bytes(type);
    u64 sum = 0;
    memset(s->choice.histogram, 0, sizeof(s->choice.histogram));
    for (u32 at = 0; at < l->elements; at += TENSOR_CHUNK_SYMBOLS) {
        u32 count = MIN(l->elements - at, TENSOR_CHUNK_SYMBOLS);
        bool is_last = at + count == l->elements;
        const u8 *from = plain + (size_t)at * bytes;
        struct tensor_planes planes = {s->symbols + at,
                                       payload + l->rest0 + (size_t)at * (bytes / 2),
                                       payload + l->rest1 + at};
        ops->split(type, from, count, planes);
        ops->histogram(s->symbols + at, count, s->choice.histogram);
        size_t hashed = is_last ? n - (size_t)at * bytes : (size_t)count * bytes;
        sum += ops->hash(from, hashed, (u64)at * bytes / TENSOR_HASH_TILE_BYTES);
    }
    return tensor_hash_finish(sum, n);
}

// Writes a DENSE payload and returns its size, or 0 when it would not be smaller than `n`.
static u32 dense_encode(const struct tensor_ops *ops, u32 type, const u8 *plain, u32 n, u8 *payload,
                        struct tensor_encode_scratch *s, struct tensor_block_header *header)
{
    struct tensor_layout l;
    u32 bytes = tensor_element_bytes(type);
    tensor_layout_dense(&l, type, n, 0);
    if (l.elements == 0 || l.end >= n) {
        return 0;
    }
    header->check = dense_split(ops, type, plain, n, payload, &l, s);
    header->code_bits =
        (u8)huffman_build(s->choice.histogram, &s->choice.huffman, s->choice.lengths);
    // Each lane ends on a whole byte, so the lanes take at most a byte each beyond their bits.
    u64 lanes_max =
        code_bits_total(s->choice.histogram, s->choice.lengths) / 8 + l.segments * TENSOR_LANES;
    if (lanes_max >= n) {
        return 0;
    }
    tensor_layout_dense(&l, type, n, (u32)lanes_max);
    if (l.end >= n) {
        return 0;
    }
    for (u32 i = 0; i < TENSOR_LENGTH_TABLE_BYTES; i++) {
        payload[i] = (u8)(s->choice.lengths[2 * i] | s->choice.lengths[2 * i + 1] << 4);
    }
    huffman_codes(s->choice.lengths, s->choice.codes);
    u32 lanes = 0;
    for (u32 segment = 0; segment < l.segments; segment++) {
        u32 at = segment * TENSOR_SEGMENT_SYMBOLS;
        lanes += ops->encode_lanes(s->symbols + at, MIN(l.elements - at, TENSOR_SEGMENT_SYMBOLS),
                                   s->choice.codes, payload + l.variable + lanes,
                                   payload + l.codes + segment * TENSOR_SEGMENT_LENGTH_BYTES);
    }
    ASSERT(lanes <= lanes_max);
    tensor_layout_dense(&l, type, n, lanes);
    memset(payload + l.variable + lanes, 0, l.tail - l.variable - lanes);
    memcpy(payload + l.tail, plain + (size_t)l.elements * bytes, n % bytes);
    header->lanes_bytes = lanes;
    return l.end;
}

// The gaps between planes are zeros, so that equal input gives equal containers.
static void fast_clear_gaps(u32 type, u32 n, u8 *payload)
{
    struct tensor_layout l;
    tensor_layout_fast(&l, type, n, 0);
    u32 bytes = tensor_element_bytes(type);
    u32 codes_end = l.codes + (l.elements + 1) / 2;
    u32 low_end = l.low + (tensor_palette_shift(type) != 0 ? (l.elements + 7) / 8 * 3 : 0);
    u32 rest0_end = l.rest0 + l.elements * (bytes / 2);
    u32 rest1_end = l.rest1 + (bytes == 4 ? l.elements : 0);
    memset(payload + codes_end, 0, l.low - codes_end);
    memset(payload + low_end, 0, l.rest0 - low_end);
    memset(payload + rest0_end, 0, l.rest1 - rest0_end);
    memset(payload + rest1_end, 0, l.variable - rest1_end);
}

static void dense_clear_gaps(u32 type, u32 n, u8 *payload)
{
    struct tensor_layout l;
    tensor_layout_dense(&l, type, n, 0);
    u32 bytes = tensor_element_bytes(type);
    u32 rest0_end = l.rest0 + l.elements * (bytes / 2);
    u32 rest1_end = l.rest1 + (bytes == 4 ? l.elements : 0);
    memset(payload + rest0_end, 0, l.rest1 - rest0_end);
    memset(payload + rest1_end, 0, l.variable - rest1_end);
}

u32 tensor_block_encode(const struct tensor_ops *ops, u32 type, u32 mode, const u8 *plain, u32 n,
                        u8 *out, struct tensor_encode_scratch *s)
{
    ASSERT(n > 0 && n <= TENSOR_BLOCK_BYTES_MAX && type < TENSOR_TYPE_COUNT);
    u8 *payload = out + TENSOR_BLOCK_HEADER_BYTES;
    struct tensor_block_header header = {
        .magic = TENSOR_MAGIC_BLOCK, .type = (u8)type, .plain_bytes = n};
    u32 elements = n / tensor_element_bytes(type);
    u32 size = 0;
    if (mode == LEAT_CODEC_MODE_AUTO) {
        struct tensor_estimate e;
        tensor_estimate(ops, type, plain, n, s, &e);
        mode = mode_choose(&e, n);
    } else if (mode == TENSOR_MODE_FAST && elements > 0) {
        sample_count(ops, type, plain, elements, s);
        palette_build(&s->choice, tensor_palette_shift(type));
    }
    if (mode == TENSOR_MODE_FAST) {
        size = fast_encode(ops, type, plain, n, payload, s, &header);
        if (size != 0) {
            fast_clear_gaps(type, n, payload);
        }
    } else if (mode == TENSOR_MODE_DENSE) {
        size = dense_encode(ops, type, plain, n, payload, s, &header);
        if (size != 0) {
            dense_clear_gaps(type, n, payload);
        }
    }
    if (size == 0) {
        mode = TENSOR_MODE_RAW;
        size = n;
        memcpy(payload, plain, n);
        header.code_bits = 0;
        header.patch_count = 0;
        header.check = tensor_hash(ops, plain, n);
    }
    header.mode = (u8)mode;
    header.payload_bytes = size;
    memcpy(out, &header, sizeof(header));
    return TENSOR_BLOCK_HEADER_BYTES + size;
}
