// SPDX-License-Identifier: Apache-2.0
// Objects: sizes around every internal border, digests, attributes, conditions, races, readers that
// outlive what they read, and writers that are given up.
#include "bed.h"

#include "base/endian.h"

static const u64 sizes[] = {
    0,
    1,
    4095,
    4096,
    4097,
    STORE_INLINE_BYTES_MAX - 1,
    STORE_INLINE_BYTES_MAX,
    STORE_INLINE_BYTES_MAX + 1,
    256 * KIB,
    STORE_EXTENT_BYTES - 1,
    STORE_EXTENT_BYTES,
    STORE_EXTENT_BYTES + 1,
    3 * STORE_EXTENT_BYTES,
    3 * STORE_EXTENT_BYTES + 77777,
};

static void bucket_make(struct bed *bed)
{
    struct bucket b;
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
}

static void sizes_body(struct bed *bed)
{
    char key[64];
    bucket_make(bed);
    for (u32 i = 0; i < ARRAY_LEN(sizes) * 4; i++) {
        struct object_info info;
        u64 size = sizes[i / 4];
        struct put p = {.bucket = B("bkt"),
                        .key = key_of(key, sizeof(key), "k", i),
                        .size = size,
                        .seed = i,
                        .is_size_unknown = i % 2 == 1};
        CHECK_OK(put_run(bed->meta, &p, &info));
        CHECK(info.size == size && info.etag.parts == 0);
        u8 *all = malloc(size + 1);
        u8 md5[16];
        CHECK(all != NULL);
        pattern(i, 0, all, size);
        md5_digest(BYTES(all, size), md5);
        CHECK(memcmp(md5, info.etag.md5, 16) == 0);
        free(all);
    }
    for (u32 round = 0; round < 2; round++) {
        for (u32 i = 0; i < ARRAY_LEN(sizes) * 4; i++) {
            check_object(bed->meta, B("bkt"), key_of(key, sizeof(key), "k", i), sizes[i / 4], i);
        }
        bed_reopen(bed);
    }
}

static void ranges_body(struct bed *bed)
{
    struct object_reader r;
    struct arena arena;
    u64 size = 5 * STORE_EXTENT_BYTES + 12345;
    u64 seed = 3;
    bucket_make(bed);
    CHECK_OK(put_simple(bed->meta, B("bkt"), B("big"), size, 9));
    CHECK_OK(put_simple(bed->meta, B("bkt"), B("small"), 3000, 9));
    arena_init(&arena, MIB);
    for (u32 i = 0; i < 80; i++) {
        u64 len = draw_below(&seed, 3) == 0 ? draw_below(&seed, 5 * MIB) : draw_below(&seed, 9000);
        arena_reset(&arena);
        CHECK_OK(object_open(bed->meta, B("bkt"), B("big"), false, &arena, &r));
        // Several ranges in one reader, so that what was read ahead is not always what comes next.
        for (u32 j = 0; j < 3; j++) {
            struct bytes got;
            check_bytes(&r, 9, draw_below(&seed, size + 10), 1 + len);
            CHECK_OK(object_read(&r, draw_below(&seed, size), size, &got));
            CHECK(got.len > 0);
        }
        object_close(&r);
    }
    CHECK_OK(object_open(bed->meta, B("bkt"), B("small"), false, &arena, &r));
    check_bytes(&r, 9, 2990, 100);
    check_bytes(&r, 9, 0, 1);
    object_close(&r);
    arena_deinit(&arena);
}

// ---- digests and attributes

