// SPDX-License-Identifier: Apache-2.0
// Encoding and strict decoding of record frames. Nothing of a frame is believed before its checksum
// matched, except the lengths, which are held against every limit first.
#include "store/record_fmt.h"

#include "base/assert.h"
#include "codec/crc.h"

enum err record_change_check(const struct store_change *change)
{
    if (change->key.len > STORE_KEY_BYTES_MAX) {
        return ERR_INVALID;
    }
    if (change->is_delete) {
        return OK;
    }
    bool is_valid = change->attrs.len <= STORE_ATTRS_BYTES_MAX &&
                    change->payload.len <= STORE_INLINE_BYTES_MAX &&
                    change->ref_count <= STORE_REFS_MAX;
    return is_valid ? OK : ERR_INVALID;
}

static u64 frame_bytes_of(u64 key, u64 attrs, u64 payload, u64 refs)
{
    u64 n = RECORD_HEADER_BYTES + refs * sizeof(struct extent_ref) + key + attrs + payload;
    return ALIGN_UP(n, RECORD_ALIGN);
}

u32 record_frame_bytes(const struct store_change *change, enum record_type type)
{
    if (type != RECORD_PUT) {
        return (u32)frame_bytes_of(change->key.len, 0, 0, 0);
    }
    return (u32)frame_bytes_of(change->key.len, change->attrs.len, change->payload.len,
                               change->ref_count);
}

static u8 *put_bytes(u8 *at, struct bytes b)
{
    if (b.len > 0) {
        memcpy(at, b.data, b.len);
    }
    return at + b.len;
}

void record_encode(const struct record_input *in, u64 cookie, u32 batch, u8 *out)
{
    const struct store_change *c = in->change;
    bool is_put = in->type == RECORD_PUT;
    ASSERT(in->type != RECORD_MARK || c->key.len == 0);
    ASSERT((uintptr_t)out % RECORD_ALIGN == 0);
    ASSERT(in->group_index < in->group_count && batch != 0);
    struct record_fmt *h = (struct record_fmt *)(void *)out;
    *h = (struct record_fmt){
        .magic = RECORD_MAGIC,
        .version = RECORD_VERSION,
        .type = in->type,
        .cookie = cookie,
        .frame_bytes = record_frame_bytes(c, (enum record_type)in->type),
        .batch = batch,
        .group_index = in->group_index,
        .group_count = in->group_count,
        .pg = in->pg,
        .key_bytes = (u16)c->key.len,
        .attrs_bytes = is_put ? (u32)c->attrs.len : 0,
        .payload_bytes = is_put ? (u32)c->payload.len : 0,
        .ref_count = is_put ? c->ref_count : 0,
        .epoch = in->epoch,
        .seq = in->seq,
    };
    u8 *at = out + RECORD_HEADER_BYTES;
    if (is_put) {
        memcpy(h->summary, c->summary, STORE_SUMMARY_BYTES);
        at = put_bytes(at, BYTES(c->refs, c->ref_count * sizeof(struct extent_ref)));
    }
    at = put_bytes(at, c->key);
    if (is_put) {
        at = put_bytes(at, c->attrs);
        h->payload_crc = crc32c(0, c->payload);
    }
    u32 crc = crc32c(0, BYTES(out, offsetof(struct record_fmt, meta_crc)));
    u8 *meta = out + RECORD_HEADER_BYTES;
    h->meta_crc = crc32c(crc, BYTES(meta, (size_t)(at - meta)));
    if (is_put) {
        at = put_bytes(at, c->payload);
    }
    u8 *end = out + h->frame_bytes;
    ASSERT(at <= end && end - at < (ptrdiff_t)RECORD_ALIGN);
    memset(at, 0, (size_t)(end - at));
}

void record_encode_mark(u64 cookie, u32 batch, u8 *out)
{
    struct store_change nothing = {.is_delete = true};
    struct record_input in = {.type = RECORD_MARK, .group_count = 1, .change = &nothing};
    record_encode(&in, cookie, batch, out);
}

// Lengths within their limits, and the frame exactly as long as they ask for.
static bool lengths_are_sane(const struct record_fmt *h)
{
    if (h->key_bytes > STORE_KEY_BYTES_MAX || h->attrs_bytes > STORE_ATTRS_BYTES_MAX ||
        h->payload_bytes > STORE_INLINE_BYTES_MAX || h->ref_count > STORE_REFS_MAX) {
        return false;
    }
    u64 bytes = frame_bytes_of(h->key_bytes, h->attrs_bytes, h->payload_bytes, h->ref_count);
    return h->frame_bytes == bytes && bytes <= RECORD_FRAME_BYTES_MAX;
}

static bool header_is_sane(const struct record_fmt *h, u64 cookie)
{
    return h->magic == RECORD_MAGIC && h->cookie == cookie && h->version == RECORD_VERSION &&
           h->type >= RECORD_PUT && h->type <= RECORD_MARK && h->batch != 0 &&
           h->group_index < h->group_count && h->group_count <= STORE_BATCH_MAX &&
           lengths_are_sane(h) && (h->type != RECORD_MARK || h->frame_bytes == RECORD_HEADER_BYTES);
}

enum err record_parse(struct bytes b, u64 cookie, struct record_view *out, u32 *need_bytes)
{
    ASSERT((uintptr_t)b.data % RECORD_ALIGN == 0);
    if (b.len < RECORD_HEADER_BYTES) {
        *need_bytes = RECORD_HEADER_BYTES;
        return ERR_END;
    }
    const struct record_fmt *h = (const struct record_fmt *)(const void *)b.data;
    if (!header_is_sane(h, cookie)) {
        return ERR_CORRUPT;
    }
    if (b.len < h->frame_bytes) {
        *need_bytes = h->frame_bytes;
        return ERR_END;
    }
    const u8 *refs = b.data + RECORD_HEADER_BYTES;
    const u8 *key = refs + (size_t)h->ref_count * sizeof(struct extent_ref);
    const u8 *attrs = key + h->key_bytes;
    const u8 *payload = attrs + h->attrs_bytes;
    u32 crc = crc32c(0, BYTES(b.data, offsetof(struct record_fmt, meta_crc)));
    if (crc32c(crc, BYTES(refs, (size_t)(payload - refs))) != h->meta_crc) {
        return ERR_CORRUPT;
    }
    *out = (struct record_view){
        .type = h->type,
        .pg = h->pg,
        .group_index = h->group_index,
        .group_count = h->group_count,
        .batch = h->batch,
        .frame_bytes = h->frame_bytes,
        .epoch = h->epoch,
        .seq = h->seq,
        .summary = h->summary,
        .refs = (const struct extent_ref *)(const void *)refs,
        .ref_count = h->ref_count,
        .key = BYTES(key, h->key_bytes),
        .attrs = BYTES(attrs, h->attrs_bytes),
        .payload = BYTES(payload, h->payload_bytes),
        .payload_crc = h->payload_crc,
    };
    return OK;
}

bool record_payload_is_valid(const struct record_view *v)
{
    // The zeros that pad the frame count as payload: whatever byte flips, the frame is not served.
    const u8 *end = v->payload.data + v->payload.len;
    const u8 *frame_end = (const u8 *)v->refs - RECORD_HEADER_BYTES + v->frame_bytes;
    for (const u8 *at = end; at < frame_end; at++) {
        if (*at != 0) {
            return false;
        }
    }
    return crc32c(0, v->payload) == v->payload_crc;
}
