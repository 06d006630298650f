// SPDX-License-Identifier: Apache-2.0
// Records, extents, footers and the tables of extents, without a drive.
#include "store_test.h"

#include "store/extent_map.h"
#include "store/footer.h"

#define COOKIE 0xfeedfacecafebeefull

// ---- records

static void test_record(void **state)
{
    (void)state;
    static const struct extent_ref refs[3] = {{11, 100}, {12, 200}, {13, 300}};
    struct store_change c = {.key = BYTES_LITERAL("key"),
                             .summary = "summary",
                             .attrs = BYTES_LITERAL("attributes"),
                             .payload = BYTES_LITERAL("payload"),
                             .refs = refs,
                             .ref_count = 3};
    struct record_input in = {.type = RECORD_PUT,
                              .pg = 7,
                              .epoch = 1,
                              .seq = 99,
                              .group_index = 1,
                              .group_count = 2,
                              .change = &c};
    u32 bytes = record_frame_bytes(&c, RECORD_PUT);
    u8 *frame = aligned_alloc(8, bytes);
    record_encode(&in, COOKIE, 5, frame);
    struct record_view v;
    u32 need;
    CHECK(record_parse(BYTES(frame, bytes), COOKIE, &v, &need) == OK);
    CHECK(v.frame_bytes == bytes && v.pg == 7 && v.seq == 99 && v.batch == 5 && v.epoch == 1);
    CHECK(v.group_index == 1 && v.group_count == 2 && v.ref_count == 3);
    CHECK(bytes_equal(v.key, c.key) && bytes_equal(v.attrs, c.attrs));
    CHECK(bytes_equal(v.payload, c.payload) && record_payload_is_valid(&v));
    CHECK(memcmp(v.refs, refs, sizeof(refs)) == 0);
    CHECK(record_parse(BYTES(frame, bytes), COOKIE + 1, &v, &need) == ERR_CORRUPT);
    CHECK(record_parse(BYTES(frame, bytes - 1), COOKIE, &v, &need) == ERR_END && need == bytes);
    CHECK(record_parse(BYTES(frame, 50), COOKIE, &v, &need) == ERR_END);
    for (u32 bit = 0; bit < bytes * 8; bit++) { // every single bit matters
        frame[bit / 8] ^= (u8)(1u << bit % 8);
        enum err e = record_parse(BYTES(frame, bytes), COOKIE, &v, &need);
        CHECK(e != OK || !record_payload_is_valid(&v));
        frame[bit / 8] ^= (u8)(1u << bit % 8);
    }
    free(frame);
}

static void test_extent(void **state)
{
    (void)state;
    u32 data_bytes = 10000;
    u8 *frame = aligned_alloc(4096, extent_frame_bytes(data_bytes));
    CHECK(extent_frame_bytes(data_bytes) == 4 * 4096);
    pattern_fill(frame + 4096, data_bytes, 3);
    struct extent_name name = {.object_id = 77, .chunk = 2, .pg = 5};
    extent_encode(frame, &name, COOKIE, data_bytes);
    const struct extent_fmt *h = extent_parse(frame, COOKIE);
    CHECK(h != NULL && h->object_id == 77 && h->chunk == 2 && h->data_bytes == data_bytes);
    CHECK(extent_parse(frame, COOKIE ^ 1) == NULL);
    CHECK(extent_blocks_are_valid(h->crcs, 0, 3, frame + 4096));
    CHECK(extent_blocks_are_valid(h->crcs, 1, 1, frame + 8192));
    CHECK(!extent_blocks_are_valid(h->crcs, 0, 1, frame + 8192)); // a block of another place
    for (u32 at = 0; at < 4 * 4096; at += 3) {
        frame[at] ^= 4;
        h = extent_parse(frame, COOKIE);
        CHECK(h == NULL || !extent_blocks_are_valid(h->crcs, 0, 3, frame + 4096));
        frame[at] ^= 4;
    }
    free(frame);
}

// ---- footers

static u32 footer_walk(const struct footer *f, u64 *ids_sum)
{
    u32 records = 0;
    for (u32 b = 0; b < f->block_count; b++) {
        struct footer_entry e;
        enum err err;
        u32 pos = 0;
        while (footer_block_next(f->blocks[b], &pos, &e, &err)) {
            records += e.kind != FOOTER_REFS;
            for (u32 i = 0; i < e.refs_here; i++) {
                u64 id;
                memcpy(&id, e.ids + (size_t)i * 8, 8);
                *ids_sum += id;
            }
        }
        CHECK(err == OK);
    }
    return records;
}

