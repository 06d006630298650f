// SPDX-License-Identifier: Apache-2.0
// The reference backend: pread and pwrite, nothing clever. It is the oracle of every test, and the
// way that is always there. Device memory goes through one bounce buffer, chunk by chunk.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ds/backends.h"

#define REF_BOUNCE_BYTES (256 * KIB)

static bool ref_probe(char *why, size_t why_size)
{
    (void)why;
    (void)why_size;
    return true;
}

// Sleeps out an injected delay in small steps, so that a cancellation is noticed. False if
// cancelled.
static bool ref_delay(struct ds_op *op)
{
    u64 until = ds_now_ns() + ds_fault_delay_ms(op->opcode) * NS_PER_MS;
    while (ds_now_ns() < until) {
        if (atomic_load(&op->cancel) != DS_CANCEL_NONE) {
            return false;
        }
        if (op->deadline_ns != 0 && ds_now_ns() >= op->deadline_ns) {
            atomic_store(&op->cancel, DS_CANCEL_TIMEOUT);
            return false;
        }
        struct timespec step = {.tv_nsec = (long)NS_PER_MS};
        nanosleep(&step, NULL);
    }
    return true;
}

// Moves one range between the file and host memory; short only at the end of the file.
static i64 ref_move(struct ds_op *op, int fd, u8 *memory, u64 size, u64 offset)
{
    u64 done = 0;
    while (done < size) {
        u64 n = MIN(size - done, GIB);
        ssize_t rc = op->opcode == OPENDS_READ
                         ? pread(fd, memory + done, n, (off_t)(offset + done))
                         : pwrite(fd, memory + done, n, (off_t)(offset + done));
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc < 0) {
            return -errno;
        }
        if (rc == 0) {
            break;
        }
        done += (u64)rc;
    }
    return (i64)done;
}

static int ref_copy(struct ds_op *op, void *queue, u8 *bounce, u64 at, u64 bytes)
{
    const struct ds_accel *a = ds_accel_current();
    struct ds_copy copy = {0};
    int rc = op->opcode == OPENDS_READ ? a->copy_in(queue, op->memory + at, bounce, bytes, &copy)
                                       : a->copy_out(queue, bounce, op->memory + at, bytes, &copy);
    if (rc == 0) {
        a->copy_poll(&copy, true);
        rc = copy.dev_err;
    }
    a->copy_deinit(&copy);
    return rc;
}

// Device memory through a bounce buffer. Sets dev_err and returns a negated code on failure.
static i64 ref_move_device(struct ds_op *op, int fd, int *sys_errno)
{
    u8 *bounce = malloc(REF_BOUNCE_BYTES);
    if (bounce == NULL) {
        *sys_errno = ENOMEM;
        return -1;
    }
    u64 done = 0;
    // A queue of its own: the default stream may be waiting for this very operation.
    void *queue = NULL;
    int dev_err = ds_accel_current()->enter();
    bool is_entered = dev_err == 0;
    dev_err = is_entered ? ds_accel_current()->queue_create(&queue) : dev_err;
    bool has_queue = dev_err == 0;
    while (done < op->size && dev_err == 0 && *sys_errno == 0) {
        u64 want = MIN(op->size - done, REF_BOUNCE_BYTES);
        dev_err = op->opcode == OPENDS_WRITE ? ref_copy(op, queue, bounce, done, want) : 0;
        i64 n = dev_err == 0 ? ref_move(op, fd, bounce, want, op->offset + done) : 0;
        if (n < 0) {
            *sys_errno = (int)-n;
            break;
        }
        if (dev_err == 0 && op->opcode == OPENDS_READ && n > 0) {
            dev_err = ref_copy(op, queue, bounce, done, (u64)n);
        }
        done += (u64)n;
        if ((u64)n < want) {
            break;
        }
    }
    if (has_queue) {
        ds_accel_current()->queue_destroy(queue);
    }
    if (is_entered) {
        ds_accel_current()->leave();
    }
    free(bounce);
    op->dev_err = dev_err;
    return (i64)done;
}

static void ref_finish(struct ds_op *op, int sys_errno, i64 moved)
{
    u8 cancel = atomic_load(&op->cancel);
    if (cancel != DS_CANCEL_NONE && moved < 0) {
        op->result =
            cancel == DS_CANCEL_TIMEOUT ? -(i64)OPENDS_TIMED_OUT : -(i64)OPENDS_CANCELED_ERROR;
    } else if (sys_errno != 0) {
        op->result = -(i64)ds_code_from_errno(sys_errno);
        op->dev_err = sys_errno;
    } else if (op->dev_err != 0) {
        op->result = -(i64)OPENDS_DEVICE_DRIVER_ERROR;
    } else {
        op->result = moved;
    }
}

static void ref_exec(struct ds_op *op)
{
    op->path = OPENDS_PATH_BUFFERED;
    if (atomic_load(&op->cancel) != DS_CANCEL_NONE || !ref_delay(op)) {
        ref_finish(op, 0, -1);
        return;
    }
    int fd = ds_handle_buffered_fd(op->handle);
    int sys_errno = fd < 0 ? errno : ds_fault_next(op->opcode);
    if (sys_errno == EINTR) {
        sys_errno = 0; // an interrupted call is simply made again
    }
    i64 moved = 0;
    if (sys_errno == 0 && op->is_device_memory) {
        moved = ref_move_device(op, fd, &sys_errno);
    } else if (sys_errno == 0) {
        moved = ref_move(op, fd, op->memory, op->size, op->offset);
        sys_errno = moved < 0 ? (int)-moved : 0;
    }
    if (sys_errno == 0 && op->is_durable) {
        opends_error_t e = ds_handle_flush(op->handle);
        sys_errno = e.err == OPENDS_SUCCESS ? 0 : e.dev_err;
    }
    if (sys_errno == 0 && moved > 0) {
        op->traffic.buffered += (u64)moved;
    }
    ref_finish(op, sys_errno, moved);
}

const struct ds_backend *ds_backend_ref(void)
{
    static const struct ds_backend backend = {
        .name = "ref",
        .probe = ref_probe,
        .blocking_exec = ref_exec,
    };
    return &backend;
}
