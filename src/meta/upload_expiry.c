// SPDX-License-Identifier: Apache-2.0
// Aborts uploads that were begun too long ago, as AWS's rule AbortIncompleteMultipartUpload does:
// what counts is when an upload was initiated, not when its last part came.
#include "meta/upload_expiry.h"

#include <string.h>

#include "base/log.h"
#include "core/reactor.h"

#define PAGE_UPLOADS     1000
#define ARENA_BYTES_MAX  (16 * MIB) // a page of the longest keys
#define ROUNDS_IN_EXPIRY 10 // an upload is gone at the latest this part of its time too late
#define PAUSE_NS_MIN     NS_PER_S
#define PAUSE_NS_MAX     (3600 * NS_PER_S)

static bool bucket_next(void *arg, const struct bucket *b)
{
    *(struct bucket *)arg = *b;
    return false; // one is enough
}

// One page of a bucket's uploads; `after` moves on to the last one seen.
MAY_WAIT static enum err page_expire(struct meta *m, struct upload_list_request *rq,
                                     struct arena *arena, u64 before_ns, u64 *aborted,
                                     bool *is_last)
{
    struct upload_item *items;
    u32 count;
    bool is_truncated;
    TRY(upload_list(m, rq, arena, &items, &count, &is_truncated));
    *is_last = !is_truncated || count == 0;
    for (u32 i = 0; i < count; i++) {
        struct bytes id = bytes_from_string(items[i].upload_id);
        rq->after_key = items[i].key;
        rq->after_upload_id = id;
        if (items[i].info.initiated_ns >= before_ns) {
            continue;
        }
        enum err e = upload_abort(m, rq->bucket, items[i].key, id);
        if (e != ERR_S3_NO_SUCH_UPLOAD) { // completed or aborted meanwhile
            TRY(e);
            (*aborted)++;
        }
    }
    return OK;
}

MAY_WAIT static enum err bucket_expire(struct meta *m, struct bytes bucket, u64 before_ns,
                                       u64 *aborted)
{
    // Two arenas in turn: where a page begins lies in the one before.
    struct arena arenas[2];
    arena_init(&arenas[0], ARENA_BYTES_MAX);
    arena_init(&arenas[1], ARENA_BYTES_MAX);
    struct upload_list_request rq = {.bucket = bucket, .max = PAGE_UPLOADS};
    enum err e = OK;
    bool is_last = false;
    for (u32 page = 0; e == OK && !is_last; page++) {
        struct arena *arena = &arenas[page % 2];
        arena_deinit(arena);
        arena_init(arena, ARENA_BYTES_MAX);
        e = page_expire(m, &rq, arena, before_ns, aborted, &is_last);
    }
    arena_deinit(&arenas[0]);
    arena_deinit(&arenas[1]);
    return e == ERR_S3_NO_SUCH_BUCKET ? OK : e;
}

MAY_WAIT enum err uploads_expire(struct meta *m, u64 before_ns, u64 *aborted)
{
    struct bucket b = {0};
    *aborted = 0;
    for (;;) {
        struct bucket next = {0};
        bucket_list(m, BYTES_NONE, bytes_from_string(b.name), bucket_next, &next);
        if (next.name[0] == '\0') {
            return OK;
        }
        b = next;
        TRY(bucket_expire(m, bytes_from_string(b.name), before_ns, aborted));
    }
}

MAY_WAIT void upload_expiry_fiber(void *arg)
{
    struct meta *m = arg;
    u64 expiry_ns = m->options.upload_expiry_ns;
    u64 pause_ns = MIN(MAX(expiry_ns / ROUNDS_IN_EXPIRY, PAUSE_NS_MIN), PAUSE_NS_MAX);
    fiber_set_deadline(0);
    while (fiber_sleep(pause_ns) == OK) {
        u64 now_ns = core_wall_ns();
        u64 aborted;
        enum err e = uploads_expire(m, now_ns - MIN(now_ns, expiry_ns), &aborted);
        if (aborted > 0) {
            LOG_INFO("uploads_expired", "uploads=%llu", (unsigned long long)aborted);
        }
        if (e != OK && e != ERR_CANCELLED) {
            LOG_WARN("uploads_not_expired", "error=%s hint=\"tried again later\"", err_name(e));
        }
    }
}
