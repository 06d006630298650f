// SPDX-License-Identifier: Apache-2.0
// Changing stacks. Private to core/.
#pragma once

#include "base/types.h"

// Saves the callee-saved registers on the current stack and its pointer in *save, and continues
// where `load` was saved. Returns when somebody switches back.
void fiber_switch(void **save, void *load);
// Prepares a new stack (its lowest byte and first byte past its top, 16-byte aligned) so that
// switching to the returned pointer calls entry(), which must never return.
void *fiber_switch_prepare(u8 *bottom, u8 *top, void (*entry)(void));
