// SPDX-License-Identifier: Apache-2.0
// The helper threads that run what must block. They start when the first call needs them and end
// with the runtime; a call is a struct on its fiber's stack, queued under a mutex (a reactor holds
// it for a few instructions) and sent home as a message.
#include "core/internal.h"

#include <stdlib.h>

#define BLOCKING_MAGIC 0x426c6f63u
// In single-thread mode a call takes between 0 and this, as the schedule's seed draws.
#define BLOCKING_VIRTUAL_NS_MAX (200 * NS_PER_US)

struct blocking_pool {
    u32 magic;
    struct runtime *rt;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    // Under the lock:
    struct list queue; // struct blocking
    u32 waiting;
    u32 idle;
    u32 threads;
    bool is_stopping;
    pthread_t thread[BLOCKING_THREADS_MAX];
};

struct blocking {
    struct message message;
    struct list node;
    void (*fn)(void *arg);
    void *arg;
    struct reactor *home;
    struct event done;
};

static void blocking_done(struct message *m)
{
    event_set(&CONTAINER_OF(m, struct blocking, message)->done);
}

static void *helper_thread(void *arg)
{
    struct blocking_pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct list *node = list_pop_head(&p->queue);
        if (node == NULL) {
            if (p->is_stopping) {
                break;
            }
            p->idle++;
            pthread_cond_wait(&p->arrived, &p->lock);
            p->idle--;
            continue;
        }
        p->waiting--;
        pthread_mutex_unlock(&p->lock);
        struct blocking *b = CONTAINER_OF(node, struct blocking, node);
        b->fn(b->arg);
        reactor_post(b->home, &b->message);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

enum err blocking_pool_create(struct runtime *rt, struct blocking_pool **out)
{
    struct blocking_pool *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    p->magic = BLOCKING_MAGIC;
    p->rt = rt;
    list_init(&p->queue);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->arrived, NULL);
    *out = p;
    return OK;
}

void blocking_pool_destroy(struct blocking_pool *p)
{
    ASSERT_MAGIC(p, BLOCKING_MAGIC);
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    pthread_cond_broadcast(&p->arrived);
    pthread_mutex_unlock(&p->lock);
    for (u32 i = 0; i < p->threads; i++) {
        sys_thread_join(p->thread[i]);
    }
    ASSERT(list_is_empty(&p->queue));
    pthread_cond_destroy(&p->arrived);
    pthread_mutex_destroy(&p->lock);
    p->magic = 0;
    free(p);
}

// Queues the call, and starts one more thread if all are at work. Helpers may run on any CPU that
// the process has, wherever the calling reactor is pinned.
static enum err blocking_submit(struct blocking_pool *p, struct blocking *b)
{
    enum err e = OK;
    pthread_mutex_lock(&p->lock);
    if (p->waiting >= BLOCKING_WAITING_MAX) {
        e = ERR_LIMIT_REACHED;
    } else if (p->idle <= p->waiting && p->threads < BLOCKING_THREADS_MAX) {
        e = sys_thread_start(&p->thread[p->threads], "leat-blocking", &p->rt->cpus, helper_thread,
                             p);
        p->threads += e == OK;
        e = p->threads > 0 ? OK : e; // fewer threads than wanted still serve
    }
    if (e == OK) {
        p->waiting++;
        list_add_tail(&p->queue, &b->node);
        pthread_cond_signal(&p->arrived);
    }
    pthread_mutex_unlock(&p->lock);
    return e;
}

struct virtual_delay {
    struct timer timer;
    struct event over;
};

static void virtual_delay_over(struct timer *t)
{
    event_set(&CONTAINER_OF(t, struct virtual_delay, timer)->over);
}

static MAY_WAIT void blocking_virtual(struct runtime *rt, void (*fn)(void *arg), void *arg)
{
    struct virtual_delay delay;
    event_init(&delay.over);
    timer_init(&delay.timer, virtual_delay_over);
    u64 ns = rt->schedule == 0 ? 0 : schedule_draw(rt, BLOCKING_VIRTUAL_NS_MAX);
    timer_arm(&delay.timer, core_now_ns() + ns);
    event_wait_certain(&delay.over);
    fn(arg);
}

MAY_WAIT enum err blocking_call(void (*fn)(void *arg), void *arg)
{
    struct reactor *r = reactor_here();
    ASSERT(r->current != NULL);
    TRY(fiber_wait_check(r->current));
    if (r->rt->options.is_single_thread) {
        blocking_virtual(r->rt, fn, arg);
        return OK;
    }
    struct blocking b = {.message = {.fn = blocking_done}, .fn = fn, .arg = arg, .home = r};
    event_init(&b.done);
    TRY(blocking_submit(r->rt->blocking, &b));
    event_wait_certain(&b.done);
    return OK;
}
