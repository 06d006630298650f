// SPDX-License-Identifier: Apache-2.0
// The header of a segment: read with repair, written so that a crash leaves one whole copy.
#pragma once

#include "dev/drive.h"

// Fills a header block (4 KiB).
void segment_header_encode(const struct drive *d, const struct segment *seg, void *block);
// What a valid header says.
struct segment_header {
    u64 generation;
    u64 cookie;
    u16 kind;
    bool is_written;
};
// ERR_CORRUPT: damaged, or of another drive or segment. ERR_VERSION: newer.
enum err segment_header_decode(const struct drive *d, u32 id, const void *block,
                               struct segment_header *out) NODISCARD;

// Reads both copies, takes the newer valid one and rewrites the other if it differs. ERR_CORRUPT
// if none is valid, ERR_IO. Any core.
MAY_WAIT enum err segment_header_read(struct drive *d, struct segment *seg) NODISCARD;
// Next generation, with a new cookie and this kind, durably. Any core. After an error the segment
// is in either state.
MAY_WAIT enum err segment_header_advance(struct drive *d, struct segment *seg,
                                         enum segment_kind kind) NODISCARD;
