// SPDX-License-Identifier: Apache-2.0
// The CUDA accelerator, by the driver API, loaded at run time and never linked. Prototypes are
// written from the public documentation of names and signatures.
//
// Streams wait on words in mapped host memory (cuStreamWaitValue32): neither a GPU engine nor
// CUDA's callback thread blocks in our code. Where the driver has no such wait, a host callback
// waits instead, and other streams' callbacks may queue behind it.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ds/driver.h"

#define CUDA_NOT_READY            600
#define CUDA_OUT_OF_MEMORY        2
#define POINTER_MEMORY_TYPE       2
#define MEMORY_TYPE_DEVICE        2
#define MEMORY_TYPE_UNIFIED       4
#define EVENT_DISABLE_TIMING      2u
#define STREAM_NON_BLOCKING       1u
#define HOSTALLOC_PORTABLE_MAPPED 3u
#define WAIT_VALUE_GEQ            0u
#define GATE_SLABS_MAX            64u
#define GATES_PER_SLAB            1024u

typedef u64 cu_deviceptr;

// The functions used, by their exported names.
#define CUDA_FUNCTIONS(F)                                                                          \
    F(cuInit, int, (unsigned))                                                                     \
    F(cuDeviceGetCount, int, (int *))                                                              \
    F(cuDeviceGet, int, (int *, int))                                                              \
    F(cuDevicePrimaryCtxRetain, int, (void **, int))                                               \
    F(cuDevicePrimaryCtxRelease_v2, int, (int))                                                    \
    F(cuCtxGetCurrent, int, (void **))                                                             \
    F(cuCtxPushCurrent_v2, int, (void *))                                                          \
    F(cuCtxPopCurrent_v2, int, (void **))                                                          \
    F(cuPointerGetAttribute, int, (void *, int, cu_deviceptr))                                     \
    F(cuMemAlloc_v2, int, (cu_deviceptr *, size_t))                                                \
    F(cuMemFree_v2, int, (cu_deviceptr))                                                           \
    F(cuMemHostAlloc, int, (void **, size_t, unsigned))                                            \
    F(cuMemFreeHost, int, (void *))                                                                \
    F(cuMemHostGetDevicePointer_v2, int, (cu_deviceptr *, void *, unsigned))                       \
    F(cuMemcpyHtoDAsync_v2, int, (cu_deviceptr, const void *, size_t, void *))                     \
    F(cuMemcpyDtoHAsync_v2, int, (void *, cu_deviceptr, size_t, void *))                           \
    F(cuMemsetD8Async, int, (cu_deviceptr, unsigned char, size_t, void *))                         \
    F(cuEventCreate, int, (void **, unsigned))                                                     \
    F(cuEventRecord, int, (void *, void *))                                                        \
    F(cuEventQuery, int, (void *))                                                                 \
    F(cuEventSynchronize, int, (void *))                                                           \
    F(cuEventDestroy_v2, int, (void *))                                                            \
    F(cuStreamCreate, int, (void **, unsigned))                                                    \
    F(cuStreamDestroy_v2, int, (void *))                                                           \
    F(cuStreamSynchronize, int, (void *))                                                          \
    F(cuLaunchHostFunc, int, (void *, void (*)(void *), void *))

#define DECLARE(name, result, arguments) result(*name) arguments;

struct ds_cuda {
    void *library;
    CUDA_FUNCTIONS(DECLARE)
    // Absent in old drivers.
    int (*wait_value)(void *stream, cu_deviceptr address, u32 value, unsigned flags);
    void *context;
    int device;
    bool is_primary; // the context was retained by us
    pthread_mutex_t gate_lock;
    _Atomic u32 *slabs[GATE_SLABS_MAX];
    cu_deviceptr slab_device[GATE_SLABS_MAX];
    u32 slab_count;
    u32 *free_gates;
    u32 free_gate_count;
};

static struct ds_cuda *cuda(void)
{
    return ds_driver()->cuda;
}

