// SPDX-License-Identifier: Apache-2.0
// Buckets over all cores: creation, lists, limits, deletion, and its races with writes.
#include "bed.h"

static void create_body(struct bed *bed)
{
    struct bucket b;
    struct bucket again;
    struct meta *m = bed->meta;
    CHECK_ERR(bucket_find(m, B("one"), &b), ERR_S3_NO_SUCH_BUCKET);
    CHECK_ERR(bucket_create(m, B("Not-Valid"), &b), ERR_S3_INVALID_BUCKET_NAME);
    CHECK_OK(bucket_create(m, B("one"), &b));
    CHECK(b.id != 0 && b.created_ns != 0 && strcmp(b.name, "one") == 0);
    CHECK_ERR(bucket_create(m, B("one"), &again), ERR_S3_BUCKET_ALREADY_OWNED);
    CHECK(again.id == b.id && again.created_ns == b.created_ns);
    bed_reopen(bed);
    m = bed->meta;
    CHECK_OK(bucket_find(m, B("one"), &again));
    CHECK(again.id == b.id && again.created_ns == b.created_ns);
    CHECK_OK(bucket_delete(m, B("one")));
    CHECK_ERR(bucket_delete(m, B("one")), ERR_S3_NO_SUCH_BUCKET);
    CHECK_OK(bucket_create(m, B("one"), &again));
    CHECK(again.id > b.id);
    CHECK_OK(bucket_delete(m, B("one")));
    u64 last_id = again.id;
    bed_reopen(bed);
    CHECK_OK(bucket_create(bed->meta, B("one"), &again));
    CHECK(again.id > last_id); // also across restarts, with no bucket left
}

struct find_call {
    struct meta *meta;
    enum err result;
};

static void find_there(void *arg)
{
    struct find_call *c = arg;
    struct bucket b;
    c->result = bucket_find(c->meta, B("seen"), &b);
}

static void all_cores_body(struct bed *bed)
{
    struct bucket b;
    CHECK_OK(bucket_create(bed->meta, B("seen"), &b));
    for (u32 core = 0; core < bed->cores; core++) {
        struct find_call c = {.meta = bed->meta};
        bed_on(core, find_there, &c);
        CHECK_OK(c.result);
    }
    CHECK_OK(bucket_delete(bed->meta, B("seen")));
    for (u32 core = 0; core < bed->cores; core++) {
        struct find_call c = {.meta = bed->meta};
        bed_on(core, find_there, &c);
        CHECK_ERR(c.result, ERR_S3_NO_SUCH_BUCKET);
    }
}

struct collected {
    char text[1024];
    u32 count;
    u32 stop_at;
};

static bool collect(void *arg, const struct bucket *b)
{
    struct collected *c = arg;
    strcat(c->text, b->name);
    strcat(c->text, " ");
    return ++c->count != c->stop_at;
}

static void list_body(struct bed *bed)
{
    static const char *const names[] = {"data-x", "data.x", "abc", "data", "zzz", "datas"};
    struct bucket b;
    for (u32 i = 0; i < ARRAY_LEN(names); i++) {
        CHECK_OK(bucket_create(bed->meta, bytes_from_string(names[i]), &b));
    }
    for (u32 round = 0; round < 2; round++) {
        struct collected c = {0};
        bucket_list(bed->meta, BYTES_NONE, BYTES_NONE, collect, &c);
        CHECK(strcmp(c.text, "abc data data-x data.x datas zzz ") == 0);
        c = (struct collected){0};
        bucket_list(bed->meta, B("data"), B("data"), collect, &c);
        CHECK(strcmp(c.text, "data-x data.x datas ") == 0);
        c = (struct collected){.stop_at = 2};
        bucket_list(bed->meta, B("data"), B("b"), collect, &c);
        CHECK(strcmp(c.text, "data data-x ") == 0);
        c = (struct collected){0};
        bucket_list(bed->meta, B("data"), B("zz"), collect, &c);
        CHECK(c.count == 0);
        bed_reopen(bed);
    }
}