static void test_footer_sizes(void **state)
{
    (void)state;
    struct footer f;
    footer_init(&f);
    static const u8 summary[STORE_SUMMARY_BYTES];
    struct extent_ref *refs = calloc(STORE_REFS_MAX, sizeof(*refs));
    u64 want = 0;
    for (u32 i = 0; i < STORE_REFS_MAX; i++) {
        refs[i].object_id = i + 1;
    }
    u8 key[STORE_KEY_BYTES_MAX] = {0};
    for (u32 i = 0; i < 3000; i++) {
        u32 ref_count = i % 100 == 0 ? (i * 7) % (STORE_REFS_MAX + 1) : i % 4;
        struct record_view v = {.type = i % 5 == 0 ? RECORD_DELETE : RECORD_PUT,
                                .frame_bytes = 104,
                                .seq = i,
                                .summary = summary,
                                .refs = refs,
                                .ref_count = ref_count,
                                .key = BYTES(key, i % (STORE_KEY_BYTES_MAX + 1))};
        u32 more = footer_record_bytes(v.key.len, ref_count);
        u64 bound = footer_disk_bytes(&f, more);
        CHECK(footer_reserve(&f, more) == OK);
        footer_add_record(&f, SEGMENT_HEADER_BYTES + i * 104, &v);
        CHECK(footer_disk_bytes(&f, 0) <= bound); // the bound held
        want += (u64)ref_count * (ref_count + 1) / 2;
    }
    u64 sum = 0;
    CHECK(footer_walk(&f, &sum) == 3000 && sum == want);
    CHECK(f.used_bytes == SEGMENT_HEADER_BYTES + 3000 * 104);
    footer_reset(&f);
    CHECK(footer_walk(&f, &sum) == 0);
    footer_deinit(&f);
    free(refs);
}

// ---- tables

struct thing {
    u64 id;
    u32 sub;
    u32 value;
};

// Against a plain array of what should be there.
static void test_flat_map(void **state)
{
    (void)state;
    enum { IDS = 4000 };
    struct flat_map m;
    flat_map_init(&m, sizeof(struct thing));
    u32 *expected = calloc(IDS, sizeof(*expected));
    u64 x = 88172645463325252ull;
    u64 count = 0;
    for (u32 round = 1; round < 200000; round++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        u32 i = (u32)(x >> 20) % IDS;
        struct thing *t = flat_map_find(&m, i / 2 + 1, i % 2);
        CHECK((t != NULL) == (expected[i] != 0));
        if (t == NULL) {
            t = flat_map_insert(&m, i / 2 + 1, i % 2);
            CHECK(t != NULL && t->value == 0);
            t->value = expected[i] = round;
            count++;
        } else {
            CHECK(t->value == expected[i]);
            flat_map_remove(&m, t);
            expected[i] = 0;
            count--;
        }
        CHECK(m.count == count);
    }
    u64 walk = 0;
    u64 seen = 0;
    for (struct thing *t; (t = flat_map_next(&m, &walk)) != NULL; seen++) {
        CHECK(expected[(t->id - 1) * 2 + t->sub] == t->value);
    }
    CHECK(seen == count);
    free(expected);
    flat_map_deinit(&m);
}

static void count_dead(void *arg, u64 object_id, const struct extent_location *at)
{
    (void)object_id;
    *(u64 *)arg += at->data_bytes;
}

static void test_extent_map(void **state)
{
    (void)state;
    u64 dead = 0;
    struct extent_map m;
    extent_map_init(&m, count_dead, &dead);
    struct extent_location at = {.segment = 1, .offset_blocks = 2, .data_bytes = 100};
    // A writer owns it; a commit refers to it while it is pinned; two records share it.
    CHECK(extent_map_own(&m, 5) == OK);
    CHECK(extent_map_add(&m, 5, 0, &at) == OK && extent_map_add(&m, 5, 1, &at) == OK);
    CHECK(extent_map_add(&m, 5, 1, &at) == ERR_EXISTS);
    CHECK(extent_map_pin(&m, 5) == OK);
    extent_map_ref(&m, 5);
    extent_map_ref(&m, 5);
    extent_map_unpin(&m, 5);
    extent_map_disown(&m, 5); // it has no owner any more: nothing happens
    extent_map_unref(&m, 5);
    struct extent_location got;
    CHECK(extent_map_find(&m, 5, 1, &got) && got.offset_blocks == 2 && dead == 0);
    // Moved only from where it is.
    struct extent_location to = {.segment = 9, .offset_blocks = 1, .data_bytes = 100};
    CHECK(!extent_map_move(&m, 5, 1, &to, &at) && extent_map_move(&m, 5, 1, &at, &to));
    CHECK(!extent_map_move(&m, 5, 7, &at, &to));
    // A reader's pin outlives the last reference.
    CHECK(extent_map_pin(&m, 5) == OK);
    extent_map_unref(&m, 5);
    CHECK(dead == 0 && extent_map_is_alive(&m, 5));
    extent_map_unpin(&m, 5);
    CHECK(dead == 200 && !extent_map_is_alive(&m, 5) && !extent_map_find(&m, 5, 0, &got));
    // Recovery: what nobody refers to is swept.
    for (u64 id = 1; id <= 1000; id++) {
        CHECK(extent_map_found(&m, id, 0, &at) == OK);
        CHECK(extent_map_found(&m, id, 0, &to) == ERR_EXISTS);
        if (id % 3 == 0) {
            CHECK(extent_map_found_ref(&m, id) == OK);
        }
    }
    dead = 0;
    CHECK(extent_map_sweep(&m) == OK);
    CHECK(dead == (1000 - 333) * 100 && m.objects.count == 333 && m.chunks.count == 333);
    extent_map_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record),       cmocka_unit_test(test_extent),
        cmocka_unit_test(test_footer_sizes), cmocka_unit_test(test_flat_map),
        cmocka_unit_test(test_extent_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
