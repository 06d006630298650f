// SPDX-License-Identifier: Apache-2.0
// Reading a record from a log segment or the object cache, verified.
#pragma once

#include "core/buf.h"
#include "store/cache.h"
#include "store/index.h"
#include "store/record_fmt.h"

struct shard_drive;
struct shard;

// A record's bytes, held either in a buffer or in a pinned cache entry.
struct record_bytes {
    struct buf *buf;
    struct cache_entry *cached;
    struct record_view view;
};

// ERR_CORRUPT (counted, logged), ERR_IO, ERR_NO_MEMORY.
MAY_WAIT enum err record_read(struct shard_drive *sd, const struct index_location *at,
                              struct record_bytes *out) NODISCARD;
// From the cache alone, without a wait; false if it is not there.
bool record_read_cached(struct shard_drive *sd, const struct index_location *at,
                        struct record_bytes *out);

// For compaction: records in the order of their places, many with one drive read, past the cache.
// Zero to begin with; buf_put(window.buf) to end.
struct record_window {
    struct buf *buf;
    u32 segment;
    u64 start;
    u64 end;
};
MAY_WAIT enum err record_read_window(struct shard_drive *sd, const struct index_location *at,
                                     struct record_window *w, struct record_bytes *out) NODISCARD;
void record_bytes_release(struct shard *sh, struct record_bytes *rb);
