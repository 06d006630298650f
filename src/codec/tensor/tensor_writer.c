// SPDX-License-Identifier: Apache-2.0
// Writing containers: the streaming encoder, and the whole-buffer call on top of it.
// The encoder lives in memory that the caller brings: itself, one block of input that is not full
// yet, the scratch, and the index, which grows to the size that was announced and leaves last.
#include "codec/tensor/tensor_container.h"

#include "base/assert.h"

#define ENCODER_MAGIC       0x4c54454eu
#define ENCODER_REGIONS_MAX (UINT64_C(1) << 24)

struct leat_codec_encoder {
    u32 magic;
    bool has_header;
    struct leat_codec_options options;
    const struct tensor_ops *ops;
    u64 plain_bytes_max;
    u64 regions_left;
    u64 plain_bytes;  // taken so far, with what is pending
    u64 stored_bytes; // written so far
    u64 block_count;
    u64 blocks_max;
    u32 pending_bytes;
    u8 *pending;
    struct tensor_encode_scratch *scratch;
    struct tensor_index_entry *index;
};

// Where the parts of an encoder's memory lie.
struct encoder_layout {
    u64 pending;
    u64 scratch;
    u64 index;
    u64 end;
    u64 blocks_max;
};

static u64 align64(u64 n)
{
    return ALIGN_UP(n, 64u);
}

