// SPDX-License-Identifier: Apache-2.0
// Receiving an object or a part: bytes land in the frame that goes to the drive, are digested once
// while they are warm, and never copied.
//
// Two frames bound a writer's memory: one that is received into, one that is being written. A
// writer that waits for memory holds at most a frame whose write is certain to end, so waiting
// writers cannot starve each other. Runs on the connection's core; only the write itself travels.
#include "meta/writer.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/endian.h"
#include "codec/crc.h"

#define EMPTY_ROOM_BYTES 4096 // of a writer that expects nothing or does not know

// ---- begin

static enum err writer_options(struct object_writer *w, const struct object_write_options *o)
{
    w->is_part = o->part_number != 0;
    if (w->is_part) {
        if (o->part_number > META_PART_NUMBER_MAX) {
            return ERR_S3_INVALID_ARGUMENT;
        }
        if (!upload_id_parse(o->upload_id, &w->upload)) {
            return ERR_S3_NO_SUCH_UPLOAD;
        }
    }
    if (o->size_expected != UINT64_MAX && o->size_expected > META_PUT_BYTES_MAX) {
        return ERR_S3_ENTITY_TOO_LARGE;
    }
    w->part_number = o->part_number;
    w->size_max = MIN(o->size_expected, META_PUT_BYTES_MAX);
    w->is_inline =
        !w->is_part && (w->size_max <= STORE_INLINE_BYTES_MAX || o->size_expected == UINT64_MAX);
    w->checksums = o->checksums;
    w->needs_md5 = o->needs_md5;
    return OK;
}

MAY_WAIT enum err object_write_begin(struct meta *m, const struct object_write_options *o,
                                     struct object_writer **out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    ASSERT((o->checksums & ~((1u << CHECKSUM_COUNT) - 1)) == 0);
    struct object_writer *w = malloc(sizeof(*w));
    if (w == NULL) {
        return ERR_NO_MEMORY;
    }
    // The arrays after these are filled before they are used.
    memset(w, 0, offsetof(struct object_writer, name));
    memset(&w->is_part, 0, sizeof(*w) - offsetof(struct object_writer, is_part));
    w->magic = WRITER_MAGIC;
    w->meta = m;
    w->home = meta_core(m);
    enum err e = place_find(m, o->bucket, o->key, &w->place);
    if (e == OK) {
        memcpy(w->name, o->key.data, o->key.len);
        w->place.name = BYTES(w->name, o->key.len);
        e = writer_options(w, o);
    }
    if (e == OK && w->is_part) {
        struct upload_info upload;
        e = upload_find(m, o->bucket, o->key, o->upload_id, &upload);
        // What Complete will need of each part, whether the client asks for it or not.
        w->upload_algorithm = upload.checksum_algorithm;
        w->checksums |= 1u << upload.checksum_algorithm;
    }
    if (e != OK) {
        free(w);
        return e;
    }
    group_init(&w->writes);
    md5_stream_open(&w->md5, &w->home->md5);
    sha1_init(&w->sha1);
    sha256_init(&w->sha256);
    w->home->writers++;
    *out = w;
    return OK;
}

// ---- chunks

// On the owner core.
MAY_WAIT static void chunk_write_run(void *arg)
{
    struct object_writer *w = arg;
    struct store *s = w->meta->store;
    if (w->object_id == 0) {
        w->object_id = pg_object_id_new(s, w->place.pg);
        ASSERT(w->object_id != 0);
    }
    w->write_error = pg_extent_write(s, w->place.pg, w->object_id, w->write.chunk, w->write.frame,
                                     w->write.data_bytes);
}

// On the connection's core.
MAY_WAIT static void chunk_write_fiber(void *arg)
{
    struct object_writer *w = arg;
    enum err e = core_call(w->place.core, chunk_write_run, w);
    if (e != OK) {
        w->write_error = e;
    }
    budget_buf_put(&w->home->budget.in, w->write.frame);
    w->write.frame = NULL;
}

MAY_WAIT void writer_settle(struct object_writer *w)
{
    group_join(&w->writes);
    ASSERT(w->write.frame == NULL);
}

static void frame_drop(struct object_writer *w)
{
    budget_buf_put(&w->home->budget.in, w->frame);
    w->frame = NULL;
    w->fill = 0;
    w->frame_room = 0;
}

// Sends the frame to the drive, hashes it meanwhile, and lets go of it.
MAY_WAIT static enum err chunk_flush(struct object_writer *w)
{
    ASSERT(w->frame != NULL && w->fill > 0 && w->frame_offset == STORE_EXTENT_HEADER);
    writer_settle(w);
    TRY(w->write_error);
    buf_ref(w->frame);
    w->write = (struct chunk_write){
        .writer = w, .frame = w->frame, .chunk = w->chunk, .data_bytes = w->fill};
    if (group_spawn(&w->writes, chunk_write_fiber, w) != OK) {
        chunk_write_fiber(w); // no fiber to spare: without overlap
    }
    if (w->needs_md5) {
        md5_stream_flush(&w->md5);
    }
    frame_drop(w);
    w->chunk++;
    return OK;
}

