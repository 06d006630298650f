// SPDX-License-Identifier: Apache-2.0
// What a seeded run says about itself: a ring of its last steps, printed when it fails, and the
// count of warnings that the program under test logged.
#pragma once

#include "base/log.h"
#include "base/types.h"

void trace_start(u64 seed, bool is_verbose);
void trace(const char *fmt, ...) PRINTF_LIKE(1, 2);
// Prints the message and the trace and ends the process with status 1.
_Noreturn void trace_fail(const char *fmt, ...) PRINTF_LIKE(1, 2);
// Lines of level WARN and ERROR logged so far that speak of damage.
u64 trace_warnings(void);

#define CHECK(expr, ...)                                                                           \
    do {                                                                                           \
        if (UNLIKELY(!(expr))) {                                                                   \
            trace_fail(__VA_ARGS__);                                                               \
        }                                                                                          \
    } while (0)
