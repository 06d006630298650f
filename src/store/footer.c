// SPDX-License-Identifier: Apache-2.0
// Building, writing and reading footers. Entries never span blocks; a record with more references
// than one entry takes gets further entries of kind FOOTER_REFS with the same key and offset.
#include "store/footer.h"

#include <stdlib.h>

#include "base/endian.h"
#include "base/log.h"
#include "codec/crc.h"
#include "core/fileio.h"
#include "core/metrics.h"

#define READ_WINDOW_BYTES (16 * FOOTER_BLOCK_BYTES)
#define BLOCK_ROOM        ((u32)(FOOTER_BLOCK_BYTES - sizeof(struct footer_block_fmt)))

void footer_init(struct footer *f)
{
    *f = (struct footer){.used_bytes = SEGMENT_HEADER_BYTES};
}

void footer_deinit(struct footer *f)
{
    for (u32 i = 0; i < f->blocks_made; i++) {
        free(f->blocks[i]);
    }
    free(f->blocks);
    *f = (struct footer){0};
}

void footer_reset(struct footer *f)
{
    f->block_count = 0;
    f->entry_count = 0;
    f->used_bytes = SEGMENT_HEADER_BYTES;
    f->is_suspect = false;
    f->lost = 0;
}

static struct footer_block_fmt *block_header(const struct footer *f, u32 i)
{
    ASSERT(i < f->blocks_made);
    return (struct footer_block_fmt *)(void *)f->blocks[i];
}

static u32 entry_bytes(size_t key_bytes, u32 refs_here)
{
    return (u32)ALIGN_UP(sizeof(struct footer_record_fmt) + 8 * (size_t)refs_here + key_bytes,
                         (size_t)8);
}

u32 footer_record_bytes(size_t key_bytes, u32 ref_count)
{
    u32 bytes = 0;
    u32 left = ref_count;
    do {
        u32 here = MIN(left, (u32)FOOTER_REFS_PER_ENTRY);
        bytes += entry_bytes(key_bytes, here);
        left -= here;
    } while (left > 0);
    return bytes;
}

static u32 last_used(const struct footer *f)
{
    return f->block_count == 0 ? FOOTER_BLOCK_BYTES
                               : block_header(f, f->block_count - 1)->used_bytes;
}

// Blocks beyond the current last one that `more_bytes` of entries may need: each may leave room for
// one largest entry unused.
static u32 blocks_needed(const struct footer *f, u32 more_bytes)
{
    if (more_bytes <= FOOTER_BLOCK_BYTES - last_used(f)) {
        return 0;
    }
    if (more_bytes <= BLOCK_ROOM) {
        return 1;
    }
    u32 usable = BLOCK_ROOM - FOOTER_ENTRY_BYTES_MAX;
    return (more_bytes + usable - 1) / usable;
}

u64 footer_disk_bytes(const struct footer *f, u32 more_bytes)
{
    u32 more_blocks = blocks_needed(f, more_bytes);
    u64 bytes = FOOTER_TRAILER_BYTES;
    if (f->block_count > 0) {
        bytes += (u64)(f->block_count - 1) * FOOTER_BLOCK_BYTES;
    }
    if (more_blocks == 0) {
        u32 used = f->block_count == 0 ? 0 : last_used(f) + more_bytes;
        return bytes + ALIGN_UP(used, SEGMENT_BLOCK_BYTES);
    }
    if (f->block_count > 0) {
        bytes += FOOTER_BLOCK_BYTES;
    }
    if (more_blocks > 1) {
        return bytes + (u64)more_blocks * FOOTER_BLOCK_BYTES;
    }
    u32 used = more_bytes + (u32)sizeof(struct footer_block_fmt);
    return bytes + ALIGN_UP(used, SEGMENT_BLOCK_BYTES);
}

// Gives block number blocks_made memory.
static enum err block_make(struct footer *f)
{
    if (f->blocks_made == f->block_capacity) {
        u32 capacity = MAX(8u, f->block_capacity * 2);
        u8 **blocks = realloc(f->blocks, capacity * sizeof(*blocks));
        if (blocks == NULL) {
            return ERR_NO_MEMORY;
        }
        f->blocks = blocks;
        f->block_capacity = capacity;
    }
    u8 *block = aligned_alloc(SEGMENT_BLOCK_BYTES, FOOTER_BLOCK_BYTES);
    if (block == NULL) {
        return ERR_NO_MEMORY;
    }
    f->blocks[f->blocks_made++] = block;
    return OK;
}

enum err footer_reserve(struct footer *f, u32 more_bytes)
{
    u32 wanted = f->block_count + blocks_needed(f, more_bytes);
    while (f->blocks_made < wanted) {
        TRY(block_make(f));
    }
    return OK;
}

