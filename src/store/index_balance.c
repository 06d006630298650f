// SPDX-License-Identifier: Apache-2.0
// Splitting, evening out and merging pages of the index tree.
//
// Every page that changes its range is rebuilt from copies: its entries are listed as items, an
// item may be added, the list is cut in two (or not), and pages are written anew with the prefix of
// their new fences. The fences of a page are separators of its ancestors, found on the path.
#include "store/index_balance.h"

#include "base/endian.h"

// A page at the end of which this many entries in a row were added is written in ascending order:
// splitting it in the middle would leave half-empty pages behind.
#define APPEND_RUN 8
// A neighbour must have this much room before entries are moved to it.
#define EVEN_OUT_FREE_BYTES (INDEX_BODY_BYTES / 4)
// Pages that are less than one part in so many full look for a neighbour to merge with.
#define MERGE_FRACTION 2
// A merged page keeps some room, so that the next insertion does not split it again.
#define MERGED_BYTES_MAX (INDEX_BODY_BYTES / 8 * 7)

// The range of a page: `has_*` is false at the ends of the key space.
struct fences {
    bool has_low;
    bool has_high;
    struct bytes low;
    struct bytes high;
};

// Copies the separator at `slot` of an inner page.
static struct bytes separator_copy(const struct index_node *n, u32 slot,
                                   u8 out[STORE_KEY_BYTES_MAX])
{
    struct index_item item = {.prefix = index_node_prefix(n), .rest = index_node_rest(n, slot)};
    return BYTES(out, index_item_key(&item, out));
}

// The fences of children first..last (of the page at `level` + 1 of the path) taken together.
static struct fences fences_find(const struct index *ix, const struct index_path *path, u32 level,
                                 u32 first, u32 last)
{
    struct index_scratch *scratch = index_pool_scratch(ix->pool);
    struct fences f = {0};
    for (u32 l = level + 1; l < ix->height; l++) {
        const struct index_node *n = path->nodes[l];
        u32 left = l == level + 1 ? first : path->children[l];
        u32 right = l == level + 1 ? last : path->children[l];
        if (!f.has_low && left > 0) {
            f.has_low = true;
            f.low = separator_copy(n, left - 1, scratch->low);
        }
        if (!f.has_high && right < n->count) {
            f.has_high = true;
            f.high = separator_copy(n, right, scratch->high);
        }
    }
    return f;
}

// What all keys of a range start with.
static struct bytes fences_prefix(const struct fences *f)
{
    if (!f->has_low || !f->has_high) {
        return BYTES_NONE;
    }
    size_t len = MIN(f->low.len, f->high.len);
    size_t i = 0;
    while (i < len && f->low.data[i] == f->high.data[i]) {
        i++;
    }
    return BYTES(f->low.data, i);
}

static void item_add(struct index_item *items, u32 *count, u32 at, const struct index_item *item)
{
    ASSERT(*count < INDEX_ITEMS_MAX && at <= *count);
    memmove(&items[at + 1], &items[at], (*count - at) * sizeof(*items));
    items[at] = *item;
    (*count)++;
}

// Where to cut the list so that both sides take about the same space.
static u32 middle_find(const struct index_item *items, u32 count, u32 prefix_bytes)
{
    size_t total = 0;
    for (u32 i = 0; i < count; i++) {
        total += index_item_bytes(&items[i], prefix_bytes);
    }
    size_t sum = 0;
    u32 at = 0;
    while (at < count && sum < total / 2) {
        sum += index_item_bytes(&items[at], prefix_bytes);
        at++;
    }
    return at;
}

// A list of entries, cut into the pages left and right of a separator.
struct cut {
    u32 at;    // leaf: first entry on the right; inner: the entry that goes up
    u32 right; // first entry of the right page
    struct bytes separator;
    struct bytes left_prefix;
    struct bytes right_prefix;
};

