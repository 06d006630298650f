/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opends.h - files straight into accelerator memory.
 *
 * The first part is source-compatible with OpenDS (and one rename away from cuFile, whose numeric
 * codes it shares); the second part, from "Beyond OpenDS" on, is this library's own.
 *
 * Errors. Functions that return opends_error_t give a code and, where a device or the kernel had
 * one, its own code in dev_err (a CUDA result, an NVMe status, or an errno). Reads and writes
 * return a byte count or a negated opends_op_error_t, and set errno. opends_last_error() gives a
 * sentence.
 *
 * Threads. After opends_driver_open() has returned, every call may be made from any thread at any
 * time. Open and close must not run beside other calls. Deregistering a handle or a buffer with I/O
 * in flight is allowed: the handle lives until that I/O is done; opends_buf_deregister() waits.
 *
 * Alignment. Any file offset, size, buffer offset and buffer address is accepted. What the device
 * needs aligned is bounced inside; opends_handle_path() counts how many bytes that cost.
 *
 * End of file. A read returns the bytes that exist: fewer than asked at the end of the file, zero
 * past it. Memory past the count, inside the range asked for, is unspecified (a device writes whole
 * blocks); memory outside that range is never touched. Holes and unwritten extents read as zeros.
 *
 * fork(). The child has no driver: every call answers OPENDS_DRIVER_NOT_INITIALIZED until the child
 * opens one of its own, and handles of the parent are unknown there.
 */
#ifndef OPENDS_H
#define OPENDS_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OPENDS_API __attribute__((visibility("default")))
#else
#define OPENDS_API
#endif

/* A vendor's own code; 0 or -1 when there is none. */
typedef int opends_result_t;
/* All handles are names, never addresses: a stale one is refused, not followed. */
typedef void *opends_handle_t;
typedef void *opends_batch_handle_t;
/* The accelerator's stream: a CUstream/cudaStream_t, or one from opends_stream_create(). */
typedef void *opends_stream_t;

typedef enum opends_op_error {
    OPENDS_SUCCESS = 0,
    OPENDS_DRIVER_NOT_INITIALIZED = 5001,
    OPENDS_DRIVER_INVALID_PROPS = 5002,
    OPENDS_DRIVER_UNSUPPORTED_LIMIT = 5003,
    OPENDS_DRIVER_VERSION_MISMATCH = 5004,
    OPENDS_DRIVER_VERSION_READ_ERROR = 5005,
    OPENDS_DRIVER_CLOSING = 5006,
    OPENDS_PLATFORM_NOT_SUPPORTED = 5007,
    OPENDS_IO_NOT_SUPPORTED = 5008,
    OPENDS_DEVICE_NOT_SUPPORTED = 5009,
    OPENDS_FS_DRIVER_ERROR = 5010,
    OPENDS_DEVICE_DRIVER_ERROR = 5011,
    OPENDS_POINTER_INVALID = 5012,
    OPENDS_MEMORY_TYPE_INVALID = 5013,
    OPENDS_POINTER_RANGE_ERROR = 5014,
    OPENDS_CONTEXT_MISMATCH = 5015,
    OPENDS_INVALID_MAPPING_SIZE = 5016,
    OPENDS_INVALID_MAPPING_RANGE = 5017,
    OPENDS_INVALID_FILE_TYPE = 5018,
    OPENDS_INVALID_FILE_OPEN_FLAG = 5019,
    OPENDS_DIO_NOT_SET = 5020,
    OPENDS_INVALID_VALUE = 5022,
    OPENDS_MEMORY_ALREADY_REGISTERED = 5023,
    OPENDS_MEMORY_NOT_REGISTERED = 5024,
    OPENDS_PERMISSION_DENIED = 5025,
    OPENDS_DRIVER_ALREADY_OPEN = 5026,
    OPENDS_HANDLE_NOT_REGISTERED = 5027,
    OPENDS_HANDLE_ALREADY_REGISTERED = 5028,
    OPENDS_DEVICE_NOT_FOUND = 5029,
    OPENDS_INTERNAL_ERROR = 5030,
    OPENDS_GETNEWFD_FAILED = 5031,
    OPENDS_FS_SETUP_ERROR = 5033,
    OPENDS_IO_DISABLED = 5034,
    OPENDS_BATCH_SUBMIT_FAILED = 5035,
    OPENDS_MEMORY_PINNING_FAILED = 5036,
    OPENDS_BATCH_FULL = 5037,
    OPENDS_ASYNC_NOT_SUPPORTED = 5038,
    OPENDS_IO_MAX_ERROR = 5039,
    /* cuFile's later numbers that this library uses. */
    OPENDS_NO_MEMORY = 5043,
    OPENDS_IO_ERROR = 5044, /* EIO: the device or the filesystem failed */
    /* This library's own, outside cuFile's range. */
    OPENDS_NO_SPACE = 5101,     /* ENOSPC or EDQUOT */
    OPENDS_FILE_TOO_BIG = 5102, /* EFBIG */
    OPENDS_CANCELED_ERROR = 5103,
    OPENDS_TIMED_OUT = 5104
} opends_op_error_t;

