// SPDX-License-Identifier: Apache-2.0
// Decoding on the device. A group of 64 threads decodes one segment of a block (32,768 elements):
// in DENSE each thread is a lane. The unit of output is 16 bytes a thread; 64 units are one tile of
// the block hash, and four tiles are a batch between barriers. Everything read from a block is
// checked before it is used as an offset; a wrong block gives an error, never an access outside its
// buffers.
#pragma once

#include "codec/tensor/cuda/tensor_port.h"
#include "codec/tensor/tensor_hash_keys.h"

#define DECODE_THREADS     64u
#define BATCH_TILES        4u
#define BATCH_BYTES        (BATCH_TILES * TENSOR_HASH_TILE_BYTES)
#define UNIT_BYTES         16u
#define DEVICE_ERR_FORMAT  3u // enum leat_codec_err, which device code does not include
#define DEVICE_ERR_CORRUPT 4u

PORT_GLOBAL u32 device_hash_keys[256] = TENSOR_HASH_KEYS;

// What the threads of a group share.
struct decode_shared {
    struct tensor_block_header header;
    struct tensor_layout layout;
    u32 status;
    u32 segments;
    u32 element_bytes;
    u32 symbols; // of this segment
    u32 first_element;
    u32 code_share; // of the code space that the lengths use
    u32 longest;
    u32 lanes_total;
    u32 patch_begin; // of this segment
    u32 patch_end;
    u32 count[16];
    u32 first[TENSOR_CODE_BITS_MAX + 1];
    u32 lane_bytes[DECODE_THREADS];
    u32 lane_begin[DECODE_THREADS];
    u32 bit[DECODE_THREADS];
    u64 part[BATCH_TILES][DECODE_THREADS];
    u64 tile_part[DECODE_THREADS];
    u64 sum[BATCH_TILES];
    u16 table[1u << TENSOR_CODE_BITS_MAX];
    u8 lengths[256];
    u8 palette[TENSOR_PALETTE_SYMBOLS];
    u64 staged_align;       // the stage is read in words of eight bytes
    u8 staged[BATCH_BYTES]; // symbols of a batch, DENSE
};

// One block to decode.
struct decode_block {
    const u8 *stored;
    u32 stored_bytes;
    u8 *plain;
    u32 plain_bytes;
};

PORT_FN void decode_begin(u32 thread, struct decode_shared *s, const struct decode_block *b)
{
    if (thread < BATCH_TILES) {
        s->sum[thread] = 0;
    }
    if (thread != 0) {
        return;
    }
    s->status = 0;
    u8 *to = (u8 *)&s->header;
    for (u32 i = 0; i < TENSOR_BLOCK_HEADER_BYTES; i++) {
        to[i] = b->stored_bytes < TENSOR_BLOCK_HEADER_BYTES ? 0 : b->stored[i];
    }
    const struct tensor_block_header *h = &s->header;
    if (!tensor_header_is_valid(h, b->stored_bytes) || h->plain_bytes != b->plain_bytes) {
        s->status = DEVICE_ERR_FORMAT;
        s->segments = 1;
        return;
    }
    s->element_bytes = h->mode == TENSOR_MODE_RAW ? 1 : tensor_element_bytes(h->type);
    if (h->mode == TENSOR_MODE_FAST) {
        tensor_layout_fast(&s->layout, h->type, h->plain_bytes, h->patch_count);
    } else {
        tensor_layout_dense(&s->layout, h->type, h->plain_bytes, h->lanes_bytes);
    }
    if (h->mode == TENSOR_MODE_RAW) {
        s->layout.elements = h->plain_bytes;
    }
    s->segments = (s->layout.elements + TENSOR_SEGMENT_SYMBOLS - 1) / TENSOR_SEGMENT_SYMBOLS;
}

PORT_FN const u8 *decode_payload(const struct decode_block *b)
{
    return b->stored + TENSOR_BLOCK_HEADER_BYTES;
}

// ---- The decoding table, built by all threads. ----

