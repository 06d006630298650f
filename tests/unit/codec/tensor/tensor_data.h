// SPDX-License-Identifier: Apache-2.0
// Test data for the tensor codec: a seeded generator and the shapes that tensors, and adversaries,
// have. Everything is reproducible from the seed.
#pragma once

#include "base/types.h"

enum data_kind {
    DATA_WEIGHTS,   // Gaussian elements of the type
    DATA_KV,        // Gaussian with a scale for each of 128 channels
    DATA_RANDOM,    // random bytes
    DATA_ZERO,      // all zeros
    DATA_EQUAL,     // one element, repeated
    DATA_NAN,       // NaNs with random payloads
    DATA_EXPONENTS, // exponents uniformly spread
    DATA_ESCAPES,   // every element outside whatever sixteen a sample sees most
    DATA_SPECIAL,   // infinities, denormals, negative zeros and NaNs among weights
    DATA_RARE,      // one element in a thousand far away
    DATA_KIND_COUNT,
};

struct data_random {
    u64 state;
};

u64 data_random_u64(struct data_random *r);
double data_random_gauss(struct data_random *r);

// Fills `n` bytes (any number) with `kind` of elements of leat_codec_type `type`.
void data_fill(struct data_random *r, enum data_kind kind, u32 type, u8 *out, size_t n);
