// SPDX-License-Identifier: Apache-2.0
// Copies what still lives out of the segments with the most garbage, and frees them. Private to
// store/.
#pragma once

#include "store/shard.h"

// Looks for work whenever it is asked to, until its fiber is cancelled. Core 0.
MAY_WAIT void compaction_run(struct store *s);

// An append found no room: compacts what gains space and says whether it is worth trying again.
// *tries counts on from 0 for one append, so that it ends. Any core.
MAY_WAIT bool compaction_make_room(struct store *s, struct drive *d, enum space_class space,
                                   u32 *tries);
