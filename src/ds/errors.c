// SPDX-License-Identifier: Apache-2.0
// Error codes: their texts, their errno, and the sentence kept for opends_last_error().
#include "ds/ds.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

struct code_row {
    opends_op_error_t code;
    int sys_errno;
    const char *text;
};

// The one table of codes. The first row with an errno is what that errno maps to.
static const struct code_row codes[] = {
    {OPENDS_SUCCESS, 0, "success"},
    {OPENDS_DRIVER_NOT_INITIALIZED, ENODEV, "driver is not open"},
    {OPENDS_DRIVER_INVALID_PROPS, EINVAL, "invalid property"},
    {OPENDS_DRIVER_UNSUPPORTED_LIMIT, ERANGE, "value outside the limits"},
    {OPENDS_DRIVER_VERSION_MISMATCH, EPROTO, "driver version mismatch"},
    {OPENDS_DRIVER_VERSION_READ_ERROR, EPROTO, "driver version cannot be read"},
    {OPENDS_DRIVER_CLOSING, ESHUTDOWN, "driver is closing"},
    {OPENDS_PLATFORM_NOT_SUPPORTED, ENOSYS, "platform is not supported"},
    {OPENDS_IO_NOT_SUPPORTED, EOPNOTSUPP, "i/o is not supported on this file"},
    {OPENDS_DEVICE_NOT_SUPPORTED, ENODEV, "device is not supported"},
    {OPENDS_FS_DRIVER_ERROR, EIO, "filesystem driver error"},
    {OPENDS_DEVICE_DRIVER_ERROR, EIO, "accelerator driver error"},
    {OPENDS_POINTER_INVALID, EFAULT, "invalid pointer"},
    {OPENDS_MEMORY_TYPE_INVALID, EFAULT, "invalid memory type"},
    {OPENDS_POINTER_RANGE_ERROR, ERANGE, "range exceeds the registered buffer"},
    {OPENDS_CONTEXT_MISMATCH, EINVAL, "accelerator context mismatch"},
    {OPENDS_INVALID_MAPPING_SIZE, EINVAL, "access beyond the mapped size"},
    {OPENDS_INVALID_MAPPING_RANGE, EINVAL, "access beyond the mapped range"},
    {OPENDS_INVALID_FILE_TYPE, EINVAL, "unsupported file type"},
    {OPENDS_INVALID_FILE_OPEN_FLAG, EBADF, "file was opened without the needed access"},
    {OPENDS_DIO_NOT_SET, EINVAL, "direct i/o is not possible on this file"},
    {OPENDS_INVALID_VALUE, EINVAL, "invalid argument"},
    {OPENDS_MEMORY_ALREADY_REGISTERED, EEXIST, "memory is registered already"},
    {OPENDS_MEMORY_NOT_REGISTERED, ENOENT, "memory is not registered"},
    {OPENDS_PERMISSION_DENIED, EACCES, "permission denied"},
    {OPENDS_DRIVER_ALREADY_OPEN, EALREADY, "driver is open already"},
    {OPENDS_HANDLE_NOT_REGISTERED, ENOENT, "file handle is not registered"},
    {OPENDS_HANDLE_ALREADY_REGISTERED, EEXIST, "file handle is registered already"},
    {OPENDS_DEVICE_NOT_FOUND, ENODEV, "accelerator not found"},
    {OPENDS_INTERNAL_ERROR, EIO, "internal error"},
    {OPENDS_GETNEWFD_FAILED, EMFILE, "no file descriptor is left"},
    {OPENDS_FS_SETUP_ERROR, EIO, "filesystem setup error"},
    {OPENDS_IO_DISABLED, EIO, "i/o is disabled"},
    {OPENDS_BATCH_SUBMIT_FAILED, EIO, "batch submission failed"},
    {OPENDS_MEMORY_PINNING_FAILED, ENOMEM, "memory cannot be pinned"},
    {OPENDS_BATCH_FULL, EAGAIN, "batch is full"},
    {OPENDS_ASYNC_NOT_SUPPORTED, EOPNOTSUPP, "asynchronous i/o is not supported"},
    {OPENDS_IO_MAX_ERROR, EIO, "largest error code"},
    {OPENDS_NO_MEMORY, ENOMEM, "out of memory"},
    {OPENDS_IO_ERROR, EIO, "input/output error"},
    {OPENDS_NO_SPACE, ENOSPC, "no space left on the device"},
    {OPENDS_FILE_TOO_BIG, EFBIG, "file is too big"},
    {OPENDS_CANCELED_ERROR, ECANCELED, "operation was cancelled"},
    {OPENDS_TIMED_OUT, ETIMEDOUT, "operation timed out"},
};

const char *opends_op_status_error(opends_op_error_t status)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (codes[i].code == status) {
            return codes[i].text;
        }
    }
    return "unknown opends error";
}

int ds_errno_from_code(opends_op_error_t code)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        if (codes[i].code == code) {
            return codes[i].sys_errno;
        }
    }
    return EIO;
}

// What a failed system call on a file means to the caller.
opends_op_error_t ds_code_from_errno(int sys_errno)
{
    switch (sys_errno) {
    case 0:
        return OPENDS_SUCCESS;
    case EIO:
    case ENODATA:
    case EREMOTEIO:
    case EILSEQ:
        return OPENDS_IO_ERROR;
    case ENOSPC:
    case EDQUOT:
        return OPENDS_NO_SPACE;
    case EFBIG:
        return OPENDS_FILE_TOO_BIG;
    case EBADF:
        return OPENDS_INVALID_FILE_OPEN_FLAG;
    case EACCES:
    case EPERM:
    case EROFS:
        return OPENDS_PERMISSION_DENIED;
    case EFAULT:
        return OPENDS_POINTER_INVALID;
    case ENOMEM:
    case ENOBUFS:
        return OPENDS_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return OPENDS_GETNEWFD_FAILED;
    case EINVAL:
        return OPENDS_INVALID_VALUE;
    case EOPNOTSUPP:
        return OPENDS_IO_NOT_SUPPORTED;
    case ENODEV:
    case ENXIO:
        return OPENDS_DEVICE_NOT_SUPPORTED;
    case ECANCELED:
        return OPENDS_CANCELED_ERROR;
    case ETIMEDOUT:
        return OPENDS_TIMED_OUT;
    default:
        return OPENDS_FS_DRIVER_ERROR;
    }
}

opends_error_t ds_ok(void)
{
    return (opends_error_t){OPENDS_SUCCESS, 0};
}

opends_error_t ds_fail(opends_op_error_t code, int dev_err, const char *fmt, ...)
{
    struct ds_thread *t = ds_thread_self();
    if (t != NULL) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(t->last_error, sizeof(t->last_error), fmt, args);
        va_end(args);
    }
    return (opends_error_t){code, dev_err};
}

const char *opends_last_error(void)
{
    struct ds_thread *t = ds_thread_self();
    return t == NULL ? "out of memory" : t->last_error;
}
