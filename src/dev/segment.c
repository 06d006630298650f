// SPDX-License-Identifier: Apache-2.0
// A header stands twice. Copy 1 is written and flushed, then copy 0: after a crash at most one is
// torn and the other is whole, and the valid one with the higher generation is the truth. A bit
// that rots in one copy is repaired from the other at the next start.
#include "dev/segment.h"

#include <string.h>

#include "codec/crc.h"
#include "core/fileio.h"
#include "core/metrics.h"

#include "base/log.h"

void segment_header_encode(const struct drive *d, const struct segment *seg, void *block)
{
    struct segment_header_fmt *h = block;
    memset(h, 0, sizeof(*h));
    h->magic = SEGMENT_MAGIC;
    h->version = SEGMENT_VERSION;
    h->kind = seg->kind;
    memcpy(h->store_uuid, d->super.store_uuid, sizeof(h->store_uuid));
    memcpy(h->drive_uuid, d->super.drive_uuid, sizeof(h->drive_uuid));
    h->segment_id = seg->id;
    h->flags = seg->is_written ? SEGMENT_FLAG_WRITTEN : 0;
    h->generation = seg->generation;
    h->cookie = seg->cookie;
    h->segment_bytes = d->segment_bytes;
    h->crc = crc32c(0, BYTES(h, offsetof(struct segment_header_fmt, crc)));
}

enum err segment_header_decode(const struct drive *d, u32 id, const void *block,
                               struct segment_header *out)
{
    const struct segment_header_fmt *h = block;
    if (h->magic != SEGMENT_MAGIC ||
        h->crc != crc32c(0, BYTES(block, offsetof(struct segment_header_fmt, crc)))) {
        return ERR_CORRUPT;
    }
    if (h->version != SEGMENT_VERSION) {
        return ERR_VERSION;
    }
    bool is_ours = memcmp(h->store_uuid, d->super.store_uuid, DRIVE_UUID_BYTES) == 0 &&
                   memcmp(h->drive_uuid, d->super.drive_uuid, DRIVE_UUID_BYTES) == 0 &&
                   h->segment_id == id && h->segment_bytes == d->segment_bytes;
    bool is_kind = h->kind == SEGMENT_FREE || h->kind == SEGMENT_LOG || h->kind == SEGMENT_EXTENT;
    if (!is_ours || !is_kind) {
        return ERR_CORRUPT;
    }
    *out = (struct segment_header){.generation = h->generation,
                                   .cookie = h->cookie,
                                   .kind = h->kind,
                                   .is_written = (h->flags & SEGMENT_FLAG_WRITTEN) != 0};
    return OK;
}

// Rewrites one copy from what is in `seg`.
MAY_WAIT static enum err header_write(struct drive *d, struct segment *seg, u32 copy,
                                      bool is_flushed)
{
    struct buf *b;
    TRY(buf_get_wait(SEGMENT_BLOCK_BYTES, &b));
    segment_header_encode(d, seg, b->data);
    u64 offset = (u64)copy * SEGMENT_BLOCK_BYTES;
    enum err e = is_flushed ? fileio_write_durable(seg->fd, b->data, SEGMENT_BLOCK_BYTES, offset)
                            : fileio_write(seg->fd, b->data, SEGMENT_BLOCK_BYTES, offset);
    buf_put(b);
    return e;
}

// Both copies; one that the drive cannot read is as good as a damaged one. ERR_IO: neither.
MAY_WAIT static enum err headers_load(const struct segment *seg, u8 *copies)
{
    enum err e = fileio_read(seg->fd, copies, SEGMENT_HEADER_BYTES, 0);
    if (e != ERR_IO) {
        return e;
    }
    u32 readable = 0;
    for (u32 i = 0; i < 2; i++) {
        u8 *copy = copies + i * SEGMENT_BLOCK_BYTES;
        e = fileio_read(seg->fd, copy, SEGMENT_BLOCK_BYTES, i * SEGMENT_BLOCK_BYTES);
        if (e == ERR_IO) {
            memset(copy, 0, SEGMENT_BLOCK_BYTES);
        } else if (e != OK) {
            return e;
        } else {
            readable++;
        }
    }
    return readable > 0 ? OK : ERR_IO;
}

MAY_WAIT enum err segment_header_read(struct drive *d, struct segment *seg)
{
    struct buf *b;
    TRY(buf_get_wait(SEGMENT_HEADER_BYTES, &b));
    struct segment_header copy = {0};
    struct segment_header best = {0};
    u32 valid = 0;
    u32 worse = 0; // the copy that is repaired, if they differ
    enum err e = headers_load(seg, b->data);
    bool is_different = memcmp(b->data, b->data + SEGMENT_BLOCK_BYTES, SEGMENT_BLOCK_BYTES) != 0;
    for (u32 i = 0; i < 2 && e == OK; i++) {
        enum err copy_err =
            segment_header_decode(d, seg->id, b->data + i * SEGMENT_BLOCK_BYTES, &copy);
        if (copy_err == ERR_VERSION) {
            e = ERR_VERSION;
        } else if (copy_err == OK && (valid++ == 0 || copy.generation > best.generation)) {
            best = copy;
            worse = 1 - i;
        }
    }
    buf_put(b);
    TRY(e);
    if (valid == 0) {
        metric_add(METRIC_STORE_CORRUPT, 1);
        LOG_ERROR("segment_header_lost", "drive=%s segment=%u", d->path, seg->id);
        return ERR_CORRUPT;
    }
    seg->generation = best.generation;
    seg->cookie = best.cookie;
    seg->kind = (u8)best.kind;
    seg->is_written = best.is_written;
    if (!is_different) {
        return OK;
    }
    LOG_WARN("segment_header_repaired", "drive=%s segment=%u generation=%llu", d->path, seg->id,
             (unsigned long long)seg->generation);
    // Only that one: a crash now must not take the other.
    e = header_write(d, seg, worse, true);
    if (e == ERR_IO) {
        LOG_WARN("segment_header_not_repaired", "drive=%s segment=%u", d->path, seg->id);
        return OK; // the copy that is whole tells all
    }
    return e;
}

MAY_WAIT enum err segment_header_advance(struct drive *d, struct segment *seg,
                                         enum segment_kind kind)
{
    seg->generation++;
    seg->kind = (u8)kind;
    core_random(&seg->cookie, sizeof(seg->cookie));
    TRY(header_write(d, seg, 1, true));
    // While a segment is open its second copy reaches the drive at the latest when it is sealed.
    return header_write(d, seg, 0, kind == SEGMENT_FREE);
}
