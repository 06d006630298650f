// SPDX-License-Identifier: Apache-2.0
// The record log of one core on one drive: group commit. Whatever is appended while a commit is in
// flight gathers in the next batch; an idle log commits at the end of the loop turn, so that all
// that became ready together goes together. A batch starts at a 4 KiB boundary and is written and
// flushed as one; its groups then take effect, in order, before anybody is told.
//
// The last commit of a log cannot be told from one that a power loss tore. A log that has been idle
// for RECORD_LOG_MARK_NS, and one that stops, therefore writes a mark behind it: from then on,
// damage to any commit is known for what it is.
#pragma once

#include "core/fiber.h"
#include "store/open_segment.h"
#include "store/record_fmt.h"

#define RECORD_LOG_BUFS_MAX  16          // of one batch
#define RECORD_LOG_BUF_BYTES (256 * KIB) // unless a group needs a larger one

#define RECORD_LOG_MARK_NS   NS_PER_S

struct shard_drive;

// Records that become durable together or not at all. Lives on the stack of the fiber that appends.
struct record_group {
    struct list node;
    const struct record_input *inputs;
    u32 count;
    enum space_class space;
    // Runs on the writer's fiber when the group is durable; must not wait.
    void (*apply)(struct record_group *g);
    void *arg;
    // the log's
    u32 frame_bytes;
    u32 entry_bytes;
    struct segment *segment; // where it went
    u32 offset;              // of the first frame from the segment's start
    enum err result;
    struct event done;
};

struct log_batch;

struct record_log {
    struct shard_drive *sd;
    struct open_segment *current;
    struct fiber_mutex roll_mutex;
    struct list batches; // struct log_batch: the oldest may be in flight, the newest is filling
    struct wait_queue kick;
    struct deferred deferred;
    struct timer idle;
    bool is_mark_due;
    bool is_busy; // the writer's fiber is not waiting for work
    bool is_stopping;
};

void record_log_init(struct record_log *log, struct shard_drive *sd);
enum err record_log_start(struct record_log *log) NODISCARD;
void record_log_stop(struct record_log *log); // the writer ends when nothing is left to write
void record_log_deinit(struct record_log *log);

// Appends and waits until the group is durable and applied; not cancellable. ERR_DRIVE_FULL,
// ERR_LIMIT_REACHED (larger than a batch or a segment), ERR_NO_MEMORY: nothing was written.
// ERR_IO: the drive failed.
MAY_WAIT enum err record_log_append(struct record_log *log, struct record_group *g) NODISCARD;
