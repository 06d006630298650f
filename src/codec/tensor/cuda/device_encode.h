// SPDX-License-Identifier: Apache-2.0
// Encoding on the device. A group of 256 threads encodes one block, in the same steps as the
// processor: sample, choose, write, fall back to RAW. What is sequential by nature (building a code
// from 256 counts) is done by one thread with the shared source; the rest is spread over all.
// The stored block is the processor's, bit for bit.
#pragma once

#include "codec/tensor/cuda/device_decode.h"

#define ENCODE_THREADS   256u
#define RUN_ELEMENTS     8u // of a thread in a FAST step: whole bytes of codes and of low bits
#define STEP_ELEMENTS    (ENCODE_THREADS * RUN_ELEMENTS)
#define ENCODE_MODE_AUTO 3u // LEAT_CODEC_MODE_AUTO
#define LANES_MAX        (TENSOR_BLOCK_BYTES_MAX / TENSOR_SEGMENT_SYMBOLS * TENSOR_LANES)

struct encode_block {
    const u8 *plain;
    u32 plain_bytes;
    u8 *stored; // at least plain_bytes + TENSOR_BLOCK_HEADER_BYTES
    u32 type;
    u32 mode;
};

struct encode_shared {
    struct tensor_choice choice;
    struct tensor_layout layout;
    struct tensor_estimate estimate;
    u32 element_bytes;
    u32 mode;
    u32 taken;
    u32 patches;
    u32 step_patches;
    u32 lanes_bytes;
    u32 code_bits;
    u64 sum;
    u64 part[ENCODE_THREADS];
    u32 count[ENCODE_THREADS];  // of this thread's escapes, or bytes of its lanes
    u32 offset[ENCODE_THREADS]; // of this thread's first patch or lane
    u16 lane_bytes[LANES_MAX];
};

// Symbol and rest of one element.
PORT_FN u32 element_rotated(const struct encode_block *b, u32 bytes, u32 element)
{
    const u8 *p = b->plain + element * bytes;
    if (bytes == 2) {
        return tensor_rotate16(port_load16(p));
    }
    if (bytes == 4) {
        return tensor_rotate32(port_load16(p) | port_load16(p + 2) << 16);
    }
    return b->type == TENSOR_TYPE_FP8_E5M2 ? tensor_rotate8(p[0]) : p[0];
}

PORT_FN u32 element_symbol(const struct encode_block *b, u32 bytes, u32 element)
{
    return element_rotated(b, bytes, element) >> (8 * bytes - 8);
}

PORT_FN u8 *encode_payload(const struct encode_block *b)
{
    return b->stored + TENSOR_BLOCK_HEADER_BYTES;
}

PORT_FN void encode_begin(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    s->choice.histogram[thread] = 0;
    if (thread == 0) {
        s->element_bytes = tensor_element_bytes(b->type);
        s->taken = sample_taken(b->plain_bytes / s->element_bytes);
        s->mode = s->taken == 0 ? (u32)TENSOR_MODE_RAW : b->mode;
        s->patches = 0;
        s->step_patches = 0;
        s->lanes_bytes = 0;
        s->code_bits = 0;
        s->sum = 0;
    }
}

// ---- Choice. ----

PORT_FN void sample_add(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    u32 elements = b->plain_bytes / s->element_bytes;
    for (u32 i = thread; i < s->taken; i += ENCODE_THREADS) {
        u32 element = sample_run_begin(elements, i / SAMPLE_RUN_SYMBOLS) + i % SAMPLE_RUN_SYMBOLS;
        port_add32(&s->choice.histogram[element_symbol(b, s->element_bytes, element)], 1);
    }
}

PORT_FN void sample_choose(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    if (thread != 0) {
        return;
    }
    if (s->mode == ENCODE_MODE_AUTO) {
        estimate_make(&s->choice, b->type, b->plain_bytes, s->taken, &s->estimate);
        s->mode = mode_choose(&s->estimate, b->plain_bytes);
    } else {
        palette_build(&s->choice, tensor_palette_shift(b->type));
    }
}

