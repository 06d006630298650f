// SPDX-License-Identifier: Apache-2.0
// Registered memory: ranges sorted by address under a readers' lock. An operation in flight holds a
// reference, and deregistering waits until there is none, so memory is never freed under a DMA.
#include "ds/driver.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ds/backends.h"

#define REFERENCES_AWAITED (1u << 31) // someone sleeps until the count is 1

static struct ds_buffer_table *table(void)
{
    return &ds_driver()->buffers;
}

void ds_buffers_init(void)
{
    struct ds_buffer_table *t = table();
    if (t->next_generation == 0) {
        pthread_rwlock_init(&t->lock, NULL);
    }
    t->count = 0;
}

// The first index whose base is above `address`.
static u32 upper_bound(const struct ds_buffer_table *t, const u8 *address)
{
    u32 low = 0;
    u32 high = t->count;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (t->sorted[middle]->base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool contains(const struct ds_buffer *b, const u8 *address)
{
    return address >= b->base && (size_t)(address - b->base) < b->size;
}

opends_op_error_t ds_buffer_find(const void *base, u64 offset, u64 size, struct ds_buffer **out)
{
    struct ds_buffer_table *t = table();
    opends_op_error_t code = OPENDS_SUCCESS;
    const u8 *address = base;
    *out = NULL;
    if (atomic_load_explicit(&t->count, memory_order_relaxed) == 0) {
        return OPENDS_SUCCESS;
    }
    pthread_rwlock_rdlock(&t->lock);
    u32 i = upper_bound(t, address);
    if (i > 0 && contains(t->sorted[i - 1], address)) {
        struct ds_buffer *b = t->sorted[i - 1];
        u64 room = b->size - (u64)(address - b->base);
        if (offset > room || size > room - offset) {
            code = OPENDS_POINTER_RANGE_ERROR;
        } else {
            atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
            *out = b;
        }
    }
    pthread_rwlock_unlock(&t->lock);
    return code;
}

u64 ds_buffer_ours(const void *base)
{
    struct ds_buffer_table *t = table();
    u64 generation = 0;
    if (atomic_load_explicit(&t->count, memory_order_relaxed) > 0) {
        pthread_rwlock_rdlock(&t->lock);
        u32 i = upper_bound(t, base);
        if (i > 0 && t->sorted[i - 1]->is_ours && contains(t->sorted[i - 1], base)) {
            generation = t->sorted[i - 1]->generation;
        }
        pthread_rwlock_unlock(&t->lock);
    }
    return generation;
}

void ds_buffer_put(struct ds_buffer *b)
{
    // The registration's own reference is 1. A waiter in deregister marks the word and sleeps on
    // it; it may free the record before the wake-up, and the kernel then finds no waiter, which is
    // harmless.
    u32 before = atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel);
    ASSERT((before & ~REFERENCES_AWAITED) >= 2);
    if (UNLIKELY(before == (2 | REFERENCES_AWAITED))) {
        syscall(SYS_futex, &b->references, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    }
}

static bool insert_locked(struct ds_buffer_table *t, struct ds_buffer *b, opends_op_error_t *code)
{
    u32 i = upper_bound(t, b->base);
    bool overlaps = (i > 0 && contains(t->sorted[i - 1], b->base)) ||
                    (i < t->count && contains(b, t->sorted[i]->base));
    if (overlaps) {
        *code = OPENDS_MEMORY_ALREADY_REGISTERED;
        return false;
    }
    if (t->count == t->capacity) {
        u32 capacity = t->capacity == 0 ? 64 : t->capacity * 2;
        struct ds_buffer **grown = realloc(t->sorted, capacity * sizeof(*grown));
        if (grown == NULL) {
            *code = OPENDS_NO_MEMORY;
            return false;
        }
        t->sorted = grown;
        t->capacity = capacity;
    }
    memmove(&t->sorted[i + 1], &t->sorted[i], (t->count - i) * sizeof(*t->sorted));
    t->sorted[i] = b;
    t->count++;
    b->slot = t->next_slot++;
    b->generation = ++t->next_generation;
    return true;
}

static opends_error_t buffer_register(const void *base, size_t size, int flags, bool is_ours)
{
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    if (base == NULL || size == 0 || (uintptr_t)base > UINTPTR_MAX - size) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "a buffer needs an address and a size");
    }
    enum ds_memory_kind kind = ds_accel_current()->memory_kind(base);
    if (kind == DS_MEMORY_UNKNOWN) {
        return ds_fail(OPENDS_MEMORY_TYPE_INVALID, 0, "%p is no memory that the accelerator knows",
                       base);
    }
    struct ds_buffer *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return ds_fail(OPENDS_NO_MEMORY, ENOMEM, "out of memory");
    }
    b->base = (u8 *)(uintptr_t)base;
    b->size = size;
    b->flags = flags;
    b->is_device = kind == DS_MEMORY_DEVICE;
    b->is_ours = is_ours;
    atomic_store(&b->references, 1);
    opends_op_error_t code = OPENDS_SUCCESS;
    pthread_rwlock_wrlock(&table()->lock);
    bool is_in = insert_locked(table(), b, &code);
    pthread_rwlock_unlock(&table()->lock);
    if (!is_in) {
        free(b);
        return ds_fail(code, 0, "%s", opends_op_status_error(code));
    }
    if (b->is_device && ds_backend_is_present(DS_GDS, NULL)) {
        // cuFile works without a registration too, only slower: a refusal is not the caller's
        // error.
        (void)ds_backend(DS_GDS)->buffer_register(base, size, flags);
    }
    return ds_ok();
}