PORT_FN void table_clear(u32 thread, struct decode_shared *s)
{
    if (thread < 16) {
        s->count[thread] = 0;
    }
    if (thread == 0) {
        s->code_share = 0;
        s->lanes_total = 0;
        s->longest = 0;
    }
}

PORT_FN void table_count(u32 thread, struct decode_shared *s, const u8 *lengths)
{
    for (u32 i = thread; i < 256; i += DECODE_THREADS) {
        u32 length = tensor_code_length(lengths, i);
        s->lengths[i] = (u8)length;
        port_add32(&s->count[length], 1);
        if (length > 0 && length <= TENSOR_CODE_BITS_MAX) {
            port_add32(&s->code_share, (1u << TENSOR_CODE_BITS_MAX) >> length);
        }
    }
}

PORT_FN void table_check(u32 thread, struct decode_shared *s)
{
    if (thread != 0) {
        return;
    }
    huffman_first_codes(s->count, s->first);
    for (u32 length = 1; length < 16; length++) {
        s->longest = s->count[length] != 0 ? length : s->longest;
    }
    if (s->code_share != 1u << TENSOR_CODE_BITS_MAX || s->longest != s->header.code_bits) {
        s->status = DEVICE_ERR_FORMAT;
    }
}

// Each thread places every 64th symbol; its number among those of its length is counted.
PORT_FN void table_fill(u32 thread, struct decode_shared *s)
{
    u32 bits = s->header.code_bits;
    for (u32 symbol = thread; symbol < 256 && s->status == 0; symbol += DECODE_THREADS) {
        u32 length = s->lengths[symbol];
        u32 rank = 0;
        if (length == 0) {
            continue;
        }
        for (u32 i = 0; i < symbol; i++) {
            rank += s->lengths[i] == length ? 1 : 0;
        }
        u32 code = huffman_reverse(s->first[length] + rank, length);
        for (u32 at = code; at < 1u << bits; at += 1u << length) {
            s->table[at] = (u16)(symbol | length << 8);
        }
    }
}

// ---- Lanes. ----

// Adds up the lanes of the whole block for the check, and those before this segment.
PORT_FN void lanes_sum(u32 thread, struct decode_shared *s, const u8 *lengths, u32 segment)
{
    u32 before = 0;
    for (u32 i = thread; i < s->layout.segments * TENSOR_LANES; i += DECODE_THREADS) {
        u32 length = port_load16(lengths + 2 * i);
        port_add32(&s->lanes_total, length);
        before += i < segment * TENSOR_LANES ? length : 0;
    }
    s->bit[thread] = before;
    s->lane_bytes[thread] = port_load16(lengths + 2 * (segment * TENSOR_LANES + thread));
}

PORT_FN void lanes_begin(u32 thread, struct decode_shared *s)
{
    u32 begin = 0;
    for (u32 i = 0; i < DECODE_THREADS; i++) {
        begin += s->bit[i] + (i < thread ? s->lane_bytes[i] : 0);
    }
    s->lane_begin[thread] = begin;
    if (thread == 0 && s->lanes_total != s->header.lanes_bytes) {
        s->status = DEVICE_ERR_FORMAT;
    }
}

PORT_FN void lanes_start(u32 thread, struct decode_shared *s)
{
    s->bit[thread] = s->lane_begin[thread] * 8;
}

// The next 32 bits and more of a lane; reads stay below `bytes`, which is at least 16.
PORT_FN u64 lane_window(const u8 *lanes, u32 bytes, u32 bit)
{
    // Lanes begin anywhere, so two aligned words are joined.
    u32 at = (bit >> 3) & ~3u;
    at = at < bytes - 12 ? at : bytes - 12;
    u64 low = port_load32(lanes + at) | (u64)port_load32(lanes + at + 4) << 32;
    u32 skip = bit - at * 8 < 63 ? bit - at * 8 : 63;
    u64 high = port_load32(lanes + at + 8);
    return skip == 0 ? low : low >> skip | high << (64 - skip);
}

#define STEPS_PER_WINDOW 5u // of 11 bits each, of the at least 64 that a window brings

