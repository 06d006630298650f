// SPDX-License-Identifier: Apache-2.0
// Batches: any number of operations, each with its own event. A batch owns its operations from
// submit until their events are reported; it never refuses one for want of room and never waits for
// what cannot come. Names carry a generation, so a destroyed batch is unknown, not dangling.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ds/backends.h"
#include "ds/driver.h"

#define BATCHES_MAX (1u << 20)

struct batch_chunk;

struct batch_op {
    struct ds_op op;
    struct ds_batch *batch;
    struct batch_chunk *chunk;
    void *cookie;
    struct list all; // in `running` or `done` of the batch
};

// The operations of one submit; freed when the last event of it has been reported.
struct batch_chunk {
    u32 left;
    struct batch_op ops[];
};

struct ds_batch {
    u64 name;
    u32 users; // calls inside, under the table's lock
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list running; // in order of submission
    struct list done;
    u32 running_count;
    u32 done_count;
    u32 timeout_ms;
};

static struct ds_batch_table *table(void)
{
    return &ds_driver()->batches;
}

void ds_batches_init(void)
{
    pthread_mutex_init(&table()->lock, NULL);
}

static struct ds_batch *batch_get(opends_batch_handle_t name)
{
    struct ds_batch_table *t = table();
    u32 slot = (u32)(uintptr_t)name - 1;
    struct ds_batch *b = NULL;
    if (!ds_is_open()) {
        ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
        return NULL;
    }
    pthread_mutex_lock(&t->lock);
    if (slot < t->count && t->slots[slot] != NULL && t->slots[slot]->name == (u64)(uintptr_t)name) {
        b = t->slots[slot];
        b->users++;
    }
    pthread_mutex_unlock(&t->lock);
    if (b == NULL) {
        ds_fail(OPENDS_INVALID_VALUE, 0, "unknown batch");
    }
    return b;
}

static void batch_put(struct ds_batch *b)
{
    pthread_mutex_lock(&table()->lock);
    b->users--;
    pthread_mutex_unlock(&table()->lock);
}

static opends_error_t batch_unknown(void)
{
    return (opends_error_t){ds_is_open() ? OPENDS_INVALID_VALUE : OPENDS_DRIVER_NOT_INITIALIZED, 0};
}

// Finds a free slot, growing the table; false at the limit or without memory. Under the lock.
static bool slot_take_locked(struct ds_batch_table *t, struct ds_batch *b)
{
    u32 slot = t->first_free;
    while (slot < t->count && t->slots[slot] != NULL) {
        slot++;
    }
    if (slot == t->capacity) {
        u32 capacity = t->capacity == 0 ? 64 : t->capacity * 2;
        struct ds_batch **grown =
            capacity > BATCHES_MAX ? NULL : realloc(t->slots, capacity * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        t->slots = grown;
        t->capacity = capacity;
    }
    t->slots[slot] = b;
    t->first_free = slot + 1;
    t->count = MAX(t->count, slot + 1);
    b->name = (++t->next_generation & UINT32_MAX) << 32 | (slot + 1);
    return true;
}

opends_error_t opends_batch_io_setup(opends_batch_handle_t *batch_idp, unsigned nr)
{
    if (batch_idp == NULL || nr == 0) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "batch_idp is NULL or nr is 0");
    }
    *batch_idp = NULL;
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    struct ds_batch *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return ds_fail(OPENDS_NO_MEMORY, ENOMEM, "out of memory");
    }
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &attr);
    pthread_condattr_destroy(&attr);
    list_init(&b->running);
    list_init(&b->done);
    pthread_mutex_lock(&table()->lock);
    bool is_in = slot_take_locked(table(), b);
    pthread_mutex_unlock(&table()->lock);
    if (!is_in) {
        free(b);
        return ds_fail(OPENDS_DRIVER_UNSUPPORTED_LIMIT, 0, "no more than %u batches", BATCHES_MAX);
    }
    *batch_idp = (opends_batch_handle_t)(uintptr_t)b->name;
    return ds_ok();
}

static void batch_op_done(struct ds_op *op)
{
    struct batch_op *bo = op->owner;
    struct ds_batch *b = bo->batch;
    pthread_mutex_lock(&b->lock);
    list_remove(&bo->all);
    list_add_tail(&b->done, &bo->all);
    b->running_count--;
    b->done_count++;
    pthread_cond_broadcast(&b->wake); // waiters may want different counts
    pthread_mutex_unlock(&b->lock);
}

