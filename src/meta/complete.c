// SPDX-License-Identifier: Apache-2.0
// CompleteMultipartUpload: verifies the list of parts, then makes the object appear and the upload
// disappear in one commit. Nothing is copied: the object's record refers to the parts' extents.
//
// A failure before that commit leaves the upload as it was. After it the parts' records are swept;
// a crash in between leaves them to the next start. The object keeps the id of its upload, so that
// a client that did not hear the answer and asks again gets the same one.
#include "meta/upload.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/endian.h"
#include "codec/crc.h"
#include "codec/digest.h"

#define COMPLETE_SLICE_PARTS 64 // read before the loop gets its turn

// The checksum of the whole, from those of the parts.
struct whole_checksum {
    u8 algorithm;
    u8 type;
    u32 crc32;
    u64 crc64;
    struct sha1 sha1;
    struct sha256 sha256;
};

struct complete_call {
    struct meta *meta;
    const struct complete_request *rq;
    const struct upload_place *place;
    struct object_info info;
    // The object's record: on the heap while it is put together.
    u8 *parts_raw;
    size_t parts_raw_bytes;
    u8 *attrs;
    struct extent_ref *refs;
    u32 ref_count;
    struct md5 md5;
    struct whole_checksum whole;
    enum err result;
};

// ---- checksums

static void whole_start(struct whole_checksum *w, const struct checksum *of_upload)
{
    *w = (struct whole_checksum){.algorithm = of_upload->algorithm, .type = of_upload->type};
    sha1_init(&w->sha1);
    sha256_init(&w->sha256);
}

// A composite checksum is the checksum of the parts' checksums, one after the other.
static void whole_add_composite(struct whole_checksum *w, struct bytes value)
{
    switch ((enum checksum_algorithm)w->algorithm) {
    case CHECKSUM_CRC32:
        w->crc32 = crc32(w->crc32, value);
        break;
    case CHECKSUM_CRC32C:
        w->crc32 = crc32c(w->crc32, value);
        break;
    case CHECKSUM_SHA1:
        sha1_update(&w->sha1, value);
        break;
    case CHECKSUM_SHA256:
        sha256_update(&w->sha256, value);
        break;
    case CHECKSUM_NONE:
    case CHECKSUM_CRC64NVME:
    case CHECKSUM_COUNT:
        ASSERT(w->algorithm == CHECKSUM_CRC32); // the others have no composite
    }
}

static void whole_add(struct whole_checksum *w, const struct object_info *part)
{
    const u8 *value = part->checksum.value;
    if (w->algorithm == CHECKSUM_NONE) {
        return;
    }
    if (w->type == CHECKSUM_COMPOSITE) {
        whole_add_composite(w, BYTES(value, checksum_bytes(w->algorithm)));
    } else if (w->algorithm == CHECKSUM_CRC32) {
        w->crc32 = crc32_combine(w->crc32, load_be32(value), part->size);
    } else if (w->algorithm == CHECKSUM_CRC32C) {
        w->crc32 = crc32c_combine(w->crc32, load_be32(value), part->size);
    } else {
        ASSERT(w->algorithm == CHECKSUM_CRC64NVME);
        w->crc64 = crc64nvme_combine(w->crc64, load_be64(value), part->size);
    }
}

static void whole_finish(struct whole_checksum *w, struct checksum *out)
{
    *out = (struct checksum){.algorithm = w->algorithm, .type = w->type};
    switch ((enum checksum_algorithm)w->algorithm) {
    case CHECKSUM_CRC32:
    case CHECKSUM_CRC32C:
        store_be32(out->value, w->crc32);
        break;
    case CHECKSUM_CRC64NVME:
        store_be64(out->value, w->crc64);
        break;
    case CHECKSUM_SHA1:
        sha1_final(&w->sha1, out->value);
        break;
    case CHECKSUM_SHA256:
        sha256_final(&w->sha256, out->value);
        break;
    case CHECKSUM_NONE:
    case CHECKSUM_COUNT:
        break;
    }
}

static bool checksum_equal(const struct checksum *a, const struct checksum *b)
{
    return a->algorithm == b->algorithm &&
           memcmp(a->value, b->value, checksum_bytes(a->algorithm)) == 0;
}

// ---- the parts

// Compares what the client says about a part with what is there.
static enum err part_check(const struct complete_call *c, u32 index, const struct object_info *part)
{
    const struct complete_part *claimed = &c->rq->parts[index];
    if (!etag_equal(&claimed->etag, &part->etag)) {
        return ERR_S3_INVALID_PART;
    }
    // A part's checksum that the client does not repeat is known all the same.
    if (claimed->checksum.algorithm != CHECKSUM_NONE &&
        !checksum_equal(&claimed->checksum, &part->checksum)) {
        return ERR_S3_INVALID_PART;
    }
    if (c->whole.algorithm != CHECKSUM_NONE && part->checksum.algorithm != c->whole.algorithm) {
        return ERR_S3_INVALID_PART;
    }
    return OK;
}

