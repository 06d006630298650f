// SPDX-License-Identifier: Apache-2.0
// The portable table of inner loops, and the choice of a table for this processor.
#include "codec/tensor/tensor_ops_generic.h"

#include "leat/codec.h"

static u32 c_pack(const u8 *symbols, u32 n, struct tensor_pack *to)
{
    return generic_pack_from(symbols, 0, n, to, 0);
}

static void c_unpack(const struct tensor_pack *from, const u8 *palette, u32 n, u8 *symbols)
{
    generic_unpack_from(from, palette, 0, n, symbols);
}

const struct tensor_ops tensor_ops_c = {
    .name = "c",
    .hash = generic_hash,
    .split = generic_split,
    .merge = generic_merge,
    .histogram = generic_histogram,
    .pack = c_pack,
    .unpack = c_unpack,
    .encode_lanes = generic_encode_lanes,
    .decode_lanes = generic_decode_lanes,
};

#ifdef __x86_64__
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

const struct tensor_ops *tensor_ops_get(u32 cpu)
{
#ifdef __x86_64__
    if (cpu == LEAT_CODEC_CPU_AVX512 || cpu == LEAT_CODEC_CPU_AUTO) {
        if (has_avx512()) {
            return &tensor_ops_avx512;
        }
    }
    if (cpu == LEAT_CODEC_CPU_AVX2 || cpu == LEAT_CODEC_CPU_AUTO) {
        if (has_avx2()) {
            return &tensor_ops_avx2;
        }
    }
#endif
    return cpu == LEAT_CODEC_CPU_C || cpu == LEAT_CODEC_CPU_AUTO ? &tensor_ops_c : NULL;
}
