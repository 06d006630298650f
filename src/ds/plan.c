// SPDX-License-Identifier: Apache-2.0
// How an operation is cut into pieces. Reads have one stage: aligned ranges straight into the
// caller's memory, and unaligned ends through a small edge block in the same vectored request, so
// that any alignment costs one request. Memory that cannot take DMA (a misaligned address, an
// accelerator's) goes through a bounce buffer chunk by chunk.
//
// Writes have three stages, one after the other: the page-aligned middle directly; then the ends
// through the page cache (a read-modify-write of our own could lose a neighbour's bytes; run beside
// direct writes the kernel could not keep the cache coherent); then the flush of a durable write.
#include <string.h>

#include "ds/nvme.h"
#include "ds/ring.h"

enum { STAGE_DELAY, STAGE_BODY, STAGE_EDGES, STAGE_FLUSH, STAGE_END };

#define PAGE_BYTES 4096u

static bool uses_direct(const struct ds_op *op)
{
    return op->path != OPENDS_PATH_BUFFERED && op->handle->direct_fd >= 0;
}

// Which part of a write goes directly: [head_end, tail_start) of the operation, possibly empty.
static void split_write(struct ds_op *op)
{
    u64 align = MAX(op->handle->offset_align, PAGE_BYTES);
    u64 start = ALIGN_UP(op->offset, align);
    u64 end = ALIGN_DOWN(op->offset + op->size, align);
    bool is_whole = start == op->offset && end == op->offset + op->size;
    if (!uses_direct(op) || end <= start || (!is_whole && op->size < RING_SPLIT_WRITE_MIN)) {
        op->ring.head_end = op->size;
        op->ring.tail_start = op->size;
        return;
    }
    op->ring.head_end = start - op->offset;
    op->ring.tail_start = end - op->offset;
}

static void enter_stage(struct ds_op *op, u8 stage)
{
    bool is_write = op->opcode == OPENDS_WRITE;
    op->ring.stage = stage;
    op->ring.is_planned = false;
    op->ring.next = stage == STAGE_BODY && is_write ? op->ring.head_end : 0;
    op->ring.limit = !is_write             ? op->ring.short_at
                     : stage == STAGE_BODY ? op->ring.tail_start
                                           : op->size;
    if (stage == STAGE_EDGES && op->ring.head_end == 0) {
        op->ring.next = op->ring.tail_start;
    }
}

static bool stage_is_empty(const struct ds_op *op)
{
    switch (op->ring.stage) {
    case STAGE_DELAY:
        return ds_fault_delay_ms(op->opcode) == 0;
    case STAGE_BODY:
        return op->ring.next >= op->ring.limit;
    case STAGE_EDGES:
        return op->opcode == OPENDS_READ || op->ring.next >= op->size;
    case STAGE_FLUSH:
        return !op->is_durable;
    default:
        return false;
    }
}

bool ds_plan_advance(struct ds_op *op)
{
    do {
        u8 stage = (u8)(op->ring.stage + 1);
        if (stage >= STAGE_END || op->ring.sys_errno != 0 || op->ring.fail_code != 0) {
            return false;
        }
        enter_stage(op, stage);
    } while (stage_is_empty(op));
    // Cancelled with something left to do; what is finished stays finished.
    if (atomic_load_explicit(&op->cancel, memory_order_relaxed) != DS_CANCEL_NONE) {
        op->ring.is_cut = true;
        op->ring.is_planned = true;
        return false;
    }
    return true;
}

