// SPDX-License-Identifier: Apache-2.0
// The inner loops in portable C. tensor_ops_c.c uses them as they are; the vector files include
// them too, for the ends of runs and for what does not vectorize, compiled there with more
// instructions.
#pragma once

#include "base/endian.h"
#include "codec/tensor/tensor_hash_keys.h"
#include "codec/tensor/tensor_huffman.h"
#include "codec/tensor/tensor_ops.h"

static const u32 generic_hash_keys[256] = TENSOR_HASH_KEYS;

// One tile that may be short: the missing bytes count as zeros.
KERNEL_FN u64 generic_hash_tile(const u8 *data, size_t n)
{
    u64 sum = 0;
    u32 word = 0;
    for (; (size_t)word * 8 + 8 <= n; word++) {
        sum += tensor_hash_word(load_le64(data + (size_t)word * 8), generic_hash_keys[2 * word],
                                generic_hash_keys[2 * word + 1]);
    }
    if ((size_t)word * 8 < n) {
        u64 last = 0;
        memcpy(&last, data + (size_t)word * 8, n - (size_t)word * 8);
        sum += tensor_hash_word(last, generic_hash_keys[2 * word], generic_hash_keys[2 * word + 1]);
        word++;
    }
    for (; word < TENSOR_HASH_TILE_BYTES / 8; word++) {
        sum += tensor_hash_word(0, generic_hash_keys[2 * word], generic_hash_keys[2 * word + 1]);
    }
    return sum;
}

KERNEL_FN u64 generic_hash(const u8 *data, size_t n, u64 tile)
{
    u64 total = 0;
    for (size_t at = 0; at < n; at += TENSOR_HASH_TILE_BYTES) {
        size_t bytes = MIN(n - at, (size_t)TENSOR_HASH_TILE_BYTES);
        total += tensor_hash_tile_finish(generic_hash_tile(data + at, bytes), tile++);
    }
    return total;
}

KERNEL_FN void generic_split(u32 type, const u8 *plain, u32 n, struct tensor_planes out)
{
    if (type == TENSOR_TYPE_BF16 || type == TENSOR_TYPE_FP16) {
        for (u32 i = 0; i < n; i++) {
            u32 r = tensor_rotate16(load_le16(plain + 2 * (size_t)i));
            out.symbols[i] = (u8)(r >> 8);
            out.rest0[i] = (u8)r;
        }
    } else if (type == TENSOR_TYPE_FP32) {
        for (u32 i = 0; i < n; i++) {
            u32 r = tensor_rotate32(load_le32(plain + 4 * (size_t)i));
            out.symbols[i] = (u8)(r >> 24);
            out.rest1[i] = (u8)(r >> 16);
            store_le16(out.rest0 + 2 * (size_t)i, (u16)r);
        }
    } else if (type == TENSOR_TYPE_FP8_E5M2) {
        for (u32 i = 0; i < n; i++) {
            out.symbols[i] = (u8)tensor_rotate8(plain[i]);
        }
    } else {
        memcpy(out.symbols, plain, n);
    }
}

KERNEL_FN void generic_merge(u32 type, struct tensor_planes in, u32 n, u8 *plain)
{
    if (type == TENSOR_TYPE_BF16 || type == TENSOR_TYPE_FP16) {
        for (u32 i = 0; i < n; i++) {
            u32 r = (u32)in.symbols[i] << 8 | in.rest0[i];
            store_le16(plain + 2 * (size_t)i, (u16)tensor_unrotate16(r));
        }
    } else if (type == TENSOR_TYPE_FP32) {
        for (u32 i = 0; i < n; i++) {
            u32 r = (u32)in.symbols[i] << 24 | (u32)in.rest1[i] << 16 |
                    load_le16(in.rest0 + 2 * (size_t)i);
            store_le32(plain + 4 * (size_t)i, tensor_unrotate32(r));
        }
    } else if (type == TENSOR_TYPE_FP8_E5M2) {
        for (u32 i = 0; i < n; i++) {
            plain[i] = (u8)tensor_unrotate8(in.symbols[i]);
        }
    } else {
        memcpy(plain, in.symbols, n);
    }
}

