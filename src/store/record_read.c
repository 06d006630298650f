// SPDX-License-Identifier: Apache-2.0
// One drive read brings header, attributes and payload together. Small records fill the cache with
// a copy of their exact size; large ones bypass it.
#include "store/record_read.h"

#include "base/log.h"
#include "core/fileio.h"
#include "core/metrics.h"
#include "store/shard.h"

#define RECORD_WINDOW_BYTES     (256 * KIB)
#define RECORD_CACHED_BYTES_MAX ((u32)(STORE_INLINE_BYTES_MAX + 8 * KIB))

static u64 cache_key0(const struct shard_drive *sd, const struct index_location *at)
{
    return (u64)sd->drive->super.drive_index << 32 | at->segment;
}

static u64 cache_key1(const struct shard_drive *sd, const struct index_location *at)
{
    return drive_segment(sd->drive, at->segment)->generation << 32 | at->offset_units;
}

bool record_read_cached(struct shard_drive *sd, const struct index_location *at,
                        struct record_bytes *out)
{
    struct cache *cache = sd->shard->cache;
    struct cache_entry *e = cache_get(cache, cache_key0(sd, at), cache_key1(sd, at));
    if (e == NULL) {
        return false;
    }
    u32 need;
    u64 cookie = drive_segment(sd->drive, at->segment)->cookie;
    enum err err = record_parse(BYTES(e->data, e->data_bytes), cookie, &out->view, &need);
    if (err != OK) { // memory went bad
        cache_unpin(cache, e);
        cache_remove(cache, cache_key0(sd, at), cache_key1(sd, at));
        metric_add(METRIC_STORE_CORRUPT, 1);
        return false;
    }
    out->buf = NULL;
    out->cached = e;
    metric_add(METRIC_STORE_CACHE_HITS, 1);
    return true;
}

static enum err record_verify(struct shard_drive *sd, const struct index_location *at,
                              struct bytes frame, struct record_view *v)
{
    u32 need;
    u64 cookie = drive_segment(sd->drive, at->segment)->cookie;
    enum err e = record_parse(frame, cookie, v, &need);
    bool is_whole = e == OK && v->type != RECORD_MARK && v->frame_bytes == at->bytes;
    if (is_whole && record_payload_is_valid(v)) {
        return OK;
    }
    metric_add(METRIC_STORE_CORRUPT, 1);
    LOG_ERROR("record_damaged", "drive=%s segment=%u offset=%llu bytes=%u", sd->drive->path,
              at->segment, (unsigned long long)at->offset_units * RECORD_ALIGN, at->bytes);
    return ERR_CORRUPT;
}

MAY_WAIT static enum err record_read_drive(struct shard_drive *sd, const struct index_location *at,
                                           struct record_bytes *out)
{
    u64 offset = (u64)at->offset_units * RECORD_ALIGN;
    u64 start = ALIGN_DOWN(offset, SEGMENT_BLOCK_BYTES);
    u64 end = ALIGN_UP(offset + at->bytes, SEGMENT_BLOCK_BYTES);
    ASSERT(at->bytes <= RECORD_FRAME_BYTES_MAX && end <= sd->drive->segment_bytes);
    u32 segment = at->segment;
    struct buf *b;
    // From here on the segment must not be reused under the read.
    segment_reader_enter(sd, segment);
    enum err e = buf_get_wait(end - start, &b);
    if (e == OK) {
        e = fileio_read(drive_segment(sd->drive, segment)->fd, b->data, end - start, start);
        if (e == OK) {
            e = record_verify(sd, at, BYTES(b->data + (offset - start), at->bytes), &out->view);
        } else {
            LOG_ERROR("record_read", "drive=%s segment=%u error=%s", sd->drive->path, segment,
                      err_name(e));
            e = ERR_IO;
        }
        if (e == OK) {
            out->buf = b;
            out->cached = NULL;
        } else {
            buf_put(b);
        }
    }
    segment_reader_leave(sd, segment);
    return e;
}

// Reads on until the window's end; the caller asks for neighbours next.
MAY_WAIT static enum err window_fill(struct shard_drive *sd, u32 segment, u64 start, u64 end,
                                     struct record_window *w)
{
    buf_put(w->buf);
    *w = (struct record_window){0};
    u64 segment_bytes = sd->drive->segment_bytes;
    end = MIN(MAX(end, start + RECORD_WINDOW_BYTES), segment_bytes);
    TRY(buf_get_wait(end - start, &w->buf));
    enum err e =
        fileio_read(drive_segment(sd->drive, segment)->fd, w->buf->data, end - start, start);
    if (e != OK) {
        LOG_ERROR("record_read", "drive=%s segment=%u error=%s", sd->drive->path, segment,
                  err_name(e));
        return ERR_IO; // the buffer stays in the window, which covers nothing
    }
    w->segment = segment;
    w->start = start;
    w->end = end;
    return OK;
}

MAY_WAIT enum err record_read_window(struct shard_drive *sd, const struct index_location *at,
                                     struct record_window *w, struct record_bytes *out)
{
    u64 offset = (u64)at->offset_units * RECORD_ALIGN;
    u64 start = ALIGN_DOWN(offset, SEGMENT_BLOCK_BYTES);
    u64 end = ALIGN_UP(offset + at->bytes, SEGMENT_BLOCK_BYTES);
    ASSERT(at->bytes <= RECORD_FRAME_BYTES_MAX && end <= sd->drive->segment_bytes);
    if (w->buf == NULL || w->segment != at->segment || start < w->start || end > w->end) {
        TRY(window_fill(sd, at->segment, start, end, w));
    }
    TRY(record_verify(sd, at, BYTES(w->buf->data + (offset - w->start), at->bytes), &out->view));
    buf_ref(w->buf);
    out->buf = w->buf;
    out->cached = NULL;
    return OK;
}

MAY_WAIT enum err record_read(struct shard_drive *sd, const struct index_location *at,
                              struct record_bytes *out)
{
    if (record_read_cached(sd, at, out)) {
        return OK;
    }
    metric_add(METRIC_STORE_CACHE_MISSES, 1);
    struct index_location here = *at;
    u64 key1 = cache_key1(sd, &here); // before the wait: the segment may change its generation
    TRY(record_read_drive(sd, &here, out));
    bool is_small = here.bytes <= RECORD_CACHED_BYTES_MAX;
    metric_add(is_small ? METRIC_STORE_READS_FILL : METRIC_STORE_READS_DIRECT, 1);
    if (!is_small) {
        return OK;
    }
    const u8 *frame = (const u8 *)out->view.refs - RECORD_HEADER_BYTES;
    struct cache *cache = sd->shard->cache;
    struct cache_entry *entry =
        cache_insert_copy(cache, cache_key0(sd, &here), key1, frame, here.bytes);
    if (entry != NULL) {
        cache_unpin(cache, entry);
    }
    return OK;
}

void record_bytes_release(struct shard *sh, struct record_bytes *rb)
{
    buf_put(rb->buf);
    if (rb->cached != NULL) {
        cache_unpin(sh->cache, rb->cached);
    }
    *rb = (struct record_bytes){0};
}