// Fills the operations of a submit; refused ones go straight to `refused`. Returns how many run.
static u32 prepare_all(struct ds_batch *b, struct batch_chunk *chunk, unsigned nr,
                       const opends_io_params_t *params, unsigned flags, struct list *run,
                       struct list *refused)
{
    u32 running = 0;
    for (u32 i = 0; i < nr; i++) {
        const opends_io_params_t *p = &params[i];
        struct batch_op *bo = &chunk->ops[i];
        bo->batch = b;
        bo->chunk = chunk;
        bo->cookie = p->cookie;
        list_init(&bo->all);
        opends_op_error_t code = OPENDS_INVALID_VALUE;
        if (p->mode == OPENDS_BATCH) {
            code =
                ds_op_prepare(&bo->op, p->fh, p->opcode, p->u.batch.dev_ptr_base, p->u.batch.size,
                              p->u.batch.file_offset, p->u.batch.dev_ptr_offset);
        }
        if (code != OPENDS_SUCCESS) {
            bo->op.status = OPENDS_INVALID;
            bo->op.result = -(i64)code;
            list_add_tail(refused, &bo->all);
            continue;
        }
        bo->op.done = batch_op_done;
        bo->op.owner = bo;
        bo->op.is_batched = true;
        bo->op.is_durable |= p->opcode == OPENDS_WRITE && (flags & OPENDS_WRITE_DURABLE) != 0;
        if (b->timeout_ms != 0) {
            bo->op.deadline_ns = bo->op.submit_ns + b->timeout_ms * NS_PER_MS;
        }
        list_add_tail(run, &bo->op.link);
        running++;
    }
    return running;
}

static opends_error_t submit(struct ds_batch *b, unsigned nr, const opends_io_params_t *params,
                             unsigned flags)
{
    struct batch_chunk *chunk = calloc(1, sizeof(*chunk) + (size_t)nr * sizeof(chunk->ops[0]));
    if (chunk == NULL) {
        return ds_fail(OPENDS_NO_MEMORY, ENOMEM, "no memory for %u operations", nr);
    }
    chunk->left = nr;
    struct list run;
    struct list refused;
    list_init(&run);
    list_init(&refused);
    pthread_mutex_lock(&b->lock);
    u32 running = prepare_all(b, chunk, nr, params, flags, &run, &refused);
    LIST_FOREACH (node, &run) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        list_add_tail(&b->running, &CONTAINER_OF(op, struct batch_op, op)->all);
    }
    b->running_count += running;
    b->done_count += nr - running;
    list_splice_tail(&b->done, &refused);
    pthread_cond_broadcast(&b->wake); // waiters may want different counts
    pthread_mutex_unlock(&b->lock);
    if (running > 0) {
        ds_ops_submit_list(&run, running);
    }
    return ds_ok();
}

opends_error_t opends_batch_io_submit(opends_batch_handle_t batch, unsigned nr,
                                      opends_io_params_t *iocbp, unsigned int flags)
{
    if (iocbp == NULL || nr == 0 || (flags & ~OPENDS_WRITE_DURABLE) != 0) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "no operations, or unknown flags 0x%x", flags);
    }
    struct ds_batch *b = batch_get(batch);
    if (b == NULL) {
        return batch_unknown();
    }
    opends_error_t e = submit(b, nr, iocbp, flags);
    batch_put(b);
    return e;
}

static void kick_waiting(void)
{
    ds_pool_kick();
    ds_gds_batch_kick();
}

// The deadline of the oldest running operation, or 0. Under the lock.
static u64 first_deadline_ns(const struct ds_batch *b)
{
    if (list_is_empty(&b->running)) {
        return 0;
    }
    const struct batch_op *bo = CONTAINER_OF(b->running.next, struct batch_op, all);
    return bo->op.deadline_ns;
}

// Waits until `min_nr` events are there, nothing more can come, or `until_ns` (0: no limit) passes.
static void wait_locked(struct ds_batch *b, u32 min_nr, u64 until_ns)
{
    u64 kicked_ns = 0;
    while (b->done_count < min_nr && b->running_count > 0) {
        u64 wake_ns = until_ns;
        u64 deadline_ns = first_deadline_ns(b);
        if (deadline_ns != 0 && deadline_ns != kicked_ns &&
            (wake_ns == 0 || deadline_ns < wake_ns)) {
            wake_ns = deadline_ns;
        }
        if (wake_ns == 0) {
            pthread_cond_wait(&b->wake, &b->lock);
            continue;
        }
        struct timespec t = {.tv_sec = (time_t)(wake_ns / NS_PER_S),
                             .tv_nsec = (long)(wake_ns % NS_PER_S)};
        if (pthread_cond_timedwait(&b->wake, &b->lock, &t) != ETIMEDOUT) {
            continue;
        }
        if (until_ns != 0 && ds_now_ns() >= until_ns) {
            break;
        }
        kicked_ns = deadline_ns;
        pthread_mutex_unlock(&b->lock);
        kick_waiting(); // what waits for a worker does not look at the clock itself
        pthread_mutex_lock(&b->lock);
    }
}

