// SPDX-License-Identifier: Apache-2.0
// The simulator keeps the promises of drives and breaks everything else, the same way for one seed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fileio.h"
#include "core/mailbox.h"
#include "sim/sim.h"
#include "sys/io.h"

#define FILE_FLAGS (SYS_OPEN_READ | SYS_OPEN_WRITE | SYS_OPEN_CREATE)

static u8 page[SIM_PAGE_BYTES] __attribute__((aligned(4096)));
static u8 back[4 * SIM_PAGE_BYTES] __attribute__((aligned(4096)));

static struct sys *boot(struct sim_disk *disk, struct sim_options options)
{
    struct sys *s;
    assert_int_equal(sim_create(disk, &options, &s), OK);
    return s;
}

static void halt(struct sys *s)
{
    s->ops->destroy(s);
}

static int open_file(struct sys *s, const char *path, unsigned flags)
{
    int fd;
    assert_int_equal(s->ops->file_open(s, path, flags, &fd), OK);
    return fd;
}

// A drive with one file of 16 pages whose name and size are durable.
static struct sim_disk *disk_with_file(void)
{
    struct sim_disk *disk = sim_disk_create(MIB);
    struct sys *s = boot(disk, (struct sim_options){.seed = 1});
    assert_int_equal(s->ops->dir_create(s, "d0"), OK);
    int fd = open_file(s, "/d0/file", FILE_FLAGS);
    assert_int_equal(s->ops->file_allocate(s, fd, 64 * KIB, false), OK);
    assert_int_equal(s->ops->file_flush(s, fd), OK);
    assert_int_equal(s->ops->dir_flush(s, "d0"), OK);
    assert_int_equal(s->ops->dir_flush(s, "/"), OK);
    s->ops->file_close(s, fd);
    halt(s);
    return disk;
}

static void put(struct sys *s, int fd, u8 value, u64 offset)
{
    memset(page, value, sizeof(page));
    assert_int_equal(s->ops->file_write(s, fd, page, sizeof(page), offset), OK);
}

// How many 512-byte sectors of the page hold `value`; the others must hold `other`, or are counted
// as garbage.
static u32 sectors_of(struct sys *s, int fd, u8 value, u8 other, u32 *garbage)
{
    assert_int_equal(s->ops->file_read(s, fd, back, sizeof(page), 0), OK);
    u32 count = 0;
    for (u32 i = 0; i < SIM_PAGE_BYTES / SIM_SECTOR_BYTES; i++) {
        const u8 *sector = back + i * SIM_SECTOR_BYTES;
        u32 same = 0;
        for (u32 b = 1; b < SIM_SECTOR_BYTES; b++) {
            same += sector[b] == sector[0];
        }
        bool is_known = same == SIM_SECTOR_BYTES - 1 && (sector[0] == value || sector[0] == other);
        *garbage += !is_known;
        count += is_known && sector[0] == value;
    }
    return count;
}

static void test_power_loss(void **state)
{
    (void)state;
    u32 lost = 0;
    u32 kept = 0;
    u32 torn = 0;
    u32 garbage = 0;
    for (u64 seed = 1; seed <= 300; seed++) {
        struct sim_disk *disk = disk_with_file();
        struct sys *s = boot(disk, (struct sim_options){.seed = seed});
        int fd = open_file(s, "d0/file", FILE_FLAGS);
        put(s, fd, 1, 0);
        put(s, fd, 7, 4096);
        assert_int_equal(s->ops->file_flush(s, fd), OK);
        put(s, fd, 2, 0);
        sim_crash(s);
        assert_int_equal(s->ops->file_flush(s, fd), ERR_IO);
        assert_int_equal(s->ops->file_write(s, fd, page, sizeof(page), 0), ERR_IO);
        s->ops->file_close(s, fd);
        halt(s);
        s = boot(disk, (struct sim_options){.seed = seed});
        fd = open_file(s, "d0/file", SYS_OPEN_READ);
        u32 count = sectors_of(s, fd, 2, 1, &garbage);
        lost += count == 0;
        kept += count == 8;
        torn += count > 0 && count < 8;
        // What was flushed is whole.
        assert_int_equal(s->ops->file_read(s, fd, back, sizeof(page), 4096), OK);
        assert_int_equal(back[0], 7);
        assert_memory_equal(back, back + 1, sizeof(page) - 1);
        s->ops->file_close(s, fd);
        halt(s);
        sim_disk_destroy(disk);
    }
    assert_true(lost > 60 && kept > 60 && torn > 30 && garbage > 3);
}

