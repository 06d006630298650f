// SPDX-License-Identifier: Apache-2.0
// The inner loops of the tensor codec, one table of functions per instruction set. Every table
// yields the same bytes for the same input; tests and a fuzz target compare them. No state.
#pragma once

#include "codec/tensor/tensor_kernel.h"

#define TENSOR_CHUNK_SYMBOLS 4096u // what is split, packed and hashed while it lies in L1
#define TENSOR_PREFIXES_MAX  8u    // of long codes, for the vector decoder

// What decoding lanes needs of a code. The vector path uses `low` and `high` when `is_short`.
struct tensor_decode_table {
    u16 entry[1u << TENSOR_CODE_BITS_MAX]; // symbol | length << 8, by the next code_bits bits
    u32 code_bits;
    bool is_short; // all codes longer than seven bits share at most eight seven-bit prefixes
    // By the next seven bits: the symbol and its length, or for a shared prefix 16 times its number
    // and length 0x80.
    u8 low_symbol[128];
    u8 low_length[128];
    u8 high_symbol[128]; // by prefix number * 16 + the four bits after the prefix
    u8 high_length[128];
};

// Planes of one run of elements. rest0 and rest1 are unused where the type has none.
struct tensor_planes {
    u8 *symbols;
    u8 *rest0;
    u8 *rest1;
};

// Where FAST writes one run: the 4-bit plane, the 3-bit plane and the patches.
struct tensor_pack {
    const u8 *map; // 256 entries: palette position, or 0xff for an escape
    u32 shift;
    u32 first; // position in the block of the run's first element, a multiple of 8
    u8 *codes;
    u8 *low;
    u8 *patches;
};

// One segment's lanes, for decoding. Reads stay below `bytes` (at least 8), whatever the codes say.
struct tensor_lanes {
    const u8 *data; // all lanes of the block and their guard
    u32 bytes;
    u32 begin;         // of this segment's first lane
    const u8 *lengths; // 64 little-endian u16
    u32 symbols;
};

struct tensor_ops {
    const char *name;
    // The sum over the tiles of `n` bytes, the first of which is tile number `tile`.
    u64 (*hash)(const u8 *data, size_t n, u64 tile);
    void (*split)(u32 type, const u8 *plain, u32 n, struct tensor_planes out);
    void (*merge)(u32 type, struct tensor_planes in, u32 n, u8 *plain);
    void (*histogram)(const u8 *symbols, u32 n, u32 *counts);      // adds to counts[256]
    u32 (*pack)(const u8 *symbols, u32 n, struct tensor_pack *to); // returns the patches written
    void (*unpack)(const struct tensor_pack *from, const u8 *palette, u32 n, u8 *symbols);
    // Returns the bytes written. May write eight bytes beyond them.
    u32 (*encode_lanes)(const u8 *symbols, u32 n, const u16 *codes, u8 *out, u8 *lengths);
    // False when a lane does not end where its length says. Writes `symbols` rounded up to 64.
    bool (*decode_lanes)(const struct tensor_decode_table *t, struct tensor_lanes from,
                         u8 *symbols);
};

extern const struct tensor_ops tensor_ops_c;
#ifdef __x86_64__
extern const struct tensor_ops tensor_ops_avx2;
extern const struct tensor_ops tensor_ops_avx512;
#endif

// The table for an enum leat_codec_cpu, or NULL when this processor lacks it. AUTO finds the best.
const struct tensor_ops *tensor_ops_get(u32 cpu);