// Lays the payload out; RAW when even an empty one would not be smaller.
PORT_FN void layout_choose(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    s->choice.histogram[thread] = 0;
    if (thread != 0) {
        return;
    }
    if (s->mode == TENSOR_MODE_FAST) {
        tensor_layout_fast(&s->layout, b->type, b->plain_bytes, 0);
    } else if (s->mode == TENSOR_MODE_DENSE) {
        tensor_layout_dense(&s->layout, b->type, b->plain_bytes, 0);
    }
    if (s->mode != TENSOR_MODE_RAW && s->layout.end >= b->plain_bytes) {
        s->mode = TENSOR_MODE_RAW;
    }
}

// ---- The hash of the plain bytes. ----

PORT_FN u64 plain_word(const struct encode_block *b, u32 at)
{
    if (at + 8 <= b->plain_bytes) {
        return port_load64(b->plain + at);
    }
    u64 word = 0;
    for (u32 i = 0; at + i < b->plain_bytes && i < 8; i++) {
        word |= (u64)b->plain[at + i] << 8 * i;
    }
    return word;
}

// 64 threads a tile: this thread's 16 bytes.
PORT_FN void hash_unit(u32 thread, struct encode_shared *s, const struct encode_block *b, u32 batch)
{
    u32 at = batch + thread * UNIT_BYTES;
    u32 key = thread % DECODE_THREADS * UNIT_BYTES / 4;
    s->part[thread] =
        tensor_hash_word(plain_word(b, at), device_hash_keys[key], device_hash_keys[key + 1]) +
        tensor_hash_word(plain_word(b, at + 8), device_hash_keys[key + 2],
                         device_hash_keys[key + 3]);
}

// Sixteen threads a tile add four parts each; then one adds those up.
PORT_FN void hash_gather(u32 thread, struct encode_shared *s)
{
    if (thread % 4 == 0) {
        s->part[thread] += s->part[thread + 1] + s->part[thread + 2] + s->part[thread + 3];
    }
}

PORT_FN void hash_tiles(u32 thread, struct encode_shared *s, const struct encode_block *b,
                        u32 batch)
{
    if (thread != 0) {
        return;
    }
    for (u32 tile = 0; tile < BATCH_TILES; tile++) {
        u64 sum = 0;
        for (u32 i = 0; i < DECODE_THREADS; i += 4) {
            sum += s->part[tile * DECODE_THREADS + i];
        }
        if (batch + tile * TENSOR_HASH_TILE_BYTES < b->plain_bytes) {
            s->sum += tensor_hash_tile_finish(sum, batch / TENSOR_HASH_TILE_BYTES + tile);
        }
    }
}

// ---- FAST. ----

PORT_FN void rest_store(const struct encode_shared *s, u8 *payload, u32 element, u32 rotated)
{
    if (s->element_bytes == 2) {
        payload[s->layout.rest0 + element] = (u8)rotated;
    } else if (s->element_bytes == 4) {
        payload[s->layout.rest0 + 2 * element] = (u8)rotated;
        payload[s->layout.rest0 + 2 * element + 1] = (u8)(rotated >> 8);
        payload[s->layout.rest1 + element] = (u8)(rotated >> 16);
    }
}

// Writes codes, low bits and rests of this thread's run and counts its escapes.
PORT_FN void fast_run(u32 thread, struct encode_shared *s, const struct encode_block *b, u32 step)
{
    u8 *payload = encode_payload(b);
    u32 begin = step + thread * RUN_ELEMENTS;
    u32 shift = tensor_palette_shift(b->type);
    u32 escapes = 0;
    u32 codes = 0;
    u32 low = 0;
    u32 n = 0;
    for (; n < RUN_ELEMENTS && begin + n < s->layout.elements; n++) {
        u32 rotated = element_rotated(b, s->element_bytes, begin + n);
        u32 symbol = rotated >> (8 * s->element_bytes - 8);
        u32 place = s->choice.map[symbol >> shift];
        escapes += place == 0xff ? 1 : 0;
        codes |= (place == 0xff ? 0 : place) << 4 * n;
        low |= (symbol & 7u) << 3 * n;
        rest_store(s, payload, begin + n, rotated);
    }
    for (u32 i = 0; i < (n + 1) / 2; i++) {
        payload[s->layout.codes + begin / 2 + i] = (u8)(codes >> 8 * i);
    }
    for (u32 i = 0; i < 3 && n > 0 && shift != 0; i++) {
        payload[s->layout.low + begin / 8 * 3 + i] = (u8)(low >> 8 * i);
    }
    s->count[thread] = escapes;
    if (escapes != 0) {
        port_add32(&s->step_patches, escapes);
    }
}

