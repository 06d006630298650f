// SPDX-License-Identifier: Apache-2.0
// A queue: one io_uring with its pieces, bounce buffers and tables of fixed files and buffers. It
// takes operations, cuts them into pieces, keeps up to `depth` of them in flight, and says when an
// operation is finished. An engine thread owns one, or a calling thread borrows one (locked) for
// one operation.
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include "ds/ds.h"

#define RING_BOUNCES_MAX     16u // of chunk_bytes each, made when first needed
#define RING_FIXED_FILES     256u
#define RING_FIXED_BUFFERS   256u // user buffers; bounces have their own slots before them
#define RING_FORGET_MAX      32u
#define RING_IDS_MAX         64u
#define RING_EDGE_BYTES      4096u
#define RING_SMALL_BYTES     (64 * KIB)  // unaligned reads up to here are bounced whole
#define RING_SPLIT_WRITE_MIN (256 * KIB) // unaligned writes from here are direct in the middle
#define RING_FIXED_AFTER     3u          // uses of a file or buffer before it is worth a fixed slot

enum piece_kind { PIECE_READ, PIECE_WRITE, PIECE_FSYNC, PIECE_DELAY, PIECE_COMMAND, PIECE_ZERO };
enum piece_state { PIECE_FREE, PIECE_IO, PIECE_COPY_IN, PIECE_COPY_OUT };

// One request to the kernel on behalf of an operation: file bytes [file_at, file_at + io_bytes), of
// which [lead, lead + op_bytes) belong to the operation at op_at.
struct ring_piece {
    struct list link; // free or copying
    struct ds_op *op;
    u8 kind;
    u8 state;
    bool is_direct;
    bool is_cancel_sent;
    u32 index;
    u32 lead;
    u64 op_at;
    u64 op_bytes;
    u64 file_at;
    u64 io_bytes;
    u64 io_done;
    u64 device_at; // PIECE_COMMAND: byte offset on the namespace
    u8 *bounce;    // whole-piece bounce, or NULL
    u32 bounce_index;
    u32 head_bytes; // operation bytes that the head edge serves
    u32 tail_bytes;
    u32 iov_count;
    struct iovec iov[3];
    struct iovec left[3]; // what a short transfer left over
    struct ds_copy copy;
    struct __kernel_timespec delay;
};

struct ds_queue {
    struct io_uring ring;
    pthread_mutex_t lock; // sync queues: the borrowing thread
    u32 id;               // bit in registration masks, or >= RING_IDS_MAX
    u32 depth;
    bool is_engine;
    bool is_wide; // 128-byte entries, for NVMe commands
    bool has_fixed_files;
    bool has_fixed_buffers;
    bool has_accel; // copy_queue was made
    void *copy_queue;
    struct ring_piece *pieces;
    struct list free_pieces;
    struct list copying; // pieces whose copy is in flight
    struct list waiting; // operations not started
    struct list active;  // operations started, not finished
    u32 waiting_count;
    u32 active_count;
    u32 inflight; // pieces in the kernel
    u64 next_deadline_ns;
    _Atomic bool is_kicked;
    u8 *edges; // two edge blocks a piece
    u8 *bounces[RING_BOUNCES_MAX];
    bool is_bounce_fixed[RING_BOUNCES_MAX];
    u32 bounce_bytes;
    u32 bounce_count;
    u32 free_bounces[RING_BOUNCES_MAX];
    u32 free_bounce_count;
    int wake_fd;
    bool is_wake_armed;
    u64 wake_value;
    u64 fixed_files[RING_FIXED_FILES];     // handle generation << 32 | slot + 1, or 0
    u64 fixed_buffers[RING_FIXED_BUFFERS]; // buffer generation, or 0
    u32 fixed_buffer_slots[RING_FIXED_BUFFERS];
    struct {
        pthread_mutex_t lock;
        _Atomic bool is_pending;
        u32 files[RING_FORGET_MAX];
        u32 file_count;
        u32 buffers[RING_FORGET_MAX];
        u32 buffer_count;
        bool is_all;
    } forget;
};

// NULL with *sys_errno on failure. An engine's queue must be made by its own thread.
struct ds_queue *ds_queue_create(bool is_engine, int *sys_errno);
void ds_queue_destroy(struct ds_queue *q);
// In a forked child: closes the copied descriptors and leaves the parent's ring alone.
void ds_queue_fork_child(struct ds_queue *q);
void ds_queue_start(struct ds_queue *q, struct ds_op *op);
bool ds_queue_is_idle(const struct ds_queue *q);
// Moves everything on; with `wait`, sleeps until something has happened. Engine queues call
// ds_op_finish() for what is done; on sync queues the operation's result is simply set.
void ds_queue_pump(struct ds_queue *q, bool wait);
// Any thread: makes a sleeping or coming wait of an engine's queue return.
void ds_queue_wake(struct ds_queue *q);
// Owner only: drops the fixed files and buffers that were asked to be forgotten.
void ds_queue_apply_forgets(struct ds_queue *q);
// Any thread.
void ds_queue_forget(struct ds_queue *q, bool is_file, u32 slot);
// A submission entry; the ring is flushed when it is full.
struct io_uring_sqe *ds_queue_sqe(struct ds_queue *q);
// Goes on with an operation when its stage has no piece left, and finishes it after the last.
void ds_queue_step(struct ds_queue *q, struct ds_op *op);

// piece.c: a piece that was just cut goes on its way; its request's answer; the copies in flight
// (with `wait`, waits for the oldest; returns how many are done).
void ds_piece_begin(struct ds_queue *q, struct ring_piece *p);
void ds_piece_completed(struct ds_queue *q, struct ring_piece *p, int res);
u32 ds_copies_poll(struct ds_queue *q, bool wait);

// plan.c: cuts the next piece of an operation. False when nothing can be cut now (no bounce is
// free) or there is nothing left in this stage (op->ring.is_planned is then set).
bool ds_plan_next(struct ds_queue *q, struct ds_op *op, struct ring_piece *p);
void ds_plan_begin(struct ds_op *op);
// The stage's pieces are all done: goes to the next stage. False when the operation is complete.
bool ds_plan_advance(struct ds_op *op);
// The kernel refused direct I/O for this piece: the same bytes through the page cache.
bool ds_plan_rebuild_buffered(struct ds_queue *q, struct ring_piece *p);
// Bounce buffers.
bool ds_bounce_get(struct ds_queue *q, struct ring_piece *p);
void ds_bounce_put(struct ds_queue *q, struct ring_piece *p);

// fixed.c: the fixed index for a file or memory in this ring, or -1. May submit what is queued, so
// no half-filled entry may be in the queue.
int ds_fixed_file(struct ds_queue *q, struct ds_handle *h);
int ds_fixed_buffer(struct ds_queue *q, struct ds_op *op);
void ds_fixed_register_bounce(struct ds_queue *q, u32 index);
void ds_fixed_init(struct ds_queue *q);
