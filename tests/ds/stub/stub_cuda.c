// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for tests on machines without a GPU: the driver-API symbols that libopends uses,
// with threads for streams. It is stricter than the real one where that finds mistakes:
//   - device memory is mapped without access at its device address, so a CPU (or kernel) access
//   that
//     does not go through a copy faults;
//   - calls without a current context fail (201), calls from a stream's callback fail (800).
// What it cannot show: real DMA, PCIe ordering, a GPU's timing, BAR mappings, real driver versions.
//
// STUB_CUDA_DELAY_US=n      every copy takes n microseconds longer
// STUB_CUDA_FAIL=name:n:c   the n-th call (from 1) of `name` fails with code c; "event" fails a
// copy later STUB_CUDA_DEVICES=n       the number of devices (default 1)
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stub_cuda.h"

#define REGIONS_MAX 65536

struct region {
    uint8_t *device; // no access
    uint8_t *alias;  // the memory
    size_t bytes;
};

enum kind { K_COPY, K_SET, K_EVENT, K_CALL, K_WAIT, K_STOP };

struct item {
    struct item *next;
    enum kind kind;
    void *to;
    const void *from;
    size_t bytes;
    void (*fn)(void *);
    void *arg;
    _Atomic uint32_t *word;
    uint32_t value;
    uint64_t ticket;
};

struct event {
    _Atomic int state; // 0 never recorded, 1 pending, 2 done
    _Atomic int error;
    _Atomic uint64_t ticket; // of the last record
};

struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct item *head;
    struct item **tail;
    uint64_t queued;
    uint64_t done;
};

static struct {
    pthread_mutex_t lock;
    struct region regions[REGIONS_MAX];
    int count;
    struct stream *standard;
    int context;
    int is_forked;
} stub = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Static storage per thread: LeakSanitizer cannot follow what dlopen allocates for other threads.
#define PER_THREAD __attribute__((tls_model("initial-exec"))) __thread
static PER_THREAD int context_depth;
static PER_THREAD int in_callback;

// The injected error for this call, or 0.
static int injected(const char *name)
{
    static _Atomic int calls;
    const char *spec = getenv("STUB_CUDA_FAIL");
    char want[64];
    int nth;
    int code;
    if (spec == NULL || sscanf(spec, "%63[^:]:%d:%d", want, &nth, &code) != 3 ||
        strcmp(want, name) != 0) {
        return 0;
    }
    return atomic_fetch_add(&calls, 1) + 1 == nth ? code : 0;
}

static int check(const char *name)
{
    if (in_callback) {
        return 800;
    }
    if (context_depth == 0) {
        return 201;
    }
    return injected(name);
}

static int find(uintptr_t address)
{
    for (int i = 0; i < stub.count; i++) {
        if (address >= (uintptr_t)stub.regions[i].device &&
            address < (uintptr_t)stub.regions[i].device + stub.regions[i].bytes) {
            return i;
        }
    }
    return -1;
}

void *stub_cuda_alias(uint64_t device, size_t bytes)
{
    pthread_mutex_lock(&stub.lock);
    int i = find((uintptr_t)device);
    void *alias = NULL;
    if (i >= 0) {
        size_t at = (uintptr_t)device - (uintptr_t)stub.regions[i].device;
        alias = bytes <= stub.regions[i].bytes - at ? stub.regions[i].alias + at : NULL;
    }
    pthread_mutex_unlock(&stub.lock);
    return alias;
}

static void pause_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static long delay_us(void)
{
    const char *text = getenv("STUB_CUDA_DELAY_US");
    return text == NULL ? 0 : atol(text);
}

