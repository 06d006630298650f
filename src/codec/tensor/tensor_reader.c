// SPDX-License-Identifier: Apache-2.0
// Reading containers: footer, index, whole and ranges. Nothing is believed before its checksum has
// been compared; the index's offsets are checked to ascend and to stay inside the container.
#include "codec/tensor/tensor_container.h"

#include "base/endian.h"

static enum leat_codec_err loops_get(u32 cpu, const struct tensor_ops **ops)
{
    if (cpu > LEAT_CODEC_CPU_AVX512) {
        return LEAT_CODEC_ERR_INVALID;
    }
    *ops = tensor_ops_get(cpu);
    return *ops == NULL ? LEAT_CODEC_ERR_UNAVAILABLE : LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_footer_parse(const void *footer, uint64_t container_bytes,
                                            struct leat_codec_info *info)
{
    struct tensor_footer f;
    const struct tensor_ops *ops;
    CODEC_TRY(loops_get(LEAT_CODEC_CPU_AUTO, &ops));
    if (container_bytes < TENSOR_HEADER_BYTES + TENSOR_FOOTER_BYTES) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    memcpy(&f, footer, sizeof(f));
    if (memcmp(f.magic, TENSOR_MAGIC_FOOTER, sizeof(f.magic)) != 0 ||
        f.check != tensor_hash(ops, footer, offsetof(struct tensor_footer, check)) ||
        f.reserved != 0 || f.container_bytes != container_bytes ||
        f.plain_bytes > LEAT_CODEC_PLAIN_BYTES_MAX) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    u64 room = container_bytes - TENSOR_HEADER_BYTES - TENSOR_FOOTER_BYTES;
    if (f.block_count > room / (TENSOR_INDEX_ENTRY_BYTES + TENSOR_BLOCK_HEADER_BYTES) ||
        f.index_offset + f.block_count * TENSOR_INDEX_ENTRY_BYTES !=
            container_bytes - TENSOR_FOOTER_BYTES ||
        f.index_offset % TENSOR_ALIGN_BYTES != 0 || (f.block_count == 0) != (f.plain_bytes == 0)) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    *info = (struct leat_codec_info){.plain_bytes = f.plain_bytes,
                                     .container_bytes = f.container_bytes,
                                     .block_count = f.block_count,
                                     .index_offset = f.index_offset,
                                     .block_bytes_max = TENSOR_BLOCK_BYTES_MAX,
                                     .version = TENSOR_VERSION};
    return LEAT_CODEC_OK;
}

// Entry number `block`; the one after the last says where everything ends.
static struct tensor_index_entry entry_get(const u8 *index, const struct leat_codec_info *info,
                                           u64 block)
{
    struct tensor_index_entry entry = {info->plain_bytes, info->index_offset};
    if (block < info->block_count) {
        memcpy(&entry, index + block * TENSOR_INDEX_ENTRY_BYTES, sizeof(entry));
    }
    return entry;
}

enum leat_codec_err leat_codec_index_check(const void *footer, const void *index,
                                           const struct leat_codec_info *info)
{
    const struct tensor_ops *ops;
    CODEC_TRY(loops_get(LEAT_CODEC_CPU_AUTO, &ops));
    u64 check = load_le64((const u8 *)footer + offsetof(struct tensor_footer, index_check));
    if (check != tensor_hash(ops, index, info->block_count * TENSOR_INDEX_ENTRY_BYTES)) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    u64 plain = 0;
    u64 stored = TENSOR_HEADER_BYTES;
    for (u64 i = 0; i < info->block_count; i++) {
        struct tensor_index_entry entry = entry_get(index, info, i);
        struct tensor_index_entry next = entry_get(index, info, i + 1);
        if (entry.plain_offset != plain || entry.stored_offset != stored ||
            next.plain_offset <= plain || next.plain_offset - plain > info->block_bytes_max ||
            next.stored_offset < stored + TENSOR_BLOCK_HEADER_BYTES ||
            next.stored_offset % TENSOR_ALIGN_BYTES != 0 ||
            next.stored_offset > info->index_offset) {
            return LEAT_CODEC_ERR_FORMAT;
        }
        plain = next.plain_offset;
        stored = next.stored_offset;
    }
    bool is_whole = plain == info->plain_bytes && stored == info->index_offset;
    return is_whole ? LEAT_CODEC_OK : LEAT_CODEC_ERR_FORMAT;
}

enum leat_codec_err leat_codec_index_entry(const void *index, const struct leat_codec_info *info,
                                           uint64_t block, struct leat_codec_block_info *out)
{
    if (block >= info->block_count) {
        return LEAT_CODEC_ERR_INVALID;
    }
    struct tensor_index_entry entry = entry_get(index, info, block);
    struct tensor_index_entry next = entry_get(index, info, block + 1);
    *out = (struct leat_codec_block_info){
        .plain_offset = entry.plain_offset,
        .stored_offset = entry.stored_offset,
        .plain_bytes = (u32)(next.plain_offset - entry.plain_offset),
        .stored_bytes = (u32)(next.stored_offset - entry.stored_offset)};
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_index_find(const void *index, const struct leat_codec_info *info,
                                          uint64_t offset, uint64_t *block)
{
    if (offset >= info->plain_bytes) {
        return LEAT_CODEC_ERR_RANGE;
    }
    u64 low = 0;
    u64 high = info->block_count;
    while (high - low > 1) {
        u64 middle = low + (high - low) / 2;
        if (entry_get(index, info, middle).plain_offset <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *block = low;
    return LEAT_CODEC_OK;
}

// Checks the frame of a container in memory and finds its index.
static enum leat_codec_err container_open(const u8 *container, u64 n, struct leat_codec_info *info,
                                          const u8 **index)
{
    struct tensor_header header;
    const struct tensor_ops *ops;
    CODEC_TRY(loops_get(LEAT_CODEC_CPU_AUTO, &ops));
    if (n < TENSOR_HEADER_BYTES + TENSOR_FOOTER_BYTES) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    memcpy(&header, container, sizeof(header));
    if (memcmp(header.magic, TENSOR_MAGIC_HEADER, sizeof(header.magic)) != 0 ||
        header.check != tensor_hash(ops, container, offsetof(struct tensor_header, check))) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    if (header.version != TENSOR_VERSION || header.flags != 0 || header.reserved != 0) {
        return LEAT_CODEC_ERR_VERSION;
    }
    if (header.block_bytes_max < TENSOR_BLOCK_BYTES_MIN ||
        header.block_bytes_max > TENSOR_BLOCK_BYTES_MAX) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    const u8 *footer = container + n - TENSOR_FOOTER_BYTES;
    CODEC_TRY(leat_codec_footer_parse(footer, n, info));
    info->block_bytes_max = header.block_bytes_max;
    *index = container + info->index_offset;
    return leat_codec_index_check(footer, *index, info);
}

enum leat_codec_err leat_codec_reader_open(const void *container, uint64_t n,
                                           struct leat_codec_reader *reader)
{
    const u8 *index;
    struct leat_codec_info info;
    CODEC_TRY(container_open(container, n, &info, &index));
    *reader = (struct leat_codec_reader){container, index, info};
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_info_read(const void *container, uint64_t n,
                                         struct leat_codec_info *info)
{
    struct leat_codec_reader reader;
    CODEC_TRY(leat_codec_reader_open(container, n, &reader));
    *info = reader.info;
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_block_info_read(const void *container, uint64_t n, uint64_t block,
                                               struct leat_codec_block_info *info)
{
    struct leat_codec_reader reader;
    CODEC_TRY(leat_codec_reader_open(container, n, &reader));
    return leat_codec_reader_block_info(&reader, block, info);
}

enum leat_codec_err leat_codec_reader_block_info(const struct leat_codec_reader *reader,
                                                 uint64_t block, struct leat_codec_block_info *info)
{
    struct leat_codec_block_info found;
    struct tensor_block_header header;
    CODEC_TRY(leat_codec_index_entry(reader->index, &reader->info, block, &found));
    CODEC_TRY(tensor_block_header_read((const u8 *)reader->container + found.stored_offset,
                                       found.stored_bytes, &header));
    if (header.plain_bytes != found.plain_bytes) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    found.stored_bytes = TENSOR_BLOCK_HEADER_BYTES + header.payload_bytes;
    found.type = header.type;
    found.mode = header.mode;
    found.patch_count = header.patch_count;
    found.code_bits = header.code_bits;
    *info = found;
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_block_decode(const void *stored, size_t stored_bytes, void *plain,
                                            size_t plain_bytes, void *scratch, size_t scratch_bytes,
                                            uint32_t cpu)
{
    const struct tensor_ops *ops;
    CODEC_TRY(loops_get(cpu, &ops));
    CODEC_TRY(tensor_scratch_check(scratch, scratch_bytes, sizeof(struct tensor_decode_scratch)));
    if (plain_bytes == 0 || plain_bytes > TENSOR_BLOCK_BYTES_MAX) {
        return LEAT_CODEC_ERR_INVALID;
    }
    return tensor_block_decode(ops, stored, stored_bytes, plain, (u32)plain_bytes, scratch);
}

// Decodes the part of one block that lies in [from, to) of the plain bytes: straight into `out`
// when that is all of it, else through the scratch. `out` stands for plain byte `from`.
static enum leat_codec_err block_decode_part(const struct tensor_ops *ops, const u8 *container,
                                             const struct leat_codec_block_info *b, u64 from,
                                             u64 to, u8 *out, struct tensor_decode_scratch *s)
{
    u64 begin = MAX(from, b->plain_offset);
    u64 end = MIN(to, b->plain_offset + b->plain_bytes);
    const u8 *stored = container + b->stored_offset;
    u8 *part = out + (begin - from);
    if (end - begin == b->plain_bytes) {
        return tensor_block_decode(ops, stored, b->stored_bytes, part, b->plain_bytes, s);
    }
    CODEC_TRY(tensor_block_decode(ops, stored, b->stored_bytes, s->plain, b->plain_bytes, s));
    memcpy(part, s->plain + (begin - b->plain_offset), end - begin);
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_decode_range(const void *container, uint64_t n,
                                            struct leat_codec_range range, void *out, void *scratch,
                                            size_t scratch_bytes, uint32_t cpu)
{
    struct leat_codec_reader reader;
    CODEC_TRY(leat_codec_reader_open(container, n, &reader));
    return leat_codec_reader_decode_range(&reader, range, out, scratch, scratch_bytes, cpu);
}

enum leat_codec_err leat_codec_reader_decode_range(const struct leat_codec_reader *reader,
                                                   struct leat_codec_range range, void *out,
                                                   void *scratch, size_t scratch_bytes,
                                                   uint32_t cpu)
{
    const struct tensor_ops *ops;
    const struct leat_codec_info *info = &reader->info;
    u64 block = 0;
    CODEC_TRY(loops_get(cpu, &ops));
    CODEC_TRY(tensor_scratch_check(scratch, scratch_bytes,
                                   leat_codec_decode_scratch_bytes(info->block_bytes_max)));
    if (range.offset > info->plain_bytes || range.length > info->plain_bytes - range.offset) {
        return LEAT_CODEC_ERR_RANGE;
    }
    if (range.length == 0) {
        return LEAT_CODEC_OK;
    }
    u64 to = range.offset + range.length;
    CODEC_TRY(leat_codec_index_find(reader->index, info, range.offset, &block));
    for (; block < info->block_count; block++) {
        struct leat_codec_block_info b;
        CODEC_TRY(leat_codec_index_entry(reader->index, info, block, &b));
        if (b.plain_offset >= to) {
            break;
        }
        enum leat_codec_err e =
            block_decode_part(ops, reader->container, &b, range.offset, to, out, scratch);
        if (e != LEAT_CODEC_OK) {
            memset(out, 0, range.length);
            return e;
        }
    }
    return LEAT_CODEC_OK;
}

enum leat_codec_err leat_codec_decode(const void *container, uint64_t n, void *plain,
                                      uint64_t capacity, void *scratch, size_t scratch_bytes,
                                      uint32_t cpu, uint64_t *written)
{
    struct leat_codec_reader reader;
    CODEC_TRY(leat_codec_reader_open(container, n, &reader));
    u64 plain_bytes = reader.info.plain_bytes;
    if (capacity < plain_bytes) {
        return LEAT_CODEC_ERR_SPACE;
    }
    struct leat_codec_range all = {0, plain_bytes};
    CODEC_TRY(leat_codec_reader_decode_range(&reader, all, plain, scratch, scratch_bytes, cpu));
    *written = plain_bytes;
    return LEAT_CODEC_OK;
}