static bool load_symbols(struct ds_cuda *c, char *why, size_t why_size)
{
#define LOAD(name, result, arguments)                                                              \
    c->name = (result(*) arguments)dlsym(c->library, #name);                                       \
    if (c->name == NULL) {                                                                         \
        snprintf(why, why_size, "%s lacks %s", ds_config()->cuda_library, #name);                  \
        return false;                                                                              \
    }
    CUDA_FUNCTIONS(LOAD)
    c->wait_value =
        (int (*)(void *, cu_deviceptr, u32, unsigned))dlsym(c->library, "cuStreamWaitValue32_v2");
    return true;
}

static bool probe_loaded(struct ds_cuda *c, char *why, size_t why_size)
{
    int count = 0;
    if (!load_symbols(c, why, why_size)) {
        return false;
    }
    int rc = c->cuInit(0);
    if (rc == 0) {
        rc = c->cuDeviceGetCount(&count);
    }
    if (rc != 0) {
        snprintf(why, why_size, "the CUDA driver does not start (error %d)", rc);
        return false;
    }
    if (count == 0) {
        snprintf(why, why_size, "the CUDA driver sees no GPU");
        return false;
    }
    return true;
}

// Loads the driver and leaves it in ds_driver()->cuda when it is usable.
static bool cuda_probe(char *why, size_t why_size)
{
    struct ds_cuda *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        snprintf(why, why_size, "out of memory");
        return false;
    }
    c->library = dlopen(ds_config()->cuda_library, RTLD_NOW | RTLD_LOCAL);
    if (c->library == NULL) {
        snprintf(why, why_size, "no CUDA driver: %s", dlerror());
        free(c);
        return false;
    }
    if (!probe_loaded(c, why, why_size)) {
        dlclose(c->library);
        free(c);
        return false;
    }
    pthread_mutex_init(&c->gate_lock, NULL);
    ds_driver()->cuda = c;
    return true;
}

static void cuda_unload(void)
{
    struct ds_cuda *c = cuda();
    ds_driver()->cuda = NULL;
    dlclose(c->library);
    pthread_mutex_destroy(&c->gate_lock);
    free(c->free_gates);
    free(c);
}

// Uses the context current on the opening thread, as the vendor's library does, or the first
// device's.
static int cuda_open(void)
{
    struct ds_cuda *c = cuda();
    int rc = c->cuCtxGetCurrent(&c->context);
    if (rc == 0 && c->context == NULL) {
        rc = c->cuDeviceGet(&c->device, 0);
        if (rc == 0) {
            rc = c->cuDevicePrimaryCtxRetain(&c->context, c->device);
            c->is_primary = rc == 0;
        }
    }
    if (rc != 0) {
        cuda_unload();
    }
    return rc;
}

static int cuda_enter(void)
{
    return cuda()->cuCtxPushCurrent_v2(cuda()->context);
}

static void cuda_leave(void)
{
    void *popped;
    (void)cuda()->cuCtxPopCurrent_v2(&popped);
}

static void cuda_close(void)
{
    struct ds_cuda *c = cuda();
    if (cuda_enter() == 0) {
        for (u32 i = 0; i < c->slab_count; i++) {
            (void)c->cuMemFreeHost((void *)c->slabs[i]);
        }
        cuda_leave();
    }
    if (c->is_primary) {
        (void)c->cuDevicePrimaryCtxRelease_v2(c->device);
    }
    cuda_unload();
}

static enum ds_memory_kind cuda_memory_kind(const void *address)
{
    unsigned type = 0;
    // Memory that the driver has never heard of is an error there, and plain host memory here.
    if (address == NULL || cuda()->cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE,
                                                         (cu_deviceptr)(uintptr_t)address) != 0) {
        return DS_MEMORY_HOST;
    }
    return type == MEMORY_TYPE_DEVICE || type == MEMORY_TYPE_UNIFIED ? DS_MEMORY_DEVICE
                                                                     : DS_MEMORY_HOST;
}

static void *cuda_memory_alloc(size_t bytes, int *dev_err)
{
    cu_deviceptr p = 0;
    *dev_err = cuda_enter();
    if (*dev_err == 0) {
        *dev_err = cuda()->cuMemAlloc_v2(&p, bytes);
        cuda_leave();
    }
    return *dev_err == 0 ? (void *)(uintptr_t)p : NULL;
}

static void cuda_memory_free(void *memory)
{
    if (cuda_enter() == 0) {
        (void)cuda()->cuMemFree_v2((cu_deviceptr)(uintptr_t)memory);
        cuda_leave();
    }
}

