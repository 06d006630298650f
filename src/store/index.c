// SPDX-License-Identifier: Apache-2.0
// The index tree: descent, lookups, insertion and removal (see index.h). Changes of the tree's
// shape are in index_balance.c.
#include "store/index.h"

#include "base/endian.h"
#include "store/index_balance.h"
#include "store/index_node.h"

#define INDEX_MAGIC 0x49445831u

// A value as it lies in a leaf, at any alignment; object_id follows only with INDEX_HAS_REFS.
struct __attribute__((packed)) packed_value {
    u8 summary[STORE_SUMMARY_BYTES];
    u32 segment;
    u32 offset_units;
    u32 bytes;
    u64 seq;
    u16 shadows;
    u8 flags;
    u64 object_id;
};

_Static_assert(sizeof(struct packed_value) == INDEX_REFS_PAYLOAD, "payload with an object id");
_Static_assert(offsetof(struct packed_value, object_id) == INDEX_LEAF_PAYLOAD, "payload");
_Static_assert(STORE_KEY_BYTES_MAX <= INDEX_TAG_LENGTH, "a key's length fits the tag");
// A split must always find two halves that fit, whatever the lengths of the keys are.
_Static_assert(3 * (STORE_KEY_BYTES_MAX + INDEX_REFS_PAYLOAD + INDEX_CELL_OVERHEAD) <=
                   INDEX_BODY_BYTES,
               "three of the largest entries fit into a page");

void index_init(struct index *ix, struct index_pool *pool)
{
    ASSERT(pool != NULL);
    *ix = (struct index){.magic = INDEX_MAGIC, .pool = pool};
}

// Gives back a subtree. Recursion is as deep as the tree is high.
static void subtree_free(struct index_pool *pool, struct index_node *n)
{
    for (u32 i = 0; n->level > 0 && i <= n->count; i++) {
        subtree_free(pool, index_node_child(n, i));
    }
    index_pool_put(pool, n);
}

void index_deinit(struct index *ix)
{
    ASSERT_MAGIC(ix, INDEX_MAGIC);
    if (ix->root != NULL) {
        subtree_free(ix->pool, ix->root);
    }
    *ix = (struct index){0};
}

static u32 value_pack(const struct index_value *v, struct packed_value *out)
{
    memcpy(out->summary, v->summary, sizeof(out->summary));
    out->segment = v->location.segment;
    out->offset_units = v->location.offset_units;
    out->bytes = v->location.bytes;
    out->seq = v->seq;
    out->shadows = v->shadows;
    out->flags = v->flags;
    out->object_id = v->object_id;
    return (v->flags & INDEX_HAS_REFS) != 0 ? INDEX_REFS_PAYLOAD : INDEX_LEAF_PAYLOAD;
}

static void value_unpack(const u8 *payload, struct index_value *v)
{
    const struct packed_value *p = (const struct packed_value *)payload;
    memcpy(v->summary, p->summary, sizeof(v->summary));
    v->location.segment = p->segment;
    v->location.offset_units = p->offset_units;
    v->location.bytes = p->bytes;
    v->seq = p->seq;
    v->shadows = p->shadows;
    v->flags = p->flags;
    v->object_id = (p->flags & INDEX_HAS_REFS) != 0 ? p->object_id : 0;
}

static bool slot_is_tombstone(const struct index_node *n, u32 slot)
{
    const struct packed_value *p = (const void *)index_node_payload_const(n, slot);
    return (p->flags & INDEX_TOMBSTONE) != 0;
}

// Asks for the lines that a search of this page touches, all at once: in a large index each of them
// is a miss, and one after the other they would be most of a lookup.
static void node_prefetch(const struct index_node *n)
{
    for (size_t at = 0; at < 384; at += CACHE_LINE) {
        __builtin_prefetch((const u8 *)n + at);
    }
}

// The leaf that covers `key`; NULL in an empty index.
static struct index_node *leaf_find(const struct index *ix, struct bytes key)
{
    ASSERT_MAGIC(ix, INDEX_MAGIC);
    struct index_node *n = ix->root;
    while (n != NULL && n->level > 0) {
        n = index_node_child(n, index_node_child_of(n, key));
        node_prefetch(n);
    }
    return n;
}

bool index_find(const struct index *ix, struct bytes key, struct index_value *out)
{
    ASSERT(key.len <= STORE_KEY_BYTES_MAX);
    const struct index_node *leaf = leaf_find(ix, key);
    if (leaf == NULL) {
        return false;
    }
    bool is_equal;
    u32 slot = index_node_lower_bound(leaf, key, &is_equal);
    if (is_equal && out != NULL) {
        value_unpack(index_node_payload_const(leaf, slot), out);
    }
    return is_equal;
}

