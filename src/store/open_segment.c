// SPDX-License-Identifier: Apache-2.0
// Life of an open segment: taken, appended to, closed, sealed.
#include "store/open_segment.h"

#include <stdlib.h>

#include "base/log.h"
#include "store/shard.h"

MAY_WAIT enum err open_segment_create(struct shard_drive *sd, enum segment_kind kind,
                                      enum space_class space, struct open_segment **out)
{
    struct open_segment *os = calloc(1, sizeof(*os));
    if (os == NULL) {
        return ERR_NO_MEMORY;
    }
    enum err e = drive_segment_take(sd->drive, kind, space, &os->seg);
    if (e != OK) {
        free(os);
        return e;
    }
    list_init(&os->node);
    os->sd = sd;
    os->tail = SEGMENT_HEADER_BYTES;
    os->opened_for = space;
    os->is_reserve = space != SPACE_WRITE;
    footer_init(&os->footer);
    *out = os;
    return OK;
}

bool open_segment_has_room(const struct open_segment *os, u64 tail, u32 entry_bytes)
{
    u64 end = ALIGN_UP(tail, SEGMENT_BLOCK_BYTES) + footer_disk_bytes(&os->footer, entry_bytes);
    return end <= os->sd->drive->segment_bytes;
}

void open_segment_drop(struct open_segment *os)
{
    list_remove(&os->node);
    footer_deinit(&os->footer);
    free(os);
}

MAY_WAIT static void seal_fiber(void *arg)
{
    struct open_segment *os = arg;
    struct shard_drive *sd = os->sd;
    fiber_set_deadline(0);
    fiber_shield_enter();
    if (!sd->is_failed) {
        os->seg->used_bytes = os->footer.used_bytes;
        enum err e = footer_write(&os->footer, sd->drive, os->seg);
        if (e == OK) {
            drive_segment_sealed(sd->drive, os->seg);
            if (os->opened_for != SPACE_COMPACT) {
                store_compact_kick(sd->shard->store);
            }
        } else if (e == ERR_NO_MEMORY || e == ERR_LIMIT_REACHED) {
            LOG_WARN("segment_unsealed", "drive=%s segment=%u error=%s", sd->drive->path,
                     os->seg->id, err_name(e));
        } else {
            shard_drive_fail(sd, "footer", e);
        }
    }
    open_segment_drop(os);
    fiber_shield_leave();
}

static void seal_if_done(struct open_segment *os)
{
    if (!os->is_closed || os->users > 0) {
        return;
    }
    if (group_spawn(&os->sd->shard->fibers, seal_fiber, os) != OK) {
        // No fiber left: the next start scans it and seals it then.
        LOG_WARN("segment_unsealed", "drive=%s segment=%u", os->sd->drive->path, os->seg->id);
        open_segment_drop(os);
    }
}

void open_segment_use(struct open_segment *os)
{
    os->users++;
}

void open_segment_unuse(struct open_segment *os)
{
    ASSERT(os->users > 0);
    os->users--;
    seal_if_done(os);
}

void open_segment_close(struct open_segment *os)
{
    ASSERT(!os->is_closed);
    os->is_closed = true;
    seal_if_done(os);
}
