// SPDX-License-Identifier: Apache-2.0
// Listing objects, and uploads, in byte order over all PGs of all cores.
//
// Each core walks its own PGs and rolls up common prefixes, passing over what lies inside one by
// seeking; it returns up to max + 1 names. The caller merges these lists: a common prefix that
// several cores report counts once. What a page does not see it does not skip either: any core that
// cannot answer makes the whole listing an error.
//
// The marker `after` follows AWS: names up to it are skipped; a common prefix is skipped when it
// equals the marker, and listed when the marker lies inside of it and something in it comes later.
#include "meta/list.h"

#include "base/assert.h"
#include "meta/walk.h"

#define LIST_ARENA_BYTES_MAX (4 * MIB) // of one core: META_LIST_MAX names of the greatest length

_Static_assert((META_LIST_MAX + 1) * (META_KEY_BYTES_MAX + 16 + sizeof(struct list_entry)) +
                       64 * KIB <=
                   LIST_ARENA_BYTES_MAX,
               "a full page of long names fits");

// The length of the common prefix that `name` rolls up into; 0: none.
static size_t common_prefix(const struct list_query *q, struct bytes name)
{
    if (q->delimiter.len == 0 || name.len < q->prefix.len + q->delimiter.len) {
        return 0;
    }
    const u8 *at =
        q->delimiter.len == 1
            ? memchr(name.data + q->prefix.len, q->delimiter.data[0], name.len - q->prefix.len)
            : memmem(name.data + q->prefix.len, name.len - q->prefix.len, q->delimiter.data,
                     q->delimiter.len);
    return at == NULL ? 0 : (size_t)(at - name.data) + q->delimiter.len;
}

// The store keys that begin with these are those of names that begin with `prefix`.
static void prefix_key(const struct list_query *q, u64 bucket_id, struct bytes prefix,
                       struct meta_key *out)
{
    if (q->space == KEY_SPACE_OBJECT) {
        key_object(out, bucket_id, prefix);
    } else {
        key_ordered_prefix(out, bucket_id, q->space, prefix);
    }
}

// Where the walk starts, from prefix and marker. False: nothing can follow.
static bool start_key(const struct list_query *q, u64 bucket_id, struct meta_key *from,
                      bool *is_after)
{
    // A longer marker than any name can be is as good as its beginning: no name lies between.
    struct bytes after = BYTES(q->after.data, MIN(q->after.len, (size_t)META_KEY_BYTES_MAX));
    *is_after = false;
    if (after.len == 0 || bytes_compare(after, q->prefix) < 0) {
        prefix_key(q, bucket_id, q->prefix, from);
        return true;
    }
    if (bytes_has_prefix(after, q->prefix) && common_prefix(q, after) == after.len) {
        prefix_key(q, bucket_id, after, from);
        return key_successor(from);
    }
    if (q->space == KEY_SPACE_OBJECT) {
        key_object(from, bucket_id, after);
        *is_after = true;
        return true;
    }
    key_ordered_name(from, bucket_id, q->space, after);
    if (q->has_after_upload) {
        memcpy(from->data + from->len, q->after_upload.bytes, UPLOAD_ID_BYTES);
        from->len += UPLOAD_ID_BYTES;
        *is_after = true;
        return true;
    }
    return key_successor(from);
}

// ---- one core

struct list_part {
    struct arena arena; // filled on its core, read and freed by the caller
    struct list_entry *entries;
    u32 count;
    enum err result;
};

struct list_call {
    struct meta *meta;
    const struct list_query *query;
    u64 bucket_id;
    struct list_part *part;
};

static enum err part_add(struct list_call *c, struct bytes name, bool is_prefix,
                         const struct upload_id *id, const u8 *summary)
{
    struct list_part *part = c->part;
    struct list_entry *e = &part->entries[part->count];
    e->name = arena_copy(&part->arena, name);
    if (e->name.data == NULL) {
        return ERR_NO_MEMORY;
    }
    e->is_prefix = is_prefix;
    if (!is_prefix) {
        e->upload = *id;
        memcpy(e->summary, summary, STORE_SUMMARY_BYTES);
    }
    part->count++;
    return OK;
}

// The name (and upload id) that a store key stands for.
static enum err name_of(const struct list_query *q, struct bytes key, u8 name[META_KEY_BYTES_MAX],
                        struct bytes *out, struct upload_id *id)
{
    if (q->space == KEY_SPACE_OBJECT) {
        *out = bytes_skip(key, KEY_HEAD_BYTES);
        return OK;
    }
    size_t len;
    if (!key_upload_parse(key, name, &len, id)) {
        return ERR_FORMAT;
    }
    *out = BYTES(name, len);
    return OK;
}

// Leaves a common prefix behind: often its next key is outside already, else a seek finds the end.
// False: nothing can come after it.
static bool pass_prefix(struct list_call *c, struct walk *w, struct bytes prefix)
{
    struct meta_key inside;
    struct meta_key past;
    prefix_key(c->query, c->bucket_id, prefix, &inside);
    past = inside;
    if (!key_successor(&past)) {
        return false;
    }
    // Other PGs have keys inside of it too.
    while (walk_has(w) && bytes_has_prefix(walk_key(w), meta_key_bytes(&inside))) {
        walk_next(w);
        if (walk_has(w) && bytes_has_prefix(walk_key(w), meta_key_bytes(&inside))) {
            walk_skip(w, &past);
        }
    }
    return true;
}

