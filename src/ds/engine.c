// SPDX-License-Identifier: Apache-2.0
// Engines: threads that own a ring each and serve batches and streams. Work arrives in a locked
// inbox; an engine that sleeps is woken through an eventfd that its ring reads. They start on first
// need.
#include <errno.h>
#include <string.h>

#include "ds/driver.h"
#include "ds/engine.h"
#include "ds/ring.h"

struct ds_engine {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ready; // the ring exists, or could not be made
    struct list inbox;
    bool is_sleeping;
    bool is_stopping;
    bool is_ready;
    int sys_errno;
    struct ds_queue *queue;
};

static struct ds_engine_set *set(void)
{
    return &ds_driver()->engines;
}

void ds_engines_init(void)
{
    pthread_mutex_init(&set()->lock, NULL);
    atomic_store(&set()->count, 0);
    atomic_store(&set()->next, 0);
}

// Moves the inbox into the queue. False when the engine shall end and nothing is left.
static bool take_inbox(struct ds_engine *e)
{
    struct list taken;
    list_init(&taken);
    pthread_mutex_lock(&e->lock);
    list_splice_tail(&taken, &e->inbox);
    bool is_stopping = e->is_stopping;
    // From here until the next look, a submitter must wake the ring.
    e->is_sleeping = true;
    pthread_mutex_unlock(&e->lock);
    for (struct list *node; (node = list_pop_head(&taken)) != NULL;) {
        ds_queue_start(e->queue, CONTAINER_OF(node, struct ds_op, link));
    }
    return !is_stopping || !ds_queue_is_idle(e->queue);
}

static void *engine_main(void *arg)
{
    struct ds_engine *e = arg;
    int sys_errno = 0;
    struct ds_queue *q = ds_queue_create(true, &sys_errno);
    pthread_mutex_lock(&e->lock);
    e->queue = q;
    e->sys_errno = sys_errno;
    e->is_ready = true;
    pthread_cond_broadcast(&e->ready);
    pthread_mutex_unlock(&e->lock);
    if (q == NULL) {
        return NULL;
    }
    while (take_inbox(e)) {
        ds_queue_apply_forgets(q);
        ds_queue_pump(q, true);
    }
    return NULL;
}

// Starts one engine and waits until it has its ring; NULL with *sys_errno when it cannot.
static struct ds_engine *engine_start(int *sys_errno)
{
    struct ds_engine *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        *sys_errno = ENOMEM;
        return NULL;
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->ready, NULL);
    list_init(&e->inbox);
    *sys_errno = ds_thread_start(&e->thread, engine_main, e);
    if (*sys_errno == 0) {
        pthread_mutex_lock(&e->lock);
        while (!e->is_ready) {
            pthread_cond_wait(&e->ready, &e->lock);
        }
        *sys_errno = e->sys_errno;
        pthread_mutex_unlock(&e->lock);
        if (*sys_errno == 0) {
            return e;
        }
        pthread_join(e->thread, NULL);
    }
    pthread_cond_destroy(&e->ready);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return NULL;
}

// All engines of the configuration, or as many as can be had.
static u32 engines_ready(int *sys_errno)
{
    struct ds_engine_set *s = set();
    u32 count = atomic_load_explicit(&s->count, memory_order_acquire);
    if (LIKELY(count > 0)) {
        return count;
    }
    pthread_mutex_lock(&s->lock);
    count = atomic_load(&s->count);
    u32 made = count;
    while (count == 0 && made < ds_config()->engines) {
        struct ds_engine *e = engine_start(sys_errno);
        if (e == NULL) {
            break;
        }
        atomic_store(&s->list[made], e);
        made++;
    }
    atomic_store_explicit(&s->count, made, memory_order_release);
    pthread_mutex_unlock(&s->lock);
    return made;
}

static void engine_push(struct ds_engine *e, struct list *ops)
{
    pthread_mutex_lock(&e->lock);
    list_splice_tail(&e->inbox, ops);
    bool is_sleeping = e->is_sleeping;
    e->is_sleeping = false;
    pthread_mutex_unlock(&e->lock);
    if (is_sleeping) {
        ds_queue_wake(e->queue);
    }
}

// No ring can be had at all: the operations run through the page cache, on workers, and say so.
static void without_engines(struct list *ops, int sys_errno)
{
    struct list plain;
    list_init(&plain);
    for (struct list *node; (node = list_pop_head(ops)) != NULL;) {
        struct ds_op *op = CONTAINER_OF(node, struct ds_op, link);
        ds_handle_note_fallback(op->handle, strerror(sys_errno));
        op->fell_back = true;
        op->backend = DS_REF;
        list_add_tail(&plain, node);
    }
    ds_pool_submit(&plain);
}

void ds_engines_submit(struct list *ops, u32 count)
{
    int sys_errno = 0;
    u32 engines = engines_ready(&sys_errno);
    if (engines == 0) {
        without_engines(ops, sys_errno);
        return;
    }
    // Neighbours in a submission stay together, each engine gets an equal run.
    u32 run = MAX((count + engines - 1) / engines, 1u);
    u32 first = atomic_fetch_add_explicit(&set()->next, 1, memory_order_relaxed);
    for (u32 i = 0; !list_is_empty(ops); i++) {
        struct list part;
        list_init(&part);
        for (u32 n = 0; n < run && !list_is_empty(ops); n++) {
            list_add_tail(&part, list_pop_head(ops));
        }
        engine_push(atomic_load(&set()->list[(first + i) % engines]), &part);
    }
}

static void engine_wake(struct ds_engine *e)
{
    struct list none;
    list_init(&none);
    engine_push(e, &none);
}

void ds_engines_kick(void)
{
    u32 count = atomic_load_explicit(&set()->count, memory_order_acquire);
    for (u32 i = 0; i < count; i++) {
        struct ds_engine *e = atomic_load(&set()->list[i]);
        atomic_store(&e->queue->is_kicked, true);
        engine_wake(e);
    }
}

void ds_engines_fork_child(void)
{
    u32 count = atomic_load(&set()->count);
    for (u32 i = 0; i < count; i++) {
        ds_queue_fork_child(atomic_load(&set()->list[i])->queue);
    }
}

void ds_engines_stop(void)
{
    struct ds_engine_set *s = set();
    u32 count = atomic_load(&s->count);
    for (u32 i = 0; i < count; i++) {
        struct ds_engine *e = atomic_load(&s->list[i]);
        pthread_mutex_lock(&e->lock);
        e->is_stopping = true;
        pthread_mutex_unlock(&e->lock);
        ds_queue_wake(e->queue);
        pthread_join(e->thread, NULL);
        ds_queue_destroy(e->queue);
        pthread_cond_destroy(&e->ready);
        pthread_mutex_destroy(&e->lock);
        free(e);
    }
    atomic_store(&s->count, 0);
    pthread_mutex_destroy(&s->lock);
}

// Asks every engine in the mask; sync queues are asked by sync_queue.c.
void ds_engines_forget(u64 ring_mask, bool is_file, u32 slot)
{
    u32 count = atomic_load_explicit(&set()->count, memory_order_acquire);
    for (u32 i = 0; i < count; i++) {
        struct ds_engine *e = atomic_load(&set()->list[i]);
        if (e->queue->id < RING_IDS_MAX && (ring_mask >> e->queue->id & 1) != 0) {
            ds_queue_forget(e->queue, is_file, slot);
            engine_wake(e);
        }
    }
}
