// SPDX-License-Identifier: Apache-2.0
// Decodes anything as one stored block. With the first bit of the first byte set, the lengths in
// the header are made plausible, so that most inputs reach the decoders; the checksum is then set
// to what the portable loops find, so that the other sets must reproduce every decoded byte.
#include "codec/tensor/tensor_block.h"
#include "tests/fuzz/codec_tensor/fuzz_common.h"

static void plausible(u8 *b, size_t n)
{
    struct tensor_block_header h;
    struct tensor_layout l;
    memcpy(&h, b, sizeof(h));
    h.magic = TENSOR_MAGIC_BLOCK;
    h.mode = h.mode % TENSOR_MODE_COUNT;
    h.type = h.type % TENSOR_TYPE_COUNT;
    h.reserved = 0;
    h.plain_bytes = h.plain_bytes % (300 * 1024) + 1;
    h.payload_bytes = (u32)(n - TENSOR_BLOCK_HEADER_BYTES);
    if (h.mode != TENSOR_MODE_DENSE) {
        h.code_bits = 0;
        h.lanes_bytes = 0;
    }
    if (h.mode == TENSOR_MODE_FAST) {
        tensor_layout_fast(&l, h.type, h.plain_bytes, 0);
        h.patch_count = l.end < h.payload_bytes ? (h.payload_bytes - l.end) / 4 : 0;
        tensor_layout_fast(&l, h.type, h.plain_bytes, h.patch_count);
        h.payload_bytes = l.end;
    } else if (h.mode == TENSOR_MODE_DENSE) {
        h.patch_count = 0;
        tensor_layout_dense(&l, h.type, h.plain_bytes, 0);
        h.lanes_bytes = l.end + 16 < h.payload_bytes ? h.payload_bytes - l.end - 16 : 0;
        // The lengths of the lanes are made to add up.
        u32 sum = 0;
        for (u32 lane = 0; lane < l.segments * TENSOR_LANES; lane++) {
            u8 *at = b + TENSOR_BLOCK_HEADER_BYTES + l.codes + 2 * (size_t)lane;
            if (at + 2 > b + n) {
                break;
            }
            u32 length = (u32)at[0] | (u32)at[1] << 8;
            length = MIN(length, h.lanes_bytes - sum);
            sum += length;
            at[0] = (u8)length;
            at[1] = (u8)(length >> 8);
        }
        h.lanes_bytes = sum;
        tensor_layout_dense(&l, h.type, h.plain_bytes, h.lanes_bytes);
        h.payload_bytes = l.end;
    } else {
        h.patch_count = 0;
        h.payload_bytes = h.plain_bytes;
    }
    memcpy(b, &h, sizeof(h));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    if (size < 1 + TENSOR_BLOCK_HEADER_BYTES) {
        return 0;
    }
    struct tensor_block_header h;
    size_t n = size - 1;
    u8 *b = fuzz_alloc(n);
    memcpy(b, data + 1, n);
    if ((data[0] & 1u) != 0) {
        plausible(b, n);
    }
    memcpy(&h, b, sizeof(h));
    size_t scratch_bytes = sizeof(struct tensor_decode_scratch);
    if (h.plain_bytes > 0 && h.plain_bytes <= TENSOR_BLOCK_BYTES_MAX) {
        u8 *plain[2] = {fuzz_alloc(h.plain_bytes), fuzz_alloc(h.plain_bytes)};
        u8 *scratch = fuzz_alloc(scratch_bytes);
        enum leat_codec_err first = leat_codec_block_decode(b, n, plain[0], h.plain_bytes, scratch,
                                                            scratch_bytes, LEAT_CODEC_CPU_C);
        for (u32 cpu = LEAT_CODEC_CPU_AVX2; cpu <= LEAT_CODEC_CPU_AVX512; cpu++) {
            if (fuzz_has(cpu)) {
                ASSERT(leat_codec_block_decode(b, n, plain[1], h.plain_bytes, scratch,
                                               scratch_bytes, cpu) == first);
                ASSERT(memcmp(plain[0], plain[1], h.plain_bytes) == 0);
            }
        }
        free(plain[0]);
        free(plain[1]);
        free(scratch);
    }
    free(b);
    return 0;
}