static void *cuda_pinned_alloc(size_t bytes)
{
    void *p = NULL;
    if (cuda_enter() == 0) {
        if (cuda()->cuMemHostAlloc(&p, bytes, HOSTALLOC_PORTABLE_MAPPED) != 0) {
            p = NULL;
        }
        cuda_leave();
    }
    return p;
}

static void cuda_pinned_free(void *memory, size_t bytes)
{
    (void)bytes;
    if (memory != NULL && cuda_enter() == 0) {
        (void)cuda()->cuMemFreeHost(memory);
        cuda_leave();
    }
}

static int cuda_queue_create(void **queue)
{
    int rc = cuda_enter();
    if (rc == 0) {
        rc = cuda()->cuStreamCreate(queue, STREAM_NON_BLOCKING);
        cuda_leave();
    }
    return rc;
}

static void cuda_queue_destroy(void *queue)
{
    if (cuda_enter() == 0) {
        (void)cuda()->cuStreamDestroy_v2(queue);
        cuda_leave();
    }
}

// Records the copy's event behind what was just queued. The context is current.
static int record(void *queue, struct ds_copy *copy)
{
    int rc = 0;
    copy->is_done = false;
    copy->dev_err = 0;
    if (copy->event == NULL) {
        rc = cuda()->cuEventCreate(&copy->event, EVENT_DISABLE_TIMING);
    }
    return rc != 0 ? rc : cuda()->cuEventRecord(copy->event, queue);
}

static int cuda_copy_in(void *queue, void *device, const void *host, size_t bytes,
                        struct ds_copy *copy)
{
    int rc = cuda()->cuMemcpyHtoDAsync_v2((cu_deviceptr)(uintptr_t)device, host, bytes, queue);
    return rc != 0 ? rc : record(queue, copy);
}

static int cuda_copy_out(void *queue, void *host, const void *device, size_t bytes,
                         struct ds_copy *copy)
{
    int rc = cuda()->cuMemcpyDtoHAsync_v2(host, (cu_deviceptr)(uintptr_t)device, bytes, queue);
    return rc != 0 ? rc : record(queue, copy);
}

static int cuda_zero(void *queue, void *device, size_t bytes, struct ds_copy *copy)
{
    int rc = cuda()->cuMemsetD8Async((cu_deviceptr)(uintptr_t)device, 0, bytes, queue);
    return rc != 0 ? rc : record(queue, copy);
}

static void cuda_copy_poll(struct ds_copy *copy, bool wait)
{
    int rc = wait ? cuda()->cuEventSynchronize(copy->event) : cuda()->cuEventQuery(copy->event);
    if (rc == CUDA_NOT_READY) {
        return;
    }
    copy->is_done = true;
    copy->dev_err = rc;
}

static void cuda_copy_deinit(struct ds_copy *copy)
{
    if (copy->event != NULL && cuda_enter() == 0) {
        (void)cuda()->cuEventDestroy_v2(copy->event);
        cuda_leave();
    }
    copy->event = NULL;
}

static int cuda_stream_create(void **stream)
{
    return cuda_queue_create(stream);
}

static int cuda_stream_destroy(void *stream)
{
    int rc = stream == NULL ? EINVAL : cuda_enter();
    if (rc == 0) {
        rc = cuda()->cuStreamDestroy_v2(stream);
        cuda_leave();
    }
    return rc;
}

static int cuda_stream_synchronize(void *stream)
{
    int rc = cuda_enter();
    if (rc == 0) {
        rc = cuda()->cuStreamSynchronize(stream);
        cuda_leave();
    }
    return rc;
}

static int cuda_stream_call(void *stream, void (*fn)(void *), void *arg)
{
    int rc = cuda_enter();
    if (rc == 0) {
        rc = cuda()->cuLaunchHostFunc(stream, fn, arg);
        cuda_leave();
    }
    return rc;
}

// The wait of drivers without cuStreamWaitValue32: blocks CUDA's callback thread.
static void wait_in_callback(void *arg)
{
    _Atomic u32 *word = arg;
    u32 now;
    while ((now = atomic_load_explicit(word, memory_order_acquire)) == 0) {
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    }
}

