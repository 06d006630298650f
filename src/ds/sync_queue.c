// SPDX-License-Identifier: Apache-2.0
// Rings of calling threads. A thread keeps its ring for as long as it lives; past the limit threads
// share. The ring is locked for one operation, so whoever holds the lock owns it.
#include <errno.h>

#include "ds/backends.h"
#include "ds/driver.h"
#include "ds/engine.h"
#include "ds/ring.h"

static struct ds_sync_queues *set(void)
{
    return &ds_driver()->sync;
}

void ds_sync_queues_init(void)
{
    pthread_mutex_init(&set()->lock, NULL);
    set()->count = 0;
}

// A queue for this thread: an unused one, a new one, or the least shared.
static struct ds_queue *queue_assign(void)
{
    struct ds_sync_queues *s = set();
    pthread_mutex_lock(&s->lock);
    u32 best = 0;
    for (u32 i = 1; i < s->count; i++) {
        best = s->users[i] < s->users[best] ? i : best;
    }
    if ((s->count == 0 || s->users[best] > 0) && s->count < DS_SYNC_QUEUES_MAX) {
        int sys_errno = 0;
        struct ds_queue *q = ds_queue_create(false, &sys_errno);
        if (q != NULL) {
            best = s->count;
            s->queues[best] = q;
            s->users[best] = 0;
            s->count++;
        }
        errno = sys_errno;
    }
    struct ds_queue *q = s->count == 0 ? NULL : s->queues[best];
    if (q != NULL) {
        s->users[best]++;
    }
    pthread_mutex_unlock(&s->lock);
    return q;
}

void ds_sync_queue_release(struct ds_queue *q)
{
    struct ds_sync_queues *s = set();
    pthread_mutex_lock(&s->lock);
    for (u32 i = 0; i < s->count; i++) {
        if (s->queues[i] == q) {
            s->users[i]--;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

struct ds_queue *ds_sync_queue_get(void)
{
    struct ds_thread *t = ds_thread_self();
    if (t == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    if (UNLIKELY(t->queue == NULL || t->driver_epoch != ds_driver_epoch())) {
        t->queue = queue_assign();
        t->driver_epoch = ds_driver_epoch();
        if (t->queue == NULL) {
            return NULL;
        }
    }
    pthread_mutex_lock(&t->queue->lock);
    ds_queue_apply_forgets(t->queue);
    return t->queue;
}

// Lets an idle queue forget what was asked meanwhile; one in use does so itself when it is put
// back.
static void forget_when_idle(struct ds_queue *q)
{
    while (atomic_load_explicit(&q->forget.is_pending, memory_order_acquire) &&
           pthread_mutex_trylock(&q->lock) == 0) {
        ds_queue_apply_forgets(q);
        pthread_mutex_unlock(&q->lock);
    }
}

void ds_sync_queue_put(struct ds_queue *q)
{
    pthread_mutex_unlock(&q->lock);
    forget_when_idle(q);
}

static void forget(u64 ring_mask, bool is_file, u32 slot)
{
    struct ds_sync_queues *s = set();
    ds_engines_forget(ring_mask, is_file, slot);
    pthread_mutex_lock(&s->lock);
    for (u32 i = 0; i < s->count; i++) {
        struct ds_queue *q = s->queues[i];
        if (q->id < RING_IDS_MAX && (ring_mask >> q->id & 1) != 0) {
            ds_queue_forget(q, is_file, slot);
            forget_when_idle(q);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

void ds_rings_forget_file(u64 ring_mask, u32 slot)
{
    forget(ring_mask, true, slot);
}

void ds_rings_forget_buffer(u64 ring_mask, u32 slot)
{
    forget(ring_mask, false, slot);
}

void ds_sync_queues_fork_child(void)
{
    for (u32 i = 0; i < set()->count; i++) {
        ds_queue_fork_child(set()->queues[i]);
    }
}

void ds_sync_queues_close(void)
{
    struct ds_sync_queues *s = set();
    for (u32 i = 0; i < s->count; i++) {
        ds_queue_destroy(s->queues[i]);
    }
    s->count = 0;
    pthread_mutex_destroy(&s->lock);
}