// Takes the next `steps` symbols of this thread's lane into the stage: the lane's symbol of step k
// stands at 64 * k + lane.
PORT_FN void lane_decode(u32 thread, struct decode_shared *s, const u8 *lanes, u32 from_step,
                         u32 steps)
{
    u32 bytes = s->layout.tail - s->layout.variable;
    u32 mask = (1u << s->header.code_bits) - 1u;
    u32 mine = tensor_lane_symbols(s->symbols, thread);
    u32 bit = s->bit[thread];
    u32 end = mine < from_step + steps ? mine : from_step + steps;
    for (u32 step = from_step; step < end;) {
        u64 window = lane_window(lanes, bytes, bit);
        u32 stop = step + STEPS_PER_WINDOW < end ? step + STEPS_PER_WINDOW : end;
        for (; step < stop; step++) {
            u32 entry = s->table[(u32)window & mask];
            s->staged[(step - from_step) * TENSOR_LANES + thread] = (u8)entry;
            window >>= entry >> 8;
            bit += entry >> 8;
        }
    }
    s->bit[thread] = bit;
}

PORT_FN void lanes_end(u32 thread, struct decode_shared *s)
{
    if ((s->bit[thread] + 7) / 8 != s->lane_begin[thread] + s->lane_bytes[thread]) {
        s->status = DEVICE_ERR_CORRUPT;
    }
}

// ---- FAST: palette places to symbols. ----