static u8 *entry_room(struct footer *f, u32 bytes)
{
    if (last_used(f) + bytes > FOOTER_BLOCK_BYTES) {
        ASSERT(f->block_count < f->blocks_made);
        f->block_count++;
        *block_header(f, f->block_count - 1) =
            (struct footer_block_fmt){.used_bytes = sizeof(struct footer_block_fmt)};
    }
    struct footer_block_fmt *h = block_header(f, f->block_count - 1);
    u8 *at = f->blocks[f->block_count - 1] + h->used_bytes;
    h->used_bytes += bytes;
    h->entry_count++;
    f->entry_count++;
    return at;
}

void footer_add_record(struct footer *f, u32 offset, const struct record_view *v)
{
    ASSERT(offset % RECORD_ALIGN == 0);
    u8 kind = v->type == RECORD_PUT ? FOOTER_PUT : FOOTER_DELETE;
    u32 done = 0;
    do {
        u32 here = MIN(v->ref_count - done, (u32)FOOTER_REFS_PER_ENTRY);
        u32 bytes = entry_bytes(v->key.len, here);
        u8 *at = entry_room(f, bytes);
        struct footer_record_fmt *r = (struct footer_record_fmt *)(void *)at;
        *r = (struct footer_record_fmt){
            .kind = kind,
            .entry_bytes = (u16)bytes,
            .pg = v->pg,
            .key_bytes = (u16)v->key.len,
            .offset_units = offset / RECORD_ALIGN,
            .bytes = v->frame_bytes,
            .seq = v->seq,
            .epoch = v->epoch,
            .ref_count = (u16)v->ref_count,
            .refs_here = (u16)here,
        };
        memcpy(r->summary, v->summary, STORE_SUMMARY_BYTES);
        u8 *next = at + sizeof(*r);
        for (u32 i = 0; i < here; i++, next += 8) {
            store_le64(next, v->refs[done + i].object_id);
        }
        if (v->key.len > 0) {
            memcpy(next, v->key.data, v->key.len);
        }
        next += v->key.len;
        memset(next, 0, (size_t)(at + bytes - next));
        done += here;
        kind = FOOTER_REFS;
    } while (done < v->ref_count);
    f->used_bytes = MAX(f->used_bytes, offset + v->frame_bytes);
}

void footer_add_extent(struct footer *f, u32 offset, const struct extent_name *name, u32 data_bytes)
{
    ASSERT(offset % EXTENT_BLOCK_BYTES == 0);
    struct footer_extent_fmt *x =
        (struct footer_extent_fmt *)(void *)entry_room(f, sizeof(struct footer_extent_fmt));
    *x = (struct footer_extent_fmt){
        .kind = FOOTER_EXTENT,
        .entry_bytes = sizeof(*x),
        .pg = name->pg,
        .offset_units = offset / RECORD_ALIGN,
        .bytes = extent_frame_bytes(data_bytes),
        .object_id = name->object_id,
        .chunk = name->chunk,
        .data_bytes = data_bytes,
    };
    f->used_bytes = MAX(f->used_bytes, offset + x->bytes);
}

enum err footer_copy_entry(struct footer *f, const u8 *entry, u32 bytes)
{
    ASSERT(bytes % 8 == 0 && bytes <= FOOTER_ENTRY_BYTES_MAX);
    TRY(footer_reserve(f, bytes));
    memcpy(entry_room(f, bytes), entry, bytes);
    return OK;
}

// Bytes of block i on the drive, its header completed and its tail zeroed.
static u32 block_finish(struct footer *f, u32 i, u64 cookie)
{
    struct footer_block_fmt *h = block_header(f, i);
    h->magic = FOOTER_BLOCK_MAGIC;
    h->cookie = cookie;
    h->index = i;
    size_t start = offsetof(struct footer_block_fmt, cookie);
    h->crc = crc32c(0, BYTES(f->blocks[i] + start, h->used_bytes - start));
    u32 bytes =
        i + 1 < f->block_count ? FOOTER_BLOCK_BYTES : ALIGN_UP(h->used_bytes, SEGMENT_BLOCK_BYTES);
    memset(f->blocks[i] + h->used_bytes, 0, bytes - h->used_bytes);
    return bytes;
}

static void trailer_encode(const struct footer *f, const struct segment *seg, u32 footer_offset,
                           u32 footer_bytes, struct footer_trailer_fmt *t)
{
    memset(t, 0, sizeof(*t));
    t->magic = FOOTER_TRAILER_MAGIC;
    t->version = FOOTER_VERSION;
    t->kind = seg->kind;
    t->cookie = seg->cookie;
    t->generation = seg->generation;
    t->segment_id = seg->id;
    t->block_count = f->block_count;
    t->footer_offset = footer_offset;
    t->footer_bytes = footer_bytes;
    t->entry_count = f->entry_count;
    t->used_bytes = f->used_bytes;
    t->flags = f->is_suspect ? FOOTER_FLAG_SUSPECT : 0;
    t->crc = crc32c(0, BYTES(t, offsetof(struct footer_trailer_fmt, crc)));
}

