// SPDX-License-Identifier: Apache-2.0
// Appending encodes straight into the buffer that goes to the drive: the only copy that a record
// makes. A batch is bound to its segment when it begins, because frames carry the segment's cookie.
#include "store/record_log.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/fileio.h"
#include "core/metrics.h"
#include "store/compaction.h"
#include "store/shard.h"

struct log_batch {
    struct list node;
    struct open_segment *os;
    struct list groups; // struct record_group
    u32 number;
    u32 offset; // of the first buffer in the segment
    u32 buf_count;
    struct buf *bufs[RECORD_LOG_BUFS_MAX];
    u32 used[RECORD_LOG_BUFS_MAX];
    u64 begun_ns;
    bool is_taken; // by the writer
};

static void deferred_kick(struct deferred *d)
{
    struct record_log *log = CONTAINER_OF(d, struct record_log, deferred);
    wait_queue_wake_one(&log->kick);
}

static void on_idle(struct timer *t)
{
    struct record_log *log = CONTAINER_OF(t, struct record_log, idle);
    log->is_mark_due = true;
    wait_queue_wake_one(&log->kick);
}

void record_log_init(struct record_log *log, struct shard_drive *sd)
{
    *log = (struct record_log){.sd = sd};
    fiber_mutex_init(&log->roll_mutex);
    list_init(&log->batches);
    wait_queue_init(&log->kick);
    log->deferred.fn = deferred_kick;
    timer_init(&log->idle, on_idle);
}

static struct log_batch *batch_of(struct list *node)
{
    return CONTAINER_OF(node, struct log_batch, node);
}

// ---- writing

MAY_WAIT static enum err batch_write(struct log_batch *b)
{
    int fd = b->os->seg->fd;
    u64 at = b->offset;
    for (u32 i = 0; i < b->buf_count; i++) {
        u32 bytes = ALIGN_UP(b->used[i], SEGMENT_BLOCK_BYTES);
        memset(b->bufs[i]->data + b->used[i], 0, bytes - b->used[i]);
        if (b->buf_count == 1) {
            // Nothing else has to be flushed with it: the segment's header stands whole in its
            // second copy, and every commit before this one was made durable by itself.
            TRY(fileio_write_durable(fd, b->bufs[i]->data, bytes, at));
        } else if (i + 1 < b->buf_count) {
            TRY(fileio_write(fd, b->bufs[i]->data, bytes, at));
        } else {
            TRY(fileio_write_flush(fd, b->bufs[i]->data, bytes, at));
        }
        at += bytes;
    }
    return OK;
}

// Gives every group its outcome. Applying comes before anything else can run: a reader sees a batch
// only whole, and compaction never meets a durable record that the index has not heard of.
static void batch_complete(struct log_batch *b, enum err e)
{
    for (struct list *n = list_pop_head(&b->groups); n != NULL; n = list_pop_head(&b->groups)) {
        struct record_group *g = CONTAINER_OF(n, struct record_group, node);
        g->result = e;
        if (e == OK) {
            g->apply(g);
        }
        event_set(&g->done);
    }
    for (u32 i = 0; i < b->buf_count; i++) {
        buf_put(b->bufs[i]);
    }
    open_segment_unuse(b->os);
    free(b);
}

MAY_WAIT static void batch_commit(struct record_log *log, struct log_batch *b)
{
    struct shard_drive *sd = log->sd;
    b->is_taken = true;
    enum err e = sd->is_failed ? ERR_IO : batch_write(b);
    if (e != OK && !sd->is_failed) {
        shard_drive_fail(sd, "record log", e);
    }
    list_remove(&b->node);
    if (e == OK) {
        metric_add(METRIC_STORE_COMMITS, 1);
        metric_observe_ns(METRIC_STORE_COMMIT_NS, core_now_ns() - b->begun_ns);
    }
    // Outside of the drive's errors nobody needs to know more than that it failed.
    batch_complete(b, e == OK ? OK : ERR_IO);
}

static bool log_wants_mark(const struct record_log *log)
{
    const struct open_segment *os = log->current;
    return os != NULL && os->proved < os->batch && list_is_empty(&log->batches) &&
           !log->sd->is_failed &&
           open_segment_has_room(os, ALIGN_UP((u64)os->tail, SEGMENT_BLOCK_BYTES) + 1, 0);
}

static struct log_batch *batch_begin(struct record_log *log);

// Writes the mark, unless something else was appended meanwhile.
MAY_WAIT static void mark_write(struct record_log *log)
{
    log->is_mark_due = false;
    struct buf *buf;
    if (!log_wants_mark(log) || buf_get_wait(SEGMENT_BLOCK_BYTES, &buf) != OK) {
        return;
    }
    struct log_batch *b = log_wants_mark(log) ? batch_begin(log) : NULL;
    if (b == NULL) {
        buf_put(buf);
        return;
    }
    struct open_segment *os = b->os;
    b->bufs[b->buf_count++] = buf;
    b->used[0] = RECORD_HEADER_BYTES;
    record_encode_mark(os->seg->cookie, b->number, buf->data);
    os->tail += RECORD_HEADER_BYTES;
    os->proved = b->number;
    batch_commit(log, b);
}