void ds_plan_begin(struct ds_op *op)
{
    bool is_passthrough_off = op->ring.is_passthrough_off;
    memset(&op->ring, 0, sizeof(op->ring));
    op->ring.is_passthrough_off = is_passthrough_off;
    op->ring.short_at = op->size;
    op->ring.sys_errno = ds_fault_next(op->opcode);
    if (op->ring.sys_errno == EINTR) {
        op->ring.sys_errno = 0; // the kernel never lets a ring's request end so; nothing to retry
    }
    if (op->opcode == OPENDS_WRITE) {
        split_write(op);
    }
    if (op->backend == DS_NVME && op->size > 0 && !is_passthrough_off) {
        ds_nvme_begin(op);
    }
    enter_stage(op, STAGE_DELAY);
    if (op->ring.sys_errno != 0 || (stage_is_empty(op) && !ds_plan_advance(op))) {
        op->ring.is_planned = true; // failed before it began, or nothing to do
        op->ring.stage = STAGE_END;
    }
}

bool ds_bounce_get(struct ds_queue *q, struct ring_piece *p)
{
    if (q->free_bounce_count == 0 && q->bounce_count < MIN(RING_BOUNCES_MAX, q->depth)) {
        u8 *memory = ds_accel_current()->pinned_alloc(q->bounce_bytes);
        if (memory != NULL) {
            u32 index = q->bounce_count++;
            q->bounces[index] = memory;
            q->free_bounces[q->free_bounce_count++] = index;
            ds_fixed_register_bounce(q, index);
        } else if (q->bounce_count == 0) {
            p->op->ring.sys_errno = ENOMEM; // not even one: waiting for one would never end
            p->op->ring.is_planned = true;
        }
    }
    if (q->free_bounce_count == 0) {
        return false;
    }
    p->bounce_index = q->free_bounces[--q->free_bounce_count];
    p->bounce = q->bounces[p->bounce_index];
    return true;
}

void ds_bounce_put(struct ds_queue *q, struct ring_piece *p)
{
    if (p->bounce != NULL) {
        q->free_bounces[q->free_bounce_count++] = p->bounce_index;
        p->bounce = NULL;
    }
}

// The largest piece now: the driver's limit may have been lowered since the ring was made.
static u64 chunk_bytes(const struct ds_queue *q)
{
    return MIN(q->bounce_bytes, ds_chunk_bytes());
}

static void set_single(struct ring_piece *p, void *memory, u64 bytes)
{
    p->iov[0] = (struct iovec){.iov_base = memory, .iov_len = bytes};
    p->iov_count = 1;
}

// The piece reads or writes a bounce buffer that covers its whole range.
static bool plan_bounced(struct ds_queue *q, struct ring_piece *p)
{
    if (!ds_bounce_get(q, p)) {
        return false;
    }
    set_single(p, p->bounce, p->io_bytes);
    return true;
}

// A direct read whose unaligned ends land in edge blocks and whose middle lands in place.
static void plan_vectored(struct ds_queue *q, struct ring_piece *p, u32 align)
{
    u8 *edge = q->edges + (size_t)p->index * 2 * RING_EDGE_BYTES;
    u8 *memory = p->op->memory + p->op_at;
    u32 n = 0;
    p->head_bytes = p->lead == 0 ? 0 : align - p->lead;
    p->tail_bytes = (u32)((p->lead + p->op_bytes) & (align - 1));
    if (p->head_bytes != 0) {
        p->iov[n++] = (struct iovec){.iov_base = edge, .iov_len = align};
    }
    u64 middle = p->op_bytes - p->head_bytes - p->tail_bytes;
    p->iov[n++] = (struct iovec){.iov_base = memory + p->head_bytes, .iov_len = middle};
    if (p->tail_bytes != 0) {
        p->iov[n++] = (struct iovec){.iov_base = edge + RING_EDGE_BYTES, .iov_len = align};
    }
    p->iov_count = n;
}

// Sets the range of a direct read: from `lead` bytes before the operation's next byte to an aligned
// end, at most a chunk.
static void set_direct_range(struct ring_piece *p, u64 absolute, u64 left, u32 align, u64 chunk)
{
    p->is_direct = true;
    p->lead = (u32)(absolute & (align - 1));
    p->file_at = absolute - p->lead;
    p->io_bytes = MIN(ALIGN_UP(p->lead + left, (u64)align), chunk);
    p->op_bytes = MIN(p->io_bytes - p->lead, left);
}

