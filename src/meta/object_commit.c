// SPDX-License-Identifier: Apache-2.0
// The end of a write: the record that makes an object or a part visible, in one commit on the owner
// core, with the bucket's gate entered and the key locked from the look at what is there to the
// answer of the commit.
#include "meta/writer.h"

#include <stdlib.h>

#include "base/assert.h"

#define ATTRS_STACK_BYTES 1024 // attributes up to this size need no heap

struct commit_call {
    struct object_writer *writer;
    const struct object_finish *finish;
    struct bytes attrs; // encoded
    struct object_info info;
    enum err result;
};

// The record, with the key locked.
MAY_WAIT static enum err commit_record(struct commit_call *c, struct bytes key)
{
    struct object_writer *w = c->writer;
    struct store *s = w->meta->store;
    struct object_info now;
    struct object_info *replaced = NULL;
    struct extent_ref ref = {.object_id = w->object_id, .bytes = w->size};
    bool exists;
    TRY(object_peek(s, w->place.pg, key, &now, &exists));
    replaced = exists ? &now : NULL;
    if (!w->is_part) {
        TRY(write_condition_check(&c->finish->condition, replaced));
    }
    c->info.modified_ns = modified_after(replaced);
    struct store_change change = {.key = key, .attrs = c->attrs};
    object_summary_encode(&c->info, change.summary);
    if (w->object_id != 0) {
        change.refs = &ref;
        change.ref_count = 1;
    } else if (w->size > 0) {
        change.payload = BYTES(w->frame->data + w->frame_offset, w->size);
    }
    fiber_shield_enter();
    enum err e = pg_commit(s, w->place.pg, &change, 1);
    fiber_shield_leave();
    if (e == OK) {
        w->object_id = 0; // the record's now
    }
    return e;
}

MAY_WAIT static enum err commit_locked(struct commit_call *c, struct bytes key)
{
    struct object_writer *w = c->writer;
    struct pg_key_lock lock;
    TRY(pg_key_lock(w->meta->store, w->place.pg, key, &lock));
    enum err e = commit_record(c, key);
    pg_key_unlock(&lock);
    return e;
}

// Several parts commit at once; Complete and Abort wait for them and they for those.
MAY_WAIT static enum err commit_part(struct commit_call *c, struct meta_core *mc)
{
    struct object_writer *w = c->writer;
    struct upload_gate *gate;
    struct meta_key key;
    struct pg_entry entry;
    enum err e = ERR_S3_NO_SUCH_UPLOAD;
    TRY(upload_gate_enter(mc, &w->upload, false, &gate));
    key_upload(&key, w->place.bucket.id, w->place.name, &w->upload);
    if (pg_lookup(w->meta->store, w->place.pg, meta_key_bytes(&key), &entry)) {
        key_part(&key, w->place.bucket.id, w->place.name, &w->upload, w->part_number);
        e = commit_locked(c, meta_key_bytes(&key));
    }
    upload_gate_leave(gate);
    return e;
}

// On the owner core. Whatever fails: the extents are given up here, where they live.
MAY_WAIT static void commit_run(void *arg)
{
    struct commit_call *c = arg;
    struct object_writer *w = c->writer;
    struct meta_core *mc = meta_core(w->meta);
    struct bucket_entry *bucket;
    c->result = bucket_gate_enter(mc, &w->place.bucket, &bucket);
    if (c->result == OK) {
        c->result =
            w->is_part ? commit_part(c, mc) : commit_locked(c, meta_key_bytes(&w->place.key));
        bucket_gate_leave(mc, bucket);
    }
    if (w->object_id != 0) {
        ASSERT(c->result != OK);
        pg_extent_abandon(w->meta->store, w->place.pg, w->object_id);
        w->object_id = 0;
    }
}

// What to keep of the checksums; a part keeps what its upload wants.
static enum err finish_checksum(const struct object_writer *w, const struct object_finish *f,
                                struct checksum *out)
{
    *out = f->checksum;
    ASSERT(out->algorithm < CHECKSUM_COUNT);
    if (!w->is_part || w->upload_algorithm == CHECKSUM_NONE) {
        return OK;
    }
    if (out->algorithm == CHECKSUM_NONE) {
        out->algorithm = w->upload_algorithm;
        out->type = CHECKSUM_FULL_OBJECT;
        memcpy(out->value, w->digests.checksum[out->algorithm], sizeof(out->value));
    }
    return out->algorithm == w->upload_algorithm ? OK : ERR_S3_INVALID_REQUEST;
}

MAY_WAIT static enum err finish_commit(struct commit_call *c, struct bytes attrs)
{
    c->attrs = attrs;
    TRY(core_call(c->writer->place.core, commit_run, c));
    return c->result;
}

MAY_WAIT static enum err finish_encode(struct commit_call *c,
                                       const struct object_attrs_source *source)
{
    u8 small[ATTRS_STACK_BYTES];
    size_t bytes = object_attrs_bytes(source);
    u8 *to = bytes <= sizeof(small) ? small : malloc(bytes);
    if (to == NULL) {
        return ERR_NO_MEMORY;
    }
    object_attrs_encode(source, to);
    enum err e = finish_commit(c, BYTES(to, bytes));
    if (to != small) {
        free(to);
    }
    return e;
}

MAY_WAIT static enum err finish_run(struct object_writer *w, const struct object_finish *f,
                                    struct object_info *out)
{
    struct object_digests digests;
    struct commit_call c = {.writer = w, .finish = f};
    TRY(object_write_digests(w, &digests));
    writer_settle(w);
    TRY(w->write_error);
    TRY(object_attrs_check(f->attrs, f->attr_count));
    c.info.size = digests.size;
    memcpy(c.info.etag.md5, digests.md5, sizeof(digests.md5));
    TRY(finish_checksum(w, f, &c.info.checksum));
    struct object_attrs_source source = {
        .attrs = f->attrs, .attr_count = f->attr_count, .checksum = c.info.checksum};
    TRY(finish_encode(&c, &source));
    *out = c.info;
    return OK;
}

MAY_WAIT enum err object_write_finish(struct object_writer *w, const struct object_finish *f,
                                      struct object_info *out)
{
    ASSERT_MAGIC(w, WRITER_MAGIC);
    enum err e = finish_run(w, f, out);
    writer_destroy(w);
    return e;
}
