// SPDX-License-Identifier: Apache-2.0
// Whether to encode: estimates from a sample, rates from a calibration, and the decision itself.
// docs/tensor-codec.md derives the formula and compares it with measured transfers.
#include "codec/tensor/tensor_container.h"

#include <float.h>

#define SAMPLE_BLOCKS 4u // blocks of an estimate, spread over the bytes

// Sums the estimates of a few blocks of `type` elements. Returns the plain bytes looked at.
static u64 blocks_estimate(const struct tensor_ops *ops, u32 type, const u8 *plain, size_t n,
                           struct tensor_encode_scratch *s, struct tensor_estimate *sum)
{
    u64 seen = 0;
    *sum = (struct tensor_estimate){{0}};
    u32 block = (u32)MIN(n, (size_t)TENSOR_BLOCK_BYTES_DEFAULT);
    size_t slack = n - block;
    u32 blocks = slack == 0 ? 1 : SAMPLE_BLOCKS;
    for (u32 i = 0; i < blocks; i++) {
        size_t at = blocks == 1 ? 0 : ALIGN_DOWN(slack / (blocks - 1) * i, 4u);
        struct tensor_estimate e;
        tensor_estimate(ops, type, plain + at, block, s, &e);
        for (u32 mode = 0; mode < TENSOR_MODE_COUNT; mode++) {
            sum->bytes[mode] += MIN(e.bytes[mode], (u64)block) + TENSOR_BLOCK_HEADER_BYTES;
        }
        seen += block;
    }
    return seen;
}

