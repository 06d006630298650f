// SPDX-License-Identifier: Apache-2.0
// Stream-ordered I/O. Two things are queued on the accelerator's stream: a short call that, when
// the stream gets there, reads the caller's pointers and submits the operation; and a wait on a
// gate that the operation's completion opens. The stream's thread (or the GPU) never blocks in our
// code, so other streams run on.
//
// Between queueing the call and queueing the wait either side may fail. `stage` decides: whoever
// moves it out of QUEUED first owns the outcome, so an operation whose wait could not be queued
// either never starts, or has been waited for here before the error is forgotten.
//
// `stream_ops` of the driver counts what streams still hold, because a close may not pull gates and
// memory from under them: those not started by then are refused, those running are waited for.
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ds/driver.h"

enum async_stage { ASYNC_QUEUED, ASYNC_STARTED, ASYNC_ABANDONED, ASYNC_DONE };

struct async_op {
    struct ds_op op;
    _Atomic u32 stage;
    _Atomic u32 references; // the stream's call and the submitter, until each is through
    struct ds_gate gate;
    opends_handle_t fh;
    enum opends_opcode opcode;
    void *base;
    size_t *size_p;
    off_t *file_offset_p;
    off_t *base_offset_p;
    ssize_t *bytes_p;
    u64 ours; // `base` is opends_alloc() memory of this generation; 0: the caller's
};

#define DRAIN_STALL_MS 30000u

static void async_put(struct async_op *a)
{
    if (atomic_fetch_sub(&a->references, 1) == 1) {
        ds_accel_current()->gate_destroy(&a->gate);
        free(a);
        _Atomic u32 *count = &ds_driver()->stream_ops;
        atomic_fetch_sub(count, 1);
        syscall(SYS_futex, count, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    }
}

// A stream may be stuck for good (behind a call that never returns, or in a context that failed, of
// which CUDA runs no more callbacks); so the wait ends when nothing has moved for a while.
bool ds_streams_drain(void)
{
    _Atomic u32 *count = &ds_driver()->stream_ops;
    u32 limit_ms = ds_config()->io_timeout_ms;
    struct timespec stall = {.tv_sec = DRAIN_STALL_MS / 1000};
    if (limit_ms != 0) {
        stall.tv_sec = limit_ms / 1000;
        stall.tv_nsec = (long)(limit_ms % 1000 * NS_PER_MS);
    }
    for (u32 left; (left = atomic_load(count)) > 0;) {
        long rc = syscall(SYS_futex, count, FUTEX_WAIT_PRIVATE, left, &stall, NULL, 0);
        if (rc != 0 && errno == ETIMEDOUT && atomic_load(count) == left) {
            return false;
        }
    }
    return true;
}

static void async_complete(struct async_op *a, ssize_t result)
{
    *a->bytes_p = result;
    atomic_store(&a->stage, ASYNC_DONE);
    syscall(SYS_futex, &a->stage, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    ds_accel_current()->gate_open(&a->gate, 1);
    async_put(a);
}

static void async_done(struct ds_op *op)
{
    async_complete(op->owner, (ssize_t)op->result);
}

// Runs when the stream reaches the operation.
static void async_start(void *arg)
{
    struct async_op *a = arg;
    u32 queued = ASYNC_QUEUED;
    if (!atomic_compare_exchange_strong(&a->stage, &queued, ASYNC_STARTED)) {
        async_put(a); // abandoned
        return;
    }
    opends_op_error_t code = ds_op_prepare(&a->op, a->fh, a->opcode, a->base, *a->size_p,
                                           *a->file_offset_p, *a->base_offset_p);
    if (code != OPENDS_SUCCESS) {
        async_complete(a, -(ssize_t)code);
        return;
    }
    // Freed since it was queued: the address may be someone else's by now.
    if (a->ours != 0 && (a->op.buffer == NULL || a->op.buffer->generation != a->ours)) {
        ds_op_release(&a->op);
        async_complete(a, -(ssize_t)OPENDS_MEMORY_NOT_REGISTERED);
        return;
    }
    a->op.done = async_done;
    a->op.owner = a;
    ds_op_submit(&a->op);
}

// Runs when the stream has passed the gate: nothing waits on it any more.
static void async_passed(void *arg)
{
    async_put(arg);
}

// The wait could not be queued. True when the operation will never run.
static bool async_abandon(struct async_op *a)
{
    u32 stage = ASYNC_QUEUED;
    if (atomic_compare_exchange_strong(&a->stage, &stage, ASYNC_ABANDONED)) {
        return true;
    }
    while ((stage = atomic_load(&a->stage)) != ASYNC_DONE) {
        syscall(SYS_futex, &a->stage, FUTEX_WAIT_PRIVATE, stage, NULL, NULL, 0);
    }
    return false;
}

static opends_error_t async_queue(struct async_op *a, opends_stream_t stream)
{
    const struct ds_accel *accel = ds_accel_current();
    int rc = accel->gate_create(&a->gate);
    if (rc != 0) {
        free(a);
        return ds_fail(OPENDS_DEVICE_DRIVER_ERROR, rc, "no gate could be made (%d)", rc);
    }
    atomic_store(&a->references, 2);
    atomic_fetch_add(&ds_driver()->stream_ops, 1);
    rc = accel->stream_call(stream, async_start, a);
    if (rc != 0) {
        async_put(a);
        async_put(a);
        return ds_fail(OPENDS_DEVICE_DRIVER_ERROR, rc, "the stream refused the operation (%d)", rc);
    }
    rc = accel->stream_wait(stream, &a->gate, 1);
    if (rc == 0) {
        // A gate must outlive the stream's wait on it: the last reference goes when it has passed.
        int passed = accel->stream_call(stream, async_passed, a);
        if (passed != 0) {
            (void)accel->stream_synchronize(stream);
            async_put(a);
        }
        return ds_ok();
    }
    bool is_abandoned = async_abandon(a);
    async_put(a);
    return is_abandoned
               ? ds_fail(OPENDS_DEVICE_DRIVER_ERROR, rc, "the stream refused to wait (%d)", rc)
               : ds_ok();
}

static opends_error_t async_submit(enum opends_opcode opcode, opends_handle_t fh, void *base,
                                   size_t *size_p, off_t *file_offset_p, off_t *base_offset_p,
                                   ssize_t *bytes_p, opends_stream_t stream)
{
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    if (size_p == NULL || file_offset_p == NULL || base_offset_p == NULL || bytes_p == NULL) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "a pointer argument is NULL");
    }
    struct ds_handle *h = ds_handle_get(fh);
    if (h == NULL) {
        return ds_fail(OPENDS_HANDLE_NOT_REGISTERED, 0, "unknown handle");
    }
    ds_handle_put(h);
    struct async_op *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return ds_fail(OPENDS_NO_MEMORY, ENOMEM, "out of memory");
    }
    // Looked up now: inside a stream's call the vendor's library must not be asked.
    a->op.known_memory = (u8)(ds_accel_current()->memory_kind(base) + 1);
    a->ours = ds_buffer_ours(base);
    a->fh = fh;
    a->opcode = opcode;
    a->base = base;
    a->size_p = size_p;
    a->file_offset_p = file_offset_p;
    a->base_offset_p = base_offset_p;
    a->bytes_p = bytes_p;
    return async_queue(a, stream);
}

