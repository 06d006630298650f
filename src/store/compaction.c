// SPDX-License-Identifier: Apache-2.0
// The coordinator on core 0: picks segments by what freeing them would gain, has every core move
// its share out, erases the segment durably, and only then lets its dead records go from the books.
// A crash at any point leaves either the old segment or both copies, which is the same to recovery.
#include "store/compaction.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "store/evacuate.h"

// When space is short, a segment is worth it that gains this part of itself.
#define SHORT_GAIN_DIVISOR  16
#define URGENT_GAIN_DIVISOR 64 // and when a delete waits for room
#define ROOM_SEGMENTS       2  // what such a pass is content with
#define ROOM_TRIES_MAX      4  // passes that one append waits for

// One drive in one pass. Only segments that were sealed when it began are looked at, and each once:
// a pass ends.
struct compaction {
    struct store *store;
    struct drive *drive;
    u64 *live_bytes;  // by segment, over all cores
    u8 *is_candidate; // by segment
    u32 segment;      // for calls on all cores
    u32 freed;
    u32 enough; // free segments at which the pass may end; 0: when nothing is worth it
    bool is_urgent;
};

// ---- choosing

MAY_WAIT static void live_on_core(void *arg)
{
    struct compaction *c = arg;
    struct shard *sh = shard_here(c->store);
    const struct shard_drive *sd = &sh->drives[c->drive->super.drive_index];
    for (u32 id = 0; id < c->drive->segments_max; id++) {
        c->live_bytes[id] += sd->live_bytes[id];
    }
}

// One core after the other: they add into the same array.
MAY_WAIT static enum err live_gather(struct compaction *c)
{
    memset(c->live_bytes, 0, c->drive->segments_max * sizeof(*c->live_bytes));
    for (u32 core = 0; core < c->store->cores; core++) {
        TRY(core_call(core, live_on_core, c));
    }
    return OK;
}

// The candidate whose freeing gains most, if it is worth it.
static struct segment *segment_choose(const struct compaction *c)
{
    struct drive *d = c->drive;
    u64 room = d->segment_bytes - SEGMENT_HEADER_BYTES - FOOTER_TRAILER_BYTES;
    u64 least = room * c->store->compact_percent / 100;
    if (drive_is_short(d)) {
        u64 divisor = c->is_urgent ? URGENT_GAIN_DIVISOR : SHORT_GAIN_DIVISOR;
        least = MIN(least, room / divisor);
    }
    struct segment *best = NULL;
    u64 best_gain = least;
    for (u32 id = 0; id < d->segments_max; id++) {
        struct segment *seg = &d->segments[id];
        if (!c->is_candidate[id] || seg->state != SEGMENT_SEALED) {
            continue;
        }
        u64 gain = room - MIN(room, c->live_bytes[id]);
        if (gain > best_gain) {
            best = seg;
            best_gain = gain;
        }
    }
    return best;
}

// ---- freeing one segment

MAY_WAIT static void readers_on_core(void *arg)
{
    struct compaction *c = arg;
    struct shard *sh = shard_here(c->store);
    fiber_shield_enter();
    evacuate_wait_readers(&sh->drives[c->drive->super.drive_index], c->segment);
    fiber_shield_leave();
}

MAY_WAIT static enum err segment_move(struct compaction *c, struct segment *seg,
                                      const struct footer *f)
{
    bool is_stuck = false;
    TRY(footer_each_block(c->store, c->drive, seg, f, evacuate_block, &is_stuck));
    TRY(live_gather(c));
    if (is_stuck || c->live_bytes[seg->id] > 0) { // what a damaged frame hid still counts as live
        LOG_ERROR("segment_stuck",
                  "drive=%s segment=%u hint=\"it holds damaged objects and is kept as it is\"",
                  c->drive->path, seg->id);
        drive_segment_break(c->drive, seg);
        return ERR_CORRUPT;
    }
    c->segment = seg->id;
    return core_call_all(readers_on_core, c);
}

MAY_WAIT static enum err segment_free(struct compaction *c, struct segment *seg, struct footer *f)
{
    bool is_scanned;
    TRY(recovery_footer_load(c->drive, seg, f, &is_scanned));
    bool is_suspect = seg->is_suspect || f->is_suspect || is_scanned;
    TRY(segment_move(c, seg, f));
    enum err e = drive_segment_erase(c->drive, seg);
    if (e != OK) {
        // It may be erased or not: nothing may be counted on it until the next start.
        LOG_ERROR("segment_erase", "drive=%s segment=%u error=%s", c->drive->path, seg->id,
                  err_name(e));
        drive_segment_break(c->drive, seg);
        return e;
    }
    if (!is_suspect) {
        // When entries may be missing or new, tombstones stay until the next start counts anew.
        e = footer_each_block(c->store, c->drive, seg, f, evacuate_forget_block, NULL);
        if (e != OK) {
            LOG_WARN("shadows_kept", "drive=%s segment=%u error=%s", c->drive->path, seg->id,
                     err_name(e));
        }
    }
    drive_segment_release(c->drive, seg);
    c->freed++;
    metric_add(METRIC_STORE_COMPACTIONS, 1);
    LOG_DEBUG("segment_compacted", "drive=%s segment=%u", c->drive->path, seg->id);
    return OK;
}

