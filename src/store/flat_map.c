// SPDX-License-Identifier: Apache-2.0
// Linear probing with backward-shift deletion, four fifths full at most.
#include "store/flat_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PART_CAPACITY_MIN 16u

// A finaliser of the splitmix family: ids are counters, so they must be stirred well.
static u64 key_hash(u64 id, u32 sub)
{
    u64 h = id ^ ((u64)sub * 0x9e3779b97f4a7c15ull);
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    return h ^ (h >> 31);
}

static u32 part_of(u64 hash)
{
    return (u32)(hash >> 58);
}
_Static_assert(FLAT_MAP_PARTS == 64, "part_of takes six bits");

static struct flat_key *slot_at(const struct flat_map *m, const struct flat_part *p, u32 i)
{
    return (struct flat_key *)(void *)(p->slots + (size_t)i * m->entry_bytes);
}

void flat_map_init(struct flat_map *m, u32 entry_bytes)
{
    ASSERT(entry_bytes >= sizeof(struct flat_key) && entry_bytes % 8 == 0);
    memset(m, 0, sizeof(*m));
    m->entry_bytes = entry_bytes;
}

void flat_map_deinit(struct flat_map *m)
{
    for (u32 i = 0; i < FLAT_MAP_PARTS; i++) {
        free(m->parts[i].slots);
    }
    memset(m, 0, sizeof(*m));
}

void *flat_map_find(const struct flat_map *m, u64 id, u32 sub)
{
    ASSERT(id != 0);
    u64 hash = key_hash(id, sub);
    const struct flat_part *p = &m->parts[part_of(hash)];
    if (p->count == 0) {
        return NULL;
    }
    for (u32 i = (u32)hash & (p->capacity - 1);; i = (i + 1) & (p->capacity - 1)) {
        struct flat_key *k = slot_at(m, p, i);
        if (k->id == 0) {
            return NULL;
        }
        if (k->id == id && k->sub == sub) {
            return k;
        }
    }
}

static void *part_place(const struct flat_map *m, struct flat_part *p, u64 id, u32 sub)
{
    u32 i = (u32)key_hash(id, sub) & (p->capacity - 1);
    while (slot_at(m, p, i)->id != 0) {
        i = (i + 1) & (p->capacity - 1);
    }
    p->count++;
    return slot_at(m, p, i);
}

static bool part_grow(const struct flat_map *m, struct flat_part *p)
{
    struct flat_part bigger = {.capacity = MAX(PART_CAPACITY_MIN, p->capacity * 2)};
    bigger.slots = calloc(bigger.capacity, m->entry_bytes);
    if (bigger.slots == NULL) {
        return false;
    }
    for (u32 i = 0; i < p->capacity; i++) {
        const struct flat_key *k = slot_at(m, p, i);
        if (k->id != 0) {
            memcpy(part_place(m, &bigger, k->id, k->sub), k, m->entry_bytes);
        }
    }
    free(p->slots);
    *p = bigger;
    return true;
}

void *flat_map_insert(struct flat_map *m, u64 id, u32 sub)
{
    ASSERT(flat_map_find(m, id, sub) == NULL);
    struct flat_part *p = &m->parts[part_of(key_hash(id, sub))];
    if ((u64)(p->count + 1) * 5 > (u64)p->capacity * 4 && !part_grow(m, p)) {
        return NULL;
    }
    struct flat_key *k = part_place(m, p, id, sub);
    memset(k, 0, m->entry_bytes);
    k->id = id;
    k->sub = sub;
    m->count++;
    return k;
}

void flat_map_remove(struct flat_map *m, void *entry)
{
    struct flat_key *k = entry;
    struct flat_part *p = &m->parts[part_of(key_hash(k->id, k->sub))];
    u32 mask = p->capacity - 1;
    u32 hole = (u32)((size_t)((u8 *)entry - p->slots) / m->entry_bytes);
    ASSERT(p->count > 0 && slot_at(m, p, hole) == k && k->id != 0);
    for (u32 i = (hole + 1) & mask; slot_at(m, p, i)->id != 0; i = (i + 1) & mask) {
        const struct flat_key *moved = slot_at(m, p, i);
        u32 home = (u32)key_hash(moved->id, moved->sub) & mask;
        // It may fill the hole unless its home lies cyclically behind the hole.
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            memcpy(slot_at(m, p, hole), moved, m->entry_bytes);
            hole = i;
        }
    }
    memset(slot_at(m, p, hole), 0, m->entry_bytes);
    p->count--;
    m->count--;
}

void *flat_map_next(const struct flat_map *m, u64 *state)
{
    u32 part = (u32)(*state >> 32);
    u32 i = (u32)*state;
    for (; part < FLAT_MAP_PARTS; part++, i = 0) {
        const struct flat_part *p = &m->parts[part];
        for (; i < p->capacity; i++) {
            struct flat_key *k = slot_at(m, p, i);
            if (k->id != 0) {
                *state = (u64)part << 32 | (i + 1);
                return k;
            }
        }
    }
    *state = (u64)FLAT_MAP_PARTS << 32;
    return NULL;
}

size_t flat_map_memory_bytes(const struct flat_map *m)
{
    size_t bytes = 0;
    for (u32 i = 0; i < FLAT_MAP_PARTS; i++) {
        bytes += (size_t)m->parts[i].capacity * m->entry_bytes;
    }
    return bytes;
}
