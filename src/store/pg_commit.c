// SPDX-License-Identifier: Apache-2.0
// Changing a placement group. A commit prepares everything that can fail (old references, pins,
// index memory, the extents' flush), appends its records as one group, and takes effect on the log
// writer's fiber the moment the group is durable, where nothing can fail any more.
#include <stdlib.h>

#include "base/log.h"
#include "core/metrics.h"
#include "store/shard.h"

#define COMMIT_FEW 8 // changes whose bookkeeping fits on the stack

// The references of a replaced record that had several: they are not in the index, so the record is
// read before the commit.
struct old_record {
    u32 input;
    struct record_bytes record;
};

struct commit {
    struct shard *sh;
    struct pg *pg;
    struct record_input *inputs;
    u32 count;
    struct old_record *old;
    u32 old_count;
    bool is_delete_only;
};

static u16 shadows_add(u16 shadows)
{
    return shadows == SHADOWS_MAX ? shadows : (u16)(shadows + 1);
}

// Which changes become records: a delete of what does not exist needs none.
static enum err inputs_choose(struct commit *c, const struct store_change *changes, u32 count)
{
    c->is_delete_only = true;
    for (u32 i = 0; i < count; i++) {
        const struct store_change *change = &changes[i];
        TRY(record_change_check(change));
        struct index_value v;
        if (change->is_delete) {
            if (!index_find(&c->pg->index, change->key, &v) || (v.flags & INDEX_TOMBSTONE) != 0) {
                continue;
            }
        } else {
            c->is_delete_only = false;
        }
        c->inputs[c->count++] = (struct record_input){
            .type = change->is_delete ? RECORD_DELETE : RECORD_PUT,
            .pg = (u16)c->pg->number,
            .epoch = PG_EPOCH,
            .change = change,
        };
    }
    return OK;
}

// Reads the records that will be replaced and have several references. One that cannot be read
// keeps its extents until the next start, which counts anew; the commit goes on.
MAY_WAIT static enum err old_records_read(struct commit *c)
{
    for (u32 i = 0; i < c->count; i++) {
        struct index_value v;
        if (!index_find(&c->pg->index, c->inputs[i].change->key, &v) ||
            (v.flags & INDEX_MANY_REFS) == 0) {
            continue;
        }
        if (c->old == NULL) {
            c->old = calloc(c->count, sizeof(*c->old));
            if (c->old == NULL) {
                return ERR_NO_MEMORY;
            }
        }
        struct old_record *old = &c->old[c->old_count];
        struct replica *r = c->pg->replica;
        enum err e = r->ops->record_read(r, &v.location, &old->record);
        if (e == OK) {
            old->input = i;
            c->old_count++;
        } else if (e != ERR_CORRUPT && e != ERR_IO) {
            return e;
        }
    }
    return OK;
}

// Pins all objects that the new records refer to; `pinned` counts how many were.
static enum err objects_pin(struct commit *c, u64 *pinned)
{
    for (u32 i = 0; i < c->count; i++) {
        const struct store_change *change = c->inputs[i].change;
        u32 refs = change->is_delete ? 0 : change->ref_count;
        for (u32 k = 0; k < refs; k++, (*pinned)++) {
            TRY(extent_map_pin(&c->sh->extents, change->refs[k].object_id));
        }
    }
    return OK;
}

static void objects_unpin(struct commit *c, u64 pinned)
{
    for (u32 i = 0; i < c->count && pinned > 0; i++) {
        const struct store_change *change = c->inputs[i].change;
        u32 refs = change->is_delete ? 0 : change->ref_count;
        for (u32 k = 0; k < refs && pinned > 0; k++, pinned--) {
            extent_map_unpin(&c->sh->extents, change->refs[k].object_id);
        }
    }
}

MAY_WAIT static enum err objects_flush(struct commit *c)
{
    struct replica *r = c->pg->replica;
    for (u32 i = 0; i < c->count; i++) {
        const struct store_change *change = c->inputs[i].change;
        if (!change->is_delete && change->ref_count > 0) {
            TRY(r->ops->extents_flush(r, change->refs, change->ref_count));
        }
    }
    return OK;
}

// Drops the references of the record that was replaced.
static void old_refs_drop(struct commit *c, u32 input, const struct index_value *old)
{
    if ((old->flags & INDEX_MANY_REFS) == 0) {
        if ((old->flags & INDEX_HAS_REFS) != 0) {
            extent_map_unref(&c->sh->extents, old->object_id);
        }
        return;
    }
    for (u32 i = 0; i < c->old_count; i++) {
        const struct record_view *v = &c->old[i].record.view;
        if (c->old[i].input != input || v->seq != old->seq) {
            continue;
        }
        for (u32 k = 0; k < v->ref_count; k++) {
            extent_map_unref(&c->sh->extents, v->refs[k].object_id);
        }
    }
}

