// SPDX-License-Identifier: Apache-2.0
// Reads anything as a container. The first byte says which checksums to mend, so that the fuzzer
// gets behind them; then every reader runs, and all sets of loops must agree on error and bytes.
#include "codec/tensor/tensor_block.h"
#include "tests/fuzz/codec_tensor/fuzz_common.h"

#define PLAIN_MAX (4 * MIB)

enum { MEND_HEADER = 1, MEND_FOOTER = 2, MEND_INDEX = 4 };

static void mend(u8 *c, size_t n, u8 what)
{
    if (n < TENSOR_HEADER_BYTES + TENSOR_FOOTER_BYTES) {
        return;
    }
    struct tensor_footer f;
    u8 *footer = c + n - TENSOR_FOOTER_BYTES;
    if ((what & MEND_HEADER) != 0) {
        u64 check = tensor_hash(&tensor_ops_c, c, offsetof(struct tensor_header, check));
        memcpy(c + offsetof(struct tensor_header, check), &check, 8);
    }
    memcpy(&f, footer, sizeof(f));
    if ((what & MEND_FOOTER) != 0) {
        f.container_bytes = n;
        f.index_offset =
            n - TENSOR_FOOTER_BYTES - (f.block_count & 255u) * TENSOR_INDEX_ENTRY_BYTES;
        f.block_count &= 255u;
    }
    if ((what & MEND_INDEX) != 0 && f.index_offset <= n - TENSOR_FOOTER_BYTES &&
        f.block_count <= (n - TENSOR_FOOTER_BYTES - f.index_offset) / TENSOR_INDEX_ENTRY_BYTES) {
        f.index_check = tensor_hash(&tensor_ops_c, c + f.index_offset,
                                    f.block_count * TENSOR_INDEX_ENTRY_BYTES);
    }
    if ((what & (MEND_FOOTER | MEND_INDEX)) != 0) {
        f.check = tensor_hash(&tensor_ops_c, &f, offsetof(struct tensor_footer, check));
        memcpy(footer, &f, sizeof(f));
    }
}

// A range of the whole decode must be what the whole decode has there.
static void range_compare(const u8 *c, size_t n, const u8 *plain, u64 plain_bytes, u8 seed,
                          u8 *scratch, size_t scratch_bytes)
{
    struct leat_codec_range range = {plain_bytes * seed / 256, 0};
    range.length = (plain_bytes - range.offset) * ((seed * 7u) % 256u) / 255;
    u8 *part = fuzz_alloc(range.length);
    ASSERT(leat_codec_decode_range(c, n, range, part, scratch, scratch_bytes,
                                   LEAT_CODEC_CPU_AUTO) == LEAT_CODEC_OK);
    ASSERT(memcmp(part, plain + range.offset, range.length) == 0);
    free(part);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    struct leat_codec_info info;
    if (size < 2) {
        return 0;
    }
    size_t n = size - 2;
    u8 *c = fuzz_alloc(n);
    memcpy(c, data + 2, n);
    mend(c, n, data[0]);
    enum leat_codec_err opened = leat_codec_info_read(c, n, &info);
    if (opened == LEAT_CODEC_OK && info.plain_bytes <= PLAIN_MAX) {
        size_t scratch_bytes = leat_codec_decode_scratch_bytes(info.block_bytes_max);
        u8 *scratch = fuzz_alloc(scratch_bytes);
        u8 *plain[2] = {fuzz_alloc(info.plain_bytes), fuzz_alloc(info.plain_bytes)};
        u64 written;
        enum leat_codec_err first = leat_codec_decode(c, n, plain[0], info.plain_bytes, scratch,
                                                      scratch_bytes, LEAT_CODEC_CPU_C, &written);
        for (u32 cpu = LEAT_CODEC_CPU_AVX2; cpu <= LEAT_CODEC_CPU_AVX512; cpu++) {
            if (fuzz_has(cpu)) {
                ASSERT(leat_codec_decode(c, n, plain[1], info.plain_bytes, scratch, scratch_bytes,
                                         cpu, &written) == first);
                ASSERT(memcmp(plain[0], plain[1], info.plain_bytes) == 0);
            }
        }
        if (first == LEAT_CODEC_OK) {
            range_compare(c, n, plain[0], info.plain_bytes, data[1], scratch, scratch_bytes);
        }
        for (u64 b = 0; b < info.block_count && b < 4; b++) {
            struct leat_codec_block_info block;
            (void)leat_codec_block_info_read(c, n, b, &block);
        }
        free(plain[0]);
        free(plain[1]);
        free(scratch);
    }
    free(c);
    return 0;
}
