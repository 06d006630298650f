// SPDX-License-Identifier: Apache-2.0
#include "ds_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint8_t pattern_byte(uint64_t seed, uint64_t offset)
{
    uint64_t word = (offset / 8 + seed * 0x100000001b3u) * 0x9e3779b97f4a7c15u;
    word ^= word >> 29;
    return (uint8_t)(word >> (offset % 8 * 8));
}

void pattern_fill(uint8_t *out, uint64_t seed, uint64_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = pattern_byte(seed, offset + i);
    }
}

void pattern_check(const uint8_t *bytes, uint64_t seed, uint64_t offset, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != pattern_byte(seed, offset + i)) {
            fail_msg("byte %zu (file offset %llu) is %02x, not %02x", i,
                     (unsigned long long)(offset + i), bytes[i], pattern_byte(seed, offset + i));
        }
    }
}

int file_make_named(char *path, uint64_t seed, size_t bytes, int flags)
{
    strcpy(path, "ds-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    size_t step = 1 << 20;
    uint8_t *buffer = malloc(step);
    assert_non_null(buffer);
    for (size_t at = 0; at < bytes; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;
        pattern_fill(buffer, seed, at, n);
        assert_int_equal(pwrite(fd, buffer, n, (off_t)at), n);
    }
    free(buffer);
    close(fd);
    fd = open(path, O_RDWR | flags);
    assert_true(fd >= 0);
    return fd;
}

int file_make(uint64_t seed, size_t bytes, int flags)
{
    char path[64];
    int fd = file_make_named(path, seed, bytes, flags);
    unlink(path);
    return fd;
}

// The stub driver's synchronous copies; NULL without one.
static void *cuda_symbol(const char *name)
{
    const char *library = getenv("OPENDS_CUDA_LIBRARY");
    void *l = library == NULL ? NULL : dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return l == NULL ? NULL : dlsym(l, name);
}

bool memory_is_device(void)
{
    const char *accel = getenv("OPENDS_ACCEL");
    return accel != NULL && strcmp(accel, "cuda") == 0;
}

uint8_t *memory_new(size_t bytes)
{
    uint8_t *p = opends_alloc(bytes);
    assert_non_null(p);
    return p;
}

void memory_delete(uint8_t *memory)
{
    opends_free(memory);
}

void memory_put(uint8_t *memory, const uint8_t *from, size_t bytes)
{
    if (!memory_is_device()) {
        memcpy(memory, from, bytes);
        return;
    }
    int (*copy)(uint64_t, const void *, size_t) = cuda_symbol("cuMemcpyHtoD_v2");
    assert_non_null(copy);
    assert_int_equal(copy((uint64_t)(uintptr_t)memory, from, bytes), 0);
}

void memory_get(uint8_t *to, const uint8_t *memory, size_t bytes)
{
    if (!memory_is_device()) {
        memcpy(to, memory, bytes);
        return;
    }
    int (*copy)(void *, uint64_t, size_t) = cuda_symbol("cuMemcpyDtoH_v2");
    assert_non_null(copy);
    assert_int_equal(copy(to, (uint64_t)(uintptr_t)memory, bytes), 0);
}

void memory_set(uint8_t *memory, uint8_t value, size_t bytes)
{
    uint8_t *host = malloc(bytes + 1);
    assert_non_null(host);
    memset(host, value, bytes);
    memory_put(memory, host, bytes);
    free(host);
}

void assert_ok(opends_error_t e)
{
    if (e.err != OPENDS_SUCCESS) {
        fail_msg("error %d (%s), dev_err %d: %s", e.err, opends_op_status_error(e.err), e.dev_err,
                 opends_last_error());
    }
}

void assert_err(opends_error_t e, opends_op_error_t code)
{
    assert_int_equal(e.err, code);
}

opends_handle_t handle_new(int fd)
{
    opends_handle_t h = NULL;
    assert_true(fd >= 0);
    assert_ok(opends_handle_register(&h, fd));
    assert_non_null(h);
    return h;
}

const char *backend_name(void)
{
    const char *b = getenv("OPENDS_BACKEND");
    return b == NULL ? "auto" : b;
}

int driver_setup(void **state)
{
    (void)state;
    assert_ok(opends_driver_open());
    return 0;
}

int driver_teardown(void **state)
{
    (void)state;
    assert_ok(opends_driver_close());
    unsetenv("OPENDS_POLICY");
    unsetenv("OPENDS_FAULT");
    unsetenv("OPENDS_QUEUE_DEPTH");
    unsetenv("OPENDS_THREADS");
    unsetenv("OPENDS_TRACE");
    unsetenv("OPENDS_IO_TIMEOUT_MS");
    unsetenv("STUB_CUDA_FAIL");
    unsetenv("STUB_CUDA_DELAY_US");
    unsetenv("STUB_CUFILE_FAIL");
    return 0;
}

void driver_reopen(const char *variable, const char *value)
{
    assert_ok(opends_driver_close());
    setenv(variable, value, 1);
    assert_ok(opends_driver_open());
}

uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