typedef struct opends_error {
    opends_op_error_t err;
    opends_result_t dev_err;
} opends_error_t;

#define OPENDS_BASE_ERR    5000
#define IS_OPENDS_ERR(err) (abs((int)(err)) > OPENDS_BASE_ERR)
#define OPENDS_ERRSTR(err) opends_op_status_error((opends_op_error_t)abs((int)(err)))

/* A short lower-case text in static storage; "unknown opends error" for other numbers. */
OPENDS_API const char *opends_op_status_error(opends_op_error_t status);

typedef struct opends_drv_props {
    unsigned int major_version;
    unsigned int minor_version;
    size_t max_direct_io_size;               /* largest piece sent to a device at once, in bytes */
    unsigned int max_batch_io_size;          /* 0: no limit */
    unsigned int max_batch_io_timeout_msecs; /* OPENDS_IO_TIMEOUT_MS; 0: none */
} opends_drv_props_t;

/*
 * Driver. Open reads the OPENDS_* environment (docs/accelerator-io.md lists it), probes the
 * backends and starts nothing that costs: threads and rings start when first needed.
 * open:  ALREADY_OPEN; DRIVER_INVALID_PROPS for a malformed variable; PLATFORM_NOT_SUPPORTED when a
 *        backend asked for by name is not there and the policy is require-direct.
 * close: waits for I/O in flight, forgets all handles and buffers. Stream operations that have not
 *        started by then end as NOT_INITIALIZED. NOT_INITIALIZED if not open; DRIVER_CLOSING, and
 *        still open, when a stream has been stuck for OPENDS_IO_TIMEOUT_MS (30 s without one).
 */
OPENDS_API opends_error_t opends_driver_open(void);
OPENDS_API opends_error_t opends_driver_close(void);
/* The number of registered handles. */
OPENDS_API long opends_use_count(void);
/* Any pointer may be NULL. Works without a driver. */
OPENDS_API opends_error_t opends_get_version(unsigned *major, unsigned *minor, unsigned *patch);
OPENDS_API opends_error_t opends_driver_get_properties(opends_drv_props_t *props);
/* Bytes, a multiple of 4096 from 64 KiB to 16 MiB; else DRIVER_UNSUPPORTED_LIMIT. */
OPENDS_API opends_error_t opends_driver_set_max_direct_io_size(size_t max_direct_io_size);

/*
 * Handles. The descriptor may be opened with or without O_DIRECT, and may be closed once
 * registered: the library keeps its own. Registering one file many times is fine. INVALID_FILE_TYPE
 * unless it is a regular file; INVALID_VALUE for a bad descriptor; DIO_NOT_SET when the policy is
 * require-direct and the filesystem refuses O_DIRECT; GETNEWFD_FAILED when descriptors run out;
 * DRIVER_UNSUPPORTED_LIMIT past 1,048,576 handles.
 */
OPENDS_API opends_error_t opends_handle_register(opends_handle_t *fh, int fd);
/* NULL and stale handles are ignored. */
OPENDS_API void opends_handle_deregister(opends_handle_t fh);

/* Memory of the accelerator (host memory where there is none), registered. NULL when exhausted. */
OPENDS_API void *opends_alloc(size_t size);
OPENDS_API void opends_free(void *buf);
/*
 * Registering is optional. It lets I/O skip pinning and lets the library check ranges: an I/O whose
 * base lies in a registered buffer must stay within it (POINTER_RANGE_ERROR). Overlapping
 * registrations are refused (MEMORY_ALREADY_REGISTERED). `flags` is passed to a vendor's backend.
 */
OPENDS_API opends_error_t opends_buf_register(const void *buf_base, size_t size, int flags);
OPENDS_API opends_error_t opends_buf_deregister(const void *buf_base);

/* Returns the bytes moved (see "End of file") or a negated opends_op_error_t with errno set. */
OPENDS_API ssize_t opends_read(opends_handle_t fh, void *buf_base, size_t size, off_t file_offset,
                               off_t buf_offset);
OPENDS_API ssize_t opends_write(opends_handle_t fh, const void *buf_base, size_t size,
                                off_t file_offset, off_t buf_offset);

