// SPDX-License-Identifier: Apache-2.0
// Synchronous reads and writes: any alignment, ends of files, holes, policies, refusals. Every test
// runs for each backend and kind of memory; bytes are checked against the pattern, and bytes around
// the read against what was there before.
#include "ds_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define GUARD 0xA5

// Reads into guarded memory and checks that exactly the expected bytes changed.
static void read_and_check(opends_handle_t h, uint8_t *memory, size_t capacity, size_t size,
                           off_t offset, off_t at, size_t expected)
{
    uint8_t *host = malloc(capacity);
    memory_set(memory, GUARD, capacity);
    ssize_t n = opends_read(h, memory, size, offset, at);
    if (n != (ssize_t)expected) {
        fail_msg("read of %zu at %lld into +%lld gave %zd, not %zu: %s", size, (long long)offset,
                 (long long)at, n, expected, opends_last_error());
    }
    memory_get(host, memory, capacity);
    pattern_check(host + at, 7, (uint64_t)offset, expected);
    // Around what was asked for nothing may have changed, least of all up to a block's end. (Past
    // the end of the file but inside the range, a device may leave a block's zeros.)
    for (size_t i = 0; i < capacity; i++) {
        bool is_outside = i < (size_t)at || i >= (size_t)at + size;
        if (is_outside && host[i] != GUARD) {
            fail_msg("byte %zu outside the read was changed to %02x", i, host[i]);
        }
    }
    free(host);
}

static void test_read_alignments(void **state)
{
    (void)state;
    const size_t file_bytes = 300001;
    const off_t offsets[] = {0, 1, 511, 512, 513, 4095, 4096, 4097, 65536, 99999, 299520, 300000};
    const size_t sizes[] = {0, 1, 511, 512, 513, 4096, 4097, 65535, 65536, 65537, 131072, 200001};
    const off_t ats[] = {0, 1, 16, 512, 4096, 4099};
    const int flags[] = {0, O_DIRECT};
    for (size_t f = 0; f < 2; f++) {
        int fd = file_make(7, file_bytes, flags[f]);
        opends_handle_t h = handle_new(fd);
        uint8_t *memory = memory_new(220000);
        for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
            for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
                size_t left = file_bytes - (size_t)offsets[i];
                off_t at = ats[(i + j) % 6];
                read_and_check(h, memory, 220000, sizes[j], offsets[i], at,
                               sizes[j] < left ? sizes[j] : left);
            }
        }
        memory_delete(memory);
        opends_handle_deregister(h);
        close(fd);
    }
}