static void checksums_body(struct bed *bed)
{
    struct object_reader r;
    struct arena arena;
    u64 size = STORE_EXTENT_BYTES + 999;
    u8 *all = malloc(size);
    CHECK(all != NULL);
    bucket_make(bed);
    arena_init(&arena, MIB);
    for (u8 a = CHECKSUM_CRC32; a < CHECKSUM_COUNT; a++) {
        for (u32 small = 0; small < 2; small++) {
            struct object_info info;
            u64 n = small ? 500 : size;
            u8 want[CHECKSUM_BYTES_MAX] = {0};
            struct put p = {
                .bucket = B("bkt"), .key = B("sum"), .size = n, .seed = a, .checksum = a};
            pattern(a, 0, all, n);
            switch ((enum checksum_algorithm)a) {
            case CHECKSUM_CRC32:
                store_be32(want, crc32(0, BYTES(all, n)));
                break;
            case CHECKSUM_CRC32C:
                store_be32(want, crc32c(0, BYTES(all, n)));
                break;
            case CHECKSUM_CRC64NVME:
                store_be64(want, crc64nvme(0, BYTES(all, n)));
                break;
            case CHECKSUM_SHA1:
                sha1_digest(BYTES(all, n), want);
                break;
            case CHECKSUM_SHA256:
                sha256_digest(BYTES(all, n), want);
                break;
            case CHECKSUM_NONE:
            case CHECKSUM_COUNT:
                CHECK(false);
            }
            CHECK_OK(put_run(bed->meta, &p, &info));
            CHECK_OK(object_open(bed->meta, B("bkt"), B("sum"), true, &arena, &r));
            CHECK(r.info.checksum.algorithm == a && r.info.checksum.type == CHECKSUM_FULL_OBJECT);
            CHECK(memcmp(r.info.checksum.value, want, checksum_bytes(a)) == 0);
            object_close(&r);
        }
    }
    arena_deinit(&arena);
    free(all);
}

static void check_attrs(struct bed *bed, const struct attr *attrs, u32 count, bool is_head)
{
    struct object_reader r;
    struct arena arena;
    arena_init(&arena, MIB);
    CHECK_OK(object_open(bed->meta, B("bkt"), B("k"), is_head, &arena, &r));
    CHECK(r.attr_count == count);
    for (u32 i = 0; i < count; i++) {
        CHECK(bytes_equal(r.attrs[i].name, attrs[i].name));
        CHECK(bytes_equal(r.attrs[i].value, attrs[i].value));
    }
    object_close(&r);
    arena_deinit(&arena);
}

static void attrs_body(struct bed *bed)
{
    static char large[60000];
    static struct attr many[META_ATTRS_MAX + 1];
    const struct attr attrs[] = {
        {B("content-type"), B("text/plain; charset=utf-8")},
        {B("x-amz-meta-\xc3\xbc"), B("\x01\xff\r\n")},
        {B("x-amz-meta-empty"), BYTES_NONE},
        {B("x-amz-meta-large"), BYTES(large, sizeof(large))},
    };
    struct object_info info;
    struct object_info again;
    struct put p = {
        .bucket = B("bkt"), .key = B("k"), .size = 100, .attrs = attrs, .attr_count = 4};
    bucket_make(bed);
    memset(large, 'x', sizeof(large));
    CHECK_OK(put_run(bed->meta, &p, &info));
    check_attrs(bed, attrs, 4, true);
    check_attrs(bed, attrs, 4, false);
    // Copy onto itself: other attributes and a later time, the same bytes.
    struct write_condition is_same = {.has_if_match = true, .if_match = info.etag};
    for (u32 big = 0; big < 2; big++) {
        CHECK_OK(object_rewrite_attrs(bed->meta, B("bkt"), B("k"), attrs, 2, &is_same, &again));
        CHECK(again.modified_ns > info.modified_ns && again.size == info.size);
        CHECK(etag_equal(&again.etag, &info.etag));
        check_attrs(bed, attrs, 2, true);
        check_object(bed->meta, B("bkt"), B("k"), p.size, 0);
        bed_reopen(bed);
        check_attrs(bed, attrs, 2, false);
        check_object(bed->meta, B("bkt"), B("k"), p.size, 0);
        p.size = 2 * MIB + 5;
        CHECK_OK(put_run(bed->meta, &p, &info));
        is_same.if_match = info.etag;
    }
    is_same.if_match.md5[0] ^= 1;
    CHECK_ERR(object_rewrite_attrs(bed->meta, B("bkt"), B("k"), attrs, 2, &is_same, &again),
              ERR_S3_PRECONDITION_FAILED);
    CHECK_ERR(object_rewrite_attrs(bed->meta, B("bkt"), B("none"), attrs, 2, NULL, &again),
              ERR_S3_NO_SUCH_KEY);
    for (u32 i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = (struct attr){B("name"), B("v")};
    }
    p.attrs = many;
    p.attr_count = META_ATTRS_MAX;
    CHECK_OK(put_run(bed->meta, &p, &info));
    p.attr_count = META_ATTRS_MAX + 1;
    CHECK_ERR(put_run(bed->meta, &p, &info), ERR_S3_METADATA_TOO_LARGE);
}

