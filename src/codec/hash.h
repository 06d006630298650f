// SPDX-License-Identifier: Apache-2.0
// The general hash for tables and placement (XXH3, 64 bits). Stable for ever: placement groups are
// chosen by it, so a change of the function is a change of the on-disk format. Not a defence
// against an attacker who knows the seed.
#pragma once

#include "base/slice.h"
#include "base/types.h"

u64 hash64(struct bytes data, u64 seed);
