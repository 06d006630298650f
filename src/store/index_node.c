// SPDX-License-Identifier: Apache-2.0
// Pages of the index tree: searching, inserting, removing and rebuilding (see index_node.h).
#include "store/index_node.h"

#include "base/endian.h"

// The slots of a page that may be written.
static struct index_slot *slots_of(struct index_node *n)
{
    return (struct index_slot *)n->body;
}

// The sort head of a key's rest: its first four bytes as a number, short rests padded with zeros.
static u32 head_of(struct bytes rest)
{
    if (LIKELY(rest.len >= 4)) {
        return load_be32(rest.data);
    }
    u32 head = 0;
    for (size_t i = 0; i < rest.len; i++) {
        head |= (u32)rest.data[i] << (24 - 8 * i);
    }
    return head;
}

u32 index_node_payload_bytes(const struct index_node *n, u32 slot)
{
    if (n->level > 0) {
        return INDEX_INNER_PAYLOAD;
    }
    u16 tag = load_le16(index_node_cell(n, slot));
    return (tag & INDEX_TAG_REFS) != 0 ? INDEX_REFS_PAYLOAD : INDEX_LEAF_PAYLOAD;
}

struct bytes index_node_rest(const struct index_node *n, u32 slot)
{
    const u8 *cell = index_node_cell(n, slot);
    return BYTES(cell + 2 + index_node_payload_bytes(n, slot), load_le16(cell) & INDEX_TAG_LENGTH);
}

u8 *index_node_payload(struct index_node *n, u32 slot)
{
    return (u8 *)n + slots_of(n)[slot].offset + 2;
}

const u8 *index_node_payload_const(const struct index_node *n, u32 slot)
{
    return index_node_cell(n, slot) + 2;
}

struct index_node *index_node_child(const struct index_node *n, u32 child)
{
    ASSERT(n->level > 0 && child <= n->count);
    if (child == 0) {
        return n->first;
    }
    struct index_node *out;
    memcpy(&out, index_node_payload_const(n, child - 1), sizeof(out));
    return out;
}

// The first slot from `low` on whose head is >= `head`. Without branches: the heads of a page of
// random keys cannot be predicted.
static u32 head_lower_bound(const struct index_node *n, u32 low, u32 head)
{
    const struct index_slot *base = index_node_slots(n) + low;
    u32 len = n->count - low;
    while (len > 1) {
        u32 half = len / 2;
        base += (base[half - 1].head < head) ? half : 0;
        len -= half;
    }
    u32 at = (u32)(base - index_node_slots(n));
    return at + (len == 1 && base->head < head ? 1 : 0);
}