// Cuts before items[at]. A leaf's separator is as short as it can be; an inner page gives one away.
static struct cut cut_make(const struct index_item *items, u32 at, bool is_leaf,
                           const struct fences *f, u8 separator[STORE_KEY_BYTES_MAX])
{
    struct cut c = {.at = at, .right = is_leaf ? at : at + 1};
    size_t len = index_item_key(&items[at], separator);
    if (is_leaf) {
        len = index_item_common(&items[at - 1], &items[at]) + 1;
    }
    c.separator = BYTES(separator, len);
    struct fences left = *f;
    left.has_high = true;
    left.high = c.separator;
    struct fences right = *f;
    right.has_low = true;
    right.low = c.separator;
    c.left_prefix = fences_prefix(&left);
    c.right_prefix = fences_prefix(&right);
    return c;
}

// What a page built of these entries would use.
static size_t items_bytes(const struct index_item *items, u32 count, struct bytes prefix)
{
    size_t sum = prefix.len;
    for (u32 i = 0; i < count; i++) {
        sum += index_item_bytes(&items[i], (u32)prefix.len);
    }
    return sum;
}

// Puts a new root over the old one and its new right neighbour.
static void root_grow(struct index *ix, const struct index_item *item)
{
    ASSERT(ix->height < INDEX_HEIGHT_MAX);
    struct index_node *root = index_pool_get(ix->pool);
    ASSERT(root != NULL);
    index_node_build(root, (u8)ix->height, BYTES_NONE, item, 1);
    root->first = ix->root;
    ix->root = root;
    ix->height++;
}

// Splits one page while adding an entry at `slot`. Returns the new right neighbour; *separator is
// in one of the two scratch buffers, by level in turn, as `item` may point into the other one.
static struct index_node *page_split(struct index *ix, struct index_path *path, u32 level, u32 slot,
                                     const struct index_item *item, bool is_append,
                                     struct bytes *separator)
{
    struct index_scratch *scratch = index_pool_scratch(ix->pool);
    struct index_node *left = path->nodes[level];
    struct index_node *copy = &scratch->pages[0];
    memcpy(copy, left, sizeof(*copy));
    u32 count = index_node_gather(copy, scratch->items);
    item_add(scratch->items, &count, slot, item);
    bool is_leaf = level == 0;
    u32 last = is_leaf ? count - 1 : count - 2;
    ASSERT(last >= 1);
    u32 at = is_append ? last : middle_find(scratch->items, count, copy->prefix_bytes);
    at = MAX(1u, MIN(at, last));

    u32 child = level + 1 < ix->height ? path->children[level + 1] : 0;
    struct fences f = fences_find(ix, path, level, child, child);
    struct cut cut = cut_make(scratch->items, at, is_leaf, &f, scratch->separators[level % 2]);
    struct index_node *right = index_pool_get(ix->pool);
    ASSERT(right != NULL);
    index_node_build(left, copy->level, cut.left_prefix, scratch->items, at);
    index_node_build(right, copy->level, cut.right_prefix, &scratch->items[cut.right],
                     count - cut.right);
    if (is_leaf) {
        right->next = left->next;
        left->next = right;
        right->append_run = is_append ? APPEND_RUN : 0;
    } else {
        memcpy(&right->first, scratch->items[at].payload, sizeof(right->first));
    }
    *separator = cut.separator;
    return right;
}

// Splits the leaf, and inner pages above it as far as the separators do not fit.
static void path_split(struct index *ix, struct index_path *path, u32 slot,
                       const struct index_item *item, bool is_append)
{
    struct index_scratch *scratch = index_pool_scratch(ix->pool);
    struct index_item up = *item;
    for (u32 level = 0;; level++) {
        struct bytes separator;
        struct index_node *right =
            page_split(ix, path, level, slot, &up, is_append && level == 0, &separator);
        up = (struct index_item){.rest = separator, .payload_bytes = INDEX_INNER_PAYLOAD};
        memcpy(scratch->children[level % 2], &right, sizeof(right));
        up.payload = scratch->children[level % 2];
        if (level + 1 == ix->height) {
            root_grow(ix, &up);
            return;
        }
        struct index_node *parent = path->nodes[level + 1];
        slot = path->children[level + 1];
        if (index_item_bytes(&up, parent->prefix_bytes) <= index_node_free_bytes(parent)) {
            index_node_insert(parent, slot, &up, &scratch->spare);
            return;
        }
    }
}

