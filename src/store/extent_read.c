// SPDX-License-Identifier: Apache-2.0
// Reading extents: only the 4 KiB blocks that a range touches are read and verified. Their
// checksums stand in the extent's header block, which stays in the cache once it was read, so that
// a small range costs two drive reads at first and one later. Ranges near the header, and large
// ones, come with the header in one read.
//
// The cache takes 64 KiB pieces of extents. A piece gets in when its neighbourhood is read a second
// time within a short memory: a scan over large objects leaves no trace there.
#include "store/extent_store.h"

#include "base/log.h"
#include "core/fileio.h"
#include "core/metrics.h"
#include "store/shard.h"

#define PIECE_BYTES       ((u32)(64 * KIB))
#define PIECE_BLOCKS      (PIECE_BYTES / EXTENT_BLOCK_BYTES)
#define NEAR_HEADER_BYTES ((u32)(60 * KIB))

void segment_reader_enter(struct shard_drive *sd, u32 segment)
{
    sd->readers[segment]++;
}

void segment_reader_leave(struct shard_drive *sd, u32 segment)
{
    ASSERT(sd->readers[segment] > 0);
    if (--sd->readers[segment] == 0) {
        wait_queue_wake_all(&sd->reader_gone);
    }
}

// A read in progress: where, and how the cache calls it.
struct extent_reading {
    struct shard_drive *sd;
    const struct extent_name *name;
    int fd;
    u64 frame; // offset of the frame in the segment
    u32 data_bytes;
    u64 cookie;
    u64 key0;
    u64 generation;
};

static struct extent_reading reading_begin(struct shard_drive *sd, const struct extent_name *name,
                                           const struct extent_location *at)
{
    const struct segment *seg = drive_segment(sd->drive, at->segment);
    segment_reader_enter(sd, at->segment);
    return (struct extent_reading){
        .sd = sd,
        .name = name,
        .fd = seg->fd,
        .frame = (u64)at->offset_blocks * EXTENT_BLOCK_BYTES,
        .data_bytes = at->data_bytes,
        .cookie = seg->cookie,
        .key0 = (u64)sd->drive->super.drive_index << 32 | at->segment,
        .generation = seg->generation,
    };
}

static u64 key1_of(const struct extent_reading *r, u64 offset)
{
    return r->generation << 32 | offset / EXTENT_BLOCK_BYTES;
}

static enum err damaged(const struct extent_reading *r)
{
    metric_add(METRIC_STORE_CORRUPT, 1);
    LOG_ERROR("extent_damaged", "drive=%s segment=%u offset=%llu object=%016llx chunk=%u",
              r->sd->drive->path, (u32)r->key0, (unsigned long long)r->frame,
              (unsigned long long)r->name->object_id, r->name->chunk);
    return ERR_CORRUPT;
}

MAY_WAIT static enum err blocks_read(const struct extent_reading *r, void *to, u64 offset,
                                     size_t bytes)
{
    enum err e = fileio_read(r->fd, to, bytes, offset);
    if (e != OK) {
        LOG_ERROR("extent_read", "drive=%s segment=%u error=%s", r->sd->drive->path, (u32)r->key0,
                  err_name(e));
        return ERR_IO;
    }
    return OK;
}

// Verifies a header block and keeps its checksums in the cache.
static enum err header_accept(const struct extent_reading *r, const u8 *block)
{
    const struct extent_fmt *h = extent_parse(block, r->cookie);
    if (h == NULL || h->object_id != r->name->object_id || h->chunk != r->name->chunk ||
        h->data_bytes != r->data_bytes) {
        return damaged(r);
    }
    struct cache *cache = r->sd->shard->cache;
    struct cache_entry *e =
        cache_insert_copy(cache, r->key0, key1_of(r, r->frame), h->crcs,
                          extent_blocks(h->data_bytes) * (u32)sizeof(h->crcs[0]));
    if (e != NULL) {
        cache_unpin(cache, e);
    }
    return OK;
}

