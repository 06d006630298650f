// SPDX-License-Identifier: Apache-2.0
// What fibers of one core wait on. All of it is FIFO, and a thing that is handed over (a mutex, a
// semaphore's units) is given to the waiter before that waiter runs, so nobody can take it in
// between, and a waiter that is cancelled after it was served still gets it.
#include "core/internal.h"

static struct fiber *first_waiter(const struct wait_queue *q)
{
    return list_is_empty(&q->waiters) ? NULL : CONTAINER_OF(q->waiters.next, struct fiber, node);
}

void wait_queue_init(struct wait_queue *q)
{
    list_init(&q->waiters);
}

MAY_WAIT enum err wait_queue_wait(struct wait_queue *q)
{
    struct fiber *f = fiber_current();
    ASSERT(f != NULL);
    TRY(fiber_wait_check(f));
    list_add_tail(&q->waiters, &f->node);
    return fiber_park(f);
}

bool wait_queue_wake_one(struct wait_queue *q)
{
    struct fiber *f = first_waiter(q);
    if (f == NULL) {
        return false;
    }
    fiber_ready(f, OK);
    return true;
}

void wait_queue_wake_all(struct wait_queue *q)
{
    while (wait_queue_wake_one(q)) {
    }
}

void event_init(struct event *e)
{
    e->is_set = false;
    wait_queue_init(&e->queue);
}

void event_set(struct event *e)
{
    e->is_set = true;
    wait_queue_wake_all(&e->queue);
}

MAY_WAIT enum err event_wait(struct event *e)
{
    return e->is_set ? OK : wait_queue_wait(&e->queue);
}

MAY_WAIT void event_wait_certain(struct event *e)
{
    struct fiber *f = fiber_current();
    ASSERT(f != NULL);
    if (!e->is_set) {
        list_add_tail(&e->queue.waiters, &f->node);
        fiber_park_certain(f);
        ASSERT(e->is_set);
    }
}

void fiber_mutex_init(struct fiber_mutex *m)
{
    m->is_held = false;
    wait_queue_init(&m->queue);
}

MAY_WAIT enum err fiber_mutex_lock(struct fiber_mutex *m)
{
    if (!m->is_held) {
        ASSERT(fiber_current() != NULL && list_is_empty(&m->queue.waiters));
        m->is_held = true;
        return OK;
    }
    return wait_queue_wait(&m->queue);
}

void fiber_mutex_unlock(struct fiber_mutex *m)
{
    ASSERT(m->is_held);
    if (!wait_queue_wake_one(&m->queue)) {
        m->is_held = false;
    }
}

void semaphore_init(struct semaphore *s, u64 available, u64 waiting_max)
{
    *s = (struct semaphore){.available = available, .waiting_max = waiting_max};
    wait_queue_init(&s->queue);
}

// Serves waiters from the head for as long as there is enough: a large request is not starved by
// small ones behind it.
static void semaphore_serve(struct semaphore *s)
{
    struct fiber *f = first_waiter(&s->queue);
    while (f != NULL && f->amount <= s->available) {
        s->available -= f->amount;
        s->waiting--;
        fiber_ready(f, OK);
        f = first_waiter(&s->queue);
    }
}

bool semaphore_try_take(struct semaphore *s, u64 n)
{
    if (!list_is_empty(&s->queue.waiters) || n > s->available) {
        return false;
    }
    s->available -= n;
    return true;
}

MAY_WAIT enum err semaphore_take(struct semaphore *s, u64 n)
{
    if (semaphore_try_take(s, n)) {
        return OK;
    }
    if (s->waiting >= s->waiting_max) {
        return ERR_LIMIT_REACHED;
    }
    fiber_current()->amount = n;
    s->waiting++;
    enum err e = wait_queue_wait(&s->queue);
    if (e != OK) {
        s->waiting--;
        semaphore_serve(s); // those behind may have waited only for this one's large request
    }
    return e;
}

void semaphore_give(struct semaphore *s, u64 n)
{
    ASSERT(s->available <= UINT64_MAX - n);
    s->available += n;
    semaphore_serve(s);
}