MAY_WAIT static void writer_fiber(void *arg)
{
    struct record_log *log = arg;
    fiber_set_deadline(0);
    fiber_shield_enter();
    for (;;) {
        log->is_busy = true;
        while (!list_is_empty(&log->batches)) {
            batch_commit(log, batch_of(log->batches.next));
        }
        if (log->is_mark_due || log->is_stopping) {
            mark_write(log);
            if (!list_is_empty(&log->batches)) {
                continue;
            }
        }
        log->is_busy = false;
        if (log->is_stopping) {
            break;
        }
        if (log_wants_mark(log)) {
            timer_arm(&log->idle, core_now_ns() + RECORD_LOG_MARK_NS);
        }
        enum err e = wait_queue_wait(&log->kick);
        ASSERT(e == OK); // shielded
    }
    timer_disarm(&log->idle);
    fiber_shield_leave();
}

enum err record_log_start(struct record_log *log)
{
    return group_spawn(&log->sd->shard->fibers, writer_fiber, log);
}

void record_log_stop(struct record_log *log)
{
    log->is_stopping = true;
    wait_queue_wake_one(&log->kick);
}

void record_log_deinit(struct record_log *log)
{
    ASSERT(list_is_empty(&log->batches));
    if (log->current != NULL) {
        open_segment_drop(log->current);
        log->current = NULL;
    }
}

// ---- appending

// The newest batch, if it can still grow.
static struct log_batch *batch_filling(struct record_log *log)
{
    if (list_is_empty(&log->batches)) {
        return NULL;
    }
    struct log_batch *b = batch_of(log->batches.prev);
    return b->is_taken || b->os != log->current ? NULL : b;
}

static bool buf_has_room(const struct log_batch *b, u32 bytes)
{
    u32 last = b->buf_count - 1;
    return b->used[last] + bytes <= b->bufs[last]->capacity_bytes;
}

static struct log_batch *batch_begin(struct record_log *log)
{
    struct log_batch *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return NULL;
    }
    struct open_segment *os = log->current;
    list_init(&b->groups);
    b->os = os;
    os->tail = ALIGN_UP(os->tail, SEGMENT_BLOCK_BYTES);
    b->offset = os->tail;
    b->number = ++os->batch;
    b->begun_ns = core_now_ns();
    open_segment_use(os);
    list_add_tail(&log->batches, &b->node);
    return b;
}

// Encodes one record at the segment's tail and enters it into the footer.
static u32 record_place(struct log_batch *b, const struct record_input *in, u8 *at)
{
    struct open_segment *os = b->os;
    const struct store_change *c = in->change;
    record_encode(in, os->seg->cookie, b->number, at);
    bool is_put = in->type == RECORD_PUT;
    struct record_view v = {
        .type = in->type,
        .pg = in->pg,
        .frame_bytes = record_frame_bytes(c, (enum record_type)in->type),
        .epoch = in->epoch,
        .seq = in->seq,
        .summary = ((struct record_fmt *)(void *)at)->summary,
        .refs = c->refs,
        .ref_count = is_put ? c->ref_count : 0,
        .key = c->key,
    };
    footer_add_record(&os->footer, os->tail, &v);
    os->tail += v.frame_bytes;
    return v.frame_bytes;
}

static void group_encode(struct log_batch *b, struct record_group *g)
{
    u32 last = b->buf_count - 1;
    g->segment = b->os->seg;
    g->offset = b->os->tail;
    for (u32 i = 0; i < g->count; i++) {
        b->used[last] += record_place(b, &g->inputs[i], b->bufs[last]->data + b->used[last]);
    }
    list_add_tail(&b->groups, &g->node);
    metric_add(METRIC_STORE_RECORDS, g->count);
    metric_add(METRIC_STORE_RECORD_BYTES, g->frame_bytes);
}

// Puts the group into the current segment's newest batch. ERR_BUSY: a buffer of group_buf_bytes()
// is needed in *spare.
static enum err group_place(struct record_log *log, struct record_group *g, struct buf **spare)
{
    struct log_batch *b = batch_filling(log);
    bool is_new_buf = b == NULL || !buf_has_room(b, g->frame_bytes);
    if (is_new_buf && *spare == NULL) {
        return ERR_BUSY;
    }
    TRY(footer_reserve(&log->current->footer, g->entry_bytes));
    if (b == NULL || (is_new_buf && b->buf_count == RECORD_LOG_BUFS_MAX)) {
        b = batch_begin(log);
        if (b == NULL) {
            return ERR_NO_MEMORY;
        }
    }
    if (is_new_buf) {
        log->current->tail = ALIGN_UP(log->current->tail, SEGMENT_BLOCK_BYTES);
        b->bufs[b->buf_count++] = *spare;
        *spare = NULL;
    }
    group_encode(b, g);
    return OK;
}

