// SPDX-License-Identifier: Apache-2.0
// Multipart uploads: creating, finding, aborting, the gate that keeps their changes apart, and the
// lists of uploads and of parts. Completing is in complete.c, writing a part in object_commit.c.
//
// An upload is one record, a part another, all in the PG of the object. Every change of an upload
// holds its gate: parts share it, Complete and Abort hold it alone. So of two racing changes one
// comes first, and the other finds what the first left: no upload, or a new one of its parts.
#include "meta/list.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/endian.h"
#include "meta/upload.h"

// ---- the gate

struct upload_gate {
    struct list node; // in meta_core.uploads while somebody holds it or waits for it
    struct upload_id id;
    u32 users; // holders and waiters
    u32 shared;
    u32 alone_waiting;
    bool is_alone;
    struct wait_queue queue;
};

static struct upload_gate *gate_find(struct meta_core *mc, const struct upload_id *id)
{
    LIST_FOREACH (node, &mc->uploads) {
        struct upload_gate *g = CONTAINER_OF(node, struct upload_gate, node);
        if (memcmp(g->id.bytes, id->bytes, UPLOAD_ID_BYTES) == 0) {
            return g;
        }
    }
    struct upload_gate *g = calloc(1, sizeof(*g));
    if (g != NULL) {
        g->id = *id;
        wait_queue_init(&g->queue);
        list_add_tail(&mc->uploads, &g->node);
    }
    return g;
}

static void gate_put(struct upload_gate *g)
{
    ASSERT(g->users > 0);
    if (--g->users == 0) {
        ASSERT(g->shared == 0 && !g->is_alone && g->alone_waiting == 0);
        list_remove(&g->node);
        free(g);
    } else {
        wait_queue_wake_all(&g->queue);
    }
}

static bool gate_is_free(const struct upload_gate *g, bool is_exclusive)
{
    return is_exclusive ? !g->is_alone && g->shared == 0 : !g->is_alone && g->alone_waiting == 0;
}

MAY_WAIT enum err upload_gate_enter(struct meta_core *mc, const struct upload_id *id,
                                    bool is_exclusive, struct upload_gate **out)
{
    ASSERT(mc->core == core_id());
    struct upload_gate *g = gate_find(mc, id);
    enum err e = OK;
    if (g == NULL) {
        return ERR_NO_MEMORY;
    }
    g->users++;
    g->alone_waiting += is_exclusive;
    while (e == OK && !gate_is_free(g, is_exclusive)) {
        e = wait_queue_wait(&g->queue);
    }
    g->alone_waiting -= is_exclusive;
    if (e != OK) {
        gate_put(g);
        return e;
    }
    if (is_exclusive) {
        g->is_alone = true;
    } else {
        g->shared++;
    }
    *out = g;
    return OK;
}

void upload_gate_leave(struct upload_gate *g)
{
    ASSERT(g->is_alone != (g->shared > 0));
    if (g->is_alone) {
        g->is_alone = false;
    } else {
        g->shared--;
    }
    gate_put(g);
}

// ---- one upload

enum err upload_place_find(struct meta *m, struct bytes bucket, struct bytes key,
                           struct bytes upload_id, struct upload_place *out)
{
    TRY(place_find(m, bucket, key, &out->object));
    if (!upload_id_parse(upload_id, &out->id)) {
        return ERR_S3_NO_SUCH_UPLOAD;
    }
    key_upload(&out->key, out->object.bucket.id, key, &out->id);
    return OK;
}

static struct upload_info info_of(const struct object_info *summary)
{
    return (struct upload_info){
        .initiated_ns = summary->modified_ns,
        .checksum_algorithm = summary->checksum.algorithm,
        .checksum_type = summary->checksum.type,
    };
}

struct upload_call {
    struct meta *meta;
    const struct upload_place *place;
    struct bytes attrs; // create: encoded
    struct object_info info;
    enum err result;
};

MAY_WAIT static void find_run(void *arg)
{
    struct upload_call *c = arg;
    bool exists;
    c->result = object_peek(c->meta->store, c->place->object.pg, meta_key_bytes(&c->place->key),
                            &c->info, &exists);
    if (c->result == OK && !exists) {
        c->result = ERR_S3_NO_SUCH_UPLOAD;
    }
}

MAY_WAIT enum err upload_find(struct meta *m, struct bytes bucket, struct bytes key,
                              struct bytes upload_id, struct upload_info *out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct upload_place place;
    TRY(upload_place_find(m, bucket, key, upload_id, &place));
    struct upload_call c = {.meta = m, .place = &place};
    TRY(core_call(place.object.core, find_run, &c));
    *out = info_of(&c.info);
    return c.result;
}

// ---- create

MAY_WAIT static enum err create_record(struct upload_call *c)
{
    struct pg_key_lock lock;
    struct store_change change = {.key = meta_key_bytes(&c->place->key), .attrs = c->attrs};
    u32 pg = c->place->object.pg;
    object_summary_encode(&c->info, change.summary);
    TRY(pg_key_lock(c->meta->store, pg, change.key, &lock));
    enum err e = pg_commit(c->meta->store, pg, &change, 1);
    pg_key_unlock(&lock);
    return e;
}

