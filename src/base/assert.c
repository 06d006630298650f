// SPDX-License-Identifier: Apache-2.0
// The end of a process that found itself wrong.
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

// Writes the place and the expression to standard error and aborts, so a core shows the stack.
_Noreturn void assert_fail(const char *file, int line, const char *expression)
{
    fprintf(stderr, "leat: bug: assertion failed at %s:%d: %s\n", file, line, expression);
    abort();
}
