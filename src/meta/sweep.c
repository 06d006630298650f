// SPDX-License-Identifier: Apache-2.0
// Deleting many records of one PG: the parts of an upload that was completed or aborted, and what a
// crash left of such sweeps. Batches are bounded, and the loop gets its turn between them.
//
// A part's record is one reference to its extents and the completed object's record another, so
// dropping parts never drops bytes that an object still has.
#include "meta/meta_internal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"

#define SWEEP_BATCH     128  // deletes of the longest keys fit the smallest segment
#define SWEEP_STEPS_MAX 2048 // keys looked at before the loop gets its turn

_Static_assert(SWEEP_BATCH <= STORE_BATCH_MAX, "a batch is one commit");

enum sweep_verdict {
    SWEEP_KEEP,
    SWEEP_DROP,
    SWEEP_SKIP_TO_PARTS, // go on at the first part of this key's bucket
    SWEEP_END,
};

struct sweep {
    struct meta_core *mc;
    u32 pg;
    enum sweep_verdict (*fn)(struct sweep *s, struct bytes key);
    struct meta_key prefix; // of what is swept (uploads and buckets)
    // Of sweep_orphans: all buckets, and the last upload whose parts were looked at.
    const u64 *bucket_ids;
    u32 bucket_count;
    struct meta_key upload;
    bool upload_exists;
    bool is_warned;
    u64 dropped;
    // The batch.
    u32 count;
    struct meta_key keys[SWEEP_BATCH];
    struct store_change changes[SWEEP_BATCH];
    struct pg_key_lock locks[SWEEP_BATCH];
};

// Fills the batch from `at` on, without a wait. True: there is nothing after it.
static bool sweep_gather(struct sweep *s, struct meta_key *at, bool *is_after)
{
    struct pg_cursor c;
    struct store *store = s->mc->meta->store;
    s->count = 0;
    bool has = pg_cursor_seek(&c, store, s->pg, meta_key_bytes(at), *is_after);
    for (u32 steps = 0; has; steps++) {
        struct bytes key = BYTES(c.key, c.key_len);
        if (steps == SWEEP_STEPS_MAX || s->count == SWEEP_BATCH) {
            return false;
        }
        enum sweep_verdict verdict = s->fn(s, key);
        if (verdict == SWEEP_END) {
            return true;
        }
        if (verdict == SWEEP_SKIP_TO_PARTS) {
            key_space(at, key_bucket_id(key), KEY_SPACE_PART);
            *is_after = false;
            has = pg_cursor_seek(&c, store, s->pg, meta_key_bytes(at), false);
            continue;
        }
        at->len = c.key_len;
        memcpy(at->data, c.key, c.key_len);
        *is_after = true;
        if (verdict == SWEEP_DROP) {
            s->keys[s->count++] = *at;
        }
        has = pg_cursor_next(&c);
    }
    return true;
}

MAY_WAIT static enum err sweep_commit(struct sweep *s)
{
    enum err e = OK;
    u32 locked = 0;
    for (u32 i = 0; i < s->count && e == OK; i++) {
        s->changes[i] =
            (struct store_change){.key = meta_key_bytes(&s->keys[i]), .is_delete = true};
        e = pg_key_lock(s->mc->meta->store, s->pg, s->changes[i].key, &s->locks[i]);
        locked += e == OK;
    }
    if (e == OK) {
        e = pg_commit(s->mc->meta->store, s->pg, s->changes, s->count);
    }
    while (locked > 0) {
        pg_key_unlock(&s->locks[--locked]);
    }
    s->dropped += e == OK ? s->count : 0;
    return e;
}

MAY_WAIT static enum err sweep_run(struct sweep *s, const struct meta_key *from)
{
    struct meta_key at = *from;
    bool is_after = false;
    bool is_end = false;
    enum err e = OK;
    fiber_shield_enter();
    while (e == OK && !is_end) {
        is_end = sweep_gather(s, &at, &is_after);
        if (s->count > 0) {
            e = sweep_commit(s);
        } else if (!is_end) {
            fiber_yield();
        }
    }
    fiber_shield_leave();
    return e;
}

static struct sweep *sweep_create(struct meta_core *mc)
{
    struct sweep *s = malloc(sizeof(*s));
    if (s != NULL) {
        s->mc = mc;
        s->dropped = 0;
        s->is_warned = false;
        s->upload.len = 0;
        s->bucket_ids = NULL;
        s->bucket_count = 0;
    }
    return s;
}