// ---- passes

MAY_WAIT static enum err drive_compact(struct compaction *c)
{
    struct drive *d = c->drive;
    for (u32 id = 0; id < d->segments_max; id++) {
        c->is_candidate[id] = d->segments[id].state == SEGMENT_SEALED;
    }
    for (;;) {
        TRY(live_gather(c));
        struct segment *seg = segment_choose(c);
        if (seg == NULL) {
            return OK;
        }
        c->is_candidate[seg->id] = 0;
        struct footer f;
        footer_init(&f);
        enum err e = segment_free(c, seg, &f);
        footer_deinit(&f);
        if (e != OK && e != ERR_CORRUPT) {
            return e;
        }
        if (c->enough > 0 && d->free_count >= c->enough) {
            return OK;
        }
        if (fiber_is_cancelled()) {
            return ERR_CANCELLED;
        }
    }
}

MAY_WAIT static enum err drive_pass(struct store *s, struct drive *d, u32 enough, bool is_urgent,
                                    u32 *freed)
{
    struct compaction c = {.store = s, .drive = d, .enough = enough, .is_urgent = is_urgent};
    u32 segments = MAX(d->segments_max, 1u);
    c.live_bytes = calloc(segments, sizeof(*c.live_bytes));
    c.is_candidate = calloc(segments, 1);
    enum err e = ERR_NO_MEMORY;
    if (c.live_bytes != NULL && c.is_candidate != NULL) {
        e = drive_compact(&c);
    }
    free(c.live_bytes);
    free(c.is_candidate);
    *freed = c.freed;
    return e;
}

MAY_WAIT static enum err compaction_pass(struct store *s)
{
    TRY(fiber_mutex_lock(&s->compact_mutex));
    enum err result = OK;
    for (u32 i = 0; i < s->drive_count; i++) {
        u32 freed;
        enum err e = drive_pass(s, s->drives[i], 0, false, &freed);
        result = result == OK ? e : result;
    }
    fiber_mutex_unlock(&s->compact_mutex);
    return result;
}

struct room_call {
    struct store *store;
    struct drive *drive;
    enum space_class space;
    bool is_made;
};

// A write needs a segment more than before. A delete also fits into what a pass left of the segment
// that it copied to.
MAY_WAIT static void room_on_core0(void *arg)
{
    struct room_call *call = arg;
    struct store *s = call->store;
    struct drive *d = call->drive;
    bool is_delete = call->space == SPACE_DELETE;
    if (!is_delete && d->no_room_kicks == s->kicks) {
        return; // a pass found nothing, and nothing died since
    }
    u32 free_before = d->free_count;
    if (fiber_mutex_lock(&s->compact_mutex) != OK) {
        return;
    }
    // Whoever held the mutex may have made the room already.
    call->is_made = d->free_count > free_before;
    if (!call->is_made) {
        u32 freed = 0;
        u64 kicks = s->kicks;
        free_before = d->free_count;
        enum err e = drive_pass(s, d, free_before + ROOM_SEGMENTS, is_delete, &freed);
        if (e != OK) {
            LOG_WARN("compaction", "drive=%s error=%s", d->path, err_name(e));
        }
        call->is_made = is_delete ? freed > 0 : d->free_count > free_before;
        d->no_room_kicks = call->is_made ? d->no_room_kicks : kicks;
    }
    fiber_mutex_unlock(&s->compact_mutex);
}

MAY_WAIT bool compaction_make_room(struct store *s, struct drive *d, enum space_class space,
                                   u32 *tries)
{
    ASSERT(space != SPACE_COMPACT); // it would wait for itself
    if (++*tries > ROOM_TRIES_MAX) {
        return false;
    }
    struct room_call call = {.store = s, .drive = d, .space = space};
    return core_call(0, room_on_core0, &call) == OK && call.is_made;
}

// Free segments of all drives.
static u64 free_segments(const struct store *s)
{
    u64 sum = 0;
    for (u32 i = 0; i < s->drive_count; i++) {
        sum += s->drives[i]->free_count;
    }
    return sum;
}

MAY_WAIT void compaction_run(struct store *s)
{
    fiber_set_deadline(0);
    // An event that is set returns at once, whether or not the fiber was cancelled.
    while (!fiber_is_cancelled() && event_wait(&s->compact_wanted) == OK) {
        event_init(&s->compact_wanted);
        u64 free_before = free_segments(s);
        enum err e = compaction_pass(s);
        if (e != OK && e != ERR_CANCELLED) {
            LOG_WARN("compaction", "error=%s", err_name(e));
        }
        if (free_segments(s) <= free_before) {
            // Nothing gained: what was copied was sealed, and that asks for compaction again. The
            // next one to write or delete asks anew.
            event_init(&s->compact_wanted);
        }
    }
}

MAY_WAIT enum err store_compact_all(struct store *s)
{
    ASSERT(core_id() == 0);
    return compaction_pass(s);
}
