// SPDX-License-Identifier: Apache-2.0
// Making and unmaking one reactor. All of its memory is taken here, at start, on whatever thread
// creates the runtime; the I/O engine becomes the reactor's thread's with its first poll.
#include "core/internal.h"

#include <stdlib.h>

static void stop_arrived(struct message *m)
{
    CONTAINER_OF(m, struct reactor, stop)->is_stopping = true;
}

enum err reactor_create(struct runtime *rt, u32 core, struct reactor **out)
{
    struct reactor *r = aligned_alloc(CACHE_LINE, ALIGN_UP(sizeof(*r), (size_t)CACHE_LINE));
    if (r == NULL) {
        return ERR_NO_MEMORY;
    }
    *r = (struct reactor){.magic = REACTOR_MAGIC, .core = core, .rt = rt};
    r->stop.fn = stop_arrived;
    list_init(&r->ready);
    list_init(&r->yielded);
    list_init(&r->deferred);
    group_init(&r->calls);
    enum err e = OK;
    r->cells = metrics_cells_create();
    r->fibers = calloc(rt->options.fibers_max, sizeof(*r->fibers));
    if (r->cells == NULL || r->fibers == NULL) {
        e = ERR_NO_MEMORY;
        goto out;
    }
    TRY_OUT(e, rt->sys->ops->io_create(rt->sys, rt->options.io_queue_depth, &r->io));
    TRY_OUT(e, buf_pool_create(r, rt->options.buf_bytes, &r->bufs));
    *out = r;
out:
    if (e != OK) {
        reactor_destroy(r);
    }
    return e;
}

// Also takes down a reactor that is only half made.
void reactor_destroy(struct reactor *r)
{
    ASSERT_MAGIC(r, REACTOR_MAGIC);
    ASSERT(!reactor_is_busy(r));
    if (r->io != NULL) {
        r->io->ops->destroy(r->io);
    }
    if (r->bufs != NULL) {
        buf_pool_destroy(r->bufs);
    }
    group_deinit(&r->calls);
    fibers_deinit(r);
    timer_heap_deinit(&r->timers);
    free(r->fibers);
    free(r->cells);
    r->magic = 0;
    free(r);
}
