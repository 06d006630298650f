// SPDX-License-Identifier: Apache-2.0
// Decoding one block. The input may be anything: every offset is checked against the payload before
// it is used, every lane and patch against its bounds, and the result against the block's checksum.
// What does not match is wiped, never handed out.
#include "codec/tensor/tensor_block.h"

#include "base/endian.h"

enum leat_codec_err tensor_block_header_read(const u8 *stored, u64 stored_bytes,
                                             struct tensor_block_header *header)
{
    if (stored_bytes < TENSOR_BLOCK_HEADER_BYTES) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    memcpy(header, stored, sizeof(*header));
    return tensor_header_is_valid(header, stored_bytes) ? LEAT_CODEC_OK : LEAT_CODEC_ERR_FORMAT;
}

// Writes the patches that fall into [first, first + n) over the symbols and returns the number of
// the next one. Patches ascend strictly; one that does not is never reached, so the count betrays
// it.
static u32 patches_apply(const u8 *patches, u32 number, u32 count, u32 first, u32 n, u8 *symbols)
{
    while (number < count) {
        u32 patch = load_le32(patches + (size_t)number * TENSOR_PATCH_BYTES);
        u32 position = patch & 0xffffffu;
        if (position < first || position >= first + n) {
            break;
        }
        symbols[position - first] = (u8)(patch >> 24);
        number++;
    }
    return number;
}

// What the loops over chunks share.
struct decoding {
    const struct tensor_ops *ops;
    struct tensor_block_header header;
    struct tensor_layout layout;
    const u8 *payload;
    u8 *plain;
    u64 sum;
};

// Merges `n` symbols from element `at` on with their rests, and hashes the plain bytes. The tail
// has been copied already and is hashed with the last chunk.
static void chunk_finish(struct decoding *d, u8 *symbols, u32 at, u32 n)
{
    u32 bytes = tensor_element_bytes(d->header.type);
    // The planes are only read here; `struct tensor_planes` serves both directions.
    struct tensor_planes planes = {
        symbols, (u8 *)(uintptr_t)d->payload + d->layout.rest0 + (size_t)at * (bytes / 2),
        (u8 *)(uintptr_t)d->payload + d->layout.rest1 + at};
    u8 *to = d->plain + (size_t)at * bytes;
    d->ops->merge(d->header.type, planes, n, to);
    bool is_last = at + n == d->layout.elements;
    size_t hashed = is_last ? d->header.plain_bytes - (size_t)at * bytes : (size_t)n * bytes;
    d->sum += d->ops->hash(to, hashed, (u64)at * bytes / TENSOR_HASH_TILE_BYTES);
}

static enum leat_codec_err fast_decode(struct decoding *d, u8 *symbols)
{
    const struct tensor_layout *l = &d->layout;
    u32 number = 0;
    for (u32 at = 0; at < l->elements; at += TENSOR_CHUNK_SYMBOLS) {
        u32 n = MIN(l->elements - at, TENSOR_CHUNK_SYMBOLS);
        struct tensor_pack pack = {
            .shift = tensor_palette_shift(d->header.type),
            .first = at,
            .codes = (u8 *)(uintptr_t)d->payload + l->codes + at / 2,
            .low = (u8 *)(uintptr_t)d->payload + l->low + at / 8 * 3,
        };
        d->ops->unpack(&pack, d->payload, n, symbols);
        number =
            patches_apply(d->payload + l->variable, number, d->header.patch_count, at, n, symbols);
        chunk_finish(d, symbols, at, n);
    }
    return number == d->header.patch_count ? LEAT_CODEC_OK : LEAT_CODEC_ERR_FORMAT;
}

// Codes of up to seven bits go into the low table; longer ones share prefixes, numbered as they
// come.
static void vector_table_build(const u16 *codes, struct tensor_decode_table *t)
{
    u32 prefixes = 0;
    t->is_short = true;
    memset(t->low_length, 0, sizeof(t->low_length));
    for (u32 s = 0; s < 256; s++) {
        u32 length = (u32)codes[s] >> 12;
        u32 code = codes[s] & 0xfffu;
        if (length == 0) {
            continue;
        }
        if (length <= 7) {
            for (u32 at = code; at < 128; at += 1u << length) {
                t->low_symbol[at] = (u8)s;
                t->low_length[at] = (u8)length;
            }
            continue;
        }
        u32 prefix = code & 127u;
        if (t->low_length[prefix] == 0) {
            if (prefixes == TENSOR_PREFIXES_MAX) {
                t->is_short = false;
                return;
            }
            t->low_length[prefix] = 0x80;
            t->low_symbol[prefix] = (u8)(prefixes++ * 16);
        }
        for (u32 at = code >> 7; at < 16; at += 1u << (length - 7)) {
            t->high_symbol[t->low_symbol[prefix] + at] = (u8)s;
            t->high_length[t->low_symbol[prefix] + at] = (u8)length;
        }
    }
}

