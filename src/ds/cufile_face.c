// SPDX-License-Identifier: Apache-2.0
// libcufile.so.0: cuFile's names over libopends, so that an unmodified cuFile program runs on it
// through LD_LIBRARY_PATH. Prototypes are written from public documentation; no vendor header is
// used.
//
// Differences from OpenDS that live here: the driver opens by itself and counts its opens,
// descriptors are a struct, reads answer -1 with errno for errors of the system, and stream and
// batch calls have other names. Statistics and configuration calls of the vendor's library are not
// offered.
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "ds/cufile_abi.h"

#define FACE_API              __attribute__((visibility("default")))
#define CUFILE_VERSION_NUMBER 1080 // the interface level that this face offers: 1.8

FACE_API struct cufile_error cuFileDriverOpen(void);
FACE_API struct cufile_error cuFileDriverClose(void);
FACE_API struct cufile_error cuFileDriverClose_v2(void);
FACE_API long cuFileUseCount(void);
FACE_API struct cufile_error cuFileGetVersion(int *version);
FACE_API struct cufile_error cuFileDriverGetProperties(struct cufile_driver_props *props);
FACE_API struct cufile_error cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size);
FACE_API struct cufile_error cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size);
FACE_API struct cufile_error cuFileDriverSetMaxCacheSize(size_t max_cache_size);
FACE_API struct cufile_error cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size);
FACE_API struct cufile_error cuFileHandleRegister(void **fh, struct cufile_descr *descr);
FACE_API void cuFileHandleDeregister(void *fh);
FACE_API struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags);
FACE_API struct cufile_error cuFileBufDeregister(const void *base);
FACE_API ssize_t cuFileRead(void *fh, void *base, size_t size, off_t offset, off_t base_offset);
FACE_API ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t offset,
                             off_t base_offset);
FACE_API struct cufile_error cuFileReadAsync(void *fh, void *base, size_t *size_p, off_t *offset_p,
                                             off_t *base_offset_p, ssize_t *bytes_p, void *stream);
FACE_API struct cufile_error cuFileWriteAsync(void *fh, void *base, size_t *size_p, off_t *offset_p,
                                              off_t *base_offset_p, ssize_t *bytes_p, void *stream);
FACE_API struct cufile_error cuFileStreamRegister(void *stream, unsigned flags);
FACE_API struct cufile_error cuFileStreamDeregister(void *stream);
FACE_API struct cufile_error cuFileBatchIOSetUp(void **batch, unsigned nr);
FACE_API struct cufile_error cuFileBatchIOSubmit(void *batch, unsigned nr,
                                                 opends_io_params_t *params, unsigned flags);
FACE_API struct cufile_error cuFileBatchIOGetStatus(void *batch, unsigned min_nr, unsigned *nr,
                                                    opends_io_events_t *events,
                                                    struct timespec *timeout);
FACE_API struct cufile_error cuFileBatchIOCancel(void *batch);
FACE_API void cuFileBatchIODestroy(void *batch);
FACE_API const char *cufileop_status_error(int status);
FACE_API int opends_cufile_face_mark(void);

// The number of opens; the face's only state. Zero again in a forked child, as is the driver's.
struct face {
    pthread_mutex_t lock;
    long opens;
    bool is_fork_watched;
};

static struct face *face(void)
{
    static struct face f = {.lock = PTHREAD_MUTEX_INITIALIZER};
    return &f;
}

static void fork_child(void)
{
    memset(face(), 0, sizeof(struct face));
    face()->is_fork_watched = true;
}

// cuFile's own codes as they are, ours as the nearest of its.
static int convert_code(int code)
{
    switch (code) {
    case OPENDS_NO_SPACE:
    case OPENDS_FILE_TOO_BIG:
        return OPENDS_IO_ERROR;
    case OPENDS_CANCELED_ERROR:
    case OPENDS_TIMED_OUT:
        return OPENDS_INTERNAL_ERROR;
    default:
        return code;
    }
}

static struct cufile_error convert(opends_error_t e)
{
    return (struct cufile_error){convert_code((int)e.err),
                                 e.err == OPENDS_DEVICE_DRIVER_ERROR ? e.dev_err : 0};
}