static bool plan_direct_read(struct ds_queue *q, struct ds_op *op, struct ring_piece *p, u64 left)
{
    u32 align = op->handle->offset_align;
    set_direct_range(p, op->offset + p->op_at, left, align, chunk_bytes(q));
    u64 head = p->lead == 0 ? 0 : align - p->lead;
    bool is_aligned = p->lead == 0 && p->op_bytes == p->io_bytes;
    bool is_in_place = !op->is_device_memory && ((uintptr_t)(op->memory + p->op_at + head) &
                                                 (op->handle->memory_align - 1)) == 0;
    if (!is_in_place || (!is_aligned && p->io_bytes <= RING_SMALL_BYTES)) {
        return plan_bounced(q, p);
    }
    plan_vectored(q, p, align);
    return true;
}

static bool plan_buffered(struct ds_queue *q, struct ds_op *op, struct ring_piece *p, u64 left)
{
    p->is_direct = false;
    p->lead = 0;
    p->file_at = op->offset + p->op_at;
    p->io_bytes = MIN(left, chunk_bytes(q));
    p->op_bytes = p->io_bytes;
    if (op->is_device_memory) {
        return plan_bounced(q, p);
    }
    set_single(p, op->memory + p->op_at, p->io_bytes);
    return true;
}

static bool plan_direct_write(struct ds_queue *q, struct ds_op *op, struct ring_piece *p, u64 left)
{
    p->is_direct = true;
    p->lead = 0;
    p->file_at = op->offset + p->op_at;
    p->io_bytes = MIN(left, chunk_bytes(q));
    p->op_bytes = p->io_bytes;
    if (op->is_device_memory ||
        ((uintptr_t)(op->memory + p->op_at) & (op->handle->memory_align - 1)) != 0) {
        return plan_bounced(q, p);
    }
    set_single(p, op->memory + p->op_at, p->io_bytes);
    return true;
}

// A passthrough piece: whole blocks in place where the address allows, single blocks or a chunk
// through a bounce buffer where it does not.
static bool plan_command(struct ds_queue *q, struct ds_op *op, struct ring_piece *p,
                         const struct ds_nvme_span *span)
{
    u32 block = ds_nvme_block_bytes(op);
    u64 chunk = MIN(chunk_bytes(q), ds_nvme_command_bytes_max(op));
    p->kind = PIECE_COMMAND;
    set_direct_range(p, op->offset + p->op_at, span->bytes, block, chunk);
    p->device_at = span->device_at - p->lead;
    bool is_in_place = p->lead == 0 && p->op_bytes >= block && !op->is_device_memory &&
                       ((uintptr_t)(op->memory + p->op_at) & 3) == 0;
    if (is_in_place && (p->op_bytes == p->io_bytes || p->op_bytes > RING_SMALL_BYTES)) {
        p->io_bytes = ALIGN_DOWN(p->op_bytes, (u64)block); // the tail is a piece of its own
        p->op_bytes = p->io_bytes;
        set_single(p, op->memory + p->op_at, p->io_bytes);
        return true;
    }
    return plan_bounced(q, p);
}

// Where the map says the bytes are: on the device, nowhere (zeros), or only the filesystem knows.
static bool plan_mapped(struct ds_queue *q, struct ds_op *op, struct ring_piece *p, u64 left)
{
    struct ds_nvme_span span;
    ds_nvme_find(op, op->offset + p->op_at, left, &span);
    if (span.where == DS_NVME_ON_DEVICE) {
        return plan_command(q, op, p, &span);
    }
    if (span.where == DS_NVME_ZEROS) {
        p->kind = PIECE_ZERO;
        p->op_bytes = span.bytes;
        p->io_bytes = span.bytes;
        p->iov_count = 0;
        return true;
    }
    ds_nvme_note_file(op, &span);
    if (op->opcode == OPENDS_WRITE) {
        return plan_direct_write(q, op, p, span.bytes);
    }
    return plan_direct_read(q, op, p, span.bytes);
}

