// SPDX-License-Identifier: Apache-2.0
// What lies at the end of a sealed segment (docs/format/footer.md): blocks of up to 64 KiB, each
// with its own checksum and a whole number of entries, and a trailer in the segment's last 4 KiB.
// Parsing is pure and believes nothing: it is fuzzed. Little-endian.
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "store/store.h"

#define FOOTER_BLOCK_MAGIC    0x4b4c424cu // "LBLK"
#define FOOTER_TRAILER_MAGIC  0x4c52544cu // "LTRL"
#define FOOTER_VERSION        1
#define FOOTER_BLOCK_BYTES    ((u32)65536)
#define FOOTER_TRAILER_BYTES  ((u32)4096)
#define FOOTER_REFS_PER_ENTRY 1000

enum footer_kind {
    FOOTER_PUT = 1,
    FOOTER_DELETE = 2,
    FOOTER_REFS = 3, // more references of the put record at the same offset
    FOOTER_EXTENT = 4,
};

struct footer_block_fmt {
    u32 magic;
    u32 crc; // of everything behind this field, up to used_bytes
    u64 cookie;
    u32 used_bytes; // this header included
    u32 entry_count;
    u32 index; // of the block in the footer
    u32 reserved;
};
_Static_assert(sizeof(struct footer_block_fmt) == 32, "no holes");

// Behind it: object ids (8 bytes each), the key, zeros to 8 bytes.
struct footer_record_fmt {
    u8 kind;
    u8 reserved;
    u16 entry_bytes;
    u16 pg;
    u16 key_bytes;
    u32 offset_units; // of the frame from the segment's start, in 8 bytes
    u32 bytes;        // of the frame
    u64 seq;
    u32 epoch;
    u16 ref_count; // of the record
    u16 refs_here;
    u8 summary[STORE_SUMMARY_BYTES];
};
_Static_assert(sizeof(struct footer_record_fmt) == 72, "no holes");

struct footer_extent_fmt {
    u8 kind;
    u8 reserved;
    u16 entry_bytes;
    u16 pg;
    u16 reserved1;
    u32 offset_units;
    u32 bytes;
    u64 object_id;
    u32 chunk;
    u32 data_bytes;
};
_Static_assert(sizeof(struct footer_extent_fmt) == 32, "no holes");

#define FOOTER_ENTRY_BYTES_MAX                                                                     \
    ((u32)(sizeof(struct footer_record_fmt) + 8 * FOOTER_REFS_PER_ENTRY + STORE_KEY_BYTES_MAX + 8))

struct footer_trailer_fmt {
    u32 magic;
    u16 version;
    u16 kind; // enum segment_kind
    u64 cookie;
    u64 generation;
    u32 segment_id;
    u32 block_count;
    u32 footer_offset; // from the segment's start
    u32 footer_bytes;  // without the trailer
    u64 entry_count;
    u32 used_bytes; // where the frames end
    u32 flags;
    u8 reserved[4096 - 56 - 4];
    u32 crc; // of everything before
};
_Static_assert(sizeof(struct footer_trailer_fmt) == 4096, "one block");
_Static_assert(offsetof(struct footer_trailer_fmt, reserved) == 56, "no holes");

#define FOOTER_FLAG_SUSPECT 0x01u // made from a scan that met damaged frames

// One entry, decoded. Pointers into the block.
struct footer_entry {
    u8 kind; // enum footer_kind
    u16 pg;
    u32 offset_units;
    u32 bytes;
    // records
    u64 seq;
    u32 epoch;
    u16 ref_count;
    u16 refs_here;
    const u8 *summary;
    const u8 *ids; // refs_here little-endian words
    struct bytes key;
    // extents
    u64 object_id;
    u32 chunk;
    u32 data_bytes;
};

// Verifies a block of `bytes` bytes as it was read; returns its used bytes, 0 if it is damaged.
u32 footer_block_check(const u8 *block, u32 bytes, u64 cookie, u32 index);
// The entry at *pos (start with 0) of a block that was checked; moves *pos on. False at the end;
// ERR_CORRUPT through *err if the entry is malformed.
bool footer_block_next(const u8 *block, u32 *pos, struct footer_entry *out, enum err *err);
// True if the trailer belongs to this generation of the segment and makes sense.
bool footer_trailer_check(const struct footer_trailer_fmt *t, u32 segment_id, u64 cookie,
                          u32 segment_bytes);