MAY_WAIT static enum err frame_take(struct object_writer *w)
{
    u64 left = w->size_max - w->size;
    size_t room = MIN(left, (u64)STORE_EXTENT_BYTES);
    bool has_header = true;
    if (w->is_inline && w->size_max <= STORE_INLINE_BYTES_MAX) {
        has_header = false;
        room = MAX(room, (size_t)EMPTY_ROOM_BYTES);
    }
    w->frame_offset = has_header ? STORE_EXTENT_HEADER : 0;
    TRY(budget_buf_get(&w->home->budget.in, w->frame_offset + ALIGN_UP(room, (size_t)4 * KIB),
                       &w->frame));
    w->frame_room = (u32)room;
    w->fill = 0;
    return OK;
}

MAY_WAIT enum err object_write_buffer(struct object_writer *w, u8 **out, size_t *room)
{
    ASSERT_MAGIC(w, WRITER_MAGIC);
    ASSERT(!w->has_digests && w->home->core == core_id());
    if (w->size == w->size_max) {
        // Nothing more may come, but the caller finds the end by reading on.
        *out = &w->beyond;
        *room = sizeof(w->beyond);
        return OK;
    }
    if (w->frame == NULL) {
        TRY(frame_take(w));
    }
    ASSERT(w->fill < w->frame_room);
    *out = w->frame->data + w->frame_offset + w->fill;
    *room = MIN((u64)(w->frame_room - w->fill), w->size_max - w->size);
    return OK;
}

static void digest_along(struct object_writer *w, struct bytes data)
{
    if (w->needs_md5) {
        md5_stream_add(&w->md5, data.data, data.len);
    }
    if (w->checksums & 1u << CHECKSUM_CRC32) {
        w->crc32 = crc32(w->crc32, data);
    }
    if (w->checksums & 1u << CHECKSUM_CRC32C) {
        w->crc32c = crc32c(w->crc32c, data);
    }
    if (w->checksums & 1u << CHECKSUM_CRC64NVME) {
        w->crc64nvme = crc64nvme(w->crc64nvme, data);
    }
    if (w->checksums & 1u << CHECKSUM_SHA1) {
        sha1_update(&w->sha1, data);
    }
    if (w->checksums & 1u << CHECKSUM_SHA256) {
        sha256_update(&w->sha256, data);
    }
}

MAY_WAIT enum err object_write_advance(struct object_writer *w, size_t n)
{
    ASSERT_MAGIC(w, WRITER_MAGIC);
    if (n == 0) {
        return OK;
    }
    if (w->size == w->size_max) {
        return ERR_S3_ENTITY_TOO_LARGE;
    }
    ASSERT(w->frame != NULL && n <= w->frame_room - w->fill && n <= w->size_max - w->size);
    digest_along(w, BYTES(w->frame->data + w->frame_offset + w->fill, n));
    w->fill += (u32)n;
    w->size += n;
    if (w->is_inline && w->size > STORE_INLINE_BYTES_MAX) {
        w->is_inline = false; // its size was unknown, so the frame has room for the header
    }
    bool is_full = w->fill == STORE_EXTENT_BYTES || (w->size == w->size_max && w->fill > 0);
    return is_full && !w->is_inline ? chunk_flush(w) : OK;
}

// ---- the end of the bytes

MAY_WAIT enum err object_write_digests(struct object_writer *w, struct object_digests *out)
{
    ASSERT_MAGIC(w, WRITER_MAGIC);
    if (!w->has_digests) {
        if (w->frame != NULL && w->fill > 0 && !w->is_inline) {
            TRY(chunk_flush(w));
        }
        if (w->needs_md5) {
            md5_stream_flush(&w->md5);
        }
        struct object_digests *d = &w->digests;
        d->size = w->size;
        md5_final(&w->md5.ctx, d->md5);
        md5_stream_close(&w->md5);
        store_be32(d->checksum[CHECKSUM_CRC32], w->crc32);
        store_be32(d->checksum[CHECKSUM_CRC32C], w->crc32c);
        store_be64(d->checksum[CHECKSUM_CRC64NVME], w->crc64nvme);
        if (w->checksums & 1u << CHECKSUM_SHA1) {
            sha1_final(&w->sha1, d->checksum[CHECKSUM_SHA1]);
        }
        if (w->checksums & 1u << CHECKSUM_SHA256) {
            sha256_final(&w->sha256, d->checksum[CHECKSUM_SHA256]);
        }
        w->has_digests = true;
    }
    *out = w->digests;
    return OK;
}

static void retire_arrived(struct message *m)
{
    struct object_writer *w = CONTAINER_OF(m, struct object_writer, retire);
    pg_extent_abandon(w->meta->store, w->place.pg, w->object_id);
    free(w);
}

MAY_WAIT void writer_destroy(struct object_writer *w)
{
    ASSERT_MAGIC(w, WRITER_MAGIC);
    ASSERT(w->home->core == core_id() && w->home->writers > 0);
    writer_settle(w);
    group_deinit(&w->writes);
    if (!w->has_digests) {
        md5_stream_close(&w->md5);
    }
    frame_drop(w);
    w->home->writers--;
    w->magic = 0;
    if (w->object_id != 0 && w->place.core == core_id()) {
        pg_extent_abandon(w->meta->store, w->place.pg, w->object_id);
        w->object_id = 0;
    }
    if (w->object_id == 0) {
        free(w);
        return;
    }
    w->retire.fn = retire_arrived;
    core_post(w->place.core, &w->retire);
}

MAY_WAIT void object_write_abort(struct object_writer *w)
{
    writer_destroy(w);
}
