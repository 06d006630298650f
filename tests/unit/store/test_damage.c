// SPDX-License-Identifier: Apache-2.0
// Bits that rot. Every byte of every frame is flipped, one at a time, under an open store, and
// bytes of everything else (headers, footers, unsealed tails, the superblock) before a start: what
// is read is right or refused, never wrong. A store that opens has every key: when records are lost
// whose keys nobody knows, it opens only if that is accepted.
#include "store_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "store/shard.h"

#define KEYS       6u
#define BLOB_BYTES ((u32)9000)

static u32 value_bytes(u32 i)
{
    return 100 + i * 300;
}

static struct store_options damage_options(const struct scratch *s)
{
    struct store_options o = small_options(s);
    o.segment_bytes = STORE_SEGMENT_BYTES_MIN;
    o.drive_bytes_max = 12 * o.segment_bytes;
    o.cache_bytes = 0;
    return o;
}

MAY_WAIT static void fill(struct store *s)
{
    u8 *data = malloc(STORE_INLINE_BYTES_MAX);
    for (u32 i = 0; i < KEYS; i++) {
        char key[32];
        snprintf(key, sizeof(key), "k%u", i);
        pattern_fill(data, value_bytes(i), i);
        CHECK(kv_put(s, key, data, value_bytes(i)) == OK);
    }
    free(data);
    u64 id = pg_object_id_new(s, 0);
    struct buf *frame;
    CHECK(buf_get_wait(64 * KIB, &frame) == OK);
    pattern_fill(frame->data + STORE_EXTENT_HEADER, BLOB_BYTES, 99);
    CHECK(pg_extent_write(s, 0, id, 0, frame, BLOB_BYTES) == OK);
    buf_put(frame);
    struct extent_ref ref = {id, BLOB_BYTES};
    struct store_change c = {.key = BYTES_LITERAL("blob"), .refs = &ref, .ref_count = 1};
    CHECK(pg_commit(s, 0, &c, 1) == OK);
}

// Reads everything; returns how much of it was refused. Anything that is served is right. Keys may
// be gone only if `may_miss`.
MAY_WAIT static u32 check_served(struct store *s, bool may_miss)
{
    u8 *want = malloc(STORE_INLINE_BYTES_MAX);
    u8 *got = malloc(STORE_INLINE_BYTES_MAX);
    u32 refused = 0;
    for (u32 i = 0; i < KEYS; i++) {
        char key[32];
        u32 len;
        snprintf(key, sizeof(key), "k%u", i);
        enum err e = kv_get(s, key, got, &len);
        if (e != OK) {
            CHECK(e == ERR_CORRUPT || e == ERR_IO || (e == ERR_NOT_FOUND && may_miss));
            refused++;
            continue;
        }
        pattern_fill(want, value_bytes(i), i);
        CHECK(len == value_bytes(i) && memcmp(got, want, len) == 0);
    }
    struct pg_record r;
    enum err e = pg_read(s, 0, BYTES_LITERAL("blob"), &r);
    if (e == OK) {
        struct buf *b;
        u32 at;
        CHECK(r.ref_count == 1 && r.refs[0].bytes == BLOB_BYTES);
        e = pg_extent_read(s, 0, r.refs[0].object_id, 0, 0, BLOB_BYTES, &b, &at);
        if (e == OK) {
            pattern_fill(want, BLOB_BYTES, 99);
            CHECK(memcmp(b->data + at, want, BLOB_BYTES) == 0);
            buf_put(b);
        }
        pg_record_release(&r);
    }
    CHECK(e == OK || e == ERR_CORRUPT || (e == ERR_NOT_FOUND && may_miss));
    free(want);
    free(got);
    return refused + (e != OK);
}

static void flip(int fd, u64 offset, u8 mask)
{
    u8 byte;
    CHECK(pread(fd, &byte, 1, (off_t)offset) == 1);
    byte ^= mask;
    CHECK(pwrite(fd, &byte, 1, (off_t)offset) == 1);
}

static int segment_fd(const struct scratch *s, u32 id)
{
    char path[TEST_PATH * 2];
    snprintf(path, sizeof(path), "%s/segments/%08u.seg", s->drives[0], id);
    return open(path, O_RDWR);
}

// Every byte of every segment from the header to the end of its frames.
MAY_WAIT static void flip_under_open_store(struct scratch *scratch, struct store *s)
{
    u32 refused = 0;
    for (u32 id = 0; id < s->drives[0]->segments_max; id++) {
        struct segment *seg = &s->drives[0]->segments[id];
        if (seg->state != SEGMENT_SEALED) {
            continue;
        }
        int fd = segment_fd(scratch, id);
        CHECK(fd >= 0);
        for (u32 at = SEGMENT_HEADER_BYTES; at < seg->used_bytes; at++) {
            flip(fd, at, (u8)(1u << (at % 8)));
            refused += check_served(s, false) > 0;
            flip(fd, at, (u8)(1u << (at % 8)));
        }
        close(fd);
    }
    CHECK(refused > 10000); // nearly every byte matters
    CHECK(check_served(s, false) == 0);
}

MAY_WAIT static void fill_run(void *arg)
{
    struct store_options o = damage_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    fill(s);
    CHECK(check_served(s, false) == 0);
    store_close(s);
}

MAY_WAIT static void frames_run(void *arg)
{
    struct store_options o = damage_options(arg);
    struct store *s;
    CHECK(store_open(&o, &s) == OK);
    flip_under_open_store(arg, s);
    store_close(s);
}

static void test_frames(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make_fast(&s);
    run_cores(1, fill_run, &s);
    run_cores(1, frames_run, &s);
    scratch_remove(&s);
}