// Exchanges the separator left of child `child` for another one, if it fits.
static bool separator_replace(struct index *ix, struct index_node *parent, u32 child,
                              struct bytes separator)
{
    struct index_scratch *scratch = index_pool_scratch(ix->pool);
    struct index_node *right = index_node_child(parent, child);
    memcpy(scratch->children[0], &right, sizeof(right));
    struct index_item item = {
        .rest = separator, .payload = scratch->children[0], .payload_bytes = INDEX_INNER_PAYLOAD};
    size_t old_bytes =
        INDEX_CELL_OVERHEAD + INDEX_INNER_PAYLOAD + index_node_rest(parent, child - 1).len;
    if (index_item_bytes(&item, parent->prefix_bytes) > index_node_free_bytes(parent) + old_bytes) {
        return false;
    }
    index_node_remove(parent, child - 1);
    index_node_insert(parent, child - 1, &item, &scratch->spare);
    return true;
}

// Distributes the entries of leaf children `first` and first + 1, and a new one, evenly over both.
// False if that does not help (then nothing changed).
static bool pair_even_out(struct index *ix, struct index_path *path, u32 first, u32 slot,
                          const struct index_item *item)
{
    struct index_scratch *scratch = index_pool_scratch(ix->pool);
    struct index_node *parent = path->nodes[1];
    struct index_node *left = index_node_child(parent, first);
    struct index_node *right = index_node_child(parent, first + 1);
    memcpy(&scratch->pages[0], left, sizeof(*left));
    memcpy(&scratch->pages[1], right, sizeof(*right));
    u32 count = index_node_gather(&scratch->pages[0], scratch->items);
    u32 at = path->nodes[0] == left ? slot : count + slot;
    count += index_node_gather(&scratch->pages[1], &scratch->items[count]);
    item_add(scratch->items, &count, at, item);

    struct fences f = fences_find(ix, path, 0, first, first + 1);
    u32 middle = middle_find(scratch->items, count, (u32)fences_prefix(&f).len);
    middle = MAX(1u, MIN(middle, count - 1));
    struct cut cut = cut_make(scratch->items, middle, true, &f, scratch->separators[0]);
    const struct index_item *rest = &scratch->items[middle];
    if (items_bytes(scratch->items, middle, cut.left_prefix) > INDEX_BODY_BYTES ||
        items_bytes(rest, count - middle, cut.right_prefix) > INDEX_BODY_BYTES ||
        !separator_replace(ix, parent, first + 1, cut.separator)) {
        return false;
    }
    index_node_build(left, 0, cut.left_prefix, scratch->items, middle);
    index_node_build(right, 0, cut.right_prefix, rest, count - middle);
    return true;
}

// Finds a neighbour of the full leaf that has room, and evens out with it.
static bool leaf_even_out(struct index *ix, struct index_path *path, u32 slot,
                          const struct index_item *item)
{
    if (ix->height < 2) {
        return false;
    }
    struct index_node *parent = path->nodes[1];
    u32 child = path->children[1];
    u32 wanted = EVEN_OUT_FREE_BYTES;
    if (child < parent->count &&
        index_node_free_bytes(index_node_child(parent, child + 1)) >= wanted &&
        pair_even_out(ix, path, child, slot, item)) {
        return true;
    }
    return child > 0 && index_node_free_bytes(index_node_child(parent, child - 1)) >= wanted &&
           pair_even_out(ix, path, child - 1, slot, item);
}

enum err index_leaf_insert(struct index *ix, struct index_path *path, u32 slot,
                           const struct index_item *item)
{
    struct index_node *leaf = path->nodes[0];
    bool is_at_end = slot == leaf->count;
    if (LIKELY(index_item_bytes(item, leaf->prefix_bytes) <= index_node_free_bytes(leaf))) {
        index_node_insert(leaf, slot, item, &index_pool_scratch(ix->pool)->spare);
        leaf->append_run = !is_at_end                     ? 0
                           : leaf->append_run < UINT8_MAX ? (u8)(leaf->append_run + 1)
                                                          : UINT8_MAX;
        return OK;
    }
    bool is_append = is_at_end && (leaf->next == NULL || leaf->append_run >= APPEND_RUN);
    if (!is_append && leaf_even_out(ix, path, slot, item)) {
        return OK;
    }
    if (!index_pool_ensure(ix->pool, ix->height + 1)) {
        return ERR_NO_MEMORY;
    }
    path_split(ix, path, slot, item, is_append);
    return OK;
}

