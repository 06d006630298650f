// SPDX-License-Identifier: Apache-2.0
// Buckets: the copy of the table that each core has, the gate that every commit passes, and the
// protocol of creating and deleting over all cores.
//
// Bucket records live in PG 0, so its owner core orders creations and deletions (bucket_admin). The
// tables follow by rounds of messages, which cannot fail. A creation is durable before any table
// has it; a deletion is durable before any table loses it, with all gates closed meanwhile.
#include "meta/meta_internal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/endian.h"
#include "base/log.h"

#define BUCKET_VERSION 1
#define SCAN_SLICE_PGS 64 // looked into before the loop gets its turn

static struct bytes entry_name(const struct bucket_entry *e)
{
    return bytes_from_string(e->bucket.name);
}

// The first entry with a name >= `name`; *is_equal tells whether it has that name.
static u32 table_lower_bound(const struct bucket_table *t, struct bytes name, bool *is_equal)
{
    u32 low = 0;
    u32 high = t->count;
    *is_equal = false;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        int c = bytes_compare(entry_name(t->entries[middle]), name);
        if (c == 0) {
            *is_equal = true;
            return middle;
        }
        if (c < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct bucket_entry *table_find(const struct bucket_table *t, struct bytes name)
{
    bool is_equal;
    u32 i = table_lower_bound(t, name, &is_equal);
    return is_equal ? t->entries[i] : NULL;
}

static void table_insert(struct bucket_table *t, struct bucket_entry *e)
{
    bool is_equal;
    u32 i = table_lower_bound(t, entry_name(e), &is_equal);
    ASSERT(!is_equal && t->count < META_BUCKETS_MAX);
    memmove(t->entries + i + 1, t->entries + i, (t->count - i) * sizeof(*t->entries));
    t->entries[i] = e;
    t->count++;
}

static void table_remove(struct bucket_table *t, struct bytes name)
{
    bool is_equal;
    u32 i = table_lower_bound(t, name, &is_equal);
    ASSERT(is_equal && t->entries[i]->writes == 0);
    free(t->entries[i]);
    t->count--;
    memmove(t->entries + i, t->entries + i + 1, (t->count - i) * sizeof(*t->entries));
}

void bucket_table_free(struct meta_core *mc)
{
    for (u32 i = 0; mc->buckets != NULL && i < mc->buckets->count; i++) {
        ASSERT(mc->buckets->entries[i]->writes == 0);
        free(mc->buckets->entries[i]);
    }
    free(mc->buckets);
    mc->buckets = NULL;
}

enum err bucket_find(struct meta *m, struct bytes name, struct bucket *out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    const struct bucket_entry *e = table_find(meta_core(m)->buckets, name);
    if (e == NULL) {
        return ERR_S3_NO_SUCH_BUCKET;
    }
    *out = e->bucket;
    return OK;
}

void bucket_list(struct meta *m, struct bytes prefix, struct bytes after,
                 bool (*fn)(void *arg, const struct bucket *b), void *arg)
{
    ASSERT_MAGIC(m, META_MAGIC);
    const struct bucket_table *t = meta_core(m)->buckets;
    bool is_equal;
    u32 i = table_lower_bound(t, after, &is_equal);
    u32 from = table_lower_bound(t, prefix, &is_equal);
    for (i = MAX(i, from); i < t->count; i++) {
        struct bytes name = entry_name(t->entries[i]);
        if (!bytes_has_prefix(name, prefix)) {
            return;
        }
        if (bytes_compare(name, after) > 0 && !fn(arg, &t->entries[i]->bucket)) {
            return;
        }
    }
}

// ---- the gate

MAY_WAIT enum err bucket_gate_enter(struct meta_core *mc, const struct bucket *b,
                                    struct bucket_entry **out)
{
    ASSERT(mc->core == core_id());
    for (;;) {
        struct bucket_entry *e = table_find(mc->buckets, bytes_from_string(b->name));
        if (e == NULL || e->bucket.id != b->id) {
            return ERR_S3_NO_SUCH_BUCKET;
        }
        if (!e->is_closing) {
            e->writes++;
            *out = e;
            return OK;
        }
        TRY(wait_queue_wait(&mc->gates));
    }
}

void bucket_gate_leave(struct meta_core *mc, struct bucket_entry *e)
{
    ASSERT(mc->core == core_id() && e->writes > 0);
    if (--e->writes == 0 && e->drain != NULL) {
        struct round_leg *leg = e->drain;
        e->drain = NULL;
        core_round_answer(leg);
    }
}

// ---- rounds: each runs once on every core, in its loop

static bool round_insert(struct meta_core *mc, struct round_leg *leg, void *arg)
{
    struct bucket_entry **entries = arg;
    (void)leg;
    table_insert(mc->buckets, entries[mc->core]);
    return true;
}

static bool round_close(struct meta_core *mc, struct round_leg *leg, void *arg)
{
    const struct bucket *b = arg;
    struct bucket_entry *e = table_find(mc->buckets, bytes_from_string(b->name));
    ASSERT(e != NULL && e->bucket.id == b->id && !e->is_closing);
    e->is_closing = true;
    if (e->writes == 0) {
        return true;
    }
    e->drain = leg;
    return false;
}

static bool round_reopen(struct meta_core *mc, struct round_leg *leg, void *arg)
{
    const struct bucket *b = arg;
    struct bucket_entry *e = table_find(mc->buckets, bytes_from_string(b->name));
    (void)leg;
    ASSERT(e != NULL && e->bucket.id == b->id && e->is_closing && e->writes == 0);
    e->is_closing = false;
    wait_queue_wake_all(&mc->gates);
    return true;
}

static bool round_remove(struct meta_core *mc, struct round_leg *leg, void *arg)
{
    const struct bucket *b = arg;
    (void)leg;
    table_remove(mc->buckets, bytes_from_string(b->name));
    wait_queue_wake_all(&mc->gates);
    return true;
}

// One entry for every core, made before anything is decided.
static enum err entries_make(struct meta *m, const struct bucket *b,
                             struct bucket_entry *entries[CORES_MAX])
{
    for (u32 core = 0; core < m->cores; core++) {
        entries[core] = calloc(1, sizeof(**entries));
        if (entries[core] == NULL) {
            while (core > 0) {
                free(entries[--core]);
            }
            return ERR_NO_MEMORY;
        }
        entries[core]->bucket = *b;
    }
    return OK;
}

// ---- records of PG 0: summary = id 8, created_ns 8, version 1, zeros

static void bucket_encode(const struct bucket *b, u8 summary[STORE_SUMMARY_BYTES])
{
    memset(summary, 0, STORE_SUMMARY_BYTES);
    store_le64(summary, b->id);
    store_le64(summary + 8, b->created_ns);
    summary[16] = BUCKET_VERSION;
}

static enum err bucket_decode(struct bytes key, const u8 *summary, struct bucket *out)
{
    struct bytes name = bytes_skip(key, KEY_HEAD_BYTES);
    if (summary[16] != BUCKET_VERSION) {
        return ERR_VERSION;
    }
    *out = (struct bucket){.id = load_le64(summary), .created_ns = load_le64(summary + 8)};
    if (!bucket_name_is_valid(name) || out->id == 0) {
        return ERR_FORMAT;
    }
    memcpy(out->name, name.data, name.len);
    return OK;
}

// The bucket's record and the counter of ids, in one commit.
MAY_WAIT static enum err commit_create(struct meta *m, const struct bucket *b)
{
    struct meta_key key;
    struct meta_key counter;
    struct store_change changes[2] = {0};
    struct pg_key_lock locks[2];
    key_bucket(&key, bytes_from_string(b->name));
    key_space(&counter, 0, KEY_SPACE_COUNTER);
    changes[0].key = meta_key_bytes(&key);
    bucket_encode(b, changes[0].summary);
    changes[1].key = meta_key_bytes(&counter);
    store_le64(changes[1].summary, b->id + 1);
    changes[1].summary[16] = BUCKET_VERSION;
    TRY(pg_key_lock(m->store, 0, changes[0].key, &locks[0]));
    enum err e = pg_key_lock(m->store, 0, changes[1].key, &locks[1]);
    if (e == OK) {
        e = pg_commit(m->store, 0, changes, 2);
        pg_key_unlock(&locks[1]);
    }
    pg_key_unlock(&locks[0]);
    return e;
}

MAY_WAIT static enum err commit_delete(struct meta *m, const struct bucket *b)
{
    struct meta_key key;
    struct pg_key_lock lock;
    key_bucket(&key, bytes_from_string(b->name));
    struct store_change change = {.key = meta_key_bytes(&key), .is_delete = true};
    TRY(pg_key_lock(m->store, 0, change.key, &lock));
    enum err e = pg_commit(m->store, 0, &change, 1);
    pg_key_unlock(&lock);
    return e;
}

// Collects what PG 0 says; no wait, so the cursor stays good.
static enum err load_cursor(struct meta *m, struct bucket *buckets, u32 *count)
{
    struct pg_cursor c;
    struct meta_key from;
    key_space(&from, 0, 0);
    bool has = pg_cursor_seek(&c, m->store, 0, meta_key_bytes(&from), false);
    for (; has; has = pg_cursor_next(&c)) {
        struct bytes key = BYTES(c.key, c.key_len);
        if (key_bucket_id(key) != 0) {
            return OK;
        }
        u8 space = key_space_of(key);
        if (space == KEY_SPACE_COUNTER) {
            m->admin.next_id = MAX(m->admin.next_id, load_le64(c.summary));
        } else if (space == KEY_SPACE_BUCKET) {
            if (*count == META_BUCKETS_MAX) {
                return ERR_FORMAT;
            }
            TRY(bucket_decode(key, c.summary, &buckets[*count]));
            m->admin.next_id = MAX(m->admin.next_id, buckets[*count].id + 1);
            (*count)++;
        }
    }
    return OK;
}

MAY_WAIT enum err bucket_load(struct meta *m)
{
    u32 count = 0;
    struct bucket_entry *entries[CORES_MAX];
    struct bucket *buckets = calloc(META_BUCKETS_MAX, sizeof(*buckets));
    if (buckets == NULL) {
        return ERR_NO_MEMORY;
    }
    m->admin.next_id = 1;
    enum err e = load_cursor(m, buckets, &count);
    for (u32 i = 0; i < count && e == OK; i++) {
        e = entries_make(m, &buckets[i], entries);
        for (u32 core = 0; core < m->cores && e == OK; core++) {
            table_insert(m->core[core]->buckets, entries[core]);
        }
    }
    free(buckets);
    return e;
}

// ---- create

struct bucket_call {
    struct meta *meta;
    struct bytes name;
    struct bucket bucket;
    enum err result;
};

MAY_WAIT static enum err create_locked(struct bucket_call *c)
{
    struct meta *m = c->meta;
    struct bucket_table *t = meta_core(m)->buckets;
    struct bucket_entry *entries[CORES_MAX];
    const struct bucket_entry *existing = table_find(t, c->name);
    if (existing != NULL) {
        c->bucket = existing->bucket;
        return ERR_S3_BUCKET_ALREADY_OWNED;
    }
    if (t->count >= m->options.buckets_max) {
        return ERR_S3_TOO_MANY_BUCKETS;
    }
    c->bucket = (struct bucket){.id = m->admin.next_id, .created_ns = core_wall_ns()};
    memcpy(c->bucket.name, c->name.data, c->name.len);
    TRY(entries_make(m, &c->bucket, entries));
    // Used up even if the commit fails: its outcome on the drive may be unknown.
    m->admin.next_id++;
    enum err e = commit_create(m, &c->bucket);
    if (e != OK) {
        for (u32 core = 0; core < m->cores; core++) {
            free(entries[core]);
        }
        return e;
    }
    core_round_run(m, round_insert, entries);
    return OK;
}

MAY_WAIT static void create_run(void *arg)
{
    struct bucket_call *c = arg;
    c->result = fiber_mutex_lock(&c->meta->admin.mutex);
    if (c->result != OK) {
        return;
    }
    fiber_shield_enter();
    c->result = create_locked(c);
    fiber_shield_leave();
    fiber_mutex_unlock(&c->meta->admin.mutex);
}

MAY_WAIT enum err bucket_create(struct meta *m, struct bytes name, struct bucket *out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    if (!bucket_name_is_valid(name)) {
        return ERR_S3_INVALID_BUCKET_NAME;
    }
    struct bucket_call c = {.meta = m, .name = name};
    TRY(core_call(store_pg_core(m->store, 0), create_run, &c));
    *out = c.bucket;
    return c.result;
}

// ---- delete

struct scan_call {
    struct meta *meta;
    u64 bucket_id;
    bool is_empty;
    enum err result;
};

// Is there an object in this core's PGs? Nothing can appear while the gates are closed.
MAY_WAIT static void scan_run(void *arg)
{
    struct scan_call *c = arg;
    struct meta_core *mc = meta_core(c->meta);
    struct meta_key from;
    struct pg_cursor cursor;
    key_space(&from, c->bucket_id, KEY_SPACE_OBJECT);
    for (u32 i = 0; i < mc->pg_count; i++) {
        if (pg_cursor_seek(&cursor, c->meta->store, mc->pgs[i], meta_key_bytes(&from), false) &&
            bytes_has_prefix(BYTES(cursor.key, cursor.key_len), meta_key_bytes(&from))) {
            c->is_empty = false;
            return;
        }
        if (i % SCAN_SLICE_PGS == SCAN_SLICE_PGS - 1) {
            fiber_yield();
        }
    }
}

MAY_WAIT static void sweep_after_delete(void *arg)
{
    struct scan_call *c = arg;
    c->result = sweep_bucket(meta_core(c->meta), c->bucket_id);
}

// The gates are closed: decides.
MAY_WAIT static enum err delete_closed(struct meta *m, const struct bucket *b)
{
    struct scan_call scan = {.meta = m, .bucket_id = b->id, .is_empty = true};
    for (u32 core = 0; core < m->cores && scan.is_empty; core++) {
        TRY(core_call(core, scan_run, &scan));
    }
    return scan.is_empty ? commit_delete(m, b) : ERR_S3_BUCKET_NOT_EMPTY;
}

MAY_WAIT static enum err delete_locked(struct bucket_call *c)
{
    struct meta *m = c->meta;
    const struct bucket_entry *e = table_find(meta_core(m)->buckets, c->name);
    if (e == NULL) {
        return ERR_S3_NO_SUCH_BUCKET;
    }
    c->bucket = e->bucket;
    core_round_run(m, round_close, &c->bucket);
    enum err result = delete_closed(m, &c->bucket);
    core_round_run(m, result == OK ? round_remove : round_reopen, &c->bucket);
    return result;
}

MAY_WAIT static void delete_run(void *arg)
{
    struct bucket_call *c = arg;
    c->result = fiber_mutex_lock(&c->meta->admin.mutex);
    if (c->result != OK) {
        return;
    }
    fiber_shield_enter();
    c->result = delete_locked(c);
    fiber_shield_leave();
    fiber_mutex_unlock(&c->meta->admin.mutex);
}

MAY_WAIT enum err bucket_delete(struct meta *m, struct bytes name)
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct bucket_call c = {.meta = m, .name = name};
    TRY(core_call(store_pg_core(m->store, 0), delete_run, &c));
    TRY(c.result);
    // Its uploads are orphans now. What fails here is swept when meta is opened again.
    struct scan_call sweep = {.meta = m, .bucket_id = c.bucket.id};
    fiber_shield_enter();
    for (u32 core = 0; core < m->cores; core++) {
        enum err e = core_call(core, sweep_after_delete, &sweep);
        if (e != OK || sweep.result != OK) {
            LOG_WARN("bucket_sweep_failed", "bucket=%s error=%s", c.bucket.name,
                     err_name(e != OK ? e : sweep.result));
        }
    }
    fiber_shield_leave();
    return OK;
}