bool tensor_decode_table_build(const u8 *length_table, u32 code_bits,
                               struct tensor_decode_scratch *s)
{
    if (!huffman_is_complete(length_table, code_bits)) {
        return false;
    }
    for (u32 i = 0; i < 256; i++) {
        s->lengths[i] = (u8)tensor_code_length(length_table, i);
    }
    s->table.code_bits = code_bits;
    huffman_codes(s->lengths, s->codes);
    huffman_decode_table(s->codes, code_bits, s->table.entry);
    vector_table_build(s->codes, &s->table);
    return true;
}

static enum leat_codec_err dense_decode(struct decoding *d, struct tensor_decode_scratch *s)
{
    const struct tensor_layout *l = &d->layout;
    if (!tensor_decode_table_build(d->payload, d->header.code_bits, s)) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    const u8 *lengths = d->payload + l->codes;
    u32 total = 0;
    for (u32 lane = 0; lane < l->segments * TENSOR_LANES; lane++) {
        total += load_le16(lengths + 2 * (size_t)lane);
    }
    if (total != d->header.lanes_bytes) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    struct tensor_lanes lanes = {
        .data = d->payload + l->variable, .bytes = l->tail - l->variable, .lengths = lengths};
    for (u32 at = 0; at < l->elements; at += TENSOR_SEGMENT_SYMBOLS) {
        lanes.symbols = MIN(l->elements - at, TENSOR_SEGMENT_SYMBOLS);
        if (!d->ops->decode_lanes(&s->table, lanes, s->symbols)) {
            return LEAT_CODEC_ERR_CORRUPT;
        }
        for (u32 lane = 0; lane < TENSOR_LANES; lane++) {
            lanes.begin += load_le16(lanes.lengths + 2 * (size_t)lane);
        }
        lanes.lengths += TENSOR_SEGMENT_LENGTH_BYTES;
        for (u32 in = 0; in < lanes.symbols; in += TENSOR_CHUNK_SYMBOLS) {
            chunk_finish(d, s->symbols + in, at + in,
                         MIN(lanes.symbols - in, TENSOR_CHUNK_SYMBOLS));
        }
    }
    return LEAT_CODEC_OK;
}

enum leat_codec_err tensor_block_decode(const struct tensor_ops *ops, const u8 *stored,
                                        u64 stored_bytes, u8 *plain, u32 n,
                                        struct tensor_decode_scratch *s)
{
    struct decoding d = {.ops = ops, .payload = stored + TENSOR_BLOCK_HEADER_BYTES, .plain = plain};
    enum leat_codec_err e = tensor_block_header_read(stored, stored_bytes, &d.header);
    if (e == LEAT_CODEC_OK && d.header.plain_bytes != n) {
        e = LEAT_CODEC_ERR_FORMAT;
    }
    if (e == LEAT_CODEC_OK) {
        u32 type = d.header.type;
        u32 tail = n % tensor_element_bytes(type);
        if (d.header.mode == TENSOR_MODE_RAW) {
            memcpy(plain, d.payload, n);
            d.sum = ops->hash(plain, n, 0);
        } else if (d.header.mode == TENSOR_MODE_FAST) {
            tensor_layout_fast(&d.layout, type, n, d.header.patch_count);
            memcpy(plain + n - tail, d.payload + d.layout.tail, tail);
            e = fast_decode(&d, s->symbols);
        } else {
            tensor_layout_dense(&d.layout, type, n, d.header.lanes_bytes);
            memcpy(plain + n - tail, d.payload + d.layout.tail, tail);
            e = dense_decode(&d, s);
        }
    }
    if (e == LEAT_CODEC_OK && tensor_hash_finish(d.sum, n) != d.header.check) {
        e = LEAT_CODEC_ERR_CORRUPT;
    }
    if (e != LEAT_CODEC_OK) {
        memset(plain, 0, n);
    }
    return e;
}
