// SPDX-License-Identifier: Apache-2.0
// The simulated I/O engine of one core: operations take a random virtual time, so that they
// complete in any order, and take effect at the moment of their completion. Time passes only when
// no core has anything else to do (the contract is in core/reactor.h). Sockets are not simulated.
#include "sim/internal.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOW_PPM 20000 // operations that take ten times as long

static struct sim_engine *engine_of(struct io_engine *e)
{
    return CONTAINER_OF(e, struct sim_engine, base);
}

static u64 latency_ns(struct sim *sim, u8 kind)
{
    u64 us = 0;
    if (kind == IO_READ) {
        us = 20 + sim_below(&sim->random, 200);
    } else if (kind == IO_WRITE || kind == IO_WRITEV) {
        us = 30 + sim_below(&sim->random, 400);
    } else if (kind == IO_FLUSH) {
        us = 100 + sim_below(&sim->random, 2000);
    }
    return (sim_chance(&sim->random, SLOW_PPM) ? us * 10 : us) * NS_PER_US + 1;
}

// Direct I/O: what a drive with 4 KiB blocks refuses is a bug of ours.
static void check_aligned(const void *base, u64 offset, size_t len)
{
    ASSERT((uintptr_t)base % SIM_SECTOR_BYTES == 0);
    ASSERT(offset % SIM_PAGE_BYTES == 0 && len % SIM_PAGE_BYTES == 0);
}

static void check_op(const struct io_op *op, unsigned flags)
{
    bool is_direct = (flags & SYS_OPEN_DIRECT) != 0;
    if (op->kind == IO_READ || op->kind == IO_WRITE) {
        ASSERT(op->len <= IO_BYTES_MAX);
        ASSERT((flags & (op->kind == IO_READ ? SYS_OPEN_READ : SYS_OPEN_WRITE)) != 0);
        if (is_direct) {
            check_aligned(op->const_buf, op->offset, op->len);
        }
    } else if (op->kind == IO_WRITEV) {
        ASSERT((flags & SYS_OPEN_WRITE) != 0);
        for (u32 i = 0; i < op->len && is_direct; i++) {
            ASSERT((uintptr_t)op->iov[i].iov_base % SIM_SECTOR_BYTES == 0);
            ASSERT(op->iov[i].iov_len % SIM_SECTOR_BYTES == 0);
        }
    } else {
        ASSERT(op->kind == IO_FLUSH || op->kind == IO_CLOSE); // no sockets here
    }
}

// The operation reaches the drive.
static void request_start(struct sim_request *rq)
{
    struct sim *sim = rq->engine->sim;
    const struct sim_fd *fd = sim_fd(sim, rq->op->fd);
    check_op(rq->op, fd->flags);
    rq->file = fd->node;
    rq->is_started = true;
    rq->covered = sim->disk->writes;
    rq->due_ns = sim->now_ns + latency_ns(sim, rq->op->kind);
    if (rq->op->kind == IO_FLUSH && sim->options.sabotage == SIM_BREAK_ACK_EARLY) {
        rq->due_ns = sim->now_ns;
    }
}

static void engine_submit(struct io_engine *base, struct io_op *op)
{
    struct sim_engine *e = engine_of(base);
    struct sim *sim = e->sim;
    struct sim_request *rq = calloc(1, sizeof(*rq));
    ASSERT(rq != NULL);
    rq->engine = e;
    rq->op = op;
    rq->number = ++sim->requests_made;
    list_add_tail(&sim->requests, &rq->node);
    if (e->linked != NULL) {
        e->linked->follower = rq;
    } else {
        request_start(rq);
    }
    e->linked = (op->flags & IO_FLAG_LINK) != 0 ? rq : NULL;
}

// All bytes of a write in one piece; *gathered is a block to be freed, or NULL.
static const u8 *write_bytes(const struct io_op *op, u32 *len, u8 **gathered)
{
    *gathered = NULL;
    if (op->kind == IO_WRITE) {
        *len = op->len;
        return op->const_buf;
    }
    *len = 0;
    for (u32 i = 0; i < op->len; i++) {
        *len += (u32)op->iov[i].iov_len;
    }
    u8 *out = malloc(*len + 1);
    ASSERT(out != NULL);
    size_t at = 0;
    for (u32 i = 0; i < op->len; i++) {
        memcpy(out + at, op->iov[i].iov_base, op->iov[i].iov_len);
        at += op->iov[i].iov_len;
    }
    *gathered = out;
    return out;
}

