// SPDX-License-Identifier: Apache-2.0
// The driver: all of the library's mutable state in one struct, a part per file that owns it.
#pragma once

#include "ds/ds.h"

// handle.c: slots in chunks that are never freed, a free list, and the number in use.
struct ds_handle_table {
    pthread_mutex_t lock;
    _Atomic(struct ds_handle *) chunks[DS_HANDLES_MAX / DS_SLOTS_CHUNK];
    struct ds_handle *free;
    u32 slots; // made so far
    _Atomic u32 count;
    u32 first_generation; // of new slots, less 1: in a forked child above all of the parent's
};

// buffer.c: registered ranges sorted by base.
struct ds_buffer_table {
    pthread_rwlock_t lock;
    struct ds_buffer **sorted;
    _Atomic u32 count; // changed under the lock, read without it
    u32 capacity;
    u32 next_slot;
    u64 next_generation;
};

// pool.c: threads that execute blocking backends.
struct ds_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list queue;
    pthread_t threads[DS_WORKERS_MAX];
    u32 thread_count;
    u32 idle;
    u32 queued; // operations in `queue`
    bool is_stopping;
};

struct ds_engine;

// engine.c: threads that own a ring each.
struct ds_engine_set {
    pthread_mutex_t lock;
    _Atomic(struct ds_engine *) list[DS_ENGINES_MAX];
    _Atomic u32 count;
    _Atomic u32 next;
};

// sync_queue.c: rings of calling threads.
struct ds_sync_queues {
    pthread_mutex_t lock;
    struct ds_queue *queues[DS_SYNC_QUEUES_MAX];
    u32 users[DS_SYNC_QUEUES_MAX];
    u32 count;
};

struct ds_batch;

struct ds_batch_table {
    pthread_mutex_t lock;
    struct ds_batch **slots;
    u32 count;
    u32 capacity;
    u32 first_free; // no slot below it is free
    u64 next_generation;
};

struct ds_stat_table {
    pthread_mutex_t lock;
    _Atomic(struct ds_stat_device *) devices[DS_DEVICES_MAX];
    _Atomic u32 count;
};

struct ds_trace_ring {
    _Atomic u64 next;
    u32 entries;
    struct ds_trace_slot *slots;
};

// nvme.c: namespaces found so far.
#define DS_NVME_DEVICES_MAX 64u
struct ds_nvme_table {
    pthread_mutex_t lock;
    struct ds_nvme_device *devices[DS_NVME_DEVICES_MAX];
    u32 count;
};

// accel_host.c: streams that exist, so that a stale or foreign one is refused.
struct ds_host_streams {
    pthread_mutex_t lock;
    struct list all;
    struct host_stream *standard; // what a NULL stream means; made on first use
};

struct ds_driver {
    _Atomic int state; // enum ds_driver_state
    _Atomic u64 epoch;
    pthread_mutex_t open_lock;
    pthread_key_t thread_key;
    struct ds_config config;
    const struct ds_accel *accel;
    bool is_present[DS_BACKEND_COUNT];
    char missing[DS_BACKEND_COUNT][DS_REASON_BYTES];
    char accel_missing[DS_REASON_BYTES];
    _Atomic u64 fault_count[2];
    _Atomic u32 ring_ids; // next ring id for registration masks
    _Atomic u32 chunk_bytes;
    struct ds_handle_table handles;
    struct ds_buffer_table buffers;
    struct ds_pool pool;
    struct ds_engine_set engines;
    struct ds_sync_queues sync;
    struct ds_batch_table batches;
    struct ds_stat_table stats;
    struct ds_trace_ring trace;
    struct ds_nvme_table nvme;
    struct ds_host_streams host_streams;
    _Atomic u32 stream_ops; // stream.c: queued on streams and not yet passed by them
    struct ds_cuda *cuda;   // accel_cuda.c, while open
    struct ds_gds *gds;     // backend_gds.c, while open
};
