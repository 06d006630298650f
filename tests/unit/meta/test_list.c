// SPDX-License-Identifier: Apache-2.0
// Listings against a plain model: a sorted array of keys and the rules of AWS, written down anew.
// Keys are short over a mean alphabet, so that prefixes, delimiters and markers collide all the
// time.
#include "bed.h"

#define KEYS_MAX 400

struct model_key {
    u8 data[16];
    u32 len;
    bool is_there;
};

struct model {
    struct model_key keys[KEYS_MAX]; // sorted, all different
    u32 count;
};

static struct bytes model_bytes(const struct model_key *k)
{
    return BYTES(k->data, k->len);
}

static int compare_keys(const void *a, const void *b)
{
    return bytes_compare(model_bytes(a), model_bytes(b));
}

static u32 random_text(u64 *seed, u8 *out, u32 max)
{
    static const u8 alphabet[] = {'a', 'b', '/', '/', '-', '.', 0x00, 0xff, 0xfe};
    u32 len = (u32)draw_below(seed, max + 1);
    for (u32 i = 0; i < len; i++) {
        out[i] = alphabet[draw_below(seed, sizeof(alphabet))];
    }
    return len;
}

static void model_make(struct model *m, u64 *seed)
{
    u32 n = 0;
    m->count = 0;
    for (u32 i = 0; i < KEYS_MAX; i++) {
        m->keys[n].len = random_text(seed, m->keys[n].data, 8);
        m->keys[n].is_there = true;
        n += m->keys[n].len > 0;
    }
    qsort(m->keys, n, sizeof(m->keys[0]), compare_keys);
    for (u32 i = 0; i < n; i++) {
        if (m->count == 0 || compare_keys(&m->keys[m->count - 1], &m->keys[i]) != 0) {
            m->keys[m->count++] = m->keys[i];
        }
    }
}

// The common prefix of a key; len 0: none.
static struct bytes roll_up(struct bytes key, struct bytes prefix, struct bytes delimiter)
{
    for (size_t at = prefix.len; delimiter.len > 0 && at + delimiter.len <= key.len; at++) {
        if (memcmp(key.data + at, delimiter.data, delimiter.len) == 0) {
            return BYTES(key.data, at + delimiter.len);
        }
    }
    return BYTES_NONE;
}

struct expected {
    struct bytes names[KEYS_MAX];
    bool is_prefix[KEYS_MAX];
    u32 count;
};

// Everything that follows the marker, in order.
static void expect(const struct model *m, const struct list_request *rq, struct expected *out)
{
    out->count = 0;
    for (u32 i = 0; i < m->count; i++) {
        struct bytes key = model_bytes(&m->keys[i]);
        if (!m->keys[i].is_there || !bytes_has_prefix(key, rq->prefix) ||
            bytes_compare(key, rq->after) <= 0) {
            continue;
        }
        struct bytes rolled = roll_up(key, rq->prefix, rq->delimiter);
        if (rolled.len == 0) {
            out->names[out->count] = key;
            out->is_prefix[out->count++] = false;
        } else if (!bytes_equal(rolled, rq->after) &&
                   (out->count == 0 || !bytes_equal(out->names[out->count - 1], rolled))) {
            out->names[out->count] = rolled;
            out->is_prefix[out->count++] = true;
        }
    }
}

static void check_page(struct meta *m, const struct list_request *rq, const struct expected *want,
                       struct list_result *got, struct arena *arena)
{
    CHECK_OK(object_list(m, rq, arena, got));
    u32 count = MIN(want->count, rq->max);
    CHECK(got->count == count);
    CHECK(got->is_truncated == (rq->max > 0 && want->count > rq->max));
    for (u32 i = 0; i < count; i++) {
        CHECK(bytes_equal(got->items[i].name, want->names[i]));
        CHECK(got->items[i].is_prefix == want->is_prefix[i]);
        if (!got->items[i].is_prefix) {
            CHECK(got->items[i].info.size == got->items[i].name.len && // see put_all
                  got->items[i].info.modified_ns > 0);
        }
    }
    if (got->is_truncated) {
        CHECK(bytes_equal(got->next_after, want->names[count - 1]));
    }
}

// One query, and then page by page to its end: every name exactly once.
static void check_query(struct meta *m, const struct model *model, struct list_request *rq)
{
    struct expected want;
    struct list_result got;
    struct arena arena;
    u32 seen = 0;
    expect(model, rq, &want);
    do {
        struct expected rest = {0};
        arena_init(&arena, 8 * MIB);
        for (u32 i = seen; i < want.count; i++) {
            rest.names[rest.count] = want.names[i];
            rest.is_prefix[rest.count++] = want.is_prefix[i];
        }
        check_page(m, rq, &rest, &got, &arena);
        seen += got.count;
        if (got.is_truncated) {
            rq->after = want.names[seen - 1];
        }
        arena_deinit(&arena);
    } while (got.is_truncated);
    CHECK(seen == want.count || rq->max == 0);
}

struct put_call {
    struct bed *bed;
    const struct model *model;
};

