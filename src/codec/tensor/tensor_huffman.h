// SPDX-License-Identifier: Apache-2.0
// Length-limited prefix codes: from a histogram to lengths, from lengths to codes, from lengths to
// a decoding table. Integer arithmetic with fixed tie-breaking, so every path and the GPU build the
// same code from the same block. Codes are canonical (by length, then by symbol) and complete, and
// are written with their first bit lowest.
#pragma once

#include "codec/tensor/tensor_kernel.h"

struct huffman_work {
    u32 key[256];    // count << 8 | symbol, ascending
    u32 weight[512]; // of leaves and inner nodes; later their depths
    u16 parent[512];
};

// Shell sort: at most 256 keys, mostly about twenty.
KERNEL_FN void huffman_sort(u32 *key, u32 n)
{
    for (u32 gap = 57; gap != 0; gap = gap == 57 ? 23 : gap == 23 ? 10 : gap == 10 ? 4 : gap == 4) {
        for (u32 i = gap; i < n; i++) {
            u32 moving = key[i];
            u32 j = i;
            while (j >= gap && key[j - gap] > moving) {
                key[j] = key[j - gap];
                j -= gap;
            }
            key[j] = moving;
        }
    }
}

// The two-queue construction: leaves ascend, inner nodes are born in ascending order.
KERNEL_FN void huffman_depths(struct huffman_work *w, u32 n)
{
    u32 leaf = 0;
    u32 inner = n;
    for (u32 i = 0; i < n; i++) {
        w->weight[i] = w->key[i] >> 8;
    }
    for (u32 next = n; next < 2 * n - 1; next++) {
        u32 sum = 0;
        for (int child = 0; child < 2; child++) {
            bool is_leaf = leaf < n && (inner == next || w->weight[leaf] <= w->weight[inner]);
            u32 pick = is_leaf ? leaf++ : inner++;
            sum += w->weight[pick];
            w->parent[pick] = (u16)next;
        }
        w->weight[next] = sum;
    }
    w->weight[2 * n - 2] = 0;
    for (u32 i = 2 * n - 2; i-- > 0;) {
        w->weight[i] = w->weight[w->parent[i]] + 1;
    }
}

// Cuts the depths of the n leaves to TENSOR_CODE_BITS_MAX and makes the code complete again: first
// the rarest symbols give way, then the most frequent take what is left over. The deficit is always
// a multiple of the longest code's share, so the second pass ends at exactly zero.
KERNEL_FN void huffman_limit(u32 *depth, u32 n)
{
    u32 total = 1u << TENSOR_CODE_BITS_MAX;
    u32 used = 0;
    for (u32 i = 0; i < n; i++) {
        depth[i] = depth[i] > TENSOR_CODE_BITS_MAX ? TENSOR_CODE_BITS_MAX : depth[i];
        used += total >> depth[i];
    }
    for (u32 i = 0; used > total;) {
        if (depth[i] == TENSOR_CODE_BITS_MAX) {
            i++;
            continue;
        }
        depth[i]++;
        used -= total >> depth[i];
    }
    for (u32 i = n; i-- > 0 && used < total;) {
        while (depth[i] > 1 && used + (total >> depth[i]) <= total) {
            used += total >> depth[i];
            depth[i]--;
        }
    }
}

// Fills `lengths` for the symbols that `histogram` counts (each count below 2^24, at least one not
// zero) and returns the longest. A lone symbol gets a twin, so that the code stays complete.
KERNEL_FN u32 huffman_build(const u32 *histogram, struct huffman_work *w, u8 *lengths)
{
    u32 n = 0;
    for (u32 s = 0; s < 256; s++) {
        lengths[s] = 0;
        if (histogram[s] != 0) {
            w->key[n++] = histogram[s] << 8 | s;
        }
    }
    if (n == 1) {
        lengths[w->key[0] & 255u] = 1;
        lengths[(w->key[0] & 255u) ^ 1u] = 1;
        return 1;
    }
    huffman_sort(w->key, n);
    huffman_depths(w, n);
    huffman_limit(w->weight, n);
    u32 longest = 0;
    for (u32 i = 0; i < n; i++) {
        lengths[w->key[i] & 255u] = (u8)w->weight[i];
        longest = w->weight[i] > longest ? w->weight[i] : longest;
    }
    return longest;
}

KERNEL_FN u32 huffman_reverse(u32 code, u32 length)
{
    u32 out = 0;
    for (u32 i = 0; i < length; i++) {
        out = out << 1 | (code >> i & 1u);
    }
    return out;
}

// The first code of every length, as in any canonical code. count[] is indexed by length.
KERNEL_FN void huffman_first_codes(const u32 *count, u32 *first)
{
    u32 code = 0;
    first[0] = 0;
    for (u32 length = 1; length <= TENSOR_CODE_BITS_MAX; length++) {
        code = (code + (length == 1 ? 0 : count[length - 1])) << 1;
        first[length] = code;
    }
}

// codes[symbol] = bits | length << 12, the bits in writing order. Symbols without a code get 0.
KERNEL_FN void huffman_codes(const u8 *lengths, u16 *codes)
{
    u32 count[TENSOR_CODE_BITS_MAX + 1] = {0};
    u32 first[TENSOR_CODE_BITS_MAX + 1];
    for (u32 s = 0; s < 256; s++) {
        count[lengths[s]]++;
    }
    huffman_first_codes(count, first);
    for (u32 s = 0; s < 256; s++) {
        u32 length = lengths[s];
        codes[s] = length == 0 ? 0 : (u16)(huffman_reverse(first[length]++, length) | length << 12);
    }
}

// Whether a stored length table is a complete code whose longest length is `code_bits`.
KERNEL_FN bool huffman_is_complete(const u8 *table, u32 code_bits)
{
    u32 used = 0;
    u32 longest = 0;
    for (u32 s = 0; s < 256; s++) {
        u32 length = tensor_code_length(table, s);
        if (length > TENSOR_CODE_BITS_MAX) {
            return false;
        }
        longest = length > longest ? length : longest;
        used += length == 0 ? 0 : (1u << TENSOR_CODE_BITS_MAX) >> length;
    }
    return used == 1u << TENSOR_CODE_BITS_MAX && longest == code_bits;
}

// Fills the 1 << code_bits entries symbol | length << 8, indexed by the next code_bits bits.
KERNEL_FN void huffman_decode_table(const u16 *codes, u32 code_bits, u16 *table)
{
    for (u32 s = 0; s < 256; s++) {
        u32 length = (u32)codes[s] >> 12;
        if (length == 0) {
            continue;
        }
        for (u32 at = codes[s] & 0xfffu; at < 1u << code_bits; at += 1u << length) {
            table[at] = (u16)(s | length << 8);
        }
    }
}
