// SPDX-License-Identifier: Apache-2.0
// What the store should hold: for each key all versions that anyone tried to write, in order, and
// what is known of their fate. The content of a version follows from its number alone.
#pragma once

#include "base/types.h"
#include "store/store.h"

#define MODEL_KEYS_MAX  512
#define MODEL_REFS_MAX  4
#define MODEL_ATTRS_MAX (24 * KIB)

enum fate {
    FATE_IN_FLIGHT, // its commit has not returned
    FATE_ACKED,     // its commit returned OK, or it was seen: it must stay
    FATE_FAILED,    // it must never be seen
    FATE_UNKNOWN,   // not seen in this life; after a restart it is there or not
};

struct model_ref {
    u64 object_id;
    u64 bytes;
    u64 content; // seed of its bytes
};

struct version {
    u64 id; // unique in the run
    u64 batch;
    enum fate fate;
    bool is_present; // false: a delete, or the time before the first put
    u32 attrs_bytes;
    u32 payload_bytes;
    u32 ref_count;
    struct model_ref refs[MODEL_REFS_MAX];
};

struct model_key {
    u8 name[STORE_KEY_BYTES_MAX];
    u32 name_bytes;
    u32 pg;
    u32 writers; // commits of this key that are in flight: never more than one
    struct version *versions;
    u32 count;
    u32 capacity;
    u32 acked; // index of the newest version that must be there
};

struct model {
    struct model_key keys[MODEL_KEYS_MAX]; // in byte order
    u32 key_count;
    u64 versions_made;
    u64 batches_made;
    // Media was damaged before this life: keys may be lost and old versions come back, if the log
    // says that something was found damaged (is_warned), or in any case (is_lenient alone).
    bool is_lenient;
    bool is_warned;
    bool needs_warning;
};

void model_init(struct model *m, u32 key_count, u64 *random);
void model_deinit(struct model *m);
static inline struct bytes model_name(const struct model_key *k)
{
    return BYTES(k->name, k->name_bytes);
}
// NULL if there is no such key.
struct model_key *model_find(struct model *m, struct bytes name);

// Appends a version that is in flight.
struct version *model_version_add(struct model *m, struct model_key *k, u64 batch);
static inline struct version *model_acked(const struct model_key *k)
{
    return &k->versions[k->acked];
}

// The content of a version. `at` is the offset into the stream of that seed.
void content_fill(u64 content, u64 at, u8 *out, size_t len);
bool content_equals(u64 content, u64 at, const u8 *data, size_t len);
void version_summary(const struct version *v, u8 out[STORE_SUMMARY_BYTES]);
u64 version_attrs_content(const struct version *v);
u64 version_payload_content(const struct version *v);

// Which version a summary belongs to: its index, or UINT32_MAX if none of this key's has it.
u32 model_match_summary(const struct model_key *k, const u8 summary[STORE_SUMMARY_BYTES]);
// Fails unless the record is exactly the version at `index` (references by name, not their bytes).
void model_check_record(const struct model_key *k, u32 index, const struct pg_record *r);

// A version (or, UINT32_MAX, nothing) was seen in a read that began when `acked_before` was the
// newest acknowledged one. Fails if that cannot be; what was seen must stay from now on.
void model_observe(struct model_key *k, u32 index, u32 acked_before);
// A commit returned.
void model_commit_done(struct model_key *k, u64 version_id, enum fate fate);
// After a restart: notes what the key holds now (UINT32_MAX: nothing).
void model_restart_observe(struct model *m, struct model_key *k, u32 index);
// After all keys were noted: batches are whole or absent, and what is not there never comes back.
void model_restart_settle(struct model *m);