// The end of the range that the current stage may plan from `next` on.
static u64 stage_limit(const struct ds_op *op)
{
    if (op->ring.stage == STAGE_EDGES && op->ring.next < op->ring.head_end) {
        return op->ring.head_end;
    }
    return op->ring.limit;
}

static bool plan_body(struct ds_queue *q, struct ds_op *op, struct ring_piece *p, u64 left)
{
    bool is_write = op->opcode == OPENDS_WRITE;
    p->kind = is_write ? PIECE_WRITE : PIECE_READ;
    if (op->ring.stage == STAGE_EDGES || !uses_direct(op)) {
        return plan_buffered(q, op, p, left);
    }
    if (op->ring.extents != NULL) {
        return plan_mapped(q, op, p, left);
    }
    return is_write ? plan_direct_write(q, op, p, left) : plan_direct_read(q, op, p, left);
}

static void after_piece(struct ds_op *op, u64 bytes)
{
    op->ring.next += bytes;
    if (op->ring.stage == STAGE_EDGES && op->ring.next == op->ring.head_end) {
        op->ring.next = op->ring.tail_start;
    }
    op->ring.is_planned = op->ring.next >= op->ring.limit;
}

bool ds_plan_next(struct ds_queue *q, struct ds_op *op, struct ring_piece *p)
{
    p->op = op;
    p->io_done = 0;
    p->head_bytes = 0;
    p->tail_bytes = 0;
    p->lead = 0;
    p->bounce = NULL;
    p->iov_count = 0;
    p->is_cancel_sent = false;
    p->is_direct = false;
    p->op_at = op->ring.next;
    p->op_bytes = 0;
    p->io_bytes = 0;
    if (op->ring.stage == STAGE_DELAY) {
        u32 ms = ds_fault_delay_ms(op->opcode);
        p->kind = PIECE_DELAY;
        p->delay.tv_sec = ms / 1000;
        p->delay.tv_nsec = (long long)(ms % 1000 * NS_PER_MS);
        op->ring.is_planned = true;
        return true;
    }
    if (op->ring.stage == STAGE_FLUSH) {
        p->kind = PIECE_FSYNC;
        op->ring.is_planned = true;
        return true;
    }
    u64 limit = stage_limit(op);
    // Past a known end of the file there is nothing to read; do not ask for it again.
    if (op->opcode == OPENDS_READ && op->ring.next > op->ring.short_at) {
        op->ring.is_planned = true;
        return false;
    }
    if (!plan_body(q, op, p, limit - op->ring.next)) {
        return false;
    }
    after_piece(op, p->op_bytes);
    return true;
}

bool ds_plan_rebuild_buffered(struct ds_queue *q, struct ring_piece *p)
{
    struct ds_op *op = p->op;
    bool was_bounced = p->bounce != NULL;
    u64 bytes = p->op_bytes;
    p->kind = op->opcode == OPENDS_WRITE ? PIECE_WRITE : PIECE_READ;
    p->is_direct = false;
    p->lead = 0;
    p->head_bytes = 0;
    p->tail_bytes = 0;
    p->io_done = 0;
    p->file_at = op->offset + p->op_at;
    p->io_bytes = bytes;
    if (was_bounced && op->opcode == OPENDS_WRITE) {
        set_single(p, p->bounce, bytes); // already holds the bytes
        return true;
    }
    if (op->is_device_memory) {
        if (!was_bounced && !ds_bounce_get(q, p)) {
            return false;
        }
        set_single(p, p->bounce, bytes);
        return true;
    }
    ds_bounce_put(q, p);
    set_single(p, op->memory + p->op_at, bytes);
    return true;
}