// A transfer may stop early, at a page.
static u32 transfer_len(struct sim *sim, u32 len)
{
    if (len <= SIM_PAGE_BYTES || !sim_chance(&sim->random, sim->options.short_ppm)) {
        return len;
    }
    return (u32)(1 + sim_below(&sim->random, (len - 1) / SIM_PAGE_BYTES)) * SIM_PAGE_BYTES;
}

// The lies about a write that asks to be durable.
static bool is_flush_kept(struct sim *sim)
{
    enum sim_break sabotage = sim->options.sabotage;
    return sabotage != SIM_BREAK_NO_FLUSH &&
           (sabotage != SIM_BREAK_ACK_EARLY || sim_below(&sim->random, 4) == 0);
}

static i32 do_write(struct sim *sim, struct sim_request *rq)
{
    sim->stats.writes++;
    if (sim_chance(&sim->random, sim->options.write_error_ppm)) {
        return -EIO;
    }
    u32 len;
    u8 *gathered;
    const u8 *data = write_bytes(rq->op, &len, &gathered);
    struct sim_node *file = rq->file;
    u64 offset = rq->op->offset;
    if (file_grow(sim->disk, file, offset + len) != OK) {
        free(gathered);
        return -ENOSPC;
    }
    len = transfer_len(sim, len);
    sim_misdirect(sim, &file, &offset, len);
    file_write_done(sim->disk, file, offset, data, len);
    free(gathered);
    if ((rq->op->flags & IO_FLAG_DURABLE) == 0) {
        return (i32)len;
    }
    if (sim_flush_before(sim) || sim_chance(&sim->random, sim->options.flush_error_ppm)) {
        return -EIO;
    }
    if (is_flush_kept(sim)) {
        file_write_durable(file);
    }
    sim_flush_after(sim);
    return sim->stats.is_crashed ? -EIO : (i32)len;
}

static i32 do_read(struct sim *sim, struct sim_request *rq)
{
    sim->stats.reads++;
    if (sim_chance(&sim->random, sim->options.read_error_ppm)) {
        return -EIO;
    }
    u64 offset = rq->op->offset;
    if (!file_is_readable(rq->file, offset, rq->op->len)) {
        return -EIO;
    }
    u64 left = offset < rq->file->size ? rq->file->size - offset : 0;
    u32 len = transfer_len(sim, (u32)MIN((u64)rq->op->len, left));
    if (sim->options.sabotage == SIM_BREAK_WRONG_READ && sim_below(&sim->random, 40) == 0) {
        offset = offset >= SIM_PAGE_BYTES ? offset - SIM_PAGE_BYTES : 0;
    }
    image_read(&rq->file->visible, offset, rq->op->buf, len);
    return (i32)len;
}

static i32 do_flush(struct sim *sim, struct sim_request *rq)
{
    if (sim_flush_before(sim) || sim_chance(&sim->random, sim->options.flush_error_ppm)) {
        return -EIO;
    }
    // ACK_EARLY: the cache keeps the newest writes a while longer.
    enum sim_break sabotage = sim->options.sabotage;
    u64 covered = rq->covered;
    if (sabotage == SIM_BREAK_ACK_EARLY) {
        covered -= MIN(covered, sim_below(&sim->random, 8));
    }
    if (sabotage != SIM_BREAK_NO_FLUSH) {
        file_flush_done(rq->file, covered, rq->file->size);
    }
    sim_flush_after(sim);
    return sim->stats.is_crashed ? -EIO : 0;
}

// Takes effect now; the result of the operation.
static i32 request_perform(struct sim *sim, struct sim_request *rq)
{
    if (rq->refused != 0) {
        return rq->refused;
    }
    if (rq->op->kind == IO_CLOSE) {
        sim->base.ops->file_close(&sim->base, rq->op->fd);
        return 0;
    }
    if (sim_event(sim)) {
        return -EIO;
    }
    switch ((enum io_kind)rq->op->kind) {
    case IO_READ:
        return do_read(sim, rq);
    case IO_WRITE:
    case IO_WRITEV:
        return do_write(sim, rq);
    case IO_FLUSH:
        return do_flush(sim, rq);
    case IO_ACCEPT:
    case IO_RECV:
    case IO_SEND:
    case IO_SENDMSG:
    case IO_CONNECT:
    case IO_CLOSE:
    case IO_CANCEL:
        break;
    }
    ASSERT(rq->op->kind <= IO_FLUSH); // check_op let nothing else pass
    return -EINVAL;
}

static bool is_whole(const struct io_op *op, i32 result)
{
    bool is_transfer = op->kind == IO_READ || op->kind == IO_WRITE;
    return is_transfer ? result == (i32)op->len : result >= 0;
}