static int cuda_stream_wait(void *stream, struct ds_gate *gate, u32 value)
{
    struct ds_cuda *c = cuda();
    int rc = cuda_enter();
    if (rc != 0) {
        return rc;
    }
    rc = c->wait_value == NULL
             ? c->cuLaunchHostFunc(stream, wait_in_callback, (void *)gate->word)
             : c->wait_value(stream, (cu_deviceptr)(uintptr_t)gate->device_address, value,
                             WAIT_VALUE_GEQ);
    cuda_leave();
    return rc;
}

// Adds a slab of gates. Under the gate lock.
static int slab_add_locked(struct ds_cuda *c)
{
    void *memory = NULL;
    u32 total = (c->slab_count + 1) * GATES_PER_SLAB;
    u32 *grown =
        c->slab_count == GATE_SLABS_MAX ? NULL : realloc(c->free_gates, total * sizeof(u32));
    if (grown == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    c->free_gates = grown;
    int rc = cuda_enter();
    if (rc != 0) {
        return rc;
    }
    rc = c->cuMemHostAlloc(&memory, GATES_PER_SLAB * sizeof(u32), HOSTALLOC_PORTABLE_MAPPED);
    if (rc == 0) {
        rc = c->cuMemHostGetDevicePointer_v2(&c->slab_device[c->slab_count], memory, 0);
    }
    cuda_leave();
    if (rc != 0) {
        return rc;
    }
    c->slabs[c->slab_count] = memory;
    for (u32 i = 0; i < GATES_PER_SLAB; i++) {
        c->free_gates[c->free_gate_count++] = c->slab_count * GATES_PER_SLAB + i;
    }
    c->slab_count++;
    return 0;
}

static int cuda_gate_create(struct ds_gate *gate)
{
    struct ds_cuda *c = cuda();
    pthread_mutex_lock(&c->gate_lock);
    int rc = c->free_gate_count == 0 ? slab_add_locked(c) : 0;
    if (rc == 0) {
        gate->index = c->free_gates[--c->free_gate_count];
        u32 slab = gate->index / GATES_PER_SLAB;
        u32 at = gate->index % GATES_PER_SLAB;
        gate->word = &c->slabs[slab][at];
        gate->device_address = (void *)(uintptr_t)(c->slab_device[slab] + at * sizeof(u32));
        atomic_store(gate->word, 0);
    }
    pthread_mutex_unlock(&c->gate_lock);
    return rc;
}

static void cuda_gate_open(struct ds_gate *gate, u32 value)
{
    atomic_store_explicit(gate->word, value, memory_order_seq_cst);
    if (cuda()->wait_value == NULL) {
        syscall(SYS_futex, gate->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    }
}

// Runs inside a stream's callback too, so it must not call CUDA.
static void cuda_gate_destroy(struct ds_gate *gate)
{
    struct ds_cuda *c = cuda();
    pthread_mutex_lock(&c->gate_lock);
    c->free_gates[c->free_gate_count++] = gate->index;
    pthread_mutex_unlock(&c->gate_lock);
    gate->word = NULL;
}

const struct ds_accel *ds_accel_cuda(void)
{
    static const struct ds_accel accel = {
        .name = "cuda",
        .probe = cuda_probe,
        .open = cuda_open,
        .close = cuda_close,
        .enter = cuda_enter,
        .leave = cuda_leave,
        .memory_kind = cuda_memory_kind,
        .memory_alloc = cuda_memory_alloc,
        .memory_free = cuda_memory_free,
        .pinned_alloc = cuda_pinned_alloc,
        .pinned_free = cuda_pinned_free,
        .queue_create = cuda_queue_create,
        .queue_destroy = cuda_queue_destroy,
        .copy_in = cuda_copy_in,
        .copy_out = cuda_copy_out,
        .zero = cuda_zero,
        .copy_poll = cuda_copy_poll,
        .copy_deinit = cuda_copy_deinit,
        .stream_create = cuda_stream_create,
        .stream_destroy = cuda_stream_destroy,
        .stream_synchronize = cuda_stream_synchronize,
        .stream_call = cuda_stream_call,
        .stream_wait = cuda_stream_wait,
        .gate_create = cuda_gate_create,
        .gate_open = cuda_gate_open,
        .gate_destroy = cuda_gate_destroy,
    };
    return &accel;
}
