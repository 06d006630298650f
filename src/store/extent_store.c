// SPDX-License-Identifier: Apache-2.0
// Writing extents. A write takes its place in the segment at once and may overlap with others; a
// flush covers all writes that completed before it began, in the open segment and in those that
// were closed meanwhile.
#include "store/extent_store.h"

#include "base/log.h"
#include "core/fileio.h"
#include "core/metrics.h"
#include "store/compaction.h"
#include "store/shard.h"

#define FLUSH_SEGMENTS_MAX 32 // open and closed ones that one flush covers

void extent_writer_init(struct extent_writer *w, struct shard_drive *sd)
{
    *w = (struct extent_writer){.sd = sd, .flush_next = 1};
    list_init(&w->closing);
    fiber_mutex_init(&w->roll_mutex);
    wait_queue_init(&w->flushed);
}

void extent_writer_deinit(struct extent_writer *w)
{
    ASSERT(list_is_empty(&w->closing) && !w->is_flushing);
    if (w->current != NULL) {
        open_segment_drop(w->current);
        w->current = NULL;
    }
}

static bool has_room(const struct open_segment *os, u32 frame_bytes)
{
    // Entries of writes in flight are not in the footer yet: they are counted by `users`.
    u32 entry_bytes = (os->users + 1) * (u32)sizeof(struct footer_extent_fmt);
    return open_segment_has_room(os, (u64)os->tail + frame_bytes, entry_bytes);
}

static u32 closing_count(const struct extent_writer *w)
{
    u32 n = 0;
    LIST_FOREACH (node, &w->closing) {
        n++;
    }
    return n;
}

MAY_WAIT static enum err extent_roll(struct extent_writer *w, enum space_class space,
                                     struct open_segment *seen, bool is_room_left)
{
    TRY(fiber_mutex_lock(&w->roll_mutex));
    enum err e = OK;
    if (w->current != seen) {
        // done already
    } else if (is_room_left) {
        if (drive_has_room(w->sd->drive)) {
            seen->is_reserve = false;
        } else {
            e = ERR_DRIVE_FULL;
        }
    } else if (closing_count(w) + 1 >= FLUSH_SEGMENTS_MAX) {
        e = ERR_LIMIT_REACHED; // sealing does not keep up
    } else {
        struct open_segment *os;
        e = open_segment_create(w->sd, SEGMENT_EXTENT, space, &os);
        if (e == OK) {
            w->current = os;
            if (seen != NULL) {
                list_add_tail(&w->closing, &seen->node);
                open_segment_close(seen);
            }
        } else if (e == ERR_IO) {
            shard_drive_fail(w->sd, "segment header", e);
        }
    }
    fiber_mutex_unlock(&w->roll_mutex);
    return e;
}

// A segment with room for the frame, in which a write of this class may go.
MAY_WAIT static enum err segment_find(struct extent_writer *w, u32 frame_bytes,
                                      enum space_class space, struct open_segment **out)
{
    struct footer empty = {0};
    u64 least = SEGMENT_HEADER_BYTES + frame_bytes +
                footer_disk_bytes(&empty, sizeof(struct footer_extent_fmt));
    if (least > w->sd->drive->segment_bytes) {
        return ERR_LIMIT_REACHED;
    }
    u32 tries = 0;
    for (;;) {
        if (w->sd->is_failed) {
            return ERR_IO;
        }
        struct open_segment *os = w->current;
        bool is_roomy = os != NULL && has_room(os, frame_bytes);
        if (is_roomy && (!os->is_reserve || space != SPACE_WRITE)) {
            *out = os;
            return OK;
        }
        enum err e = extent_roll(w, space, os, is_roomy);
        bool is_retried = e == ERR_DRIVE_FULL && space != SPACE_COMPACT &&
                          compaction_make_room(w->sd->shard->store, w->sd->drive, space, &tries);
        if (e != OK && !is_retried) {
            return e;
        }
    }
}

