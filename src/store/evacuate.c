// SPDX-License-Identifier: Apache-2.0
// Moving what lives. A record keeps its seq, so at recovery either copy is as good as the other;
// the index switches only if it still points at the old place when the copy is durable, so a racing
// overwrite wins. Until the old segment is erased the old copy counts as a shadow of its key.
#include "store/evacuate.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/metrics.h"

#define MOVE_RECORDS_MAX 64
#define MOVE_BYTES_MAX   ((u32)MIB)

struct moved_record {
    struct record_bytes bytes;
    struct store_change change;
    struct index_location from;
};

// Records that move with one commit.
struct move_batch {
    struct shard *sh;
    struct shard_drive *sd;
    u32 count;
    u32 frame_bytes;
    struct record_window window;
    struct record_input inputs[MOVE_RECORDS_MAX];
    struct moved_record records[MOVE_RECORDS_MAX];
};

struct moved_extent {
    struct extent_name name;
    struct extent_location from;
    struct extent_location to;
};

static u16 shadows_plus(u16 shadows)
{
    return shadows < SHADOWS_MAX ? (u16)(shadows + 1) : shadows;
}

// ---- records

static void record_switch(struct move_batch *m, u32 i, u32 segment, u32 offset)
{
    const struct moved_record *r = &m->records[i];
    const struct record_view *v = &r->bytes.view;
    struct pg *p = shard_pg(m->sh, v->pg);
    struct index_value now;
    if (!index_find(&p->index, v->key, &now)) {
        return; // a tombstone that went meanwhile: its copy hides nothing either
    }
    bool is_still_there = now.location.segment == r->from.segment &&
                          now.location.offset_units == r->from.offset_units;
    if (is_still_there) {
        now.location.segment = segment;
        now.location.offset_units = offset / RECORD_ALIGN;
    }
    if (v->type == RECORD_PUT) {
        now.shadows = shadows_plus(now.shadows); // the old copy, or the new one
    }
    enum err e = index_put(&p->index, v->key, &now, NULL, NULL);
    ASSERT(e == OK); // reserved
    if (is_still_there) {
        shard_live_sub(m->sd, r->from.segment, v->frame_bytes);
        shard_live_add(m->sd, segment, v->frame_bytes);
    }
}

static void moves_apply(struct record_group *g)
{
    struct move_batch *m = g->arg;
    u32 offset = g->offset;
    for (u32 i = 0; i < m->count; i++) {
        record_switch(m, i, g->segment->id, offset);
        offset += m->records[i].bytes.view.frame_bytes;
    }
    metric_add(METRIC_STORE_COMPACT_BYTES, g->frame_bytes);
    m->sh->index_puts -= m->count;
}

MAY_WAIT static enum err moves_commit(struct move_batch *m)
{
    if (m->count == 0) {
        return OK;
    }
    struct shard *sh = m->sh;
    TRY(index_pool_reserve(sh->index_pool, sh->index_puts + m->count));
    sh->index_puts += m->count;
    for (u32 i = 0; i < m->count; i++) {
        m->inputs[i].group_index = (u16)i;
        m->inputs[i].group_count = (u16)m->count;
        m->inputs[i].change = &m->records[i].change;
    }
    struct record_group g = {.inputs = m->inputs,
                             .count = m->count,
                             .space = SPACE_COMPACT,
                             .apply = moves_apply,
                             .arg = m};
    enum err e = record_log_append(&m->sd->log, &g);
    if (e != OK) {
        sh->index_puts -= m->count;
    }
    return e;
}

static void moves_clear(struct move_batch *m)
{
    for (u32 i = 0; i < m->count; i++) {
        record_bytes_release(m->sh, &m->records[i].bytes);
    }
    m->count = 0;
    m->frame_bytes = 0;
}

