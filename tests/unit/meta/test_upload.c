// SPDX-License-Identifier: Apache-2.0
// Multipart uploads: the whole life, every refusal, repeats, races, lists, and what is left over.
#include "bed.h"

#include "base/endian.h"
#include "meta/keys.h"

#define KEY   B("dir/object")
#define PARTS 5

struct up {
    struct meta *meta;
    struct bytes key;
    char id[META_UPLOAD_ID_CHARS + 1];
    struct complete_part parts[16];
    u64 sizes[16];
    u32 count;
};

static void up_start(struct bed *bed, struct up *u, u8 algorithm, u8 type)
{
    struct upload_options o = {
        .bucket = B("bkt"), .key = KEY, .checksum_algorithm = algorithm, .checksum_type = type};
    *u = (struct up){.meta = bed->meta, .key = KEY};
    CHECK_OK(upload_create(bed->meta, &o, u->id));
    CHECK(strlen(u->id) == META_UPLOAD_ID_CHARS);
}

static enum err part_put(struct up *u, u32 number, u64 size, u64 seed, struct object_info *info)
{
    struct put p = {.bucket = B("bkt"),
                    .key = u->key,
                    .size = size,
                    .seed = seed,
                    .upload_id = bytes_from_string(u->id),
                    .part_number = number};
    return put_run(u->meta, &p, info);
}

static void up_part(struct up *u, u32 number, u64 size)
{
    struct object_info info;
    CHECK_OK(part_put(u, number, size, number, &info));
    u->sizes[u->count] = size;
    u->parts[u->count++] =
        (struct complete_part){.number = number, .etag = info.etag, .checksum = info.checksum};
}

static struct complete_request request(const struct up *u)
{
    return (struct complete_request){.bucket = B("bkt"),
                                     .key = u->key,
                                     .upload_id = bytes_from_string(u->id),
                                     .parts = u->parts,
                                     .part_count = u->count};
}

static enum err up_complete(struct up *u, struct object_info *info)
{
    struct complete_request rq = request(u);
    return upload_complete(u->meta, &rq, info);
}

static enum err up_find(struct up *u)
{
    struct upload_info info;
    return upload_find(u->meta, B("bkt"), u->key, bytes_from_string(u->id), &info);
}

static enum err up_abort(struct up *u)
{
    return upload_abort(u->meta, B("bkt"), u->key, bytes_from_string(u->id));
}

static void bucket_make(struct bed *bed)
{
    struct bucket b;
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
}

// Every part's bytes are where they belong, by whole reads and by part.
static void check_parts(struct bed *bed, const struct up *u)
{
    struct object_reader r;
    struct arena arena;
    u64 at = 0;
    arena_init(&arena, 4 * MIB);
    CHECK_OK(object_open(bed->meta, B("bkt"), u->key, false, &arena, &r));
    CHECK(r.part_count == u->count && r.info.etag.parts == u->count);
    for (u32 i = 0; i < u->count; i++) {
        struct object_part part;
        struct bytes got;
        CHECK_OK(object_part_at(&r, i, &part));
        CHECK(part.number == u->parts[i].number && part.size == u->sizes[i] && part.offset == at);
        CHECK_OK(object_part_find(&r, part.number, &part));
        CHECK(part.offset == at);
        for (u64 done = 0; done < part.size; done += got.len) {
            u8 want[4096];
            CHECK_OK(object_read(&r, at + done, MIN(part.size - done, (u64)4096), &got));
            CHECK(got.len > 0);
            pattern(part.number, done, want, got.len);
            CHECK(memcmp(want, got.data, got.len) == 0);
        }
        at += part.size;
    }
    CHECK(at == r.info.size);
    struct object_part none;
    CHECK_ERR(object_part_find(&r, 9999, &none), ERR_S3_INVALID_PART_NUMBER);
    CHECK_ERR(object_part_at(&r, u->count, &none), ERR_S3_INVALID_PART_NUMBER);
    // In one sweep, over the borders of parts.
    for (u64 offset = 0; offset < at;) {
        struct bytes got;
        CHECK_OK(object_read(&r, offset, at - offset, &got));
        CHECK(got.len > 0);
        offset += got.len;
    }
    object_close(&r);
    arena_deinit(&arena);
}

