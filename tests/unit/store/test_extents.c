// SPDX-License-Identifier: Apache-2.0
// Extents and the records that refer to them: ranges, sharing, replacement, pins, restarts.
#include "store_test.h"

#include "store/shard.h"

#define KEY      BYTES_LITERAL("big object")
#define CHUNKS   3
#define LAST     ((u32)(300 * KIB + 77))
#define SEQ_SIZE ((u64)(CHUNKS - 1) * STORE_EXTENT_BYTES + LAST)

static u32 chunk_bytes(u32 chunk)
{
    return chunk + 1 < CHUNKS ? (u32)STORE_EXTENT_BYTES : LAST;
}

MAY_WAIT static u64 sequence_write(struct store *s, u32 pg, u64 seed)
{
    u64 id = pg_object_id_new(s, pg);
    for (u32 i = 0; i < CHUNKS; i++) {
        struct buf *frame;
        CHECK(buf_get_wait(STORE_EXTENT_BYTES + STORE_EXTENT_HEADER, &frame) == OK);
        pattern_fill(frame->data + STORE_EXTENT_HEADER, chunk_bytes(i), seed + i);
        CHECK(pg_extent_write(s, pg, id, i, frame, chunk_bytes(i)) == OK);
        buf_put(frame);
    }
    return id;
}

MAY_WAIT static void commit_refs(struct store *s, u32 pg, struct bytes key,
                                 const struct extent_ref *refs, u32 count)
{
    struct pg_key_lock lock;
    CHECK(pg_key_lock(s, pg, key, &lock) == OK);
    struct store_change c = {.key = key, .refs = refs, .ref_count = count, .is_delete = count == 0};
    CHECK(pg_commit(s, pg, &c, 1) == OK);
    pg_key_unlock(&lock);
}

MAY_WAIT static void check_range(struct store *s, u32 pg, u64 id, u32 chunk, u32 offset, u32 len,
                                 u64 seed)
{
    u8 *want = malloc(STORE_EXTENT_BYTES);
    pattern_fill(want, chunk_bytes(chunk), seed + chunk);
    struct buf *b;
    u32 at;
    CHECK(pg_extent_read(s, pg, id, chunk, offset, len, &b, &at) == OK);
    CHECK(at + len <= b->capacity_bytes);
    CHECK(memcmp(b->data + at, want + offset, len) == 0);
    buf_put(b);
    free(want);
}

MAY_WAIT static void check_sequence(struct store *s, u32 pg, u64 id, u64 seed)
{
    static const u32 ranges[][2] = {{0, 1},         {0, 4096},       {1, 4096},     {4095, 2},
                                    {65535, 2},     {65536, 65536},  {100000, 7},   {299999, 1},
                                    {200000, 4096}, {12345, 170000}, {262144, 4096}};
    for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
        for (u32 round = 0; round < 3; round++) { // direct, filling the cache, from the cache
            for (u32 i = 0; i < ARRAY_LEN(ranges); i++) {
                check_range(s, pg, id, chunk, ranges[i][0], ranges[i][1], seed);
            }
        }
        check_range(s, pg, id, chunk, 0, chunk_bytes(chunk), seed);
        check_range(s, pg, id, chunk, chunk_bytes(chunk) - 1, 1, seed);
        struct buf *b;
        u32 at;
        CHECK(pg_extent_read(s, pg, id, chunk, chunk_bytes(chunk), 1, &b, &at) == ERR_INVALID);
        CHECK(pg_extent_read(s, pg, id, chunk, 0, chunk_bytes(chunk) + 1, &b, &at) == ERR_INVALID);
        CHECK(pg_extent_read(s, pg, id, chunk, 0, 0, &b, &at) == ERR_INVALID);
    }
}

static u64 extents_alive(struct store *s)
{
    return shard_here(s)->extents.chunks.count;
}

