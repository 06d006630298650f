// SPDX-License-Identifier: Apache-2.0
// A cuFile program: it knows cuFile's documented names alone (its declarations are written here
// from the documentation), is linked against a library of that name, and runs on our face by
// LD_LIBRARY_PATH. Prints "ok cufile-NAME" or "not ok cufile-NAME: line" a test.
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int err;
    int cu_err;
} CUfileError_t;
typedef void *CUfileHandle_t;
typedef struct {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *fs_ops;
} CUfileDescr_t;
typedef struct {
    int mode;
    union {
        struct {
            void *devPtr_base;
            off_t file_offset;
            off_t devPtr_offset;
            size_t size;
        } batch;
    } u;
    CUfileHandle_t fh;
    int opcode;
    void *cookie;
} CUfileIOParams_t;
typedef struct {
    void *cookie;
    int status;
    size_t ret;
} CUfileIOEvents_t;
typedef struct {
    struct {
        unsigned major_version, minor_version;
        size_t poll_thresh_size, max_direct_io_size;
        unsigned dstatusflags, dcontrolflags;
    } nvfs;
    unsigned fflags, max_device_cache_size, per_buffer_cache_size, max_device_pinned_mem_size;
    unsigned max_batch_io_size, max_batch_io_timeout_msecs;
} CUfileDrvProps_t;

extern CUfileError_t cuFileDriverOpen(void);
extern CUfileError_t cuFileDriverClose_v2(void);
extern long cuFileUseCount(void);
extern CUfileError_t cuFileGetVersion(int *version);
extern CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props);
extern CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t kib);
extern CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr);
extern void cuFileHandleDeregister(CUfileHandle_t fh);
extern CUfileError_t cuFileBufRegister(const void *base, size_t size, int flags);
extern CUfileError_t cuFileBufDeregister(const void *base);
extern ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t offset, off_t at);
extern ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t offset,
                           off_t at);
extern CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *offset,
                                     off_t *at, ssize_t *bytes, void *stream);
extern CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *offset,
                                      off_t *at, ssize_t *bytes, void *stream);
extern CUfileError_t cuFileStreamRegister(void *stream, unsigned flags);
extern CUfileError_t cuFileStreamDeregister(void *stream);
extern CUfileError_t cuFileBatchIOSetUp(void **batch, unsigned nr);
extern CUfileError_t cuFileBatchIOSubmit(void *batch, unsigned nr, CUfileIOParams_t *p,
                                         unsigned flags);
extern CUfileError_t cuFileBatchIOGetStatus(void *batch, unsigned min_nr, unsigned *nr,
                                            CUfileIOEvents_t *e, struct timespec *timeout);
