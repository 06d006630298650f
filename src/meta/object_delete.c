// SPDX-License-Identifier: Apache-2.0
// Changes of an object that bring no bytes: deleting it, and replacing its attributes. Both run on
// the owner core, inside the bucket's gate, with the key locked.
#include "meta/meta_internal.h"

#include <stdlib.h>

#include "base/assert.h"

struct change_call {
    struct meta *meta;
    const struct place *place;
    const struct write_condition *condition;
    const struct attr *attrs;
    u32 attr_count;
    bool existed;
    struct object_info info;
    enum err (*fn)(struct change_call *c);                                   // may wait
    enum err (*edit)(struct change_call *c, const struct pg_record *record); // may wait
    enum err result;
};

MAY_WAIT static enum err change_locked(struct change_call *c)
{
    struct pg_key_lock lock;
    TRY(pg_key_lock(c->meta->store, c->place->pg, meta_key_bytes(&c->place->key), &lock));
    enum err e = c->fn(c);
    pg_key_unlock(&lock);
    return e;
}

MAY_WAIT static void change_run(void *arg)
{
    struct change_call *c = arg;
    struct meta_core *mc = meta_core(c->meta);
    struct bucket_entry *bucket;
    c->result = bucket_gate_enter(mc, &c->place->bucket, &bucket);
    if (c->result == OK) {
        c->result = change_locked(c);
        bucket_gate_leave(mc, bucket);
    }
}

MAY_WAIT static enum err change_commit(struct change_call *c, const struct store_change *change)
{
    fiber_shield_enter();
    enum err e = pg_commit(c->meta->store, c->place->pg, change, 1);
    fiber_shield_leave();
    return e;
}

MAY_WAIT static enum err delete_object(struct change_call *c)
{
    struct store_change change = {.key = meta_key_bytes(&c->place->key), .is_delete = true};
    struct object_info now;
    TRY(object_peek(c->meta->store, c->place->pg, change.key, &now, &c->existed));
    if (!c->existed) {
        return OK; // whatever the condition: what is to be gone is gone
    }
    TRY(write_condition_check(c->condition, &now));
    return change_commit(c, &change);
}

MAY_WAIT enum err object_delete(struct meta *m, struct bytes bucket, struct bytes key,
                                const struct write_condition *condition, bool *existed)
{
    static const struct write_condition always = {0};
    struct place place;
    TRY(place_find(m, bucket, key, &place));
    struct change_call c = {.meta = m,
                            .place = &place,
                            .condition = condition != NULL ? condition : &always,
                            .fn = delete_object};
    TRY(core_call(place.core, change_run, &c));
    *existed = c.existed;
    return c.result;
}

// The new record: what the old one carries, under c->info and these attributes.
MAY_WAIT static enum err replace_record(struct change_call *c, const struct pg_record *old,
                                        struct object_attrs_source *source,
                                        const struct object_attrs *attrs)
{
    source->checksum = c->info.checksum;
    source->upload = attrs->has_upload ? &attrs->upload : NULL;
    source->parts_raw = attrs->parts.raw;
    size_t bytes = object_attrs_bytes(source);
    u8 *encoded = malloc(bytes);
    if (encoded == NULL) {
        return ERR_NO_MEMORY;
    }
    object_attrs_encode(source, encoded);
    struct store_change change = {.key = meta_key_bytes(&c->place->key),
                                  .attrs = BYTES(encoded, bytes),
                                  .payload = old->payload,
                                  .refs = old->refs,
                                  .ref_count = old->ref_count};
    object_summary_encode(&c->info, change.summary);
    enum err e = change_commit(c, &change);
    free(encoded);
    return e;
}

// Other attributes and a new time.
MAY_WAIT static enum err rewrite_record(struct change_call *c, const struct pg_record *old)
{
    struct object_attrs attrs;
    TRY(object_record_check(old, &c->info, &attrs));
    TRY(write_condition_check(c->condition, &c->info));
    c->info.modified_ns = modified_after(&c->info);
    struct object_attrs_source source = {.attrs = c->attrs, .attr_count = c->attr_count};
    return replace_record(c, old, &source, &attrs);
}

// One attribute, c->attrs[0], and the old time.
MAY_WAIT static enum err set_record_attr(struct change_call *c, const struct pg_record *old)
{
    struct object_attrs attrs;
    TRY(object_record_check(old, &c->info, &attrs));
    struct attr *list = malloc((attrs.attr_count + 1) * sizeof(*list));
    if (list == NULL) {
        return ERR_NO_MEMORY;
    }
    struct bytes rest = attrs.attrs_raw;
    u32 count = 0;
    while (object_attr_next(&rest, &list[count])) {
        count += !bytes_equal(list[count].name, c->attrs[0].name);
    }
    bool is_change = c->attrs[0].value.data != NULL || count < attrs.attr_count;
    if (c->attrs[0].value.data != NULL) {
        list[count++] = c->attrs[0];
    }
    enum err e = object_attrs_check(list, count);
    if (e == OK && is_change) {
        struct object_attrs_source source = {.attrs = list, .attr_count = count};
        e = replace_record(c, old, &source, &attrs);
    }
    free(list);
    return e;
}

// Reads the record and hands it to c->edit.
MAY_WAIT static enum err edit_object(struct change_call *c)
{
    struct pg_record record;
    enum err e = pg_read(c->meta->store, c->place->pg, meta_key_bytes(&c->place->key), &record);
    if (e != OK) {
        return e == ERR_NOT_FOUND ? ERR_S3_NO_SUCH_KEY : e;
    }
    e = c->edit(c, &record);
    pg_record_release(&record);
    return e;
}

MAY_WAIT enum err object_rewrite_attrs(struct meta *m, struct bytes bucket, struct bytes key,
                                       const struct attr *attrs, u32 attr_count,
                                       const struct write_condition *condition,
                                       struct object_info *out)
{
    static const struct write_condition always = {0};
    struct place place;
    TRY(object_attrs_check(attrs, attr_count));
    TRY(place_find(m, bucket, key, &place));
    struct change_call c = {.meta = m,
                            .place = &place,
                            .condition = condition != NULL ? condition : &always,
                            .attrs = attrs,
                            .attr_count = attr_count,
                            .fn = edit_object,
                            .edit = rewrite_record};
    TRY(core_call(place.core, change_run, &c));
    *out = c.info;
    return c.result;
}

MAY_WAIT enum err object_set_attr(struct meta *m, struct bytes bucket, struct bytes key,
                                  const struct attr *attr)
{
    struct place place;
    TRY(place_find(m, bucket, key, &place));
    struct change_call c = {.meta = m,
                            .place = &place,
                            .attrs = attr,
                            .attr_count = 1,
                            .fn = edit_object,
                            .edit = set_record_attr};
    TRY(core_call(place.core, change_run, &c));
    return c.result;
}
