// SPDX-License-Identifier: Apache-2.0
// A writer in full: shared by object_write.c (receiving, on the connection's core) and
// object_commit.c (committing, on the owner core of the PG). While a commit or a chunk's write runs
// on the owner core, the connection's core touches nothing that they use.
#pragma once

#include "codec/digest.h"
#include "meta/meta_internal.h"

#define WRITER_MAGIC 0x54495257u // "WRIT"

// A chunk on its way to the drive. `frame` is a reference of its own.
struct chunk_write {
    struct object_writer *writer;
    struct buf *frame;
    u32 chunk;
    u32 data_bytes;
};

struct object_writer {
    u32 magic;
    u32 checksums; // bits to compute along
    struct meta *meta;
    struct meta_core *home; // the connection's core
    struct place place;
    u8 name[META_KEY_BYTES_MAX]; // place.name points here
    bool is_part;
    bool is_inline; // so far: small enough to live in the record, or of unknown size
    bool needs_md5;
    bool has_digests;
    u8 upload_algorithm; // of the upload that the part belongs to
    u32 part_number;
    struct upload_id upload;
    u64 size_max; // what may come in all
    u64 size;
    u8 beyond; // where a byte past size_max would land

    // The frame that is being filled: data begins at frame_offset and `fill` bytes are there.
    struct buf *frame;
    u32 frame_offset;
    u32 frame_room;
    u32 fill;
    u32 chunk; // its number

    // At most one chunk is being written while the next is received.
    struct group writes;
    struct chunk_write write;
    enum err write_error;
    u64 object_id; // of the extent sequence; 0: none yet. Set on the owner core by the first write

    struct md5_stream md5;
    u32 crc32;
    u32 crc32c;
    u64 crc64nvme;
    struct sha1 sha1;
    struct sha256 sha256;
    struct object_digests digests;

    struct message retire; // carries the writer to the owner core to abandon its extents
};

// Waits for the chunk that is being written.
MAY_WAIT void writer_settle(struct object_writer *w);
// Gives everything back, abandons the extents if the writer still has any, frees it.
MAY_WAIT void writer_destroy(struct object_writer *w);