int opends_cufile_face_mark(void)
{
    return 1;
}

const char *cufileop_status_error(int status)
{
    return opends_op_status_error((opends_op_error_t)status);
}

static struct cufile_error open_locked(struct face *f)
{
    struct cufile_error e = {0, 0};
    if (!f->is_fork_watched) {
        pthread_atfork(NULL, NULL, fork_child);
        f->is_fork_watched = true;
    }
    if (f->opens == 0) {
        e = convert(opends_driver_open());
        if (e.err == OPENDS_DRIVER_ALREADY_OPEN) { // by the program's own use of opends
            e.err = 0;
        }
    }
    f->opens += e.err == 0;
    return e;
}

// Calls that need a driver open it, as the vendor's library does.
static struct cufile_error ensure_open(void)
{
    struct face *f = face();
    struct cufile_error e = {0, 0};
    pthread_mutex_lock(&f->lock);
    if (f->opens == 0) {
        e = open_locked(f);
    }
    pthread_mutex_unlock(&f->lock);
    return e;
}

struct cufile_error cuFileDriverOpen(void)
{
    struct face *f = face();
    pthread_mutex_lock(&f->lock);
    struct cufile_error e = open_locked(f);
    pthread_mutex_unlock(&f->lock);
    return e;
}

struct cufile_error cuFileDriverClose_v2(void)
{
    struct face *f = face();
    struct cufile_error e = {OPENDS_DRIVER_NOT_INITIALIZED, 0};
    pthread_mutex_lock(&f->lock);
    if (f->opens > 0) {
        f->opens--;
        e = f->opens == 0 ? convert(opends_driver_close()) : (struct cufile_error){0, 0};
    }
    pthread_mutex_unlock(&f->lock);
    return e;
}

struct cufile_error cuFileDriverClose(void)
{
    return cuFileDriverClose_v2();
}

long cuFileUseCount(void)
{
    struct face *f = face();
    pthread_mutex_lock(&f->lock);
    long n = f->opens;
    pthread_mutex_unlock(&f->lock);
    return n;
}

struct cufile_error cuFileGetVersion(int *version)
{
    if (version == NULL) {
        return (struct cufile_error){OPENDS_INVALID_VALUE, 0};
    }
    *version = CUFILE_VERSION_NUMBER;
    return (struct cufile_error){0, 0};
}

struct cufile_error cuFileDriverGetProperties(struct cufile_driver_props *props)
{
    opends_drv_props_t p;
    struct cufile_error e = ensure_open();
    if (e.err != 0) {
        return e;
    }
    e = convert(opends_driver_get_properties(props == NULL ? NULL : &p));
    if (e.err == 0) {
        memset(props, 0, sizeof(*props));
        props->nvfs.major_version = p.major_version;
        props->nvfs.minor_version = p.minor_version;
        props->nvfs.max_direct_io_size = p.max_direct_io_size / 1024; // cuFile counts in KiB here
        props->nvfs.dstatusflags = 1u << 4;                           // NVMe is supported
        props->nvfs.dcontrolflags = 1u << 1; // compatibility mode is allowed
        props->fflags = 1u << 1 | 1u << 2;   // batch and streams
        props->max_batch_io_size = 65536;    // none in truth
        props->max_batch_io_timeout_msecs = p.max_batch_io_timeout_msecs;
    }
    return e;
}

struct cufile_error cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size)
{
    (void)poll;
    (void)poll_threshold_size;
    return ensure_open(); // a hint that changes nothing here
}

struct cufile_error cuFileDriverSetMaxDirectIOSize(size_t kib)
{
    struct cufile_error e = ensure_open();
    return e.err != 0              ? e
           : kib > SIZE_MAX / 1024 ? (struct cufile_error){OPENDS_DRIVER_UNSUPPORTED_LIMIT, 0}
                                   : convert(opends_driver_set_max_direct_io_size(kib * 1024));
}

struct cufile_error cuFileDriverSetMaxCacheSize(size_t max_cache_size)
{
    (void)max_cache_size;
    return ensure_open();
}

struct cufile_error cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size)
{
    (void)max_pinned_size;
    return ensure_open();
}

