// SPDX-License-Identifier: Apache-2.0
// MD5 of the concurrent PUTs of one core, hashed side by side in the lanes of codec/md5_lanes.h.
//
// A stream collects a run of bytes that stay in place; md5_stream_flush makes it urgent and waits.
// At the end of a loop turn, when no fiber is ready, the batch hashes a piece of every urgent
// stream in one call, and takes bytes of the other streams along where lanes would stay empty:
// those come for nothing. A lone stream is hashed while it still arrives. One piece is bounded, so
// that a turn stays short.
#pragma once

#include "base/list.h"
#include "codec/digest.h"
#include "core/fiber.h"
#include "core/reactor.h"

struct md5_batch {
    struct deferred deferred;
    struct list urgent; // struct md5_stream
    struct list lazy;   // open streams that nobody waits for
    u32 open;           // streams between open and close
    u64 runs;
    u64 pieces; // lanes used in those runs
};

struct md5_stream {
    struct list node; // in urgent or lazy
    struct md5_batch *batch;
    struct md5 ctx;
    const u8 *data; // not yet hashed
    size_t len;
    bool is_urgent;
    struct event done;
};

void md5_batch_init(struct md5_batch *b);
void md5_stream_open(struct md5_stream *s, struct md5_batch *b);
// `data` follows what was added before: in memory too, unless everything has been flushed.
void md5_stream_add(struct md5_stream *s, const u8 *data, size_t len);
// Returns when all bytes are hashed, so that their memory may be reused. Ends within a few turns.
MAY_WAIT void md5_stream_flush(struct md5_stream *s);
// Forgets what was not hashed. Not while a flush runs.
void md5_stream_close(struct md5_stream *s);
