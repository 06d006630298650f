// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/codec/tensor/tensor_data.h"

#include <math.h>
#include <string.h>

#include "leat/codec.h"

u64 data_random_u64(struct data_random *r)
{
    u64 z = r->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

double data_random_gauss(struct data_random *r)
{
    double u = ((double)(data_random_u64(r) >> 11) + 1.0) * 0x1p-53;
    double v = (double)(data_random_u64(r) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

// Rounds to a small float with the given exponent and mantissa bits; saturates, keeps denormals.
static u32 small_float(double x, int exponent_bits, int mantissa_bits)
{
    u32 sign = x < 0.0 ? 1u : 0u;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent;
    double m = fabs(x);
    if (m == 0.0) {
        return sign << (exponent_bits + mantissa_bits);
    }
    frexp(m, &exponent);
    exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    u32 steps = (u32)lrint(ldexp(m, mantissa_bits - exponent));
    u32 code = ((u32)(exponent + bias - 1) << mantissa_bits) + steps;
    u32 most = (((1u << exponent_bits) - 1u) << mantissa_bits) - 1u;
    return sign << (exponent_bits + mantissa_bits) | (code > most ? most : code);
}

static u32 element_from(double x, u32 type)
{
    float f = (float)x;
    u32 bits;
    memcpy(&bits, &f, 4);
    switch (type) {
    case LEAT_CODEC_TYPE_BF16:
        return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    case LEAT_CODEC_TYPE_FP16:
        return small_float(x, 5, 10);
    case LEAT_CODEC_TYPE_FP32:
        return bits;
    case LEAT_CODEC_TYPE_FP8_E4M3:
        return small_float(x * 64, 4, 3);
    case LEAT_CODEC_TYPE_FP8_E5M2:
        return small_float(x, 5, 2);
    default:
        return (u32)(i32)lrint(x * 1000.0) & 0xffu;
    }
}

static void exponent_place(u32 type, u32 *bits, u32 *shift, u32 *sign)
{
    *bits = type == LEAT_CODEC_TYPE_FP16 || type == LEAT_CODEC_TYPE_FP8_E5M2 ? 5
            : type == LEAT_CODEC_TYPE_FP8_E4M3                               ? 4
                                                                             : 8;
    *shift = type == LEAT_CODEC_TYPE_BF16       ? 7
             : type == LEAT_CODEC_TYPE_FP16     ? 10
             : type == LEAT_CODEC_TYPE_FP32     ? 23
             : type == LEAT_CODEC_TYPE_FP8_E4M3 ? 3
             : type == LEAT_CODEC_TYPE_FP8_E5M2 ? 2
                                                : 0;
    *sign = *shift == 0 ? 0 : *bits + *shift;
}

static u32 element_special(struct data_random *r, u32 type)
{
    u32 bits;
    u32 shift;
    u32 sign;
    exponent_place(type, &bits, &shift, &sign);
    u32 all = ((1u << bits) - 1u) << shift;
    u32 noise = (u32)data_random_u64(r) & ((1u << shift) - 1u);
    u32 minus = sign == 0 ? 0 : ((u32)data_random_u64(r) & 1u) << sign;
    switch (data_random_u64(r) % 4) {
    case 0:
        return all | minus; // infinity
    case 1:
        return noise | minus; // denormal
    case 2:
        return minus; // a zero
    default:
        return all | noise | minus; // NaN with a payload
    }
}

static u32 element_make(struct data_random *r, enum data_kind kind, u32 type, size_t i)
{
    u32 bits;
    u32 shift;
    u32 sign;
    exponent_place(type, &bits, &shift, &sign);
    u32 exponents = 1u << bits;
    u32 random = (u32)data_random_u64(r);
    switch (kind) {
    case DATA_WEIGHTS:
        return element_from(data_random_gauss(r) * 0.02, type);
    case DATA_KV: {
        double scale = ldexp(1.0, (int)(i % 128 * 7 % 11) - 4) * (1.0 + (double)(i % 5) / 4);
        return element_from(data_random_gauss(r) * scale * 0.1, type);
    }
    case DATA_EQUAL:
        return 0x3c3c3c3cu;
    case DATA_NAN:
        return random | (exponents - 1u) << shift;
    case DATA_EXPONENTS:
        return (random & ~((exponents - 1u) << shift)) | (u32)(i % exponents) << shift;
    case DATA_ESCAPES:
        return (random & ~((exponents - 1u) << shift)) | (u32)(data_random_u64(r) % exponents)
                                                             << shift;
    case DATA_SPECIAL:
        return i % 7 == 0 ? element_special(r, type)
                          : element_from(data_random_gauss(r) * 0.02, type);
    case DATA_RARE:
        return i % 1000 == 999 ? random : element_from(data_random_gauss(r) * 0.02, type);
    case DATA_RANDOM:
    case DATA_KIND_COUNT:
        return random;
    case DATA_ZERO:
        return 0;
    }
    return 0;
}

void data_fill(struct data_random *r, enum data_kind kind, u32 type, u8 *out, size_t n)
{
    size_t bytes = leat_codec_element_bytes(type);
    for (size_t i = 0; i * bytes < n; i++) {
        u32 element = element_make(r, kind, type, i);
        size_t left = n - i * bytes;
        memcpy(out + i * bytes, &element, left < bytes ? left : bytes);
    }
}
