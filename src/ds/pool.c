// SPDX-License-Identifier: Apache-2.0
// Workers for blocking backends: threads that take operations off one list and execute them. They
// start when work waits and none is idle, up to a limit; what they cannot take yet waits in the
// list.
#include <time.h>

#include "ds/driver.h"

static struct ds_pool *pool(void)
{
    return &ds_driver()->pool;
}

void ds_pool_init(void)
{
    struct ds_pool *p = pool();
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    list_init(&p->queue);
    p->thread_count = 0;
    p->idle = 0;
    p->queued = 0;
    p->is_stopping = false;
}

// Executes one operation, or ends it at once when it was cancelled or its time is over.
static void execute(struct ds_op *op)
{
    if (op->deadline_ns != 0 && ds_now_ns() >= op->deadline_ns) {
        u8 none = DS_CANCEL_NONE;
        atomic_compare_exchange_strong(&op->cancel, &none, DS_CANCEL_TIMEOUT);
    }
    op->is_started = true;
    ds_backend((enum ds_backend_id)op->backend)->blocking_exec(op);
    ds_op_finish(op);
}

static void *worker_main(void *arg)
{
    struct ds_pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (list_is_empty(&p->queue) && !p->is_stopping) {
            p->idle++;
            pthread_cond_wait(&p->wake, &p->lock);
            p->idle--;
        }
        struct list *node = list_pop_head(&p->queue);
        if (node == NULL) {
            break;
        }
        p->queued--;
        pthread_mutex_unlock(&p->lock);
        execute(CONTAINER_OF(node, struct ds_op, link));
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

// The most workers: enough to keep a disk busy with blocking calls.
static u32 workers_max(void)
{
    return MIN(ds_config()->engines * 8, DS_WORKERS_MAX);
}

void ds_pool_submit(struct list *ops)
{
    struct ds_pool *p = pool();
    pthread_mutex_lock(&p->lock);
    u32 waiting = 0;
    LIST_FOREACH (node, ops) {
        waiting++;
    }
    list_splice_tail(&p->queue, ops);
    p->queued += waiting;
    // `idle` still counts woken threads that have not run yet; their work is in `queued` too.
    u32 helpers = p->idle;
    while (helpers < p->queued && p->thread_count < workers_max()) {
        if (ds_thread_start(&p->threads[p->thread_count], worker_main, p) != 0) {
            break;
        }
        p->thread_count++;
        helpers++;
    }
    pthread_cond_broadcast(&p->wake);
    bool is_stuck = p->thread_count == 0;
    pthread_mutex_unlock(&p->lock);
    // No thread could be made at all: the caller's thread does the work, late but surely.
    while (is_stuck) {
        pthread_mutex_lock(&p->lock);
        struct list *node = list_pop_head(&p->queue);
        p->queued -= node != NULL;
        pthread_mutex_unlock(&p->lock);
        if (node == NULL) {
            break;
        }
        execute(CONTAINER_OF(node, struct ds_op, link));
    }
}

// Ends what waits and was cancelled, without waiting for a worker.
void ds_pool_kick(void)
{
    struct ds_pool *p = pool();
    struct list cancelled;
    list_init(&cancelled);
    u64 now_ns = ds_now_ns();
    pthread_mutex_lock(&p->lock);
    LIST_FOREACH_SAFE (node, &p->queue) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        if (atomic_load(&op->cancel) != DS_CANCEL_NONE ||
            (op->deadline_ns != 0 && now_ns >= op->deadline_ns)) {
            list_remove(node);
            list_add_tail(&cancelled, node);
            p->queued--;
        }
    }
    pthread_mutex_unlock(&p->lock);
    for (struct list *node; (node = list_pop_head(&cancelled)) != NULL;) {
        execute(CONTAINER_OF(node, struct ds_op, link));
    }
}

void ds_pool_stop(void)
{
    struct ds_pool *p = pool();
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (u32 i = 0; i < p->thread_count; i++) {
        pthread_join(p->threads[i], NULL);
    }
    p->thread_count = 0;
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
}
