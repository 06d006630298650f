// SPDX-License-Identifier: Apache-2.0
// Encodes anything. Four bytes choose type, mode, block size and how the data is repeated; every
// set of loops must write the same container, the streaming encoder too, and decoding gives the
// input.
#include "tests/fuzz/codec_tensor/fuzz_common.h"

#define PLAIN_MAX (200 * KIB)

// Feeds the streaming encoder in uneven pieces and compares what comes out.
static void stream_compare(const struct leat_codec_options *o, const u8 *plain, size_t n,
                           const u8 *whole, u64 whole_bytes, u8 seed)
{
    struct leat_codec_encoder *e;
    u64 memory_bytes;
    ASSERT(leat_codec_encoder_bytes(o, n, 1, &memory_bytes) == LEAT_CODEC_OK);
    u8 *memory = fuzz_alloc(memory_bytes);
    ASSERT(leat_codec_encoder_init(o, n, 1, memory, memory_bytes, &e) == LEAT_CODEC_OK);
    size_t room = leat_codec_encoder_output_bytes_min(e);
    u8 *out = fuzz_alloc(room);
    u64 at = 0;
    size_t piece = 1 + seed * 97u;
    for (size_t done = 0; done < n;) {
        size_t consumed;
        size_t written;
        ASSERT(leat_codec_encoder_write(e, plain + done, MIN(piece, n - done), &consumed, out, room,
                                        &written) == LEAT_CODEC_OK);
        ASSERT(at + written <= whole_bytes && memcmp(whole + at, out, written) == 0);
        at += written;
        done += consumed;
    }
    free(out);
    u64 end = leat_codec_encoder_finish_bytes(e);
    u64 last;
    out = fuzz_alloc(end);
    ASSERT(leat_codec_encoder_finish(e, out, end, &last) == LEAT_CODEC_OK);
    ASSERT(at + last == whole_bytes && memcmp(whole + at, out, last) == 0);
    free(out);
    free(memory);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    if (size < 4) {
        return 0;
    }
    struct leat_codec_options o = {.type = data[0] % LEAT_CODEC_TYPE_COUNT,
                                   .mode = data[1] % (LEAT_CODEC_MODE_AUTO + 1),
                                   .block_bytes = 1024u << data[2] % 8};
    size_t n = MIN((size - 4) * (1 + (size_t)data[3]), PLAIN_MAX);
    u8 *plain = fuzz_alloc(n);
    for (size_t i = 0; i < n; i++) {
        plain[i] = data[4 + i % (size - 4)];
    }
    u64 bound;
    ASSERT(leat_codec_encode_bound(&o, n, 1, &bound) == LEAT_CODEC_OK);
    size_t scratch_bytes = MAX(leat_codec_encode_scratch_bytes(o.block_bytes),
                               leat_codec_decode_scratch_bytes(o.block_bytes));
    u8 *scratch = fuzz_alloc(scratch_bytes);
    u8 *out[2] = {fuzz_alloc(bound), fuzz_alloc(bound)};
    u8 *back = fuzz_alloc(n);
    u64 sizes[2];
    for (u32 cpu = LEAT_CODEC_CPU_C; cpu <= LEAT_CODEC_CPU_AVX512; cpu++) {
        u32 slot = cpu == LEAT_CODEC_CPU_C ? 0 : 1;
        u64 written;
        o.cpu = cpu;
        if (!fuzz_has(cpu)) {
            continue;
        }
        ASSERT(leat_codec_encode(&o, plain, n, out[slot], bound, scratch, scratch_bytes,
                                 &sizes[slot]) == LEAT_CODEC_OK);
        ASSERT(slot == 0 || (sizes[0] == sizes[1] && memcmp(out[0], out[1], sizes[0]) == 0));
        ASSERT(leat_codec_decode(out[slot], sizes[slot], back, n, scratch, scratch_bytes, cpu,
                                 &written) == LEAT_CODEC_OK);
        ASSERT(written == n && memcmp(back, plain, n) == 0);
    }
    stream_compare(&o, plain, n, out[0], sizes[0], data[2]);
    free(plain);
    free(scratch);
    free(out[0]);
    free(out[1]);
    free(back);
    return 0;
}
