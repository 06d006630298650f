// SPDX-License-Identifier: Apache-2.0
// See md5_batch.h. All on one core; the run is called from the loop and never waits.
#include "meta/md5_batch.h"

#include "base/assert.h"
#include "codec/md5_lanes.h"

#define PIECE_BYTES_MAX (128 * KIB) // of one stream in one run
#define RUN_BYTES_MAX   (2 * MIB)   // of all streams in one run: some 300 us with full lanes
#define RUN_STREAMS_MAX 64
#define LONE_BYTES_MIN  (64 * KIB) // a lone stream is hashed once this much has come

static struct md5_stream *stream_of(struct list *node)
{
    return CONTAINER_OF(node, struct md5_stream, node);
}

// Adds up to `room` streams of a list that have something to hash; returns how many there are now.
static u32 batch_take(struct list *list, struct md5_stream **streams, u32 n, u32 room)
{
    LIST_FOREACH (node, list) {
        struct md5_stream *s = stream_of(node);
        if (room == 0) {
            break;
        }
        // Whole blocks only, unless it is the end of an urgent run.
        if (!s->is_urgent && s->len < DIGEST_BLOCK) {
            continue;
        }
        streams[n++] = s;
        room--;
    }
    return n;
}

static size_t longest(struct md5_stream **streams, u32 n)
{
    size_t len = 0;
    for (u32 i = 0; i < n; i++) {
        len = MAX(len, streams[i]->len);
    }
    return len;
}

static void batch_run(struct deferred *d)
{
    struct md5_batch *b = CONTAINER_OF(d, struct md5_batch, deferred);
    struct md5_stream *streams[RUN_STREAMS_MAX];
    struct md5_lane_job jobs[RUN_STREAMS_MAX];
    u32 n = batch_take(&b->urgent, streams, 0, RUN_STREAMS_MAX);
    if (n == 0 && b->open > 1) {
        return; // the lone stream that asked has got company: wait for somebody urgent
    }
    size_t piece = n == 0 ? PIECE_BYTES_MAX : longest(streams, n);
    u32 spare = n == 0 ? 1 : ALIGN_UP(n, MD5_LANES_MAX) - n;
    n = batch_take(&b->lazy, streams, n, MIN(spare, RUN_STREAMS_MAX - n));
    if (n == 0) {
        return;
    }
    piece = MIN(piece, RUN_BYTES_MAX / n);
    piece = MIN(piece, PIECE_BYTES_MAX);
    piece = MAX(ALIGN_DOWN(piece, (size_t)DIGEST_BLOCK), (size_t)DIGEST_BLOCK);
    for (u32 i = 0; i < n; i++) {
        struct md5_stream *s = streams[i];
        size_t len = MIN(s->len, piece);
        if (!s->is_urgent) {
            len = ALIGN_DOWN(len, (size_t)DIGEST_BLOCK);
        }
        jobs[i] = (struct md5_lane_job){.ctx = &s->ctx, .data = BYTES(s->data, len)};
        s->data += len;
        s->len -= len;
    }
    md5_lanes_update(jobs, n);
    b->runs++;
    b->pieces += n;
    for (u32 i = 0; i < n; i++) {
        struct md5_stream *s = streams[i];
        if (s->is_urgent && s->len == 0) {
            s->is_urgent = false;
            list_remove(&s->node);
            list_add_tail(&b->lazy, &s->node);
            event_set(&s->done);
        }
    }
    if (!list_is_empty(&b->urgent) || (b->open == 1 && streams[0]->len >= LONE_BYTES_MIN)) {
        core_defer(d);
    }
}

void md5_batch_init(struct md5_batch *b)
{
    *b = (struct md5_batch){.deferred = {.fn = batch_run}};
    list_init(&b->deferred.node);
    list_init(&b->urgent);
    list_init(&b->lazy);
}

void md5_stream_open(struct md5_stream *s, struct md5_batch *b)
{
    s->batch = b;
    s->data = NULL;
    s->len = 0;
    s->is_urgent = false;
    md5_init(&s->ctx);
    list_add_tail(&b->lazy, &s->node);
    b->open++;
}

void md5_stream_add(struct md5_stream *s, const u8 *data, size_t len)
{
    ASSERT(!s->is_urgent);
    ASSERT(s->len == 0 || s->data + s->len == data);
    if (s->len == 0) {
        s->data = data;
    }
    s->len += len;
    if (s->batch->open == 1 && s->len >= LONE_BYTES_MIN) {
        core_defer(&s->batch->deferred);
    }
}

MAY_WAIT void md5_stream_flush(struct md5_stream *s)
{
    ASSERT(!s->is_urgent);
    if (s->len == 0) {
        return;
    }
    s->is_urgent = true;
    event_init(&s->done);
    list_remove(&s->node);
    list_add_tail(&s->batch->urgent, &s->node);
    core_defer(&s->batch->deferred);
    event_wait_certain(&s->done);
    ASSERT(s->len == 0 && !s->is_urgent);
}

void md5_stream_close(struct md5_stream *s)
{
    ASSERT(!s->is_urgent && s->batch->open > 0);
    list_remove(&s->node);
    s->batch->open--;
    s->batch = NULL;
}
