// SPDX-License-Identifier: Apache-2.0
// What the files of sim/ share. Private to sim/.
#pragma once

#include "base/assert.h"
#include "base/list.h"
#include "sim/sim.h"
#include "sys/io.h"

#define SIM_MAGIC      0x53696d75u
#define SIM_DISK_MAGIC 0x53696d44u
#define SIM_FDS_MAX    4096

// A file's bytes, in pieces that exist once they were written; what does not exist is zeros.
#define IMAGE_PIECE_BYTES ((size_t)4 * KIB)
struct image {
    u8 **pieces;
    size_t piece_count;
};

// A write that is visible and not yet known to be durable. Oldest first.
struct sim_write {
    struct list node;
    u64 number; // in order of completion
    u64 offset;
    u32 bytes;
    u8 data[];
};

// One file or directory, alive until the disk goes.
struct sim_node {
    struct sim_node *next_node;
    struct sim_node *drive; // the top-level directory that it is in
    char path[512];         // where it was created: for traces
    bool is_dir;
    // a file
    struct image visible;
    struct image durable;
    u64 size;
    u64 size_durable;
    struct list writes;                 // struct sim_write
    u64 unreadable[SIM_UNREADABLE_MAX]; // offsets of pages that fail to be read until written
    u32 unreadable_count;
    bool is_locked;
    // a directory
    struct list entries; // struct sim_entry, as seen
    struct list entries_durable;
    struct list changes; // struct sim_change since the last flush
    u64 used_bytes;      // of a top-level directory: sizes of its files
};

struct sim_entry {
    struct list node;
    char name[SIM_NAME_MAX + 1];
    struct sim_node *target;
};

// Sets `name` to `target` (NULL: removes it) and, in the same step, removes `removed` if not empty.
struct sim_change {
    struct list node;
    char name[SIM_NAME_MAX + 1];
    char removed[SIM_NAME_MAX + 1];
    struct sim_node *target;
};

struct sim_disk {
    u32 magic;
    u64 drive_bytes;
    u64 writes;   // numbers writes in order of completion
    u64 clock_ns; // monotonic time at the end of the last life
    struct sim_node *nodes;
    struct sim_node *root;
};

struct sim_fd {
    struct sim_node *node;
    unsigned flags;
};

struct sim_engine {
    struct io_engine base;
    struct sim *sim;
    struct list node;
    struct sim_request *linked; // submitted with LINK: the next one follows it
};

// An operation between submit and completion.
struct sim_request {
    struct list node; // in sim->requests
    struct sim_engine *engine;
    struct io_op *op;
    struct sim_request *follower; // starts when this one succeeded
    i32 refused;                  // a negated errno that it will end with; 0: none
    struct sim_node *file;
    u64 due_ns;
    u64 number;
    u64 covered; // FLUSH: writes up to this number become durable
    bool is_started;
};

struct sim {
    struct sys base;
    u32 magic;
    struct sim_disk *disk;
    struct sim_options options;
    struct sim_stats stats;
    u64 random;
    u64 now_ns;
    u64 requests_made;
    struct list requests;
    struct list engines;
    struct sim_fd fds[SIM_FDS_MAX];
};

static inline struct sim *sim_of(struct sys *s)
{
    struct sim *sim = CONTAINER_OF(s, struct sim, base);
    ASSERT_MAGIC(sim, SIM_MAGIC);
    return sim;
}

// image.c
void image_write(struct image *im, u64 offset, const u8 *data, size_t len);
void image_read(const struct image *im, u64 offset, u8 *out, size_t len);
void image_copy_range(struct image *to, const struct image *from, u64 offset, size_t len);
void image_truncate(struct image *im, u64 size);
void image_deinit(struct image *im);
u64 sim_random(u64 *state);
static inline u64 sim_below(u64 *state, u64 n)
{
    return sim_random(state) % n;
}
static inline bool sim_chance(u64 *state, u32 ppm)
{
    return ppm > 0 && sim_random(state) % 1000000 < ppm;
}

// disk.c
enum err disk_find(struct sim_disk *d, const char *path, struct sim_node **out) NODISCARD;
// The directory that holds the last component of the path, and that component.
enum err disk_find_parent(struct sim_disk *d, const char *path, struct sim_node **dir,
                          char name[SIM_NAME_MAX + 1]) NODISCARD;
struct sim_node *dir_entry(const struct sim_node *dir, const char *name); // NULL: none
void dir_change(struct sim_node *dir, const char *name, struct sim_node *target,
                const char *removed);
void dir_flush(struct sim_node *dir);
struct sim_node *node_create(struct sim_disk *d, struct sim_node *parent, const char *path,
                             bool is_dir);
enum err file_grow(struct sim_disk *d, struct sim_node *file, u64 size) NODISCARD;
bool file_is_readable(const struct sim_node *n, u64 offset, u64 len);
void file_write_done(struct sim_disk *d, struct sim_node *file, u64 offset, const u8 *data,
                     u32 bytes);
// The newest write of the file, and what it overwrote.
void file_write_durable(struct sim_node *file);
void file_flush_done(struct sim_node *file, u64 covered, u64 size);
// Settles what a power loss leaves of everything that is not durable.
void disk_settle(struct sim_disk *d, u64 *random);
// Counts anew what the drives' files take, after a file went or came back.
void disk_recount(struct sim_disk *d);
// Another life begins: locks of the last one are gone.
void disk_unlock_all(struct sim_disk *d);

// files.c
extern const struct sys_ops sim_ops;
struct sim_fd *sim_fd(struct sim *sim, int fd);
// Counts an event; true if the crash came with it (or was there before).
bool sim_event(struct sim *sim);
// Counts a flush; true if the crash comes before it. `sim_flush_after` crashes behind it.
bool sim_flush_before(struct sim *sim);
void sim_flush_after(struct sim *sim);
// Where a write to [offset, offset + bytes) really goes.
void sim_misdirect(struct sim *sim, struct sim_node **file, u64 *offset, u32 bytes);

// engine.c
enum err sim_io_create(struct sys *s, u32 queue_depth, struct io_engine **out);
void sim_settle_in_flight(struct sim *sim);
