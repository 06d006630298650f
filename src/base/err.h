// SPDX-License-Identifier: Apache-2.0
// Errors are values. `enum err` is returned by everything that can fail and must be looked at;
// what an error means at an edge (errno, HTTP status, S3 code, text) stands in base/err.def alone.
#pragma once

#include "base/types.h"

#define ERR(name, category, sys_errno, http, s3_code, text) ERR_##name,
enum err {
    OK = 0,
#include "base/err.def"
    ERR_COUNT
};
#undef ERR
// gcc 12 takes warn_unused_result on functions only; every function returning enum err carries it.
#define NODISCARD __attribute__((warn_unused_result))

enum err_category {
    ERR_CATEGORY_NONE = 0,
    ERR_CATEGORY_CALLER,
    ERR_CATEGORY_LIMIT,
    ERR_CATEGORY_TRANSIENT,
    ERR_CATEGORY_PEER,
    ERR_CATEGORY_MEDIA,
    ERR_CATEGORY_CORRUPT,
    ERR_CATEGORY_CANCELLED,
    ERR_CATEGORY_BUG,
};

// Everything the table knows about one error. Static storage.
struct err_info {
    const char *name; // "DRIVE_FULL"
    enum err_category category;
    int sys_errno;
    int http_status;
    const char *s3_code;
    const char *text;
};

const struct err_info *err_info(enum err e);
const char *err_name(enum err e);
const char *err_text(enum err e);

// The error that stands for a failed system call's errno (positive or negative).
enum err err_from_errno(int sys_errno);

// Returns the error from the calling function.
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum err try_err_ = (expr);                                                                \
        if (UNLIKELY(try_err_ != OK)) {                                                            \
            return try_err_;                                                                       \
        }                                                                                          \
    } while (0)

// Stores the error in `result` and leaves through the function's single `out:` label.
#define TRY_OUT(result, expr)                                                                      \
    do {                                                                                           \
        (result) = (expr);                                                                         \
        if (UNLIKELY((result) != OK)) {                                                            \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)