static void run_item(struct item *it)
{
    if (it->kind == K_COPY || it->kind == K_SET) {
        if (delay_us() > 0) {
            pause_us(delay_us());
        }
        if (it->kind == K_COPY) {
            memcpy(it->to, it->from, it->bytes);
        } else {
            memset(it->to, (int)it->value, it->bytes);
        }
    } else if (it->kind == K_EVENT) {
        struct event *e = it->arg;
        if (atomic_load(&e->ticket) == it->ticket) {
            atomic_store(&e->error, injected("event"));
            atomic_store(&e->state, 2);
        }
    } else if (it->kind == K_CALL) {
        in_callback = 1;
        it->fn(it->arg);
        in_callback = 0;
    } else if (it->kind == K_WAIT) {
        // A GPU polls the word through the bus; so does this.
        while ((int32_t)(atomic_load_explicit(it->word, memory_order_acquire) - it->value) < 0) {
            pause_us(20);
        }
    }
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    int is_stopped = 0;
    pthread_mutex_lock(&s->lock);
    while (!is_stopped) {
        struct item *it = s->head;
        if (it == NULL) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        s->head = it->next;
        if (s->head == NULL) {
            s->tail = &s->head;
        }
        pthread_mutex_unlock(&s->lock);
        is_stopped = it->kind == K_STOP;
        run_item(it);
        free(it);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static struct stream *stream_new(void)
{
    struct stream *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        abort();
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    s->tail = &s->head;
    sigset_t all; // the program's signals are not for a driver's threads
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_create(&s->thread, NULL, stream_main, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return s;
}

static struct stream *stream_of(void *stream)
{
    if (stream != NULL) {
        return stream;
    }
    pthread_mutex_lock(&stub.lock);
    if (stub.standard == NULL) {
        stub.standard = stream_new();
    }
    struct stream *s = stub.standard;
    pthread_mutex_unlock(&stub.lock);
    return s;
}

static void push(void *stream, struct item model)
{
    struct stream *s = stream_of(stream);
    struct item *it = malloc(sizeof(*it));
    if (it == NULL) {
        abort();
    }
    *it = model;
    it->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->tail = it;
    s->tail = &it->next;
    s->queued++;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static void fork_child(void)
{
    stub.is_forked = 1;
}

static void register_fork(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

STUB_API int cuInit(unsigned flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)flags;
    pthread_once(&once, register_fork);
    if (stub.is_forked) {
        return 3; // CUDA does not survive a fork either
    }
    return injected("cuInit");
}

STUB_API int cuDeviceGetCount(int *count)
{
    const char *text = getenv("STUB_CUDA_DEVICES");
    *count = text == NULL ? 1 : atoi(text);
    return 0;
}

STUB_API int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

STUB_API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = &stub.context;
    return injected("cuDevicePrimaryCtxRetain");
}

STUB_API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return 0;
}

STUB_API int cuCtxGetCurrent(void **context)
{
    *context = context_depth > 0 ? &stub.context : NULL;
    return 0;
}

STUB_API int cuCtxPushCurrent_v2(void *context)
{
    if (in_callback || context != &stub.context) {
        return in_callback ? 800 : 201;
    }
    context_depth++;
    return 0;
}

STUB_API int cuCtxPopCurrent_v2(void **context)
{
    if (in_callback || context_depth == 0) {
        return in_callback ? 800 : 201;
    }
    *context = &stub.context;
    context_depth--;
    return 0;
}

STUB_API int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
    if (in_callback) {
        return 800;
    }
    if (attribute != 2) {
        return 1;
    }
    pthread_mutex_lock(&stub.lock);
    int i = find((uintptr_t)pointer);
    pthread_mutex_unlock(&stub.lock);
    *(unsigned *)data = 2;
    return i >= 0 ? 0 : 1;
}

STUB_API int cuMemAlloc_v2(uint64_t *device, size_t bytes)
{
    int rc = check("cuMemAlloc_v2");
    if (rc != 0) {
        return rc;
    }
    size_t whole = (bytes + 4095) / 4096 * 4096;
    int fd = memfd_create("stub-device-memory", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)whole) != 0) {
        return 2;
    }
    uint8_t *alias = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint8_t *address = mmap(NULL, whole, PROT_NONE, MAP_SHARED, fd, 0);
    close(fd);
    if (alias == MAP_FAILED || address == MAP_FAILED) {
        return 2;
    }
    pthread_mutex_lock(&stub.lock);
    rc = stub.count == REGIONS_MAX ? 2 : 0;
    if (rc == 0) {
        stub.regions[stub.count++] = (struct region){address, alias, whole};
    }
    pthread_mutex_unlock(&stub.lock);
    *device = (uint64_t)(uintptr_t)address;
    return rc;
}

STUB_API int cuMemFree_v2(uint64_t device)
{
    int rc = check("cuMemFree_v2");
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&stub.lock);
    int i = find((uintptr_t)device);
    if (i >= 0) {
        munmap(stub.regions[i].device, stub.regions[i].bytes);
        munmap(stub.regions[i].alias, stub.regions[i].bytes);
        stub.regions[i] = stub.regions[--stub.count];
    }
    pthread_mutex_unlock(&stub.lock);
    return i >= 0 ? 0 : 1;
}

STUB_API int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    int rc = check("cuMemHostAlloc");
    if (rc == 0) {
        *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        rc = *memory == NULL ? 2 : 0;
    }
    return rc;
}