// Notes the way from the root to the leaf that covers `key`.
static void path_find(const struct index *ix, struct bytes key, struct index_path *path)
{
    struct index_node *n = ix->root;
    ASSERT(n != NULL && n->level < INDEX_HEIGHT_MAX);
    while (n->level > 0) {
        u32 child = index_node_child_of(n, key);
        path->nodes[n->level] = n;
        path->children[n->level] = child;
        n = index_node_child(n, child);
        node_prefetch(n);
    }
    path->nodes[0] = n;
}

// The first leaf of an index that was empty.
static enum err root_create(struct index *ix)
{
    struct index_node *n = index_pool_get(ix->pool);
    if (n == NULL) {
        return ERR_NO_MEMORY;
    }
    index_node_build(n, 0, BYTES_NONE, NULL, 0);
    n->next = NULL;
    ix->root = n;
    ix->height = 1;
    return OK;
}

// Overwrites an existing value. A value that gains or loses its object id has another size: then
// the entry moves, perhaps to another page.
static enum err slot_replace(struct index *ix, struct index_path *path, u32 slot,
                             const struct index_item *item)
{
    struct index_node *leaf = path->nodes[0];
    u32 payload_bytes = index_node_payload_bytes(leaf, slot);
    if (payload_bytes == item->payload_bytes) {
        memcpy(index_node_payload(leaf, slot), item->payload, payload_bytes);
        return OK;
    }
    if (!index_pool_ensure(ix->pool, ix->height + 1)) {
        return ERR_NO_MEMORY;
    }
    index_node_remove(leaf, slot);
    enum err e = index_leaf_insert(ix, path, slot, item);
    ASSERT(e == OK);
    return OK;
}

enum err index_put(struct index *ix, struct bytes key, const struct index_value *value,
                   bool *existed, struct index_value *old)
{
    ASSERT_MAGIC(ix, INDEX_MAGIC);
    ASSERT(key.len <= STORE_KEY_BYTES_MAX);
    if (ix->root == NULL) {
        TRY(root_create(ix));
    }
    struct index_path path;
    path_find(ix, key, &path);
    struct index_node *leaf = path.nodes[0];
    bool is_equal;
    u32 slot = index_node_lower_bound(leaf, key, &is_equal);
    struct packed_value packed;
    struct index_item item = {.rest = key, .payload = (const u8 *)&packed};
    item.payload_bytes = (u16)value_pack(value, &packed);
    bool was_tombstone = false;
    if (is_equal) {
        was_tombstone = slot_is_tombstone(leaf, slot);
        struct index_value previous;
        value_unpack(index_node_payload_const(leaf, slot), &previous);
        TRY(slot_replace(ix, &path, slot, &item));
        if (old != NULL) {
            *old = previous;
        }
    } else {
        TRY(index_leaf_insert(ix, &path, slot, &item));
        ix->entries++;
    }
    ix->tombstones += (u64)((value->flags & INDEX_TOMBSTONE) != 0);
    ix->tombstones -= (u64)was_tombstone;
    if (existed != NULL) {
        *existed = is_equal;
    }
    return OK;
}

bool index_remove(struct index *ix, struct bytes key, struct index_value *old)
{
    ASSERT_MAGIC(ix, INDEX_MAGIC);
    ASSERT(key.len <= STORE_KEY_BYTES_MAX);
    if (ix->root == NULL) {
        return false;
    }
    struct index_path path;
    path_find(ix, key, &path);
    bool is_equal;
    u32 slot = index_node_lower_bound(path.nodes[0], key, &is_equal);
    if (!is_equal) {
        return false;
    }
    if (old != NULL) {
        value_unpack(index_node_payload_const(path.nodes[0], slot), old);
    }
    ASSERT(ix->entries > 0);
    ix->entries--;
    ix->tombstones -= (u64)slot_is_tombstone(path.nodes[0], slot);
    index_node_remove(path.nodes[0], slot);
    index_shrink(ix, &path);
    return true;
}

// Moves forward from a position that may be past a page's last entry or on one to be skipped.
static bool cursor_settle(struct index_cursor *c, bool skip_tombstones)
{
    for (;;) {
        if (c->slot == c->leaf->count) {
            c->leaf = c->leaf->next;
            c->slot = 0;
            if (c->leaf == NULL) {
                return false;
            }
            // The page after is needed soon.
            __builtin_prefetch(c->leaf->next);
            continue;
        }
        if (!skip_tombstones || !slot_is_tombstone(c->leaf, c->slot)) {
            return true;
        }
        c->slot++;
    }
}

