// SPDX-License-Identifier: Apache-2.0
// A record as it lies in a log segment (docs/format/record-log.md):
//
//   header | references (16 bytes each) | key | attributes | payload | zeros to 8 bytes
//
// The header repeats the segment's cookie, so that neither what an earlier generation of the
// segment left nor bytes that a client chose can pass for a frame. `meta_crc` covers header,
// references, key and attributes; `payload_crc` the payload. Pure functions, any thread.
// Little-endian.
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "store/store.h"

#define RECORD_MAGIC           0x4345524cu // "LREC"
#define RECORD_VERSION         1
#define RECORD_ALIGN           8u
#define RECORD_FRAME_BYTES_MAX ((u32)STORE_BATCH_BYTES_MAX)

// A mark holds nothing: it stands alone in a commit and proves that those before it were flushed.
enum record_type { RECORD_PUT = 1, RECORD_DELETE = 2, RECORD_MARK = 3 };

struct record_fmt {
    u32 magic;
    u8 version;
    u8 type;   // enum record_type
    u16 flags; // none defined
    u64 cookie;
    u32 frame_bytes; // the whole frame, a multiple of 8
    u32 batch;       // commit number within the segment, from 1
    u16 group_index; // place among the records of its atomic commit
    u16 group_count;
    u16 pg;
    u16 key_bytes;
    u32 attrs_bytes;
    u32 payload_bytes;
    u32 ref_count;
    u32 epoch;
    u64 seq; // grows within the placement group; the highest of a key is its state
    u8 summary[STORE_SUMMARY_BYTES];
    u32 payload_crc;
    u32 meta_crc; // of the header before this field, then references, key, attributes
};
_Static_assert(sizeof(struct record_fmt) == 104, "no holes");
#define RECORD_HEADER_BYTES ((u32)sizeof(struct record_fmt))

// What is to be written.
struct record_input {
    u8 type; // enum record_type
    u16 pg;
    u32 epoch;
    u64 seq;
    u16 group_index;
    u16 group_count;
    const struct store_change *change;
};

// A frame that was read. The pointers lie in the bytes that were parsed.
struct record_view {
    u8 type;
    u16 pg;
    u16 group_index;
    u16 group_count;
    u32 batch;
    u32 frame_bytes;
    u32 epoch;
    u64 seq;
    const u8 *summary;
    const struct extent_ref *refs;
    u32 ref_count;
    struct bytes key;
    struct bytes attrs;
    struct bytes payload;
    u32 payload_crc;
};

// ERR_INVALID if a part is over its limit.
enum err record_change_check(const struct store_change *change) NODISCARD;
// Bytes of the frame of a valid change.
u32 record_frame_bytes(const struct store_change *change, enum record_type type);
// Writes the frame to `out` (8-byte aligned, record_frame_bytes() long).
void record_encode(const struct record_input *in, u64 cookie, u32 batch, u8 *out);
// Writes a mark, RECORD_HEADER_BYTES long.
void record_encode_mark(u64 cookie, u32 batch, u8 *out);

// Looks for a frame at the start of `b` (8-byte aligned) and verifies everything but the payload.
// ERR_CORRUPT: there is none. ERR_END: a header stands there whose frame is longer than `b`
// (*need_bytes, unverified, at most RECORD_FRAME_BYTES_MAX).
enum err record_parse(struct bytes b, u64 cookie, struct record_view *out,
                      u32 *need_bytes) NODISCARD;
bool record_payload_is_valid(const struct record_view *v);
