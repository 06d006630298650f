// SPDX-License-Identifier: Apache-2.0
// Opening and closing the driver, probing of backends, per-thread state, and fork.
//
// Invariant: `state` is OPEN exactly while rings, threads and handles may exist. After fork() the
// child starts from CLOSED with fresh locks: threads and rings stayed with the parent, and what
// they had allocated is given up rather than touched.
#include "ds/driver.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ds/backends.h"

struct ds_driver *ds_driver(void)
{
    // The one mutable object with static storage; see the file comment of ds.h.
    static struct ds_driver driver;
    return &driver;
}

const struct ds_config *ds_config(void)
{
    return &ds_driver()->config;
}

bool ds_is_open(void)
{
    return LIKELY(atomic_load_explicit(&ds_driver()->state, memory_order_acquire) == DS_OPEN);
}

u32 ds_chunk_bytes(void)
{
    return atomic_load_explicit(&ds_driver()->chunk_bytes, memory_order_relaxed);
}

const struct ds_accel *ds_accel_current(void)
{
    return ds_driver()->accel;
}

u64 ds_driver_epoch(void)
{
    return atomic_load_explicit(&ds_driver()->epoch, memory_order_acquire);
}

bool ds_backend_is_present(enum ds_backend_id id, const char **why)
{
    struct ds_driver *d = ds_driver();
    if (why != NULL) {
        *why = d->missing[id];
    }
    return d->is_present[id];
}

const struct ds_backend *ds_backend(enum ds_backend_id id)
{
    switch (id) {
    case DS_REF:
        return ds_backend_ref();
    case DS_URING:
        return ds_backend_uring();
    case DS_GDS:
        return ds_backend_gds();
    case DS_NVME:
        return ds_backend_nvme();
    case DS_BACKEND_COUNT:
        break;
    }
    ASSERT(id < DS_BACKEND_COUNT); // always false here: an unknown backend
    return NULL;
}

// A thread's ring goes back to the set when the thread ends.
static void thread_end(void *value)
{
    struct ds_thread *t = value;
    if (t->queue != NULL && t->driver_epoch == ds_driver_epoch() && ds_is_open()) {
        ds_sync_queue_release(t->queue);
    }
    free(t);
}

// In a forked child: nothing of the parent's is usable, so everything starts anew. Copied
// descriptors are closed, or an unlinked file would keep its space, and a ring its pinned buffers,
// for as long as the child lives.
static void fork_child(void)
{
    struct ds_driver *d = ds_driver();
    u32 last_generation = ds_handles_fork_child();
    u64 batch_generation = d->batches.next_generation;
    if (atomic_load(&d->state) == DS_OPEN) {
        ds_engines_fork_child();
        ds_sync_queues_fork_child();
    }
    u64 epoch = atomic_load(&d->epoch);
    pthread_key_t key = d->thread_key;
    memset(d, 0, sizeof(*d));
    d->thread_key = key;
    // Names that the parent gave stay unknown here: none is given again.
    d->handles.first_generation = last_generation;
    d->batches.next_generation = batch_generation;
    atomic_store(&d->epoch, epoch + 1);
    pthread_mutex_init(&d->open_lock, NULL);
}

static void process_init(void)
{
    struct ds_driver *d = ds_driver();
    pthread_mutex_init(&d->open_lock, NULL);
    int rc = pthread_key_create(&d->thread_key, thread_end);
    ASSERT(rc == 0);
    pthread_atfork(NULL, NULL, fork_child);
}

static pthread_once_t *process_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    return &once;
}

struct ds_thread *ds_thread_self(void)
{
    pthread_once(process_once(), process_init);
    struct ds_thread *t = pthread_getspecific(ds_driver()->thread_key);
    if (UNLIKELY(t == NULL)) {
        t = calloc(1, sizeof(*t));
        if (t != NULL) {
            pthread_setspecific(ds_driver()->thread_key, t);
        }
    }
    return t;
}

// Signals are the program's: its threads handle them, never ours.
int ds_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static void probe_backends(struct ds_driver *d)
{
    for (u32 id = 0; id < DS_BACKEND_COUNT; id++) {
        d->missing[id][0] = 0;
        d->is_present[id] =
            ds_backend((enum ds_backend_id)id)->probe(d->missing[id], DS_REASON_BYTES);
    }
}

// Picks the accelerator; asked for by name it must be there.
static opends_error_t open_accel(struct ds_driver *d)
{
    d->accel_missing[0] = 0;
    if (d->config.accel != DS_ACCEL_HOST) {
        const struct ds_accel *cuda = ds_accel_cuda();
        int dev_err = 0;
        if (cuda->probe(d->accel_missing, DS_REASON_BYTES)) {
            dev_err = cuda->open();
            if (dev_err == 0) {
                d->accel = cuda;
                return ds_ok();
            }
            snprintf(d->accel_missing, DS_REASON_BYTES, "the CUDA driver failed with %d", dev_err);
        }
        if (d->config.accel == DS_ACCEL_CUDA) {
            return ds_fail(OPENDS_DEVICE_NOT_FOUND, dev_err, "OPENDS_ACCEL=cuda: %s",
                           d->accel_missing);
        }
    }
    d->accel = ds_accel_host();
    int rc = d->accel->open();
    return rc == 0 ? ds_ok()
                   : ds_fail(OPENDS_DEVICE_DRIVER_ERROR, rc, "the host accelerator did not start");
}

