// SPDX-License-Identifier: Apache-2.0
// Batches on cuFile's own batches. The vendor's take a limited number of entries and refuse more;
// ours take any number. So a queue lies in front: one thread owns one vendor's batch, fills its
// free entries from the queue, and waits for events a short while at a time, so that what comes
// meanwhile joins.
//
// An entry that fails is done again by a plain call on a worker, and that call's error (or its way
// round) is the one reported: it is exact where a batch's event is not. When the vendor's batch
// cannot be set up or refuses a submission, plain calls serve all batches from then on, and the
// handles' last fallback says why. What a batch cannot say (durable writes, nothing to move) goes
// by plain calls too.
#include "ds/gds.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ds/backends.h"

#define STATUS_WAIT_NS      ((long)NS_PER_MS)
#define STATUS_FAILURES_MAX 1000u // in a row, about a second

// One of the vendor's entries: a part of an operation.
struct entry {
    struct ds_op *op;
    u32 next_free;
};

// What the thread alone knows.
struct feeder {
    struct ds_gds *gds;
    void *batch;
    u32 entries;
    u32 inflight;
    u32 first_free; // `entries` when there is none
    u32 failures;   // status calls that failed in a row
    struct entry entry[GDS_ENTRIES_MAX];
    opends_io_params_t params[GDS_ENTRIES_MAX];
    opends_io_events_t events[GDS_ENTRIES_MAX];
};

void ds_gds_batch_init(struct ds_gds *g)
{
    pthread_mutex_init(&g->batch.lock, NULL);
    pthread_cond_init(&g->batch.wake, NULL);
    list_init(&g->batch.queue);
    if (g->batch_setup == NULL || g->batch_submit == NULL || g->batch_status == NULL ||
        g->batch_destroy == NULL) {
        snprintf(g->batch.off, sizeof(g->batch.off), "this cuFile has no batches");
    }
}

// A worker makes plain calls for what is left of the operation.
static void give_to_worker(struct ds_op *op, const char *why)
{
    struct list one;
    if (why[0] != 0) {
        ds_handle_note_fallback(op->handle, why);
    }
    list_init(&one);
    list_add_tail(&one, &op->link);
    ds_pool_submit(&one);
}

// No more batches: what waits goes to workers, as will whatever comes.
static void turn_off(struct ds_gds_batch *b, const char *call, struct cufile_error e)
{
    struct list left;
    list_init(&left);
    pthread_mutex_lock(&b->lock);
    snprintf(b->off, sizeof(b->off), "%s: %s (%d)", call,
             opends_op_status_error((opends_op_error_t)e.err), e.err);
    list_splice_tail(&left, &b->queue);
    pthread_mutex_unlock(&b->lock);
    for (struct list *node; (node = list_pop_head(&left)) != NULL;) {
        give_to_worker(CONTAINER_OF(node, struct ds_op, link), b->off);
    }
}

static void entry_free(struct feeder *f, u32 index)
{
    f->entry[index].op = NULL;
    f->entry[index].next_free = f->first_free;
    f->first_free = index;
}

// Takes an entry for the part of the operation that comes next.
static void entry_fill(struct feeder *f, struct ds_op *op, opends_io_params_t *p)
{
    u32 index = f->first_free;
    u8 *base = op->buffer != NULL ? op->buffer->base : op->memory;
    u64 done = op->traffic.gds;
    f->first_free = f->entry[index].next_free;
    f->entry[index].op = op;
    *p = (opends_io_params_t){.mode = OPENDS_BATCH,
                              .fh = op->handle->gds_handle,
                              .opcode = (opends_opcode_t)op->opcode,
                              .cookie = &f->entry[index]};
    p->u.batch.dev_ptr_base = base;
    p->u.batch.dev_ptr_offset = (off_t)(op->memory - base) + (off_t)done;
    p->u.batch.file_offset = (off_t)(op->offset + done);
    p->u.batch.size = MIN(op->size - done, GDS_ENTRY_BYTES);
}