opends_error_t opends_read_async(opends_handle_t fh, void *buf_base, size_t *size_p,
                                 off_t *file_offset_p, off_t *buf_offset_p, ssize_t *bytes_read_p,
                                 opends_stream_t stream)
{
    return async_submit(OPENDS_READ, fh, buf_base, size_p, file_offset_p, buf_offset_p,
                        bytes_read_p, stream);
}

opends_error_t opends_write_async(opends_handle_t fh, void *buf_base, size_t *size_p,
                                  off_t *file_offset_p, off_t *buf_offset_p,
                                  ssize_t *bytes_written_p, opends_stream_t stream)
{
    return async_submit(OPENDS_WRITE, fh, buf_base, size_p, file_offset_p, buf_offset_p,
                        bytes_written_p, stream);
}

static opends_error_t stream_result(int rc, const char *what)
{
    return rc == 0 ? ds_ok()
                   : ds_fail(rc == EINVAL ? OPENDS_INVALID_VALUE : OPENDS_DEVICE_DRIVER_ERROR, rc,
                             "%s failed (%d)", what, rc);
}

static opends_error_t not_open(void)
{
    return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
}

// Registration is a hint that this library has no use for: every stream works unregistered.
opends_error_t opends_stream_register(opends_stream_t stream, unsigned flags)
{
    (void)stream;
    if (!ds_is_open()) {
        return not_open();
    }
    return flags <= 15 ? ds_ok() : ds_fail(OPENDS_INVALID_VALUE, 0, "unknown flags 0x%x", flags);
}

opends_error_t opends_stream_deregister(opends_stream_t stream)
{
    (void)stream;
    return ds_is_open() ? ds_ok() : not_open();
}

opends_error_t opends_stream_create(opends_stream_t *stream)
{
    if (stream == NULL) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "stream is NULL");
    }
    return ds_is_open()
               ? stream_result(ds_accel_current()->stream_create(stream), "stream creation")
               : not_open();
}

opends_error_t opends_stream_synchronize(opends_stream_t stream)
{
    return ds_is_open()
               ? stream_result(ds_accel_current()->stream_synchronize(stream), "synchronizing")
               : not_open();
}

opends_error_t opends_stream_destroy(opends_stream_t stream)
{
    return ds_is_open()
               ? stream_result(ds_accel_current()->stream_destroy(stream), "stream destruction")
               : not_open();
}

opends_error_t opends_stream_call(opends_stream_t stream, void (*fn)(void *), void *arg)
{
    if (fn == NULL) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "fn is NULL");
    }
    return ds_is_open() ? stream_result(ds_accel_current()->stream_call(stream, fn, arg), "a call")
                        : not_open();
}
