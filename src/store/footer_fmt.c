// SPDX-License-Identifier: Apache-2.0
// Strict parsing of footer blocks and trailers.
#include "store/footer_fmt.h"

#include "base/assert.h"
#include "codec/crc.h"
#include "dev/segment_fmt.h"

u32 footer_block_check(const u8 *block, u32 bytes, u64 cookie, u32 index)
{
    const struct footer_block_fmt *h = (const struct footer_block_fmt *)(const void *)block;
    if (bytes < sizeof(*h) || h->magic != FOOTER_BLOCK_MAGIC || h->cookie != cookie ||
        h->index != index || h->used_bytes < sizeof(*h) || h->used_bytes > bytes) {
        return 0;
    }
    size_t start = offsetof(struct footer_block_fmt, cookie);
    u32 crc = crc32c(0, BYTES(block + start, h->used_bytes - start));
    return crc == h->crc ? h->used_bytes : 0;
}

static bool record_decode(const u8 *at, u32 room, struct footer_entry *out, u32 *bytes)
{
    const struct footer_record_fmt *r = (const struct footer_record_fmt *)(const void *)at;
    if (room < sizeof(*r) || r->entry_bytes > room || r->entry_bytes % 8 != 0 ||
        r->key_bytes > STORE_KEY_BYTES_MAX || r->refs_here > FOOTER_REFS_PER_ENTRY ||
        r->ref_count > STORE_REFS_MAX || r->refs_here > r->ref_count) {
        return false;
    }
    size_t ids_bytes = (size_t)r->refs_here * 8;
    if (sizeof(*r) + ids_bytes + r->key_bytes > r->entry_bytes) {
        return false;
    }
    *out = (struct footer_entry){
        .kind = r->kind,
        .pg = r->pg,
        .offset_units = r->offset_units,
        .bytes = r->bytes,
        .seq = r->seq,
        .epoch = r->epoch,
        .ref_count = r->ref_count,
        .refs_here = r->refs_here,
        .summary = r->summary,
        .ids = at + sizeof(*r),
        .key = BYTES(at + sizeof(*r) + ids_bytes, r->key_bytes),
    };
    *bytes = r->entry_bytes;
    return true;
}

static bool extent_decode(const u8 *at, u32 room, struct footer_entry *out, u32 *bytes)
{
    const struct footer_extent_fmt *x = (const struct footer_extent_fmt *)(const void *)at;
    if (room < sizeof(*x) || x->entry_bytes != sizeof(*x) || x->object_id == 0 ||
        x->data_bytes == 0 || x->data_bytes > STORE_EXTENT_BYTES) {
        return false;
    }
    *out = (struct footer_entry){
        .kind = x->kind,
        .pg = x->pg,
        .offset_units = x->offset_units,
        .bytes = x->bytes,
        .object_id = x->object_id,
        .chunk = x->chunk,
        .data_bytes = x->data_bytes,
    };
    *bytes = x->entry_bytes;
    return true;
}

bool footer_block_next(const u8 *block, u32 *pos, struct footer_entry *out, enum err *err)
{
    const struct footer_block_fmt *h = (const struct footer_block_fmt *)(const void *)block;
    u32 at = *pos == 0 ? (u32)sizeof(*h) : *pos;
    ASSERT(at <= h->used_bytes && at % 8 == 0);
    *err = OK;
    if (at == h->used_bytes) {
        return false;
    }
    u32 room = h->used_bytes - at;
    u32 bytes = 0;
    bool is_good = false;
    if (room >= 8) {
        u8 kind = block[at];
        is_good = kind == FOOTER_EXTENT ? extent_decode(block + at, room, out, &bytes)
                  : (kind == FOOTER_PUT || kind == FOOTER_DELETE || kind == FOOTER_REFS)
                      ? record_decode(block + at, room, out, &bytes)
                      : false;
    }
    if (!is_good || bytes == 0) {
        *err = ERR_CORRUPT;
        return false;
    }
    *pos = at + bytes;
    return true;
}

bool footer_trailer_check(const struct footer_trailer_fmt *t, u32 segment_id, u64 cookie,
                          u32 segment_bytes)
{
    if (t->magic != FOOTER_TRAILER_MAGIC || t->cookie != cookie || t->segment_id != segment_id ||
        t->version != FOOTER_VERSION ||
        t->crc != crc32c(0, BYTES(t, offsetof(struct footer_trailer_fmt, crc)))) {
        return false;
    }
    u32 end = segment_bytes - FOOTER_TRAILER_BYTES;
    return t->footer_offset >= SEGMENT_HEADER_BYTES && t->footer_offset <= end &&
           t->footer_offset % SEGMENT_BLOCK_BYTES == 0 &&
           t->footer_bytes == end - t->footer_offset &&
           t->block_count == (t->footer_bytes + FOOTER_BLOCK_BYTES - 1) / FOOTER_BLOCK_BYTES &&
           t->used_bytes >= SEGMENT_HEADER_BYTES && t->used_bytes <= t->footer_offset;
}