// Fills free entries from the queue and submits them together.
static void feed(struct feeder *f)
{
    struct ds_gds_batch *b = &f->gds->batch;
    u32 count = 0;
    pthread_mutex_lock(&b->lock);
    while (f->first_free < f->entries) {
        struct list *node = list_pop_head(&b->queue);
        if (node == NULL) {
            break;
        }
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        op->is_started = true;
        entry_fill(f, op, &f->params[count++]);
    }
    pthread_mutex_unlock(&b->lock);
    struct cufile_error e = {0, 0};
    if (count > 0) {
        e = f->gds->batch_submit(f->batch, count, f->params, 0);
    }
    if (e.err == 0) {
        f->inflight += count;
        return;
    }
    turn_off(b, "cuFileBatchIOSubmit", e);
    for (u32 i = 0; i < count; i++) {
        struct entry *entry = f->params[i].cookie;
        struct ds_op *op = entry->op;
        entry_free(f, (u32)(entry - f->entry));
        op->traffic.gds = 0;
        give_to_worker(op, b->off);
    }
}

// An entry is through: the operation is finished, goes on, or is done again by a plain call.
static void entry_done(struct feeder *f, const opends_io_events_t *event)
{
    struct entry *entry = event->cookie;
    struct ds_op *op = entry->op;
    u64 moved = (u64)event->ret;
    entry_free(f, (u32)(entry - f->entry));
    f->inflight--;
    if (event->status != OPENDS_COMPLETE || moved > op->size - op->traffic.gds) {
        op->traffic.gds = 0;
        give_to_worker(op, "");
        return;
    }
    op->traffic.gds += moved;
    if (moved == 0 || op->traffic.gds == op->size) {
        op->result = (i64)op->traffic.gds;
        ds_op_finish(op);
        return;
    }
    // More may come: the vendor moved a part, or the part was all that one entry may ask for.
    pthread_mutex_lock(&f->gds->batch.lock);
    list_add_head(&f->gds->batch.queue, &op->link);
    pthread_mutex_unlock(&f->gds->batch.lock);
}

// The vendor's batch does not say any more what became of its entries. Destroying it makes the
// vendor let go of them; then plain calls do them again.
static void give_up(struct feeder *f, struct cufile_error e)
{
    turn_off(&f->gds->batch, "cuFileBatchIOGetStatus", e);
    f->gds->batch_destroy(f->batch);
    f->batch = NULL;
    for (u32 i = 0; i < f->entries; i++) {
        struct ds_op *op = f->entry[i].op;
        if (op != NULL) {
            entry_free(f, i);
            f->inflight--;
            op->traffic.gds = 0;
            give_to_worker(op, f->gds->batch.off);
        }
    }
    ASSERT(f->inflight == 0);
}

static void collect(struct feeder *f)
{
    struct timespec wait = {.tv_nsec = STATUS_WAIT_NS};
    unsigned nr = f->inflight;
    struct cufile_error e = f->gds->batch_status(f->batch, 1, &nr, f->events, &wait);
    if (e.err != 0) {
        // Its entries are the vendor's until it says otherwise, so the thread goes on asking.
        struct timespec pause = {.tv_nsec = STATUS_WAIT_NS};
        nanosleep(&pause, NULL);
        f->failures++;
        if (f->failures == STATUS_FAILURES_MAX) {
            give_up(f, e);
        }
        return;
    }
    f->failures = 0;
    for (unsigned i = 0; i < nr; i++) {
        entry_done(f, &f->events[i]);
    }
}

// Sets up the vendor's batch, smaller when it does not want that many entries.
static bool feeder_open(struct feeder *f)
{
    struct cufile_error e = {OPENDS_DEVICE_DRIVER_ERROR, ds_accel_current()->enter()};
    if (e.cu_err != 0) {
        turn_off(&f->gds->batch, "cuCtxPushCurrent", e);
        return false;
    }
    e.err = OPENDS_BATCH_FULL;
    for (u32 n = GDS_ENTRIES_MAX; n >= GDS_ENTRIES_MIN && e.err != 0; n /= 2) {
        e = f->gds->batch_setup(&f->batch, n);
        f->entries = n;
    }
    if (e.err != 0) {
        ds_accel_current()->leave();
        turn_off(&f->gds->batch, "cuFileBatchIOSetUp", e);
        return false;
    }
    f->first_free = f->entries;
    for (u32 i = f->entries; i-- > 0;) {
        entry_free(f, i);
    }
    return true;
}