static void request_complete(struct sim_request *rq)
{
    struct sim *sim = rq->engine->sim;
    struct io_op *op = rq->op;
    i32 result = request_perform(sim, rq);
    list_remove(&rq->node);
    if (rq->engine->linked == rq) {
        rq->engine->linked = NULL;
    }
    struct sim_request *next = rq->follower;
    if (next != NULL) {
        if (is_whole(op, result)) {
            request_start(next);
        } else {
            // What follows a failed or short operation does not start, and neither do its own.
            next->is_started = true;
            next->due_ns = sim->now_ns;
            next->refused = -ECANCELED;
        }
    }
    free(rq);
    op->result = result;
    op->state = IO_IDLE;
    op->done(op);
}

// The request that is due first, of one engine or (NULL) of all.
static struct sim_request *request_first(struct sim *sim, const struct sim_engine *e)
{
    struct sim_request *first = NULL;
    LIST_FOREACH (node, &sim->requests) {
        struct sim_request *rq = CONTAINER_OF(node, struct sim_request, node);
        if (rq->is_started && (e == NULL || rq->engine == e) &&
            (first == NULL || rq->due_ns < first->due_ns)) {
            first = rq;
        }
    }
    return first;
}

static void engine_poll(struct io_engine *base, u64 timeout_ns)
{
    struct sim_engine *e = engine_of(base);
    struct sim *sim = e->sim;
    if (timeout_ns > 0) {
        const struct sim_request *first = request_first(sim, NULL);
        if (first == NULL && timeout_ns == UINT64_MAX) {
            LOG_ERROR("sim_deadlock", "now_ns=%llu events=%llu", (unsigned long long)sim->now_ns,
                      (unsigned long long)sim->stats.events);
            bool is_anything_pending = false; // neither a timer nor an operation
            ASSERT(is_anything_pending);
        }
        u64 until = timeout_ns == UINT64_MAX ? UINT64_MAX : sim->now_ns + timeout_ns;
        until = first != NULL ? MIN(until, first->due_ns) : until;
        sim->now_ns = MAX(sim->now_ns, until);
    }
    for (;;) {
        struct sim_request *rq = request_first(sim, e);
        if (rq == NULL || rq->due_ns > sim->now_ns) {
            return;
        }
        request_complete(rq);
    }
}

void sim_settle_in_flight(struct sim *sim)
{
    LIST_FOREACH (node, &sim->requests) {
        const struct sim_request *rq = CONTAINER_OF(node, struct sim_request, node);
        bool is_write = rq->op->kind == IO_WRITE || rq->op->kind == IO_WRITEV;
        if (!rq->is_started || rq->refused != 0 || !is_write) {
            continue;
        }
        u32 len;
        u8 *gathered;
        const u8 *data = write_bytes(rq->op, &len, &gathered);
        // With a power loss it may be torn like any other unflushed write. When only the process
        // ends the kernel did some first part of it.
        u32 pages = len / SIM_PAGE_BYTES;
        u32 done = sim->options.is_kill && sim_below(&sim->random, 2) == 0
                       ? (u32)sim_below(&sim->random, pages + 1) * SIM_PAGE_BYTES
                       : len;
        if (done > 0 && file_grow(sim->disk, rq->file, rq->op->offset + len) == OK) {
            file_write_done(sim->disk, rq->file, rq->op->offset, data, done);
        }
        free(gathered);
    }
}

static void engine_destroy(struct io_engine *base)
{
    struct sim_engine *e = engine_of(base);
    ASSERT(request_first(e->sim, e) == NULL);
    list_remove(&e->node);
    free(e);
}

static void engine_wake(struct io_engine *base)
{
    (void)base; // one thread: nobody sleeps
}

static bool engine_register_memory(struct io_engine *base, void *memory, size_t bytes)
{
    (void)base;
    (void)memory;
    (void)bytes;
    return false;
}

static bool engine_recv_pool(struct io_engine *base, u32 count, u32 bytes)
{
    (void)base;
    (void)count;
    (void)bytes;
    return false;
}

static const struct io_engine_ops engine_ops = {
    .destroy = engine_destroy,
    .submit = engine_submit,
    .poll = engine_poll,
    .wake = engine_wake,
    .register_memory = engine_register_memory,
    .recv_pool = engine_recv_pool,
};

enum err sim_io_create(struct sys *s, u32 queue_depth, struct io_engine **out)
{
    (void)queue_depth;
    struct sim *sim = sim_of(s);
    struct sim_engine *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return ERR_NO_MEMORY;
    }
    e->base.ops = &engine_ops;
    e->sim = sim;
    list_add_tail(&sim->engines, &e->node);
    *out = &e->base;
    return OK;
}
