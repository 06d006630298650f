// SPDX-License-Identifier: Apache-2.0
// Reading side of a placement group: lookups, cursors, records with their pins, extents.
#include <stdlib.h>

#include "base/log.h"
#include "core/metrics.h"
#include "store/shard.h"

// What a record that was read holds, and how another core sends it home.
struct pg_pin {
    struct message message;
    struct pg_pin *next_free;
    struct shard *shard;
    struct record_bytes record;
};

bool pg_lookup(struct store *s, u32 pg, struct bytes key, struct pg_entry *out)
{
    struct index_value v;
    struct pg *p = shard_pg(shard_here(s), pg);
    if (!index_find(&p->index, key, &v) || (v.flags & INDEX_TOMBSTONE) != 0) {
        return false;
    }
    memcpy(out->summary, v.summary, STORE_SUMMARY_BYTES);
    out->has_refs = (v.flags & INDEX_HAS_REFS) != 0;
    out->record_bytes = v.location.bytes;
    return true;
}

// ---- records

static struct pg_pin *pin_new(struct shard *sh)
{
    struct pg_pin *pin = sh->pins_free;
    if (pin != NULL) {
        sh->pins_free = pin->next_free;
    } else {
        pin = malloc(sizeof(*pin));
        if (pin == NULL) {
            return NULL;
        }
    }
    *pin = (struct pg_pin){.shard = sh};
    sh->pins_out++;
    return pin;
}

static void pin_free(struct pg_pin *pin)
{
    struct shard *sh = pin->shard;
    ASSERT(sh->pins_out > 0);
    sh->pins_out--;
    pin->next_free = sh->pins_free;
    sh->pins_free = pin;
}

void shard_pins_free(struct shard *sh)
{
    ASSERT(sh->pins_out == 0); // a record was never released
    while (sh->pins_free != NULL) {
        struct pg_pin *pin = sh->pins_free;
        sh->pins_free = pin->next_free;
        free(pin);
    }
}

static void pin_release(struct pg_pin *pin)
{
    struct shard *sh = pin->shard;
    const struct record_view *v = &pin->record.view;
    for (u32 i = 0; i < v->ref_count; i++) {
        extent_map_unpin(&sh->extents, v->refs[i].object_id);
    }
    record_bytes_release(sh, &pin->record);
    pin_free(pin);
}

static void pin_came_home(struct message *m)
{
    pin_release(CONTAINER_OF(m, struct pg_pin, message));
}

void pg_record_release(struct pg_record *r)
{
    struct pg_pin *pin = r->pin;
    *r = (struct pg_record){0};
    if (pin == NULL) {
        return;
    }
    if (pin->shard->core == core_id()) {
        pin_release(pin);
    } else {
        pin->message.fn = pin_came_home;
        core_post(pin->shard->core, &pin->message);
    }
}

// Pins the record's objects if the record is still the key's current one: then they are alive.
// False if it was replaced while it was read.
static bool objects_pin(struct shard *sh, struct pg *p, struct bytes key,
                        const struct record_view *v)
{
    if (v->ref_count == 0) {
        return true;
    }
    struct index_value now;
    if (!index_find(&p->index, key, &now) || now.seq != v->seq) {
        return false;
    }
    for (u32 i = 0; i < v->ref_count; i++) {
        enum err e = extent_map_pin(&sh->extents, v->refs[i].object_id);
        ASSERT(e == OK); // it exists: the index refers to it
    }
    return true;
}

static bool is_what_index_says(const struct record_view *v, u32 pg, struct bytes key, u64 seq)
{
    return v->type == RECORD_PUT && v->pg == pg && v->seq == seq && bytes_equal(v->key, key);
}

MAY_WAIT static enum err pin_fill(struct shard *sh, struct pg *p, struct bytes key,
                                  struct pg_pin *pin)
{
    for (;;) {
        struct index_value v;
        if (!index_find(&p->index, key, &v) || (v.flags & INDEX_TOMBSTONE) != 0) {
            return ERR_NOT_FOUND;
        }
        TRY(p->replica->ops->record_read(p->replica, &v.location, &pin->record));
        if (!is_what_index_says(&pin->record.view, p->number, key, v.seq)) {
            metric_add(METRIC_STORE_CORRUPT, 1);
            LOG_ERROR("record_misplaced", "pg=%u segment=%u offset_units=%u", p->number,
                      v.location.segment, v.location.offset_units);
            record_bytes_release(sh, &pin->record);
            return ERR_CORRUPT;
        }
        if (objects_pin(sh, p, key, &pin->record.view)) {
            return OK;
        }
        record_bytes_release(sh, &pin->record); // replaced meanwhile: read the newer one
    }
}