static enum sweep_verdict drop_with_prefix(struct sweep *s, struct bytes key)
{
    return bytes_has_prefix(key, meta_key_bytes(&s->prefix)) ? SWEEP_DROP : SWEEP_END;
}

MAY_WAIT enum err sweep_upload(struct meta_core *mc, u32 pg, const struct meta_key *upload)
{
    struct sweep *s = sweep_create(mc);
    if (s == NULL) {
        return ERR_NO_MEMORY;
    }
    ASSERT(upload->data[8] == KEY_SPACE_UPLOAD);
    s->pg = pg;
    s->fn = drop_with_prefix;
    s->prefix = *upload;
    s->prefix.data[8] = KEY_SPACE_PART;
    enum err e = sweep_run(s, &s->prefix);
    free(s);
    return e;
}

MAY_WAIT enum err sweep_bucket(struct meta_core *mc, u64 bucket_id)
{
    static const u8 spaces[] = {KEY_SPACE_PART, KEY_SPACE_UPLOAD};
    struct sweep *s = sweep_create(mc);
    enum err e = OK;
    if (s == NULL) {
        return ERR_NO_MEMORY;
    }
    s->fn = drop_with_prefix;
    for (u32 i = 0; i < mc->pg_count * ARRAY_LEN(spaces) && e == OK; i++) {
        s->pg = mc->pgs[i / ARRAY_LEN(spaces)];
        key_space(&s->prefix, bucket_id, spaces[i % ARRAY_LEN(spaces)]);
        e = sweep_run(s, &s->prefix);
    }
    free(s);
    return e;
}

static int compare_ids(const void *a, const void *b)
{
    u64 x = *(const u64 *)a;
    u64 y = *(const u64 *)b;
    return (x > y) - (x < y);
}

static bool upload_exists(struct sweep *s, struct bytes part_key)
{
    struct meta_key upload;
    struct pg_entry entry;
    u32 number;
    if (!key_part_parse(part_key, &upload, &number)) {
        return false;
    }
    if (!bytes_equal(meta_key_bytes(&upload), meta_key_bytes(&s->upload))) {
        s->upload = upload;
        s->upload_exists = pg_lookup(s->mc->meta->store, s->pg, meta_key_bytes(&upload), &entry);
    }
    return s->upload_exists;
}

static enum sweep_verdict orphan_verdict(struct sweep *s, struct bytes key)
{
    u64 id = key_bucket_id(key);
    u8 space = key_space_of(key);
    bool has_bucket =
        id == 0 || bsearch(&id, s->bucket_ids, s->bucket_count, sizeof(id), compare_ids) != NULL;
    if (space == KEY_SPACE_OBJECT) {
        if (!has_bucket && !s->is_warned) {
            // Never deleted here: a bucket goes only when it is empty, so this is a fault.
            LOG_ERROR("objects_without_bucket", "pg=%u bucket_id=%llu", s->pg,
                      (unsigned long long)id);
            s->is_warned = true;
        }
        return SWEEP_SKIP_TO_PARTS;
    }
    if (space == KEY_SPACE_PART) {
        return has_bucket && upload_exists(s, key) ? SWEEP_KEEP : SWEEP_DROP;
    }
    return space == KEY_SPACE_UPLOAD && !has_bucket ? SWEEP_DROP : SWEEP_KEEP;
}

MAY_WAIT enum err sweep_orphans(struct meta_core *mc)
{
    u32 count = mc->buckets->count;
    u64 *ids = calloc((size_t)count + 1, sizeof(*ids));
    struct sweep *s = sweep_create(mc);
    enum err e = s == NULL || ids == NULL ? ERR_NO_MEMORY : OK;
    if (e == OK) {
        for (u32 i = 0; i < count; i++) {
            ids[i] = mc->buckets->entries[i]->bucket.id;
        }
        qsort(ids, count, sizeof(*ids), compare_ids);
        s->bucket_ids = ids;
        s->bucket_count = count;
        s->fn = orphan_verdict;
    }
    for (u32 i = 0; i < mc->pg_count && e == OK; i++) {
        struct meta_key from = {.len = 0};
        s->pg = mc->pgs[i];
        s->upload.len = 0;
        e = sweep_run(s, &from);
    }
    if (s != NULL && s->dropped > 0) {
        LOG_INFO("uploads_swept", "core=%u records=%llu", mc->core, (unsigned long long)s->dropped);
    }
    free(ids);
    free(s);
    return e;
}