// Gives up when the patches of this step leave no gain; else each thread finds its place.
PORT_FN void fast_place(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    u32 before = s->patches;
    for (u32 i = 0; i < thread; i++) {
        before += s->count[i];
    }
    s->offset[thread] = before;
    u32 end = s->layout.variable + (s->patches + s->step_patches) * TENSOR_PATCH_BYTES;
    if (thread == 0 && end + b->plain_bytes % s->element_bytes >= b->plain_bytes) {
        s->mode = TENSOR_MODE_RAW;
    }
}

PORT_FN void fast_patch(u32 thread, const struct encode_shared *s, const struct encode_block *b,
                        u32 step)
{
    u32 begin = step + thread * RUN_ELEMENTS;
    u32 shift = tensor_palette_shift(b->type);
    u32 at = s->layout.variable + s->offset[thread] * TENSOR_PATCH_BYTES;
    for (u32 i = 0; s->count[thread] != 0 && i < RUN_ELEMENTS; i++) {
        if (begin + i >= s->layout.elements) {
            break;
        }
        u32 symbol = element_symbol(b, s->element_bytes, begin + i);
        if (s->choice.map[symbol >> shift] != 0xff) {
            continue;
        }
        u32 patch = (begin + i) | symbol << 24;
        for (u32 k = 0; k < 4; k++) {
            encode_payload(b)[at++] = (u8)(patch >> 8 * k);
        }
    }
}

PORT_FN void fast_advance(u32 thread, struct encode_shared *s)
{
    if (thread == 0) {
        s->patches += s->step_patches;
        s->step_patches = 0;
    }
}

// A barrier and nothing else.
PORT_FN void step_looked(u32 thread)
{
    (void)thread;
}

PORT_FN void fast_encode_device(struct encode_shared *s, const struct encode_block *b)
{
    for (u32 step = 0; step < s->layout.elements && s->mode == TENSOR_MODE_FAST;
         step += STEP_ELEMENTS) {
        PHASE(ENCODE_THREADS, fast_run(thread, s, b, step));
        bool has_patches = s->step_patches != 0;
        PHASE(ENCODE_THREADS, step_looked(thread)); // before a fast thread counts on
        if (has_patches) {
            PHASE(ENCODE_THREADS, fast_place(thread, s, b));
            if (s->mode == TENSOR_MODE_FAST) {
                PHASE(ENCODE_THREADS, fast_patch(thread, s, b, step));
            }
            PHASE(ENCODE_THREADS, fast_advance(thread, s));
        }
    }
}

// ---- DENSE. ----

PORT_FN void dense_split_device(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    u8 *payload = encode_payload(b);
    for (u32 i = thread; i < s->layout.elements; i += ENCODE_THREADS) {
        u32 rotated = element_rotated(b, s->element_bytes, i);
        rest_store(s, payload, i, rotated);
        port_add32(&s->choice.histogram[rotated >> (8 * s->element_bytes - 8)], 1);
    }
}

PORT_FN void dense_code(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    if (thread != 0) {
        return;
    }
    struct tensor_choice *c = &s->choice;
    s->code_bits = huffman_build(c->histogram, &c->huffman, c->lengths);
    u64 lanes_max =
        code_bits_total(c->histogram, c->lengths) / 8 + s->layout.segments * TENSOR_LANES;
    struct tensor_layout full;
    bool fits = lanes_max < b->plain_bytes;
    if (fits) {
        tensor_layout_dense(&full, b->type, b->plain_bytes, (u32)lanes_max);
        fits = full.end < b->plain_bytes;
    }
    s->mode = fits ? (u32)TENSOR_MODE_DENSE : (u32)TENSOR_MODE_RAW;
    huffman_codes(c->lengths, c->codes);
}