STUB_API int cuMemFreeHost(void *memory)
{
    int rc = check("cuMemFreeHost");
    if (rc == 0) {
        free(memory);
    }
    return rc;
}

STUB_API int cuMemHostGetDevicePointer_v2(uint64_t *device, void *memory, unsigned flags)
{
    (void)flags;
    *device = (uint64_t)(uintptr_t)memory;
    return check("cuMemHostGetDevicePointer_v2");
}

STUB_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    int rc = check("cuMemcpyHtoDAsync_v2");
    void *alias = stub_cuda_alias(to, bytes);
    if (rc == 0 && alias == NULL) {
        rc = 1;
    }
    if (rc == 0) {
        push(stream, (struct item){.kind = K_COPY, .to = alias, .from = from, .bytes = bytes});
    }
    return rc;
}

STUB_API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    int rc = check("cuMemcpyDtoHAsync_v2");
    void *alias = stub_cuda_alias(from, bytes);
    if (rc == 0 && alias == NULL) {
        rc = 1;
    }
    if (rc == 0) {
        push(stream, (struct item){.kind = K_COPY, .to = to, .from = alias, .bytes = bytes});
    }
    return rc;
}

// The synchronous forms, for tests that fill and check device memory.
STUB_API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    void *alias = stub_cuda_alias(to, bytes);
    if (alias != NULL) {
        memcpy(alias, from, bytes);
    }
    return alias == NULL ? 1 : 0;
}

STUB_API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    const void *alias = stub_cuda_alias(from, bytes);
    if (alias != NULL) {
        memcpy(to, alias, bytes);
    }
    return alias == NULL ? 1 : 0;
}

STUB_API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
    int rc = check("cuMemsetD8Async");
    void *alias = stub_cuda_alias(to, bytes);
    if (rc == 0 && alias == NULL) {
        rc = 1;
    }
    if (rc == 0) {
        push(stream, (struct item){.kind = K_SET, .to = alias, .value = value, .bytes = bytes});
    }
    return rc;
}

STUB_API int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    int rc = check("cuEventCreate");
    if (rc == 0) {
        *event = calloc(1, sizeof(struct event));
        rc = *event == NULL ? 2 : 0;
    }
    return rc;
}

STUB_API int cuEventRecord(void *event, void *stream)
{
    int rc = check("cuEventRecord");
    if (rc == 0) {
        struct event *e = event;
        atomic_store(&e->state, 1);
        uint64_t ticket = atomic_fetch_add(&e->ticket, 1) + 1;
        push(stream, (struct item){.kind = K_EVENT, .arg = event, .ticket = ticket});
    }
    return rc;
}

STUB_API int cuEventQuery(void *event)
{
    struct event *e = event;
    return atomic_load(&e->state) == 1 ? 600 : atomic_load(&e->error);
}

STUB_API int cuEventSynchronize(void *event)
{
    struct event *e = event;
    while (atomic_load(&e->state) == 1) {
        pause_us(5);
    }
    return atomic_load(&e->error);
}

STUB_API int cuEventDestroy_v2(void *event)
{
    int rc = check("cuEventDestroy_v2");
    if (rc == 0) {
        free(event);
    }
    return rc;
}

STUB_API int cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    int rc = check("cuStreamCreate");
    if (rc == 0) {
        *stream = stream_new();
    }
    return rc;
}

STUB_API int cuStreamSynchronize(void *stream)
{
    int rc = check("cuStreamSynchronize");
    if (rc != 0) {
        return rc;
    }
    struct stream *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    uint64_t until = s->queued;
    while (s->done < until) {
        pthread_cond_wait(&s->wake, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

STUB_API int cuStreamDestroy_v2(void *stream)
{
    int rc = stream == NULL ? 1 : check("cuStreamDestroy_v2");
    if (rc == 0) {
        struct stream *s = stream;
        push(s, (struct item){.kind = K_STOP});
        pthread_join(s->thread, NULL);
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->wake);
        free(s);
    }
    return rc;
}

STUB_API int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg)
{
    int rc = check("cuLaunchHostFunc");
    if (rc == 0) {
        push(stream, (struct item){.kind = K_CALL, .fn = fn, .arg = arg});
    }
    return rc;
}

STUB_API int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags)
{
    int rc = flags != 0 ? 1 : check("cuStreamWaitValue32_v2");
    if (rc == 0) {
        push(stream, (struct item){.kind = K_WAIT,
                                   .word = (_Atomic uint32_t *)(uintptr_t)address,
                                   .value = value});
    }
    return rc;
}