// ---- damage before a start

struct start_args {
    struct scratch *scratch;
    u32 refused;
    enum err opened;
    bool accepts_losses;
};

MAY_WAIT static void start_run(void *arg)
{
    struct start_args *a = arg;
    struct store_options o = damage_options(a->scratch);
    struct store *s;
    o.accepts_losses = a->accepts_losses;
    a->refused = 0;
    a->opened = store_open(&o, &s);
    if (a->opened == OK) {
        a->refused = check_served(s, a->accepts_losses);
        store_close(s);
    }
}

static void copy_tree(const char *from, const char *to)
{
    char command[TEST_PATH * 6];
    snprintf(command, sizeof(command), "rm -rf '%s' && cp -a --sparse=always '%s' '%s'", to, from,
             to);
    CHECK(system(command) == 0);
}

// Which byte of the drive the next round flips.
struct victim {
    char file[32];
    u64 offset;
};

// Headers, the first frames, and the end of each segment; the superblock.
static u32 victims_list(const struct scratch *s, struct victim *out, u32 max, u32 stride)
{
    u32 n = 0;
    for (u32 at = 0; at < 4096 && n < max; at += stride) {
        snprintf(out[n].file, sizeof(out[n].file), "drive.leat");
        out[n++].offset = at;
    }
    for (u32 id = 0; id < 12; id++) {
        int fd = segment_fd(s, id);
        if (fd < 0) {
            continue;
        }
        u8 *all = malloc(STORE_SEGMENT_BYTES_MIN);
        CHECK(pread(fd, all, STORE_SEGMENT_BYTES_MIN, 0) == (ssize_t)STORE_SEGMENT_BYTES_MIN);
        u32 skipped = 0;
        for (u32 at = 0; at < STORE_SEGMENT_BYTES_MIN && n < max; at++) {
            // Zeros beyond the frames are no data: one in many of them is enough.
            skipped += all[at] != 0 ? 64 : 1;
            if (skipped >= stride * 64) {
                skipped = 0;
                snprintf(out[n].file, sizeof(out[n].file), "segments/%08u.seg", id);
                out[n++].offset = at;
            }
        }
        free(all);
        close(fd);
    }
    return n;
}

static void damage_before_start(bool is_sealed, u32 stride)
{
    struct scratch good;
    struct scratch bad;
    struct victim *victims = calloc(4096, sizeof(*victims));
    scratch_make_fast(&good);
    scratch_make_fast(&bad);
    run_cores(1, fill_run, &good);
    struct start_args a = {.scratch = &good};
    if (is_sealed) {
        run_cores(1, start_run, &a);
        CHECK(a.opened == OK && a.refused == 0);
    }
    u32 count = victims_list(&good, victims, 4096, stride);
    CHECK(count > 20);
    a.scratch = &bad;
    u32 lost = 0;
    u32 unaccepted = 0;
    u32 unopened = 0;
    log_set_level(LOG_LEVEL_ERROR);
    for (u32 i = 0; i < count; i++) {
        char path[TEST_PATH * 2];
        copy_tree(good.drives[0], bad.drives[0]);
        snprintf(path, sizeof(path), "%s/%s", bad.drives[0], victims[i].file);
        int fd = open(path, O_RDWR);
        CHECK(fd >= 0);
        flip(fd, victims[i].offset, (u8)(1u << (i % 8)));
        close(fd);
        run_cores(1, start_run, &a); // CHECKs that nothing wrong is served
        if (a.opened != OK) {
            CHECK(a.opened == ERR_CORRUPT);
            unaccepted++;
            run_cores(1, start_run, &a); // looking at the damage did not hide it
            CHECK(a.opened == ERR_CORRUPT);
            a.accepts_losses = true;
            run_cores(1, start_run, &a);
            a.accepts_losses = false;
        }
        unopened += a.opened != OK;
        lost += a.refused > 0;
    }
    // The superblock's damage is refused; what a footer or a header says twice costs nothing.
    CHECK(unopened > 0 && unopened < count / 2);
    CHECK(lost < count / 2);
    CHECK(is_sealed ? unaccepted == unopened : unaccepted > unopened);
    free(victims);
    scratch_remove(&good);
    scratch_remove(&bad);
}

static void test_sealed(void **state)
{
    (void)state;
    damage_before_start(true, 997);
}

static void test_unsealed(void **state)
{
    (void)state;
    damage_before_start(false, 97);
}

// A segment whose file or both of whose headers are gone takes unknown keys with it.
static void test_segment_gone(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make_fast(&s);
    run_cores(1, fill_run, &s);
    for (u32 round = 0; round < 2; round++) {
        char path[TEST_PATH * 2];
        snprintf(path, sizeof(path), "%s/segments/%08u.seg", s.drives[0], 0u);
        if (round == 0) {
            int fd = open(path, O_RDWR);
            CHECK(fd >= 0);
            flip(fd, 100, 1);
            flip(fd, SEGMENT_BLOCK_BYTES + 100, 1);
            close(fd);
        } else {
            CHECK(unlink(path) == 0);
        }
        struct start_args a = {.scratch = &s};
        run_cores(1, start_run, &a);
        CHECK(a.opened == ERR_CORRUPT);
        a.accepts_losses = true;
        run_cores(1, start_run, &a);
        CHECK(a.opened == OK);
    }
    struct start_args a = {.scratch = &s, .accepts_losses = false};
    run_cores(1, start_run, &a);
    CHECK(a.opened == OK || a.opened == ERR_CORRUPT);
    scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_unsealed),
        cmocka_unit_test(test_segment_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