MAY_WAIT static enum err part_add(struct complete_call *c, u32 index, bool *is_too_small)
{
    u32 number = c->rq->parts[index].number;
    struct object_info part;
    struct extent_ref ref;
    enum err e = part_read(c->meta, c->place, number, &part, &ref);
    if (e != OK) {
        return e == ERR_NOT_FOUND ? ERR_S3_INVALID_PART : e;
    }
    TRY(part_check(c, index, &part));
    // Reported only when every part exists and is the right one.
    if (part.size < c->meta->options.part_bytes_min && index + 1 < c->rq->part_count) {
        *is_too_small = true;
    }
    struct object_part entry = {.number = number, .size = part.size, .checksum = part.checksum};
    part_list_write(c->parts_raw, index, c->whole.algorithm, &entry);
    if (ref.bytes > 0) {
        c->refs[c->ref_count++] = ref;
    }
    c->info.size += part.size;
    md5_update(&c->md5, BYTES(part.etag.md5, sizeof(part.etag.md5)));
    whole_add(&c->whole, &part);
    return OK;
}

MAY_WAIT static enum err parts_collect(struct complete_call *c)
{
    bool is_too_small = false;
    for (u32 i = 0; i < c->rq->part_count; i++) {
        TRY(part_add(c, i, &is_too_small));
        if (i % COMPLETE_SLICE_PARTS == COMPLETE_SLICE_PARTS - 1) {
            fiber_yield();
        }
    }
    return is_too_small ? ERR_S3_ENTITY_TOO_SMALL : OK;
}

// ---- the object

static enum err whole_check(struct complete_call *c)
{
    const struct complete_request *rq = c->rq;
    md5_final(&c->md5, c->info.etag.md5);
    c->info.etag.parts = rq->part_count;
    whole_finish(&c->whole, &c->info.checksum);
    if (c->info.size > META_OBJECT_BYTES_MAX) {
        return ERR_S3_ENTITY_TOO_LARGE;
    }
    if (rq->has_size && rq->size != c->info.size) {
        return ERR_S3_INVALID_REQUEST;
    }
    if (rq->checksum.algorithm != CHECKSUM_NONE) {
        if (rq->checksum.algorithm != c->whole.algorithm) {
            return ERR_S3_INVALID_REQUEST;
        }
        if (!checksum_equal(&rq->checksum, &c->info.checksum)) {
            return ERR_S3_BAD_DIGEST;
        }
    }
    return OK;
}

// With both keys locked.
MAY_WAIT static enum err commit_object(struct complete_call *c, struct bytes attrs)
{
    const struct upload_place *p = c->place;
    struct store *s = c->meta->store;
    struct object_info now;
    bool exists;
    struct store_change changes[2] = {
        {.key = meta_key_bytes(&p->object.key),
         .attrs = attrs,
         .refs = c->refs,
         .ref_count = c->ref_count},
        {.key = meta_key_bytes(&p->key), .is_delete = true},
    };
    TRY(object_peek(s, p->object.pg, changes[0].key, &now, &exists));
    TRY(write_condition_check(&c->rq->condition, exists ? &now : NULL));
    c->info.modified_ns = modified_after(exists ? &now : NULL);
    object_summary_encode(&c->info, changes[0].summary);
    fiber_shield_enter();
    enum err e = pg_commit(s, p->object.pg, changes, 2);
    fiber_shield_leave();
    return e;
}

MAY_WAIT static enum err commit_locked(struct complete_call *c, struct bytes attrs)
{
    const struct upload_place *p = c->place;
    struct pg_key_lock object_lock;
    struct pg_key_lock upload_lock;
    TRY(pg_key_lock(c->meta->store, p->object.pg, meta_key_bytes(&p->object.key), &object_lock));
    enum err e = pg_key_lock(c->meta->store, p->object.pg, meta_key_bytes(&p->key), &upload_lock);
    if (e == OK) {
        e = commit_object(c, attrs);
        pg_key_unlock(&upload_lock);
    }
    pg_key_unlock(&object_lock);
    return e;
}

// Puts the object's record together; the upload's is pinned.
MAY_WAIT static enum err complete_build(struct complete_call *c, const struct pg_record *upload)
{
    struct object_info upload_info;
    struct object_attrs attrs;
    TRY(object_record_check(upload, &upload_info, &attrs));
    whole_start(&c->whole, &upload_info.checksum);
    md5_init(&c->md5);
    c->parts_raw_bytes =
        PART_LIST_HEAD_BYTES + c->rq->part_count * part_list_entry_bytes(c->whole.algorithm);
    c->parts_raw = malloc(c->parts_raw_bytes);
    c->refs = calloc(c->rq->part_count, sizeof(*c->refs));
    if (c->parts_raw == NULL || c->refs == NULL) {
        return ERR_NO_MEMORY;
    }
    TRY(parts_collect(c));
    TRY(whole_check(c));
    struct object_attrs_source source = {
        .attrs_raw = attrs.attrs_raw,
        .checksum = c->info.checksum,
        .upload = &c->place->id,
        .parts_raw = BYTES(c->parts_raw, c->parts_raw_bytes),
    };
    size_t bytes = object_attrs_bytes(&source);
    c->attrs = malloc(bytes);
    if (c->attrs == NULL) {
        return ERR_NO_MEMORY;
    }
    object_attrs_encode(&source, c->attrs);
    return commit_locked(c, BYTES(c->attrs, bytes));
}