static void life_body(struct bed *bed)
{
    struct up u;
    struct object_info info;
    struct object_info seen;
    struct md5 md5;
    u8 want[16];
    const struct attr attr = {B("content-type"), B("video/mp4")};
    struct upload_options o = {.bucket = B("bkt"), .key = KEY, .attrs = &attr, .attr_count = 1};
    bucket_make(bed);
    up_start(bed, &u, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    CHECK_OK(up_abort(&u));
    CHECK_OK(upload_create(bed->meta, &o, u.id));
    u.count = 0;
    up_part(&u, 2, 2 * MIB + 3);
    up_part(&u, 3, 5000);
    up_part(&u, 70, 1 * MIB);
    up_part(&u, 10000, 7);
    CHECK_ERR(head(bed->meta, B("bkt"), KEY, &seen), ERR_S3_NO_SUCH_KEY);
    bed_reopen(bed);
    u.meta = bed->meta;
    CHECK_OK(up_complete(&u, &info));
    md5_init(&md5);
    for (u32 i = 0; i < u.count; i++) {
        md5_update(&md5, BYTES(u.parts[i].etag.md5, 16));
    }
    md5_final(&md5, want);
    CHECK(memcmp(info.etag.md5, want, 16) == 0 && info.etag.parts == 4);
    CHECK(info.size == 3 * MIB + 5010);
    for (u32 round = 0; round < 2; round++) {
        CHECK_OK(head(bed->meta, B("bkt"), KEY, &seen));
        CHECK(etag_equal(&seen.etag, &info.etag) && seen.modified_ns == info.modified_ns);
        check_parts(bed, &u);
        CHECK_ERR(up_find(&u), ERR_S3_NO_SUCH_UPLOAD);
        CHECK_ERR(up_abort(&u), ERR_S3_NO_SUCH_UPLOAD);
        CHECK_ERR(part_put(&u, 1, 10, 1, &seen), ERR_S3_NO_SUCH_UPLOAD);
        bed_reopen(bed);
        u.meta = bed->meta;
    }
    // Attributes of the upload are the object's; copy onto itself keeps the parts.
    struct object_reader r;
    struct arena arena;
    arena_init(&arena, MIB);
    CHECK_OK(object_open(bed->meta, B("bkt"), KEY, true, &arena, &r));
    struct object_part part;
    CHECK(r.attr_count == 1 && bytes_equal(r.attrs[0].value, attr.value));
    CHECK_OK(object_part_find(&r, 70, &part));
    CHECK(part.size == MIB);
    object_close(&r);
    CHECK_OK(object_rewrite_attrs(bed->meta, B("bkt"), KEY, NULL, 0, NULL, &seen));
    check_parts(bed, &u);
    arena_deinit(&arena);
}

static bool is_same(const struct object_info *a, const struct object_info *b)
{
    return a->size == b->size && a->modified_ns == b->modified_ns &&
           etag_equal(&a->etag, &b->etag) &&
           memcmp(&a->checksum, &b->checksum, sizeof(a->checksum)) == 0;
}

static void again_body(struct bed *bed)
{
    struct up u;
    struct object_info first;
    struct object_info again;
    bucket_make(bed);
    up_start(bed, &u, CHECKSUM_CRC32, CHECKSUM_COMPOSITE);
    up_part(&u, 1, 2000);
    up_part(&u, 2, 2000);
    CHECK_OK(up_complete(&u, &first));
    bed_reopen(bed);
    u.meta = bed->meta;
    CHECK_OK(up_complete(&u, &again));
    CHECK(is_same(&first, &again));
    // A change of one attribute changes neither parts nor the answer.
    CHECK_OK(object_set_attr(bed->meta, B("bkt"), KEY, &(struct attr){B("tagging"), B("a=1")}));
    check_parts(bed, &u);
    CHECK_OK(up_complete(&u, &again));
    CHECK(is_same(&first, &again));
    // Even under a condition that the first one made untrue.
    struct complete_request rq = request(&u);
    rq.condition.if_none_match_any = true;
    CHECK_OK(upload_complete(bed->meta, &rq, &again));
    // Other parts are another request.
    u.count = 1;
    CHECK_ERR(up_complete(&u, &again), ERR_S3_NO_SUCH_UPLOAD);
    u.count = 2;
    u.parts[1].number = 3;
    CHECK_ERR(up_complete(&u, &again), ERR_S3_NO_SUCH_UPLOAD);
    u.parts[1].number = 2;
    u.parts[1].etag.md5[0] ^= 1;
    CHECK_ERR(up_complete(&u, &again), ERR_S3_NO_SUCH_UPLOAD);
    u.parts[1].etag.md5[0] ^= 1;
    // Nor is it the result any more when something else has been written.
    CHECK_OK(put_simple(bed->meta, B("bkt"), KEY, 10, 1));
    CHECK_ERR(up_complete(&u, &again), ERR_S3_NO_SUCH_UPLOAD);
}

static void refused(struct up *u, struct complete_request rq, enum err want)
{
    struct object_info info;
    CHECK_ERR(upload_complete(u->meta, &rq, &info), want);
    CHECK_OK(up_find(u)); // a failed Complete leaves the upload as it was
}

static void refusals_body(struct bed *bed)
{
    struct up u;
    struct object_info info;
    struct complete_part parts[4];
    bucket_make(bed);
    up_start(bed, &u, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    struct complete_request rq = request(&u);
    refused(&u, rq, ERR_S3_MALFORMED_XML); // no parts
    up_part(&u, 1, 2000);
    up_part(&u, 2, 999); // smaller than TEST_PART_MIN
    up_part(&u, 3, 10);
    rq = request(&u);
    rq.parts = parts;
#define FRESH() memcpy(parts, u.parts, sizeof(parts))
    FRESH();
    refused(&u, rq, ERR_S3_ENTITY_TOO_SMALL);
    FRESH();
    parts[0].etag.md5[0] ^= 1; // comes before the sizes
    refused(&u, rq, ERR_S3_INVALID_PART);
    FRESH();
    parts[0].etag.parts = 1;
    refused(&u, rq, ERR_S3_INVALID_PART);
    FRESH();
    parts[2].number = 4;
    refused(&u, rq, ERR_S3_INVALID_PART);
    parts[2].number = META_PART_NUMBER_MAX + 1;
    refused(&u, rq, ERR_S3_INVALID_PART);
    parts[2].number = 2;
    refused(&u, rq, ERR_S3_INVALID_PART_ORDER);
    parts[2].number = 1;
    refused(&u, rq, ERR_S3_INVALID_PART_ORDER);
    FRESH();
    parts[0].number = 0;
    refused(&u, rq, ERR_S3_INVALID_PART);
    FRESH();
    parts[1] = parts[2];
    rq.part_count = 2;
    rq.has_size = true;
    rq.size = 2011;
    refused(&u, rq, ERR_S3_INVALID_REQUEST);
    rq.size = 2010;
    rq.condition.if_match_any = true;
    refused(&u, rq, ERR_S3_NO_SUCH_KEY);
    CHECK_OK(put_simple(bed->meta, B("bkt"), KEY, 10, 1));
    rq.condition = (struct write_condition){.if_none_match_any = true};
    refused(&u, rq, ERR_S3_PRECONDITION_FAILED);
    rq.condition = (struct write_condition){.if_match_any = true};
    CHECK_OK(upload_complete(bed->meta, &rq, &info));
    CHECK(info.size == 2010 && info.etag.parts == 2);
#undef FRESH
    // Identities that are none.
    rq.upload_id = B("nonsense");
    CHECK_ERR(upload_complete(bed->meta, &rq, &info), ERR_S3_NO_SUCH_UPLOAD);
    struct up other;
    up_start(bed, &other, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    other.key = B("another key");
    CHECK_ERR(part_put(&other, 1, 10, 1, &info), ERR_S3_NO_SUCH_UPLOAD);
    CHECK_ERR(up_abort(&other), ERR_S3_NO_SUCH_UPLOAD);
    other.key = KEY;
    CHECK_ERR(part_put(&other, META_PART_NUMBER_MAX + 1, 10, 1, &info), ERR_S3_INVALID_ARGUMENT);
    CHECK_OK(part_put(&other, META_PART_NUMBER_MAX, 10, 1, &info));
    CHECK_OK(up_abort(&other));
}

// ---- checksums

static void whole_of(const struct up *u, u8 algorithm, u8 *all)
{
    u64 at = 0;
    (void)algorithm;
    for (u32 i = 0; i < u->count; i++) {
        pattern(u->parts[i].number, 0, all + at, u->sizes[i]);
        at += u->sizes[i];
    }
}

static void digest(u8 algorithm, struct bytes data, u8 out[CHECKSUM_BYTES_MAX])
{
    memset(out, 0, CHECKSUM_BYTES_MAX);
    if (algorithm == CHECKSUM_CRC32) {
        store_be32(out, crc32(0, data));
    } else if (algorithm == CHECKSUM_CRC32C) {
        store_be32(out, crc32c(0, data));
    } else if (algorithm == CHECKSUM_CRC64NVME) {
        store_be64(out, crc64nvme(0, data));
    } else if (algorithm == CHECKSUM_SHA1) {
        sha1_digest(data, out);
    } else {
        sha256_digest(data, out);
    }
}

static void checksum_one(struct bed *bed, u8 algorithm, u8 type)
{
    struct up u;
    struct object_info info;
    struct checksum want = {.algorithm = algorithm, .type = type};
    u8 *all = malloc(3 * MIB);
    u8 values[3 * CHECKSUM_BYTES_MAX];
    size_t n = checksum_bytes(algorithm);
    CHECK(all != NULL);
    up_start(bed, &u, algorithm, type);
    up_part(&u, 1, MIB + 1);
    up_part(&u, 5, 3000);
    up_part(&u, 6, 1);
    whole_of(&u, algorithm, all);
    for (u32 i = 0; i < 3; i++) {
        // Kept though the client did not send any.
        CHECK(u.parts[i].checksum.algorithm == algorithm);
        memcpy(values + i * n, u.parts[i].checksum.value, n);
    }
    if (type == CHECKSUM_FULL_OBJECT) {
        digest(algorithm, BYTES(all, MIB + 3002), want.value);
    } else {
        digest(algorithm, BYTES(values, 3 * n), want.value);
    }
    struct complete_request rq = request(&u);
    rq.checksum = want;
    rq.checksum.value[0] ^= 1;
    refused(&u, rq, ERR_S3_BAD_DIGEST);
    rq.checksum = want;
    rq.checksum.algorithm = algorithm == CHECKSUM_SHA1 ? CHECKSUM_CRC32 : CHECKSUM_SHA1;
    refused(&u, rq, ERR_S3_INVALID_REQUEST);
    rq.checksum = want;
    u.parts[1].checksum.value[0] ^= 1;
    refused(&u, rq, ERR_S3_INVALID_PART);
    u.parts[1].checksum.algorithm = CHECKSUM_NONE; // not repeated: known all the same
    CHECK_OK(upload_complete(bed->meta, &rq, &info));
    CHECK(memcmp(&info.checksum, &want, sizeof(want)) == 0);
    struct object_info seen;
    CHECK_OK(head(bed->meta, B("bkt"), KEY, &seen));
    CHECK(memcmp(&seen.checksum, &want, sizeof(want)) == 0);
    free(all);
}

static void checksums_body(struct bed *bed)
{
    char id[META_UPLOAD_ID_CHARS + 1];
    struct upload_options o = {.bucket = B("bkt"), .key = KEY};
    bucket_make(bed);
    for (u8 a = CHECKSUM_CRC32; a < CHECKSUM_COUNT; a++) {
        for (u8 type = CHECKSUM_FULL_OBJECT; type <= CHECKSUM_COMPOSITE; type++) {
            bool is_sha = a == CHECKSUM_SHA1 || a == CHECKSUM_SHA256;
            bool is_allowed = type == CHECKSUM_FULL_OBJECT ? !is_sha : a != CHECKSUM_CRC64NVME;
            o.checksum_algorithm = a;
            o.checksum_type = type;
            if (is_allowed) {
                checksum_one(bed, a, type);
            } else {
                CHECK_ERR(upload_create(bed->meta, &o, id), ERR_S3_INVALID_REQUEST);
            }
        }
    }
    // A part with another algorithm than its upload's.
    struct up u;
    struct object_info info;
    up_start(bed, &u, CHECKSUM_SHA256, CHECKSUM_COMPOSITE);
    struct put p = {.bucket = B("bkt"),
                    .key = KEY,
                    .size = 10,
                    .checksum = CHECKSUM_CRC32,
                    .upload_id = bytes_from_string(u.id),
                    .part_number = 1};
    CHECK_ERR(put_run(bed->meta, &p, &info), ERR_S3_INVALID_REQUEST);
}

// ---- parts sent again, empty parts, unused parts

static void resent_body(struct bed *bed)
{
    struct up u;
    struct object_info info;
    struct bed_counts before;
    struct bed_counts after;
    bool existed;
    bucket_make(bed);
    bed_counts(bed, &before);
    up_start(bed, &u, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    for (u32 i = 0; i < 5; i++) {
        CHECK_OK(part_put(&u, 1, 2 * MIB, 100 + i, &info));
    }
    CHECK_OK(part_put(&u, 3, 2 * MIB, 100, &info)); // not named in Complete
    up_part(&u, 1, MIB + 10);
    up_part(&u, 2, 0); // an empty last part
    CHECK_OK(up_complete(&u, &info));
    CHECK(info.size == MIB + 10);
    check_parts(bed, &u);
    CHECK_OK(store_compact_all(bed->store));
    check_parts(bed, &u);
    bed_counts(bed, &after);
    CHECK(after.keys == before.keys + 1);
    CHECK(after.live_bytes <= before.live_bytes + MIB + 128 * KIB);
    CHECK_OK(object_delete(bed->meta, B("bkt"), KEY, NULL, &existed));
    CHECK_OK(store_compact_all(bed->store));
    bed_counts(bed, &after);
    CHECK(after.keys == before.keys);
    CHECK(after.live_bytes <= before.live_bytes + 64 * KIB);
}

struct many_call {
    struct up *up;
    struct complete_part *parts;
};

static void put_numbered(void *arg, u32 i)
{
    struct many_call *c = arg;
    struct object_info info;
    CHECK_OK(part_put(c->up, i + 1, TEST_PART_MIN, i, &info));
    c->parts[i] = (struct complete_part){.number = i + 1, .etag = info.etag};
}

// More parts than one sweep takes.
static void many_parts_body(struct bed *bed)
{
    enum { MANY = 700 };
    struct complete_part *parts = calloc(MANY, sizeof(*parts));
    struct up u;
    struct object_info info;
    struct bed_counts before;
    struct bed_counts after;
    CHECK(parts != NULL);
    bucket_make(bed);
    bed_counts(bed, &before);
    for (u32 round = 0; round < 2; round++) {
        up_start(bed, &u, CHECKSUM_CRC64NVME, CHECKSUM_FULL_OBJECT);
        struct many_call c = {.up = &u, .parts = parts};
        bed_parallel(MANY, put_numbered, &c);
        if (round == 0) {
            CHECK_OK(up_abort(&u));
            bed_counts(bed, &after);
            CHECK(after.keys == before.keys);
            continue;
        }
        struct complete_request rq = request(&u);
        rq.parts = parts;
        rq.part_count = MANY;
        CHECK_OK(upload_complete(bed->meta, &rq, &info));
        CHECK(info.size == MANY * TEST_PART_MIN);
        bed_counts(bed, &after);
        CHECK(after.keys == before.keys + 1);
    }
    bed_reopen(bed);
    struct object_reader r;
    struct arena arena;
    arena_init(&arena, 4 * MIB);
    CHECK_OK(object_open(bed->meta, B("bkt"), KEY, false, &arena, &r));
    for (u32 i = 0; i < MANY; i++) {
        u8 want[TEST_PART_MIN];
        struct bytes got;
        struct object_part part;
        CHECK_OK(object_part_find(&r, i + 1, &part));
        CHECK_OK(object_read(&r, part.offset, part.size, &got));
        CHECK(got.len == TEST_PART_MIN);
        pattern(i, 0, want, sizeof(want));
        CHECK(memcmp(want, got.data, got.len) == 0);
    }
    object_close(&r);
    arena_deinit(&arena);
    free(parts);
}

struct raw_delete {
    struct bed *bed;
    struct meta_key key;
    u32 pg;
};

static void raw_delete_there(void *arg)
{
    struct raw_delete *d = arg;
    struct pg_key_lock lock;
    struct store_change change = {.key = meta_key_bytes(&d->key), .is_delete = true};
    CHECK_OK(pg_key_lock(d->bed->store, d->pg, change.key, &lock));
    CHECK_OK(pg_commit(d->bed->store, d->pg, &change, 1));
    pg_key_unlock(&lock);
}

// A crash between the commit that ends an upload and the sweep of its parts leaves parts without an
// upload: the next start sweeps them, and no part of an upload that lives.
static void orphans_body(struct bed *bed)
{
    struct up u;
    struct up living;
    struct bucket b;
    struct meta_key object;
    struct raw_delete d = {.bed = bed};
    struct upload_id id;
    struct bed_counts before;
    struct bed_counts after;
    struct object_info info;
    bucket_make(bed);
    up_start(bed, &living, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    up_part(&living, 1, 3 * MIB);
    bed_counts(bed, &before);
    up_start(bed, &u, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    struct complete_part parts[300];
    struct many_call c = {.up = &u, .parts = parts};
    bed_parallel(ARRAY_LEN(parts), put_numbered, &c);
    CHECK(upload_id_parse(bytes_from_string(u.id), &id));
    CHECK_OK(bucket_find(bed->meta, B("bkt"), &b));
    key_object(&object, b.id, KEY);
    key_upload(&d.key, b.id, KEY, &id);
    d.pg = store_pg_of(bed->store, meta_key_bytes(&object));
    bed_on(store_pg_core(bed->store, d.pg), raw_delete_there, &d);
    bed_counts(bed, &after);
    CHECK(after.keys == before.keys + 300);
    bed_reopen(bed);
    bed_counts(bed, &after);
    CHECK(after.keys == before.keys);
    living.meta = bed->meta;
    CHECK_OK(up_complete(&living, &info));
    check_parts(bed, &living);
}

// ---- races

enum racer_kind { RACE_COMPLETE, RACE_ABORT, RACE_PART, RACE_KINDS };

struct racer {
    struct up *up;
    enum racer_kind kind;
    u32 core;
    u32 delay;
    enum err result;
    struct object_info info;
};

static void racer_there(void *arg)
{
    struct racer *r = arg;
    for (u32 i = 0; i < r->delay; i++) {
        fiber_yield();
    }
    if (r->kind == RACE_COMPLETE) {
        r->result = up_complete(r->up, &r->info);
    } else if (r->kind == RACE_ABORT) {
        r->result = up_abort(r->up);
    } else {
        // The same bytes again: Complete may use the old part or the new one.
        r->result = part_put(r->up, 1, 70000, 1, &r->info);
    }
}

static void racer_fiber(void *arg)
{
    struct racer *r = arg;
    CHECK_OK(core_call(r->core, racer_there, r));
}

static void race_round(struct bed *bed, u32 round, u32 *completed, u32 *aborted)
{
    struct up u;
    struct racer racers[6];
    struct group g;
    u32 completes = 0;
    u32 aborts = 0;
    struct object_info seen;
    up_start(bed, &u, CHECKSUM_NONE, CHECKSUM_FULL_OBJECT);
    up_part(&u, 1, 70000);
    up_part(&u, 2, 500);
    group_init(&g);
    for (u32 i = 0; i < ARRAY_LEN(racers); i++) {
        racers[i] = (struct racer){.up = &u,
                                   .kind = (enum racer_kind)draw_below(&bed->seed, RACE_KINDS),
                                   .core = (round + i) % bed->cores,
                                   .delay = (u32)draw_below(&bed->seed, 6)};
        CHECK_OK(group_spawn(&g, racer_fiber, &racers[i]));
    }
    group_join(&g);
    group_deinit(&g);
    for (u32 i = 0; i < ARRAY_LEN(racers); i++) {
        CHECK(racers[i].result == OK || racers[i].result == ERR_S3_NO_SUCH_UPLOAD);
        completes += racers[i].kind == RACE_COMPLETE && racers[i].result == OK;
        aborts += racers[i].kind == RACE_ABORT && racers[i].result == OK;
    }
    // One outcome: completed (then every Complete says so), or aborted once, or still there.
    CHECK(aborts <= 1 && (aborts == 0 || completes == 0));
    for (u32 i = 0; i < ARRAY_LEN(racers) && completes > 0; i++) {
        CHECK(racers[i].kind != RACE_COMPLETE || racers[i].result == OK);
    }
    CHECK_ERR(up_find(&u), completes + aborts > 0 ? ERR_S3_NO_SUCH_UPLOAD : OK);
    CHECK_ERR(head(bed->meta, B("bkt"), KEY, &seen), completes > 0 ? OK : ERR_S3_NO_SUCH_KEY);
    if (completes > 0) {
        bool existed;
        check_parts(bed, &u);
        CHECK_OK(object_delete(bed->meta, B("bkt"), KEY, NULL, &existed));
    } else if (aborts == 0) {
        CHECK_OK(up_abort(&u));
    }
    *completed += completes > 0;
    *aborted += aborts;
}

static void race_body(struct bed *bed)
{
    struct bed_counts before;
    struct bed_counts after;
    u32 completed = 0;
    u32 aborted = 0;
    bucket_make(bed);
    bed_counts(bed, &before);
    for (u32 round = 0; round < 60; round++) {
        race_round(bed, round, &completed, &aborted);
        bed_counts(bed, &after);
        CHECK(after.keys == before.keys && after.meta.upload_gates == 0);
    }
    CHECK(completed > 5 && aborted > 5);
    CHECK_OK(store_compact_all(bed->store));
    bed_counts(bed, &after);
    CHECK(after.live_bytes <= before.live_bytes + 256 * KIB);
}

// ---- lists

static void list_parts_body(struct bed *bed)
{
    struct up u;
    struct part_info *parts;
    struct arena arena;
    u32 count;
    bool is_truncated;
    bucket_make(bed);
    arena_init(&arena, 4 * MIB);
    for (u32 algorithm = 0; algorithm < 2; algorithm++) {
        up_start(bed, &u, algorithm == 0 ? CHECKSUM_NONE : CHECKSUM_SHA256, CHECKSUM_COMPOSITE);
        CHECK_OK(upload_list_parts(bed->meta, B("bkt"), KEY, bytes_from_string(u.id), 0, 10, &arena,
                                   &parts, &count, &is_truncated));
        CHECK(count == 0 && !is_truncated);
        static const u32 numbers[PARTS] = {300, 1, 256, 10000, 2};
        static const u32 sorted[PARTS] = {1, 2, 256, 300, 10000};
        for (u32 i = 0; i < PARTS; i++) {
            up_part(&u, numbers[i], 100 + numbers[i]);
        }
        u32 after = 0;
        u32 seen = 0;
        do {
            CHECK_OK(upload_list_parts(bed->meta, B("bkt"), KEY, bytes_from_string(u.id), after, 2,
                                       &arena, &parts, &count, &is_truncated));
            CHECK(count == MIN(PARTS - seen, 2u) && is_truncated == (seen + count < PARTS));
            for (u32 i = 0; i < count; i++, seen++) {
                CHECK(parts[i].number == sorted[seen]);
                CHECK(parts[i].info.size == 100 + sorted[seen]);
                u8 want[32];
                u8 data[10200];
                pattern(sorted[seen], 0, data, 100 + sorted[seen]);
                sha256_digest(BYTES(data, 100 + sorted[seen]), want);
                CHECK(algorithm == 0 || memcmp(parts[i].info.checksum.value, want, 32) == 0);
                after = parts[i].number;
            }
        } while (is_truncated);
        CHECK(seen == PARTS);
        CHECK_OK(upload_list_parts(bed->meta, B("bkt"), KEY, bytes_from_string(u.id), 0, 0, &arena,
                                   &parts, &count, &is_truncated));
        CHECK(count == 0 && !is_truncated);
        CHECK_OK(up_abort(&u));
        CHECK_ERR(upload_list_parts(bed->meta, B("bkt"), KEY, bytes_from_string(u.id), 0, 2, &arena,
                                    &parts, &count, &is_truncated),
                  ERR_S3_NO_SUCH_UPLOAD);
    }
    arena_deinit(&arena);
}

#define UPLOADS 60

struct listed {
    char key[32];
    char id[META_UPLOAD_ID_CHARS + 1];
};

static int compare_listed(const void *a, const void *b)
{
    const struct listed *x = a;
    const struct listed *y = b;
    int c = strcmp(x->key, y->key);
    return c != 0 ? c : strcmp(x->id, y->id);
}

// Pages of every size give all uploads once, in the order of keys and then of age.
static void list_uploads_body(struct bed *bed)
{
    static struct listed want[UPLOADS];
    static const char *const keys[] = {"a", "a/b", "a/b/c", "a-", "b/1", "b/2", "c"};
    struct arena arena;
    bucket_make(bed);
    for (u32 i = 0; i < UPLOADS; i++) {
        snprintf(want[i].key, sizeof(want[i].key), "%s",
                 keys[draw_below(&bed->seed, ARRAY_LEN(keys))]);
        struct upload_options o = {.bucket = B("bkt"), .key = bytes_from_string(want[i].key)};
        CHECK_OK(upload_create(bed->meta, &o, want[i].id));
        for (u32 j = 0; j < i; j++) {
            // Younger uploads of a key come later.
            CHECK(strcmp(want[j].key, want[i].key) != 0 || strcmp(want[j].id, want[i].id) < 0);
        }
    }
    qsort(want, UPLOADS, sizeof(want[0]), compare_listed);
    for (u32 max = 1; max < UPLOADS + 2; max += 1 + max / 3) {
        struct upload_list_request rq = {.bucket = B("bkt"), .max = max};
        struct listed last;
        struct upload_item *items;
        u32 count;
        u32 seen = 0;
        bool is_truncated;
        do {
            arena_init(&arena, 4 * MIB);
            CHECK_OK(upload_list(bed->meta, &rq, &arena, &items, &count, &is_truncated));
            CHECK(count == MIN(max, UPLOADS - seen));
            CHECK(is_truncated == (seen + count < UPLOADS));
            for (u32 i = 0; i < count; i++, seen++) {
                CHECK(bytes_equal(items[i].key, bytes_from_string(want[seen].key)));
                CHECK(strcmp(items[i].upload_id, want[seen].id) == 0);
                CHECK(items[i].info.initiated_ns > 0);
                last = want[seen];
            }
            arena_deinit(&arena);
            rq.after_key = bytes_from_string(last.key);
            rq.after_upload_id = bytes_from_string(last.id);
        } while (is_truncated);
        CHECK(seen == UPLOADS);
    }
    arena_init(&arena, 4 * MIB);
    struct upload_item *items;
    u32 count;
    bool is_truncated;
    struct upload_list_request rq = {
        .bucket = B("bkt"), .delimiter = B("/"), .after_key = B("a"), .max = 1000};
    // All uploads of "a" are passed over; a/ and b/ roll up.
    CHECK_OK(upload_list(bed->meta, &rq, &arena, &items, &count, &is_truncated));
    CHECK(count >= 3 && bytes_equal(items[count - 1].key, B("c")));
    u32 prefixes = 0;
    for (u32 i = 0; i < count; i++) {
        CHECK(!bytes_equal(items[i].key, B("a")));
        prefixes += items[i].is_prefix;
    }
    CHECK(prefixes == 2);
    rq = (struct upload_list_request){.bucket = B("bkt"),
                                      .prefix = B("a/"),
                                      .delimiter = B("/"),
                                      .after_key = B("a/b/"),
                                      .max = 1000};
    CHECK_OK(upload_list(bed->meta, &rq, &arena, &items, &count, &is_truncated));
    CHECK(count == 0);
    rq.after_upload_id = B("not an id");
    CHECK_ERR(upload_list(bed->meta, &rq, &arena, &items, &count, &is_truncated),
              ERR_S3_INVALID_ARGUMENT);
    arena_deinit(&arena);
}

int main(int argc, char **argv)
{
    static const struct bed_test tests[] = {
        BED_TEST(life),       BED_TEST(again),        BED_TEST(refusals), BED_TEST(checksums),
        BED_TEST(resent),     BED_TEST(many_parts),   BED_TEST(orphans),  BED_TEST(race),
        BED_TEST(list_parts), BED_TEST(list_uploads),
    };
    return bed_main(argc, argv, tests, ARRAY_LEN(tests));
}
