// SPDX-License-Identifier: Apache-2.0
// One core's part in compacting a segment. Private to store/.
#pragma once

#include "store/recovery.h"

// Copies this core's live records and extents of a footer block to its open segments, durably, and
// points the index there. call->arg is a bool: set when something alive cannot be read, so that the
// segment must stay.
MAY_WAIT enum err evacuate_block(struct shard *sh, struct block_call *call);
// Waits until no read of this core is in flight in the segment.
MAY_WAIT void evacuate_wait_readers(struct shard_drive *sd, u32 segment);
// After the segment was erased: its dead records no longer stand behind their keys. Tombstones that
// hide nothing any more go.
MAY_WAIT enum err evacuate_forget_block(struct shard *sh, struct block_call *call);