static void *feeder_main(void *arg)
{
    struct feeder *f = arg;
    struct ds_gds_batch *b = &f->gds->batch;
    if (feeder_open(f)) {
        for (;;) {
            pthread_mutex_lock(&b->lock);
            while (list_is_empty(&b->queue) && f->inflight == 0 && !b->is_stopping) {
                pthread_cond_wait(&b->wake, &b->lock);
            }
            bool is_over = list_is_empty(&b->queue) && f->inflight == 0;
            pthread_mutex_unlock(&b->lock);
            if (is_over) {
                break;
            }
            feed(f);
            if (f->inflight > 0) {
                collect(f);
            }
        }
        if (f->batch != NULL) {
            f->gds->batch_destroy(f->batch);
        }
        ds_accel_current()->leave();
    }
    free(f);
    return NULL;
}

// Starts the thread on first need. Under the lock.
static bool start_locked(struct ds_gds *g)
{
    if (g->batch.is_started || g->batch.off[0] != 0) {
        return g->batch.off[0] == 0;
    }
    struct feeder *f = calloc(1, sizeof(*f));
    if (f != NULL) {
        f->gds = g;
        g->batch.is_started = ds_thread_start(&g->batch.thread, feeder_main, f) == 0;
    }
    if (!g->batch.is_started) {
        free(f);
        snprintf(g->batch.off, sizeof(g->batch.off), "no thread for cuFile's batches");
    }
    return g->batch.is_started;
}

void ds_gds_batch_take(struct list *ops)
{
    struct ds_gds *g = ds_driver()->gds;
    if (g == NULL) {
        return;
    }
    struct ds_gds_batch *b = &g->batch;
    pthread_mutex_lock(&b->lock);
    bool is_on = start_locked(g);
    bool is_any = false;
    LIST_FOREACH_SAFE (node, ops) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        if (op->backend != DS_GDS || !op->is_batched || op->is_durable || op->size == 0) {
            continue;
        }
        if (!is_on) {
            ds_handle_note_fallback(op->handle, b->off);
            continue;
        }
        list_remove(node);
        list_add_tail(&b->queue, node);
        is_any = true;
    }
    if (is_any) {
        pthread_cond_signal(&b->wake);
    }
    pthread_mutex_unlock(&b->lock);
}

void ds_gds_batch_kick(void)
{
    struct ds_gds *g = ds_driver()->gds;
    struct list ended;
    list_init(&ended);
    if (g == NULL) {
        return;
    }
    u64 now_ns = ds_now_ns();
    pthread_mutex_lock(&g->batch.lock);
    LIST_FOREACH_SAFE (node, &g->batch.queue) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        u8 none = DS_CANCEL_NONE;
        if (op->deadline_ns != 0 && now_ns >= op->deadline_ns) {
            atomic_compare_exchange_strong(&op->cancel, &none, DS_CANCEL_TIMEOUT);
        }
        if (atomic_load(&op->cancel) != DS_CANCEL_NONE) {
            list_remove(node);
            list_add_tail(&ended, node);
        }
    }
    pthread_mutex_unlock(&g->batch.lock);
    for (struct list *node; (node = list_pop_head(&ended)) != NULL;) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        op->result = atomic_load(&op->cancel) == DS_CANCEL_TIMEOUT ? -(i64)OPENDS_TIMED_OUT
                                                                   : -(i64)OPENDS_CANCELED_ERROR;
        ds_op_finish(op);
    }
}

void ds_gds_batch_stop(void)
{
    struct ds_gds *g = ds_driver()->gds;
    if (g == NULL) {
        return;
    }
    pthread_mutex_lock(&g->batch.lock);
    g->batch.is_stopping = true;
    pthread_cond_signal(&g->batch.wake);
    bool is_started = g->batch.is_started;
    pthread_mutex_unlock(&g->batch.lock);
    if (is_started) {
        pthread_join(g->batch.thread, NULL);
    }
    pthread_cond_destroy(&g->batch.wake);
    pthread_mutex_destroy(&g->batch.lock);
}
