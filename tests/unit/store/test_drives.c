// SPDX-License-Identifier: Apache-2.0
// Which drives a store opens, and which it refuses with a reason.
#include "store_test.h"

#include <fcntl.h>
#include <sys/stat.h>

struct open_args {
    struct store_options options;
    enum err expected;
    u32 keys; // put when the store is empty, checked when it is not
    bool is_check;
};

MAY_WAIT static void open_run(void *arg)
{
    struct open_args *a = arg;
    struct store *s = NULL;
    enum err e = store_open(&a->options, &s);
    if (e != a->expected) {
        fprintf(stderr, "got %s, expected %s\n", err_name(e), err_name(a->expected));
    }
    CHECK(e == a->expected);
    if (e != OK) {
        return;
    }
    u8 *got = malloc(STORE_INLINE_BYTES_MAX);
    for (u32 i = 0; i < a->keys; i++) {
        char key[32];
        u32 len;
        snprintf(key, sizeof(key), "k%u", i);
        if (a->is_check) {
            CHECK(kv_get(s, key, got, &len) == OK && len == strlen(key));
            CHECK(memcmp(got, key, len) == 0);
        } else {
            CHECK(kv_put(s, key, key, (u32)strlen(key)) == OK);
        }
    }
    free(got);
    store_close(s);
}

static void expect(struct store_options o, enum err e)
{
    struct open_args a = {.options = o, .expected = e};
    run_cores(1, open_run, &a);
}

static void test_several_drives(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    struct open_args a = {.options = small_options(&s), .keys = 100};
    a.options.drive_count = 3;
    run_cores(2, open_run, &a);
    a.is_check = true;
    run_cores(1, open_run, &a);
    const char *turned[3] = {s.drives[2], s.drives[0], s.drives[1]};
    a.options.drives = turned; // the order does not matter
    run_cores(2, open_run, &a);
    a.options.drives = s.drive_list;

    struct store_options o = small_options(&s);
    o.drive_count = 2; // one is missing
    expect(o, ERR_INVALID);
    o.drive_count = 4; // one too many, and blank
    expect(o, ERR_INVALID);
    const char *twice[3] = {s.drives[0], s.drives[1], s.drives[1]};
    o.drives = twice;
    o.drive_count = 3;
    expect(o, ERR_IN_USE);
    const char *blank[3] = {s.drives[0], s.drives[1], s.drives[3]};
    o.drives = blank;
    expect(o, ERR_INVALID);
    run_cores(2, open_run, &a); // refusals changed nothing
    scratch_remove(&s);
}

static void test_drive_of_another_store(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    struct store_options o = small_options(&s);
    o.drive_count = 2;
    expect(o, OK);
    o.drives = &s.drive_list[2];
    expect(o, OK);
    const char *mixed[2] = {s.drives[0], s.drives[3]};
    o.drives = mixed;
    expect(o, ERR_INVALID);
    scratch_remove(&s);
}

static void write_file(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "w");
    CHECK(f != NULL && fwrite(data, 1, len, f) == len && fclose(f) == 0);
}

static void test_strange_directories(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    struct store_options o = small_options(&s);
    char path[TEST_PATH * 2];
    CHECK(mkdir(s.drives[0], 0700) == 0);
    snprintf(path, sizeof(path), "%s/holiday.jpg", s.drives[0]);
    write_file(path, "x", 1);
    expect(o, ERR_INVALID); // not empty
    CHECK(unlink(path) == 0);
    expect(o, OK);
    snprintf(path, sizeof(path), "%s/drive.leat", s.drives[0]);
    int fd = open(path, O_RDWR);
    u8 *block = malloc(4096);
    CHECK(fd >= 0 && pread(fd, block, 4096, 0) == 4096);
    block[100] ^= 1;
    CHECK(pwrite(fd, block, 4096, 0) == 4096);
    expect(o, ERR_CORRUPT);
    block[100] ^= 1;
    CHECK(pwrite(fd, block, 4096, 0) == 4096);
    close(fd);
    expect(o, OK); // which replaces the file
    CHECK(truncate(path, 100) == 0);
    expect(o, ERR_CORRUPT);
    free(block);
    const char *nowhere[1] = {"/proc/no/such/place"};
    o.drives = nowhere;
    struct open_args a = {.options = o, .expected = ERR_NOT_FOUND};
    run_cores(1, open_run, &a);
    scratch_remove(&s);
}

static void test_options(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    struct store_options o = small_options(&s);
    o.pg_count = 12;
    expect(o, ERR_INVALID);
    o.pg_count = STORE_PGS_MAX * 2;
    expect(o, ERR_INVALID);
    o = small_options(&s);
    o.segment_bytes = 128 * KIB;
    expect(o, ERR_INVALID);
    o.segment_bytes = MIB + 1;
    expect(o, ERR_INVALID);
    o.segment_bytes = STORE_SEGMENT_BYTES_MAX + 4096;
    expect(o, ERR_INVALID);
    o = small_options(&s);
    o.drive_count = 0;
    expect(o, ERR_INVALID);
    o.drive_count = STORE_DRIVES_MAX + 1;
    expect(o, ERR_INVALID);
    o = small_options(&s);
    o.drive_bytes_max = 3 * o.segment_bytes;
    expect(o, ERR_INVALID);
    o.drive_bytes_max = 0;
    o.compact_percent = 96;
    expect(o, ERR_INVALID);
    scratch_remove(&s);
}

// A drive that another process, here another runtime, has open.
MAY_WAIT static void in_use_run(void *arg)
{
    struct store_options *o = arg;
    struct store *s;
    struct store *second;
    CHECK(store_open(o, &s) == OK);
    CHECK(store_open(o, &second) == ERR_IN_USE);
    store_close(s);
    CHECK(store_open(o, &s) == OK);
    store_close(s);
}

static void test_in_use(void **state)
{
    (void)state;
    struct scratch s;
    scratch_make(&s);
    struct store_options o = small_options(&s);
    run_cores(1, in_use_run, &o);
    scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_drives),
        cmocka_unit_test(test_drive_of_another_store),
        cmocka_unit_test(test_strange_directories),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
