// SPDX-License-Identifier: Apache-2.0
// The error table as data.
#include "base/err.h"

#include <errno.h>

#include "base/assert.h"

#define ERR(name_, category_, errno_, http_, s3_, text_)                                           \
    [ERR_##name_] = {.name = #name_,                                                               \
                     .category = ERR_CATEGORY_##category_,                                         \
                     .sys_errno = errno_,                                                          \
                     .http_status = http_,                                                         \
                     .s3_code = s3_,                                                               \
                     .text = text_},
static const struct err_info err_table[ERR_COUNT] = {
    [OK] = {.name = "OK", .http_status = 200, .s3_code = "", .text = "no error"},
#include "base/err.def"
};
#undef ERR

const struct err_info *err_info(enum err e)
{
    ASSERT(e >= OK && e < ERR_COUNT);
    return &err_table[e];
}

const char *err_name(enum err e)
{
    return err_info(e)->name;
}

const char *err_text(enum err e)
{
    return err_info(e)->text;
}

enum err err_from_errno(int sys_errno)
{
    switch (sys_errno < 0 ? -sys_errno : sys_errno) {
    case 0:
        return OK;
    case ENOMEM:
    case ENOBUFS:
        return ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return ERR_LIMIT_REACHED;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ERR_DRIVE_FULL;
    case ECANCELED:
        return ERR_CANCELLED;
    case ETIMEDOUT:
    case ETIME:
        return ERR_DEADLINE;
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
        return ERR_CLOSED;
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_PERMISSION;
    case EADDRINUSE:
        return ERR_IN_USE;
    case EINVAL:
        return ERR_INVALID;
    case EOPNOTSUPP:
    case ENOSYS:
        return ERR_UNSUPPORTED;
    case EBADMSG:
        return ERR_CORRUPT;
    default:
        return ERR_IO;
    }
}