MAY_WAIT static enum err walk_names(struct list_call *c, struct walk *w)
{
    const struct list_query *q = c->query;
    u8 name_buf[META_KEY_BYTES_MAX];
    struct upload_id id = {0};
    while (walk_has(w) && c->part->count <= q->max) {
        struct bytes name;
        TRY(name_of(q, walk_key(w), name_buf, &name, &id));
        size_t rolled = common_prefix(q, name);
        TRY(part_add(c, rolled > 0 ? BYTES(name.data, rolled) : name, rolled > 0, &id,
                     walk_summary(w)));
        if (rolled == 0) {
            walk_next(w);
        } else if (!pass_prefix(c, w, c->part->entries[c->part->count - 1].name)) {
            return OK;
        }
        walk_breathe(w);
    }
    return OK;
}

MAY_WAIT static enum err list_core(struct list_call *c)
{
    const struct list_query *q = c->query;
    struct meta_key range;
    struct meta_key from;
    struct walk *w;
    bool is_after;
    c->part->entries = arena_alloc(&c->part->arena, (q->max + 1) * sizeof(*c->part->entries));
    if (c->part->entries == NULL) {
        return ERR_NO_MEMORY;
    }
    prefix_key(q, c->bucket_id, q->prefix, &range);
    if (!start_key(q, c->bucket_id, &from, &is_after)) {
        return OK;
    }
    TRY(walk_open(meta_core(c->meta), meta_key_bytes(&range), &from, is_after, &w));
    enum err e = walk_names(c, w);
    walk_close(w);
    return e;
}

MAY_WAIT static void list_run(void *arg)
{
    struct list_call *c = arg;
    c->part->result = list_core(c);
}

// ---- all cores

static int entry_compare(const struct list_entry *a, const struct list_entry *b)
{
    int c = bytes_compare(a->name, b->name);
    // A key that ends with the delimiter rolls up, so a name is never key and prefix at once.
    return c != 0 || a->is_prefix ? c : memcmp(a->upload.bytes, b->upload.bytes, UPLOAD_ID_BYTES);
}

// The part with the least next entry; its equals (common prefixes) are passed over. NULL: the end.
static const struct list_entry *merge_next(const struct list_part *parts, u32 *at, u32 count)
{
    const struct list_entry *least = NULL;
    for (u32 i = 0; i < count; i++) {
        if (at[i] < parts[i].count &&
            (least == NULL || entry_compare(&parts[i].entries[at[i]], least) < 0)) {
            least = &parts[i].entries[at[i]];
        }
    }
    for (u32 i = 0; i < count && least != NULL; i++) {
        if (at[i] < parts[i].count && entry_compare(&parts[i].entries[at[i]], least) == 0) {
            at[i]++;
        }
    }
    return least;
}

static enum err merge(const struct list_part *parts, u32 cores, const struct list_query *q,
                      struct arena *arena, struct list_page *out)
{
    u32 at[CORES_MAX] = {0};
    const struct list_entry *e;
    out->entries = arena_alloc(arena, q->max * sizeof(*out->entries));
    if (out->entries == NULL) {
        return ERR_NO_MEMORY;
    }
    while ((e = merge_next(parts, at, cores)) != NULL) {
        if (out->count == q->max) {
            out->is_truncated = true;
            return OK;
        }
        struct list_entry *to = &out->entries[out->count++];
        *to = *e;
        to->name = arena_copy(arena, e->name);
        if (to->name.data == NULL) {
            return ERR_NO_MEMORY;
        }
    }
    return OK;
}

MAY_WAIT enum err list_page(struct meta *m, const struct list_query *q, struct arena *arena,
                            struct list_page *out)
{
    struct bucket bucket;
    enum err e = OK;
    *out = (struct list_page){0};
    ASSERT(q->max <= META_LIST_MAX);
    TRY(bucket_find(m, q->bucket, &bucket));
    if (q->max == 0 || q->prefix.len > META_KEY_BYTES_MAX) {
        return OK;
    }
    struct list_part *parts = arena_alloc(arena, m->cores * sizeof(*parts));
    if (parts == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 core = 0; core < m->cores; core++) {
        parts[core] = (struct list_part){.result = ERR_BUG};
        arena_init(&parts[core].arena, LIST_ARENA_BYTES_MAX);
    }
    for (u32 core = 0; core < m->cores && e == OK; core++) {
        struct list_call c = {.meta = m, .query = q, .bucket_id = bucket.id, .part = &parts[core]};
        e = core_call(core, list_run, &c);
        e = e == OK ? parts[core].result : e;
    }
    if (e == OK) {
        e = merge(parts, m->cores, q, arena, out);
    }
    for (u32 core = 0; core < m->cores; core++) {
        arena_deinit(&parts[core].arena);
    }
    return e;
}

MAY_WAIT enum err object_list(struct meta *m, const struct list_request *rq, struct arena *arena,
                              struct list_result *out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct list_page page;
    struct list_query q = {
        .bucket = rq->bucket,
        .prefix = rq->prefix,
        .delimiter = rq->delimiter,
        .after = rq->after,
        .max = rq->max,
        .space = KEY_SPACE_OBJECT,
    };
    *out = (struct list_result){0};
    TRY(list_page(m, &q, arena, &page));
    out->items = arena_alloc(arena, page.count * sizeof(*out->items));
    if (out->items == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < page.count; i++) {
        struct list_item *item = &out->items[i];
        item->name = page.entries[i].name;
        item->is_prefix = page.entries[i].is_prefix;
        if (item->is_prefix) {
            item->info = (struct object_info){0};
        } else {
            TRY(object_summary_decode(page.entries[i].summary, &item->info));
        }
    }
    out->count = page.count;
    out->is_truncated = page.is_truncated;
    if (page.is_truncated) {
        out->next_after = page.entries[page.count - 1].name;
    }
    return OK;
}
