// SPDX-License-Identifier: Apache-2.0
// Percent encoding of URIs: strict decoding, and AWS's UriEncode() as Signature V4 defines it.
#pragma once

#include "base/err.h"
#include "base/slice.h"

// What a '+' stands for: itself in a path, a space in a form-encoded query.
enum percent_plus { PERCENT_PLUS_IS_PLUS, PERCENT_PLUS_IS_SPACE };
// Whether '/' is kept (object keys in a path) or becomes %2F (query names and values).
enum percent_slash { PERCENT_SLASH_KEEP, PERCENT_SLASH_ENCODE };

// The longest result of encoding n bytes.
#define PERCENT_ENCODED_BYTES_MAX(n) (3 * (n))

// Decodes into out[0..cap) and sets *out_len. `out` may be the input's own memory. A '%' without
// two hex digits is ERR_S3_INVALID_URI; a result longer than cap ERR_LIMIT_REACHED (in.len is
// always enough). Decoded bytes may be any, zero included. Nothing is normalised.
NODISCARD enum err percent_decode(struct bytes in, enum percent_plus plus, u8 *out, size_t cap,
                                  size_t *out_len);

// Keeps A-Z a-z 0-9 - _ . ~ (and '/' if asked) and writes every other byte as % and two upper-case
// hex digits. ERR_LIMIT_REACHED when the result is longer than cap. No terminating zero.
NODISCARD enum err percent_encode(struct bytes in, enum percent_slash slash, char *out, size_t cap,
                                  size_t *out_len);
// The exact length of what percent_encode() writes.
size_t percent_encoded_len(struct bytes in, enum percent_slash slash);
