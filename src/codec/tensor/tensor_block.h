// SPDX-License-Identifier: Apache-2.0
// One block: plain bytes to header and payload, and back. Works in caller memory alone.
#pragma once

#include <string.h>

#include "codec/tensor/tensor_choose.h"
#include "codec/tensor/tensor_ops.h"

#include "leat/codec.h"

#define CODEC_NODISCARD __attribute__((warn_unused_result))
#define CODEC_TRY(expr)                                                                            \
    do {                                                                                           \
        enum leat_codec_err codec_try_err_ = (expr);                                               \
        if (UNLIKELY(codec_try_err_ != LEAT_CODEC_OK)) {                                           \
            return codec_try_err_;                                                                 \
        }                                                                                          \
    } while (0)

// Scratch of an encoder; the symbols of a whole block follow.
struct tensor_encode_scratch {
    struct tensor_choice choice;
    _Alignas(64) u8 symbols[];
};

// Scratch of a decoder; the plain bytes of a whole block follow, for ranges that cut it.
struct tensor_decode_scratch {
    struct tensor_decode_table table;
    u16 codes[256];
    u8 lengths[256];
    _Alignas(64) u8 symbols[TENSOR_SEGMENT_SYMBOLS + 64];
    u8 plain[];
};

// The hash that a block's header, an index and a container's header carry.
u64 tensor_hash(const struct tensor_ops *ops, const void *data, size_t n);

void tensor_estimate(const struct tensor_ops *ops, u32 type, const u8 *plain, u32 n,
                     struct tensor_encode_scratch *s, struct tensor_estimate *e);

// Encodes 1 to TENSOR_BLOCK_BYTES_MAX bytes; `mode` is a mode or LEAT_CODEC_MODE_AUTO. `out` has
// room for n + TENSOR_BLOCK_HEADER_BYTES; returns the bytes used of it.
u32 tensor_block_encode(const struct tensor_ops *ops, u32 type, u32 mode, const u8 *plain, u32 n,
                        u8 *out, struct tensor_encode_scratch *s);

// Reads and checks a block's header against the bytes that are there. FORMAT.
CODEC_NODISCARD enum leat_codec_err tensor_block_header_read(const u8 *stored, u64 stored_bytes,
                                                             struct tensor_block_header *header);

// Decodes one block that must have exactly n plain bytes. On error `plain` is all zeros.
CODEC_NODISCARD enum leat_codec_err tensor_block_decode(const struct tensor_ops *ops,
                                                        const u8 *stored, u64 stored_bytes,
                                                        u8 *plain, u32 n,
                                                        struct tensor_decode_scratch *s);

// Fills a decoding table from a stored length table; false when the code is not complete.
bool tensor_decode_table_build(const u8 *length_table, u32 code_bits,
                               struct tensor_decode_scratch *s);
