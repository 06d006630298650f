// SPDX-License-Identifier: Apache-2.0
// Values as people write them in the configuration and on the command line: sizes and durations
// with units, addresses with ports, and the name that somebody may have meant.
#pragma once

#include "base/slice.h"
#include "base/types.h"

// "65536", "64KiB", "10MB", "2 GiB": a whole number of bytes, KiB to TiB by 1,024 and kB to TB by
// 1,000. False on anything else or where it exceeds 64 bits.
bool size_parse(const char *text, u64 *out_bytes);
// "500ms", "30s", "2m", "1h"; the unit is needed. False on anything else or above 100 years.
bool duration_parse(const char *text, u64 *out_ns);
// Is this "1.2.3.4:9000" or "[::1]:9000" (port 0 to 65535)? Names are not resolved.
bool address_is_valid(const char *text);

// The entry of names[0..count) that is the closest to `given`, if it is close enough to be a
// misspelling of it; else NULL.
const char *name_suggest(const char *given, const char *const *names, size_t count);