static void input_apply(struct commit *c, u32 i, u32 segment, u32 offset)
{
    const struct record_input *in = &c->inputs[i];
    const struct store_change *change = in->change;
    struct shard_drive *sd = shard_drive_of_pg(c->sh, c->pg->number);
    struct index_value old = {0};
    bool existed = index_find(&c->pg->index, change->key, &old);
    bool was_put = existed && (old.flags & INDEX_TOMBSTONE) == 0;
    u32 bytes = record_frame_bytes(change, (enum record_type)in->type);
    struct index_value v = {
        .location = {.segment = segment, .offset_units = offset / RECORD_ALIGN, .bytes = bytes},
        .seq = in->seq,
        .shadows = was_put ? shadows_add(old.shadows) : old.shadows,
    };
    if (in->type == RECORD_DELETE) {
        v.flags = INDEX_TOMBSTONE;
    } else {
        memcpy(v.summary, change->summary, STORE_SUMMARY_BYTES);
        if (change->ref_count > 0) {
            v.object_id = change->refs[0].object_id;
            v.flags = INDEX_HAS_REFS;
            v.flags |= change->ref_count > 1 ? INDEX_MANY_REFS : 0;
        }
    }
    ASSERT(!existed || old.seq < in->seq);
    enum err e = index_put(&c->pg->index, change->key, &v, NULL, NULL);
    ASSERT(e == OK); // reserved
    shard_live_add(sd, segment, bytes);
    if (existed) {
        shard_died(sd, old.location.segment, old.location.bytes);
        old_refs_drop(c, i, &old);
    }
    metric_add(METRIC_STORE_KEYS, (in->type == RECORD_PUT) - (i64)was_put);
}

static void commit_apply(struct record_group *g)
{
    struct commit *c = g->arg;
    for (u32 i = 0; i < c->count; i++) { // first all new references: an object may change hands
        const struct store_change *change = c->inputs[i].change;
        u32 refs = change->is_delete ? 0 : change->ref_count;
        for (u32 k = 0; k < refs; k++) {
            extent_map_ref(&c->sh->extents, change->refs[k].object_id);
        }
    }
    u32 offset = g->offset;
    for (u32 i = 0; i < c->count; i++) {
        input_apply(c, i, g->segment->id, offset);
        offset += record_frame_bytes(c->inputs[i].change, (enum record_type)c->inputs[i].type);
    }
    ASSERT(c->sh->index_puts >= c->count);
    c->sh->index_puts -= c->count;
}

MAY_WAIT static enum err commit_append(struct commit *c)
{
    struct shard *sh = c->sh;
    TRY(index_pool_reserve(sh->index_pool, sh->index_puts + c->count));
    sh->index_puts += c->count;
    for (u32 i = 0; i < c->count; i++) {
        c->inputs[i].seq = c->pg->next_seq++;
        c->inputs[i].group_index = (u16)i;
        c->inputs[i].group_count = (u16)c->count;
    }
    struct record_group g = {
        .inputs = c->inputs,
        .count = c->count,
        .space = c->is_delete_only ? SPACE_DELETE : SPACE_WRITE,
        .apply = commit_apply,
        .arg = c,
    };
    enum err e = c->pg->replica->ops->append(c->pg->replica, &g);
    if (e != OK) {
        sh->index_puts -= c->count;
    }
    return e;
}

MAY_WAIT static enum err commit_run(struct commit *c)
{
    u64 pinned = 0;
    enum err e = objects_pin(c, &pinned);
    if (e == OK) {
        e = old_records_read(c);
    }
    if (e == OK) {
        e = objects_flush(c);
    }
    if (e == OK) {
        e = commit_append(c);
    }
    objects_unpin(c, pinned);
    for (u32 i = 0; i < c->old_count; i++) {
        record_bytes_release(c->sh, &c->old[i].record);
    }
    free(c->old);
    return e;
}

MAY_WAIT enum err pg_commit(struct store *s, u32 pg, const struct store_change *changes, u32 count)
{
    struct shard *sh = shard_here(s);
    struct record_input few[COMMIT_FEW];
    struct commit c = {.sh = sh, .pg = shard_pg(sh, pg), .inputs = few};
    if (count > STORE_BATCH_MAX) {
        return ERR_LIMIT_REACHED;
    }
    if (count > COMMIT_FEW) {
        c.inputs = malloc(count * sizeof(*c.inputs));
        if (c.inputs == NULL) {
            return ERR_NO_MEMORY;
        }
    }
    enum err e = inputs_choose(&c, changes, count);
    if (e == OK && c.count == 0 && shard_drive_of_pg(sh, pg)->is_failed) {
        // Nothing to delete, as far as anyone knows: an earlier put whose flush failed may still
        // turn up after a restart.
        e = ERR_IO;
    }
    if (e == OK && c.count > 0) {
        fiber_shield_enter();
        e = commit_run(&c);
        fiber_shield_leave();
    }
    if (c.inputs != few) {
        free(c.inputs);
    }
    return e;
}