// One attribute comes, changes and goes; all else stays, the time too.
static void set_attr_body(struct bed *bed)
{
    static const char *const values[] = {"a=1", "a=1&b=2", "", NULL, NULL};
    const struct attr kept[] = {{B("content-type"), B("text/plain")}, {B("x-amz-meta-a"), B("1")}};
    struct attr attrs[] = {kept[0], kept[1], {B("tagging"), BYTES_NONE}};
    struct put p = {.bucket = B("bkt"), .key = B("k"), .size = 100, .attrs = kept, .attr_count = 2};
    struct object_info info;
    struct object_info now;
    bucket_make(bed);
    for (u32 big = 0; big < 2; big++) {
        CHECK_OK(put_run(bed->meta, &p, &info));
        for (u32 i = 0; i < ARRAY_LEN(values); i++) {
            u32 count = values[i] == NULL ? 2 : 3;
            attrs[2].value = values[i] == NULL ? BYTES_NONE : bytes_from_string(values[i]);
            CHECK_OK(object_set_attr(bed->meta, B("bkt"), B("k"), &attrs[2]));
            check_attrs(bed, attrs, count, i % 2 == 0);
            bed_reopen(bed);
            check_attrs(bed, attrs, count, i % 2 != 0);
            check_object(bed->meta, B("bkt"), B("k"), p.size, 0);
            CHECK_OK(head(bed->meta, B("bkt"), B("k"), &now));
            CHECK(now.modified_ns == info.modified_ns && etag_equal(&now.etag, &info.etag));
            CHECK(now.checksum.algorithm == info.checksum.algorithm);
        }
        p.size = 2 * MIB + 5;
        p.checksums = 1u << CHECKSUM_SHA1;
        p.checksum = CHECKSUM_SHA1;
    }
    static char large[META_ATTRS_BYTES_MAX];
    attrs[2].value = BYTES(large, sizeof(large));
    CHECK_ERR(object_set_attr(bed->meta, B("bkt"), B("k"), &attrs[2]), ERR_S3_METADATA_TOO_LARGE);
    check_attrs(bed, attrs, 2, true);
    attrs[2].value = B("a=1");
    CHECK_ERR(object_set_attr(bed->meta, B("bkt"), B("none"), &attrs[2]), ERR_S3_NO_SUCH_KEY);
    CHECK_ERR(object_set_attr(bed->meta, B("none"), B("k"), &attrs[2]), ERR_S3_NO_SUCH_BUCKET);
    CHECK_ERR(head(bed->meta, B("bkt"), B("none"), &now), ERR_S3_NO_SUCH_KEY);
}

// ---- keys