// The first patch whose position is not below `position`.
PORT_FN u32 patch_find(const u8 *patches, u32 begin, u32 end, u32 position)
{
    while (begin < end) {
        u32 middle = begin + (end - begin) / 2;
        if ((port_load32(patches + middle * TENSOR_PATCH_BYTES) & 0xffffffu) < position) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin;
}

PORT_FN void fast_begin(u32 thread, struct decode_shared *s, const u8 *payload)
{
    if (thread < TENSOR_PALETTE_SYMBOLS) {
        s->palette[thread] = payload[thread];
    }
    if (thread == 0) {
        const u8 *patches = payload + s->layout.variable;
        u32 count = s->header.patch_count;
        s->patch_begin = patch_find(patches, 0, count, s->first_element);
        s->patch_end = patch_find(patches, s->patch_begin, count, s->first_element + s->symbols);
        // What lies outside every segment would be a patch that nobody applies.
        if (count > 0 && (port_load32(patches + (count - 1) * TENSOR_PATCH_BYTES) & 0xffffffu) >=
                             s->layout.elements) {
            s->status = DEVICE_ERR_FORMAT;
        }
    }
}

// The symbols of a unit's elements, the first lowest. They stay in registers: no array is indexed.
struct unit_symbols {
    u64 low;
    u64 high;
};

PORT_FN u32 unit_symbol(struct unit_symbols x, u32 i)
{
    return (u32)((i < 8 ? x.low : x.high) >> (i & 7u) * 8) & 255u;
}

PORT_FN void unit_patch(struct unit_symbols *x, u32 i, u32 symbol)
{
    u64 hole = ~(255ull << (i & 7u) * 8);
    u64 value = (u64)symbol << (i & 7u) * 8;
    if (i < 8) {
        x->low = (x->low & hole) | value;
    } else {
        x->high = (x->high & hole) | value;
    }
}

// Up to eight codes to symbols; `low` holds three bits for each where `shift` is three.
PORT_FN u64 fast_eight(const struct decode_shared *s, u32 codes, u32 low, u32 shift, u32 n)
{
    u64 out = 0;
    for (u32 i = 0; i < n; i++) {
        u32 symbol = (u32)s->palette[codes >> 4 * i & 15u] << shift & 255u;
        out |= (u64)(symbol | (low >> 3 * i & 7u)) << 8 * i;
    }
    return out;
}

// 24 bits of the low plane, for the eight elements from `element` on, a multiple of eight.
PORT_FN u32 fast_low(const struct decode_shared *s, const u8 *payload, u32 element)
{
    const u8 *low = payload + s->layout.low + element / 8 * 3;
    return low[0] | (u32)low[1] << 8 | (u32)low[2] << 16;
}

// The symbols of the unit's n elements (4, 8 or 16) from `element` on, which is below the block's
// number of elements; those past the end come out as anything.
PORT_FN struct unit_symbols fast_symbols(const struct decode_shared *s, const u8 *payload,
                                         u32 element, u32 n)
{
    u32 shift = tensor_palette_shift(s->header.type);
    const u8 *codes = payload + s->layout.codes + element / 2;
    struct unit_symbols x = {0, 0};
    if (n == 4) {
        x.low = fast_eight(s, port_load16(codes), 0, shift, 4);
    } else {
        x.low = fast_eight(s, port_load32(codes), shift == 0 ? 0 : fast_low(s, payload, element),
                           shift, 8);
    }
    if (n == 16 && element + 8 < s->layout.elements) {
        x.high = fast_eight(s, port_load32(codes + 4),
                            shift == 0 ? 0 : fast_low(s, payload, element + 8), shift, 8);
    }
    if (s->patch_begin != s->patch_end) {
        const u8 *patches = payload + s->layout.variable;
        u32 p = patch_find(patches, s->patch_begin, s->patch_end, element);
        for (; p < s->patch_end; p++) {
            u32 patch = port_load32(patches + p * TENSOR_PATCH_BYTES);
            u32 position = (patch & 0xffffffu) - element;
            if (position >= n) {
                break;
            }
            unit_patch(&x, position, patch >> 24);
        }
    }
    return x;
}

// ---- Units: symbols and rests to 16 plain bytes. ----

PORT_FN u64 element_merge(const struct decode_shared *s, const u8 *payload, u32 element, u32 symbol)
{
    u32 type = s->header.type;
    if (s->element_bytes == 2) {
        return tensor_unrotate16(symbol << 8 | payload[s->layout.rest0 + element]);
    }
    if (s->element_bytes == 4) {
        u32 low = port_load16(payload + s->layout.rest0 + 2 * element);
        u32 third = payload[s->layout.rest1 + element];
        return tensor_unrotate32(symbol << 24 | third << 16 | low);
    }
    return type == TENSOR_TYPE_FP8_E5M2 && s->header.mode != TENSOR_MODE_RAW
               ? tensor_unrotate8(symbol)
               : symbol;
}

// Four 2-byte elements of four symbols and four rests: bytes interleaved, then each half rotated
// back.
PORT_FN u64 merge16_four(u32 symbols, u32 rests)
{
    u32 a = port_byte_perm(rests, symbols, 0x5140);
    u32 b = port_byte_perm(rests, symbols, 0x7362);
    a = (a >> 1 & 0x7fff7fffu) | (a & 0x00010001u) << 15;
    b = (b >> 1 & 0x7fff7fffu) | (b & 0x00010001u) << 15;
    return a | (u64)b << 32;
}

// Four 4-byte elements.
PORT_FN void merge32_four(u32 symbols, u64 low, u32 third, u64 words[2])
{
    for (u32 half = 0; half < 2; half++) {
        u32 pair = (u32)(low >> 32 * half);
        u32 a = (symbols >> 16 * half & 255u) << 24 | (third >> 16 * half & 255u) << 16 |
                (pair & 0xffffu);
        u32 b = (symbols >> (16 * half + 8)) << 24 | (third >> (16 * half + 8) & 255u) << 16 |
                pair >> 16;
        words[half] = tensor_unrotate32(a) | (u64)tensor_unrotate32(b) << 32;
    }
}

// Eight bytes, each rotated back by one.
PORT_FN u64 unrotate8_eight(u64 x)
{
    return (x >> 1 & 0x7f7f7f7f7f7f7f7full) | (x & 0x0101010101010101ull) << 7;
}

// A unit all of whose bytes are elements.
PORT_FN void unit_merge(const struct decode_shared *s, const u8 *payload, u32 element,
                        struct unit_symbols x, u64 words[2])
{
    if (s->element_bytes == 2) {
        u64 rests = port_load64(payload + s->layout.rest0 + element);
        words[0] = merge16_four((u32)x.low, (u32)rests);
        words[1] = merge16_four((u32)(x.low >> 32), (u32)(rests >> 32));
    } else if (s->element_bytes == 4) {
        merge32_four((u32)x.low, port_load64(payload + s->layout.rest0 + 2 * element),
                     port_load32(payload + s->layout.rest1 + element), words);
    } else {
        bool is_rotated =
            s->header.type == TENSOR_TYPE_FP8_E5M2 && s->header.mode != TENSOR_MODE_RAW;
        words[0] = is_rotated ? unrotate8_eight(x.low) : x.low;
        words[1] = is_rotated ? unrotate8_eight(x.high) : x.high;
    }
}

// Writes the unit at plain byte `at` and returns what it adds to its tile.
PORT_FN u64 unit_finish(const struct decode_shared *s, const struct decode_block *b, u32 at,
                        struct unit_symbols x)
{
    const u8 *payload = decode_payload(b);
    u32 bytes = s->element_bytes;
    u32 element = at / bytes;
    u64 words[2] = {0, 0};
    if (at + UNIT_BYTES <= s->layout.elements * bytes) {
        unit_merge(s, payload, element, x, words);
        port_store128(b->plain + at, words[0], words[1]);
    } else {
        for (u32 i = 0; i < UNIT_BYTES && at + i < b->plain_bytes; i++) {
            u32 e = (at + i) / bytes;
            u64 byte = e < s->layout.elements
                           ? element_merge(s, payload, e, unit_symbol(x, e - element)) >>
                                 (at + i) % bytes * 8
                           : payload[s->layout.tail + (at + i) - s->layout.elements * bytes];
            b->plain[at + i] = (u8)byte;
            if (i < 8) {
                words[0] |= (byte & 255u) << i * 8;
            } else {
                words[1] |= (byte & 255u) << (i - 8) * 8;
            }
        }
    }
    u32 key = at % TENSOR_HASH_TILE_BYTES / 4;
    return tensor_hash_word(words[0], device_hash_keys[key], device_hash_keys[key + 1]) +
           tensor_hash_word(words[1], device_hash_keys[key + 2], device_hash_keys[key + 3]);
}

// What RAW holds at plain byte `at`, as far as there is any.
PORT_FN struct unit_symbols raw_symbols(const struct decode_block *b, u32 at)
{
    const u8 *from = decode_payload(b) + at;
    struct unit_symbols x = {0, 0};
    if (at + UNIT_BYTES <= b->plain_bytes) {
        x.low = port_load64(from);
        x.high = port_load64(from + 8);
        return x;
    }
    for (u32 i = 0; at + i < b->plain_bytes; i++) {
        unit_patch(&x, i, from[i]);
    }
    return x;
}

// The symbols that the lanes have staged.
PORT_FN struct unit_symbols staged_symbols(const struct decode_shared *s, u32 at, u32 n)
{
    struct unit_symbols x = {0, 0};
    if (n == 4) {
        x.low = port_load32(s->staged + at);
    } else {
        x.low = port_load64(s->staged + at);
        x.high = n == 16 ? port_load64(s->staged + at + 8) : 0;
    }
    return x;
}

// This thread's unit of every tile of the batch that begins at plain byte `batch`.
PORT_FN void batch_merge(u32 thread, struct decode_shared *s, const struct decode_block *b,
                         u32 batch)
{
    u32 n = UNIT_BYTES / s->element_bytes;
    for (u32 tile = 0; tile < BATCH_TILES; tile++) {
        struct unit_symbols x = {0, 0};
        u32 in_batch = tile * TENSOR_HASH_TILE_BYTES + thread * UNIT_BYTES;
        u32 at = batch + in_batch;
        u32 element = at / s->element_bytes;
        if (s->header.mode == TENSOR_MODE_RAW) {
            x = raw_symbols(b, at);
        } else if (s->header.mode == TENSOR_MODE_DENSE) {
            x = staged_symbols(s, in_batch / s->element_bytes, n);
        } else if (element < s->layout.elements) {
            x = fast_symbols(s, decode_payload(b), element, n);
        }
        s->part[tile][thread] = unit_finish(s, b, at, x);
    }
}

PORT_FN void batch_sum(u32 thread, struct decode_shared *s)
{
    u64 sum = 0;
    u32 share = DECODE_THREADS / (DECODE_THREADS / BATCH_TILES); // parts a thread adds
    for (u32 i = 0; i < share; i++) {
        sum += s->part[thread / (DECODE_THREADS / BATCH_TILES)]
                      [thread % (DECODE_THREADS / BATCH_TILES) * share + i];
    }
    s->tile_part[thread] = sum;
}

PORT_FN void batch_hash(u32 thread, struct decode_shared *s, const struct decode_block *b,
                        u32 batch)
{
    if (thread >= BATCH_TILES || batch + thread * TENSOR_HASH_TILE_BYTES >= b->plain_bytes) {
        return;
    }
    u64 sum = 0;
    for (u32 i = 0; i < DECODE_THREADS / BATCH_TILES; i++) {
        sum += s->tile_part[thread * (DECODE_THREADS / BATCH_TILES) + i];
    }
    s->sum[thread] += tensor_hash_tile_finish(sum, batch / TENSOR_HASH_TILE_BYTES + thread);
}

PORT_FN void segment_begin(u32 thread, struct decode_shared *s, u32 segment)
{
    if (thread == 0) {
        u32 left = s->layout.elements - segment * TENSOR_SEGMENT_SYMBOLS;
        s->first_element = segment * TENSOR_SEGMENT_SYMBOLS;
        s->symbols = left < TENSOR_SEGMENT_SYMBOLS ? left : TENSOR_SEGMENT_SYMBOLS;
    }
}

// Decodes one segment with DECODE_THREADS threads. Adds its tiles to s->sum and sets s->status.
PORT_FN void decode_segment(struct decode_shared *s, const struct decode_block *b, u32 segment)
{
    const u8 *payload = decode_payload(b);
    PHASE(DECODE_THREADS, segment_begin(thread, s, segment));
    bool is_dense = s->header.mode == TENSOR_MODE_DENSE;
    if (s->header.mode == TENSOR_MODE_FAST) {
        PHASE(DECODE_THREADS, fast_begin(thread, s, payload));
    } else if (is_dense) {
        PHASE(DECODE_THREADS, table_clear(thread, s));
        PHASE(DECODE_THREADS, table_count(thread, s, payload));
        PHASE(DECODE_THREADS, table_check(thread, s));
        PHASE(DECODE_THREADS, table_fill(thread, s));
        PHASE(DECODE_THREADS, lanes_sum(thread, s, payload + s->layout.codes, segment));
        PHASE(DECODE_THREADS, lanes_begin(thread, s));
        PHASE(DECODE_THREADS, lanes_start(thread, s));
    }
    if (s->status != 0) {
        return;
    }
    bool is_last = segment + 1 == s->segments;
    u32 begin = s->first_element * s->element_bytes;
    u32 end = is_last ? b->plain_bytes : (s->first_element + s->symbols) * s->element_bytes;
    u32 steps = BATCH_BYTES / s->element_bytes / TENSOR_LANES;
    for (u32 batch = begin; batch < end; batch += BATCH_BYTES) {
        if (is_dense) {
            u32 step = (batch - begin) / s->element_bytes / TENSOR_LANES;
            PHASE(DECODE_THREADS,
                  lane_decode(thread, s, payload + s->layout.variable, step, steps));
        }
        PHASE(DECODE_THREADS, batch_merge(thread, s, b, batch));
        PHASE(DECODE_THREADS, batch_sum(thread, s));
        PHASE(DECODE_THREADS, batch_hash(thread, s, b, batch));
    }
    if (is_dense) {
        PHASE(DECODE_THREADS, lanes_end(thread, s));
    }
}

// Whether the sum over all tiles makes the checksum in the header.
PORT_FN bool decode_is_right(const struct decode_shared *s, u64 sum)
{
    return tensor_hash_finish(sum, s->header.plain_bytes) == s->header.check;
}
