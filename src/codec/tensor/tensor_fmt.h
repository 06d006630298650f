// SPDX-License-Identifier: Apache-2.0
// The bytes of a tensor container, as docs/format/tensor-codec.md describes them. Little-endian.
// container := header, blocks (each at a multiple of 16), index, footer.
// Nothing here is code; the device kernels include it too, so it stays plain C and plain C++.
#pragma once

#include "base/types.h"

#define TENSOR_MAGIC_HEADER "LEATTEN\x01"
#define TENSOR_MAGIC_FOOTER "LEATTEN\x02"
#define TENSOR_MAGIC_BLOCK  0x3142544cu // "LTB1"
#define TENSOR_VERSION      1

#define TENSOR_ALIGN_BYTES          16u // of every block, plane and table inside a container
#define TENSOR_HEADER_BYTES         32u
#define TENSOR_BLOCK_HEADER_BYTES   32u
#define TENSOR_INDEX_ENTRY_BYTES    16u
#define TENSOR_FOOTER_BYTES         64u
#define TENSOR_BLOCK_BYTES_MIN      1024u
#define TENSOR_BLOCK_BYTES_MAX      (1024u * 1024u)
#define TENSOR_BLOCK_BYTES_DEFAULT  (256u * 1024u)
#define TENSOR_PALETTE_SYMBOLS      16u
#define TENSOR_PATCH_BYTES          4u
#define TENSOR_LANES                64u    // bit streams of one segment
#define TENSOR_SEGMENT_SYMBOLS      32768u // symbols of one segment
#define TENSOR_CODE_BITS_MAX        11u
#define TENSOR_LENGTH_TABLE_BYTES   128u // 256 code lengths of four bits
#define TENSOR_LANE_GUARD_BYTES     8u   // zero bytes after the last lane
#define TENSOR_HASH_TILE_BYTES      1024u
#define TENSOR_SEGMENT_LENGTH_BYTES (2u * TENSOR_LANES)

enum tensor_mode {
    TENSOR_MODE_RAW = 0,
    TENSOR_MODE_FAST = 1,
    TENSOR_MODE_DENSE = 2,
    TENSOR_MODE_COUNT = 3,
};

enum tensor_type {
    TENSOR_TYPE_BYTES = 0,
    TENSOR_TYPE_BF16 = 1,
    TENSOR_TYPE_FP16 = 2,
    TENSOR_TYPE_FP32 = 3,
    TENSOR_TYPE_FP8_E4M3 = 4,
    TENSOR_TYPE_FP8_E5M2 = 5,
    TENSOR_TYPE_INT8 = 6,
    TENSOR_TYPE_COUNT = 7,
};

struct tensor_header {
    u8 magic[8];
    u16 version;
    u16 flags; // zero
    u32 block_bytes_max;
    u64 reserved; // zero
    u64 check;    // hash of the 24 bytes before it
};

struct tensor_block_header {
    u32 magic;
    u8 mode;
    u8 type;
    u8 code_bits; // DENSE: the longest code; otherwise zero
    u8 reserved;  // zero
    u32 plain_bytes;
    u32 payload_bytes; // after this header, without the gap to the next block
    u32 patch_count;   // FAST; otherwise zero
    u32 lanes_bytes;   // DENSE: all lanes together, without the guard; otherwise zero
    u64 check;         // hash of the plain bytes
};

struct tensor_index_entry {
    u64 plain_offset;
    u64 stored_offset; // of the block's header, from the container's start
};

struct tensor_footer {
    u8 magic[8];
    u64 plain_bytes;
    u64 block_count;
    u64 index_offset;
    u64 container_bytes;
    u64 index_check; // hash of the whole index
    u64 reserved;    // zero
    u64 check;       // hash of the 56 bytes before it
};

#ifdef __cplusplus
#define TENSOR_STATIC_ASSERT static_assert
#else
#define TENSOR_STATIC_ASSERT _Static_assert
#endif
TENSOR_STATIC_ASSERT(sizeof(struct tensor_header) == TENSOR_HEADER_BYTES, "header");
TENSOR_STATIC_ASSERT(sizeof(struct tensor_block_header) == TENSOR_BLOCK_HEADER_BYTES, "block");
TENSOR_STATIC_ASSERT(sizeof(struct tensor_index_entry) == TENSOR_INDEX_ENTRY_BYTES, "index");
TENSOR_STATIC_ASSERT(sizeof(struct tensor_footer) == TENSOR_FOOTER_BYTES, "footer");