static void test_read_random(void **state)
{
    (void)state;
    const size_t file_bytes = 5 * 1024 * 1024 + 777;
    int fd = file_make(7, file_bytes, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    close(fd); // the library has its own
    uint8_t *memory = memory_new(4 << 20);
    uint64_t seed = 12345;
    for (int i = 0; i < 60; i++) {
        off_t offset = (off_t)(random_next(&seed) % file_bytes);
        size_t size = random_next(&seed) % (3 << 20);
        off_t at = (off_t)(random_next(&seed) % (1 << 20));
        size_t left = file_bytes - (size_t)offset;
        read_and_check(h, memory, 4 << 20, size, offset, at, size < left ? size : left);
    }
    memory_delete(memory);
    opends_handle_deregister(h);
}

static void test_end_of_file(void **state)
{
    (void)state;
    int fd = file_make(7, 10000, 0);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(65536);
    read_and_check(h, memory, 65536, 20000, 0, 0, 10000);
    read_and_check(h, memory, 65536, 512, 9999, 3, 1);
    read_and_check(h, memory, 65536, 512, 10000, 0, 0);
    read_and_check(h, memory, 65536, 512, 10001, 0, 0);
    read_and_check(h, memory, 65536, 4096, 1 << 30, 0, 0);
    read_and_check(h, memory, 65536, 0, 5000, 0, 0);
    assert_int_equal(opends_read(h, NULL, 0, 0, 0), 0);
    // The file shrinks and grows under the handle.
    assert_int_equal(ftruncate(fd, 5000), 0);
    read_and_check(h, memory, 65536, 20000, 0, 0, 5000);
    uint8_t *tail = malloc(7000);
    pattern_fill(tail, 7, 5000, 7000);
    assert_int_equal(pwrite(fd, tail, 7000, 5000), 7000);
    read_and_check(h, memory, 65536, 20000, 0, 0, 12000);
    free(tail);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_holes_and_unwritten(void **state)
{
    (void)state;
    const size_t bytes = 1 << 20;
    uint8_t *host = malloc(bytes);
    uint8_t *memory = memory_new(bytes);
    int fd = file_make(7, 4096, 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    // A hole, then preallocated but unwritten blocks, then data.
    assert_int_equal(posix_fallocate(fd, 500000, 200000), 0);
    assert_int_equal(pwrite(fd, "end", 3, (off_t)bytes - 3), 3);
    opends_handle_t h = handle_new(fd);
    memory_set(memory, GUARD, bytes);
    assert_int_equal(opends_read(h, memory, bytes, 0, 0), bytes);
    memory_get(host, memory, bytes);
    pattern_check(host, 7, 0, 4096);
    for (size_t i = 4096; i < bytes - 3; i++) {
        assert_int_equal(host[i], 0);
    }
    assert_memory_equal(host + bytes - 3, "end", 3);
    opends_handle_deregister(h);
    close(fd);
    memory_delete(memory);
    free(host);
}

static void test_write_alignments(void **state)
{
    (void)state;
    const size_t bytes = 2 << 20;
    uint8_t *model = calloc(1, bytes);
    uint8_t *host = malloc(bytes);
    uint8_t *memory = memory_new(bytes);
    for (int f = 0; f < 2; f++) {
        int fd = file_make(7, 0, f == 0 ? 0 : O_DIRECT);
        opends_handle_t h = handle_new(fd);
        uint64_t seed = 99;
        size_t end = 0;
        memset(model, 0, bytes);
        for (int i = 0; i < 80; i++) {
            size_t size = random_next(&seed) % (i % 4 == 0 ? 900000 : 9000);
            size_t offset = random_next(&seed) % (bytes - size);
            if (i % 3 == 0) {
                offset = offset / 4096 * 4096;
                size = size / 4096 * 4096;
            }
            size_t at = random_next(&seed) % (bytes - size);
            pattern_fill(host, (uint64_t)i, offset, size);
            memory_put(memory + at, host, size);
            assert_int_equal(opends_write(h, memory, size, (off_t)offset, (off_t)at), size);
            memcpy(model + offset, host, size);
            end = size > 0 && offset + size > end ? offset + size : end;
        }
        assert_ok(opends_flush(h));
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, end);
        // Read through the library and through the page cache: both must see the model.
        memory_set(memory, GUARD, bytes);
        assert_int_equal(opends_read(h, memory, bytes, 0, 0), end);
        memory_get(host, memory, bytes);
        assert_memory_equal(host, model, end);
        int plain = open("/proc/self/fd/0", O_RDONLY);
        char path[64];
        close(plain);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        plain = open(path, O_RDONLY);
        assert_int_equal(pread(plain, host, bytes, 0), end);
        assert_memory_equal(host, model, end);
        close(plain);
        opends_handle_deregister(h);
        close(fd);
    }
    memory_delete(memory);
    free(model);
    free(host);
}

static void test_append_descriptor(void **state)
{
    (void)state;
    // pwrite on an O_APPEND descriptor ignores its offset; the library must not.
    int fd = file_make(7, 10000, O_APPEND);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(4096);
    uint8_t host[2048];
    pattern_fill(host, 8, 4096, 2048);
    memory_put(memory, host, 2048);
    assert_int_equal(opends_write(h, memory, 2048, 4096, 0), 2048);
    struct stat st;
    fstat(fd, &st);
    assert_int_equal(st.st_size, 10000);
    assert_int_equal(pread(fd, host, 2048, 4096), 2048);
    pattern_check(host, 8, 4096, 2048);
    memory_delete(memory);
    opends_handle_deregister(h);
    close(fd);
}

static void test_refusals(void **state)
{
    (void)state;
    opends_handle_t h = NULL;
    uint8_t *memory = memory_new(8192);
    assert_err(opends_handle_register(&h, -1), OPENDS_INVALID_VALUE);
    assert_null(h);
    assert_err(opends_handle_register(NULL, 0), OPENDS_INVALID_VALUE);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_err(opends_handle_register(&h, pipes[0]), OPENDS_INVALID_FILE_TYPE);
    int folder = open(".", O_RDONLY);
    assert_err(opends_handle_register(&h, folder), OPENDS_INVALID_FILE_TYPE);
    close(folder);
    close(pipes[0]);
    close(pipes[1]);

    int fd = file_make(7, 8192, 0);
    h = handle_new(fd);
    assert_int_equal(opends_read(h, memory, 10, -1, 0), -OPENDS_INVALID_VALUE);
    assert_int_equal(errno, EINVAL);
    assert_true(strlen(opends_last_error()) > 0);
    assert_int_equal(opends_read(h, memory, 10, 0, -1), -OPENDS_INVALID_VALUE);
    assert_int_equal(opends_read(h, NULL, 10, 0, 0), -OPENDS_POINTER_INVALID);
    assert_int_equal(opends_read(h, memory, 10, INT64_MAX - 5, 0), -OPENDS_INVALID_VALUE);
    assert_int_equal(opends_read(h, memory, SIZE_MAX, 0, 0), -OPENDS_INVALID_VALUE);
    // The buffer is registered: leaving it is an error, its last byte is not.
    assert_int_equal(opends_read(h, memory, 8192, 0, 1), -OPENDS_POINTER_RANGE_ERROR);
    assert_int_equal(opends_read(h, memory, 8193, 0, 0), -OPENDS_POINTER_RANGE_ERROR);
    assert_int_equal(opends_read(h, memory, 1, 0, 8191), 1);
    opends_handle_deregister(h);
    assert_int_equal(opends_read(h, memory, 10, 0, 0), -OPENDS_HANDLE_NOT_REGISTERED);
    opends_handle_deregister(h); // stale names are ignored
    opends_handle_deregister(NULL);
    assert_int_equal(opends_read((opends_handle_t)(uintptr_t)0x1234, memory, 10, 0, 0),
                     -OPENDS_HANDLE_NOT_REGISTERED);
    // The slot is used again under another name.
    opends_handle_t other = handle_new(fd);
    assert_ptr_not_equal(other, h);
    assert_int_equal(opends_read(h, memory, 10, 0, 0), -OPENDS_HANDLE_NOT_REGISTERED);
    assert_int_equal(opends_use_count(), 1);
    opends_handle_deregister(other);
    assert_int_equal(opends_use_count(), 0);
    close(fd);

    char path[64];
    fd = file_make_named(path, 7, 8192, 0);
    close(fd);
    fd = open(path, O_RDONLY);
    h = handle_new(fd);
    assert_int_equal(opends_write(h, memory, 10, 0, 0), -OPENDS_INVALID_FILE_OPEN_FLAG);
    opends_handle_deregister(h);
    close(fd);
    fd = open(path, O_WRONLY);
    h = handle_new(fd);
    assert_int_equal(opends_read(h, memory, 10, 0, 0), -OPENDS_INVALID_FILE_OPEN_FLAG);
    assert_int_equal(opends_write(h, memory, 10, 0, 0), 10);
    assert_int_equal(opends_write(h, memory, 4096, 4096, 0), 4096);
    opends_handle_deregister(h);
    close(fd);
    unlink(path);
    memory_delete(memory);
}

// A filesystem that refuses O_DIRECT: ramfs, in a mount namespace of our own. -1 when not allowed.
static int refusing_file(void)
{
    char folder[] = "ds-ramfs-XXXXXX";
    char path[64];
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    int fd = -1;
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("ramfs", folder, "ramfs", 0, NULL) == 0) {
        snprintf(path, sizeof(path), "%s/file", folder);
        fd = open(path, O_RDWR | O_CREAT, 0600);
        umount2(folder, MNT_DETACH);
    }
    rmdir(folder);
    return fd;
}

static void test_direct_refused(void **state)
{
    (void)state;
    int fd = refusing_file();
    if (fd < 0) {
        print_message("no ramfs may be mounted here\n");
        skip();
    }
    uint8_t host[3000];
    pattern_fill(host, 7, 0, sizeof(host));
    assert_int_equal(pwrite(fd, host, sizeof(host), 0), sizeof(host));
    uint8_t *memory = memory_new(65536);
    opends_path_info_t info;
    opends_handle_t h = handle_new(fd); // policy auto falls back, and says so
    read_and_check(h, memory, 65536, 60000, 1, 3, 2999);
    assert_ok(opends_handle_path(h, &info));
    if (strcmp(info.backend, "gds") != 0) { // cuFile takes any descriptor
        assert_int_equal(info.path, OPENDS_PATH_BUFFERED);
        assert_true(strlen(info.reason) > 0);
    }
    opends_handle_deregister(h);
    memory_delete(memory);

    driver_reopen("OPENDS_POLICY", "require-direct");
    assert_err(opends_handle_register(&h, fd), OPENDS_DIO_NOT_SET);
    assert_non_null(strstr(opends_last_error(), "require-direct"));
    driver_reopen("OPENDS_POLICY", "compat");
    memory = memory_new(65536);
    h = handle_new(fd);
    read_and_check(h, memory, 65536, 60000, 1, 3, 2999);
    opends_handle_deregister(h);
    memory_delete(memory);
    close(fd);
}

static void test_policies(void **state)
{
    (void)state;
    opends_path_info_t info;
    bool is_plain = strcmp(backend_name(), "uring") == 0 || strcmp(backend_name(), "auto") == 0;
    driver_reopen("OPENDS_POLICY", "compat");
    uint8_t *memory = memory_new(65536);
    int plain = file_make(7, 50000, 0);
    int direct = file_make(7, 50000, O_DIRECT);
    opends_handle_t h = handle_new(plain);
    read_and_check(h, memory, 65536, 50000, 0, 0, 50000);
    assert_ok(opends_handle_path(h, &info));
    if (strcmp(info.backend, "gds") != 0) {
        assert_int_equal(info.path, OPENDS_PATH_BUFFERED);
        assert_int_equal(info.buffered_bytes, 50000);
        assert_true(strlen(info.reason) > 0);
    }
    opends_handle_deregister(h);
    h = handle_new(direct);
    assert_ok(opends_handle_path(h, &info));
    if (is_plain) {
        assert_int_equal(info.path, OPENDS_PATH_DIRECT);
        read_and_check(h, memory, 65536, 50000, 0, 0, 50000);
        assert_ok(opends_handle_path(h, &info));
        assert_int_equal(info.direct_bytes + info.bounced_bytes, 50000);
        assert_int_equal(info.buffered_bytes, 0);
    }
    opends_handle_deregister(h);
    memory_delete(memory);
    close(plain);
    close(direct);
}

static void test_driver(void **state)
{
    (void)state;
    opends_drv_props_t props;
    opends_handle_t h;
    unsigned major = 99, minor = 99, patch = 99;
    assert_err(opends_driver_open(), OPENDS_DRIVER_ALREADY_OPEN);
    assert_ok(opends_get_version(&major, &minor, &patch));
    assert_ok(opends_get_version(NULL, NULL, NULL));
    assert_int_equal(major, 0);
    assert_ok(opends_driver_get_properties(&props));
    assert_int_equal(props.max_direct_io_size, 1 << 20);
    assert_err(opends_driver_set_max_direct_io_size(4097), OPENDS_DRIVER_UNSUPPORTED_LIMIT);
    assert_err(opends_driver_set_max_direct_io_size(1 << 30), OPENDS_DRIVER_UNSUPPORTED_LIMIT);
    assert_ok(opends_driver_set_max_direct_io_size(128 << 10));
    assert_ok(opends_driver_get_properties(&props));
    assert_int_equal(props.max_direct_io_size, 128 << 10);
    int fd = file_make(7, 600001, 0);
    h = handle_new(fd);
    uint8_t *memory = memory_new(700000);
    read_and_check(h, memory, 700000, 650000, 0, 0, 600001); // in pieces of 128 KiB
    assert_ok(opends_driver_close());
    assert_err(opends_driver_close(), OPENDS_DRIVER_NOT_INITIALIZED);
    assert_err(opends_handle_register(&h, fd), OPENDS_DRIVER_NOT_INITIALIZED);
    assert_int_equal(opends_read(h, memory, 1, 0, 0), -OPENDS_DRIVER_NOT_INITIALIZED);
    assert_null(opends_alloc(4096));
    assert_int_equal(opends_use_count(), 0);
    // Malformed configuration is refused with a sentence, and leaves the driver closed.
    const char *const bad[][2] = {{"OPENDS_BACKEND", "warp"},   {"OPENDS_THREADS", "0"},
                                  {"OPENDS_THREADS", "65"},     {"OPENDS_QUEUE_DEPTH", "x"},
                                  {"OPENDS_CHUNK_KIB", "65"},   {"OPENDS_POLICY", "maybe"},
                                  {"OPENDS_TRACE", "65537"},    {"OPENDS_FAULT", "read:EIO"},
                                  {"OPENDS_FAULT", "read:X:1"}, {"OPENDS_WRITE_DURABLE", "2"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *old = getenv(bad[i][0]);
        char *keep = old == NULL ? NULL : strdup(old);
        setenv(bad[i][0], bad[i][1], 1);
        assert_err(opends_driver_open(), OPENDS_DRIVER_INVALID_PROPS);
        assert_non_null(strstr(opends_last_error(), bad[i][0]));
        if (keep != NULL) {
            setenv(bad[i][0], keep, 1);
            free(keep);
        } else {
            unsetenv(bad[i][0]);
        }
    }
    assert_ok(opends_driver_open());
    assert_int_equal(opends_read(h, NULL, 0, 0, 0), -OPENDS_HANDLE_NOT_REGISTERED); // of before
    close(fd);
    assert_string_equal(opends_op_status_error((opends_op_error_t)4711), "unknown opends error");
    assert_string_equal(OPENDS_ERRSTR(-5001), "driver is not open");
    assert_true(IS_OPENDS_ERR(-5027));
    assert_false(IS_OPENDS_ERR(4096));
}

static void test_buffers(void **state)
{
    (void)state;
    uint8_t *host = aligned_alloc(4096, 65536);
    assert_err(opends_buf_register(NULL, 10, 0), OPENDS_INVALID_VALUE);
    assert_err(opends_buf_register(host, 0, 0), OPENDS_INVALID_VALUE);
    assert_ok(opends_buf_register(host + 4096, 8192, 0));
    assert_err(opends_buf_register(host + 4096, 8192, 0), OPENDS_MEMORY_ALREADY_REGISTERED);
    assert_err(opends_buf_register(host + 8192, 100, 0), OPENDS_MEMORY_ALREADY_REGISTERED);
    assert_err(opends_buf_register(host, 4097, 0), OPENDS_MEMORY_ALREADY_REGISTERED);
    assert_ok(opends_buf_register(host, 4096, 0));
    assert_ok(opends_buf_register(host + 12288, 1, 0));
    assert_err(opends_buf_deregister(host + 1), OPENDS_MEMORY_NOT_REGISTERED);
    int fd = file_make(7, 65536, 0);
    opends_handle_t h = handle_new(fd);
    assert_int_equal(opends_read(h, host, 4097, 0, 0), -OPENDS_POINTER_RANGE_ERROR);
    for (int i = 0; i < 10; i++) { // often enough for a fixed buffer
        assert_int_equal(opends_read(h, host + 4096, 8192, i * 4096, 0), 8192);
        pattern_check(host + 4096, 7, (uint64_t)i * 4096, 8192);
    }
    assert_ok(opends_buf_deregister(host + 4096));
    assert_err(opends_buf_deregister(host + 4096), OPENDS_MEMORY_NOT_REGISTERED);
    assert_ok(opends_buf_deregister(host));
    assert_ok(opends_buf_deregister(host + 12288));
    assert_int_equal(opends_read(h, host, 4097, 0, 0), 4097); // unregistered memory is fine too
    opends_handle_deregister(h);
    close(fd);
    free(host);
}

static void test_path_report(void **state)
{
    (void)state;
    opends_path_info_t info;
    int fd = file_make(7, 300000, O_DIRECT);
    opends_handle_t h = handle_new(fd);
    uint8_t *memory = memory_new(524288);
    assert_err(opends_handle_path(h, NULL), OPENDS_INVALID_VALUE);
    read_and_check(h, memory, 524288, 299999, 0, 0, 299999);
    assert_ok(opends_handle_path(h, &info));
    uint64_t total = info.direct_bytes + info.bounced_bytes + info.buffered_bytes +
                     info.passthrough_bytes + info.zeroed_bytes + info.gds_bytes;
    assert_int_equal(total, 299999);
    if (strcmp(backend_name(), "auto") != 0) {
        assert_string_equal(info.backend, backend_name());
    }
    if (strcmp(info.backend, "uring") == 0) {
        assert_int_equal(info.path, OPENDS_PATH_DIRECT);
        assert_true(info.offset_align >= 512);
        assert_true(memory_is_device() ? info.direct_bytes == 0 : info.direct_bytes > 290000);
    }
    if (strcmp(info.backend, "nvme") != 0) { // which leaves a file just written to the filesystem
        assert_int_equal(info.fallbacks, 0);
    }
    struct stat st;
    fstat(fd, &st);
    assert_int_equal(info.device_major, st.st_dev >> 8 & 0xfff);
    opends_handle_deregister(h);
    assert_err(opends_handle_path(h, &info), OPENDS_HANDLE_NOT_REGISTERED);
    memory_delete(memory);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]); // tests/vm runs a part, for time's sake
    }
#define T(name) cmocka_unit_test_setup_teardown(name, driver_setup, driver_teardown)
    const struct CMUnitTest tests[] = {
        T(test_read_alignments),  T(test_read_random),
        T(test_end_of_file),      T(test_holes_and_unwritten),
        T(test_write_alignments), T(test_append_descriptor),
        T(test_refusals),         T(test_direct_refused),
        T(test_policies),         T(test_driver),
        T(test_buffers),          T(test_path_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