// Reports one event and frees its chunk with the last. Under the lock.
static void report_locked(struct ds_batch *b, opends_io_events_t *event)
{
    struct batch_op *bo = CONTAINER_OF(b->done.next, struct batch_op, all);
    list_remove(&bo->all);
    b->done_count--;
    if (event != NULL) {
        event->cookie = bo->cookie;
        event->status = (opends_status_t)bo->op.status;
        event->ret = (size_t)bo->op.result;
    }
    struct batch_chunk *chunk = bo->chunk;
    chunk->left--;
    if (chunk->left == 0) {
        free(chunk);
    }
}

opends_error_t opends_batch_io_get_status(opends_batch_handle_t batch, unsigned min_nr,
                                          unsigned *nr, opends_io_events_t *iocbp,
                                          struct timespec *timeout)
{
    if (nr == NULL || (iocbp == NULL && *nr > 0) || min_nr > *nr) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "nr or iocbp is NULL, or min_nr is above *nr");
    }
    if (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 ||
                            timeout->tv_nsec >= (long)NS_PER_S || timeout->tv_sec > (1 << 30))) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "the timeout is malformed");
    }
    struct ds_batch *b = batch_get(batch);
    if (b == NULL) {
        *nr = 0;
        return batch_unknown();
    }
    u64 until_ns = timeout == NULL
                       ? 0
                       : ds_now_ns() + (u64)timeout->tv_sec * NS_PER_S + (u64)timeout->tv_nsec + 1;
    pthread_mutex_lock(&b->lock);
    wait_locked(b, min_nr, until_ns);
    u32 n = MIN(*nr, b->done_count);
    for (u32 i = 0; i < n; i++) {
        report_locked(b, &iocbp[i]);
    }
    pthread_mutex_unlock(&b->lock);
    *nr = n;
    batch_put(b);
    return ds_ok();
}

// Marks all that runs and wakes whoever holds it.
static void cancel_all(struct ds_batch *b)
{
    pthread_mutex_lock(&b->lock);
    LIST_FOREACH (node, &b->running) {
        struct batch_op *bo = CONTAINER_OF(node, struct batch_op, all);
        u8 none = DS_CANCEL_NONE;
        atomic_compare_exchange_strong(&bo->op.cancel, &none, DS_CANCEL_ASKED);
    }
    bool is_running = b->running_count > 0;
    pthread_mutex_unlock(&b->lock);
    if (is_running) {
        kick_waiting();
        ds_engines_kick();
    }
}

opends_error_t opends_batch_io_cancel(opends_batch_handle_t batch)
{
    struct ds_batch *b = batch_get(batch);
    if (b == NULL) {
        return batch_unknown();
    }
    cancel_all(b);
    batch_put(b);
    return ds_ok();
}

opends_error_t opends_batch_set_timeout(opends_batch_handle_t batch, unsigned timeout_ms)
{
    if (timeout_ms > DS_IO_TIMEOUT_MS_MAX) {
        return ds_fail(OPENDS_DRIVER_UNSUPPORTED_LIMIT, 0, "a timeout is at most %u ms",
                       DS_IO_TIMEOUT_MS_MAX);
    }
    struct ds_batch *b = batch_get(batch);
    if (b == NULL) {
        return batch_unknown();
    }
    pthread_mutex_lock(&b->lock);
    b->timeout_ms = timeout_ms;
    pthread_mutex_unlock(&b->lock);
    batch_put(b);
    return ds_ok();
}

// The batch is out of the table: ends its operations and frees it.
static void batch_free(struct ds_batch *b)
{
    cancel_all(b);
    pthread_mutex_lock(&b->lock);
    while (b->running_count > 0) {
        pthread_cond_wait(&b->wake, &b->lock);
    }
    while (b->done_count > 0) {
        report_locked(b, NULL);
    }
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->wake);
    free(b);
}

void opends_batch_io_destroy(opends_batch_handle_t batch)
{
    struct ds_batch_table *t = table();
    struct ds_batch *b = batch == NULL ? NULL : batch_get(batch);
    if (b == NULL) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    u32 slot = (u32)b->name - 1;
    bool is_first = t->slots[slot] == b;
    if (is_first) {
        t->slots[slot] = NULL;
        t->first_free = MIN(t->first_free, slot);
    }
    b->users--;
    // Destroying beside another call on the same batch is the caller's fault, but must not crash.
    bool is_used = b->users > 0;
    pthread_mutex_unlock(&t->lock);
    while (is_first && is_used) {
        cancel_all(b);
        sched_yield();
        pthread_mutex_lock(&t->lock);
        is_used = b->users > 0;
        pthread_mutex_unlock(&t->lock);
    }
    if (is_first) {
        batch_free(b);
    }
}

void ds_batches_close_all(void)
{
    struct ds_batch_table *t = table();
    for (u32 i = 0; i < t->count; i++) {
        if (t->slots[i] != NULL) {
            batch_free(t->slots[i]);
        }
    }
    free(t->slots);
    t->slots = NULL;
    t->count = 0;
    t->capacity = 0;
    t->first_free = 0;
    pthread_mutex_destroy(&t->lock);
}
