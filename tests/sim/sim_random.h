// SPDX-License-Identifier: Apache-2.0
// The test's own random numbers (splitmix64), apart from the simulator's and the scheduler's.
#pragma once

#include "base/types.h"

static inline u64 draw_word(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// A number below n.
static inline u64 draw(u64 *state, u64 n)
{
    return draw_word(state) % n;
}

static inline bool draw_percent(u64 *state, u32 percent)
{
    return draw(state, 100) < percent;
}
