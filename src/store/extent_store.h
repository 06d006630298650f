// SPDX-License-Identifier: Apache-2.0
// Extents of one core on one drive: written to the open extent segment without a flush, flushed in
// groups when records want to refer to them, and read back in verified pieces.
#pragma once

#include "core/buf.h"
#include "core/fiber.h"
#include "store/extent_map.h"
#include "store/open_segment.h"

struct shard_drive;

struct extent_writer {
    struct shard_drive *sd;
    struct open_segment *current;
    struct list closing; // open_segments that are closed and not yet sealed
    struct fiber_mutex roll_mutex;
    u64 flush_next; // number of the next flush; it covers every write that completed before
    u64 flush_done;
    bool is_flushing;
    struct wait_queue flushed;
};

void extent_writer_init(struct extent_writer *w, struct shard_drive *sd);
void extent_writer_deinit(struct extent_writer *w);

// Writes a frame (data behind the header's room). *ticket is the flush that makes it durable.
// ERR_DRIVE_FULL, ERR_LIMIT_REACHED (larger than a segment), ERR_NO_MEMORY, ERR_IO.
MAY_WAIT enum err extent_writer_write(struct extent_writer *w, const struct extent_name *name,
                                      struct buf *frame, u32 data_bytes, enum space_class space,
                                      struct extent_location *at, u64 *ticket) NODISCARD;
// Returns when flush number `ticket` is done; many callers share one.
MAY_WAIT enum err extent_writer_flush(struct extent_writer *w, u64 ticket) NODISCARD;

// Verified bytes [offset, offset + len) of an extent; see pg_extent_read. The location is the
// caller's copy from the map, taken without a wait before this call.
MAY_WAIT enum err extent_read(struct shard_drive *sd, const struct extent_name *name,
                              const struct extent_location *at, u32 offset, u32 len,
                              struct buf **out, u32 *out_offset) NODISCARD;
// The whole frame, header and data, verified: for compaction.
MAY_WAIT enum err extent_read_frame(struct shard_drive *sd, const struct extent_name *name,
                                    const struct extent_location *at, struct buf **out) NODISCARD;

// Reads in flight keep their segment from being reused.
void segment_reader_enter(struct shard_drive *sd, u32 segment);
void segment_reader_leave(struct shard_drive *sd, u32 segment);