typedef enum opends_opcode { OPENDS_READ = 0, OPENDS_WRITE = 1 } opends_opcode_t;
typedef enum opends_batch_mode { OPENDS_BATCH = 1 } opends_batch_mode_t;
typedef enum opends_status {
    OPENDS_WAITING = 0x01,
    OPENDS_PENDING = 0x02,
    OPENDS_INVALID = 0x04, /* the parameters of this operation were refused */
    OPENDS_CANCELED = 0x08,
    OPENDS_COMPLETE = 0x10,
    OPENDS_TIMEOUT = 0x20,
    OPENDS_FAILED = 0x40
} opends_status_t;

typedef struct opends_io_params {
    opends_batch_mode_t mode;
    union {
        struct {
            void *dev_ptr_base;
            off_t file_offset;
            off_t dev_ptr_offset;
            size_t size;
        } batch;
    } u;
    opends_handle_t fh;
    opends_opcode_t opcode;
    void *cookie;
} opends_io_params_t;

typedef struct opends_io_events {
    void *cookie;
    opends_status_t status;
    size_t ret; /* bytes, or (size_t)-opends_op_error_t when the status is not COMPLETE */
} opends_io_events_t;

/*
 * Batches. `nr` is a hint and must not be 0; a batch takes any number of operations and queues what
 * the device cannot take yet. Operations are independent and complete in any order.
 */
OPENDS_API opends_error_t opends_batch_io_setup(opends_batch_handle_t *batch_idp, unsigned nr);
/*
 * All `nr` operations are accepted or none. One with bad parameters is accepted and reported as
 * OPENDS_INVALID. `flags`: 0 or OPENDS_WRITE_DURABLE. The array may be reused on return.
 */
OPENDS_API opends_error_t opends_batch_io_submit(opends_batch_handle_t batch, unsigned nr,
                                                 opends_io_params_t *iocbp, unsigned int flags);
/*
 * Waits for at least min_nr events (or for all outstanding ones when they are fewer: it never waits
 * for what cannot come) or for the timeout (NULL: no limit), and moves up to *nr of them to
 * `iocbp`. Each event is reported once. *nr is set to the count; it may be below min_nr after a
 * timeout.
 */
OPENDS_API opends_error_t opends_batch_io_get_status(opends_batch_handle_t batch, unsigned min_nr,
                                                     unsigned *nr, opends_io_events_t *iocbp,
                                                     struct timespec *timeout);
/*
 * Asks that what has not finished be cancelled and returns at once. Every operation still gets its
 * event: CANCELED, or what it became. Its memory is free once the event has been reported.
 */
OPENDS_API opends_error_t opends_batch_io_cancel(opends_batch_handle_t batch);
/* Cancels, waits until no operation touches its memory any more, and forgets all. NULL is ignored.
 */
OPENDS_API void opends_batch_io_destroy(opends_batch_handle_t batch);

/*
 * Stream-ordered I/O. The pointed-to values are read when the stream reaches the operation, and
 * *bytes_p is written before the stream goes on: bytes or a negated opends_op_error_t. All four
 * must stay valid until then, and so must the buffer; memory of opends_alloc() that is freed before
 * the stream gets there makes the operation end as MEMORY_NOT_REGISTERED. A NULL stream is the
 * accelerator's default stream.
 */
OPENDS_API opends_error_t opends_read_async(opends_handle_t fh, void *buf_base, size_t *size_p,
                                            off_t *file_offset_p, off_t *buf_offset_p,
                                            ssize_t *bytes_read_p, opends_stream_t stream);
OPENDS_API opends_error_t opends_write_async(opends_handle_t fh, void *buf_base, size_t *size_p,
                                             off_t *file_offset_p, off_t *buf_offset_p,
                                             ssize_t *bytes_written_p, opends_stream_t stream);
/* Optional hints; flags 1 fixed buffer offset, 2 fixed file offset, 4 fixed size, 8 page-aligned.
 */
OPENDS_API opends_error_t opends_stream_register(opends_stream_t stream, unsigned flags);
OPENDS_API opends_error_t opends_stream_deregister(opends_stream_t stream);

/* ------------------------------------------------------------------------------------------------
 * Beyond OpenDS
 * --------------------------------------------------------------------------------------------- */

/* A sentence about this thread's last failed call; "" if none has failed. Valid until the next. */
OPENDS_API const char *opends_last_error(void);

/* Handle and batch flag: a write is reported only once it is on stable storage. */
#define OPENDS_WRITE_DURABLE 1u
/* Sets the flags of a handle (0 or OPENDS_WRITE_DURABLE) for operations submitted from now on. */
OPENDS_API opends_error_t opends_handle_set_flags(opends_handle_t fh, unsigned flags);
/* Makes all completed writes of the file durable. IO_ERROR or NO_SPACE when that fails. */
OPENDS_API opends_error_t opends_flush(opends_handle_t fh);

