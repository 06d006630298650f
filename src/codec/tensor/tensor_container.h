// SPDX-License-Identifier: Apache-2.0
// What the container's reader and writer share: argument checks and the loops' choice.
#pragma once

#include "codec/tensor/tensor_block.h"

// Fills in defaults. INVALID, or UNAVAILABLE when this processor lacks the loops asked for.
CODEC_NODISCARD enum leat_codec_err tensor_options_resolve(const struct leat_codec_options *given,
                                                           struct leat_codec_options *options,
                                                           const struct tensor_ops **ops);
// INVALID unless `scratch` is aligned and has `needed` bytes.
CODEC_NODISCARD enum leat_codec_err tensor_scratch_check(const void *scratch, size_t have,
                                                         size_t needed);