struct cufile_error cuFileHandleRegister(void **fh, struct cufile_descr *descr)
{
    struct cufile_error e = ensure_open();
    if (e.err != 0) {
        return e;
    }
    if (fh == NULL || descr == NULL) {
        return (struct cufile_error){OPENDS_INVALID_VALUE, 0};
    }
    if (descr->type != CUFILE_HANDLE_OPAQUE_FD) {
        return (struct cufile_error){OPENDS_IO_NOT_SUPPORTED, 0};
    }
    return convert(opends_handle_register(fh, descr->handle.fd));
}

void cuFileHandleDeregister(void *fh)
{
    opends_handle_deregister(fh);
}

struct cufile_error cuFileBufRegister(const void *base, size_t size, int flags)
{
    struct cufile_error e = ensure_open();
    return e.err != 0 ? e : convert(opends_buf_register(base, size, flags));
}

struct cufile_error cuFileBufDeregister(const void *base)
{
    return convert(opends_buf_deregister(base));
}

// Errors that the system reported come back as -1 with errno, the others as a negated code.
static ssize_t convert_count(ssize_t n)
{
    switch (-n) {
    case OPENDS_IO_ERROR:
    case OPENDS_NO_SPACE:
    case OPENDS_FILE_TOO_BIG:
    case OPENDS_FS_DRIVER_ERROR:
    case OPENDS_PERMISSION_DENIED:
    case OPENDS_INVALID_FILE_OPEN_FLAG:
    case OPENDS_NO_MEMORY:
        return -1;
    case OPENDS_CANCELED_ERROR:
    case OPENDS_TIMED_OUT:
        return -OPENDS_INTERNAL_ERROR;
    default:
        return n;
    }
}

ssize_t cuFileRead(void *fh, void *base, size_t size, off_t offset, off_t base_offset)
{
    return convert_count(opends_read(fh, base, size, offset, base_offset));
}

ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t offset, off_t base_offset)
{
    return convert_count(opends_write(fh, base, size, offset, base_offset));
}

struct cufile_error cuFileReadAsync(void *fh, void *base, size_t *size_p, off_t *offset_p,
                                    off_t *base_offset_p, ssize_t *bytes_p, void *stream)
{
    return convert(opends_read_async(fh, base, size_p, offset_p, base_offset_p, bytes_p, stream));
}

struct cufile_error cuFileWriteAsync(void *fh, void *base, size_t *size_p, off_t *offset_p,
                                     off_t *base_offset_p, ssize_t *bytes_p, void *stream)
{
    return convert(opends_write_async(fh, base, size_p, offset_p, base_offset_p, bytes_p, stream));
}

struct cufile_error cuFileStreamRegister(void *stream, unsigned flags)
{
    struct cufile_error e = ensure_open();
    return e.err != 0 ? e : convert(opends_stream_register(stream, flags));
}

struct cufile_error cuFileStreamDeregister(void *stream)
{
    return convert(opends_stream_deregister(stream));
}

struct cufile_error cuFileBatchIOSetUp(void **batch, unsigned nr)
{
    struct cufile_error e = ensure_open();
    return e.err != 0 ? e : convert(opends_batch_io_setup(batch, nr));
}

struct cufile_error cuFileBatchIOSubmit(void *batch, unsigned nr, opends_io_params_t *params,
                                        unsigned flags)
{
    return convert(opends_batch_io_submit(batch, nr, params, flags));
}

struct cufile_error cuFileBatchIOGetStatus(void *batch, unsigned min_nr, unsigned *nr,
                                           opends_io_events_t *events, struct timespec *timeout)
{
    opends_error_t e = opends_batch_io_get_status(batch, min_nr, nr, events, timeout);
    for (unsigned i = 0; e.err == OPENDS_SUCCESS && i < *nr; i++) {
        if (events[i].status != OPENDS_COMPLETE) {
            events[i].ret = (size_t) - (ssize_t)convert_code((int)-(ssize_t)events[i].ret);
        }
    }
    return convert(e);
}

struct cufile_error cuFileBatchIOCancel(void *batch)
{
    return convert(opends_batch_io_cancel(batch));
}

void cuFileBatchIODestroy(void *batch)
{
    opends_batch_io_destroy(batch);
}