MAY_WAIT static void write_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    u32 pg = store_pg_of(s, KEY);
    u64 id = sequence_write(s, pg, 7);
    commit_refs(s, pg, KEY, &(struct extent_ref){id, SEQ_SIZE}, 1);
    struct pg_record r;
    CHECK(pg_read(s, pg, KEY, &r) == OK);
    CHECK(r.ref_count == 1 && r.refs[0].object_id == id && r.refs[0].bytes == SEQ_SIZE);
    check_sequence(s, pg, id, 7);

    // Replaced while a reader holds it: still readable, and gone when the reader is.
    u64 id2 = sequence_write(s, pg, 100);
    commit_refs(s, pg, KEY, &(struct extent_ref){id2, SEQ_SIZE}, 1);
    check_sequence(s, pg, id, 7);
    CHECK(extents_alive(s) == 2 * CHUNKS);
    pg_record_release(&r);
    pg_record_release(&r); // harmless
    CHECK(extents_alive(s) == CHUNKS);

    // Three parts become one object, in one step: the sequences change hands.
    u64 parts[3];
    struct extent_ref refs[3];
    for (u32 i = 0; i < 3; i++) {
        char key[16];
        snprintf(key, sizeof(key), "part-%u", i);
        parts[i] = sequence_write(s, pg, 1000 * (i + 1));
        refs[i] = (struct extent_ref){parts[i], SEQ_SIZE};
        commit_refs(s, pg, bytes_from_string(key), &refs[i], 1);
    }
    struct store_change changes[4] = {
        {.key = BYTES_LITERAL("joined"), .refs = refs, .ref_count = 3},
        {.key = BYTES_LITERAL("part-0"), .is_delete = true},
        {.key = BYTES_LITERAL("part-1"), .is_delete = true},
        {.key = BYTES_LITERAL("part-2"), .is_delete = true},
    };
    CHECK(pg_commit(s, pg, changes, 4) == OK);
    CHECK(extents_alive(s) == 4 * CHUNKS);

    // Written and never referred to, or abandoned: garbage.
    u64 lost = sequence_write(s, pg, 5);
    CHECK(extents_alive(s) == 5 * CHUNKS);
    pg_extent_abandon(s, pg, lost);
    CHECK(extents_alive(s) == 4 * CHUNKS);
    sequence_write(s, pg, 6); // forgotten by its writer: the restart sweeps it
    store_close(s);
}

MAY_WAIT static void on_owner_core(void *arg)
{
    struct store *s = arg;
    u32 pg = store_pg_of(s, KEY);
    struct pg_record r;
    CHECK(pg_read(s, pg, KEY, &r) == OK);
    check_sequence(s, pg, r.refs[0].object_id, 100);
    pg_record_release(&r);
    CHECK(pg_read(s, pg, BYTES_LITERAL("joined"), &r) == OK);
    CHECK(r.ref_count == 3);
    for (u32 i = 0; i < 3; i++) {
        check_sequence(s, pg, r.refs[i].object_id, 1000 * (i + 1));
    }
    pg_record_release(&r);
    CHECK(extents_alive(s) == 4 * CHUNKS);
}

MAY_WAIT static void reread_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    CHECK(core_call(store_pg_core(s, store_pg_of(s, KEY)), on_owner_core, s) == OK);
    store_close(s);
}

MAY_WAIT static void delete_run(void *arg)
{
    struct store_options o = small_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    u32 pg = store_pg_of(s, KEY);
    u64 id = pg_object_id_new(s, pg);
    struct pg_record r;
    CHECK(pg_read(s, pg, BYTES_LITERAL("joined"), &r) == OK);
    for (u32 i = 0; i < 3; i++) {
        CHECK(r.refs[i].object_id != id);
    }
    pg_record_release(&r);
    commit_refs(s, pg, BYTES_LITERAL("joined"), NULL, 0); // reads the record for its references
    CHECK(extents_alive(s) == CHUNKS);
    commit_refs(s, pg, KEY, NULL, 0);
    CHECK(extents_alive(s) == 0);
    store_close(s);
}

static void test_extents(void **state)
{
    (void)state;
    struct scratch scratch;
    scratch_make(&scratch);
    run_cores(1, write_run, &scratch);
    run_cores(2, reread_run, &scratch);
    run_cores(3, reread_run, &scratch);
    run_cores(1, delete_run, &scratch);
    scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