enum leat_codec_err leat_codec_estimate(const void *plain, size_t n, uint32_t type, void *scratch,
                                        size_t scratch_bytes, double ratio[2])
{
    struct tensor_estimate e;
    CODEC_TRY(tensor_scratch_check(scratch, scratch_bytes, leat_codec_encode_scratch_bytes(0)));
    if (n == 0 || type >= LEAT_CODEC_TYPE_COUNT) {
        return LEAT_CODEC_ERR_INVALID;
    }
    u64 seen = blocks_estimate(tensor_ops_get(LEAT_CODEC_CPU_AUTO), type, plain, n, scratch, &e);
    for (u32 i = 0; i < 2; i++) {
        double r = (double)seen / (double)e.bytes[TENSOR_MODE_FAST + i];
        ratio[i] = r > 1.0 ? r : 1.0;
    }
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_detect(const void *plain, size_t n, void *scratch,
                                      size_t scratch_bytes, uint32_t *type)
{
    // In this order, because a type must gain more than the ones before it to be believed: the
    // pairs of bf16 elements look like fp32 elements with one useful exponent in two.
    static const u32 candidates[] = {LEAT_CODEC_TYPE_BF16, LEAT_CODEC_TYPE_FP16,
                                     LEAT_CODEC_TYPE_FP32, LEAT_CODEC_TYPE_FP8_E5M2,
                                     LEAT_CODEC_TYPE_BYTES};
    CODEC_TRY(tensor_scratch_check(scratch, scratch_bytes, leat_codec_encode_scratch_bytes(0)));
    *type = LEAT_CODEC_TYPE_BYTES;
    if (n == 0) {
        return LEAT_CODEC_OK;
    }
    u64 best = 0;
    u64 fast[LEAT_CODEC_TYPE_COUNT] = {0};
    for (u32 i = 0; i < ARRAY_LEN(candidates); i++) {
        struct tensor_estimate e;
        u64 seen = blocks_estimate(tensor_ops_get(LEAT_CODEC_CPU_AUTO), candidates[i], plain, n,
                                   scratch, &e);
        u64 size = MIN(e.bytes[TENSOR_MODE_FAST], e.bytes[TENSOR_MODE_DENSE]);
        fast[candidates[i]] = e.bytes[TENSOR_MODE_FAST];
        // A guess needs a gain of two percent over raw and of one over the guess before it.
        if (best == 0) {
            best = seen - seen / 50;
        }
        if (size < best) {
            *type = candidates[i];
            best = size - size / 100;
        }
    }
    // Both 16-bit types fall apart into the same bytes. What tells them apart is whether the top
    // byte is all exponent, so that sixteen values of it nearly suffice.
    if (*type == LEAT_CODEC_TYPE_BF16 && fast[LEAT_CODEC_TYPE_FP16] < fast[LEAT_CODEC_TYPE_BF16]) {
        *type = LEAT_CODEC_TYPE_FP16;
    }
    return LEAT_CODEC_OK;
}

static bool is_positive(double x)
{
    return x > 0.0 && x <= DBL_MAX;
}

static double max3(double a, double b, double c)
{
    double ab = a > b ? a : b;
    return ab > c ? ab : c;
}

// The mean time of one of `reuse` transfers in mode number i (0 FAST, 1 DENSE).
static double mode_seconds(const struct leat_codec_plan_input *in, u32 i)
{
    double n = in->plain_bytes;
    double encode = in->is_encoded ? 0.0 : n / in->rates.encode[i];
    double link = n / in->ratio[i] / in->link_bytes_per_s;
    double decode = n / in->rates.decode[i];
    if (!in->is_overlapped) {
        return encode / in->reuse + link + decode;
    }
    double first = max3(encode, link, decode);
    double later = max3(0.0, link, decode);
    return (first + (in->reuse - 1.0) * later) / in->reuse;
}

enum leat_codec_err leat_codec_plan(const struct leat_codec_plan_input *input,
                                    struct leat_codec_plan *plan)
{
    const struct leat_codec_plan_input *in = input;
    bool ok = is_positive(in->plain_bytes) && is_positive(in->link_bytes_per_s) &&
              is_positive(in->reuse) && in->reuse >= 1.0;
    for (u32 i = 0; i < 2; i++) {
        ok = ok && is_positive(in->ratio[i]) && is_positive(in->rates.encode[i]) &&
             is_positive(in->rates.decode[i]);
    }
    if (!ok) {
        return LEAT_CODEC_ERR_INVALID;
    }
    struct leat_codec_plan p = {.mode = LEAT_CODEC_MODE_RAW,
                                .seconds_plain = in->plain_bytes / in->link_bytes_per_s};
    p.seconds = p.seconds_plain;
    for (u32 i = 0; i < 2; i++) {
        p.seconds_mode[i] = mode_seconds(in, i);
        if (p.seconds_mode[i] < p.seconds) {
            p.seconds = p.seconds_mode[i];
            p.mode = LEAT_CODEC_MODE_FAST + i;
        }
    }
    *plan = p;
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_calibrate(const struct leat_codec_calibration *how, void *scratch,
                                         size_t scratch_bytes, struct leat_codec_rates *rates)
{
    size_t needed = MAX(leat_codec_encode_scratch_bytes(0), leat_codec_decode_scratch_bytes(0));
    CODEC_TRY(tensor_scratch_check(scratch, scratch_bytes, needed));
    if (how->n == 0 || how->n > TENSOR_BLOCK_BYTES_DEFAULT || how->now_ns == NULL) {
        return LEAT_CODEC_ERR_INVALID;
    }
    struct leat_codec_rates found;
    for (u32 i = 0; i < 2; i++) {
        struct leat_codec_options o = {
            .type = how->type, .mode = LEAT_CODEC_MODE_FAST + i, .cpu = how->cpu};
        size_t stored = 0;
        for (u32 way = 0; way < 2; way++) {
            u64 begin = how->now_ns(how->context);
            u64 now = begin;
            u64 best = UINT64_MAX; // the fastest call is the one that nothing interrupted
            do {
                u64 from = now;
                if (way == 0) {
                    CODEC_TRY(leat_codec_block_encode(&o, how->plain, how->n, how->out,
                                                      how->n + TENSOR_BLOCK_HEADER_BYTES, scratch,
                                                      scratch_bytes, &stored));
                } else {
                    CODEC_TRY(leat_codec_block_decode(how->out, stored, how->back, how->n, scratch,
                                                      scratch_bytes, how->cpu));
                }
                now = how->now_ns(how->context);
                best = now > from ? MIN(best, now - from) : best;
            } while (now - begin < how->round_ns || best == UINT64_MAX);
            double rate = (double)how->n * 1e9 / (double)best;
            *(way == 0 ? &found.encode[i] : &found.decode[i]) = rate;
        }
    }
    *rates = found;
    return LEAT_CODEC_OK;
}