static enum err data_accept(const struct extent_reading *r, const u32 *crcs, u32 first, u32 count,
                            const u8 *data)
{
    return extent_blocks_are_valid(crcs, first, count, data) ? OK : damaged(r);
}

// Header and data in one read, from the frame's start through block `end`.
MAY_WAIT static enum err read_with_header(const struct extent_reading *r, u32 first, u32 end,
                                          struct buf **out, u32 *out_offset)
{
    struct buf *b;
    size_t bytes = (size_t)(end + 1) * EXTENT_BLOCK_BYTES;
    TRY(buf_get_wait(bytes, &b));
    enum err e = blocks_read(r, b->data, r->frame, bytes);
    if (e == OK) {
        e = header_accept(r, b->data);
    }
    if (e == OK) {
        const struct extent_fmt *h = (const struct extent_fmt *)(const void *)b->data;
        e = data_accept(r, h->crcs, first, end - first,
                        b->data + (size_t)(first + 1) * EXTENT_BLOCK_BYTES);
    }
    if (e != OK) {
        buf_put(b);
        return e;
    }
    *out = b;
    *out_offset = (first + 1) * EXTENT_BLOCK_BYTES;
    return OK;
}

// The data blocks alone, checked against checksums from the cache or from the header.
MAY_WAIT static enum err read_beside_header(const struct extent_reading *r, u32 first, u32 end,
                                            struct buf **out)
{
    struct cache *cache = r->sd->shard->cache;
    struct buf *b;
    struct buf *header = NULL;
    TRY(buf_get_wait((size_t)(end - first) * EXTENT_BLOCK_BYTES, &b));
    struct cache_entry *cached = cache_get(cache, r->key0, key1_of(r, r->frame));
    const u32 *crcs = cached == NULL ? NULL : (const u32 *)(const void *)cached->data;
    enum err e = OK;
    if (crcs == NULL) {
        e = buf_get_wait(EXTENT_BLOCK_BYTES, &header);
        if (e == OK) {
            e = blocks_read(r, header->data, r->frame, EXTENT_BLOCK_BYTES);
        }
        if (e == OK) {
            e = header_accept(r, header->data);
        }
        crcs = header == NULL ? NULL : ((const struct extent_fmt *)(void *)header->data)->crcs;
    }
    if (e == OK) {
        e = blocks_read(r, b->data, r->frame + (u64)(first + 1) * EXTENT_BLOCK_BYTES,
                        (size_t)(end - first) * EXTENT_BLOCK_BYTES);
    }
    if (e == OK) {
        e = data_accept(r, crcs, first, end - first, b->data);
    }
    if (cached != NULL) {
        cache_unpin(cache, cached);
    }
    buf_put(header);
    if (e != OK) {
        buf_put(b);
        return e;
    }
    *out = b;
    return OK;
}

MAY_WAIT static enum err blocks_fetch(const struct extent_reading *r, u32 first, u32 end,
                                      struct buf **out, u32 *out_offset)
{
    bool is_large = (u64)(end - first) * 2 >= extent_blocks(r->data_bytes);
    bool is_near = first * EXTENT_BLOCK_BYTES <= NEAR_HEADER_BYTES;
    bool has_header = false;
    if (!is_large || !is_near) {
        struct cache *cache = r->sd->shard->cache;
        struct cache_entry *e = cache_get(cache, r->key0, key1_of(r, r->frame));
        has_header = e != NULL;
        if (e != NULL) {
            cache_unpin(cache, e);
        }
    }
    if (!has_header && (is_large || is_near)) {
        return read_with_header(r, first, end, out, out_offset);
    }
    *out_offset = 0;
    return read_beside_header(r, first, end, out);
}

// Was this piece read lately? Remembers it for the next time.
static bool piece_was_seen(struct shard *sh, u64 key0, u64 key1)
{
    u64 name = (key0 * 0x9e3779b97f4a7c15ull) ^ (key1 * 0xbf58476d1ce4e5b9ull);
    name |= 1; // 0 is an empty slot
    u64 *slot = &sh->pieces_seen[(name >> 32) & (SHARD_PIECES_SEEN - 1)];
    bool was_seen = *slot == name;
    *slot = name;
    return was_seen;
}