static void keys_body(struct bed *bed)
{
    u8 longest[META_KEY_BYTES_MAX + 1];
    struct object_info info;
    const struct bytes keys[] = {
        B("a//b"),
        B("/a"),
        B("a/"),
        B("a"),
        B("."),
        B(".."),
        B("../../etc/passwd"),
        B("a\0b"),
        B("\xff\xff"),
        B("\x01"),
        B("a+b"),
        B("a%2Bb"),
        B(" "),
        BYTES(longest, META_KEY_BYTES_MAX),
    };
    bucket_make(bed);
    memset(longest, 0xff, sizeof(longest));
    for (u32 i = 0; i < ARRAY_LEN(keys); i++) {
        CHECK_OK(put_simple(bed->meta, B("bkt"), keys[i], 100 + i, i));
    }
    for (u32 round = 0; round < 2; round++) {
        for (u32 i = 0; i < ARRAY_LEN(keys); i++) {
            check_object(bed->meta, B("bkt"), keys[i], 100 + i, i);
        }
        bed_reopen(bed);
    }
    CHECK_ERR(put_simple(bed->meta, B("bkt"), BYTES(longest, META_KEY_BYTES_MAX + 1), 1, 1),
              ERR_S3_KEY_TOO_LONG);
    CHECK_ERR(put_simple(bed->meta, B("bkt"), BYTES_NONE, 1, 1), ERR_S3_INVALID_ARGUMENT);
    CHECK_ERR(put_simple(bed->meta, B("nobkt"), B("k"), 1, 1), ERR_S3_NO_SUCH_BUCKET);
    CHECK_ERR(head(bed->meta, B("bkt"), B("nokey"), &info), ERR_S3_NO_SUCH_KEY);
}

// ---- conditions

static enum err put_if(struct bed *bed, struct bytes key, struct write_condition c,
                       struct object_info *info)
{
    struct put p = {
        .bucket = B("bkt"), .key = key, .size = 10, .seed = bed->seed++, .condition = c};
    return put_run(bed->meta, &p, info);
}

static void conditions_body(struct bed *bed)
{
    struct object_info first;
    struct object_info second;
    struct object_info info;
    bool existed;
    struct write_condition none_match_any = {.if_none_match_any = true};
    struct write_condition match_any = {.if_match_any = true};
    struct write_condition match = {.has_if_match = true};
    struct write_condition foreign = {.if_etag_is_foreign = true};
    bucket_make(bed);
    CHECK_ERR(put_if(bed, B("k"), match_any, &info), ERR_S3_NO_SUCH_KEY);
    CHECK_ERR(put_if(bed, B("k"), match, &info), ERR_S3_NO_SUCH_KEY);
    CHECK_OK(put_if(bed, B("k"), none_match_any, &first));
    CHECK_ERR(put_if(bed, B("k"), none_match_any, &info), ERR_S3_PRECONDITION_FAILED);
    CHECK_ERR(put_if(bed, B("k"), foreign, &info), ERR_S3_PRECONDITION_FAILED);
    match.if_match = first.etag;
    CHECK_OK(put_if(bed, B("k"), match, &second));
    CHECK(second.modified_ns > first.modified_ns);
    CHECK_ERR(put_if(bed, B("k"), match, &info), ERR_S3_PRECONDITION_FAILED);
    CHECK_OK(put_if(bed, B("k"), match_any, &second));
    struct write_condition unlike = {.has_if_none_match = true, .if_none_match = second.etag};
    CHECK_ERR(put_if(bed, B("k"), unlike, &info), ERR_S3_PRECONDITION_FAILED);
    unlike.if_none_match.md5[3] ^= 1;
    CHECK_OK(put_if(bed, B("k"), unlike, &second));
    // What was refused changed nothing.
    CHECK_OK(head(bed->meta, B("bkt"), B("k"), &info));
    CHECK(etag_equal(&info.etag, &second.etag) && info.modified_ns == second.modified_ns);
    // Deleting.
    CHECK_OK(object_delete(bed->meta, B("bkt"), B("no"), &match_any, &existed));
    CHECK_ERR(object_delete(bed->meta, B("bkt"), B("k"), &match, &existed),
              ERR_S3_PRECONDITION_FAILED);
    struct write_condition size = {.has_if_size = true, .if_size = 11};
    CHECK_ERR(object_delete(bed->meta, B("bkt"), B("k"), &size, &existed),
              ERR_S3_PRECONDITION_FAILED);
    struct write_condition time = {.has_if_modified_at = true,
                                   .if_modified_at_s = info.modified_ns / NS_PER_S + 1};
    CHECK_ERR(object_delete(bed->meta, B("bkt"), B("k"), &time, &existed),
              ERR_S3_PRECONDITION_FAILED);
    struct write_condition all = {.has_if_match = true,
                                  .if_match = info.etag,
                                  .has_if_size = true,
                                  .if_size = 10,
                                  .has_if_modified_at = true,
                                  .if_modified_at_s = info.modified_ns / NS_PER_S};
    CHECK_OK(object_delete(bed->meta, B("bkt"), B("k"), &all, &existed));
    CHECK(existed);
    CHECK_OK(object_delete(bed->meta, B("bkt"), B("k"), NULL, &existed));
    CHECK(!existed);
}

