// SPDX-License-Identifier: Apache-2.0
// The arithmetic that the processor and the GPU share: how an element falls into a symbol and a
// rest, the block hash, and where the planes of a payload lie. One source, compiled as C for the
// host and as CUDA for the device, so that a machine without a GPU can still prove both equal.
// Pure functions over caller memory; no state, no allocation.
#pragma once

#include "codec/tensor/tensor_fmt.h"

#ifdef __CUDACC__
#define KERNEL_FN static __host__ __device__ __forceinline__
#else
#define KERNEL_FN static inline __attribute__((unused))
#endif

#define TENSOR_GOLDEN 0x9e3779b97f4a7c15ull

// Bytes of one element.
KERNEL_FN u32 tensor_element_bytes(u32 type)
{
    return type == TENSOR_TYPE_FP32                               ? 4u
           : type == TENSOR_TYPE_BF16 || type == TENSOR_TYPE_FP16 ? 2u
                                                                  : 1u;
}

// FAST puts symbol >> shift through the palette and keeps the low `shift` bits as they are: where
// the exponent has five bits, three bits of mantissa share its byte.
KERNEL_FN u32 tensor_palette_shift(u32 type)
{
    return type == TENSOR_TYPE_FP16 || type == TENSOR_TYPE_FP8_E5M2 ? 3u : 0u;
}

// Rotating the sign out of the way makes the exponent the top bits of the top byte.
KERNEL_FN u32 tensor_rotate16(u32 x)
{
    return (x << 1 | x >> 15) & 0xffffu;
}
KERNEL_FN u32 tensor_unrotate16(u32 r)
{
    return (r >> 1 | r << 15) & 0xffffu;
}
KERNEL_FN u32 tensor_rotate32(u32 x)
{
    return x << 1 | x >> 31;
}
KERNEL_FN u32 tensor_unrotate32(u32 r)
{
    return r >> 1 | r << 31;
}
KERNEL_FN u32 tensor_rotate8(u32 x)
{
    return (x << 1 | x >> 7) & 0xffu;
}
KERNEL_FN u32 tensor_unrotate8(u32 r)
{
    return (r >> 1 | r << 7) & 0xffu;
}

// Murmur3's 64-bit finalizer: a bijection that spreads every bit.
KERNEL_FN u64 tensor_mix(u64 h)
{
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
}

// What one 8-byte word of a tile adds to the tile's sum; `even` and `odd` are its two keys.
KERNEL_FN u64 tensor_hash_word(u64 word, u32 even, u32 odd)
{
    u32 a = (u32)word + even;
    u32 b = (u32)(word >> 32) + odd;
    return (u64)a * (u64)b;
}

// What tile number `tile` with the sum `sum` adds to the block's hash.
KERNEL_FN u64 tensor_hash_tile_finish(u64 sum, u64 tile)
{
    return tensor_mix(sum + (tile + 1) * TENSOR_GOLDEN);
}

// The length enters the hash, because the last tile is filled up with zeros.
KERNEL_FN u64 tensor_hash_finish(u64 tiles, u64 length)
{
    return tiles + tensor_mix(length ^ TENSOR_GOLDEN);
}

KERNEL_FN u32 tensor_align(u32 n)
{
    return (n + (TENSOR_ALIGN_BYTES - 1u)) & ~(TENSOR_ALIGN_BYTES - 1u);
}

// Where the parts of a FAST or DENSE payload begin, from the payload's first byte. `end` is what
// payload_bytes must be.
struct tensor_layout {
    u32 elements;
    u32 segments; // DENSE
    u32 codes;    // FAST: the 4-bit plane; DENSE: the lane lengths
    u32 low;      // FAST: the 3-bit plane, empty where the type has none
    u32 rest0;    // the lowest byte of 2-byte elements, the low half of 4-byte ones
    u32 rest1;    // the third byte of 4-byte elements
    u32 variable; // FAST: the patches; DENSE: the lanes
    u32 tail;     // plain bytes that fill no element
    u32 end;
};