MAY_WAIT static void create_run(void *arg)
{
    struct upload_call *c = arg;
    struct meta_core *mc = meta_core(c->meta);
    struct bucket_entry *bucket;
    c->result = bucket_gate_enter(mc, &c->place->object.bucket, &bucket);
    if (c->result == OK) {
        c->result = create_record(c);
        bucket_gate_leave(mc, bucket);
    }
}

// A CRC of the whole can be joined from those of the parts, a SHA cannot; and CRC64NVME exists for
// the whole only.
static enum err upload_checksum_check(u8 algorithm, u8 type)
{
    bool is_sha = algorithm == CHECKSUM_SHA1 || algorithm == CHECKSUM_SHA256;
    if (algorithm >= CHECKSUM_COUNT || type > CHECKSUM_COMPOSITE ||
        (is_sha && type == CHECKSUM_FULL_OBJECT) ||
        (algorithm == CHECKSUM_CRC64NVME && type == CHECKSUM_COMPOSITE)) {
        return ERR_S3_INVALID_REQUEST;
    }
    return OK;
}

MAY_WAIT enum err upload_create(struct meta *m, const struct upload_options *o,
                                char upload_id[META_UPLOAD_ID_CHARS + 1])
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct upload_place place;
    struct upload_call c = {.meta = m, .place = &place};
    TRY(upload_checksum_check(o->checksum_algorithm, o->checksum_type));
    TRY(object_attrs_check(o->attrs, o->attr_count));
    TRY(place_find(m, o->bucket, o->key, &place.object));
    c.info.modified_ns = core_wall_ns();
    c.info.checksum.algorithm = o->checksum_algorithm;
    c.info.checksum.type = o->checksum_type;
    store_be64(place.id.bytes, c.info.modified_ns);
    core_random(place.id.bytes + 8, UPLOAD_ID_BYTES - 8);
    key_upload(&place.key, place.object.bucket.id, o->key, &place.id);
    struct object_attrs_source source = {.attrs = o->attrs, .attr_count = o->attr_count};
    size_t bytes = object_attrs_bytes(&source);
    u8 *encoded = malloc(bytes);
    if (encoded == NULL) {
        return ERR_NO_MEMORY;
    }
    object_attrs_encode(&source, encoded);
    c.attrs = BYTES(encoded, bytes);
    enum err e = core_call(place.object.core, create_run, &c);
    free(encoded);
    upload_id_text(&place.id, upload_id);
    return e != OK ? e : c.result;
}

// ---- abort

// Alone with the upload. Its record goes first: from then on it does not exist, and parts that are
// still there are garbage, which a crash leaves to the sweep of the next start.
MAY_WAIT static enum err abort_alone(struct upload_call *c, struct meta_core *mc)
{
    const struct upload_place *p = c->place;
    struct store_change change = {.key = meta_key_bytes(&p->key), .is_delete = true};
    struct pg_key_lock lock;
    struct pg_entry entry;
    TRY(pg_key_lock(c->meta->store, p->object.pg, change.key, &lock));
    enum err e = ERR_S3_NO_SUCH_UPLOAD;
    if (pg_lookup(c->meta->store, p->object.pg, change.key, &entry)) {
        e = pg_commit(c->meta->store, p->object.pg, &change, 1);
    }
    pg_key_unlock(&lock);
    TRY(e);
    return sweep_upload(mc, p->object.pg, &p->key);
}

MAY_WAIT static void abort_run(void *arg)
{
    struct upload_call *c = arg;
    struct meta_core *mc = meta_core(c->meta);
    struct bucket_entry *bucket;
    struct upload_gate *gate;
    c->result = bucket_gate_enter(mc, &c->place->object.bucket, &bucket);
    if (c->result != OK) {
        return;
    }
    c->result = upload_gate_enter(mc, &c->place->id, true, &gate);
    if (c->result == OK) {
        c->result = abort_alone(c, mc);
        upload_gate_leave(gate);
    }
    bucket_gate_leave(mc, bucket);
}

MAY_WAIT enum err upload_abort(struct meta *m, struct bytes bucket, struct bytes key,
                               struct bytes upload_id)
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct upload_place place;
    TRY(upload_place_find(m, bucket, key, upload_id, &place));
    struct upload_call c = {.meta = m, .place = &place};
    TRY(core_call(place.object.core, abort_run, &c));
    return c.result;
}

// ---- lists

