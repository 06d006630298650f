// SPDX-License-Identifier: Apache-2.0
// On-disk layout of a segment's header (docs/format/drive.md). The same block stands twice at the
// segment's start: block 1 is written and flushed first, then block 0, so that one is always whole.
// Little-endian.
#pragma once

#include "base/types.h"

#define SEGMENT_MAGIC        0x4745534cu // "LSEG"
#define SEGMENT_VERSION      1
#define SEGMENT_BLOCK_BYTES  ((u32)4096)
#define SEGMENT_HEADER_BYTES (2 * SEGMENT_BLOCK_BYTES)

enum segment_kind {
    SEGMENT_FREE = 1,
    SEGMENT_LOG = 2,
    SEGMENT_EXTENT = 3,
};

#define SEGMENT_FLAG_WRITTEN 0x01u // every block of the file was written once

struct segment_header_fmt {
    u32 magic;
    u16 version;
    u16 kind; // enum segment_kind
    u8 store_uuid[16];
    u8 drive_uuid[16];
    u32 segment_id;
    u32 flags;
    u64 generation; // counts how often the segment changed its kind
    u64 cookie;     // random for each generation; every frame repeats it
    u64 segment_bytes;
    u8 reserved[4096 - 72 - 4];
    u32 crc; // CRC-32C of everything before
};
_Static_assert(sizeof(struct segment_header_fmt) == 4096, "one block");
_Static_assert(offsetof(struct segment_header_fmt, reserved) == 72, "no holes");
