// SPDX-License-Identifier: Apache-2.0
// A libcufile.so.0 for tests: the calls that the gds backend makes, over pread and pwrite into the
// stub CUDA driver's device memory. Like the vendor's, it refuses files it does not like, moves at
// most 16 MiB a call, and answers -1 with errno for system errors.
//
// Batches hold BATCH_ENTRIES_MAX entries, refuse more, move CALL_BYTES_MAX an entry at most, and
// report the newest first.
//
// STUB_CUFILE_FAIL=call:code  read, write, handle, driver, setup, submit, status, entry fail with
// the code (negative for -errno style)
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ds/cufile_abi.h"
#include "stub_cuda.h"

#define CALL_BYTES_MAX    (16u << 20)
#define BATCH_ENTRIES_MAX 32u

STUB_API struct cufile_error cuFileDriverOpen(void);
STUB_API struct cufile_error cuFileDriverClose(void);
STUB_API struct cufile_error cuFileHandleRegister(void **fh, struct cufile_descr *descr);
STUB_API void cuFileHandleDeregister(void *fh);
STUB_API struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags);
STUB_API struct cufile_error cuFileBufDeregister(const void *base);
STUB_API ssize_t cuFileRead(void *fh, void *base, size_t size, off_t offset, off_t base_offset);
STUB_API ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t offset,
                             off_t base_offset);
STUB_API struct cufile_error cuFileBatchIOSetUp(void **batch, unsigned nr);
STUB_API struct cufile_error cuFileBatchIOSubmit(void *batch, unsigned nr,
                                                 opends_io_params_t *params, unsigned flags);
STUB_API struct cufile_error cuFileBatchIOGetStatus(void *batch, unsigned min_nr, unsigned *nr,
                                                    opends_io_events_t *events,
                                                    struct timespec *timeout);
STUB_API void cuFileBatchIODestroy(void *batch);
STUB_API long stub_cufile_calls(void);
STUB_API long stub_cufile_batch_entries(void);

static _Atomic long calls;
static _Atomic long batch_entries;

struct stub_batch {
    unsigned capacity;
    unsigned count; // entries with an event not yet reported
    opends_io_events_t events[BATCH_ENTRIES_MAX];
};

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

long stub_cufile_batch_entries(void)
{
    return atomic_load(&batch_entries);
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

struct cufile_error cuFileBatchIOSetUp(void **batch, unsigned nr)
{
    int code = fail_code("setup");
    if (code == 0 && (nr == 0 || nr > BATCH_ENTRIES_MAX)) {
        code = OPENDS_DRIVER_UNSUPPORTED_LIMIT;
    }
    struct stub_batch *b = code == 0 ? calloc(1, sizeof(*b)) : NULL;
    if (b != NULL) {
        b->capacity = nr;
        *batch = b;
    }
    return (struct cufile_error){code, 0};
}

struct cufile_error cuFileBatchIOSubmit(void *batch, unsigned nr, opends_io_params_t *params,
                                        unsigned flags)
{
    struct stub_batch *b = batch;
    int code = fail_code("submit");
    int entry_code = fail_code("entry");
    (void)flags;
    if (code == 0 && nr > b->capacity - b->count) {
        code = OPENDS_BATCH_FULL;
    }
    for (unsigned i = 0; i < nr && code == 0; i++) {
        const opends_io_params_t *p = &params[i];
        uint64_t device =
            (uint64_t)(uintptr_t)p->u.batch.dev_ptr_base + (uint64_t)p->u.batch.dev_ptr_offset;
        ssize_t n = entry_code != 0 ? -1
                                    : move(p->fh, device, p->u.batch.size, p->u.batch.file_offset,
                                           p->opcode == OPENDS_WRITE);
        b->events[b->count++] =
            (opends_io_events_t){.cookie = p->cookie,
                                 .status = n < 0 ? OPENDS_FAILED : OPENDS_COMPLETE,
                                 .ret = (size_t)n};
        atomic_fetch_add(&batch_entries, 1);
    }
    return (struct cufile_error){code, 0};
}

struct cufile_error cuFileBatchIOGetStatus(void *batch, unsigned min_nr, unsigned *nr,
                                           opends_io_events_t *events, struct timespec *timeout)
{
    struct stub_batch *b = batch;
    unsigned count = 0;
    int code = fail_code("status");
    (void)min_nr;
    (void)timeout;
    while (code == 0 && count < *nr && b->count > 0) {
        events[count++] = b->events[--b->count];
    }
    *nr = count;
    return (struct cufile_error){code, 0};
}

void cuFileBatchIODestroy(void *batch)
{
    free(batch);
}