extern CUfileError_t cuFileBatchIOCancel(void *batch);
extern void cuFileBatchIODestroy(void *batch);
extern const char *cufileop_status_error(int status);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("not ok cufile-%s: line %d: %s\n", name, __LINE__, #condition);                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

enum { BYTES = 300001 };

static int sync_io(const char *name, CUfileHandle_t fh, unsigned char *data, unsigned char *memory)
{
    CHECK(cuFileWrite(fh, data, BYTES, 0, 0) == BYTES);
    CHECK(cuFileRead(fh, memory, BYTES, 0, 0) == BYTES && memcmp(memory, data, BYTES) == 0);
    CHECK(cuFileBufRegister(memory, BYTES, 0).err == 0);
    CHECK(cuFileRead(fh, memory, 1000, 77, 33) == 1000 &&
          memcmp(memory + 33, data + 77, 1000) == 0);
    CHECK(cuFileRead(fh, memory, BYTES, BYTES - 10, 0) == 10);
    CHECK(cuFileRead(fh, memory, BYTES, 0, 1) == -5014);
    CHECK(cuFileBufDeregister(memory).err == 0);
    CHECK(cuFileBufDeregister(memory).err == 5024);
    return 0;
}

static int batch_io(const char *name, CUfileHandle_t fh, unsigned char *data, unsigned char *memory)
{
    void *batch = NULL;
    static CUfileIOParams_t p[200];
    static CUfileIOEvents_t events[200];
    CHECK(cuFileBatchIOSetUp(&batch, 16).err == 0);
    memset(memory, 0, BYTES);
    for (int i = 0; i < 200; i++) { // far above what was set up: queued, not refused
        p[i].mode = 1;
        p[i].u.batch.devPtr_base = memory;
        p[i].u.batch.devPtr_offset = i * 1000;
        p[i].u.batch.file_offset = i * 1000;
        p[i].u.batch.size = 1000;
        p[i].fh = fh;
        p[i].cookie = &p[i];
    }
    CHECK(cuFileBatchIOSubmit(batch, 200, p, 0).err == 0);
    unsigned done = 0;
    while (done < 200) {
        unsigned nr = 200;
        struct timespec t = {.tv_sec = 20};
        CHECK(cuFileBatchIOGetStatus(batch, 1, &nr, events, &t).err == 0 && nr > 0);
        for (unsigned i = 0; i < nr; i++) {
            CHECK(events[i].status == 0x10 && events[i].ret == 1000 && events[i].cookie != NULL);
        }
        done += nr;
    }
    CHECK(memcmp(memory, data, 200000) == 0);
    CHECK(cuFileBatchIOCancel(batch).err == 0);
    cuFileBatchIODestroy(batch);
    return 0;
}

static int stream_io(const char *name, CUfileHandle_t fh, unsigned char *data,
                     unsigned char *memory)
{
    size_t size = 100000;
    off_t offset = 5;
    off_t at = 9;
    ssize_t got = 0;
    CHECK(cuFileStreamRegister(NULL, 15).err == 0);
    memset(memory, 0, BYTES);
    CHECK(cuFileReadAsync(fh, memory, &size, &offset, &at, &got, NULL).err == 0);
    while (__atomic_load_n(&got, __ATOMIC_ACQUIRE) == 0) { // no CUDA here to synchronize with
        struct timespec t = {.tv_nsec = 1000000};
        nanosleep(&t, NULL);
    }
    CHECK(got == 100000 && memcmp(memory + 9, data + 5, 100000) == 0);
    CHECK(cuFileStreamDeregister(NULL).err == 0);
    return 0;
}

static int driver(const char *name)
{
    CUfileDrvProps_t props;
    CUfileDescr_t bad = {.type = 3};
    CUfileHandle_t fh;
    int version = 0;
    CHECK(cuFileUseCount() == 0);
    CHECK(cuFileDriverClose_v2().err == 5001);
    CHECK(cuFileDriverOpen().err == 0 && cuFileDriverOpen().err == 0 && cuFileUseCount() == 2);
    CHECK(cuFileDriverClose_v2().err == 0 && cuFileUseCount() == 1);
    CHECK(cuFileGetVersion(&version).err == 0 && version > 1000);
    CHECK(cuFileDriverGetProperties(&props).err == 0 && props.nvfs.max_direct_io_size == 1024);
    CHECK(cuFileDriverSetMaxDirectIOSize(512).err == 0);
    CHECK(cuFileDriverSetMaxDirectIOSize(1).err == 5003);
    CHECK(cuFileHandleRegister(&fh, &bad).err == 5008);
    CHECK(strlen(cufileop_status_error(5008)) > 3);
    CHECK(cuFileDriverClose_v2().err == 0 && cuFileUseCount() == 0);
    return 0;
}

// What cuFile has no number for comes as the nearest of its own, from a call and from a batch.
static int errors(const char *name, int fd, unsigned char *memory)
{
    CUfileDescr_t d = {.type = 1};
    CUfileHandle_t fh;
    CUfileIOParams_t p = {.mode = 1};
    CUfileIOEvents_t event;
    void *batch = NULL;
    unsigned nr = 1;
    d.handle.fd = fd;
    setenv("OPENDS_FAULT", "read:ENOSPC:1", 1);
    CHECK(cuFileDriverClose_v2().err == 0 && cuFileDriverOpen().err == 0);
    CHECK(cuFileHandleRegister(&fh, &d).err == 0);
    errno = 0;
    CHECK(cuFileRead(fh, memory, 4097, 0, 0) == -1 && errno == ENOSPC);
    p.u.batch.devPtr_base = memory;
    p.u.batch.size = 4097;
    p.fh = fh;
    CHECK(cuFileBatchIOSetUp(&batch, 1).err == 0);
    CHECK(cuFileBatchIOSubmit(batch, 1, &p, 0).err == 0);
    CHECK(cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL).err == 0 && nr == 1);
    CHECK(event.status == 0x40 && event.ret == (size_t)-5044);
    cuFileBatchIODestroy(batch);
    cuFileHandleDeregister(fh);
    return 0;
}

int main(void)
{
    char path[] = "cufile-XXXXXX";
    int fd = mkstemp(path);
    unsigned char *data = malloc(BYTES);
    unsigned char *memory = malloc(BYTES + 4096);
    CUfileDescr_t d = {.type = 1};
    CUfileHandle_t fh;
    unlink(path);
    for (int i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)(i * 7 + i / 251);
    }
    int failed = driver("driver");
    printf("%s", failed ? "" : "ok cufile-driver\n");
    d.handle.fd = fd;
    if (cuFileHandleRegister(&fh, &d).err != 0) { // opens the driver by itself
        printf("not ok cufile-register\n");
        return 1;
    }
    const struct {
        const char *name;
        int (*fn)(const char *, CUfileHandle_t, unsigned char *, unsigned char *);
    } tests[] = {{"sync", sync_io}, {"batch", batch_io}, {"stream", stream_io}};
    for (int i = 0; i < 3; i++) {
        int rc = tests[i].fn(tests[i].name, fh, data, memory);
        printf("%s%s%s", rc ? "" : "ok cufile-", rc ? "" : tests[i].name, rc ? "" : "\n");
        failed += rc;
    }
    cuFileHandleDeregister(fh);
    int rc = errors("errors", fd, memory);
    printf("%s", rc ? "" : "ok cufile-errors\n");
    close(fd);
    return (failed + rc) != 0;
}