static void put_one(void *arg, u32 i)
{
    struct put_call *c = arg;
    struct bytes key = model_bytes(&c->model->keys[i]);
    CHECK_OK(put_simple(c->bed->meta, B("bkt"), key, key.len, i));
    if (i % 10 == 0) {
        CHECK_OK(put_simple(c->bed->meta, B("another"), key, 1, i));
    }
}

static void put_all(struct bed *bed, const struct model *m)
{
    struct bucket b;
    struct put_call c = {.bed = bed, .model = m};
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
    CHECK_OK(bucket_create(bed->meta, B("another"), &b));
    bed_parallel(m->count, put_one, &c);
}

static void change_some(struct bed *bed, struct model *m)
{
    for (u32 i = 0; i < 20; i++) {
        struct model_key *k = &m->keys[draw_below(&bed->seed, m->count)];
        bool existed;
        if (k->is_there) {
            CHECK_OK(object_delete(bed->meta, B("bkt"), model_bytes(k), NULL, &existed));
            CHECK(existed);
        } else {
            CHECK_OK(put_simple(bed->meta, B("bkt"), model_bytes(k), k->len, i));
        }
        k->is_there = !k->is_there;
    }
}

static void random_body(struct bed *bed)
{
    struct model *m = malloc(sizeof(*m));
    CHECK(m != NULL);
    model_make(m, &bed->seed);
    CHECK(m->count > KEYS_MAX / 2);
    put_all(bed, m);
    for (u32 round = 0; round < 4000; round++) {
        u8 prefix[8];
        u8 delimiter[4];
        u8 after[10];
        struct list_request rq = {.bucket = B("bkt"), .max = META_LIST_MAX};
        if (draw_below(&bed->seed, 2) == 0) {
            rq.prefix = BYTES(prefix, random_text(&bed->seed, prefix, 3));
        }
        if (draw_below(&bed->seed, 3) > 0) {
            rq.delimiter = BYTES(delimiter, random_text(&bed->seed, delimiter, 2));
        }
        if (draw_below(&bed->seed, 2) == 0) {
            rq.after = BYTES(after, random_text(&bed->seed, after, 6));
        }
        if (draw_below(&bed->seed, 2) == 0) {
            rq.max = (u32)draw_below(&bed->seed, 40);
        }
        check_query(bed->meta, m, &rq);
        if (round % 500 == 499) {
            change_some(bed, m);
            bed_reopen(bed);
        }
    }
    free(m);
}

// The marker's rules by name, so that the model is not the only witness.
static void markers_body(struct bed *bed)
{
    static const char *const keys[] = {"a", "a/b", "a/c", "a/d/e", "b", "c/x", "d"};
    struct bucket b;
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
    for (u32 i = 0; i < ARRAY_LEN(keys); i++) {
        CHECK_OK(put_simple(bed->meta, B("bkt"), bytes_from_string(keys[i]), 1, 1));
    }
    static const struct {
        const char *prefix;
        const char *delimiter;
        const char *after;
        const char *want;
    } cases[] = {
        {"", "", "", "a a/b a/c a/d/e b c/x d "},
        {"", "/", "", "a a/ b c/ d "},
        {"", "/", "a/b", "a/ b c/ d "}, // inside of a/, and a/c still comes
        {"", "/", "a/", "b c/ d "},     // a/ was listed
        {"", "/", "a/zz", "b c/ d "},   // nothing of a/ comes later
        {"", "/", "c/x", "d "},
        {"a/", "/", "", "a/b a/c a/d/ "},
        {"a/", "/", "a/d/", ""},
        {"a/", "/", "a", "a/b a/c a/d/ "},
        {"a/", "/", "b", ""},
        {"a/", "", "a/b", "a/c a/d/e "},
        {"", "d/e", "", "a a/b a/c a/d/e b c/x d "},
        {"zzz", "/", "", ""},
        {"a", "a", "", "a a/b a/c a/d/e "},
    };
    for (u32 i = 0; i < ARRAY_LEN(cases); i++) {
        struct list_result got;
        struct arena arena;
        char text[256] = "";
        struct list_request rq = {
            .bucket = B("bkt"),
            .prefix = bytes_from_string(cases[i].prefix),
            .delimiter = bytes_from_string(cases[i].delimiter),
            .after = bytes_from_string(cases[i].after),
            .max = 1000,
        };
        arena_init(&arena, 8 * MIB);
        CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
        for (u32 j = 0; j < got.count; j++) {
            strncat(text, (const char *)got.items[j].name.data, got.items[j].name.len);
            strcat(text, " ");
        }
        if (strcmp(text, cases[i].want) != 0) {
            fprintf(stderr, "case %u: \"%s\"\n", i, text);
        }
        CHECK(strcmp(text, cases[i].want) == 0);
        CHECK(!got.is_truncated);
        arena_deinit(&arena);
    }
}