// What the entries of a page use, without its prefix.
static u32 page_entries_bytes(const struct index_node *n)
{
    return (u32)INDEX_BODY_BYTES - n->prefix_bytes - index_node_free_bytes(n);
}

// Merges children `first` and first + 1 of the path's page at `level` + 1, if they fit into one.
static bool pair_merge(struct index *ix, struct index_path *path, u32 level, u32 first)
{
    struct index_scratch *scratch = index_pool_scratch(ix->pool);
    struct index_node *parent = path->nodes[level + 1];
    struct index_node *left = index_node_child(parent, first);
    struct index_node *right = index_node_child(parent, first + 1);
    bool is_one_empty = level == 0 && (left->count == 0 || right->count == 0);
    size_t bytes_max = is_one_empty ? INDEX_BODY_BYTES : MERGED_BYTES_MAX;
    // The merged prefix is no longer than either one, so entries only grow: a cheap first look.
    if (page_entries_bytes(left) + page_entries_bytes(right) > bytes_max) {
        return false;
    }
    struct fences f = fences_find(ix, path, level, first, first + 1);
    struct bytes prefix = fences_prefix(&f);

    memcpy(&scratch->pages[0], left, sizeof(*left));
    memcpy(&scratch->pages[1], right, sizeof(*right));
    u32 count = index_node_gather(&scratch->pages[0], scratch->items);
    if (level > 0) {
        struct index_item down = {.rest = separator_copy(parent, first, scratch->separators[0]),
                                  .payload = scratch->children[0],
                                  .payload_bytes = INDEX_INNER_PAYLOAD};
        memcpy(scratch->children[0], &right->first, sizeof(right->first));
        item_add(scratch->items, &count, count, &down);
    }
    count += index_node_gather(&scratch->pages[1], &scratch->items[count]);
    if (items_bytes(scratch->items, count, prefix) > bytes_max) {
        return false;
    }
    index_node_build(left, left->level, prefix, scratch->items, count);
    if (level == 0) {
        left->next = right->next;
    }
    index_node_remove(parent, first);
    index_pool_put(ix->pool, right);
    return true;
}

// True if a page holds so little that it should join a neighbour. The prefix is no load: it is
// there however few entries share it.
static bool page_is_sparse(const struct index_node *n)
{
    u32 room = (u32)INDEX_BODY_BYTES - n->prefix_bytes;
    return n->count == 0 || page_entries_bytes(n) < room / MERGE_FRACTION;
}

// Merges the path's page at `level` with its neighbours while it is sparse and they have room.
static void page_shrink(struct index *ix, struct index_path *path, u32 level)
{
    const struct index_node *parent = path->nodes[level + 1];
    while (page_is_sparse(path->nodes[level])) {
        u32 child = path->children[level + 1];
        if (child < parent->count && pair_merge(ix, path, level, child)) {
            continue;
        }
        if (child == 0 || !pair_merge(ix, path, level, child - 1)) {
            return;
        }
        path->children[level + 1] = child - 1;
        path->nodes[level] = index_node_child(parent, child - 1);
    }
}

void index_shrink(struct index *ix, struct index_path *path)
{
    for (u32 level = 0; level + 1 < ix->height; level++) {
        if (!page_is_sparse(path->nodes[level]) && path->nodes[level + 1]->count > 0) {
            break;
        }
        page_shrink(ix, path, level);
    }
    while (ix->height > 1 && ix->root->count == 0) {
        struct index_node *root = ix->root;
        ix->root = root->first;
        ix->height--;
        index_pool_put(ix->pool, root);
    }
    if (ix->height == 1 && ix->root->count == 0) {
        index_pool_put(ix->pool, ix->root);
        ix->root = NULL;
        ix->height = 0;
    }
}