static void test_kill_keeps_writes(void **state)
{
    (void)state;
    for (u64 seed = 1; seed <= 20; seed++) {
        struct sim_disk *disk = disk_with_file();
        struct sys *s = boot(disk, (struct sim_options){.seed = seed, .is_kill = true});
        int fd = open_file(s, "d0/file", FILE_FLAGS);
        put(s, fd, 2, 0);
        sim_crash(s);
        s->ops->file_close(s, fd);
        halt(s);
        // It is still not durable: a power loss in the next life may take it.
        s = boot(disk, (struct sim_options){.seed = seed});
        fd = open_file(s, "d0/file", FILE_FLAGS);
        u32 garbage = 0;
        assert_int_equal(sectors_of(s, fd, 2, 0, &garbage), 8);
        sim_crash(s);
        s->ops->file_close(s, fd);
        halt(s);
        sim_disk_destroy(disk);
    }
}

static enum err count_name(void *arg, const char *name)
{
    assert_true(strlen(name) > 0);
    (*(u32 *)arg)++;
    return OK;
}

static void test_directories(void **state)
{
    (void)state;
    u32 with_new = 0;
    u32 with_old = 0;
    for (u64 seed = 1; seed <= 100; seed++) {
        struct sim_disk *disk = disk_with_file();
        struct sys *s = boot(disk, (struct sim_options){.seed = seed});
        s->ops->file_close(s, open_file(s, "d0/new.tmp", FILE_FLAGS | SYS_OPEN_EXCLUSIVE));
        int fd;
        assert_int_equal(s->ops->file_open(s, "d0/new.tmp", FILE_FLAGS | SYS_OPEN_EXCLUSIVE, &fd),
                         ERR_EXISTS);
        assert_int_equal(s->ops->file_open(s, "d0/none", SYS_OPEN_READ, &fd), ERR_NOT_FOUND);
        assert_int_equal(s->ops->file_open(s, "d9/file", FILE_FLAGS, &fd), ERR_NOT_FOUND);
        assert_int_equal(s->ops->dir_create(s, "d0"), ERR_EXISTS);
        assert_int_equal(s->ops->file_rename(s, "d0/new.tmp", "d0/file"), OK);
        u32 names = 0;
        assert_int_equal(s->ops->dir_list(s, "d0", count_name, &names), OK);
        assert_int_equal(names, 1);
        bool is_flushed = seed % 4 == 0;
        if (is_flushed) {
            assert_int_equal(s->ops->dir_flush(s, "d0"), OK);
        }
        sim_crash(s);
        halt(s);
        s = boot(disk, (struct sim_options){.seed = seed});
        u64 size;
        fd = open_file(s, "d0/file", SYS_OPEN_READ); // the old or the new one, but one of them
        assert_int_equal(s->ops->file_size(s, fd, &size), OK);
        with_new += size == 0;
        with_old += size == 64 * KIB;
        assert_true(!is_flushed || size == 0);
        s->ops->file_close(s, fd);
        halt(s);
        sim_disk_destroy(disk);
    }
    assert_true(with_new > 35 && with_old > 20 && with_new + with_old == 100);
}

static void test_space_and_locks(void **state)
{
    (void)state;
    struct sim_disk *disk = disk_with_file();
    struct sys *s = boot(disk, (struct sim_options){.seed = 3});
    struct sys_space space;
    assert_int_equal(s->ops->dir_space(s, "d0", &space), OK);
    assert_true(space.total_bytes == MIB && space.free_bytes == MIB - 64 * KIB);
    int fd = open_file(s, "d0/big", FILE_FLAGS | SYS_OPEN_LOCK);
    assert_int_equal(s->ops->file_allocate(s, fd, MIB, true), ERR_DRIVE_FULL);
    assert_int_equal(s->ops->file_allocate(s, fd, MIB - 64 * KIB, true), OK);
    assert_int_equal(s->ops->file_write(s, fd, page, sizeof(page), MIB - 64 * KIB), ERR_DRIVE_FULL);
    int other;
    assert_int_equal(s->ops->file_open(s, "d0/big", FILE_FLAGS | SYS_OPEN_LOCK, &other),
                     ERR_IN_USE);
    s->ops->file_close(s, fd);
    assert_int_equal(s->ops->file_read(s, open_file(s, "d0/big", SYS_OPEN_READ), back, 1, MIB),
                     ERR_END);
    assert_int_equal(s->ops->file_remove(s, "d0/big"), OK);
    assert_int_equal(s->ops->dir_space(s, "d0", &space), OK);
    assert_true(space.free_bytes == MIB - 64 * KIB);
    halt(s);
    sim_disk_destroy(disk);
}

