// SPDX-License-Identifier: Apache-2.0
// A whole run of one seed: several lives of a process on one disk, each ending in some way.
#pragma once

#include "world.h"

// Returns if all is well; else the trace ends the process.
void scenario_run(u64 seed, const struct run_options *options);
// Flushes of the first life of this seed when nothing crashes: the boundaries to crash at.
u64 scenario_count_flushes(u64 seed);
