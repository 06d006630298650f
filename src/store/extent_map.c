// SPDX-License-Identifier: Apache-2.0
// Two flat tables: (object, chunk) to location, and object to its counts.
#include "store/extent_map.h"

#include <stdlib.h>

#include "base/assert.h"

struct chunk_entry {
    u64 object_id;
    u32 chunk;
    u32 segment;
    u32 offset_blocks;
    u32 data_bytes;
};

struct object_entry {
    u64 object_id;
    u32 sub; // always 0
    u32 refs;
    u32 pins;
    u32 chunk_count; // one more than the highest chunk
    u64 ticket : 63;
    u64 is_owned : 1;
};
_Static_assert(sizeof(struct chunk_entry) == 24, "24 bytes an extent");
_Static_assert(sizeof(struct object_entry) == 32, "32 bytes an object");

void extent_map_init(struct extent_map *m, extent_dead_fn dead, void *dead_arg)
{
    flat_map_init(&m->chunks, sizeof(struct chunk_entry));
    flat_map_init(&m->objects, sizeof(struct object_entry));
    m->dead = dead;
    m->dead_arg = dead_arg;
}

void extent_map_deinit(struct extent_map *m)
{
    flat_map_deinit(&m->chunks);
    flat_map_deinit(&m->objects);
}

static struct object_entry *object_find(const struct extent_map *m, u64 object_id)
{
    return flat_map_find(&m->objects, object_id, 0);
}

static struct object_entry *object_get(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_find(m, object_id);
    return o != NULL ? o : flat_map_insert(&m->objects, object_id, 0);
}

static struct extent_location location_of(const struct chunk_entry *c)
{
    return (struct extent_location){
        .segment = c->segment, .offset_blocks = c->offset_blocks, .data_bytes = c->data_bytes};
}

// Removes the object and its chunks if nothing keeps it.
static void object_settle(struct extent_map *m, struct object_entry *o)
{
    if (o->refs > 0 || o->pins > 0 || o->is_owned) {
        return;
    }
    u64 object_id = o->object_id;
    u32 chunk_count = o->chunk_count;
    flat_map_remove(&m->objects, o);
    for (u32 i = 0; i < chunk_count; i++) {
        struct chunk_entry *c = flat_map_find(&m->chunks, object_id, i);
        if (c != NULL) {
            struct extent_location at = location_of(c);
            flat_map_remove(&m->chunks, c);
            m->dead(m->dead_arg, object_id, &at);
        }
    }
}

enum err extent_map_own(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_get(m, object_id);
    if (o == NULL) {
        return ERR_NO_MEMORY;
    }
    o->is_owned = 1;
    return OK;
}

void extent_map_disown(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_find(m, object_id);
    if (o != NULL && o->is_owned) {
        o->is_owned = 0;
        object_settle(m, o);
    }
}

enum err extent_map_pin(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_get(m, object_id);
    if (o == NULL) {
        return ERR_NO_MEMORY;
    }
    ASSERT(o->pins < UINT32_MAX);
    o->pins++;
    return OK;
}

void extent_map_unpin(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_find(m, object_id);
    ASSERT(o != NULL && o->pins > 0);
    o->pins--;
    object_settle(m, o);
}

void extent_map_ref(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_find(m, object_id);
    ASSERT(o != NULL && o->pins > 0 && o->refs < UINT32_MAX);
    o->refs++;
    o->is_owned = 0;
}

void extent_map_unref(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_find(m, object_id);
    ASSERT(o != NULL && o->refs > 0);
    o->refs--;
    object_settle(m, o);
}

bool extent_map_is_alive(const struct extent_map *m, u64 object_id)
{
    return object_find(m, object_id) != NULL;
}

