// SPDX-License-Identifier: Apache-2.0
// What the engines offer beside ds.h.
#pragma once

#include "base/types.h"

// Asks the engines in the mask to drop a fixed file or buffer.
void ds_engines_forget(u64 ring_mask, bool is_file, u32 slot);