MAY_WAIT enum err pg_read(struct store *s, u32 pg, struct bytes key, struct pg_record *out)
{
    struct shard *sh = shard_here(s);
    struct pg *p = shard_pg(sh, pg);
    *out = (struct pg_record){0};
    if (key.len > STORE_KEY_BYTES_MAX) {
        return ERR_NOT_FOUND;
    }
    struct pg_pin *pin = pin_new(sh);
    if (pin == NULL) {
        return ERR_NO_MEMORY;
    }
    enum err e = pin_fill(sh, p, key, pin);
    if (e != OK) {
        pin_free(pin);
        return e;
    }
    const struct record_view *v = &pin->record.view;
    out->store = s;
    out->pg = pg;
    memcpy(out->summary, v->summary, STORE_SUMMARY_BYTES);
    out->attrs = v->attrs;
    out->payload = v->payload;
    out->refs = v->refs;
    out->ref_count = v->ref_count;
    out->pin = pin;
    return OK;
}

// ---- extents

// opens (20 bits) | pg (12) | count since the start (32): never the same twice.
u64 pg_object_id_new(struct store *s, u32 pg)
{
    struct pg *p = shard_pg(shard_here(s), pg);
    ASSERT(p->next_object < UINT32_MAX);
    return s->opens << 44 | (u64)pg << 32 | p->next_object++;
}

MAY_WAIT enum err pg_extent_write(struct store *s, u32 pg, u64 object_id, u32 chunk,
                                  struct buf *frame, u32 data_bytes)
{
    struct shard *sh = shard_here(s);
    struct pg *p = shard_pg(sh, pg);
    ASSERT(object_id != 0 && (object_id >> 32 & 0xfff) == pg);
    if (chunk >= EXTENT_CHUNKS_MAX || data_bytes == 0 || data_bytes > STORE_EXTENT_BYTES) {
        return ERR_INVALID;
    }
    struct extent_name name = {.object_id = object_id, .chunk = chunk, .pg = (u16)pg};
    TRY(extent_map_own(&sh->extents, object_id));
    return p->replica->ops->extent_write(p->replica, &name, frame, data_bytes);
}

void pg_extent_abandon(struct store *s, u32 pg, u64 object_id)
{
    struct shard *sh = shard_here(s);
    ASSERT(shard_pg(sh, pg) != NULL);
    extent_map_disown(&sh->extents, object_id);
}

MAY_WAIT enum err pg_extent_read(struct store *s, u32 pg, u64 object_id, u32 chunk, u32 offset,
                                 u32 len, struct buf **out, u32 *out_offset)
{
    struct pg *p = shard_pg(shard_here(s), pg);
    struct extent_name name = {.object_id = object_id, .chunk = chunk, .pg = (u16)pg};
    enum err e = p->replica->ops->extent_read(p->replica, &name, offset, len, out, out_offset);
    if (e == ERR_NOT_FOUND) {
        // The record that the caller holds says that it exists: the drive lost it.
        metric_add(METRIC_STORE_CORRUPT, 1);
        LOG_ERROR("extent_lost", "pg=%u object=%016llx chunk=%u", pg, (unsigned long long)object_id,
                  chunk);
        return ERR_CORRUPT;
    }
    return e;
}

// ---- cursors

static bool cursor_show(struct pg_cursor *c, const struct index_cursor *ic, bool is_there)
{
    c->leaf = (void *)(uintptr_t)ic->leaf;
    c->slot = ic->slot;
    if (is_there) {
        c->key_len = index_cursor_key(ic, c->key);
        c->summary = index_cursor_summary(ic);
    } else {
        c->key_len = 0;
        c->summary = NULL;
    }
    return is_there;
}

bool pg_cursor_seek(struct pg_cursor *c, struct store *s, u32 pg, struct bytes from, bool is_after)
{
    struct pg *p = shard_pg(shard_here(s), pg);
    struct index_cursor ic;
    c->store = s;
    c->pg = pg;
    return cursor_show(c, &ic, index_cursor_seek(&p->index, &ic, from, is_after, true));
}

bool pg_cursor_next(struct pg_cursor *c)
{
    ASSERT(c->leaf != NULL);
    struct index_cursor ic = {.leaf = c->leaf, .slot = c->slot};
    return cursor_show(c, &ic, index_cursor_next(&ic, true));
}
