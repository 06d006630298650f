// SPDX-License-Identifier: Apache-2.0
// Scanning a segment frame by frame. Where no valid frame stands, the scan goes on at the next 4
// KiB boundary, so that a damaged record loses only itself; where the drive cannot read a block,
// only that block is missing. Frames of the newest commit seen so far wait in `pending`, because
// whether they count depends on whether a later commit turns up.
#include "store/segment_scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/fileio.h"
#include "core/metrics.h"

#define SCAN_WINDOW_BYTES ((u32)BUF_BYTES_MAX)

// A frame of the newest commit.
struct pending_frame {
    u32 offset;
    u32 bytes;
    u16 group_index;
    u16 group_count;
    bool is_intact; // its payload is, too
    bool is_whole;  // its group is complete and intact
};

struct scan {
    struct drive *drive;
    const struct segment *seg;
    struct buf *window;
    u32 window_at;
    u32 window_bytes;
    struct footer *out;
    // the newest commit
    struct footer held; // its entries, not yet in `out`
    struct pending_frame *frames;
    u32 frame_count;
    u32 frame_capacity;
    u32 batch;
    bool is_gap_dirty; // something that is no frame and not zero was skipped since the last frame
};

// Reads block by block what could not be read at once. A block that the drive cannot read becomes
// bytes that are no frame.
MAY_WAIT static enum err window_read_blocks(struct scan *s, u32 start, u32 len)
{
    u32 unreadable = 0;
    for (u32 at = 0; at < len; at += SEGMENT_BLOCK_BYTES) {
        u8 *block = s->window->data + at;
        enum err e = fileio_read(s->seg->fd, block, SEGMENT_BLOCK_BYTES, start + at);
        if (e == ERR_IO) {
            memset(block, 0xff, SEGMENT_BLOCK_BYTES);
            unreadable++;
        } else if (e != OK) {
            return e;
        }
    }
    if (unreadable > 0) {
        LOG_ERROR("segment_unreadable", "drive=%s segment=%u offset=%u bytes=%u blocks=%u",
                  s->drive->path, s->seg->id, start, len, unreadable);
        s->out->is_suspect = true;
        // Which keys stood there nobody knows. An extent that is missing is known by its record.
        s->out->lost += s->seg->kind == SEGMENT_LOG ? unreadable : 0;
    }
    return OK;
}

// Makes [at, at + bytes) available, as far as the segment goes.
MAY_WAIT static enum err window_move(struct scan *s, u32 at, u32 bytes, u32 window_bytes)
{
    u32 end = s->drive->segment_bytes;
    bytes = MIN(bytes, end - at);
    if (at >= s->window_at && at + bytes <= s->window_at + s->window_bytes) {
        return OK;
    }
    u32 start = ALIGN_DOWN(at, SEGMENT_BLOCK_BYTES);
    u32 len =
        MIN(MAX(window_bytes, ALIGN_UP(at + bytes - start, SEGMENT_BLOCK_BYTES)), end - start);
    ASSERT(len <= s->window->capacity_bytes);
    s->window_bytes = 0;
    enum err e = fileio_read(s->seg->fd, s->window->data, len, start);
    if (e == ERR_IO) {
        e = window_read_blocks(s, start, len);
    }
    TRY(e);
    s->window_at = start;
    s->window_bytes = len;
    return OK;
}

static struct bytes window_from(const struct scan *s, u32 at)
{
    ASSERT(at >= s->window_at && at <= s->window_at + s->window_bytes);
    return BYTES(s->window->data + (at - s->window_at), s->window_at + s->window_bytes - at);
}

static void scan_damage(struct scan *s, u32 at)
{
    metric_add(METRIC_STORE_CORRUPT, 1);
    s->out->is_suspect = true;
    LOG_ERROR("segment_damaged", "drive=%s segment=%u before_offset=%u", s->drive->path, s->seg->id,
              at);
}