static void limit_body(struct bed *bed)
{
    struct bucket b;
    char name[64];
    for (u32 i = 0; i < 100; i++) {
        CHECK_OK(bucket_create(bed->meta, key_of(name, sizeof(name), "bucket", i), &b));
    }
    CHECK_ERR(bucket_create(bed->meta, B("one-more"), &b), ERR_S3_TOO_MANY_BUCKETS);
    CHECK_ERR(bucket_create(bed->meta, B("bucket7"), &b), ERR_S3_BUCKET_ALREADY_OWNED);
    CHECK_OK(bucket_delete(bed->meta, B("bucket7")));
    CHECK_OK(bucket_create(bed->meta, B("one-more"), &b));
}

static void not_empty_body(struct bed *bed)
{
    struct bucket b;
    struct meta *m = bed->meta;
    bool existed;
    struct object_info info;
    char key[64];
    CHECK_OK(bucket_create(m, B("full"), &b));
    for (u32 i = 0; i < 20; i++) {
        CHECK_OK(put_simple(m, B("full"), key_of(key, sizeof(key), "k", i), 10, i));
        CHECK_ERR(bucket_delete(m, B("full")), ERR_S3_BUCKET_NOT_EMPTY);
        CHECK_OK(object_delete(m, B("full"), key_of(key, sizeof(key), "k", i), NULL, &existed));
        CHECK(existed);
    }
    CHECK_OK(bucket_delete(m, B("full")));
    CHECK_ERR(put_simple(m, B("full"), B("k"), 10, 1), ERR_S3_NO_SUCH_BUCKET);
    CHECK_ERR(head(m, B("full"), B("k"), &info), ERR_S3_NO_SUCH_BUCKET);
    CHECK_ERR(object_delete(m, B("full"), B("k"), NULL, &existed), ERR_S3_NO_SUCH_BUCKET);
}

// A bucket that was deleted and created again is another one: a write that began before is not its.
static void reborn_body(struct bed *bed)
{
    struct bucket b;
    struct object_writer *w;
    struct object_info info;
    struct object_finish f = {0};
    struct object_write_options o = {
        .bucket = B("born"), .key = B("k"), .size_expected = 0, .needs_md5 = true};
    CHECK_OK(bucket_create(bed->meta, B("born"), &b));
    CHECK_OK(object_write_begin(bed->meta, &o, &w));
    CHECK_OK(bucket_delete(bed->meta, B("born")));
    CHECK_OK(bucket_create(bed->meta, B("born"), &b));
    CHECK_ERR(object_write_finish(w, &f, &info), ERR_S3_NO_SUCH_BUCKET);
    CHECK_ERR(head(bed->meta, B("born"), B("k"), &info), ERR_S3_NO_SUCH_KEY);
}

// Uploads do not keep a bucket, and go with it.
static void uploads_go_body(struct bed *bed)
{
    struct bucket b;
    struct bed_counts before;
    struct bed_counts after;
    char id[META_UPLOAD_ID_CHARS + 1];
    char key[64];
    struct object_info info;
    bed_counts(bed, &before);
    CHECK_OK(bucket_create(bed->meta, B("ups"), &b));
    for (u32 i = 0; i < 12; i++) {
        struct upload_options uo = {.bucket = B("ups"), .key = key_of(key, sizeof(key), "k", i)};
        CHECK_OK(upload_create(bed->meta, &uo, id));
        struct put p = {.bucket = uo.bucket,
                        .key = uo.key,
                        .size = 5000,
                        .upload_id = bytes_from_string(id),
                        .part_number = 1};
        CHECK_OK(put_run(bed->meta, &p, &info));
    }
    CHECK_OK(bucket_delete(bed->meta, B("ups")));
    bed_counts(bed, &after);
    CHECK(after.keys <= before.keys + 1); // the counter of ids
}

// ---- deleting against writing

struct race_put {
    struct meta *meta;
    u32 n;
    enum err result;
};

static void race_put_there(void *arg)
{
    struct race_put *r = arg;
    char key[64];
    r->result = put_simple(r->meta, B("race"), key_of(key, sizeof(key), "k", r->n), 100, r->n);
}

