// SPDX-License-Identifier: Apache-2.0
// What every fuzz target defines, in a file NAME_fuzz.c; see meson.build here. A wrong result is an
// ASSERT, so that it ends the process as a crash does.
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
