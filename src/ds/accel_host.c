// SPDX-License-Identifier: Apache-2.0
// The host accelerator: device memory is plain memory, a copy is memcpy, and a stream is a real
// thread that executes what was queued in order. Gates are words that stream threads wait on with a
// futex.
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ds/driver.h"

#define STREAM_MAGIC 0x73747231u

enum item_kind { ITEM_CALL, ITEM_WAIT, ITEM_STOP };

struct stream_item {
    struct list link;
    enum item_kind kind;
    void (*fn)(void *);
    void *arg;
    _Atomic u32 *word;
    u32 value;
};

struct host_stream {
    u32 magic;
    struct list link; // among all streams
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list items;
    u64 queued; // ever
    u64 done;
};

static struct ds_host_streams *streams(void)
{
    return &ds_driver()->host_streams;
}

static bool host_probe(char *why, size_t why_size)
{
    (void)why;
    (void)why_size;
    return true;
}

static int host_open(void)
{
    pthread_mutex_init(&streams()->lock, NULL);
    list_init(&streams()->all);
    streams()->standard = NULL;
    return 0;
}

static int host_enter(void)
{
    return 0;
}

static void host_leave(void)
{
}

static enum ds_memory_kind host_memory_kind(const void *address)
{
    (void)address;
    return DS_MEMORY_HOST;
}

// Page-aligned with its size in a page before it, so that free needs no table.
static void *pages_alloc(size_t bytes)
{
    size_t whole = ALIGN_UP(bytes, (size_t)4096) + 4096;
    u8 *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    memcpy(p, &whole, sizeof(whole));
    if (whole >= 2 * MIB) {
        madvise(p, whole, MADV_HUGEPAGE); // fewer segments a DMA; a refusal changes nothing
    }
    return p + 4096;
}

static void pages_free(void *memory)
{
    u8 *p = (u8 *)memory - 4096;
    size_t whole;
    memcpy(&whole, p, sizeof(whole));
    munmap(p, whole);
}

static void *host_memory_alloc(size_t bytes, int *dev_err)
{
    void *p = pages_alloc(bytes);
    *dev_err = p == NULL ? ENOMEM : 0;
    return p;
}

static void *host_pinned_alloc(size_t bytes)
{
    return pages_alloc(bytes);
}

static void host_pinned_free(void *memory, size_t bytes)
{
    (void)bytes;
    if (memory != NULL) {
        pages_free(memory);
    }
}

static int host_queue_create(void **queue)
{
    *queue = NULL;
    return 0;
}

static void host_queue_destroy(void *queue)
{
    (void)queue;
}

static int host_copy_in(void *queue, void *device, const void *host, size_t bytes,
                        struct ds_copy *copy)
{
    (void)queue;
    memcpy(device, host, bytes);
    copy->is_done = true;
    return 0;
}

static int host_copy_out(void *queue, void *host, const void *device, size_t bytes,
                         struct ds_copy *copy)
{
    return host_copy_in(queue, host, device, bytes, copy);
}

static int host_zero(void *queue, void *device, size_t bytes, struct ds_copy *copy)
{
    (void)queue;
    memset(device, 0, bytes);
    copy->is_done = true;
    return 0;
}

static void host_copy_poll(struct ds_copy *copy, bool wait)
{
    (void)wait;
    copy->is_done = true;
}

static void host_copy_deinit(struct ds_copy *copy)
{
    (void)copy;
}

static void gate_wait(_Atomic u32 *word, u32 value)
{
    u32 now;
    // Serial comparison, so that a counter may wrap.
    while ((i32)((now = atomic_load_explicit(word, memory_order_acquire)) - value) < 0) {
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    }
}