MAY_WAIT enum err footer_write(struct footer *f, struct drive *d, const struct segment *seg)
{
    u32 footer_bytes = 0;
    for (u32 i = 0; i < f->block_count; i++) {
        footer_bytes += block_finish(f, i, seg->cookie);
    }
    u32 end = d->segment_bytes - FOOTER_TRAILER_BYTES;
    if (f->used_bytes + (u64)footer_bytes > end) {
        return ERR_CORRUPT; // frames that a scan found leave no room: not written by this store
    }
    u32 footer_offset = end - footer_bytes;
    u32 at = footer_offset;
    for (u32 i = 0; i < f->block_count; i++) {
        u32 bytes = MIN(end - at, FOOTER_BLOCK_BYTES);
        TRY(fileio_write(seg->fd, f->blocks[i], bytes, at));
        at += bytes;
    }
    ASSERT(at == end);
    TRY(fileio_flush(seg->fd));
    struct buf *b;
    TRY(buf_get_wait(FOOTER_TRAILER_BYTES, &b));
    trailer_encode(f, seg, footer_offset, footer_bytes,
                   (struct footer_trailer_fmt *)(void *)b->data);
    enum err e = fileio_write_durable(seg->fd, b->data, FOOTER_TRAILER_BYTES, end);
    buf_put(b);
    return e;
}

// ---- reading

MAY_WAIT enum err footer_reader_open(struct footer_reader *r, const struct drive *d,
                                     const struct segment *seg)
{
    *r = (struct footer_reader){.drive = d, .seg = seg};
    TRY(buf_get_wait(READ_WINDOW_BYTES, &r->window));
    u32 end = d->segment_bytes - FOOTER_TRAILER_BYTES;
    enum err e = fileio_read(seg->fd, r->window->data, FOOTER_TRAILER_BYTES, end);
    const struct footer_trailer_fmt *t =
        (const struct footer_trailer_fmt *)(const void *)r->window->data;
    if (e == OK && !footer_trailer_check(t, seg->id, seg->cookie, d->segment_bytes)) {
        e = ERR_NOT_FOUND;
    }
    if (e != OK) {
        footer_reader_close(r);
        return e;
    }
    r->at = t->footer_offset;
    r->end = end;
    r->entries_left = t->entry_count;
    r->used_bytes = t->used_bytes;
    r->is_suspect = (t->flags & FOOTER_FLAG_SUSPECT) != 0;
    return OK;
}

static enum err footer_damaged(const struct footer_reader *r)
{
    metric_add(METRIC_STORE_CORRUPT, 1);
    LOG_ERROR("footer_damaged", "drive=%s segment=%u block=%u hint=\"the segment is scanned\"",
              r->drive->path, r->seg->id, r->index);
    return ERR_CORRUPT;
}

MAY_WAIT enum err footer_reader_next(struct footer_reader *r, const u8 **block)
{
    if (r->at == r->end) {
        return r->entries_left == 0 ? ERR_END : footer_damaged(r);
    }
    if (r->at >= r->window_at + r->window_bytes) {
        r->window_at = r->at;
        r->window_bytes = MIN(r->end - r->at, READ_WINDOW_BYTES);
        TRY(fileio_read(r->seg->fd, r->window->data, r->window_bytes, r->window_at));
    }
    u32 bytes = MIN(r->end - r->at, FOOTER_BLOCK_BYTES);
    const u8 *at = r->window->data + (r->at - r->window_at);
    u32 entries = ((const struct footer_block_fmt *)(const void *)at)->entry_count;
    if (footer_block_check(at, bytes, r->seg->cookie, r->index) == 0 || entries > r->entries_left) {
        return footer_damaged(r);
    }
    r->entries_left -= entries;
    r->at += bytes;
    r->index++;
    *block = at;
    return OK;
}

void footer_reader_close(struct footer_reader *r)
{
    buf_put(r->window);
    r->window = NULL;
}

// Copies the blocks as they come.
MAY_WAIT static enum err blocks_read(struct footer *f, struct footer_reader *r)
{
    for (;;) {
        const u8 *block;
        enum err e = footer_reader_next(r, &block);
        if (e != OK) {
            return e == ERR_END ? OK : e;
        }
        if (f->blocks_made == f->block_count) {
            TRY(block_make(f));
        }
        const struct footer_block_fmt *h = (const struct footer_block_fmt *)(const void *)block;
        memcpy(f->blocks[f->block_count++], block, h->used_bytes);
        f->entry_count += h->entry_count;
    }
}

MAY_WAIT enum err footer_read(struct footer *f, const struct drive *d, const struct segment *seg)
{
    footer_reset(f);
    struct footer_reader r;
    TRY(footer_reader_open(&r, d, seg));
    enum err e = blocks_read(f, &r);
    f->used_bytes = r.used_bytes;
    f->is_suspect = r.is_suspect;
    footer_reader_close(&r);
    return e;
}