static void edges_body(struct bed *bed)
{
    struct bucket b;
    struct list_result got;
    struct arena arena;
    u8 longest[META_KEY_BYTES_MAX + 100];
    memset(longest, 0xff, sizeof(longest));
    arena_init(&arena, 16 * MIB);
    struct list_request rq = {.bucket = B("bkt"), .max = 1000};
    CHECK_ERR(object_list(bed->meta, &rq, &arena, &got), ERR_S3_NO_SUCH_BUCKET);
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 0 && !got.is_truncated);
    CHECK_OK(put_simple(bed->meta, B("bkt"), BYTES(longest, META_KEY_BYTES_MAX), 1, 1));
    CHECK_OK(put_simple(bed->meta, B("bkt"), B("\xff"), 1, 1));
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 2 && got.items[1].name.len == META_KEY_BYTES_MAX);
    rq.max = 0;
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 0 && !got.is_truncated);
    rq.max = 1000;
    // A delimiter of 0xff: the whole bucket rolls up, and nothing can follow it.
    rq.delimiter = B("\xff");
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 1 && got.items[0].is_prefix && got.items[0].name.len == 1);
    rq.delimiter = BYTES_NONE;
    // Prefixes and markers that are longer than any key.
    rq.prefix = BYTES(longest, sizeof(longest));
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 0);
    rq.prefix = BYTES(longest, META_KEY_BYTES_MAX);
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 1);
    rq.prefix = BYTES_NONE;
    rq.after = BYTES(longest, sizeof(longest));
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 0);
    rq.after = BYTES(longest, META_KEY_BYTES_MAX - 1);
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 1);
    arena_deinit(&arena);
}

// ---- while others write

struct churn {
    struct meta *meta;
    bool is_stopping;
};

// Adds and removes keys around those that stay.
static void churn_fiber(void *arg)
{
    struct churn *c = arg;
    char key[64];
    bool existed;
    for (u64 i = 0; !__atomic_load_n(&c->is_stopping, __ATOMIC_RELAXED); i++) {
        struct bytes k = key_of(key, sizeof(key), "dir/moving", i % 50);
        CHECK_OK(put_simple(c->meta, B("bkt"), k, 5, i));
        CHECK_OK(object_delete(c->meta, B("bkt"), k, NULL, &existed));
    }
}

static void put_stay(void *arg, u32 i)
{
    struct bed *bed = arg;
    char key[64];
    CHECK_OK(put_simple(bed->meta, B("bkt"), key_of(key, sizeof(key), "dir/stay", i), 1, 1));
}

// Keys that stay are in every listing exactly once, whatever happens around them, over walks that
// are long enough to give the loop its turn.
static void churn_body(struct bed *bed)
{
    enum { STAY = 1500 };
    struct bucket b;
    struct group g;
    struct churn c = {.meta = bed->meta};
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
    bed_parallel(STAY, put_stay, bed);
    group_init(&g);
    CHECK_OK(group_spawn(&g, churn_fiber, &c));
    for (u32 round = 0; round < 20; round++) {
        struct list_request rq = {.bucket = B("bkt"), .max = 1000};
        struct list_result got;
        struct arena arena;
        u8 last[64];
        u32 stay = 0;
        do {
            arena_init(&arena, 8 * MIB);
            CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
            for (u32 i = 0; i < got.count; i++) {
                CHECK(i == 0 || bytes_compare(got.items[i - 1].name, got.items[i].name) < 0);
                stay += bytes_has_prefix(got.items[i].name, B("dir/stay"));
            }
            if (got.is_truncated) {
                memcpy(last, got.next_after.data, got.next_after.len);
                rq.after = BYTES(last, got.next_after.len);
            }
            arena_deinit(&arena);
        } while (got.is_truncated);
        CHECK(stay == STAY);
    }
    __atomic_store_n(&c.is_stopping, true, __ATOMIC_RELAXED);
    group_join(&g);
    group_deinit(&g);
}

static void put_in_dir(void *arg, u32 i)
{
    struct bed *bed = arg;
    char key[64];
    char dir[32];
    snprintf(dir, sizeof(dir), "d%u/", i % 7);
    CHECK_OK(put_simple(bed->meta, B("bkt"), key_of(key, sizeof(key), dir, i), 1, 1));
}

// Many keys under one common prefix are passed over, not read: and still counted once.
static void prefixes_body(struct bed *bed)
{
    struct bucket b;
    struct list_result got;
    struct arena arena;
    CHECK_OK(bucket_create(bed->meta, B("bkt"), &b));
    bed_parallel(2000, put_in_dir, bed);
    arena_init(&arena, 8 * MIB);
    struct list_request rq = {.bucket = B("bkt"), .delimiter = B("/"), .max = 3};
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 3 && got.is_truncated && bytes_equal(got.next_after, B("d2/")));
    rq.after = got.next_after;
    rq.max = 1000;
    CHECK_OK(object_list(bed->meta, &rq, &arena, &got));
    CHECK(got.count == 4 && !got.is_truncated && bytes_equal(got.items[0].name, B("d3/")));
    arena_deinit(&arena);
}

int main(int argc, char **argv)
{
    static const struct bed_test tests[] = {
        BED_TEST(random), BED_TEST(markers), BED_TEST(edges), BED_TEST(churn), BED_TEST(prefixes),
    };
    return bed_main(argc, argv, tests, ARRAY_LEN(tests));
}
