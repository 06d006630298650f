// SPDX-License-Identifier: Apache-2.0
// The store: keys and their records in placement groups (PGs), on the drives of this node. It knows
// nothing of S3. The log is the truth and the index is derived from it.
//
// A PG is owned by one core (`store_pg_core`); every pg_* call must run there, on a fiber, except
// where it says "any core". Keys are opaque bytes in byte order. A key's record holds a fixed
// summary (kept in the index, so that lists and conditions need no drive), attributes, an inline
// payload or references to extent sequences that hold the payload.
//
// Durability: pg_commit returned OK: records and everything they refer to survive kill -9 and power
// loss. It returned an error: nothing of the batch is visible, now or after a restart, except
// ERR_IO from the flush itself, after which the drive takes no more writes (a metric and a log line
// say so) and the batch may or may not appear after a restart.
// Readers see only what is durable.
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "core/buf.h"

#define STORE_SEGMENT_BYTES_MIN ((u64)256 * KIB)
#define STORE_SEGMENT_BYTES_MAX ((u64)GIB)
#define STORE_BATCH_BYTES_MAX   (4 * MIB) // of one atomic commit, all told
#define STORE_KEY_BYTES_MAX     ((size_t)1152)
#define STORE_SUMMARY_BYTES     40
#define STORE_ATTRS_BYTES_MAX   (2 * MIB) // 10,000 parts fit
#define STORE_INLINE_BYTES_MAX  (64 * KIB)
#define STORE_EXTENT_BYTES      MIB               // data of every extent of a sequence but the last
#define STORE_EXTENT_HEADER     ((size_t)4 * KIB) // space before the data in a frame
#define STORE_REFS_MAX          10000
#define STORE_BATCH_MAX         1024 // changes in one commit (more parts are swept in several)
#define STORE_DRIVES_MAX        64
#define STORE_PGS_MAX           4096

struct store;

struct store_options {
    const char *const *drives; // directories, made if absent
    u32 drive_count;
    u32 pg_count;        // used when formatting; a power of two; 0: 64
    u64 segment_bytes;   // used when formatting; 4 KiB multiple, 256 KiB to 1 GiB; 0: by the drive
    u64 drive_bytes_max; // a limit for each drive; 0: what the filesystem has
    size_t cache_bytes;  // object cache of the whole process; 0: none
    u32 compact_percent; // compact segments of which more than this is garbage; 0: 50
    bool accepts_losses; // open although records of unknown keys are lost: any may be absent or old
};

// Opens or formats the drives and recovers, on all cores in parallel. Runs on core 0. Refuses, with
// a log line that says what to do: a drive of another store, a missing or additional drive, a drive
// in use by another process, a newer format, a directory that is neither empty nor a drive; and,
// with ERR_CORRUPT, drives that lost records whose keys are not known (see accepts_losses).
MAY_WAIT enum err store_open(const struct store_options *options, struct store **out);
// No pg_* call may be running. Seals nothing: a close is as good as a crash, and a crash as a
// close.
MAY_WAIT void store_close(struct store *s);

u32 store_pg_count(const struct store *s);
u32 store_pg_of(const struct store *s, struct bytes hashed); // XXH3 of what the caller hashes by
u32 store_pg_core(const struct store *s, u32 pg);            // any core

// An extent sequence: chunks 0, 1, ... of STORE_EXTENT_BYTES each, the last one shorter. Immutable.
struct extent_ref {
    u64 object_id;
    u64 bytes;
};

// One change of a batch.
struct store_change {
    struct bytes key;
    bool is_delete; // the fields below are then unused
    u8 summary[STORE_SUMMARY_BYTES];
    struct bytes attrs;
    struct bytes payload; // inline, at most STORE_INLINE_BYTES_MAX
    const struct extent_ref *refs;
    u32 ref_count;
};

// Serialises writers of a key: hold it from reading what a decision rests on until the commit
// returned.
struct pg_key_lock {
    struct store *store;
    u32 pg;
    bool is_held;
    void *slot; // the store's
};
// FIFO among waiters. ERR_CANCELLED, ERR_DEADLINE, ERR_NO_MEMORY: not held, nothing to unlock.
MAY_WAIT enum err pg_key_lock(struct store *s, u32 pg, struct bytes key,
                              struct pg_key_lock *lock) NODISCARD;
void pg_key_unlock(struct pg_key_lock *lock);