// Moves entries from `held` to the result: all, or those whose frames are whole. The entries of a
// record follow each other, the first one being a put or a delete.
static enum err held_release(struct scan *s, bool is_proved)
{
    struct footer_entry e;
    enum err err = OK;
    u32 frame = 0;
    bool is_taken = false;
    for (u32 b = 0; b < s->held.block_count; b++) {
        u32 pos = 0;
        u32 start = (u32)sizeof(struct footer_block_fmt);
        while (footer_block_next(s->held.blocks[b], &pos, &e, &err)) {
            if (e.kind != FOOTER_REFS) {
                ASSERT(frame < s->frame_count);
                is_taken = is_proved || s->frames[frame].is_whole;
                frame++;
            }
            if (is_taken) {
                TRY(footer_copy_entry(s->out, s->held.blocks[b] + start, pos - start));
                s->out->used_bytes =
                    MAX(s->out->used_bytes, e.offset_units * RECORD_ALIGN + e.bytes);
            }
            start = pos;
        }
        ASSERT(err == OK); // made by this file
    }
    footer_reset(&s->held);
    s->frame_count = 0;
    return OK;
}

// Marks the frames whose atomic group is there from first to last, without a hole, all intact.
static void groups_mark(struct scan *s)
{
    u32 first = 0;
    for (u32 i = 0; i < s->frame_count; i++) {
        struct pending_frame *f = &s->frames[i];
        const struct pending_frame *before = i == 0 ? NULL : &s->frames[i - 1];
        bool follows = before != NULL && before->is_intact && f->group_index > 0 &&
                       before->group_index + 1 == f->group_index &&
                       before->group_count == f->group_count &&
                       before->offset + before->bytes == f->offset;
        if (f->group_index == 0) {
            first = i;
        } else if (!follows) {
            first = UINT32_MAX; // the rest of this group has no beginning
        }
        if (first != UINT32_MAX && f->is_intact && f->group_index + 1 == f->group_count) {
            ASSERT(i - first + 1 == f->group_count);
            for (u32 k = first; k <= i; k++) {
                s->frames[k].is_whole = true;
            }
        }
    }
}

static enum err frame_hold(struct scan *s, u32 at, const struct record_view *v)
{
    if (s->frame_count == s->frame_capacity) {
        u32 capacity = MAX(64u, s->frame_capacity * 2);
        struct pending_frame *frames = realloc(s->frames, capacity * sizeof(*frames));
        if (frames == NULL) {
            return ERR_NO_MEMORY;
        }
        s->frames = frames;
        s->frame_capacity = capacity;
    }
    s->frames[s->frame_count++] = (struct pending_frame){
        .offset = at,
        .bytes = v->frame_bytes,
        .group_index = v->group_index,
        .group_count = v->group_count,
        .is_intact = record_payload_is_valid(v),
    };
    TRY(footer_reserve(&s->held, footer_record_bytes(v->key.len, v->ref_count)));
    footer_add_record(&s->held, at, v);
    return OK;
}

static enum err frame_found(struct scan *s, u32 at, const struct record_view *v)
{
    if (v->batch < s->batch) {
        scan_damage(s, at); // commits stand in order: this cannot be
        s->out->lost++;
        return OK;
    }
    if (v->batch > s->batch) {
        for (u32 i = 0; i < s->frame_count; i++) {
            if (!s->frames[i].is_intact) {
                scan_damage(s, s->frames[i].offset); // its reader will be told
            }
        }
        if (s->is_gap_dirty) {
            scan_damage(s, at);
            s->out->lost++;
            s->is_gap_dirty = false;
        }
        TRY(held_release(s, true));
        s->batch = v->batch;
    }
    return v->type == RECORD_MARK ? OK : frame_hold(s, at, v);
}

static bool is_zero(struct bytes b)
{
    for (size_t i = 0; i < b.len; i++) {
        if (b.data[i] != 0) {
            return false;
        }
    }
    return true;
}