MAY_WAIT enum err upload_list(struct meta *m, const struct upload_list_request *rq,
                              struct arena *arena, struct upload_item **items, u32 *count,
                              bool *is_truncated)
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct list_page page;
    struct object_info info;
    struct list_query q = {
        .bucket = rq->bucket,
        .prefix = rq->prefix,
        .delimiter = rq->delimiter,
        .after = rq->after_key,
        .max = rq->max,
        .space = KEY_SPACE_UPLOAD,
    };
    if (rq->after_upload_id.len > 0) {
        q.has_after_upload = true;
        if (!upload_id_parse(rq->after_upload_id, &q.after_upload)) {
            return ERR_S3_INVALID_ARGUMENT;
        }
    }
    TRY(list_page(m, &q, arena, &page));
    struct upload_item *list = arena_alloc_zero(arena, page.count * sizeof(*list));
    if (list == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < page.count; i++) {
        list[i].key = page.entries[i].name;
        list[i].is_prefix = page.entries[i].is_prefix;
        if (!list[i].is_prefix) {
            TRY(object_summary_decode(page.entries[i].summary, &info));
            upload_id_text(&page.entries[i].upload, list[i].upload_id);
            list[i].info = info_of(&info);
        }
    }
    *items = list;
    *count = page.count;
    *is_truncated = page.is_truncated;
    return OK;
}

struct parts_call {
    struct meta *meta;
    const struct upload_place *place;
    u32 after;
    u32 max;
    struct part_info *parts; // room for max + 1
    u32 count;
    bool is_truncated;
    enum err result;
};

// From the index, without a wait: at most META_LIST_MAX + 1 steps.
static enum err parts_gather(struct parts_call *c)
{
    const struct upload_place *p = c->place;
    struct meta_key from;
    struct meta_key upload;
    struct pg_cursor cursor;
    key_part(&from, p->object.bucket.id, p->object.name, &p->id, c->after);
    bool has = pg_cursor_seek(&cursor, c->meta->store, p->object.pg, meta_key_bytes(&from), true);
    while (has && c->count <= c->max) {
        struct part_info *part = &c->parts[c->count];
        if (!key_part_parse(BYTES(cursor.key, cursor.key_len), &upload, &part->number) ||
            !bytes_equal(meta_key_bytes(&upload), meta_key_bytes(&p->key))) {
            return OK;
        }
        TRY(object_summary_decode(cursor.summary, &part->info));
        c->count++;
        has = pg_cursor_next(&cursor);
    }
    return OK;
}

// The checksums' values stand in the records. A part that was sent again or swept meanwhile is
// shown as it is now, or not at all.
MAY_WAIT static enum err parts_read(struct parts_call *c)
{
    u32 kept = 0;
    for (u32 i = 0; i < c->count; i++) {
        struct part_info *part = &c->parts[i];
        enum err e = OK;
        if (part->info.checksum.algorithm != CHECKSUM_NONE) {
            e = part_read(c->meta, c->place, part->number, &part->info, NULL);
        }
        if (e == OK) {
            c->parts[kept++] = *part;
        } else if (e != ERR_NOT_FOUND) {
            return e;
        }
    }
    c->count = kept;
    return OK;
}

MAY_WAIT enum err part_read(struct meta *m, const struct upload_place *place, u32 number,
                            struct object_info *info, struct extent_ref *ref)
{
    struct meta_key key;
    struct pg_record record;
    struct object_attrs attrs;
    key_part(&key, place->object.bucket.id, place->object.name, &place->id, number);
    TRY(pg_read(m->store, place->object.pg, meta_key_bytes(&key), &record));
    enum err e = object_record_check(&record, info, &attrs);
    if (e == OK && (record.ref_count > 1 || record.payload.len > 0)) {
        e = ERR_FORMAT;
    }
    if (e == OK && ref != NULL) {
        *ref = record.ref_count == 1 ? record.refs[0] : (struct extent_ref){0};
    }
    pg_record_release(&record);
    return e;
}

MAY_WAIT static void parts_run(void *arg)
{
    struct parts_call *c = arg;
    struct pg_entry entry;
    if (!pg_lookup(c->meta->store, c->place->object.pg, meta_key_bytes(&c->place->key), &entry)) {
        c->result = ERR_S3_NO_SUCH_UPLOAD;
        return;
    }
    c->result = parts_gather(c);
    c->is_truncated = c->max > 0 && c->count > c->max;
    c->count = MIN(c->count, c->max);
    if (c->result == OK) {
        c->result = parts_read(c);
    }
}

MAY_WAIT enum err upload_list_parts(struct meta *m, struct bytes bucket, struct bytes key,
                                    struct bytes upload_id, u32 after, u32 max, struct arena *arena,
                                    struct part_info **parts, u32 *count, bool *is_truncated)
{
    ASSERT_MAGIC(m, META_MAGIC);
    ASSERT(max <= META_LIST_MAX);
    struct upload_place place;
    TRY(upload_place_find(m, bucket, key, upload_id, &place));
    struct parts_call c = {.meta = m, .place = &place, .after = after, .max = max};
    c.parts = arena_alloc(arena, (max + 1) * sizeof(*c.parts));
    if (c.parts == NULL) {
        return ERR_NO_MEMORY;
    }
    TRY(core_call(place.object.core, parts_run, &c));
    TRY(c.result);
    *parts = c.parts;
    *count = c.count;
    *is_truncated = c.is_truncated;
    return OK;
}