/* Operations submitted to this batch from now on end with OPENDS_TIMEOUT after so long; 0: never.
 */
OPENDS_API opends_error_t opends_batch_set_timeout(opends_batch_handle_t batch,
                                                   unsigned timeout_ms);

/* Streams of the accelerator in use, for programs that have none of their own. */
OPENDS_API opends_error_t opends_stream_create(opends_stream_t *stream);
OPENDS_API opends_error_t opends_stream_synchronize(opends_stream_t stream);
OPENDS_API opends_error_t opends_stream_destroy(opends_stream_t stream);
/* Runs fn(arg) on the stream's own time, after what was queued before. fn must not block. */
OPENDS_API opends_error_t opends_stream_call(opends_stream_t stream, void (*fn)(void *), void *arg);

/* Which way a handle's I/O goes. */
typedef enum opends_path {
    OPENDS_PATH_BUFFERED = 1,    /* through the kernel's page cache */
    OPENDS_PATH_DIRECT = 2,      /* O_DIRECT */
    OPENDS_PATH_GDS = 3,         /* cuFile */
    OPENDS_PATH_PASSTHROUGH = 4, /* NVMe commands, without the filesystem */
} opends_path_t;

typedef struct opends_path_info {
    char backend[16];      /* "ref", "uring", "gds", "nvme" */
    opends_path_t path;    /* the best path that this handle uses */
    unsigned device_major; /* of the file's device */
    unsigned device_minor;
    unsigned offset_align; /* what direct I/O needs; 0 where there is none */
    unsigned memory_align;
    uint64_t direct_bytes;      /* moved between device and the caller's host memory by DMA */
    uint64_t bounced_bytes;     /* ... through a bounce buffer of the library */
    uint64_t buffered_bytes;    /* ... through the page cache */
    uint64_t passthrough_bytes; /* ... by NVMe commands */
    uint64_t zeroed_bytes;      /* holes and unwritten extents, not read from anywhere */
    uint64_t gds_bytes;
    uint64_t fallbacks;      /* I/Os that took a lesser path than `path` */
    char reason[192];        /* why not a better path; "" when it is the best there is */
    char last_fallback[128]; /* why the last fallback happened; "" when none did */
} opends_path_info_t;
OPENDS_API opends_error_t opends_handle_path(opends_handle_t fh, opends_path_info_t *info);

/* Latencies from 128 ns to 2 s in four buckets an octave; opends_stat_bucket_ns() gives the bounds.
 */
#define OPENDS_STAT_BUCKETS 96
typedef struct opends_stat {
    char backend[16];
    opends_opcode_t opcode;
    unsigned device_major;
    unsigned device_minor;
    uint64_t calls;  /* finished, with or without success */
    uint64_t errors; /* of these, failed (cancelled and timed out ones included) */
    uint64_t bytes;
    uint64_t latency_ns_sum;
    uint64_t latency_buckets[OPENDS_STAT_BUCKETS];
} opends_stat_t;
/* Upper bound of a latency bucket in nanoseconds. */
OPENDS_API uint64_t opends_stat_bucket_ns(unsigned bucket);
/* Fills up to *nr entries (only those with calls) and sets *nr to how many there are. */
OPENDS_API opends_error_t opends_stats_get(opends_stat_t *stats, unsigned *nr);
OPENDS_API opends_error_t opends_stats_reset(void);
/* Prometheus text, NUL-terminated; returns the length it needs without the NUL (like snprintf). */
OPENDS_API ssize_t opends_stats_prometheus(char *text, size_t size);

typedef struct opends_trace_entry {
    uint64_t time_ns; /* CLOCK_MONOTONIC, at submission */
    uint64_t latency_ns;
    uint64_t inode;
    uint64_t file_offset;
    uint64_t size;
    int64_t result;
    unsigned device_major;
    unsigned device_minor;
    opends_opcode_t opcode;
    opends_path_t path;
    char backend[16];
    int fell_back; /* took a lesser path than the handle's */
} opends_trace_entry_t;
/* The most recent I/Os, newest first (OPENDS_TRACE entries are kept, 1,024 by default). */
OPENDS_API opends_error_t opends_trace_get(opends_trace_entry_t *entries, unsigned *nr);

/*
 * What is present, what would be used, and what to fix, as lines of text. Works without a driver.
 * `path`: a file or folder to judge, or NULL. *problems counts the lines that say "fix:".
 * Returns the length it needs without the NUL.
 */
OPENDS_API ssize_t opends_doctor(const char *path, char *text, size_t size, unsigned *problems);

#ifdef __cplusplus
}
#endif

#endif