MAY_WAIT static enum err frame_write(struct extent_writer *w, struct open_segment *os,
                                     const struct extent_name *name, struct buf *frame,
                                     u32 data_bytes, struct extent_location *at, u64 *ticket)
{
    u32 frame_bytes = extent_frame_bytes(data_bytes);
    u32 offset = os->tail;
    TRY(footer_reserve(&os->footer, (os->users + 1) * (u32)sizeof(struct footer_extent_fmt)));
    os->tail += frame_bytes;
    open_segment_use(os);
    extent_encode(frame->data, name, os->seg->cookie, data_bytes);
    enum err e = fileio_write(os->seg->fd, frame->data, frame_bytes, offset);
    if (e == OK) {
        footer_add_extent(&os->footer, offset, name, data_bytes);
        os->is_dirty = true;
        *at = (struct extent_location){.segment = os->seg->id,
                                       .offset_blocks = offset / EXTENT_BLOCK_BYTES,
                                       .data_bytes = data_bytes};
        *ticket = w->flush_next;
        metric_add(METRIC_STORE_EXTENTS, 1);
        metric_add(METRIC_STORE_EXTENT_BYTES, frame_bytes);
    } else {
        shard_drive_fail(w->sd, "extent", e);
        e = ERR_IO;
    }
    open_segment_unuse(os);
    return e;
}

MAY_WAIT enum err extent_writer_write(struct extent_writer *w, const struct extent_name *name,
                                      struct buf *frame, u32 data_bytes, enum space_class space,
                                      struct extent_location *at, u64 *ticket)
{
    ASSERT(data_bytes > 0 && data_bytes <= STORE_EXTENT_BYTES);
    ASSERT(frame->capacity_bytes >= extent_frame_bytes(data_bytes));
    struct open_segment *os;
    fiber_shield_enter();
    enum err e = segment_find(w, extent_frame_bytes(data_bytes), space, &os);
    if (e == OK) {
        e = frame_write(w, os, name, frame, data_bytes, at, ticket);
    } else if (e == ERR_DRIVE_FULL) {
        metric_add(METRIC_STORE_FULL, 1);
    }
    fiber_shield_leave();
    return e;
}

// One flush of everything dirty. No pointer to an open segment is held across the waits: it may be
// sealed and gone by then.
MAY_WAIT static enum err flush_once(struct extent_writer *w)
{
    int fds[FLUSH_SEGMENTS_MAX];
    u32 count = 0;
    u64 number = w->flush_next++;
    LIST_FOREACH (node, &w->closing) {
        struct open_segment *os = CONTAINER_OF(node, struct open_segment, node);
        if (os->is_dirty) {
            ASSERT(count < FLUSH_SEGMENTS_MAX);
            fds[count++] = os->seg->fd;
            os->is_dirty = false;
        }
    }
    if (w->current != NULL && w->current->is_dirty) {
        ASSERT(count < FLUSH_SEGMENTS_MAX);
        fds[count++] = w->current->seg->fd;
        w->current->is_dirty = false;
    }
    enum err e = OK;
    for (u32 i = 0; i < count && e == OK; i++) {
        e = fileio_flush(fds[i]);
    }
    if (e != OK) {
        shard_drive_fail(w->sd, "extent flush", e);
        return ERR_IO;
    }
    w->flush_done = number;
    return OK;
}

MAY_WAIT enum err extent_writer_flush(struct extent_writer *w, u64 ticket)
{
    enum err e = OK;
    fiber_shield_enter();
    while (e == OK && w->flush_done < ticket) {
        if (w->sd->is_failed) {
            e = ERR_IO;
        } else if (w->is_flushing) {
            e = wait_queue_wait(&w->flushed);
        } else {
            ASSERT(ticket <= w->flush_next);
            w->is_flushing = true;
            e = flush_once(w);
            w->is_flushing = false;
            wait_queue_wake_all(&w->flushed);
        }
    }
    fiber_shield_leave();
    return e;
}
