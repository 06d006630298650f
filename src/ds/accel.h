// SPDX-License-Identifier: Apache-2.0
// Accelerators: what kind of memory an address is, copies to and from it, and streams. A table of
// functions per kind: `host` (plain memory, streams are threads) and `cuda` (the driver API, by
// dlopen). A user-space NVMe queue pair with peer-to-peer DMA would add `export` here: the bus
// address of a range.
//
// Threads: all functions may be called from any thread; a copy queue belongs to one thread at a
// time.
#pragma once

#include "base/types.h"

enum ds_accel_id { DS_ACCEL_HOST, DS_ACCEL_CUDA, DS_ACCEL_COUNT };
enum ds_memory_kind { DS_MEMORY_HOST, DS_MEMORY_DEVICE, DS_MEMORY_UNKNOWN };

// One copy in flight: the accelerator's event. Zeroed before first use, reused after it is done.
struct ds_copy {
    void *event;
    int dev_err;
    bool is_done;
};

// A word that a stream waits on until it reaches a value. Visible to host and accelerator.
struct ds_gate {
    _Atomic u32 *word;
    void *device_address;
    u32 index;
};

// Every int is 0 or the vendor's error code, which reaches the caller as dev_err.
struct ds_accel {
    const char *name;
    bool (*probe)(char *why, size_t why_size);
    int (*open)(void);
    void (*close)(void);
    // Makes the accelerator's context current on the calling thread for work on `memory` (or at
    // all).
    int (*enter)(void);
    void (*leave)(void);
    enum ds_memory_kind (*memory_kind)(const void *address);
    void *(*memory_alloc)(size_t bytes, int *dev_err);
    void (*memory_free)(void *memory);
    // Pinned host memory for bounces.
    void *(*pinned_alloc)(size_t bytes);
    void (*pinned_free)(void *memory, size_t bytes);
    // Copies. The queue orders nothing between copies; each reports through its own `struct
    // ds_copy`.
    int (*queue_create)(void **queue);
    void (*queue_destroy)(void *queue);
    int (*copy_in)(void *queue, void *device, const void *host, size_t bytes, struct ds_copy *copy);
    int (*copy_out)(void *queue, void *host, const void *device, size_t bytes,
                    struct ds_copy *copy);
    int (*zero)(void *queue, void *device, size_t bytes, struct ds_copy *copy);
    // Sets copy->is_done (and dev_err); with `wait`, returns only when it is.
    void (*copy_poll)(struct ds_copy *copy, bool wait);
    void (*copy_deinit)(struct ds_copy *copy);
    // Streams.
    int (*stream_create)(void **stream);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*stream_call)(void *stream, void (*fn)(void *), void *arg);
    int (*stream_wait)(void *stream, struct ds_gate *gate, u32 value);
    int (*gate_create)(struct ds_gate *gate);
    void (*gate_open)(struct ds_gate *gate, u32 value);
    void (*gate_destroy)(struct ds_gate *gate);
};

const struct ds_accel *ds_accel_host(void);
const struct ds_accel *ds_accel_cuda(void);