bool index_cursor_seek(const struct index *ix, struct index_cursor *c, struct bytes from,
                       bool is_after, bool skip_tombstones)
{
    // No key is longer than the limit: a longer `from` stands directly after its prefix of that
    // length, and no key lies between the two.
    if (from.len > STORE_KEY_BYTES_MAX) {
        from.len = STORE_KEY_BYTES_MAX;
        is_after = true;
    }
    *c = (struct index_cursor){.leaf = leaf_find(ix, from)};
    if (c->leaf == NULL) {
        return false;
    }
    bool is_equal;
    c->slot = index_node_lower_bound(c->leaf, from, &is_equal);
    if (is_equal && is_after) {
        c->slot++;
    }
    return cursor_settle(c, skip_tombstones);
}

bool index_cursor_next(struct index_cursor *c, bool skip_tombstones)
{
    ASSERT(c->leaf != NULL && c->slot < c->leaf->count);
    c->slot++;
    return cursor_settle(c, skip_tombstones);
}

u32 index_cursor_key(const struct index_cursor *c, u8 out[STORE_KEY_BYTES_MAX])
{
    ASSERT(c->leaf != NULL && c->slot < c->leaf->count);
    struct index_item item = {.prefix = index_node_prefix(c->leaf),
                              .rest = index_node_rest(c->leaf, c->slot)};
    return (u32)index_item_key(&item, out);
}

void index_cursor_value(const struct index_cursor *c, struct index_value *out)
{
    ASSERT(c->leaf != NULL && c->slot < c->leaf->count);
    value_unpack(index_node_payload_const(c->leaf, c->slot), out);
}

const u8 *index_cursor_summary(const struct index_cursor *c)
{
    ASSERT(c->leaf != NULL && c->slot < c->leaf->count);
    return index_node_payload_const(c->leaf, c->slot);
}

// What index_check knows of the walk.
struct check {
    const struct index *ix;
    u64 entries;
    u64 tombstones;
    const struct index_node *last_leaf;
};

// Asserts one page's order and accounting against the fences [low, high), then its children's.
static void check_node(struct check *k, const struct index_node *n, const struct bytes *low,
                       const struct bytes *high)
{
    u8 keys[2][STORE_KEY_BYTES_MAX]; // this entry's and the one before
    struct bytes before = BYTES_NONE;
    size_t used = n->count * sizeof(struct index_slot) + n->prefix_bytes;
    for (u32 i = 0; i < n->count; i++) {
        struct index_item item = {.prefix = index_node_prefix(n), .rest = index_node_rest(n, i)};
        struct bytes key = BYTES(keys[i % 2], index_item_key(&item, keys[i % 2]));
        ASSERT(i == 0 || bytes_compare(before, key) < 0);
        ASSERT(low == NULL || bytes_compare(*low, key) <= 0);
        ASSERT(high == NULL || bytes_compare(key, *high) < 0);
        used += 2 + index_node_payload_bytes(n, i) + item.rest.len;
        k->entries += n->level == 0;
        k->tombstones += n->level == 0 && slot_is_tombstone(n, i);
        if (n->level > 0) {
            ASSERT((u32)index_node_child(n, i)->level + 1 == n->level);
        }
        before = key;
    }
    ASSERT(used + index_node_free_bytes(n) == INDEX_BODY_BYTES);
    if (n->level == 0) {
        ASSERT(k->last_leaf == NULL || k->last_leaf->next == n);
        k->last_leaf = n;
    }
}

// Checks a subtree in key order. The fences of each child are separators of its parent.
static void check_subtree(struct check *k, const struct index_node *n, const struct bytes *low,
                          const struct bytes *high)
{
    check_node(k, n, low, high);
    for (u32 i = 0; n->level > 0 && i <= n->count; i++) {
        u8 keys[2][STORE_KEY_BYTES_MAX];
        struct bytes fences[2];
        for (u32 f = 0; f < 2; f++) {
            u32 slot = i + f - 1; // wraps at the leftmost child, which has no separator there
            if (slot < n->count) {
                struct index_item item = {.prefix = index_node_prefix(n),
                                          .rest = index_node_rest(n, slot)};
                fences[f] = BYTES(keys[f], index_item_key(&item, keys[f]));
            }
        }
        check_subtree(k, index_node_child(n, i), i > 0 ? &fences[0] : low,
                      i < n->count ? &fences[1] : high);
    }
}

void index_check(const struct index *ix)
{
    ASSERT_MAGIC(ix, INDEX_MAGIC);
    struct check k = {.ix = ix};
    if (ix->root != NULL) {
        ASSERT((u32)ix->root->level + 1 == ix->height);
        check_subtree(&k, ix->root, NULL, NULL);
        ASSERT(k.last_leaf != NULL && k.last_leaf->next == NULL);
    }
    ASSERT(k.entries == ix->entries && k.tombstones == ix->tombstones);
}
