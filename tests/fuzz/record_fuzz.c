// SPDX-License-Identifier: Apache-2.0
// Record and extent frames on any bytes: never a crash, never a view outside of the frame, and a
// frame that is accepted encodes to the same bytes again. The first byte chooses what is repaired
// before parsing, so that the fuzzer gets past magic and checksums.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "codec/crc.h"
#include "store/extent_fmt.h"
#include "store/record_fmt.h"

#define COOKIE      0x1122334455667788ull
#define REPAIR      0x01u
#define IS_EXTENT   0x02u
#define FRAME_BYTES ((size_t)64 * KIB)

static void record_repair(u8 *frame, size_t size)
{
    struct record_fmt *h = (struct record_fmt *)(void *)frame;
    h->magic = RECORD_MAGIC;
    h->version = RECORD_VERSION;
    h->cookie = COOKIE;
    h->flags = 0;
    u64 meta = (u64)h->ref_count * sizeof(struct extent_ref) + h->key_bytes + h->attrs_bytes;
    u64 bytes = ALIGN_UP(sizeof(*h) + meta + h->payload_bytes, (u64)RECORD_ALIGN);
    h->frame_bytes = (u32)bytes;
    if (bytes > size) {
        return;
    }
    u8 *at = frame + sizeof(*h);
    h->payload_crc = crc32c(0, BYTES(at + meta, h->payload_bytes));
    u32 crc = crc32c(0, BYTES(frame, offsetof(struct record_fmt, meta_crc)));
    h->meta_crc = crc32c(crc, BYTES(at, meta));
}

static void assert_inside(const void *from, size_t len, const u8 *frame, u32 frame_bytes)
{
    const u8 *at = from;
    ASSERT(len == 0 || (at >= frame && at + len <= frame + frame_bytes));
}

// A put that was accepted is what the encoder makes of it.
static void assert_same_encoding(const struct record_view *v, const u8 *frame)
{
    struct store_change c = {.key = v->key,
                             .is_delete = v->type != RECORD_PUT,
                             .attrs = v->attrs,
                             .payload = v->payload,
                             .refs = v->refs,
                             .ref_count = v->ref_count};
    memcpy(c.summary, v->summary, STORE_SUMMARY_BYTES);
    ASSERT(record_change_check(&c) == OK);
    if (v->type != RECORD_PUT) {
        return; // has none of the fields that a header can carry all the same
    }
    struct record_input in = {.type = v->type,
                              .pg = v->pg,
                              .epoch = v->epoch,
                              .seq = v->seq,
                              .group_index = v->group_index,
                              .group_count = v->group_count,
                              .change = &c};
    u8 *again = aligned_alloc(8, v->frame_bytes);
    ASSERT(again != NULL);
    record_encode(&in, COOKIE, v->batch, again);
    ASSERT(memcmp(again, frame, v->frame_bytes) == 0);
    free(again);
}

static void record_try(u8 *frame, size_t size, bool is_repaired)
{
    if (is_repaired && size >= sizeof(struct record_fmt)) {
        record_repair(frame, size);
    }
    struct record_view v;
    u32 need = 0;
    enum err e = record_parse(BYTES(frame, size), COOKIE, &v, &need);
    ASSERT(e == OK || e == ERR_CORRUPT || e == ERR_END);
    if (e == ERR_END) {
        ASSERT(need > size && need <= RECORD_FRAME_BYTES_MAX);
    }
    if (e != OK) {
        return;
    }
    ASSERT(v.frame_bytes <= size && v.frame_bytes % RECORD_ALIGN == 0);
    assert_inside(v.refs, v.ref_count * sizeof(struct extent_ref), frame, v.frame_bytes);
    assert_inside(v.key.data, v.key.len, frame, v.frame_bytes);
    assert_inside(v.attrs.data, v.attrs.len, frame, v.frame_bytes);
    assert_inside(v.payload.data, v.payload.len, frame, v.frame_bytes);
    if (record_payload_is_valid(&v) && is_repaired) {
        assert_same_encoding(&v, frame);
    }
}

static void extent_try(u8 *frame, size_t size, bool is_repaired)
{
    if (size < sizeof(struct extent_fmt)) {
        return;
    }
    struct extent_fmt *h = (struct extent_fmt *)(void *)frame;
    if (is_repaired) {
        h->magic = EXTENT_MAGIC;
        h->version = EXTENT_VERSION;
        h->cookie = COOKIE;
        h->crc = crc32c(0, BYTES(frame, offsetof(struct extent_fmt, crc)));
    }
    const struct extent_fmt *got = extent_parse(frame, COOKIE);
    if (got != NULL) {
        ASSERT(extent_blocks(got->data_bytes) <= EXTENT_BLOCKS_MAX);
        u32 there = (u32)(size / EXTENT_BLOCK_BYTES) - 1;
        u32 count = MIN(there, extent_blocks(got->data_bytes));
        (void)extent_blocks_are_valid(got->crcs, 0, count, frame + EXTENT_BLOCK_BYTES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > FRAME_BYTES) {
        return 0;
    }
    u8 mode = data[0];
    u8 *frame = aligned_alloc(8, ALIGN_UP(size, (size_t)8));
    ASSERT(frame != NULL);
    memcpy(frame, data + 1, size - 1);
    if ((mode & IS_EXTENT) != 0) {
        extent_try(frame, size - 1, (mode & REPAIR) != 0);
    } else {
        record_try(frame, size - 1, (mode & REPAIR) != 0);
    }
    free(frame);
    return 0;
}