// The bytes of each lane, and of this thread's run of lanes together.
PORT_FN void lanes_measure(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    u32 lanes = s->layout.segments * TENSOR_LANES;
    u8 *table = encode_payload(b) + s->layout.codes;
    for (u32 lane = thread; lane < lanes; lane += ENCODE_THREADS) {
        u32 first = lane / TENSOR_LANES * TENSOR_SEGMENT_SYMBOLS;
        u32 left = s->layout.elements - first;
        u32 symbols = left < TENSOR_SEGMENT_SYMBOLS ? left : TENSOR_SEGMENT_SYMBOLS;
        u32 n = tensor_lane_symbols(symbols, lane % TENSOR_LANES);
        u32 bits = 0;
        for (u32 i = 0; i < n; i++) {
            u32 element = first + i * TENSOR_LANES + lane % TENSOR_LANES;
            bits += s->choice.lengths[element_symbol(b, s->element_bytes, element)];
        }
        u32 bytes = (bits + 7) / 8;
        s->lane_bytes[lane] = (u16)bytes;
        table[2 * lane] = (u8)bytes;
        table[2 * lane + 1] = (u8)(bytes >> 8);
    }
}

#define LANES_A_THREAD (LANES_MAX / ENCODE_THREADS)

PORT_FN void lanes_count(u32 thread, struct encode_shared *s)
{
    u32 lanes = s->layout.segments * TENSOR_LANES;
    u32 sum = 0;
    for (u32 i = 0; i < LANES_A_THREAD && thread * LANES_A_THREAD + i < lanes; i++) {
        sum += s->lane_bytes[thread * LANES_A_THREAD + i];
    }
    s->count[thread] = sum;
}

PORT_FN void lanes_place(u32 thread, struct encode_shared *s)
{
    u32 before = 0;
    for (u32 i = 0; i < thread; i++) {
        before += s->count[i];
    }
    s->offset[thread] = before;
    if (thread == ENCODE_THREADS - 1) {
        s->lanes_bytes = before + s->count[thread];
    }
}

// Writes this thread's lanes, byte by byte: neighbours share words, but no bytes.
PORT_FN void lanes_write(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    u32 lanes = s->layout.segments * TENSOR_LANES;
    u8 *out = encode_payload(b) + s->layout.variable;
    for (u32 lane = thread; lane < lanes; lane += ENCODE_THREADS) {
        u32 group = lane / LANES_A_THREAD;
        u32 at = s->offset[group];
        for (u32 i = group * LANES_A_THREAD; i < lane; i++) {
            at += s->lane_bytes[i];
        }
        u32 first = lane / TENSOR_LANES * TENSOR_SEGMENT_SYMBOLS;
        u32 left = s->layout.elements - first;
        u32 symbols = left < TENSOR_SEGMENT_SYMBOLS ? left : TENSOR_SEGMENT_SYMBOLS;
        u32 n = tensor_lane_symbols(symbols, lane % TENSOR_LANES);
        u32 word = 0;
        u32 fill = 0;
        for (u32 i = 0; i < n; i++) {
            u32 element = first + i * TENSOR_LANES + lane % TENSOR_LANES;
            u32 code = s->choice.codes[element_symbol(b, s->element_bytes, element)];
            word |= (code & 0xfffu) << fill;
            fill += code >> 12;
            for (; fill >= 8; fill -= 8) {
                out[at++] = (u8)word;
                word >>= 8;
            }
        }
        if (fill > 0) {
            out[at++] = (u8)word;
        }
    }
}

PORT_FN void dense_encode_device(struct encode_shared *s, const struct encode_block *b)
{
    PHASE(ENCODE_THREADS, dense_split_device(thread, s, b));
    PHASE(ENCODE_THREADS, dense_code(thread, s, b));
    if (s->mode == TENSOR_MODE_DENSE) {
        PHASE(ENCODE_THREADS, lanes_measure(thread, s, b));
        PHASE(ENCODE_THREADS, lanes_count(thread, s));
        PHASE(ENCODE_THREADS, lanes_place(thread, s));
        PHASE(ENCODE_THREADS, lanes_write(thread, s, b));
    }
}

// ---- The end of a block: gaps, tail, header. ----

PORT_FN void range_clear(u32 thread, u8 *payload, u32 from, u32 to)
{
    for (u32 i = from + thread; i < to; i += ENCODE_THREADS) {
        payload[i] = 0;
    }
}

