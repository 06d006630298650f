// SPDX-License-Identifier: Apache-2.0
// An extent as it lies in an extent segment (docs/format/extent.md): one header block, then the
// data padded with zeros to 4 KiB. The header has a checksum for each 4 KiB of data, so that a
// small range is verified without the rest. Pure functions, any thread. Little-endian.
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "store/store.h"

#define EXTENT_MAGIC       0x5458454cu // "LEXT"
#define EXTENT_VERSION     1
#define EXTENT_BLOCK_BYTES ((u32)4096)
#define EXTENT_BLOCKS_MAX  ((u32)(STORE_EXTENT_BYTES / EXTENT_BLOCK_BYTES))

struct extent_fmt {
    u32 magic;
    u16 version;
    u16 pg;
    u64 cookie;
    u64 object_id;
    u32 chunk;
    u32 data_bytes;
    u32 crcs[EXTENT_BLOCKS_MAX]; // CRC-32C of each block of data, the last with its padding
    u8 reserved[4096 - 32 - 4 * EXTENT_BLOCKS_MAX - 4];
    u32 crc; // of everything before
};
_Static_assert(sizeof(struct extent_fmt) == 4096, "one block");
_Static_assert(sizeof(struct extent_fmt) == STORE_EXTENT_HEADER, "what callers leave room for");
_Static_assert(offsetof(struct extent_fmt, reserved) == 32 + 4 * EXTENT_BLOCKS_MAX, "no holes");

static inline u32 extent_blocks(u32 data_bytes)
{
    return (data_bytes + EXTENT_BLOCK_BYTES - 1) / EXTENT_BLOCK_BYTES;
}
static inline u32 extent_frame_bytes(u32 data_bytes)
{
    return (1 + extent_blocks(data_bytes)) * EXTENT_BLOCK_BYTES;
}

struct extent_name {
    u64 object_id;
    u32 chunk;
    u16 pg;
};

// Fills the header and the padding of a frame whose data stand behind the header.
void extent_encode(u8 *frame, const struct extent_name *name, u64 cookie, u32 data_bytes);
// Verifies a header block; a view of it, or NULL.
const struct extent_fmt *extent_parse(const u8 *block, u64 cookie);
// Verifies data blocks [first, first + count), which lie at `data`.
bool extent_blocks_are_valid(const u32 *crcs, u32 first, u32 count, const u8 *data);
