// SPDX-License-Identifier: Apache-2.0
// Fixed files and buffers of a ring: small direct-mapped caches. An entry is made after a few uses
// (a file read once is cheaper without), found by slot, and checked by generation. Deregistering
// asks every ring whose bit is set to forget; the ring does so before its next use or at once when
// idle.
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "ds/driver.h"
#include "ds/ring.h"

void ds_fixed_init(struct ds_queue *q)
{
    q->has_fixed_files =
        q->id < RING_IDS_MAX && io_uring_register_files_sparse(&q->ring, RING_FIXED_FILES) == 0;
    q->has_fixed_buffers =
        io_uring_register_buffers_sparse(&q->ring, RING_BOUNCES_MAX + RING_FIXED_BUFFERS) == 0;
}

// Requests in the submission queue name fixed slots, and the kernel looks a slot up only when it
// takes the request: a slot may change only while none waits, or a request would find another file
// under its number. False when the kernel does not take them now; the slot then stays as it is.
static bool flush_submissions(struct ds_queue *q)
{
    if (io_uring_sq_ready(&q->ring) > 0) {
        io_uring_submit(&q->ring);
    }
    return io_uring_sq_ready(&q->ring) == 0;
}

static bool buffer_slot_set(struct ds_queue *q, u32 index, void *base, size_t bytes)
{
    struct iovec iov = {.iov_base = base, .iov_len = bytes};
    __u64 tag = 0;
    return io_uring_register_buffers_update_tag(&q->ring, index, &iov, &tag, 1) == 1;
}

void ds_fixed_register_bounce(struct ds_queue *q, u32 index)
{
    q->is_bounce_fixed[index] =
        q->has_fixed_buffers && buffer_slot_set(q, index, q->bounces[index], q->bounce_bytes);
}

int ds_fixed_file(struct ds_queue *q, struct ds_handle *h)
{
    if (!q->has_fixed_files || h->direct_fd < 0) {
        return -1;
    }
    u64 key = atomic_load_explicit(&h->state, memory_order_relaxed) & (u64)UINT32_MAX << 32;
    key |= h->slot + 1;
    u32 index = h->slot % RING_FIXED_FILES;
    if (LIKELY(q->fixed_files[index] == key)) {
        return (int)index;
    }
    if (atomic_fetch_add_explicit(&h->uses, 1, memory_order_relaxed) < RING_FIXED_AFTER) {
        return -1;
    }
    if (!flush_submissions(q)) {
        return -1;
    }
    int fd = h->direct_fd;
    if (io_uring_register_files_update(&q->ring, index, &fd, 1) != 1) {
        q->fixed_files[index] = 0;
        return -1;
    }
    atomic_fetch_or(&h->registered_rings, (u64)1 << q->id);
    q->fixed_files[index] = key;
    return (int)index;
}

int ds_fixed_buffer(struct ds_queue *q, struct ds_op *op)
{
    struct ds_buffer *b = op->buffer;
    if (b == NULL || !q->has_fixed_buffers || q->id >= RING_IDS_MAX || b->is_device ||
        b->size > GIB) {
        return -1;
    }
    u32 index = b->slot % RING_FIXED_BUFFERS;
    if (LIKELY(q->fixed_buffers[index] == b->generation)) {
        return (int)(RING_BOUNCES_MAX + index);
    }
    if (atomic_fetch_add_explicit(&b->uses, 1, memory_order_relaxed) < RING_FIXED_AFTER) {
        return -1;
    }
    if (!flush_submissions(q)) {
        return -1;
    }
    if (!buffer_slot_set(q, RING_BOUNCES_MAX + index, b->base, b->size)) {
        q->fixed_buffers[index] =
            0; // the limit on locked memory, perhaps: plain requests still work
        atomic_store_explicit(&b->uses, 0, memory_order_relaxed);
        return -1;
    }
    atomic_fetch_or(&b->registered_rings, (u64)1 << q->id);
    q->fixed_buffers[index] = b->generation;
    q->fixed_buffer_slots[index] = b->slot;
    return (int)(RING_BOUNCES_MAX + index);
}

static void drop_file(struct ds_queue *q, u32 index)
{
    int none = -1;
    if (q->fixed_files[index] != 0) {
        q->fixed_files[index] = 0;
        io_uring_register_files_update(&q->ring, index, &none, 1);
    }
}

static void drop_buffer(struct ds_queue *q, u32 index)
{
    if (q->fixed_buffers[index] != 0) {
        q->fixed_buffers[index] = 0;
        (void)buffer_slot_set(q, RING_BOUNCES_MAX + index, NULL, 0);
    }
}

void ds_queue_apply_forgets(struct ds_queue *q)
{
    if (!atomic_load_explicit(&q->forget.is_pending, memory_order_acquire) ||
        !flush_submissions(q)) {
        return; // what cannot be flushed now is forgotten at the next look
    }
    pthread_mutex_lock(&q->forget.lock);
    for (u32 i = 0; i < RING_FIXED_FILES && q->forget.is_all; i++) {
        drop_file(q, i);
    }
    for (u32 i = 0; i < RING_FIXED_BUFFERS && q->forget.is_all; i++) {
        drop_buffer(q, i);
    }
    for (u32 i = 0; i < q->forget.file_count; i++) {
        u32 slot = q->forget.files[i];
        if ((u32)q->fixed_files[slot % RING_FIXED_FILES] == slot + 1) {
            drop_file(q, slot % RING_FIXED_FILES);
        }
    }
    for (u32 i = 0; i < q->forget.buffer_count; i++) {
        u32 slot = q->forget.buffers[i];
        if (q->fixed_buffer_slots[slot % RING_FIXED_BUFFERS] == slot) {
            drop_buffer(q, slot % RING_FIXED_BUFFERS);
        }
    }
    q->forget.file_count = 0;
    q->forget.buffer_count = 0;
    q->forget.is_all = false;
    atomic_store_explicit(&q->forget.is_pending, false, memory_order_release);
    pthread_mutex_unlock(&q->forget.lock);
}

void ds_queue_forget(struct ds_queue *q, bool is_file, u32 slot)
{
    pthread_mutex_lock(&q->forget.lock);
    u32 *count = is_file ? &q->forget.file_count : &q->forget.buffer_count;
    if (*count == RING_FORGET_MAX) {
        q->forget.is_all = true; // cheaper to forget too much than to wait
    } else {
        (is_file ? q->forget.files : q->forget.buffers)[(*count)++] = slot;
    }
    atomic_store_explicit(&q->forget.is_pending, true, memory_order_release);
    pthread_mutex_unlock(&q->forget.lock);
}
