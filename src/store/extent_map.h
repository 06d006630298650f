// SPDX-License-Identifier: Apache-2.0
// Where the extents of a core's placement groups lie, and which sequences (objects) are alive. An
// object lives while records refer to it, readers or commits pin it, or the writer who made it has
// neither committed nor abandoned it. When the last of these goes, its extents are garbage.
//
// Owned by one core; nothing waits.
#pragma once

#include "store/extent_fmt.h"
#include "store/flat_map.h"

#define EXTENT_CHUNKS_MAX ((u32)1 << 20) // of one sequence: 1 TiB

struct extent_location {
    u32 segment;
    u32 offset_blocks; // of the frame from the segment's start, in 4 KiB
    u32 data_bytes;
};

// Called for each extent of an object that died.
typedef void (*extent_dead_fn)(void *arg, u64 object_id, const struct extent_location *at);

struct extent_map {
    struct flat_map chunks;
    struct flat_map objects;
    extent_dead_fn dead;
    void *dead_arg;
};

void extent_map_init(struct extent_map *m, extent_dead_fn dead, void *dead_arg);
void extent_map_deinit(struct extent_map *m);

// The object gets an owner: it lives until extent_map_disown. Harmless if it has one.
enum err extent_map_own(struct extent_map *m, u64 object_id) NODISCARD;
void extent_map_disown(struct extent_map *m, u64 object_id);
// Pins keep an object alive for a time; pinning makes it if it does not exist.
enum err extent_map_pin(struct extent_map *m, u64 object_id) NODISCARD;
void extent_map_unpin(struct extent_map *m, u64 object_id);
// References of records. A pinned object can always be referred to; it loses its owner by that.
void extent_map_ref(struct extent_map *m, u64 object_id);
void extent_map_unref(struct extent_map *m, u64 object_id);
bool extent_map_is_alive(const struct extent_map *m, u64 object_id);

// A chunk of an object that exists. ERR_EXISTS: it has that chunk already; nothing changed.
enum err extent_map_add(struct extent_map *m, u64 object_id, u32 chunk,
                        const struct extent_location *at) NODISCARD;
bool extent_map_find(const struct extent_map *m, u64 object_id, u32 chunk,
                     struct extent_location *out);
// Changes where a chunk lies if it still lies at `from`; false if not.
bool extent_map_move(struct extent_map *m, u64 object_id, u32 chunk,
                     const struct extent_location *from, const struct extent_location *to);

// The flush that must have run before a record may refer to the object; 0: none.
u64 extent_map_ticket(const struct extent_map *m, u64 object_id);
void extent_map_set_ticket(struct extent_map *m, u64 object_id, u64 ticket);

// Recovery: a chunk found on a drive, of an object that nobody may own. ERR_EXISTS: a copy of it
// is known already.
enum err extent_map_found(struct extent_map *m, u64 object_id, u32 chunk,
                          const struct extent_location *at) NODISCARD;
// Recovery: a reference found. ERR_NO_MEMORY.
enum err extent_map_found_ref(struct extent_map *m, u64 object_id) NODISCARD;
// Recovery: drops what nothing refers to, and calls `dead` for it. ERR_NO_MEMORY.
enum err extent_map_sweep(struct extent_map *m) NODISCARD;
size_t extent_map_memory_bytes(const struct extent_map *m);
