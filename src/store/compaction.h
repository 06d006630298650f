// SPDX-License-Identifier: Apache-2.0
// Copies what still lives out of the segments with the most garbage, and frees them. Private to
// store/.
#pragma once

#include "store/shard.h"

// Looks for work whenever it is asked to, until its fiber is cancelled. Core 0.
MAY_WAIT void compaction_run(struct store *s);

// A delete found no room: compacts what gains anything at all. True if a segment came free. Any
// core.
MAY_WAIT bool compaction_make_room(struct store *s, struct drive *d);
