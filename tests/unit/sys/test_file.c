// SPDX-License-Identifier: Apache-2.0
// The real sys: files, directories, clocks, randomness.
#include "sys/sys.h"

#include <stdarg.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>
#include <cmocka.h>

struct fixture {
    struct sys *sys;
    char dir[64];
    char path[96];
    char other[96];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(sys_real_create(&f->sys), OK);
    strcpy(f->dir, "/tmp/leat-unit-sys-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/file", f->dir);
    snprintf(f->other, sizeof(f->other), "%s/other", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    unlink(f->path);
    unlink(f->other);
    assert_int_equal(rmdir(f->dir), 0);
    f->sys->ops->destroy(f->sys);
    free(f);
    return 0;
}

#define OPEN_NEW (SYS_OPEN_READ | SYS_OPEN_WRITE | SYS_OPEN_CREATE | SYS_OPEN_EXCLUSIVE)

static void test_write_and_read_are_whole(void **state)
{
    struct fixture *f = *state;
    const struct sys_ops *ops = f->sys->ops;
    int fd;
    char got[11] = {0};
    u64 size;
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW, &fd), OK);
    assert_int_equal(ops->file_write(f->sys, fd, "0123456789", 10, 5), OK);
    assert_int_equal(ops->file_flush(f->sys, fd), OK);
    assert_int_equal(ops->file_size(f->sys, fd, &size), OK);
    assert_int_equal(size, 15);
    assert_int_equal(ops->file_read(f->sys, fd, got, 10, 5), OK);
    assert_string_equal(got, "0123456789");
    assert_int_equal(ops->file_read(f->sys, fd, got, 10, 6), ERR_END);
    ops->file_close(f->sys, fd);
}

static void test_open_says_what_is_wrong(void **state)
{
    struct fixture *f = *state;
    const struct sys_ops *ops = f->sys->ops;
    int fd;
    int again;
    assert_int_equal(ops->file_open(f->sys, f->path, SYS_OPEN_READ, &fd), ERR_NOT_FOUND);
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW | SYS_OPEN_LOCK, &fd), OK);
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW, &again), ERR_EXISTS);
    assert_int_equal(ops->file_open(f->sys, f->path, SYS_OPEN_READ | SYS_OPEN_LOCK, &again),
                     ERR_IN_USE);
    ops->file_close(f->sys, fd);
    assert_int_equal(ops->file_open(f->sys, f->path, SYS_OPEN_READ | SYS_OPEN_LOCK, &fd), OK);
    // /proc has no direct I/O.
    assert_int_equal(
        ops->file_open(f->sys, "/proc/version", SYS_OPEN_READ | SYS_OPEN_DIRECT, &again),
        ERR_UNSUPPORTED);
    ops->file_close(f->sys, fd);
}

static void test_private_files_have_mode_0600(void **state)
{
    struct fixture *f = *state;
    const struct sys_ops *ops = f->sys->ops;
    int fd;
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW | SYS_OPEN_PRIVATE, &fd), OK);
    ops->file_close(f->sys, fd);
    char command[160];
    snprintf(command, sizeof(command), "test \"$(stat -c %%a %s)\" = 600", f->path);
    assert_int_equal(system(command), 0);
}

static void test_allocate_fills_with_zeros(void **state)
{
    struct fixture *f = *state;
    const struct sys_ops *ops = f->sys->ops;
    int fd;
    u64 size;
    u8 *got = malloc(3 * MIB);
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW, &fd), OK);
    assert_int_equal(ops->file_write(f->sys, fd, "dirt", 4, 2 * MIB), OK);
    assert_int_equal(ops->file_allocate(f->sys, fd, 2 * MIB + 4096, true), OK);
    assert_int_equal(ops->file_size(f->sys, fd, &size), OK);
    assert_int_equal(size, 2 * MIB + 4096);
    assert_int_equal(ops->file_read(f->sys, fd, got, size, 0), OK);
    for (u64 i = 0; i < size; i++) {
        assert_int_equal(got[i], 0);
    }
    assert_int_equal(ops->file_allocate(f->sys, fd, 3 * MIB, false), OK);
    assert_int_equal(ops->file_size(f->sys, fd, &size), OK);
    assert_int_equal(size, 3 * MIB);
    ops->file_close(f->sys, fd);
    free(got);
}

// A file size limit stands in for a full drive: both end a write short and then refuse.
static void test_full_drive_is_an_error(void **state)
{
    struct fixture *f = *state;
    const struct sys_ops *ops = f->sys->ops;
    struct rlimit before;
    int fd;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    static const u8 data[8192] = {1};
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW, &fd), OK);
    setrlimit(RLIMIT_FSIZE, &limit);
    enum err e = ops->file_write(f->sys, fd, data, sizeof(data), 0);
    enum err allocate = ops->file_allocate(f->sys, fd, 8192, true);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(e, ERR_DRIVE_FULL);
    assert_int_equal(allocate, ERR_DRIVE_FULL);
    ops->file_close(f->sys, fd);
}

static enum err collect_name(void *arg, const char *name)
{
    char *names = arg;
    strcat(names, name);
    strcat(names, " ");
    return OK;
}

static enum err refuse_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return ERR_BUSY;
}

static void test_directories(void **state)
{
    struct fixture *f = *state;
    const struct sys_ops *ops = f->sys->ops;
    char names[64] = "";
    struct sys_space space;
    int fd;
    int calls = 0;
    assert_int_equal(ops->dir_create(f->sys, f->dir), ERR_EXISTS);
    assert_int_equal(ops->file_open(f->sys, f->path, OPEN_NEW, &fd), OK);
    ops->file_close(f->sys, fd);
    assert_int_equal(ops->file_rename(f->sys, f->path, f->other), OK);
    assert_int_equal(ops->dir_flush(f->sys, f->dir), OK);
    assert_int_equal(ops->dir_list(f->sys, f->dir, collect_name, names), OK);
    assert_string_equal(names, "other ");
    assert_int_equal(ops->dir_list(f->sys, f->dir, refuse_name, &calls), ERR_BUSY);
    assert_int_equal(calls, 1);
    assert_int_equal(ops->file_remove(f->sys, f->other), OK);
    assert_int_equal(ops->file_remove(f->sys, f->other), ERR_NOT_FOUND);
    assert_int_equal(ops->dir_list(f->sys, "/nonexistent-leat", collect_name, names),
                     ERR_NOT_FOUND);
    assert_int_equal(ops->dir_space(f->sys, f->dir, &space), OK);
    assert_true(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
}

static void test_clocks_and_randomness(void **state)
{
    struct fixture *f = *state;
    u64 before = sys_mono_ns(f->sys);
    assert_true(sys_mono_ns(f->sys) >= before);
    assert_true(sys_wall_ns(f->sys) > (u64)1600000000 * NS_PER_S);
    u8 a[64] = {0};
    u8 b[64] = {0};
    f->sys->ops->random_bytes(f->sys, a, sizeof(a));
    f->sys->ops->random_bytes(f->sys, b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write_and_read_are_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_says_what_is_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_private_files_have_mode_0600, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocate_fills_with_zeros, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_drive_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(test_directories, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clocks_and_randomness, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
