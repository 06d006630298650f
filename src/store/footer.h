// SPDX-License-Identifier: Apache-2.0
// The footer of a segment in memory: gathered while the segment is written, or read back, or
// rebuilt from a scan. It is a list of blocks exactly as they go to the drive.
//
// Owned by one core at a time; other cores may read its blocks during a core_call.
#pragma once

#include "dev/drive.h"
#include "store/extent_fmt.h"
#include "store/footer_fmt.h"
#include "store/record_fmt.h"

struct footer {
    u8 **blocks; // 4 KiB aligned, FOOTER_BLOCK_BYTES each
    u32 block_count;
    u32 block_capacity; // length of `blocks`
    u32 blocks_made;    // blocks[0..blocks_made) have memory; kept for reuse
    u32 used_bytes;     // where the segment's frames end
    u64 entry_count;
    u32 lost; // by a scan: places where records of unknown keys were; not kept on the drive
    bool is_suspect;
};

void footer_init(struct footer *f);
void footer_deinit(struct footer *f);
void footer_reset(struct footer *f); // empty, memory kept

// Bytes that a record's entries take in the blocks.
u32 footer_record_bytes(size_t key_bytes, u32 ref_count);
// What the footer takes on the drive, trailer included, if entries of `more_bytes` come on top: an
// upper bound.
u64 footer_disk_bytes(const struct footer *f, u32 more_bytes);

// ERR_NO_MEMORY: nothing was added. `offset` is the frame's from the segment's start.
enum err footer_reserve(struct footer *f, u32 more_bytes) NODISCARD;
// Never fail after a footer_reserve of what they take.
void footer_add_record(struct footer *f, u32 offset, const struct record_view *v);
void footer_add_extent(struct footer *f, u32 offset, const struct extent_name *name,
                       u32 data_bytes);

// Copies one whole entry from another footer's block.
enum err footer_copy_entry(struct footer *f, const u8 *entry, u32 bytes) NODISCARD;

// Writes the footer at the segment's end, durably: first the blocks, then the trailer, so that a
// valid trailer means a whole footer.
MAY_WAIT enum err footer_write(struct footer *f, struct drive *d,
                               const struct segment *seg) NODISCARD;
// Reads a sealed segment's footer block by block, each verified; the blocks lie in a window that is
// reused, so that footers of any size take the same memory.
struct footer_reader {
    const struct drive *drive;
    const struct segment *seg;
    struct buf *window;
    u32 at;  // of the next block in the segment
    u32 end; // of the last one
    u32 window_at;
    u32 window_bytes;
    u32 index; // of the next block
    u64 entries_left;
    u32 used_bytes;
    bool is_suspect;
};
// ERR_NOT_FOUND: the segment is not sealed. ERR_IO, ERR_NO_MEMORY. After any error there is nothing
// to close.
MAY_WAIT enum err footer_reader_open(struct footer_reader *r, const struct drive *d,
                                     const struct segment *seg) NODISCARD;
// The next block, valid until the next call. ERR_END behind the last one. ERR_CORRUPT: damaged
// (counted and logged), ERR_IO.
MAY_WAIT enum err footer_reader_next(struct footer_reader *r, const u8 **block) NODISCARD;
void footer_reader_close(struct footer_reader *r);

// Reads all of it. The errors of the reader.
MAY_WAIT enum err footer_read(struct footer *f, const struct drive *d,
                              const struct segment *seg) NODISCARD;