// Moves on to a fresh segment, unless another fiber did it since `seen` was found too full. The
// reserve is for deletes and compaction: what they opened takes writes only when there is room
// again.
MAY_WAIT static enum err log_roll(struct record_log *log, struct record_group *g,
                                  struct open_segment *seen, bool is_room_left)
{
    TRY(fiber_mutex_lock(&log->roll_mutex));
    enum err e = OK;
    if (log->current != seen) {
        // done already
    } else if (is_room_left) {
        if (drive_has_room(log->sd->drive)) {
            seen->is_reserve = false;
        } else {
            e = ERR_DRIVE_FULL;
        }
    } else {
        struct open_segment *os;
        e = open_segment_create(log->sd, SEGMENT_LOG, g->space, &os);
        if (e == OK) {
            log->current = os;
            if (seen != NULL) {
                open_segment_close(seen);
            }
        } else if (e == ERR_IO) {
            shard_drive_fail(log->sd, "segment header", e);
        }
    }
    fiber_mutex_unlock(&log->roll_mutex);
    return e;
}

// The largest group that an empty segment takes.
static bool group_fits_segment(const struct record_log *log, const struct record_group *g)
{
    struct footer empty = {0};
    u64 bytes = SEGMENT_HEADER_BYTES + ALIGN_UP(g->frame_bytes, SEGMENT_BLOCK_BYTES) +
                footer_disk_bytes(&empty, g->entry_bytes);
    return bytes <= log->sd->drive->segment_bytes;
}

static enum err group_measure(const struct record_log *log, struct record_group *g)
{
    u64 frame_bytes = 0;
    u64 entry_bytes = 0;
    for (u32 i = 0; i < g->count; i++) {
        const struct store_change *c = g->inputs[i].change;
        bool is_put = g->inputs[i].type == RECORD_PUT;
        frame_bytes += record_frame_bytes(c, (enum record_type)g->inputs[i].type);
        entry_bytes += footer_record_bytes(c->key.len, is_put ? c->ref_count : 0);
    }
    if (frame_bytes > STORE_BATCH_BYTES_MAX) {
        return ERR_LIMIT_REACHED;
    }
    g->frame_bytes = (u32)frame_bytes;
    g->entry_bytes = (u32)entry_bytes;
    return group_fits_segment(log, g) ? OK : ERR_LIMIT_REACHED;
}

MAY_WAIT static enum err group_append(struct record_log *log, struct record_group *g,
                                      struct buf **spare)
{
    u32 tries = 0;
    for (;;) {
        if (log->sd->is_failed) {
            return ERR_IO;
        }
        ASSERT(!log->is_stopping);
        struct open_segment *os = log->current;
        u64 tail = os == NULL ? 0 : ALIGN_UP((u64)os->tail, SEGMENT_BLOCK_BYTES) + g->frame_bytes;
        bool has_room = os != NULL && open_segment_has_room(os, tail, g->entry_bytes);
        if (!has_room || (os->is_reserve && g->space == SPACE_WRITE)) {
            enum err e = log_roll(log, g, os, has_room);
            // Compaction may find room; without deletes, a full drive could not be emptied at all.
            bool is_retried =
                e == ERR_DRIVE_FULL && g->space != SPACE_COMPACT &&
                compaction_make_room(log->sd->shard->store, log->sd->drive, g->space, &tries);
            if (e != OK && !is_retried) {
                return e;
            }
            continue;
        }
        enum err e = group_place(log, g, spare);
        if (e != ERR_BUSY) {
            return e;
        }
        TRY(buf_get_wait(MAX((size_t)g->frame_bytes, (size_t)RECORD_LOG_BUF_BYTES), spare));
    }
}

MAY_WAIT enum err record_log_append(struct record_log *log, struct record_group *g)
{
    ASSERT(g->count > 0 && g->count <= STORE_BATCH_MAX && g->apply != NULL);
    TRY(group_measure(log, g));
    event_init(&g->done);
    struct buf *spare = NULL;
    fiber_shield_enter();
    enum err e = group_append(log, g, &spare);
    buf_put(spare);
    if (e == OK) {
        if (!log->is_busy) {
            core_defer(&log->deferred);
        }
        event_wait_certain(&g->done);
        e = g->result;
    } else if (e == ERR_DRIVE_FULL) {
        metric_add(METRIC_STORE_FULL, 1);
    }
    fiber_shield_leave();
    return e;
}