struct creator {
    struct meta *meta;
    u32 n;
    enum err result;
    struct object_info info;
};

static void creator_there(void *arg)
{
    struct creator *c = arg;
    struct put p = {.bucket = B("bkt"),
                    .key = B("once"),
                    .size = c->n % 2 == 0 ? 50 : 200000,
                    .seed = c->n,
                    .condition = {.if_none_match_any = true}};
    c->result = put_run(c->meta, &p, &c->info);
}

static void creator_fiber(void *arg)
{
    struct creator *c = arg;
    u32 cores = runtime_cores(reactor_runtime(reactor_current()));
    CHECK_OK(core_call(c->n % cores, creator_there, c));
}

// Of creators that race, exactly one wins, and what is there is its.
static void creators_body(struct bed *bed)
{
    bool existed;
    bucket_make(bed);
    for (u32 round = 0; round < 30; round++) {
        struct creator creators[5];
        struct group g;
        u32 won = 0;
        u32 winner = 0;
        group_init(&g);
        for (u32 i = 0; i < ARRAY_LEN(creators); i++) {
            creators[i] = (struct creator){.meta = bed->meta, .n = round + i};
            CHECK_OK(group_spawn(&g, creator_fiber, &creators[i]));
        }
        group_join(&g);
        group_deinit(&g);
        for (u32 i = 0; i < ARRAY_LEN(creators); i++) {
            CHECK(creators[i].result == OK || creators[i].result == ERR_S3_PRECONDITION_FAILED);
            won += creators[i].result == OK;
            winner = creators[i].result == OK ? i : winner;
        }
        CHECK(won == 1);
        check_object(bed->meta, B("bkt"), B("once"), creators[winner].info.size,
                     creators[winner].n);
        CHECK_OK(object_delete(bed->meta, B("bkt"), B("once"), NULL, &existed));
        CHECK(existed);
    }
}

struct overwriter {
    struct meta *meta;
    u32 n;
    u64 times[40];
};

static void overwriter_fiber(void *arg)
{
    struct overwriter *o = arg;
    for (u32 i = 0; i < ARRAY_LEN(o->times); i++) {
        struct object_info info;
        struct put p = {.bucket = B("bkt"), .key = B("hot"), .size = 10, .seed = i};
        CHECK_OK(put_run(o->meta, &p, &info));
        o->times[i] = info.modified_ns;
    }
}

static int compare_times(const void *a, const void *b)
{
    u64 x = *(const u64 *)a;
    u64 y = *(const u64 *)b;
    return (x > y) - (x < y);
}

// The times that a key's writes get are all different.
static void times_body(struct bed *bed)
{
    struct overwriter o[4];
    u64 times[160];
    struct group g;
    bucket_make(bed);
    group_init(&g);
    for (u32 i = 0; i < 4; i++) {
        o[i] = (struct overwriter){.meta = bed->meta, .n = i};
        CHECK_OK(group_spawn(&g, overwriter_fiber, &o[i]));
    }
    group_join(&g);
    group_deinit(&g);
    for (u32 i = 0; i < 160; i++) {
        times[i] = o[i / 40].times[i % 40];
    }
    qsort(times, 160, sizeof(times[0]), compare_times);
    for (u32 i = 1; i < 160; i++) {
        CHECK(times[i] > times[i - 1]);
    }
}