// Says so when the newest commit is not all there. After a power loss that is as it should be: it
// was never acknowledged. Damage to it since then looks the same.
static void tail_tell(const struct scan *s)
{
    u32 dropped = 0;
    for (u32 i = 0; i < s->frame_count; i++) {
        dropped += !s->frames[i].is_whole;
    }
    if (dropped > 0 || s->is_gap_dirty) {
        LOG_INFO("log_tail_unfinished", "drive=%s segment=%u commit=%u records_dropped=%u",
                 s->drive->path, s->seg->id, s->batch, dropped);
    }
}

MAY_WAIT static enum err log_scan(struct scan *s)
{
    u32 end = s->drive->segment_bytes;
    u32 at = SEGMENT_HEADER_BYTES;
    while (at + RECORD_HEADER_BYTES <= end) {
        TRY(window_move(s, at, RECORD_HEADER_BYTES, SCAN_WINDOW_BYTES));
        struct record_view v;
        u32 need = 0;
        enum err e = record_parse(window_from(s, at), s->seg->cookie, &v, &need);
        if (e == ERR_END && at + (u64)need <= end) {
            TRY(window_move(s, at, need, SCAN_WINDOW_BYTES));
            e = record_parse(window_from(s, at), s->seg->cookie, &v, &need);
        }
        if (e == OK) {
            TRY(frame_found(s, at, &v));
            at += v.frame_bytes;
            continue;
        }
        u32 next = ALIGN_DOWN(at, SEGMENT_BLOCK_BYTES) + SEGMENT_BLOCK_BYTES;
        TRY(window_move(s, at, next - at, SCAN_WINDOW_BYTES));
        s->is_gap_dirty = s->is_gap_dirty || !is_zero(BYTES(window_from(s, at).data, next - at));
        at = next;
    }
    groups_mark(s);
    tail_tell(s);
    return held_release(s, false);
}

// An extent counts only if its data are whole: compaction may have been copying it when the power
// went, and the other copy is then the good one.
MAY_WAIT static enum err extents_scan(struct scan *s)
{
    u32 end = s->drive->segment_bytes;
    u32 at = SEGMENT_HEADER_BYTES;
    while (at + EXTENT_BLOCK_BYTES <= end) {
        TRY(window_move(s, at, EXTENT_BLOCK_BYTES, SCAN_WINDOW_BYTES));
        const struct extent_fmt *h = extent_parse(window_from(s, at).data, s->seg->cookie);
        u32 bytes = h == NULL ? EXTENT_BLOCK_BYTES : extent_frame_bytes(h->data_bytes);
        if (h != NULL && bytes <= end - at) {
            TRY(window_move(s, at, bytes, SCAN_WINDOW_BYTES));
            const u8 *frame = window_from(s, at).data;
            h = (const struct extent_fmt *)(const void *)frame;
            if (extent_blocks_are_valid(h->crcs, 0, extent_blocks(h->data_bytes),
                                        frame + EXTENT_BLOCK_BYTES)) {
                struct extent_name name = {
                    .object_id = h->object_id, .chunk = h->chunk, .pg = h->pg};
                TRY(footer_reserve(s->out, sizeof(struct footer_extent_fmt)));
                footer_add_extent(s->out, at, &name, h->data_bytes);
            }
        }
        at += bytes;
    }
    return OK;
}

MAY_WAIT enum err segment_scan(struct drive *d, const struct segment *seg, struct footer *f)
{
    ASSERT(seg->kind == SEGMENT_LOG || seg->kind == SEGMENT_EXTENT);
    footer_reset(f);
    struct scan s = {.drive = d, .seg = seg, .out = f};
    footer_init(&s.held);
    enum err e = buf_get_wait(SCAN_WINDOW_BYTES, &s.window);
    if (e == OK) {
        e = seg->kind == SEGMENT_LOG ? log_scan(&s) : extents_scan(&s);
        buf_put(s.window);
    }
    footer_deinit(&s.held);
    free(s.frames);
    return e;
}
