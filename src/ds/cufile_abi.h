// SPDX-License-Identifier: Apache-2.0
// cuFile's binary interface, written from the public documentation of its names, signatures and
// fields. Used from both sides: backend_gds.c calls the vendor's library, cufile_face.c pretends to
// be one. Batch parameters, events and errors have the layout of their OpenDS twins.
#pragma once

#include <assert.h>

#include "base/types.h"
#include "opends.h"

enum { CUFILE_HANDLE_OPAQUE_FD = 1, CUFILE_HANDLE_WIN32 = 2, CUFILE_HANDLE_USERSPACE_FS = 3 };

struct cufile_descr {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *fs_ops;
};

struct cufile_error {
    int err;
    int cu_err;
};

struct cufile_driver_props {
    struct {
        unsigned major_version;
        unsigned minor_version;
        size_t poll_thresh_size;
        size_t max_direct_io_size;
        unsigned dstatusflags;
        unsigned dcontrolflags;
    } nvfs;
    unsigned fflags;
    unsigned max_device_cache_size;
    unsigned per_buffer_cache_size;
    unsigned max_device_pinned_mem_size;
    unsigned max_batch_io_size;
    unsigned max_batch_io_timeout_msecs;
};

static_assert(sizeof(struct cufile_descr) == 24, "layout of CUfileDescr_t");
static_assert(sizeof(struct cufile_error) == sizeof(opends_error_t), "layout of CUfileError_t");
static_assert(sizeof(struct cufile_driver_props) == 56, "layout of CUfileDrvProps_t");
static_assert(sizeof(opends_io_params_t) == 64, "layout of CUfileIOParams_t");
static_assert(sizeof(opends_io_events_t) == 24, "layout of CUfileIOEvents_t");

// Exported by our own face and looked for before a library is taken for the vendor's.
#define CUFILE_FACE_MARK "opends_cufile_face_mark"