static void move_add(struct move_batch *m, const struct record_bytes *rb,
                     const struct index_location *from)
{
    const struct record_view *v = &rb->view;
    struct moved_record *r = &m->records[m->count];
    r->bytes = *rb;
    r->from = *from;
    r->change = (struct store_change){
        .key = v->key,
        .is_delete = v->type == RECORD_DELETE,
        .attrs = v->attrs,
        .payload = v->payload,
        .refs = v->refs,
        .ref_count = v->ref_count,
    };
    memcpy(r->change.summary, v->summary, STORE_SUMMARY_BYTES);
    m->inputs[m->count] =
        (struct record_input){.type = v->type, .pg = v->pg, .epoch = v->epoch, .seq = v->seq};
    m->frame_bytes += v->frame_bytes;
    m->count++;
}

// Commits first if the batch cannot take `bytes` more.
MAY_WAIT static enum err moves_make_room(struct move_batch *m, u32 bytes)
{
    u32 limit = MIN(MOVE_BYTES_MAX, m->sd->drive->segment_bytes / 4);
    if (m->count < MOVE_RECORDS_MAX && (m->count == 0 || m->frame_bytes + bytes <= limit)) {
        return OK;
    }
    enum err e = moves_commit(m);
    moves_clear(m);
    return e;
}

MAY_WAIT static enum err record_evacuate(struct move_batch *m, u32 segment,
                                         const struct footer_entry *e, bool *is_stuck)
{
    struct pg *p = shard_pg(m->sh, e->pg);
    struct index_value v;
    if (!index_find(&p->index, e->key, &v) || v.location.segment != segment ||
        v.location.offset_units != e->offset_units) {
        return OK; // dead
    }
    TRY(moves_make_room(m, e->bytes));
    struct record_bytes rb = {0};
    enum err err = record_read_window(m->sd, &v.location, &m->window, &rb);
    if (err == ERR_CORRUPT || err == ERR_IO) {
        *is_stuck = true; // whoever asks for it is told; the rest can still move
        return OK;
    }
    TRY(err);
    if (rb.view.pg != e->pg || !bytes_equal(rb.view.key, e->key) || rb.view.seq != v.seq) {
        record_bytes_release(m->sh, &rb);
        *is_stuck = true;
        return OK;
    }
    move_add(m, &rb, &v.location);
    return OK;
}

// ---- extents

MAY_WAIT static enum err extent_evacuate(struct shard *sh, struct shard_drive *sd, u32 segment,
                                         const struct footer_entry *e, struct moved_extent *out,
                                         u64 *ticket, bool *is_moved, bool *is_stuck)
{
    struct extent_name name = {.object_id = e->object_id, .chunk = e->chunk, .pg = e->pg};
    struct extent_location from;
    *is_moved = false;
    if (!extent_map_find(&sh->extents, e->object_id, e->chunk, &from) || from.segment != segment ||
        from.offset_blocks != e->offset_units / (EXTENT_BLOCK_BYTES / RECORD_ALIGN)) {
        return OK;
    }
    struct buf *frame;
    enum err err = extent_read_frame(sd, &name, &from, &frame);
    if (err == ERR_CORRUPT || err == ERR_IO) {
        *is_stuck = true;
        return OK;
    }
    TRY(err);
    struct extent_location to;
    u64 own_ticket = 0;
    err = extent_writer_write(&sd->extents, &name, frame, from.data_bytes, SPACE_COMPACT, &to,
                              &own_ticket);
    buf_put(frame);
    TRY(err);
    *ticket = MAX(*ticket, own_ticket);
    *out = (struct moved_extent){.name = name, .from = from, .to = to};
    *is_moved = true;
    return OK;
}

// Flushes the copies and points the map at those whose originals are still wanted.
MAY_WAIT static enum err extents_switch(struct shard *sh, struct shard_drive *sd,
                                        const struct moved_extent *moved, u32 count, u64 ticket)
{
    TRY(extent_writer_flush(&sd->extents, ticket));
    for (u32 i = 0; i < count; i++) {
        const struct moved_extent *x = &moved[i];
        if (extent_map_move(&sh->extents, x->name.object_id, x->name.chunk, &x->from, &x->to)) {
            u32 bytes = extent_frame_bytes(x->from.data_bytes);
            shard_live_sub(sd, x->from.segment, bytes);
            shard_live_add(sd, x->to.segment, bytes);
            metric_add(METRIC_STORE_COMPACT_BYTES, bytes);
        }
    }
    return OK;
}