// What the index knows of a key, without a wait. False if the key does not exist.
struct pg_entry {
    u8 summary[STORE_SUMMARY_BYTES];
    bool has_refs;
    u32 record_bytes;
};
bool pg_lookup(struct store *s, u32 pg, struct bytes key, struct pg_entry *out);

// A record read and verified, pinned: its bytes and the extents that it refers to stay readable
// until it is released, even when the key is overwritten or deleted meanwhile.
struct pg_record {
    struct store *store;
    u32 pg;
    u8 summary[STORE_SUMMARY_BYTES];
    struct bytes attrs; // views into memory of the owner core, readable from any
    struct bytes payload;
    const struct extent_ref *refs;
    u32 ref_count;
    void *pin; // the store's
};
// ERR_NOT_FOUND, ERR_CORRUPT (counted; never returns wrong bytes), ERR_IO, ERR_NO_MEMORY.
MAY_WAIT enum err pg_read(struct store *s, u32 pg, struct bytes key,
                          struct pg_record *out) NODISCARD;
// Any core, in the loop or on a fiber. The struct may be reused at once; a record that was released
// already (or is all zero) is left alone.
void pg_record_release(struct pg_record *r);

// All changes become visible and durable together, or none. The caller holds the lock of every key.
// Makes the extents that are referred to durable first. Replacing or deleting a key drops its
// references; a sequence with no reference left is garbage. Deletes are taken when a drive is full;
// a delete of a key that does not exist writes nothing. The keys of one batch must differ.
// Not cancellable. ERR_INVALID (a part is larger than its limit), ERR_LIMIT_REACHED (the whole
// batch is larger than 4 MiB or than a segment can hold), ERR_DRIVE_FULL, ERR_NO_MEMORY, ERR_IO.
MAY_WAIT enum err pg_commit(struct store *s, u32 pg, const struct store_change *changes,
                            u32 count) NODISCARD;

// A name for a new extent sequence, never used before in this store. The sequence belongs to the
// caller until a commit refers to it or it is abandoned; after a restart unreferenced sequences are
// garbage.
u64 pg_object_id_new(struct store *s, u32 pg);
// Writes chunk number `chunk`: `data_bytes` at frame->data + STORE_EXTENT_HEADER. The store fills
// the header and the padding to 4 KiB. Not yet durable. The frame is the caller's again when it
// returns; it may belong to another core. Not cancellable. ERR_DRIVE_FULL, ERR_IO,
// ERR_LIMIT_REACHED (it does not fit into a segment: only where segments are smaller than 2 MiB).
MAY_WAIT enum err pg_extent_write(struct store *s, u32 pg, u64 object_id, u32 chunk,
                                  struct buf *frame, u32 data_bytes) NODISCARD;
void pg_extent_abandon(struct store *s, u32 pg, u64 object_id);

// Verified bytes [offset, offset + len) of a chunk, at (*out)->data + *out_offset, in a counted
// buffer. The sequence must be referred to by a pinned record. Whether the cache is filled is the
// store's choice: ranges up to 64 KiB whose neighbourhood was read before. ERR_INVALID: the range
// is empty or leaves the chunk.
MAY_WAIT enum err pg_extent_read(struct store *s, u32 pg, u64 object_id, u32 chunk, u32 offset,
                                 u32 len, struct buf **out, u32 *out_offset) NODISCARD;

// Walks keys of one PG in byte order. A cursor is valid only until its fiber waits or the PG
// changes: seek again afterwards.
struct pg_cursor {
    struct store *store;
    u32 pg;
    void *leaf;
    u32 slot;
    u8 key[STORE_KEY_BYTES_MAX];
    u32 key_len;
    const u8 *summary; // STORE_SUMMARY_BYTES, into the index
};
// Stands on the first key >= `from` (or > `from` with is_after). False at the end.
bool pg_cursor_seek(struct pg_cursor *c, struct store *s, u32 pg, struct bytes from, bool is_after);
bool pg_cursor_next(struct pg_cursor *c);

// Numbers for status, tests and metrics, of this core's share.
struct store_usage {
    u64 keys;
    u64 index_bytes;
    u64 live_bytes;
    u64 segment_bytes; // of segments in use
    u64 total_bytes;   // of the drives (counted on core 0)
    u64 free_bytes;
};
void store_usage(struct store *s, struct store_usage *out);
// Compacts until nothing is worth it (tests, and `leat admin` later). Runs on core 0.
MAY_WAIT enum err store_compact_all(struct store *s) NODISCARD;
