// SPDX-License-Identifier: Apache-2.0
// A libcufile.so.0 for tests: the calls that the gds backend makes, over pread and pwrite into the
// stub CUDA driver's device memory. Like the vendor's, it refuses files it does not like, moves at
// most 16 MiB a call, and answers -1 with errno for system errors.
//
// STUB_CUFILE_FAIL=call:code  read, write, handle, driver fail with the code (negative for -errno
// style)
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ds/cufile_abi.h"
#include "stub_cuda.h"

#define CALL_BYTES_MAX (16u << 20)

STUB_API struct cufile_error cuFileDriverOpen(void);
STUB_API struct cufile_error cuFileDriverClose(void);
STUB_API struct cufile_error cuFileHandleRegister(void **fh, struct cufile_descr *descr);
STUB_API void cuFileHandleDeregister(void *fh);
STUB_API struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags);
STUB_API struct cufile_error cuFileBufDeregister(const void *base);
STUB_API ssize_t cuFileRead(void *fh, void *base, size_t size, off_t offset, off_t base_offset);
STUB_API ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t offset,
                             off_t base_offset);
STUB_API long stub_cufile_calls(void);

static _Atomic long calls;

struct stub_handle {
    int fd;
};

static int fail_code(const char *call)
{
    const char *spec = getenv("STUB_CUFILE_FAIL");
    char want[32];
    int code;
    if (spec == NULL || sscanf(spec, "%31[^:]:%d", want, &code) != 2 || strcmp(want, call) != 0) {
        return 0;
    }
    return code;
}

long stub_cufile_calls(void)
{
    return atomic_load(&calls);
}

struct cufile_error cuFileDriverOpen(void)
{
    return (struct cufile_error){fail_code("driver"), 0};
}

struct cufile_error cuFileDriverClose(void)
{
    return (struct cufile_error){0, 0};
}

struct cufile_error cuFileHandleRegister(void **fh, struct cufile_descr *descr)
{
    int code = fail_code("handle");
    struct stub_handle *h = code == 0 ? malloc(sizeof(*h)) : NULL;
    if (h != NULL) {
        h->fd = dup(descr->handle.fd);
        *fh = h;
    }
    return (struct cufile_error){code, 0};
}

void cuFileHandleDeregister(void *fh)
{
    struct stub_handle *h = fh;
    close(h->fd);
    free(h);
}

struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags)
{
    (void)flags;
    bool is_known = stub_cuda_alias((uint64_t)(uintptr_t)base, size) != NULL;
    return (struct cufile_error){is_known ? 0 : 5013, 0};
}

struct cufile_error cuFileBufDeregister(const void *base)
{
    (void)base;
    return (struct cufile_error){0, 0};
}

static ssize_t move(void *fh, uint64_t device, size_t size, off_t offset, int is_write)
{
    int code = fail_code(is_write ? "write" : "read");
    struct stub_handle *h = fh;
    size_t n = size < CALL_BYTES_MAX ? size : CALL_BYTES_MAX;
    void *memory = stub_cuda_alias(device, n);
    void *bounce = NULL;
    atomic_fetch_add(&calls, 1);
    if (code > 5000) {
        return -code;
    }
    if (code != 0) {
        errno = -code;
        return -1;
    }
    if (memory == NULL) {
        return -5012;
    }
    // The descriptor may demand alignment; the vendor's library bounces too.
    size_t lead = (size_t)(offset % 4096);
    size_t whole = (lead + n + 4095) / 4096 * 4096;
    if (posix_memalign(&bounce, 4096, whole) != 0) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t rc;
    if (is_write) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", h->fd);
        FILE *f = fopen(path, "r+e");
        rc = f == NULL ? -1 : pwrite(fileno(f), memory, n, offset);
        if (f != NULL) {
            fclose(f);
        }
    } else {
        rc = pread(h->fd, bounce, whole, offset - (off_t)lead);
        rc = rc < 0 ? rc : rc <= (ssize_t)lead ? 0 : rc - (ssize_t)lead;
        rc = rc > (ssize_t)n ? (ssize_t)n : rc;
        if (rc > 0) {
            memcpy(memory, (char *)bounce + lead, (size_t)rc);
        }
    }
    free(bounce);
    return rc;
}

ssize_t cuFileRead(void *fh, void *base, size_t size, off_t offset, off_t base_offset)
{
    return move(fh, (uint64_t)(uintptr_t)base + (uint64_t)base_offset, size, offset, 0);
}

ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t offset, off_t base_offset)
{
    return move(fh, (uint64_t)(uintptr_t)base + (uint64_t)base_offset, size, offset, 1);
}