static void race_put_fiber(void *arg)
{
    struct race_put *r = arg;
    struct sys *sys = core_sys();
    u8 draw_core;
    sys->ops->random_bytes(sys, &draw_core, 1);
    for (u32 yields = draw_core / 2 % 8; yields > 0; yields--) {
        fiber_yield();
    }
    u32 cores = runtime_cores(reactor_runtime(reactor_current()));
    CHECK_OK(core_call(draw_core % cores, race_put_there, r));
}

static void race_body(struct bed *bed)
{
    struct meta *m = bed->meta;
    u32 deleted = 0;
    for (u32 round = 0; round < 80; round++) {
        struct bucket b;
        struct race_put puts[6];
        struct group g;
        CHECK_OK(bucket_create(m, B("race"), &b));
        group_init(&g);
        for (u32 i = 0; i < ARRAY_LEN(puts); i++) {
            puts[i] = (struct race_put){.meta = m, .n = i};
            CHECK_OK(group_spawn(&g, race_put_fiber, &puts[i]));
        }
        for (u32 yields = round % 5; yields > 0; yields--) {
            fiber_yield();
        }
        enum err e = bucket_delete(m, B("race"));
        group_join(&g);
        group_deinit(&g);
        CHECK(e == OK || e == ERR_S3_BUCKET_NOT_EMPTY);
        deleted += e == OK;
        for (u32 i = 0; i < ARRAY_LEN(puts); i++) {
            char key[64];
            bool existed;
            struct object_info info;
            struct bytes k = key_of(key, sizeof(key), "k", i);
            // Refused deletion: no write was refused. Deletion: none was acknowledged.
            CHECK_ERR(puts[i].result, e == OK ? ERR_S3_NO_SUCH_BUCKET : OK);
            CHECK_ERR(head(m, B("race"), k, &info), puts[i].result);
            if (e != OK) {
                CHECK_OK(object_delete(m, B("race"), k, NULL, &existed));
                CHECK(existed);
            }
        }
        if (e != OK) {
            CHECK_OK(bucket_delete(m, B("race")));
        }
    }
    // Both outcomes were seen, else this test shows nothing.
    CHECK(deleted > 0 && deleted < 80);
}

struct admin_race {
    struct meta *meta;
    u32 created;
    u32 deleted;
};

static void admin_race_there(void *arg)
{
    struct admin_race *r = arg;
    struct bucket b;
    for (u32 i = 0; i < 30; i++) {
        enum err e = bucket_create(r->meta, B("shared"), &b);
        CHECK(e == OK || e == ERR_S3_BUCKET_ALREADY_OWNED);
        r->created += e == OK;
        e = bucket_delete(r->meta, B("shared"));
        CHECK(e == OK || e == ERR_S3_NO_SUCH_BUCKET);
        r->deleted += e == OK;
    }
}

static void admin_race_fiber(void *arg)
{
    struct admin_race *r = arg;
    u32 cores = runtime_cores(reactor_runtime(reactor_current()));
    CHECK_OK(core_call(r->created % cores, admin_race_there, r));
}

static void admin_race_body(struct bed *bed)
{
    struct admin_race races[4];
    struct group g;
    u32 created = 0;
    u32 deleted = 0;
    struct bucket b;
    group_init(&g);
    for (u32 i = 0; i < ARRAY_LEN(races); i++) {
        races[i] = (struct admin_race){.meta = bed->meta, .created = i};
        CHECK_OK(group_spawn(&g, admin_race_fiber, &races[i]));
    }
    group_join(&g);
    group_deinit(&g);
    for (u32 i = 0; i < ARRAY_LEN(races); i++) {
        created += races[i].created - i;
        deleted += races[i].deleted;
    }
    CHECK(created == deleted && created >= 30);
    CHECK_ERR(bucket_find(bed->meta, B("shared"), &b), ERR_S3_NO_SUCH_BUCKET);
}

int main(int argc, char **argv)
{
    static const struct bed_test tests[] = {
        BED_TEST(create),     BED_TEST(all_cores), BED_TEST(list),
        BED_TEST(limit),      BED_TEST(not_empty), BED_TEST(reborn),
        BED_TEST(uploads_go), BED_TEST(race),      BED_TEST(admin_race),
    };
    return bed_main(argc, argv, tests, ARRAY_LEN(tests));
}
