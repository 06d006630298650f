// SPDX-License-Identifier: Apache-2.0
// What placement-group code knows of the place where its records and extents are kept. The first
// implementation is a local drive (replica_local.c); a drive of another node is to be the second,
// and several of them behind one quorum the third, without a change in pg*.c.
//
// All calls run on the core that owns the group. Extents are named, not located: every replica has
// its own map from names to places.
#pragma once

#include "store/extent_fmt.h"
#include "store/index.h"
#include "store/record_log.h"
#include "store/record_read.h"

struct replica;

struct replica_ops {
    // Makes the group durable and applies it; see record_log_append.
    enum err (*append)(struct replica *r, struct record_group *g);
    // Reads and verifies one record; see record_read.
    enum err (*record_read)(struct replica *r, const struct index_location *at,
                            struct record_bytes *out);
    // Writes one extent; not durable before extents_flush of its object.
    enum err (*extent_write)(struct replica *r, const struct extent_name *name, struct buf *frame,
                             u32 data_bytes);
    // Makes all extents of these objects durable.
    enum err (*extents_flush)(struct replica *r, const struct extent_ref *refs, u32 count);
    // Verified bytes of one extent; see pg_extent_read.
    enum err (*extent_read)(struct replica *r, const struct extent_name *name, u32 offset, u32 len,
                            struct buf **out, u32 *out_offset);
};

struct replica {
    const struct replica_ops *ops;
    struct shard_drive *sd; // the local drive's
};

void replica_local_init(struct replica *r, struct shard_drive *sd);
