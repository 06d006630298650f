// SPDX-License-Identifier: Apache-2.0
// A drive's segments: headers that stand twice, the reserve, leftovers of a crash.
#include "base/log.h"
#include "core/fiber.h"
#include "core/reactor.h"
#include "dev/drive.h"
#include "dev/segment.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define CHECK(expr)   ASSERT(expr)
#define SEGMENT_BYTES ((u64)256 * KIB)
#define PATH_MAX_TEST 160

struct place {
    char root[64];
    char drive[96];
};

static void place_make(struct place *p)
{
    const char *base = getenv("TMPDIR");
    snprintf(p->root, sizeof(p->root), "%s/leat-dev-XXXXXX", base == NULL ? "/var/tmp" : base);
    CHECK(mkdtemp(p->root) != NULL);
    snprintf(p->drive, sizeof(p->drive), "%s/d", p->root);
}

static void place_remove(const struct place *p)
{
    char command[PATH_MAX_TEST];
    snprintf(command, sizeof(command), "rm -rf '%s'", p->root);
    CHECK(system(command) == 0);
}

static void run(fiber_fn fn, void *arg)
{
    struct sys *sys;
    struct runtime *rt;
    CHECK(sys_real_create(&sys) == OK);
    struct runtime_options o = {.cores = 1, .buf_bytes = 8 * MIB, .fibers_max = 64};
    CHECK(runtime_create(sys, &o, &rt) == OK);
    CHECK(runtime_run(rt, fn, arg) == OK);
    runtime_destroy(rt);
    sys->ops->destroy(sys);
}

MAY_WAIT static struct drive *drive_make(const char *path, u32 segments)
{
    struct drive *d;
    CHECK(drive_attach(path, &d) == OK);
    if (!d->is_formatted) {
        struct drive_super *super = calloc(1, sizeof(*super));
        super->drive_count = 1;
        super->pg_count = 8;
        super->segment_bytes = SEGMENT_BYTES;
        CHECK(drive_super_write(d, super) == OK);
        free(super);
    }
    CHECK(drive_segments_open(d, segments * SEGMENT_BYTES) == OK);
    return d;
}

static void damage(const struct place *p, u32 id, u64 offset)
{
    char path[PATH_MAX_TEST];
    snprintf(path, sizeof(path), "%s/segments/%08u.seg", p->drive, id);
    int fd = open(path, O_RDWR);
    u8 byte;
    CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)offset) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, (off_t)offset) == 1 && close(fd) == 0);
}

MAY_WAIT static void headers_run(void *arg)
{
    struct place *p = arg;
    struct drive *d = drive_make(p->drive, 8);
    struct segment *seg;
    CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_WRITE, &seg) == OK);
    CHECK(seg->kind == SEGMENT_LOG && seg->generation == 2 && seg->is_written);
    struct segment was = *seg;
    for (u32 copy = 0; copy < 2; copy++) { // either copy may rot; it is repaired
        damage(p, seg->id, copy * SEGMENT_BLOCK_BYTES + 60);
        *seg = (struct segment){.id = was.id, .fd = was.fd};
        CHECK(segment_header_read(d, seg) == OK);
        CHECK(seg->cookie == was.cookie && seg->generation == 2 && seg->kind == SEGMENT_LOG);
    }
    damage(p, seg->id, 100);
    damage(p, seg->id, SEGMENT_BLOCK_BYTES + 200);
    CHECK(segment_header_read(d, seg) == ERR_CORRUPT);
    // A header of another place is none.
    struct buf *b;
    CHECK(buf_get_wait(SEGMENT_BLOCK_BYTES, &b) == OK);
    *seg = was;
    segment_header_encode(d, seg, b->data);
    struct segment_header h;
    CHECK(segment_header_decode(d, seg->id, b->data, &h) == OK && h.generation == 2);
    CHECK(segment_header_decode(d, seg->id + 1, b->data, &h) == ERR_CORRUPT);
    buf_put(b);
    // A new generation has a new cookie.
    CHECK(segment_header_advance(d, seg, SEGMENT_FREE) == OK);
    CHECK(seg->generation == 3 && seg->cookie != was.cookie);
    drive_detach(d);
}

static void test_headers(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    run(headers_run, &p);
    place_remove(&p);
}

MAY_WAIT static void space_run(void *arg)
{
    struct place *p = arg;
    struct drive *d = drive_make(p->drive, 8);
    struct segment *seg[8];
    CHECK(drive_reserve_fill(d, 2, 3) == OK);
    CHECK(d->free_count == 5);
    for (u32 i = 0; i < 3; i++) {
        CHECK(drive_has_room(d));
        CHECK(drive_segment_take(d, i % 2 ? SEGMENT_LOG : SEGMENT_EXTENT, SPACE_WRITE, &seg[i]) ==
              OK);
    }
    CHECK(!drive_has_room(d) && drive_is_short(d));
    CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_WRITE, &seg[3]) == ERR_DRIVE_FULL);
    CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_DELETE, &seg[3]) == OK);
    CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_DELETE, &seg[4]) == OK);
    CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_DELETE, &seg[5]) == ERR_DRIVE_FULL);
    for (u32 i = 5; i < 8; i++) {
        CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_COMPACT, &seg[i]) == OK);
    }
    CHECK(drive_segment_take(d, SEGMENT_LOG, SPACE_COMPACT, &seg[0]) == ERR_DRIVE_FULL);
    for (u32 i = 0; i < 6; i++) { // freed ones go to compaction first, then deletes, then writes
        drive_segment_sealed(d, seg[i]);
        CHECK(drive_segment_erase(d, seg[i]) == OK);
        CHECK(!drive_has_room(d));
        drive_segment_release(d, seg[i]);
    }
    CHECK(drive_has_room(d));
    u64 total;
    u64 free_bytes;
    drive_space_known(d, &total, &free_bytes);
    CHECK(total == 8 * SEGMENT_BYTES && free_bytes == SEGMENT_BYTES);
    drive_detach(d);
}

static void test_space(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    run(space_run, &p);
    place_remove(&p);
}

MAY_WAIT static void leftover_first(void *arg)
{
    struct place *p = arg;
    struct drive *d = drive_make(p->drive, 4);
    CHECK(drive_reserve_fill(d, 1, 1) == OK);
    CHECK(d->segments_present == 2);
    drive_detach(d);
    char path[PATH_MAX_TEST];
    snprintf(path, sizeof(path), "%s/segments/00000002.new", p->drive); // half-made
    FILE *f = fopen(path, "w");
    CHECK(f != NULL && fputs("half", f) >= 0 && fclose(f) == 0);
    snprintf(path, sizeof(path), "%s/drive.leat.new", p->drive);
    f = fopen(path, "w");
    CHECK(f != NULL && fputs("half", f) >= 0 && fclose(f) == 0);
}

MAY_WAIT static void leftover_second(void *arg)
{
    struct place *p = arg;
    struct drive *d = drive_make(p->drive, 4);
    CHECK(d->segments_present == 2);
    for (u32 id = 0; id < 2; id++) {
        CHECK(segment_header_read(d, drive_segment(d, id)) == OK);
        drive_segment_found(d, id, SEGMENT_IDLE);
    }
    CHECK(drive_reserve_fill(d, 2, 1) == OK); // makes number 2 over the leftover
    struct segment *seg = drive_segment(d, 2);
    CHECK(seg->state == SEGMENT_IDLE && segment_header_read(d, seg) == OK);
    drive_detach(d);
}

static void test_leftovers(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    run(leftover_first, &p);
    run(leftover_second, &p);
    place_remove(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
