// SPDX-License-Identifier: Apache-2.0
// A drive: a directory with a superblock, a lock and fixed-size segment files. This file knows what
// a segment is and which are free, nothing of what lies in them.
//
// Ownership. `struct drive` is made on core 0 before other cores hear of it. What a segment is used
// for (state, free lists, the numbers of segments) belongs to core 0: other cores ask it through
// drive_segment_take and _sealed, which travel there themselves. The descriptor of a segment never
// changes; generation, cookie and kind are written by whoever took it, before anyone else learns of
// it by a message.
//
// Space. The last segments of a drive are a reserve: writes may not take them, deletes may take
// some, compaction all. So a full drive stays deletable and can be compacted.
#pragma once

#include "core/buf.h"
#include "core/fiber.h"
#include "dev/segment_fmt.h"
#include "sys/sys.h"

#define DRIVE_MAGIC         0x44727665u
#define DRIVE_PATH_MAX      1024
#define DRIVE_SEGMENTS_MAX  ((u32)1 << 20)
#define DRIVE_UUID_BYTES    16
#define DRIVE_COUNT_MAX     64
#define DRIVE_SPARES_WANTED 2 // free segments beyond the reserve that are prepared in advance

// Who wants a segment, in the order of how far into the reserve it may reach.
enum space_class { SPACE_WRITE = 0, SPACE_DELETE, SPACE_COMPACT };

enum segment_state {
    SEGMENT_ABSENT = 0,
    SEGMENT_UNKNOWN, // there, not yet recovered
    SEGMENT_IDLE,    // free
    SEGMENT_OPEN,    // someone appends to it
    SEGMENT_SEALED,
    SEGMENT_BROKEN, // its header is lost, or live data in it cannot be read: never reused
};

struct segment {
    u32 id;
    int fd;
    u8 state;   // enum segment_state; core 0
    u8 kind;    // enum segment_kind
    u8 verdict; // what recovery found it to be (enum segment_state), until core 0 notes it
    bool is_written;
    bool is_suspect; // recovery could not read all of it: its counts may be too small
    u32 used_bytes;  // set before it is reported sealed
    u64 generation;
    u64 cookie;
};

// The superblock's contents.
struct drive_super {
    u8 store_uuid[DRIVE_UUID_BYTES];
    u8 drive_uuid[DRIVE_UUID_BYTES];
    u32 drive_index;
    u32 drive_count;
    u32 pg_count;
    u64 segment_bytes;
    u64 opens;
    u64 secret;
    u8 drives[DRIVE_COUNT_MAX][DRIVE_UUID_BYTES];
};

struct drive {
    u32 magic;
    int lock_fd;
    bool is_formatted; // has a valid superblock
    bool is_direct;    // segments are open with O_DIRECT
    bool is_full;      // the filesystem refused the last segment; core 0
    bool is_failed;    // a write failed: no more writes; core 0 (others have copies)
    char path[DRIVE_PATH_MAX];
    struct drive_super super;
    u32 segment_bytes;
    u32 segments_max;
    u32 segments_present;
    u32 free_count;
    u32 broken_count;
    u32 missing_count;        // segments that were there once and whose files are gone
    u64 no_room_kicks;        // the store's: compaction found nothing for a write at that count
    u32 reserve_delete;       // free segments that only deletes and compaction may take
    u32 reserve_compact;      // of which only compaction may take these
    struct segment *segments; // segments_max of them, by id
    struct fiber_mutex create_mutex;
    struct event want_spare;
};

// Makes the directory if it is absent, locks it and reads the superblock. ERR_INVALID (neither
// empty nor a drive), ERR_IN_USE, ERR_VERSION, ERR_CORRUPT, ERR_IO; each with a log line that says
// what to do.
MAY_WAIT enum err drive_attach(const char *path, struct drive **out) NODISCARD;
MAY_WAIT void drive_detach(struct drive *d); // closes everything
// Replaces the superblock atomically and durably.
MAY_WAIT enum err drive_super_write(struct drive *d, const struct drive_super *super) NODISCARD;
// What the drive could hold: its filesystem, or bytes_max if that is less and not 0.
MAY_WAIT enum err drive_capacity(struct drive *d, u64 bytes_max, u64 *out) NODISCARD;

// Opens all segment files that there are (state SEGMENT_UNKNOWN). bytes_max 0: no limit.
MAY_WAIT enum err drive_segments_open(struct drive *d, u64 bytes_max) NODISCARD;
// After recovery: what it found a segment to be. Core 0.
void drive_segment_found(struct drive *d, u32 id, enum segment_state state);
// Makes segments until the reserve is there; ERR_DRIVE_FULL if that is not possible. Core 0.
MAY_WAIT enum err drive_reserve_fill(struct drive *d, u32 reserve_delete,
                                     u32 reserve_compact) NODISCARD;
// Keeps spares ready until its fiber is cancelled. Core 0.
MAY_WAIT void drive_keep_spares(struct drive *d);

// Takes a free segment and opens it: durable header with a new generation and cookie. Any core.
// ERR_DRIVE_FULL, ERR_IO.
MAY_WAIT enum err drive_segment_take(struct drive *d, enum segment_kind kind,
                                     enum space_class space, struct segment **out) NODISCARD;
// True if a write could take a segment now. Any core.
MAY_WAIT bool drive_has_room(struct drive *d);
// Tells core 0 that nobody appends any more. Any core.
MAY_WAIT void drive_segment_sealed(struct drive *d, struct segment *seg);
// Erases a segment durably (kind free); it is not handed out before drive_segment_release. Core 0.
MAY_WAIT enum err drive_segment_erase(struct drive *d, struct segment *seg) NODISCARD;
void drive_segment_release(struct drive *d, struct segment *seg); // core 0
// The segment holds what cannot be read: it is kept and never looked at again. Core 0.
void drive_segment_break(struct drive *d, struct segment *seg);
// The segment holds what cannot be read: it is kept and never looked at again. Core 0.
void drive_segment_break(struct drive *d, struct segment *seg);

struct segment *drive_segment(struct drive *d, u32 id);
// What the drive holds in all, and what writes can still take beside the open segments, as far as
// is known without asking the filesystem (which may be shared with others). Core 0.
void drive_space_known(const struct drive *d, u64 *total_bytes, u64 *free_bytes);
// True if the next write or so will not find a segment. Core 0.
bool drive_is_short(const struct drive *d);