// ---- readers and writers that live long

static void pinned_body(struct bed *bed)
{
    static const u64 pinned[] = {3000, 3 * MIB};
    bucket_make(bed);
    for (u32 i = 0; i < ARRAY_LEN(pinned); i++) {
        struct object_reader before;
        struct object_reader middle;
        struct arena arena;
        bool existed;
        arena_init(&arena, MIB);
        CHECK_OK(put_simple(bed->meta, B("bkt"), B("k"), pinned[i], 1));
        CHECK_OK(object_open(bed->meta, B("bkt"), B("k"), false, &arena, &before));
        check_bytes(&before, 1, 0, 5000);
        CHECK_OK(put_simple(bed->meta, B("bkt"), B("k"), pinned[i], 2));
        CHECK_OK(object_open(bed->meta, B("bkt"), B("k"), false, &arena, &middle));
        CHECK_OK(object_delete(bed->meta, B("bkt"), B("k"), NULL, &existed));
        CHECK_OK(store_compact_all(bed->store));
        check_bytes(&before, 1, 0, pinned[i]);
        check_bytes(&middle, 2, 0, pinned[i]);
        object_close(&before);
        object_close(&middle);
        arena_deinit(&arena);
    }
}

static void give_up(struct bed *bed, u64 expected, u64 sent, bool wants_digests)
{
    struct object_writer *w;
    struct object_digests d;
    struct object_write_options o = {.bucket = B("bkt"),
                                     .key = B("gone"),
                                     .size_expected = expected,
                                     .checksums = 1u << CHECKSUM_SHA256,
                                     .needs_md5 = true};
    CHECK_OK(object_write_begin(bed->meta, &o, &w));
    for (u64 at = 0; at < sent;) {
        u8 *to;
        size_t room;
        CHECK_OK(object_write_buffer(w, &to, &room));
        room = MIN(room, (size_t)50000);
        room = MIN(room, sent - at);
        memset(to, 1, room);
        CHECK_OK(object_write_advance(w, room));
        at += room;
    }
    if (wants_digests) {
        CHECK_OK(object_write_digests(w, &d));
    }
    object_write_abort(w);
}

static void given_up_body(struct bed *bed)
{
    struct bed_counts before;
    struct bed_counts after;
    struct object_info info;
    bucket_make(bed);
    bed_counts(bed, &before);
    for (u32 i = 0; i < 4; i++) {
        give_up(bed, 5 * MIB, 3 * MIB + 5, false);
        give_up(bed, UINT64_MAX, 3 * MIB + 5, i % 2 == 0);
        give_up(bed, 3 * MIB, 3 * MIB, true);
        give_up(bed, 100, 50, false);
        give_up(bed, 100, 0, true);
        give_up(bed, 2 * MIB, 10, false);
    }
    // Refused at the end: as if given up.
    struct put p = {
        .bucket = B("bkt"), .key = B("gone"), .size = 2 * MIB, .condition = {.if_match_any = true}};
    CHECK_ERR(put_run(bed->meta, &p, &info), ERR_S3_NO_SUCH_KEY);
    CHECK_OK(store_compact_all(bed->store));
    bed_counts(bed, &after);
    CHECK(after.meta.writers == 0);
    CHECK(after.keys == before.keys);
    CHECK(after.live_bytes <= before.live_bytes + 64 * KIB);
    CHECK_ERR(head(bed->meta, B("bkt"), B("gone"), &info), ERR_S3_NO_SUCH_KEY);
}

