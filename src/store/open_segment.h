// SPDX-License-Identifier: Apache-2.0
// A segment that one core appends to: where it ends, who still writes, and the footer that grows
// with it. When it is closed and its last user is gone, a fiber seals it in the background; a crash
// before that only means a scan at the next start.
#pragma once

#include "store/footer.h"

struct shard_drive;

struct open_segment {
    struct list node; // the owner's, while it is closed and not yet sealed
    struct shard_drive *sd;
    struct segment *seg;
    u32 tail;        // next free byte
    u32 users;       // writes that have not completed
    u32 batch;       // number of the last commit
    u32 proved;      // every commit up to this number has one behind it, or is a mark
    bool is_reserve; // taken for deletes or compaction: no room for writes
    enum space_class opened_for;
    bool is_closed;
    bool is_dirty; // extents: written since the last flush
    struct footer footer;
};

MAY_WAIT enum err open_segment_create(struct shard_drive *sd, enum segment_kind kind,
                                      enum space_class space, struct open_segment **out) NODISCARD;
// Would frames that end at `tail`, with entries of `entry_bytes`, leave room for the footer?
bool open_segment_has_room(const struct open_segment *os, u64 tail, u32 entry_bytes);
void open_segment_use(struct open_segment *os);
void open_segment_unuse(struct open_segment *os);
// No more appends. The struct goes away when it is sealed.
void open_segment_close(struct open_segment *os);
// Frees it as it is, unsealed: the store is closing.
void open_segment_drop(struct open_segment *os);
