// SPDX-License-Identifier: Apache-2.0
// Asserts that are always on. A failed assert is a bug in Leat's own code, never bad input: input,
// disks, peers and limits are errors (base/err.h). It prints where and what, and aborts.
#pragma once

#include "base/types.h"

_Noreturn void assert_fail(const char *file, int line, const char *expression);

#define ASSERT(expr)                                                                               \
    do {                                                                                           \
        if (UNLIKELY(!(expr))) {                                                                   \
            assert_fail(__FILE__, __LINE__, #expr);                                                \
        }                                                                                          \
    } while (0)

// Every long-lived struct starts with `u32 magic`, set by init/create and cleared by the end.
#define ASSERT_MAGIC(ptr, value) ASSERT((ptr) != NULL && (ptr)->magic == (value))