u32 index_node_lower_bound(const struct index_node *n, struct bytes key, bool *is_equal)
{
    ASSERT(key.len >= n->prefix_bytes);
    struct bytes rest = bytes_skip(key, n->prefix_bytes);
    u32 head = head_of(rest);
    const struct index_slot *slots = index_node_slots(n);
    u32 low = head_lower_bound(n, 0, head);
    *is_equal = false;
    if (low == n->count || slots[low].head != head) {
        return low;
    }
    // Among the entries with the same head whole keys decide.
    u32 high = head == UINT32_MAX ? n->count : head_lower_bound(n, low, head + 1);
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        int c = bytes_compare(index_node_rest(n, mid), rest);
        if (c == 0) {
            *is_equal = true;
            return mid;
        }
        if (c < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

u32 index_node_child_of(const struct index_node *n, struct bytes key)
{
    bool is_equal;
    u32 slot = index_node_lower_bound(n, key, &is_equal);
    return is_equal ? slot + 1 : slot;
}

// The lowest offset that a cell may have.
static u32 slots_end(const struct index_node *n)
{
    return (u32)(INDEX_HEADER_BYTES + n->count * sizeof(struct index_slot));
}

u32 index_node_free_bytes(const struct index_node *n)
{
    return n->heap_start - slots_end(n) + n->hole_bytes;
}

u32 index_item_bytes(const struct index_item *item, u32 prefix_bytes)
{
    ASSERT(item->prefix.len + item->rest.len >= prefix_bytes);
    return INDEX_CELL_OVERHEAD + item->payload_bytes +
           (u32)(item->prefix.len + item->rest.len - prefix_bytes);
}

size_t index_item_key(const struct index_item *item, u8 out[STORE_KEY_BYTES_MAX])
{
    ASSERT(item->prefix.len + item->rest.len <= STORE_KEY_BYTES_MAX);
    if (item->prefix.len > 0) {
        memcpy(out, item->prefix.data, item->prefix.len);
    }
    if (item->rest.len > 0) {
        memcpy(out + item->prefix.len, item->rest.data, item->rest.len);
    }
    return item->prefix.len + item->rest.len;
}

// One byte of an item's key.
static u8 item_byte(const struct index_item *item, size_t at)
{
    return at < item->prefix.len ? item->prefix.data[at] : item->rest.data[at - item->prefix.len];
}

size_t index_item_common(const struct index_item *a, const struct index_item *b)
{
    size_t i = 0;
    // Neighbours of one page share the page's prefix: nothing to compare there.
    if (a->prefix.data == b->prefix.data && a->prefix.len == b->prefix.len) {
        i = a->prefix.len;
    }
    size_t len = MIN(a->prefix.len + a->rest.len, b->prefix.len + b->rest.len);
    while (i < len && item_byte(a, i) == item_byte(b, i)) {
        i++;
    }
    return i;
}

// Writes a cell below the heap's start; there must be contiguous room for it and its slot.
static u16 cell_write(struct index_node *n, const struct index_item *item)
{
    size_t skip = n->prefix_bytes;
    size_t rest_bytes = item->prefix.len + item->rest.len - skip;
    u32 bytes = (u32)(2 + item->payload_bytes + rest_bytes);
    ASSERT(n->heap_start >= slots_end(n) + sizeof(struct index_slot) + bytes);
    n->heap_start = (u16)(n->heap_start - bytes);
    u8 *cell = (u8 *)n + n->heap_start;
    u32 refs = item->payload_bytes == INDEX_REFS_PAYLOAD ? INDEX_TAG_REFS : 0;
    store_le16(cell, (u16)(rest_bytes | refs));
    memcpy(cell + 2, item->payload, item->payload_bytes);
    u8 *to = cell + 2 + item->payload_bytes;
    if (skip < item->prefix.len) {
        memcpy(to, item->prefix.data + skip, item->prefix.len - skip);
        to += item->prefix.len - skip;
        skip = item->prefix.len;
    }
    size_t from_rest = skip - item->prefix.len;
    if (item->rest.len > from_rest) {
        memcpy(to, item->rest.data + from_rest, item->rest.len - from_rest);
    }
    return n->heap_start;
}

// The head of the cell that was just written at `offset`.
static u32 cell_head(const struct index_node *n, u16 offset, u32 payload_bytes)
{
    const u8 *cell = (const u8 *)n + offset;
    return head_of(BYTES(cell + 2 + payload_bytes, load_le16(cell) & INDEX_TAG_LENGTH));
}

// Slides all cells together so that the holes become free space. `spare` is overwritten.
static void heap_compact(struct index_node *n, struct index_node *spare)
{
    memcpy(spare, n, sizeof(*spare));
    struct index_slot *slots = slots_of(n);
    u32 to = (u32)INDEX_PAGE_BYTES - n->prefix_bytes;
    for (u32 i = 0; i < n->count; i++) {
        const u8 *cell = index_node_cell(spare, i);
        u32 bytes = 2 + index_node_payload_bytes(spare, i) + (load_le16(cell) & INDEX_TAG_LENGTH);
        to -= bytes;
        memcpy((u8 *)n + to, cell, bytes);
        slots[i].offset = (u16)to;
    }
    ASSERT(to - n->heap_start == n->hole_bytes);
    n->heap_start = (u16)to;
    n->hole_bytes = 0;
}

void index_node_insert(struct index_node *n, u32 slot, const struct index_item *item,
                       struct index_node *spare)
{
    u32 bytes = index_item_bytes(item, n->prefix_bytes);
    ASSERT(slot <= n->count && bytes <= index_node_free_bytes(n));
    if (n->heap_start - slots_end(n) < bytes) {
        heap_compact(n, spare);
    }
    u16 offset = cell_write(n, item);
    struct index_slot *slots = slots_of(n);
    memmove(&slots[slot + 1], &slots[slot], (n->count - slot) * sizeof(*slots));
    slots[slot].offset = offset;
    slots[slot].head = cell_head(n, offset, item->payload_bytes);
    n->count++;
}

void index_node_remove(struct index_node *n, u32 slot)
{
    ASSERT(slot < n->count);
    struct index_slot *slots = slots_of(n);
    u32 bytes = 2 + index_node_payload_bytes(n, slot) + (u32)index_node_rest(n, slot).len;
    if (slots[slot].offset == n->heap_start) {
        n->heap_start = (u16)(n->heap_start + bytes);
    } else {
        n->hole_bytes = (u16)(n->hole_bytes + bytes);
    }
    memmove(&slots[slot], &slots[slot + 1], (n->count - slot - 1) * sizeof(*slots));
    n->count--;
}

void index_node_build(struct index_node *n, u8 level, struct bytes prefix,
                      const struct index_item *items, u32 count)
{
    n->level = level;
    n->append_run = 0;
    n->count = 0;
    n->prefix_bytes = (u16)prefix.len;
    n->heap_start = (u16)(INDEX_PAGE_BYTES - prefix.len);
    n->hole_bytes = 0;
    if (prefix.len > 0) {
        memcpy((u8 *)n + n->heap_start, prefix.data, prefix.len);
    }
    struct index_slot *slots = slots_of(n);
    for (u32 i = 0; i < count; i++) {
        u16 offset = cell_write(n, &items[i]);
        slots[i].offset = offset;
        slots[i].head = cell_head(n, offset, items[i].payload_bytes);
        n->count++;
    }
}

u32 index_node_gather(const struct index_node *n, struct index_item *items)
{
    for (u32 i = 0; i < n->count; i++) {
        items[i].prefix = index_node_prefix(n);
        items[i].rest = index_node_rest(n, i);
        items[i].payload = index_node_payload_const(n, i);
        items[i].payload_bytes = (u16)index_node_payload_bytes(n, i);
    }
    return n->count;
}