static void release_buf(void *value)
{
    buf_put(value);
}

// A range within one piece: from the cache, or read so that the cache has it next time.
MAY_WAIT static enum err piece_read(const struct extent_reading *r, u32 offset, u32 len,
                                    struct buf **out, u32 *out_offset)
{
    struct shard *sh = r->sd->shard;
    u32 piece = offset / PIECE_BYTES;
    u32 first = piece * PIECE_BLOCKS;
    u32 end = MIN(first + PIECE_BLOCKS, extent_blocks(r->data_bytes));
    u64 key1 = key1_of(r, r->frame + (u64)(first + 1) * EXTENT_BLOCK_BYTES);
    struct cache_entry *e = cache_get(sh->cache, r->key0, key1);
    if (e != NULL) {
        metric_add(METRIC_STORE_CACHE_HITS, 1);
        *out = e->value;
        buf_ref(*out);
        *out_offset = (u32)(e->data - (*out)->data) + (offset - piece * PIECE_BYTES);
        cache_unpin(sh->cache, e);
        return OK;
    }
    metric_add(METRIC_STORE_CACHE_MISSES, 1);
    if (!piece_was_seen(sh, r->key0, key1)) {
        metric_add(METRIC_STORE_READS_DIRECT, 1);
        u32 block = offset / EXTENT_BLOCK_BYTES;
        TRY(blocks_fetch(r, block, (offset + len - 1) / EXTENT_BLOCK_BYTES + 1, out, out_offset));
        *out_offset += offset - block * EXTENT_BLOCK_BYTES;
        return OK;
    }
    metric_add(METRIC_STORE_READS_FILL, 1);
    struct buf *b;
    TRY(read_beside_header(r, first, end, &b));
    buf_ref(b);
    struct cache_item item = {.key = {r->key0, key1},
                              .data = b->data,
                              .data_bytes = (end - first) * EXTENT_BLOCK_BYTES,
                              .memory_bytes = b->capacity_bytes,
                              .value = b,
                              .release = release_buf};
    e = cache_insert(sh->cache, &item);
    if (e != NULL) {
        cache_unpin(sh->cache, e);
    } else {
        buf_put(b);
    }
    *out = b;
    *out_offset = offset - piece * PIECE_BYTES;
    return OK;
}

MAY_WAIT enum err extent_read(struct shard_drive *sd, const struct extent_name *name,
                              const struct extent_location *at, u32 offset, u32 len,
                              struct buf **out, u32 *out_offset)
{
    if (len == 0 || offset >= at->data_bytes || len > at->data_bytes - offset) {
        return ERR_INVALID;
    }
    u32 segment = at->segment;
    struct extent_reading r = reading_begin(sd, name, at);
    enum err e;
    if (offset / PIECE_BYTES == (offset + len - 1) / PIECE_BYTES) {
        e = piece_read(&r, offset, len, out, out_offset);
    } else {
        metric_add(METRIC_STORE_READS_DIRECT, 1);
        u32 block = offset / EXTENT_BLOCK_BYTES;
        e = blocks_fetch(&r, block, (offset + len - 1) / EXTENT_BLOCK_BYTES + 1, out, out_offset);
        if (e == OK) {
            *out_offset += offset - block * EXTENT_BLOCK_BYTES;
        }
    }
    segment_reader_leave(sd, segment);
    return e;
}

MAY_WAIT enum err extent_read_frame(struct shard_drive *sd, const struct extent_name *name,
                                    const struct extent_location *at, struct buf **out)
{
    u32 segment = at->segment;
    struct extent_reading r = reading_begin(sd, name, at);
    u32 data_offset;
    enum err e = read_with_header(&r, 0, extent_blocks(at->data_bytes), out, &data_offset);
    segment_reader_leave(sd, segment);
    return e;
}
