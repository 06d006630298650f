// SPDX-License-Identifier: Apache-2.0
// From the counts of a sample to a palette, to estimates and to a mode. Shared by the processor's
// encoder and the GPU's, which must choose alike.
#pragma once

#include "codec/tensor/tensor_huffman.h"

#define SAMPLE_RUNS        64u
#define SAMPLE_RUN_SYMBOLS 64u // a run is spread over the block with its 63 sisters
#define SAMPLE_SYMBOLS     (SAMPLE_RUNS * SAMPLE_RUN_SYMBOLS)
#define FAST_BONUS_PERCENT 2u   // FAST decodes faster: AUTO takes it when it is at most this larger
#define GAIN_SHARE_MIN     128u // AUTO stores RAW unless a 128th is gained

// What a choice works on and leaves behind for the encoder.
struct tensor_choice {
    struct huffman_work huffman;
    u32 histogram[256];
    u32 classes[256]; // counts of what the palette chooses from
    u8 lengths[256];
    u16 codes[256];
    u8 map[256]; // class to palette place, 0xff for an escape
    u8 palette[TENSOR_PALETTE_SYMBOLS];
};

// Sizes of the payload of a block, by mode, as far as the sample tells.
struct tensor_estimate {
    u64 bytes[TENSOR_MODE_COUNT];
};

// The first element of sample run `run` in a block of `elements`, and how many symbols are taken.
KERNEL_FN u32 sample_taken(u32 elements)
{
    return elements < SAMPLE_SYMBOLS ? elements : SAMPLE_SYMBOLS;
}

KERNEL_FN u32 sample_run_begin(u32 elements, u32 run)
{
    if (elements <= SAMPLE_SYMBOLS) {
        return run * SAMPLE_RUN_SYMBOLS;
    }
    return (u32)((u64)(elements - SAMPLE_RUN_SYMBOLS) * run / (SAMPLE_RUNS - 1));
}

// The class for a palette place that no counted class fills: the neighbours below the smallest
// class, then above the largest, where rarer exponents will be, then whatever is left.
KERNEL_FN u32 palette_filler(const u8 *map, u32 limit, u32 *low, u32 *high)
{
    u32 free = 0;
    if (*low > 0) {
        return --*low;
    }
    if (*high + 1 < limit) {
        return ++*high;
    }
    while (map[free] != 0xff) {
        free++;
    }
    return free;
}

// Chooses the 16 most frequent classes (symbol >> shift) of the histogram, which is not empty.
// Returns how many of the counted symbols stay outside.
KERNEL_FN u32 palette_build(struct tensor_choice *c, u32 shift)
{
    u32 n = 0;
    u32 outside = 0;
    u32 limit = 256u >> shift;
    for (u32 i = 0; i < 256; i++) {
        c->classes[i] = 0;
        c->map[i] = 0xff;
    }
    for (u32 i = 0; i < 256; i++) {
        c->classes[i >> shift] += c->histogram[i];
    }
    for (u32 i = 0; i < limit; i++) {
        if (c->classes[i] != 0) {
            c->huffman.key[n++] = c->classes[i] << 8 | i;
        }
    }
    u32 low = c->huffman.key[0] & 255u;
    u32 high = c->huffman.key[n - 1] & 255u;
    huffman_sort(c->huffman.key, n);
    for (u32 place = 0; place < TENSOR_PALETTE_SYMBOLS; place++) {
        u32 chosen = place < n ? c->huffman.key[n - 1 - place] & 255u
                               : palette_filler(c->map, limit, &low, &high);
        c->palette[place] = (u8)chosen;
        c->map[chosen] = (u8)place;
    }
    for (u32 i = TENSOR_PALETTE_SYMBOLS; i < n; i++) {
        outside += c->huffman.key[n - 1 - i] >> 8;
    }
    return outside;
}

// The bits that the histogram takes in the code of `lengths`.
KERNEL_FN u64 code_bits_total(const u32 *histogram, const u8 *lengths)
{
    u64 bits = 0;
    for (u32 i = 0; i < 256; i++) {
        bits += (u64)histogram[i] * lengths[i];
    }
    return bits;
}

// Fills the estimates of a block of `n` bytes from the histogram of `taken` symbols, and leaves the
// palette behind. taken is not zero.
KERNEL_FN void estimate_make(struct tensor_choice *c, u32 type, u32 n, u32 taken,
                             struct tensor_estimate *e)
{
    struct tensor_layout layout;
    u32 elements = n / tensor_element_bytes(type);
    u32 outside = palette_build(c, tensor_palette_shift(type));
    e->bytes[TENSOR_MODE_RAW] = n;
    tensor_layout_fast(&layout, type, n, 0);
    e->bytes[TENSOR_MODE_FAST] = layout.end + (u64)outside * elements / taken * TENSOR_PATCH_BYTES;
    huffman_build(c->histogram, &c->huffman, c->lengths);
    tensor_layout_dense(&layout, type, n, 0);
    u64 lanes = code_bits_total(c->histogram, c->lengths) * elements / taken / 8;
    e->bytes[TENSOR_MODE_DENSE] = layout.end + lanes + layout.segments * TENSOR_LANES / 2;
}

// The mode that AUTO takes.
KERNEL_FN u32 mode_choose(const struct tensor_estimate *e, u32 n)
{
    u64 fast = e->bytes[TENSOR_MODE_FAST];
    u64 dense = e->bytes[TENSOR_MODE_DENSE];
    if ((fast < dense ? fast : dense) > n - n / GAIN_SHARE_MIN) {
        return TENSOR_MODE_RAW;
    }
    return fast * 100 <= dense * (100 + FAST_BONUS_PERCENT) ? TENSOR_MODE_FAST : TENSOR_MODE_DENSE;
}