static void beyond_body(struct bed *bed)
{
    struct object_writer *w;
    u8 *to;
    size_t room;
    bucket_make(bed);
    struct object_write_options o = {
        .bucket = B("bkt"), .key = B("k"), .size_expected = 5, .needs_md5 = true};
    CHECK_OK(object_write_begin(bed->meta, &o, &w));
    CHECK_OK(object_write_buffer(w, &to, &room));
    CHECK(room == 5);
    memset(to, 0, 5);
    CHECK_OK(object_write_advance(w, 5));
    // There is room to find the end in, but a byte more is refused.
    CHECK_OK(object_write_buffer(w, &to, &room));
    CHECK(room >= 1);
    CHECK_OK(object_write_advance(w, 0));
    CHECK_ERR(object_write_advance(w, 1), ERR_S3_ENTITY_TOO_LARGE);
    object_write_abort(w);
    o.size_expected = META_PUT_BYTES_MAX + 1;
    CHECK_ERR(object_write_begin(bed->meta, &o, &w), ERR_S3_ENTITY_TOO_LARGE);
}

struct crowd {
    struct meta *meta;
    u32 n;
    u32 *done;
};

static void crowd_there(void *arg)
{
    struct crowd *c = arg;
    char key[64];
    struct bytes k = key_of(key, sizeof(key), "crowd", c->n);
    CHECK_OK(put_simple(c->meta, B("bkt"), k, 2 * MIB + c->n, c->n));
    check_object(c->meta, B("bkt"), k, 2 * MIB + c->n, c->n);
    __atomic_fetch_add(c->done, 1, __ATOMIC_RELAXED);
}

static void crowd_fiber(void *arg)
{
    struct crowd *c = arg;
    u32 cores = runtime_cores(reactor_runtime(reactor_current()));
    CHECK_OK(core_call(c->n % cores, crowd_there, c));
}

// More writers than the buffer memory has frames for: they wait for each other and all end.
static void crowd_body(struct bed *bed)
{
    struct crowd crowd[48];
    struct group g;
    u32 done = 0;
    bucket_make(bed);
    group_init(&g);
    for (u32 i = 0; i < ARRAY_LEN(crowd); i++) {
        crowd[i] = (struct crowd){.meta = bed->meta, .n = i, .done = &done};
        CHECK_OK(group_spawn(&g, crowd_fiber, &crowd[i]));
    }
    group_join(&g);
    group_deinit(&g);
    CHECK(done == ARRAY_LEN(crowd));
}

// A client that goes away while its request waits: the fiber is cancelled, and nothing stays.
static void cancelled_fiber(void *arg)
{
    struct crowd *c = arg;
    struct object_info info;
    struct put p = {.bucket = B("bkt"), .key = B("cut"), .size = 3 * MIB, .seed = c->n};
    enum err e = put_run(c->meta, &p, &info);
    CHECK(e == OK || e == ERR_CANCELLED);
    *c->done += e == ERR_CANCELLED;
}

static void cancel_body(struct bed *bed)
{
    struct bed_counts c;
    u32 cancelled = 0;
    bucket_make(bed);
    for (u32 round = 0; round < 6; round++) {
        struct crowd crowd[24];
        struct group g;
        group_init(&g);
        for (u32 i = 0; i < ARRAY_LEN(crowd); i++) {
            crowd[i] = (struct crowd){.meta = bed->meta, .n = i, .done = &cancelled};
            CHECK_OK(group_spawn(&g, cancelled_fiber, &crowd[i]));
        }
        for (u32 yields = 3 * round; yields > 0; yields--) {
            fiber_yield();
        }
        group_cancel(&g);
        group_join(&g);
        group_deinit(&g);
        bed_counts(bed, &c);
        CHECK(c.meta.writers == 0 && c.meta.commits == 0);
    }
    CHECK(cancelled > 0);
}

int main(int argc, char **argv)
{
    static const struct bed_test tests[] = {
        BED_TEST(sizes),  BED_TEST(ranges),     BED_TEST(checksums), BED_TEST(attrs),
        BED_TEST(keys),   BED_TEST(conditions), BED_TEST(creators),  BED_TEST(times),
        BED_TEST(pinned), BED_TEST(given_up),   BED_TEST(beyond),    BED_TEST(crowd),
        BED_TEST(cancel), BED_TEST(set_attr),
    };
    return bed_main(argc, argv, tests, ARRAY_LEN(tests));
}
