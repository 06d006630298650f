// SPDX-License-Identifier: Apache-2.0
// What the two halves of the gds backend share: the vendor's functions, and the thread that feeds
// its batches.
#pragma once

#include "ds/cufile_abi.h"
#include "ds/driver.h"

#define GDS_ENTRIES_MAX 128u       // the vendor's own default limit on a batch
#define GDS_ENTRIES_MIN 8u         // fewer are not worth a batch
#define GDS_ENTRY_BYTES (16 * MIB) // its default for the largest direct I/O

// cuFile's batches under ours; see gds_batch.c.
struct ds_gds_batch {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    struct list queue; // operations with no entry yet
    bool is_started;
    bool is_stopping;
    char off[DS_FALLBACK_BYTES]; // why plain calls are made instead; "" while batches work
};

struct ds_gds {
    void *library;
    struct cufile_error (*driver_open)(void);
    struct cufile_error (*driver_close)(void);
    struct cufile_error (*handle_register)(void **fh, struct cufile_descr *descr);
    void (*handle_deregister)(void *fh);
    struct cufile_error (*buf_register)(const void *base, size_t size, int flags);
    struct cufile_error (*buf_deregister)(const void *base);
    ssize_t (*read)(void *fh, void *base, size_t size, off_t file_offset, off_t base_offset);
    ssize_t (*write)(void *fh, const void *base, size_t size, off_t file_offset, off_t base_offset);
    // Absent in old versions.
    struct cufile_error (*batch_setup)(void **batch, unsigned nr);
    struct cufile_error (*batch_submit)(void *batch, unsigned nr, opends_io_params_t *params,
                                        unsigned flags);
    struct cufile_error (*batch_status)(void *batch, unsigned min_nr, unsigned *nr,
                                        opends_io_events_t *events, struct timespec *timeout);
    void (*batch_destroy)(void *batch);
    struct ds_gds_batch batch;
};

void ds_gds_batch_init(struct ds_gds *g);
// Takes the operations that a vendor's batch can carry out of the list. The rest is the caller's.
void ds_gds_batch_take(struct list *ops);