struct tracked {
    struct io_op op;
    u32 *order;
    u32 place; // when it completed, from 1
};

static void tracked_done(struct io_op *op)
{
    struct tracked *t = CONTAINER_OF(op, struct tracked, op);
    t->place = ++*t->order;
}

static void submit(struct io_engine *e, struct tracked *t, u8 kind, int fd, u64 offset, u16 flags)
{
    t->op.kind = kind;
    t->op.fd = fd;
    t->op.flags = flags;
    t->op.buf = page;
    t->op.len = kind == IO_FLUSH ? 0 : sizeof(page);
    t->op.offset = offset;
    t->op.done = tracked_done;
    io_submit(e, &t->op);
}

// Runs the engine until `count` operations completed.
static void poll_until(struct io_engine *e, const u32 *order, u32 count)
{
    while (*order < count) {
        e->ops->poll(e, UINT64_MAX);
    }
}

// A flush covers what had completed when it was issued, and nothing that had not.
static void test_flush_covers(void **state)
{
    (void)state;
    u32 lost_after = 0;
    for (u64 seed = 1; seed <= 60; seed++) {
        struct sim_disk *disk = disk_with_file();
        struct sys *s = boot(disk, (struct sim_options){.seed = seed});
        struct io_engine *e;
        assert_int_equal(s->ops->io_create(s, 8, &e), OK);
        int fd = open_file(s, "d0/file", FILE_FLAGS | SYS_OPEN_DIRECT);
        u32 order = 0;
        struct tracked ops[3] = {{.order = &order}, {.order = &order}, {.order = &order}};
        memset(page, 5, sizeof(page));
        submit(e, &ops[0], IO_WRITE, fd, 0, 0);
        assert_int_equal(order, 0);
        e->ops->poll(e, 0);
        assert_int_equal(order, 0); // time stands still
        poll_until(e, &order, 1);
        submit(e, &ops[1], IO_WRITE, fd, 4096, 0);
        submit(e, &ops[2], IO_FLUSH, fd, 0, 0);
        poll_until(e, &order, 3);
        assert_int_equal(ops[0].op.result, sizeof(page));
        assert_int_equal(ops[2].op.result, 0);
        sim_crash(s);
        s->ops->file_close(s, fd);
        e->ops->destroy(e);
        halt(s);
        s = boot(disk, (struct sim_options){.seed = seed});
        fd = open_file(s, "d0/file", SYS_OPEN_READ);
        assert_int_equal(s->ops->file_read(s, fd, back, 2 * SIM_PAGE_BYTES, 0), OK);
        assert_int_equal(back[0], 5);
        assert_int_equal(back[4095], 5);
        lost_after += back[4096] != 5;
        s->ops->file_close(s, fd);
        halt(s);
        sim_disk_destroy(disk);
    }
    assert_true(lost_after > 10);
}

// A link orders a write and its flush, breaks on an error, and other operations overtake.
static void test_links_and_order(void **state)
{
    (void)state;
    u32 overtaken = 0;
    for (u64 seed = 1; seed <= 60; seed++) {
        struct sim_disk *disk = disk_with_file();
        bool is_failing = seed % 3 == 0;
        struct sys *s = boot(disk, (struct sim_options){
                                       .seed = seed,
                                       .write_error_ppm = is_failing ? 1000000 : 0,
                                   });
        struct io_engine *e;
        assert_int_equal(s->ops->io_create(s, 8, &e), OK);
        int fd = open_file(s, "d0/file", FILE_FLAGS);
        u32 order = 0;
        struct tracked ops[4] = {
            {.order = &order}, {.order = &order}, {.order = &order}, {.order = &order}};
        submit(e, &ops[0], IO_WRITE, fd, 0, IO_FLAG_LINK);
        submit(e, &ops[1], IO_FLUSH, fd, 0, 0);
        submit(e, &ops[2], IO_WRITE, fd, 4096, 0);
        submit(e, &ops[3], IO_WRITE, fd, 8192, 0);
        poll_until(e, &order, 4);
        assert_true(ops[0].place < ops[1].place);
        overtaken += ops[3].place < ops[2].place;
        assert_int_equal(ops[0].op.result, is_failing ? -EIO : (i32)sizeof(page));
        assert_int_equal(ops[1].op.result, is_failing ? -ECANCELED : 0);
        s->ops->file_close(s, fd);
        e->ops->destroy(e);
        halt(s);
        sim_disk_destroy(disk);
    }
    assert_true(overtaken > 10 && overtaken < 50);
}