// Every region ends with a block that may be short.
static enum leat_codec_err blocks_max(const struct leat_codec_options *o, u64 plain_bytes,
                                      u64 regions, u64 *count)
{
    if (plain_bytes > LEAT_CODEC_PLAIN_BYTES_MAX || regions == 0 || regions > ENCODER_REGIONS_MAX) {
        return LEAT_CODEC_ERR_INVALID;
    }
    *count = MIN(plain_bytes / o->block_bytes + regions, plain_bytes);
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_encode_bound(const struct leat_codec_options *options,
                                            uint64_t plain_bytes, uint64_t regions, uint64_t *bound)
{
    struct leat_codec_options o;
    const struct tensor_ops *ops;
    u64 count;
    CODEC_TRY(tensor_options_resolve(options, &o, &ops));
    CODEC_TRY(blocks_max(&o, plain_bytes, regions, &count));
    *bound = TENSOR_HEADER_BYTES + plain_bytes +
             count * (TENSOR_BLOCK_HEADER_BYTES + TENSOR_ALIGN_BYTES + TENSOR_INDEX_ENTRY_BYTES) +
             TENSOR_FOOTER_BYTES;
    return LEAT_CODEC_OK;
}

static enum leat_codec_err encoder_layout(const struct leat_codec_options *o, u64 plain_bytes_max,
                                          u64 regions, struct encoder_layout *l)
{
    CODEC_TRY(blocks_max(o, plain_bytes_max, regions, &l->blocks_max));
    l->pending = align64(sizeof(struct leat_codec_encoder));
    l->scratch = align64(l->pending + o->block_bytes);
    l->index = align64(l->scratch + leat_codec_encode_scratch_bytes(o->block_bytes));
    l->end = align64(l->index + l->blocks_max * TENSOR_INDEX_ENTRY_BYTES);
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_encoder_bytes(const struct leat_codec_options *options,
                                             uint64_t plain_bytes_max, uint64_t regions_max,
                                             uint64_t *bytes)
{
    struct leat_codec_options o;
    const struct tensor_ops *ops;
    struct encoder_layout l;
    CODEC_TRY(tensor_options_resolve(options, &o, &ops));
    CODEC_TRY(encoder_layout(&o, plain_bytes_max, regions_max, &l));
    *bytes = l.end;
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_encoder_init(const struct leat_codec_options *options,
                                            uint64_t plain_bytes_max, uint64_t regions_max,
                                            void *memory, uint64_t memory_bytes,
                                            struct leat_codec_encoder **encoder)
{
    struct leat_codec_options o;
    const struct tensor_ops *ops;
    struct encoder_layout l;
    CODEC_TRY(tensor_options_resolve(options, &o, &ops));
    CODEC_TRY(encoder_layout(&o, plain_bytes_max, regions_max, &l));
    CODEC_TRY(tensor_scratch_check(memory, memory_bytes, l.end));
    u8 *base = memory;
    struct leat_codec_encoder *e = memory;
    *e = (struct leat_codec_encoder){
        .magic = ENCODER_MAGIC,
        .options = o,
        .ops = ops,
        .plain_bytes_max = plain_bytes_max,
        .regions_left = regions_max - 1,
        .blocks_max = l.blocks_max,
        .pending = base + l.pending,
        .scratch = (struct tensor_encode_scratch *)(void *)(base + l.scratch),
        .index = (struct tensor_index_entry *)(void *)(base + l.index),
    };
    *encoder = e;
    return LEAT_CODEC_OK;
}

// The container's header goes out with the first bytes.
static size_t header_write(struct leat_codec_encoder *e, u8 *out)
{
    if (e->has_header) {
        return 0;
    }
    struct tensor_header h = {.version = TENSOR_VERSION, .block_bytes_max = e->options.block_bytes};
    memcpy(h.magic, TENSOR_MAGIC_HEADER, sizeof(h.magic));
    h.check = tensor_hash(e->ops, &h, offsetof(struct tensor_header, check));
    memcpy(out, &h, sizeof(h));
    e->has_header = true;
    e->stored_bytes = sizeof(h);
    return sizeof(h);
}

// Encodes one block and the zeros up to the next multiple of 16. `plain_offset` is its first
// byte's.
static size_t block_write(struct leat_codec_encoder *e, const u8 *plain, u32 n, u64 plain_offset,
                          u8 *out)
{
    ASSERT(e->block_count < e->blocks_max);
    u32 size =
        tensor_block_encode(e->ops, e->options.type, e->options.mode, plain, n, out, e->scratch);
    u32 padded = tensor_align(size);
    memset(out + size, 0, padded - size);
    e->index[e->block_count++] = (struct tensor_index_entry){plain_offset, e->stored_bytes};
    e->stored_bytes += padded;
    return padded;
}

static size_t pending_write(struct leat_codec_encoder *e, u8 *out)
{
    if (e->pending_bytes == 0) {
        return 0;
    }
    size_t n = block_write(e, e->pending, e->pending_bytes, e->plain_bytes - e->pending_bytes, out);
    e->pending_bytes = 0;
    return n;
}

static size_t block_room(const struct leat_codec_encoder *e)
{
    return (size_t)e->options.block_bytes + TENSOR_BLOCK_HEADER_BYTES + TENSOR_ALIGN_BYTES;
}

size_t leat_codec_encoder_output_bytes_min(const struct leat_codec_encoder *encoder)
{
    ASSERT_MAGIC(encoder, ENCODER_MAGIC);
    return TENSOR_HEADER_BYTES + block_room(encoder);
}

enum leat_codec_err leat_codec_encoder_write(struct leat_codec_encoder *encoder, const void *plain,
                                             size_t n, size_t *consumed, void *out, size_t capacity,
                                             size_t *written)
{
    struct leat_codec_encoder *e = encoder;
    ASSERT_MAGIC(e, ENCODER_MAGIC);
    if (n > e->plain_bytes_max - e->plain_bytes) {
        return LEAT_CODEC_ERR_LIMIT;
    }
    if (capacity < leat_codec_encoder_output_bytes_min(e)) {
        return LEAT_CODEC_ERR_SPACE;
    }
    u8 *to = out;
    size_t used = header_write(e, to);
    size_t taken = 0;
    while (taken < n && capacity - used >= block_room(e)) {
        const u8 *from = (const u8 *)plain + taken;
        size_t left = n - taken;
        if (e->pending_bytes == 0 && left >= e->options.block_bytes) {
            used += block_write(e, from, e->options.block_bytes, e->plain_bytes, to + used);
            e->plain_bytes += e->options.block_bytes;
            taken += e->options.block_bytes;
            continue;
        }
        size_t part = MIN(left, (size_t)(e->options.block_bytes - e->pending_bytes));
        memcpy(e->pending + e->pending_bytes, from, part);
        e->pending_bytes += (u32)part;
        e->plain_bytes += part;
        taken += part;
        if (e->pending_bytes == e->options.block_bytes) {
            used += pending_write(e, to + used);
        }
    }
    *consumed = taken;
    *written = used;
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_encoder_set_type(struct leat_codec_encoder *encoder, uint32_t type,
                                                void *out, size_t capacity, size_t *written)
{
    struct leat_codec_encoder *e = encoder;
    ASSERT_MAGIC(e, ENCODER_MAGIC);
    if (type >= LEAT_CODEC_TYPE_COUNT) {
        return LEAT_CODEC_ERR_INVALID;
    }
    if (capacity < leat_codec_encoder_output_bytes_min(e)) {
        return LEAT_CODEC_ERR_SPACE;
    }
    if (e->plain_bytes != 0) {
        if (e->regions_left == 0) {
            return LEAT_CODEC_ERR_LIMIT;
        }
        e->regions_left--;
    }
    *written = header_write(e, out);
    *written += pending_write(e, (u8 *)out + *written);
    e->options.type = type;
    return LEAT_CODEC_OK;
}

uint64_t leat_codec_encoder_finish_bytes(const struct leat_codec_encoder *encoder)
{
    ASSERT_MAGIC(encoder, ENCODER_MAGIC);
    return leat_codec_encoder_output_bytes_min(encoder) +
           (encoder->block_count + 1) * TENSOR_INDEX_ENTRY_BYTES + TENSOR_FOOTER_BYTES;
}

// Index and footer, once all blocks are out.
static u64 index_write(struct leat_codec_encoder *e, u8 *out)
{
    u64 index_bytes = e->block_count * TENSOR_INDEX_ENTRY_BYTES;
    struct tensor_footer f = {
        .plain_bytes = e->plain_bytes,
        .block_count = e->block_count,
        .index_offset = e->stored_bytes,
        .container_bytes = e->stored_bytes + index_bytes + TENSOR_FOOTER_BYTES,
        .index_check = tensor_hash(e->ops, e->index, index_bytes),
    };
    memcpy(f.magic, TENSOR_MAGIC_FOOTER, sizeof(f.magic));
    f.check = tensor_hash(e->ops, &f, offsetof(struct tensor_footer, check));
    memcpy(out, e->index, index_bytes);
    memcpy(out + index_bytes, &f, sizeof(f));
    return index_bytes + TENSOR_FOOTER_BYTES;
}

enum leat_codec_err leat_codec_encoder_finish(struct leat_codec_encoder *encoder, void *out,
                                              uint64_t capacity, uint64_t *written)
{
    ASSERT_MAGIC(encoder, ENCODER_MAGIC);
    if (capacity < leat_codec_encoder_finish_bytes(encoder)) {
        return LEAT_CODEC_ERR_SPACE;
    }
    u8 *to = out;
    u64 used = header_write(encoder, to);
    used += pending_write(encoder, to + used);
    used += index_write(encoder, to + used);
    encoder->magic = 0;
    *written = used;
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_block_encode(const struct leat_codec_options *options,
                                            const void *plain, size_t n, void *out, size_t capacity,
                                            void *scratch, size_t scratch_bytes, size_t *written)
{
    struct leat_codec_options o;
    const struct tensor_ops *ops;
    CODEC_TRY(tensor_options_resolve(options, &o, &ops));
    if (n == 0 || n > TENSOR_BLOCK_BYTES_MAX) {
        return LEAT_CODEC_ERR_INVALID;
    }
    CODEC_TRY(
        tensor_scratch_check(scratch, scratch_bytes, leat_codec_encode_scratch_bytes((u32)n)));
    if (capacity < n + TENSOR_BLOCK_HEADER_BYTES) {
        return LEAT_CODEC_ERR_SPACE;
    }
    *written = tensor_block_encode(ops, o.type, o.mode, plain, (u32)n, out, scratch);
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_encode(const struct leat_codec_options *options, const void *plain,
                                      uint64_t n, void *out, uint64_t capacity, void *scratch,
                                      size_t scratch_bytes, uint64_t *written)
{
    struct leat_codec_encoder e = {.magic = ENCODER_MAGIC, .scratch = scratch};
    u64 bound;
    CODEC_TRY(leat_codec_encode_bound(options, n, 1, &bound));
    CODEC_TRY(tensor_options_resolve(options, &e.options, &e.ops));
    CODEC_TRY(blocks_max(&e.options, n, 1, &e.blocks_max));
    CODEC_TRY(tensor_scratch_check(scratch, scratch_bytes,
                                   leat_codec_encode_scratch_bytes(e.options.block_bytes)));
    if (capacity < bound) {
        return LEAT_CODEC_ERR_SPACE;
    }
    // The index gathers in the last bytes that the bound leaves, which no block can reach, and
    // moves down at the end; entries are copied there, because the caller's buffer need not be
    // aligned.
    u8 *to = out;
    u64 index_bytes = e.blocks_max * TENSOR_INDEX_ENTRY_BYTES;
    u8 *index = to + bound - TENSOR_FOOTER_BYTES - index_bytes;
    u64 used = header_write(&e, to);
    struct tensor_index_entry entry;
    e.index = &entry;
    for (u64 block = 0; e.plain_bytes < n; block++) {
        u32 part = (u32)MIN(n - e.plain_bytes, (u64)e.options.block_bytes);
        e.block_count = 0;
        used += block_write(&e, (const u8 *)plain + e.plain_bytes, part, e.plain_bytes, to + used);
        memcpy(index + block * TENSOR_INDEX_ENTRY_BYTES, &entry, sizeof(entry));
        e.plain_bytes += part;
        e.block_count = block + 1;
    }
    u64 blocks_bytes = e.block_count * TENSOR_INDEX_ENTRY_BYTES;
    memmove(to + used, index, blocks_bytes);
    struct tensor_footer f = {
        .plain_bytes = n,
        .block_count = e.block_count,
        .index_offset = used,
        .container_bytes = used + blocks_bytes + TENSOR_FOOTER_BYTES,
        .index_check = tensor_hash(e.ops, to + used, blocks_bytes),
    };
    memcpy(f.magic, TENSOR_MAGIC_FOOTER, sizeof(f.magic));
    f.check = tensor_hash(e.ops, &f, offsetof(struct tensor_footer, check));
    memcpy(to + used + blocks_bytes, &f, sizeof(f));
    *written = f.container_bytes;
    return LEAT_CODEC_OK;
}