// Four tables, so that a run of equal symbols does not wait for its own store; n below 2^16.
KERNEL_FN void generic_histogram(const u8 *symbols, u32 n, u32 *counts)
{
    u16 part[4][256] = {{0}};
    u32 i = 0;
    for (; i + 8 <= n; i += 8) {
        u64 w = load_le64(symbols + i);
        part[0][w & 255]++;
        part[1][w >> 8 & 255]++;
        part[2][w >> 16 & 255]++;
        part[3][w >> 24 & 255]++;
        part[0][w >> 32 & 255]++;
        part[1][w >> 40 & 255]++;
        part[2][w >> 48 & 255]++;
        part[3][w >> 56]++;
    }
    for (; i < n; i++) {
        part[0][symbols[i]]++;
    }
    for (u32 s = 0; s < 256; s++) {
        counts[s] += (u32)part[0][s] + part[1][s] + part[2][s] + part[3][s];
    }
}

KERNEL_FN void generic_patch(const struct tensor_pack *to, u32 number, u32 position, u8 symbol)
{
    store_le32(to->patches + (size_t)number * TENSOR_PATCH_BYTES, position | (u32)symbol << 24);
}

// The low three bits of eight symbols, the first symbol lowest, as 24 bits.
KERNEL_FN u32 generic_low_pack(const u8 *symbols, u32 n)
{
    u32 bits = 0;
    for (u32 i = 0; i < n; i++) {
        bits |= (symbols[i] & 7u) << 3 * i;
    }
    return bits;
}

// Packs symbols[from, n), `from` a multiple of 8; `patches` were written already.
KERNEL_FN u32 generic_pack_from(const u8 *symbols, u32 from, u32 n, struct tensor_pack *to,
                                u32 patches)
{
    for (u32 i = from; i < n; i += 2) {
        u32 pair = 0;
        for (u32 k = i; k < n && k < i + 2; k++) {
            u32 place = to->map[symbols[k] >> to->shift];
            if (place == 0xff) {
                generic_patch(to, patches++, to->first + k, symbols[k]);
                place = 0;
            }
            pair |= place << 4 * (k - i);
        }
        to->codes[i / 2] = (u8)pair;
    }
    if (to->shift != 0) {
        for (u32 i = from; i < n; i += 8) {
            u32 bits = generic_low_pack(symbols + i, MIN(8u, n - i));
            u8 *at = to->low + i / 8 * 3;
            at[0] = (u8)bits;
            at[1] = (u8)(bits >> 8);
            at[2] = (u8)(bits >> 16);
        }
    }
    return patches;
}

KERNEL_FN void generic_unpack_from(const struct tensor_pack *in, const u8 *palette, u32 from, u32 n,
                                   u8 *symbols)
{
    u32 shift = in->shift;
    for (u32 i = from; i < n; i++) {
        u32 place = (u32)in->codes[i / 2] >> (i & 1u) * 4u & 15u;
        u32 low = 0;
        if (shift != 0) {
            const u8 *at = in->low + i / 8 * 3;
            u32 bits = at[0] | (u32)at[1] << 8 | (u32)at[2] << 16;
            low = bits >> 3 * (i & 7u) & 7u;
        }
        symbols[i] = (u8)((u32)palette[place] << shift | low);
    }
}

#define GENERIC_CODES_PER_STORE 5 // 5 * 11 bits and 7 left over fit a word

// One lane: codes are gathered in a word and leave it by whole bytes. Returns the end.
KERNEL_FN u8 *generic_encode_lane(const u8 *symbols, u32 count, const u16 *codes, u8 *out)
{
    u64 word = 0;
    u32 fill = 0;
    u32 step = 0;
    for (; step + GENERIC_CODES_PER_STORE <= count; step += GENERIC_CODES_PER_STORE) {
        for (u32 k = 0; k < GENERIC_CODES_PER_STORE; k++) {
            u32 code = codes[symbols[(size_t)(step + k) * TENSOR_LANES]];
            word |= (u64)(code & 0xfffu) << fill;
            fill += code >> 12;
        }
        store_le64(out, word);
        out += fill >> 3;
        word >>= fill & 0x38u;
        fill &= 7u;
    }
    for (; step < count; step++) {
        u32 code = codes[symbols[(size_t)step * TENSOR_LANES]];
        word |= (u64)(code & 0xfffu) << fill;
        fill += code >> 12;
    }
    store_le64(out, word);
    return out + (fill + 7) / 8;
}