static enum err chunk_add(struct extent_map *m, struct object_entry *o, u32 chunk,
                          const struct extent_location *at)
{
    if (flat_map_find(&m->chunks, o->object_id, chunk) != NULL) {
        return ERR_EXISTS;
    }
    struct chunk_entry *c = flat_map_insert(&m->chunks, o->object_id, chunk);
    if (c == NULL) {
        return ERR_NO_MEMORY;
    }
    c->segment = at->segment;
    c->offset_blocks = at->offset_blocks;
    c->data_bytes = at->data_bytes;
    o->chunk_count = MAX(o->chunk_count, chunk + 1);
    return OK;
}

enum err extent_map_add(struct extent_map *m, u64 object_id, u32 chunk,
                        const struct extent_location *at)
{
    struct object_entry *o = object_find(m, object_id);
    ASSERT(o != NULL);
    return chunk_add(m, o, chunk, at);
}

bool extent_map_find(const struct extent_map *m, u64 object_id, u32 chunk,
                     struct extent_location *out)
{
    const struct chunk_entry *c = flat_map_find(&m->chunks, object_id, chunk);
    if (c == NULL) {
        return false;
    }
    *out = location_of(c);
    return true;
}

bool extent_map_move(struct extent_map *m, u64 object_id, u32 chunk,
                     const struct extent_location *from, const struct extent_location *to)
{
    struct chunk_entry *c = flat_map_find(&m->chunks, object_id, chunk);
    if (c == NULL || c->segment != from->segment || c->offset_blocks != from->offset_blocks) {
        return false;
    }
    ASSERT(c->data_bytes == to->data_bytes);
    c->segment = to->segment;
    c->offset_blocks = to->offset_blocks;
    return true;
}

u64 extent_map_ticket(const struct extent_map *m, u64 object_id)
{
    const struct object_entry *o = object_find(m, object_id);
    return o == NULL ? 0 : o->ticket;
}

void extent_map_set_ticket(struct extent_map *m, u64 object_id, u64 ticket)
{
    struct object_entry *o = object_find(m, object_id);
    ASSERT(o != NULL && ticket >= o->ticket);
    o->ticket = ticket & (UINT64_MAX >> 1);
}

enum err extent_map_found(struct extent_map *m, u64 object_id, u32 chunk,
                          const struct extent_location *at)
{
    struct object_entry *o = object_get(m, object_id);
    if (o == NULL) {
        return ERR_NO_MEMORY;
    }
    return chunk_add(m, o, chunk, at);
}

enum err extent_map_found_ref(struct extent_map *m, u64 object_id)
{
    struct object_entry *o = object_get(m, object_id);
    if (o == NULL) {
        return ERR_NO_MEMORY;
    }
    ASSERT(o->refs < UINT32_MAX);
    o->refs++;
    return OK;
}

static bool is_dead(const struct object_entry *o)
{
    return o->refs == 0 && o->pins == 0 && !o->is_owned;
}

// Removing shifts entries back over a cursor, so the dead ones are listed first.
enum err extent_map_sweep(struct extent_map *m)
{
    u64 count = 0;
    u64 state = 0;
    for (struct object_entry *o; (o = flat_map_next(&m->objects, &state)) != NULL;) {
        count += is_dead(o) ? 1 : 0;
    }
    if (count == 0) {
        return OK;
    }
    u64 *dead = malloc(count * sizeof(*dead));
    if (dead == NULL) {
        return ERR_NO_MEMORY;
    }
    u64 filled = 0;
    state = 0;
    for (struct object_entry *o; (o = flat_map_next(&m->objects, &state)) != NULL;) {
        if (is_dead(o)) {
            dead[filled++] = o->object_id;
        }
    }
    ASSERT(filled == count);
    for (u64 i = 0; i < count; i++) {
        object_settle(m, object_find(m, dead[i]));
    }
    free(dead);
    return OK;
}

size_t extent_map_memory_bytes(const struct extent_map *m)
{
    return flat_map_memory_bytes(&m->chunks) + flat_map_memory_bytes(&m->objects);
}