static opends_error_t driver_open_locked(struct ds_driver *d)
{
    opends_error_t e = ds_config_load(&d->config);
    if (e.err != OPENDS_SUCCESS) {
        return e;
    }
    e = open_accel(d);
    if (e.err != OPENDS_SUCCESS) {
        return e;
    }
    probe_backends(d);
    int wanted = d->config.backend;
    if (wanted >= 0 && !d->is_present[wanted] && d->config.policy == DS_POLICY_REQUIRE_DIRECT) {
        e = ds_fail(OPENDS_PLATFORM_NOT_SUPPORTED, 0, "backend %s: %s",
                    ds_backend((enum ds_backend_id)wanted)->name, d->missing[wanted]);
        ds_gds_batch_stop();
        ds_gds_close();
        d->accel->close();
        return e;
    }
    atomic_store(&d->chunk_bytes, d->config.chunk_bytes);
    atomic_store(&d->fault_count[0], 0);
    atomic_store(&d->fault_count[1], 0);
    atomic_store(&d->ring_ids, 0);
    ds_handles_init();
    ds_buffers_init();
    ds_pool_init();
    ds_engines_init();
    ds_sync_queues_init();
    ds_batches_init();
    ds_stats_init();
    ds_nvme_init();
    ds_trace_init(d->config.trace_entries);
    return ds_ok();
}

opends_error_t opends_driver_open(void)
{
    struct ds_driver *d = ds_driver();
    if (ds_thread_self() == NULL) {
        return (opends_error_t){OPENDS_NO_MEMORY, ENOMEM};
    }
    pthread_mutex_lock(&d->open_lock);
    opends_error_t e;
    if (atomic_load(&d->state) != DS_CLOSED) {
        e = ds_fail(OPENDS_DRIVER_ALREADY_OPEN, 0, "the driver is open already");
    } else {
        e = driver_open_locked(d);
        if (e.err == OPENDS_SUCCESS) {
            atomic_fetch_add(&d->epoch, 1);
            atomic_store_explicit(&d->state, DS_OPEN, memory_order_release);
        }
    }
    pthread_mutex_unlock(&d->open_lock);
    return e;
}

opends_error_t opends_driver_close(void)
{
    struct ds_driver *d = ds_driver();
    if (ds_thread_self() == NULL) {
        return (opends_error_t){OPENDS_NO_MEMORY, ENOMEM};
    }
    pthread_mutex_lock(&d->open_lock);
    opends_error_t e = ds_ok();
    if (atomic_load(&d->state) != DS_OPEN) {
        e = ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    } else {
        atomic_store(&d->state, DS_CLOSING);
        if (!ds_streams_drain()) {
            atomic_store(&d->state, DS_OPEN);
            pthread_mutex_unlock(&d->open_lock);
            return ds_fail(OPENDS_DRIVER_CLOSING, 0, "a stream does not get past its operations");
        }
        ds_batches_close_all();
        ds_buffers_close_all(); // before the engines: forgetting a buffer asks them
        ds_gds_batch_stop();    // before the workers: they take what fails there
        ds_pool_stop();
        ds_engines_stop();
        ds_sync_queues_close();
        ds_handles_close_all();
        ds_nvme_close_all();
        ds_gds_close();
        ds_trace_deinit();
        d->accel->close();
        atomic_store(&d->state, DS_CLOSED);
    }
    pthread_mutex_unlock(&d->open_lock);
    return e;
}

opends_error_t opends_get_version(unsigned *major, unsigned *minor, unsigned *patch)
{
    if (major != NULL) {
        *major = DS_VERSION_MAJOR;
    }
    if (minor != NULL) {
        *minor = DS_VERSION_MINOR;
    }
    if (patch != NULL) {
        *patch = DS_VERSION_PATCH;
    }
    return ds_ok();
}

opends_error_t opends_driver_get_properties(opends_drv_props_t *props)
{
    if (props == NULL) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "props is NULL");
    }
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    *props = (opends_drv_props_t){
        .major_version = DS_VERSION_MAJOR,
        .minor_version = DS_VERSION_MINOR,
        .max_direct_io_size = atomic_load(&ds_driver()->chunk_bytes),
        .max_batch_io_timeout_msecs = ds_config()->io_timeout_ms,
    };
    return ds_ok();
}

opends_error_t opends_driver_set_max_direct_io_size(size_t bytes)
{
    if (!ds_is_open()) {
        return ds_fail(OPENDS_DRIVER_NOT_INITIALIZED, 0, "the driver is not open");
    }
    if (bytes < DS_CHUNK_BYTES_MIN || bytes > DS_CHUNK_BYTES_MAX || bytes % 4096 != 0) {
        return ds_fail(OPENDS_DRIVER_UNSUPPORTED_LIMIT, 0,
                       "%zu is not a multiple of 4096 from %zu to %zu", bytes, DS_CHUNK_BYTES_MIN,
                       DS_CHUNK_BYTES_MAX);
    }
    // Never above what the rings' bounce buffers were made for.
    atomic_store(&ds_driver()->chunk_bytes, (u32)MIN(bytes, (size_t)ds_config()->chunk_bytes));
    return ds_ok();
}