KERNEL_FN void tensor_layout_rest(struct tensor_layout *l, u32 type, u32 at)
{
    u32 bytes = tensor_element_bytes(type);
    l->rest0 = at;
    at += bytes == 2 ? tensor_align(l->elements) : bytes == 4 ? tensor_align(2 * l->elements) : 0;
    l->rest1 = at;
    at += bytes == 4 ? tensor_align(l->elements) : 0;
    l->variable = at;
}

KERNEL_FN void tensor_layout_fast(struct tensor_layout *l, u32 type, u32 plain_bytes, u32 patches)
{
    u32 bytes = tensor_element_bytes(type);
    l->elements = plain_bytes / bytes;
    l->segments = 0;
    l->codes = TENSOR_PALETTE_SYMBOLS;
    l->low = l->codes + tensor_align((l->elements + 1) / 2);
    u32 low_bytes = tensor_palette_shift(type) != 0 ? (l->elements + 7) / 8 * 3 : 0;
    tensor_layout_rest(l, type, l->low + tensor_align(low_bytes));
    l->tail = l->variable + patches * TENSOR_PATCH_BYTES;
    l->end = l->tail + plain_bytes % bytes;
}

KERNEL_FN void tensor_layout_dense(struct tensor_layout *l, u32 type, u32 plain_bytes,
                                   u32 lanes_bytes)
{
    u32 bytes = tensor_element_bytes(type);
    l->elements = plain_bytes / bytes;
    l->segments = (l->elements + TENSOR_SEGMENT_SYMBOLS - 1) / TENSOR_SEGMENT_SYMBOLS;
    l->codes = TENSOR_LENGTH_TABLE_BYTES;
    l->low = l->codes;
    tensor_layout_rest(l, type, l->codes + l->segments * TENSOR_SEGMENT_LENGTH_BYTES);
    l->tail = l->variable + tensor_align(lanes_bytes + TENSOR_LANE_GUARD_BYTES);
    l->end = l->tail + plain_bytes % bytes;
}

// How many symbols lane `lane` of a segment of `symbols` holds: every 64th, from number `lane` on.
KERNEL_FN u32 tensor_lane_symbols(u32 symbols, u32 lane)
{
    return symbols > lane ? (symbols - lane + TENSOR_LANES - 1) / TENSOR_LANES : 0;
}

// The code length of a symbol in the table of a DENSE payload.
KERNEL_FN u32 tensor_code_length(const u8 *table, u32 symbol)
{
    return (u32)(table[symbol >> 1] >> (symbol & 1u) * 4u) & 15u;
}

// Whether a block's header is consistent in itself and fits into `stored_bytes` with its payload.
KERNEL_FN bool tensor_header_is_valid(const struct tensor_block_header *h, u64 stored_bytes)
{
    struct tensor_layout l;
    bool is_fast = h->mode == TENSOR_MODE_FAST;
    bool is_dense = h->mode == TENSOR_MODE_DENSE;
    if (stored_bytes < TENSOR_BLOCK_HEADER_BYTES || h->magic != TENSOR_MAGIC_BLOCK ||
        h->mode >= TENSOR_MODE_COUNT || h->type >= TENSOR_TYPE_COUNT || h->reserved != 0 ||
        h->plain_bytes == 0 || h->plain_bytes > TENSOR_BLOCK_BYTES_MAX ||
        h->payload_bytes > h->plain_bytes ||
        h->payload_bytes > stored_bytes - TENSOR_BLOCK_HEADER_BYTES) {
        return false;
    }
    if (h->patch_count > (is_fast ? h->plain_bytes : 0) ||
        h->lanes_bytes > (is_dense ? h->plain_bytes : 0) ||
        h->code_bits > (is_dense ? TENSOR_CODE_BITS_MAX : 0) || (is_dense && h->code_bits == 0)) {
        return false;
    }
    if (h->mode == TENSOR_MODE_RAW) {
        return h->payload_bytes == h->plain_bytes;
    }
    if (is_fast) {
        tensor_layout_fast(&l, h->type, h->plain_bytes, h->patch_count);
    } else {
        tensor_layout_dense(&l, h->type, h->plain_bytes, h->lanes_bytes);
    }
    return l.elements > 0 && l.end == h->payload_bytes;
}