static void test_flip_bit(void **state)
{
    (void)state;
    struct sim_disk *disk = disk_with_file();
    u64 random = 4;
    char place[600];
    assert_false(sim_disk_flip_bit(disk, &random, place, sizeof(place)));
    struct sys *s = boot(disk, (struct sim_options){.seed = 1});
    int fd = open_file(s, "d0/file", FILE_FLAGS);
    for (u64 at = 0; at < 8; at++) {
        put(s, fd, 0, at * 4096);
    }
    assert_int_equal(s->ops->file_flush(s, fd), OK);
    assert_true(sim_disk_flip_bit(disk, &random, place, sizeof(place)));
    u32 bits = 0;
    for (u64 at = 0; at < 8; at++) {
        assert_int_equal(s->ops->file_read(s, fd, back, sizeof(page), at * 4096), OK);
        for (u32 i = 0; i < sizeof(page); i++) {
            bits += (u32)__builtin_popcount(back[i]);
        }
    }
    assert_int_equal(bits, 1);
    s->ops->file_close(s, fd);
    halt(s);
    sim_disk_destroy(disk);
}

// Fibers of three cores write and read one file each, through the runtime, in virtual time.
struct job {
    int fds[3];
    u64 hash; // of everything that was observed, in order
    u32 done;
};

static void core_job(void *arg)
{
    struct job *j = arg;
    u32 core = core_id();
    u8 *mine = aligned_alloc(4096, 4096);
    ASSERT(mine != NULL);
    for (u32 i = 0; i < 8; i++) {
        memset(mine, (int)(core * 8 + i), 4096);
        ASSERT(fileio_write_flush(j->fds[core], mine, 4096, i * 4096) == OK);
        ASSERT(fiber_sleep(core_random_u64() % 1000000) == OK);
        memset(mine, 0xff, 4096);
        ASSERT(fileio_read(j->fds[core], mine, 4096, i * 4096) == OK);
        ASSERT(mine[77] == core * 8 + i);
        j->hash = (j->hash ^ core_now_ns() ^ core) * 0x9e3779b97f4a7c15u;
    }
    free(mine);
    j->done++;
}

static void main_job(void *arg)
{
    ASSERT(core_call_all(core_job, arg) == OK);
}

static u64 run_cores(u64 seed)
{
    struct sim_disk *disk = sim_disk_create(0);
    struct sys *s = boot(disk, (struct sim_options){.seed = seed, .short_ppm = 100000});
    assert_int_equal(s->ops->dir_create(s, "d0"), OK);
    struct job j = {0};
    for (u32 i = 0; i < 3; i++) {
        char path[16];
        snprintf(path, sizeof(path), "d0/f%u", i);
        j.fds[i] = open_file(s, path, FILE_FLAGS | SYS_OPEN_DIRECT);
        assert_int_equal(s->ops->file_allocate(s, j.fds[i], 64 * KIB, true), OK);
    }
    struct runtime_options o = {.cores = 3,
                                .buf_bytes = 8 * MIB,
                                .fibers_max = 64,
                                .is_single_thread = true,
                                .schedule_seed = seed};
    struct runtime *rt;
    assert_int_equal(runtime_create(s, &o, &rt), OK);
    assert_int_equal(runtime_run(rt, main_job, &j), OK);
    runtime_destroy(rt);
    assert_int_equal(j.done, 3);
    for (u32 i = 0; i < 3; i++) {
        s->ops->file_close(s, j.fds[i]);
    }
    halt(s);
    sim_disk_destroy(disk);
    return j.hash;
}

static void test_runtime_is_deterministic(void **state)
{
    (void)state;
    u64 first = run_cores(11);
    assert_true(first == run_cores(11));
    assert_true(first != run_cores(12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_loss),   cmocka_unit_test(test_kill_keeps_writes),
        cmocka_unit_test(test_directories),  cmocka_unit_test(test_space_and_locks),
        cmocka_unit_test(test_flush_covers), cmocka_unit_test(test_links_and_order),
        cmocka_unit_test(test_flip_bit),     cmocka_unit_test(test_runtime_is_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
