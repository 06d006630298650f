// SPDX-License-Identifier: Apache-2.0
// The replica that is a drive of this machine: the record log and the extent store of this core.
#include "store/replica.h"

#include "store/shard.h"

MAY_WAIT static enum err local_append(struct replica *r, struct record_group *g)
{
    return record_log_append(&r->sd->log, g);
}

MAY_WAIT static enum err local_record_read(struct replica *r, const struct index_location *at,
                                           struct record_bytes *out)
{
    return record_read(r->sd, at, out);
}

MAY_WAIT static enum err local_extent_write(struct replica *r, const struct extent_name *name,
                                            struct buf *frame, u32 data_bytes)
{
    struct shard_drive *sd = r->sd;
    struct extent_map *map = &sd->shard->extents;
    struct extent_location at;
    u64 ticket;
    TRY(extent_writer_write(&sd->extents, name, frame, data_bytes, SPACE_WRITE, &at, &ticket));
    if (!extent_map_is_alive(map, name->object_id)) {
        return OK; // abandoned meanwhile: what was written is garbage
    }
    TRY(extent_map_add(map, name->object_id, name->chunk, &at));
    extent_map_set_ticket(map, name->object_id, ticket);
    shard_live_add(sd, at.segment, extent_frame_bytes(data_bytes));
    return OK;
}

MAY_WAIT static enum err local_extents_flush(struct replica *r, const struct extent_ref *refs,
                                             u32 count)
{
    u64 ticket = 0;
    for (u32 i = 0; i < count; i++) {
        u64 own = extent_map_ticket(&r->sd->shard->extents, refs[i].object_id);
        ticket = MAX(ticket, own);
    }
    return extent_writer_flush(&r->sd->extents, ticket);
}

MAY_WAIT static enum err local_extent_read(struct replica *r, const struct extent_name *name,
                                           u32 offset, u32 len, struct buf **out, u32 *out_offset)
{
    struct extent_location at;
    if (!extent_map_find(&r->sd->shard->extents, name->object_id, name->chunk, &at)) {
        return ERR_NOT_FOUND;
    }
    return extent_read(r->sd, name, &at, offset, len, out, out_offset);
}

static const struct replica_ops local_ops = {
    .append = local_append,
    .record_read = local_record_read,
    .extent_write = local_extent_write,
    .extents_flush = local_extents_flush,
    .extent_read = local_extent_read,
};

void replica_local_init(struct replica *r, struct shard_drive *sd)
{
    r->ops = &local_ops;
    r->sd = sd;
}
