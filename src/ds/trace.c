// SPDX-License-Identifier: Apache-2.0
// The most recent I/Os, in a ring that writers fill without a lock. A slot's sequence number is odd
// while it is written; a reader takes a slot only when the number is even and the same before and
// after. All fields are relaxed atomics, so a torn slot is noticed, never undefined.
#include <string.h>

#include "ds/driver.h"

struct ds_trace_slot {
    _Atomic u64 sequence;
    _Atomic u64 words[9];
};

enum { W_TIME, W_LATENCY, W_INODE, W_OFFSET, W_SIZE, W_RESULT, W_DEVICE, W_KINDS, W_TICKET };

static struct ds_trace_ring *ring(void)
{
    return &ds_driver()->trace;
}

void ds_trace_init(u32 entries)
{
    struct ds_trace_ring *r = ring();
    r->slots = entries == 0 ? NULL : calloc(entries, sizeof(*r->slots));
    r->entries = r->slots == NULL ? 0 : entries;
    atomic_store(&r->next, 0);
}

void ds_trace_deinit(void)
{
    struct ds_trace_ring *r = ring();
    r->entries = 0;
    free(r->slots);
    r->slots = NULL;
}

void ds_trace_record(const struct ds_op *op, u64 latency_ns)
{
    struct ds_trace_ring *r = ring();
    if (r->entries == 0) {
        return;
    }
    u64 ticket = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
    struct ds_trace_slot *s = &r->slots[ticket % r->entries];
    u64 sequence = atomic_load_explicit(&s->sequence, memory_order_relaxed);
    // A writer that laps a slower one gives up its entry rather than wait.
    if ((sequence & 1) != 0 ||
        !atomic_compare_exchange_strong_explicit(&s->sequence, &sequence, sequence + 1,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        return;
    }
    u64 words[9] = {
        [W_TIME] = op->submit_ns,
        [W_LATENCY] = latency_ns,
        [W_INODE] = op->handle->inode,
        [W_OFFSET] = op->offset,
        [W_SIZE] = op->size,
        [W_RESULT] = (u64)op->result,
        [W_DEVICE] = op->handle->device,
        [W_KINDS] = (u64)op->opcode | (u64)op->path << 8 | (u64)op->backend << 16 |
                    (u64)op->fell_back << 24,
        [W_TICKET] = ticket + 1,
    };
    for (u32 i = 0; i < ARRAY_LEN(words); i++) {
        atomic_store_explicit(&s->words[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&s->sequence, sequence + 2, memory_order_release);
}

// Copies the entry with this ticket; false when it was overwritten or is being written.
static bool read_slot(u64 ticket, opends_trace_entry_t *e)
{
    struct ds_trace_slot *s = &ring()->slots[ticket % ring()->entries];
    u64 words[9];
    u64 before = atomic_load_explicit(&s->sequence, memory_order_acquire);
    for (u32 i = 0; i < ARRAY_LEN(words); i++) {
        words[i] = atomic_load_explicit(&s->words[i], memory_order_acquire);
    }
    if ((before & 1) != 0 || atomic_load_explicit(&s->sequence, memory_order_acquire) != before ||
        words[W_TICKET] != ticket + 1) {
        return false;
    }
    memset(e, 0, sizeof(*e));
    e->time_ns = words[W_TIME];
    e->latency_ns = words[W_LATENCY];
    e->inode = words[W_INODE];
    e->file_offset = words[W_OFFSET];
    e->size = words[W_SIZE];
    e->result = (i64)words[W_RESULT];
    e->device_major = (unsigned)(words[W_DEVICE] >> 8 & 0xfff);
    e->device_minor = (unsigned)((words[W_DEVICE] & 0xff) | (words[W_DEVICE] >> 12 & 0xfff00));
    e->opcode = (words[W_KINDS] & 1) == 0 ? OPENDS_READ : OPENDS_WRITE;
    e->path = (opends_path_t)(words[W_KINDS] >> 8 & 0xff);
    e->fell_back = (words[W_KINDS] >> 24 & 1) != 0;
    const char *name = ds_backend((enum ds_backend_id)(words[W_KINDS] >> 16 & 0xff))->name;
    memcpy(e->backend, name, MIN(strlen(name), sizeof(e->backend) - 1));
    return true;
}

opends_error_t opends_trace_get(opends_trace_entry_t *entries, unsigned *nr)
{
    if (nr == NULL || (entries == NULL && *nr != 0)) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "nr or entries is NULL");
    }
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    u32 filled = 0;
    u64 next = atomic_load(&ring()->next);
    for (u64 i = 0; i < ring()->entries && i < next && filled < *nr; i++) {
        filled += read_slot(next - 1 - i, &entries[filled]);
    }
    *nr = filled;
    return ds_ok();
}