// ---- asked again after success

// Is the object the result of this upload and these parts? The ETag stands for the parts' ETags.
static bool is_result(const struct complete_call *c, const struct object_info *info,
                      const struct object_attrs *attrs)
{
    const struct complete_request *rq = c->rq;
    struct md5 md5;
    struct etag etag = {.parts = rq->part_count};
    if (!attrs->has_upload || attrs->parts.count != rq->part_count ||
        memcmp(attrs->upload.bytes, c->place->id.bytes, UPLOAD_ID_BYTES) != 0) {
        return false;
    }
    md5_init(&md5);
    for (u32 i = 0; i < rq->part_count; i++) {
        struct object_part part;
        part_list_at(&attrs->parts, i, &part);
        if (part.number != rq->parts[i].number) {
            return false;
        }
        md5_update(&md5, BYTES(rq->parts[i].etag.md5, sizeof(etag.md5)));
    }
    md5_final(&md5, etag.md5);
    return etag_equal(&etag, &info->etag);
}

MAY_WAIT static enum err complete_again(struct complete_call *c)
{
    struct pg_record record;
    struct object_attrs attrs;
    struct object_info info;
    const struct place *p = &c->place->object;
    enum err e = pg_read(c->meta->store, p->pg, meta_key_bytes(&p->key), &record);
    if (e != OK) {
        return e == ERR_NOT_FOUND ? ERR_S3_NO_SUCH_UPLOAD : e;
    }
    e = object_record_check(&record, &info, &attrs);
    if (e == OK) {
        e = is_result(c, &info, &attrs) ? OK : ERR_S3_NO_SUCH_UPLOAD;
    }
    pg_record_release(&record);
    c->info = info;
    return e;
}

// ---- the call

// Alone with the upload.
MAY_WAIT static enum err complete_alone(struct complete_call *c, struct meta_core *mc)
{
    const struct upload_place *p = c->place;
    struct pg_record upload;
    enum err e = pg_read(c->meta->store, p->object.pg, meta_key_bytes(&p->key), &upload);
    if (e != OK) {
        return e == ERR_NOT_FOUND ? complete_again(c) : e;
    }
    e = complete_build(c, &upload);
    pg_record_release(&upload);
    free(c->parts_raw);
    free(c->refs);
    free(c->attrs);
    TRY(e);
    // The object is there whatever becomes of this; what stays is swept at the next start.
    enum err swept = sweep_upload(mc, p->object.pg, &p->key);
    (void)swept;
    return OK;
}

MAY_WAIT static void complete_run(void *arg)
{
    struct complete_call *c = arg;
    struct meta_core *mc = meta_core(c->meta);
    struct bucket_entry *bucket;
    struct upload_gate *gate;
    c->result = bucket_gate_enter(mc, &c->place->object.bucket, &bucket);
    if (c->result != OK) {
        return;
    }
    c->result = upload_gate_enter(mc, &c->place->id, true, &gate);
    if (c->result == OK) {
        c->result = complete_alone(c, mc);
        upload_gate_leave(gate);
    }
    bucket_gate_leave(mc, bucket);
}

static enum err request_check(const struct complete_request *rq)
{
    u32 before = 0;
    if (rq->part_count == 0 || rq->part_count > META_PART_NUMBER_MAX) {
        return ERR_S3_MALFORMED_XML;
    }
    for (u32 i = 0; i < rq->part_count; i++) {
        u32 number = rq->parts[i].number;
        if (number <= before) {
            return number == 0 ? ERR_S3_INVALID_PART : ERR_S3_INVALID_PART_ORDER;
        }
        if (number > META_PART_NUMBER_MAX) {
            return ERR_S3_INVALID_PART;
        }
        ASSERT(rq->parts[i].checksum.algorithm < CHECKSUM_COUNT);
        before = number;
    }
    return OK;
}

MAY_WAIT enum err upload_complete(struct meta *m, const struct complete_request *rq,
                                  struct object_info *out)
{
    ASSERT_MAGIC(m, META_MAGIC);
    struct upload_place place;
    TRY(upload_place_find(m, rq->bucket, rq->key, rq->upload_id, &place));
    TRY(request_check(rq));
    struct complete_call c = {.meta = m, .rq = rq, .place = &place};
    TRY(core_call(place.object.core, complete_run, &c));
    *out = c.info;
    return c.result;
}