static void *stream_main(void *arg)
{
    struct host_stream *s = arg;
    bool is_stopped = false;
    pthread_mutex_lock(&s->lock);
    while (!is_stopped) {
        struct list *node = list_pop_head(&s->items);
        if (node == NULL) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        struct stream_item *item = CONTAINER_OF(node, struct stream_item, link);
        if (item->kind == ITEM_CALL) {
            item->fn(item->arg);
        } else if (item->kind == ITEM_WAIT) {
            gate_wait(item->word, item->value);
        } else {
            is_stopped = true;
        }
        free(item);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int stream_new(struct host_stream **out)
{
    struct host_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return ENOMEM;
    }
    s->magic = STREAM_MAGIC;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    list_init(&s->items);
    int rc = ds_thread_start(&s->thread, stream_main, s);
    if (rc != 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int host_stream_create(void **stream)
{
    struct host_stream *s;
    int rc = stream_new(&s);
    if (rc == 0) {
        pthread_mutex_lock(&streams()->lock);
        list_add_tail(&streams()->all, &s->link);
        pthread_mutex_unlock(&streams()->lock);
        *stream = s;
    }
    return rc;
}

// The stream behind a caller's pointer, or NULL when it is none of ours. NULL means the standard
// one.
static struct host_stream *stream_find(void *stream)
{
    struct ds_host_streams *t = streams();
    struct host_stream *found = NULL;
    pthread_mutex_lock(&t->lock);
    if (stream == NULL) {
        if (t->standard == NULL && stream_new(&t->standard) == 0) {
            list_add_tail(&t->all, &t->standard->link);
        }
        found = t->standard;
    }
    LIST_FOREACH (node, &t->all) {
        struct host_stream *s = CONTAINER_OF(node, struct host_stream, link);
        if (s == stream) {
            found = s;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

static int stream_push(struct host_stream *s, const struct stream_item *model)
{
    struct stream_item *item = malloc(sizeof(*item));
    if (item == NULL) {
        return ENOMEM;
    }
    *item = *model;
    pthread_mutex_lock(&s->lock);
    list_add_tail(&s->items, &item->link);
    s->queued++;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static void stream_drain(struct host_stream *s)
{
    pthread_mutex_lock(&s->lock);
    u64 until = s->queued;
    while (s->done < until) {
        pthread_cond_wait(&s->wake, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

static int host_stream_synchronize(void *stream)
{
    struct host_stream *s = stream_find(stream);
    if (s == NULL) {
        return EINVAL;
    }
    stream_drain(s);
    return 0;
}

// Executes what is queued, then ends the thread.
static void stream_end(struct host_stream *s)
{
    ASSERT_MAGIC(s, STREAM_MAGIC);
    while (stream_push(s, &(struct stream_item){.kind = ITEM_STOP}) != 0) {
        stream_drain(s); // gives memory back
    }
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    s->magic = 0;
    free(s);
}

static int host_stream_destroy(void *stream)
{
    struct host_stream *s = stream == NULL ? NULL : stream_find(stream);
    if (s == NULL) {
        return EINVAL;
    }
    pthread_mutex_lock(&streams()->lock);
    list_remove(&s->link);
    if (streams()->standard == s) {
        streams()->standard = NULL;
    }
    pthread_mutex_unlock(&streams()->lock);
    stream_end(s);
    return 0;
}

static void host_close(void)
{
    for (struct list *node; (node = list_pop_head(&streams()->all)) != NULL;) {
        stream_end(CONTAINER_OF(node, struct host_stream, link));
    }
    streams()->standard = NULL;
    pthread_mutex_destroy(&streams()->lock);
}

static int host_stream_call(void *stream, void (*fn)(void *), void *arg)
{
    struct host_stream *s = stream_find(stream);
    return s == NULL
               ? EINVAL
               : stream_push(s, &(struct stream_item){.kind = ITEM_CALL, .fn = fn, .arg = arg});
}

static int host_stream_wait(void *stream, struct ds_gate *gate, u32 value)
{
    struct host_stream *s = stream_find(stream);
    return s == NULL ? EINVAL
                     : stream_push(s, &(struct stream_item){
                                          .kind = ITEM_WAIT, .word = gate->word, .value = value});
}

static int host_gate_create(struct ds_gate *gate)
{
    gate->word = calloc(1, sizeof(*gate->word));
    return gate->word == NULL ? ENOMEM : 0;
}

static void host_gate_open(struct ds_gate *gate, u32 value)
{
    _Atomic u32 *word = gate->word;
    atomic_store_explicit(word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void host_gate_destroy(struct ds_gate *gate)
{
    free(gate->word);
    gate->word = NULL;
}

const struct ds_accel *ds_accel_host(void)
{
    static const struct ds_accel accel = {
        .name = "host",
        .probe = host_probe,
        .open = host_open,
        .close = host_close,
        .enter = host_enter,
        .leave = host_leave,
        .memory_kind = host_memory_kind,
        .memory_alloc = host_memory_alloc,
        .memory_free = pages_free,
        .pinned_alloc = host_pinned_alloc,
        .pinned_free = host_pinned_free,
        .queue_create = host_queue_create,
        .queue_destroy = host_queue_destroy,
        .copy_in = host_copy_in,
        .copy_out = host_copy_out,
        .zero = host_zero,
        .copy_poll = host_copy_poll,
        .copy_deinit = host_copy_deinit,
        .stream_create = host_stream_create,
        .stream_destroy = host_stream_destroy,
        .stream_synchronize = host_stream_synchronize,
        .stream_call = host_stream_call,
        .stream_wait = host_stream_wait,
        .gate_create = host_gate_create,
        .gate_open = host_gate_open,
        .gate_destroy = host_gate_destroy,
    };
    return &accel;
}