PORT_FN void payload_finish(u32 thread, struct encode_shared *s, const struct encode_block *b)
{
    u8 *payload = encode_payload(b);
    u32 n = b->plain_bytes;
    if (s->mode == TENSOR_MODE_RAW) {
        for (u32 i = thread; i < n; i += ENCODE_THREADS) {
            payload[i] = b->plain[i];
        }
        return;
    }
    struct tensor_layout l;
    u32 bytes = s->element_bytes;
    if (s->mode == TENSOR_MODE_FAST) {
        tensor_layout_fast(&l, b->type, n, s->patches);
        u32 low_bytes = tensor_palette_shift(b->type) != 0 ? (l.elements + 7) / 8 * 3 : 0;
        range_clear(thread, payload, l.codes + (l.elements + 1) / 2, l.low);
        range_clear(thread, payload, l.low + low_bytes, l.rest0);
        if (thread < TENSOR_PALETTE_SYMBOLS) {
            payload[thread] = s->choice.palette[thread];
        }
    } else {
        tensor_layout_dense(&l, b->type, n, s->lanes_bytes);
        range_clear(thread, payload, l.variable + s->lanes_bytes, l.tail);
        if (thread < TENSOR_LENGTH_TABLE_BYTES) {
            payload[thread] =
                (u8)(s->choice.lengths[2 * thread] | s->choice.lengths[2 * thread + 1] << 4);
        }
    }
    range_clear(thread, payload, l.rest0 + l.elements * (bytes / 2), l.rest1);
    range_clear(thread, payload, l.rest1 + (bytes == 4 ? l.elements : 0), l.variable);
    if (thread < n % bytes) {
        payload[l.tail + thread] = b->plain[l.elements * bytes + thread];
    }
}

// Returns the size of the stored block.
PORT_FN u32 header_finish(const struct encode_shared *s, const struct encode_block *b)
{
    struct tensor_block_header h;
    struct tensor_layout l;
    u32 n = b->plain_bytes;
    h.magic = TENSOR_MAGIC_BLOCK;
    h.mode = (u8)s->mode;
    h.type = (u8)b->type;
    h.code_bits = 0;
    h.reserved = 0;
    h.plain_bytes = n;
    h.payload_bytes = n;
    h.patch_count = 0;
    h.lanes_bytes = 0;
    h.check = tensor_hash_finish(s->sum, n);
    if (s->mode == TENSOR_MODE_FAST) {
        tensor_layout_fast(&l, b->type, n, s->patches);
        h.patch_count = s->patches;
        h.payload_bytes = l.end;
    } else if (s->mode == TENSOR_MODE_DENSE) {
        tensor_layout_dense(&l, b->type, n, s->lanes_bytes);
        h.code_bits = (u8)s->code_bits;
        h.lanes_bytes = s->lanes_bytes;
        h.payload_bytes = l.end;
    }
    const u8 *from = (const u8 *)&h;
    for (u32 i = 0; i < TENSOR_BLOCK_HEADER_BYTES; i++) {
        b->stored[i] = from[i];
    }
    return TENSOR_BLOCK_HEADER_BYTES + h.payload_bytes;
}

// Encodes a block of 1 to TENSOR_BLOCK_BYTES_MAX bytes with ENCODE_THREADS threads; thread 0 then
// calls header_finish.
PORT_FN void encode_block_device(struct encode_shared *s, const struct encode_block *b)
{
    PHASE(ENCODE_THREADS, encode_begin(thread, s, b));
    if (s->mode == ENCODE_MODE_AUTO || s->mode == TENSOR_MODE_FAST) {
        PHASE(ENCODE_THREADS, sample_add(thread, s, b));
        PHASE(ENCODE_THREADS, sample_choose(thread, s, b));
    }
    PHASE(ENCODE_THREADS, layout_choose(thread, s, b));
    if (s->mode == TENSOR_MODE_FAST) {
        fast_encode_device(s, b);
    } else if (s->mode == TENSOR_MODE_DENSE) {
        dense_encode_device(s, b);
    }
    for (u32 batch = 0; batch < b->plain_bytes; batch += BATCH_BYTES) {
        PHASE(ENCODE_THREADS, hash_unit(thread, s, b, batch));
        PHASE(ENCODE_THREADS, hash_gather(thread, s));
        PHASE(ENCODE_THREADS, hash_tiles(thread, s, b, batch));
    }
    PHASE(ENCODE_THREADS, payload_finish(thread, s, b));
}