KERNEL_FN u32 generic_encode_lanes(const u8 *symbols, u32 n, const u16 *codes, u8 *out, u8 *lengths)
{
    u8 *at = out;
    for (u32 lane = 0; lane < TENSOR_LANES; lane++) {
        u8 *end = generic_encode_lane(symbols + lane, tensor_lane_symbols(n, lane), codes, at);
        store_le16(lengths + 2 * (size_t)lane, (u16)(end - at));
        at = end;
    }
    return (u32)(at - out);
}

// Bit positions of the 64 lanes of a segment.
struct generic_positions {
    u32 bit[TENSOR_LANES];
};

KERNEL_FN void generic_positions_begin(struct tensor_lanes from, struct generic_positions *p)
{
    u32 at = from.begin;
    for (u32 lane = 0; lane < TENSOR_LANES; lane++) {
        p->bit[lane] = at * 8;
        at += load_le16(from.lengths + 2 * (size_t)lane);
    }
}

// Whether every lane ended within the last byte that belongs to it.
KERNEL_FN bool generic_positions_end(struct tensor_lanes from, const struct generic_positions *p)
{
    u32 at = from.begin;
    bool ok = true;
    for (u32 lane = 0; lane < TENSOR_LANES; lane++) {
        at += load_le16(from.lengths + 2 * (size_t)lane);
        ok = ok && (p->bit[lane] + 7) / 8 == at;
    }
    return ok;
}

// Decodes steps [step, ...) one symbol at a time; the last step may lack its highest lanes.
KERNEL_FN void generic_decode_steps(const struct tensor_decode_table *t, struct tensor_lanes from,
                                    u32 step, struct generic_positions *p, u8 *symbols)
{
    u64 mask = (1u << t->code_bits) - 1u;
    u32 limit = from.bytes - 8;
    for (u32 i = step * TENSOR_LANES; i < from.symbols; i++) {
        u32 bit = p->bit[i % TENSOR_LANES];
        u64 word = load_le64(from.data + MIN(bit >> 3, limit)) >> (bit & 7u);
        u32 entry = t->entry[word & mask];
        symbols[i] = (u8)entry;
        p->bit[i % TENSOR_LANES] = bit + (entry >> 8);
    }
}

#define GENERIC_CODES_PER_LOAD 5 // 5 * 11 bits of the at least 57 that a load brings

// One load serves five steps of a lane. Lanes do not depend on each other, so the processor works
// on several at once.
KERNEL_FN bool generic_decode_lanes(const struct tensor_decode_table *t, struct tensor_lanes from,
                                    u8 *symbols)
{
    struct generic_positions p;
    generic_positions_begin(from, &p);
    u64 mask = (1u << t->code_bits) - 1u;
    u32 limit = from.bytes - 8;
    u32 steps = from.symbols / TENSOR_LANES;
    u32 step = 0;
    for (; step + GENERIC_CODES_PER_LOAD <= steps; step += GENERIC_CODES_PER_LOAD) {
        u8 *out = symbols + (size_t)step * TENSOR_LANES;
        for (u32 lane = 0; lane < TENSOR_LANES; lane++) {
            u32 bit = p.bit[lane];
            u64 word = load_le64(from.data + MIN(bit >> 3, limit)) >> (bit & 7u);
            for (u32 k = 0; k < GENERIC_CODES_PER_LOAD; k++) {
                u32 entry = t->entry[word & mask];
                out[k * TENSOR_LANES + lane] = (u8)entry;
                word >>= entry >> 8;
                bit += entry >> 8;
            }
            p.bit[lane] = bit;
        }
    }
    generic_decode_steps(t, from, step, &p, symbols);
    return generic_positions_end(from, &p);
}