// Takes the buffer that starts at `base` out of the table, or NULL. Memory from opends_alloc stays
// registered until opends_free: without `even_ours` it is reported through *is_ours and left alone.
static struct ds_buffer *take_out(const void *base, bool even_ours, bool *is_ours)
{
    struct ds_buffer_table *t = table();
    struct ds_buffer *found = NULL;
    pthread_rwlock_wrlock(&t->lock);
    u32 i = upper_bound(t, base);
    bool is_found = i > 0 && t->sorted[i - 1]->base == base;
    *is_ours = is_found && t->sorted[i - 1]->is_ours;
    if (is_found && (even_ours || !*is_ours)) {
        found = t->sorted[i - 1];
        memmove(&t->sorted[i - 1], &t->sorted[i], (t->count - i) * sizeof(*t->sorted));
        t->count--;
    }
    pthread_rwlock_unlock(&t->lock);
    return found;
}

// Waits for I/O in flight, has the rings unpin the pages, and frees the record.
static void buffer_release(struct ds_buffer *b)
{
    u32 references;
    atomic_fetch_or(&b->references, REFERENCES_AWAITED);
    while ((references = atomic_load_explicit(&b->references, memory_order_acquire)) !=
           (1 | REFERENCES_AWAITED)) {
        syscall(SYS_futex, &b->references, FUTEX_WAIT_PRIVATE, references, NULL, NULL, 0);
    }
    u64 rings = atomic_load(&b->registered_rings);
    if (rings != 0) {
        ds_rings_forget_buffer(rings, b->slot);
    }
    if (b->is_device && ds_backend_is_present(DS_GDS, NULL)) {
        ds_backend(DS_GDS)->buffer_deregister(b->base);
    }
    if (b->is_ours) {
        ds_accel_current()->memory_free(b->base);
    }
    free(b);
}

opends_error_t opends_buf_register(const void *buf_base, size_t size, int flags)
{
    return buffer_register(buf_base, size, flags, false);
}

opends_error_t opends_buf_deregister(const void *buf_base)
{
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    bool is_ours = false;
    struct ds_buffer *b = take_out(buf_base, false, &is_ours);
    if (b == NULL && !is_ours) {
        return ds_fail(OPENDS_MEMORY_NOT_REGISTERED, 0, "%p is not registered", buf_base);
    }
    if (b != NULL) {
        buffer_release(b);
    }
    return ds_ok();
}

void *opends_alloc(size_t size)
{
    int dev_err = 0;
    if (!ds_is_open() || size == 0 || size > SIZE_MAX / 2) {
        ds_fail(OPENDS_INVALID_VALUE, 0, "the driver is not open or the size is not valid");
        return NULL;
    }
    void *memory = ds_accel_current()->memory_alloc(size, &dev_err);
    if (memory == NULL) {
        ds_fail(OPENDS_NO_MEMORY, dev_err, "the accelerator has no %zu bytes (%d)", size, dev_err);
        return NULL;
    }
    if (buffer_register(memory, size, 0, true).err != OPENDS_SUCCESS) {
        ds_accel_current()->memory_free(memory);
        return NULL;
    }
    return memory;
}

void opends_free(void *buf)
{
    if (buf == NULL || !ds_is_open()) {
        return;
    }
    bool is_ours;
    struct ds_buffer *b = take_out(buf, true, &is_ours);
    if (b != NULL) {
        // A buffer that the caller allocated and registered is forgotten, but is not ours to free.
        buffer_release(b);
    }
}

void ds_buffers_close_all(void)
{
    struct ds_buffer_table *t = table();
    while (t->count > 0) {
        bool is_ours;
        buffer_release(take_out(t->sorted[t->count - 1]->base, true, &is_ours));
    }
    free(t->sorted);
    t->sorted = NULL;
    t->capacity = 0;
}