// ---- blocks

struct evacuation {
    struct move_batch *records;
    struct moved_extent *extents;
    u32 extent_count;
    u64 ticket;
    bool *is_stuck;
};

#define MOVED_EXTENTS_MAX ((u32)(FOOTER_BLOCK_BYTES / sizeof(struct footer_extent_fmt)))

MAY_WAIT static enum err entry_evacuate(struct shard *sh, struct shard_drive *sd, u32 segment,
                                        const struct footer_entry *e, struct evacuation *v)
{
    if (e->kind == FOOTER_PUT || e->kind == FOOTER_DELETE) {
        return record_evacuate(v->records, segment, e, v->is_stuck);
    }
    if (e->kind != FOOTER_EXTENT) {
        return OK;
    }
    bool is_moved;
    ASSERT(v->extent_count < MOVED_EXTENTS_MAX);
    TRY(extent_evacuate(sh, sd, segment, e, &v->extents[v->extent_count], &v->ticket, &is_moved,
                        v->is_stuck));
    v->extent_count += is_moved ? 1 : 0;
    return OK;
}

MAY_WAIT static enum err entries_evacuate(struct shard *sh, struct shard_drive *sd,
                                          struct block_call *call, struct evacuation *v)
{
    struct footer_entry e;
    enum err err;
    u32 pos = 0;
    while (footer_block_next(call->block, &pos, &e, &err)) {
        if (footer_entry_is_mine(sh, call->drive, &e)) {
            TRY(entry_evacuate(sh, sd, call->seg->id, &e, v));
        }
    }
    TRY(err);
    TRY(moves_commit(v->records));
    return extents_switch(sh, sd, v->extents, v->extent_count, v->ticket);
}

MAY_WAIT enum err evacuate_block(struct shard *sh, struct block_call *call)
{
    struct shard_drive *sd = &sh->drives[call->drive->super.drive_index];
    if (sd->is_failed) {
        return ERR_IO;
    }
    struct evacuation v = {.is_stuck = call->arg};
    v.records = calloc(1, sizeof(*v.records));
    v.extents = calloc(MOVED_EXTENTS_MAX, sizeof(*v.extents));
    enum err e = ERR_NO_MEMORY;
    if (v.records != NULL && v.extents != NULL) {
        v.records->sh = sh;
        v.records->sd = sd;
        e = entries_evacuate(sh, sd, call, &v);
        moves_clear(v.records);
        buf_put(v.records->window.buf);
    }
    free(v.records);
    free(v.extents);
    return e;
}

MAY_WAIT void evacuate_wait_readers(struct shard_drive *sd, u32 segment)
{
    while (sd->readers[segment] > 0) {
        enum err e = wait_queue_wait(&sd->reader_gone);
        ASSERT(e == OK); // shielded: reads end by themselves
    }
}

MAY_WAIT enum err evacuate_forget_block(struct shard *sh, struct block_call *call)
{
    struct shard_drive *sd = &sh->drives[call->drive->super.drive_index];
    struct footer_entry e;
    enum err err;
    u32 pos = 0;
    while (footer_block_next(call->block, &pos, &e, &err)) {
        if (e.kind != FOOTER_PUT || !footer_entry_is_mine(sh, call->drive, &e)) {
            continue;
        }
        struct pg *p = shard_pg(sh, e.pg);
        struct index_value v;
        if (!index_find(&p->index, e.key, &v) || v.shadows == 0 || v.shadows == SHADOWS_MAX) {
            continue;
        }
        v.shadows--;
        if (v.shadows == 0 && (v.flags & INDEX_TOMBSTONE) != 0 && call->drive->broken_count == 0) {
            bool existed = index_remove(&p->index, e.key, NULL);
            ASSERT(existed);
            shard_live_sub(sd, v.location.segment, v.location.bytes);
        } else if (index_put(&p->index, e.key, &v, NULL, NULL) != OK) {
            LOG_WARN("shadow_kept", "pg=%u", e.pg); // counted anew at the next start
        }
    }
    return err;
}
