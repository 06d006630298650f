// SPDX-License-Identifier: Apache-2.0
// Legs: threads that take units of work (a file, or a step of a large one) from a shared cursor and
// read them one way. A file is opened, registered, read and closed within the timed pass, because
// that is what a loader does. The first pass is not timed and checks every byte; then come the
// timed, cold ones.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench_ds.h"
#include "opends.h"

// One I/O to do: a range of a file.
struct unit {
    u64 file;
    u64 offset;
    u64 bytes;
};

struct run {
    const struct bench_leg *leg;
    u64 unit_bytes; // memory a slot
    u64 units_per_file;
    _Atomic u64 cursor;
    bool is_checked;
    _Atomic u64 bytes;
    _Atomic bool is_failed;
    char error[256];
    pthread_mutex_t error_lock;
};

struct slot {
    struct unit unit;
    opends_handle_t handle;
    int fd;
    u8 *memory;
    double start_s;
    // Arguments of a stream operation.
    size_t size;
    off_t offset;
    off_t zero;
    ssize_t got;
    opends_stream_t stream;
    bool is_busy;
};

struct worker {
    pthread_t thread;
    struct run *run;
    struct slot *slots;
    u8 *memory;
    float *latencies_us;
    u64 latency_count;
    u64 latency_capacity;
};

double bench_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(struct run *r, const char *what, const char *why)
{
    pthread_mutex_lock(&r->error_lock);
    if (!atomic_exchange(&r->is_failed, true)) {
        snprintf(r->error, sizeof(r->error), "%.120s: %.120s", what, why);
    }
    pthread_mutex_unlock(&r->error_lock);
}

static bool unit_next(struct run *r, struct unit *u)
{
    const struct bench_dataset *d = r->leg->data;
    u64 n = atomic_fetch_add(&r->cursor, 1);
    if (n >= d->count * r->units_per_file || atomic_load(&r->is_failed)) {
        return false;
    }
    u->file = n / r->units_per_file;
    u->offset = n % r->units_per_file * BENCH_UNIT_BYTES;
    u64 size = bench_file_size(d, u->file);
    u->bytes = u->offset >= size ? 0 : MIN(size - u->offset, BENCH_UNIT_BYTES);
    return true;
}

// The latency of a finished unit, its bytes, and (in the first pass) a look at every byte.
static void unit_done(struct worker *w, struct slot *s, i64 got)
{
    struct run *r = w->run;
    if (w->latency_count < w->latency_capacity) {
        w->latencies_us[w->latency_count++] = (float)((bench_now_s() - s->start_s) * 1e6);
    }
    if (got != (i64)s->unit.bytes) {
        fail(r, "read", got < 0 ? opends_op_status_error((opends_op_error_t)-got) : "short");
        return;
    }
    atomic_fetch_add_explicit(&r->bytes, (u64)got, memory_order_relaxed);
    if (r->is_checked &&
        !bench_bytes_right(s->memory, s->unit.file, s->unit.offset, s->unit.bytes)) {
        fail(r, "verification", "wrong bytes");
    }
}

static bool slot_open(struct worker *w, struct slot *s, int flags)
{
    char path[BENCH_PATH_BYTES + 64];
    bench_file_path(w->run->leg->data, s->unit.file, path, sizeof(path));
    s->start_s = bench_now_s();
    s->fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (s->fd < 0) {
        fail(w->run, path, strerror(errno));
        return false;
    }
    if (w->run->leg->way != BENCH_LIBRARY) {
        return true;
    }
    if (opends_handle_register(&s->handle, s->fd).err != OPENDS_SUCCESS) {
        fail(w->run, "register", opends_last_error());
        close(s->fd);
        return false;
    }
    return true;
}

static void slot_close(struct worker *w, struct slot *s)
{
    if (w->run->leg->way == BENCH_LIBRARY) {
        opends_handle_deregister(s->handle);
    }
    close(s->fd);
}

// The library is handed O_DIRECT descriptors, as its ancestors demand.
static int open_flags(const struct bench_leg *leg)
{
    bool is_buffered =
        leg->way == BENCH_PREAD || (leg->way == BENCH_LIBRARY && strcmp(leg->backend, "ref") == 0);
    return is_buffered ? 0 : O_DIRECT;
}

static i64 read_plain(struct slot *s, bool is_direct)
{
    u64 done = 0;
    u64 want = is_direct ? ALIGN_UP(s->unit.bytes, (u64)4096) : s->unit.bytes;
    while (done < s->unit.bytes) {
        ssize_t n = pread(s->fd, s->memory + done, want - done, (off_t)(s->unit.offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -(i64)OPENDS_IO_ERROR : (i64)done;
        }
        done += (u64)n;
    }
    return (i64)MIN(done, s->unit.bytes);
}

static void work_sync(struct worker *w)
{
    struct slot *s = &w->slots[0];
    const struct bench_leg *leg = w->run->leg;
    while (unit_next(w->run, &s->unit)) {
        if (!slot_open(w, s, open_flags(leg))) {
            return;
        }
        i64 got = leg->way == BENCH_LIBRARY
                      ? opends_read(s->handle, s->memory, s->unit.bytes, (off_t)s->unit.offset, 0)
                      : read_plain(s, leg->way == BENCH_ODIRECT);
        slot_close(w, s);
        unit_done(w, s, got);
    }
}

// Fills free slots and submits them together. Returns how many were started.
static u32 batch_fill(struct worker *w, opends_batch_handle_t batch, opends_io_params_t *params)
{
    u32 count = 0;
    for (u32 i = 0; i < w->run->leg->depth; i++) {
        struct slot *s = &w->slots[i];
        if (s->is_busy) {
            continue;
        }
        if (!unit_next(w->run, &s->unit) || !slot_open(w, s, open_flags(w->run->leg))) {
            break;
        }
        s->is_busy = true;
        memset(&params[count], 0, sizeof(*params));
        params[count].mode = OPENDS_BATCH;
        params[count].u.batch.dev_ptr_base = s->memory;
        params[count].u.batch.file_offset = (off_t)s->unit.offset;
        params[count].u.batch.size = s->unit.bytes;
        params[count].fh = s->handle;
        params[count].opcode = OPENDS_READ;
        params[count].cookie = s;
        count++;
    }
    if (count > 0 && opends_batch_io_submit(batch, count, params, 0).err != OPENDS_SUCCESS) {
        fail(w->run, "submit", opends_last_error());
        return 0;
    }
    return count;
}

// Keeps `depth` files in flight: what completes is closed, and new ones join in the next submit.
static void work_batch(struct worker *w)
{
    u32 depth = w->run->leg->depth;
    opends_batch_handle_t batch;
    opends_io_params_t *params = calloc(depth, sizeof(*params));
    opends_io_events_t *events = calloc(depth, sizeof(*events));
    if (params == NULL || events == NULL ||
        opends_batch_io_setup(&batch, depth).err != OPENDS_SUCCESS) {
        fail(w->run, "batch", "cannot be set up");
        free(params);
        free(events);
        return;
    }
    u32 running = batch_fill(w, batch, params);
    while (running > 0) {
        unsigned nr = depth;
        u32 least = MAX(running / 4, 1u);
        if (opends_batch_io_get_status(batch, least, &nr, events, NULL).err != OPENDS_SUCCESS) {
            fail(w->run, "status", opends_last_error());
            break;
        }
        for (unsigned i = 0; i < nr; i++) {
            struct slot *s = events[i].cookie;
            slot_close(w, s);
            unit_done(w, s, (i64)(ssize_t)events[i].ret);
            s->is_busy = false;
        }
        running = running - nr + batch_fill(w, batch, params);
    }
    opends_batch_io_destroy(batch);
    free(params);
    free(events);
}

static void async_finish(struct worker *w, struct slot *s)
{
    if (s->is_busy) {
        (void)opends_stream_synchronize(s->stream);
        slot_close(w, s);
        unit_done(w, s, s->got);
        s->is_busy = false;
    }
}

// A stream a slot; the slots take turns.
static void work_async(struct worker *w)
{
    u32 depth = w->run->leg->depth;
    for (u32 i = 0; i < depth; i++) {
        if (opends_stream_create(&w->slots[i].stream).err != OPENDS_SUCCESS) {
            fail(w->run, "stream", opends_last_error());
            depth = i;
        }
    }
    for (u32 i = 0; depth > 0; i = (i + 1) % depth) {
        struct slot *s = &w->slots[i];
        async_finish(w, s);
        if (!unit_next(w->run, &s->unit) || !slot_open(w, s, open_flags(w->run->leg))) {
            break;
        }
        s->is_busy = true;
        s->size = s->unit.bytes;
        s->offset = (off_t)s->unit.offset;
        s->zero = 0;
        if (opends_read_async(s->handle, s->memory, &s->size, &s->offset, &s->zero, &s->got,
                              s->stream)
                .err != OPENDS_SUCCESS) {
            fail(w->run, "read_async", opends_last_error());
            s->is_busy = false;
            break;
        }
    }
    for (u32 i = 0; i < depth; i++) {
        async_finish(w, &w->slots[i]);
        (void)opends_stream_destroy(w->slots[i].stream);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    const struct bench_leg *leg = w->run->leg;
    if (leg->way != BENCH_LIBRARY || leg->mode == BENCH_SYNC) {
        work_sync(w);
    } else if (leg->mode == BENCH_BATCH) {
        work_batch(w);
    } else {
        work_async(w);
    }
    return NULL;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int compare_float(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;
    return (x > y) - (x < y);
}

static void percentiles(struct worker *workers, u32 count, struct bench_pass *pass)
{
    u64 total = 0;
    for (u32 i = 0; i < count; i++) {
        total += workers[i].latency_count;
    }
    float *all = malloc((total + 1) * sizeof(*all));
    u64 n = 0;
    for (u32 i = 0; i < count && all != NULL; i++) {
        memcpy(all + n, workers[i].latencies_us, workers[i].latency_count * sizeof(*all));
        n += workers[i].latency_count;
    }
    pass->ios = total;
    if (n > 0) {
        qsort(all, n, sizeof(*all), compare_float);
        pass->p50_us = all[n / 2];
        pass->p99_us = all[n * 99 / 100];
        pass->p999_us = all[n * 999 / 1000];
    }
    free(all);
}

// Memory and slots of the workers; registered with the library where it is used.
static bool workers_make(struct run *r, struct worker *workers, u64 units)
{
    const struct bench_leg *leg = r->leg;
    bool is_library = leg->way == BENCH_LIBRARY;
    u32 depth = is_library && leg->mode != BENCH_SYNC ? leg->depth : 1;
    for (u32 i = 0; i < leg->threads; i++) {
        struct worker *w = &workers[i];
        w->run = r;
        w->latency_capacity = units;
        w->latencies_us = malloc(units * sizeof(float));
        w->slots = calloc(MAX(depth, 1u), sizeof(*w->slots));
        w->memory = is_library ? opends_alloc(depth * r->unit_bytes)
                               : aligned_alloc(4096, depth * r->unit_bytes);
        if (w->latencies_us == NULL || w->slots == NULL || w->memory == NULL) {
            fail(r, "memory", "out of it");
            return false;
        }
        for (u32 s = 0; s < depth; s++) {
            w->slots[s].memory = w->memory + s * r->unit_bytes;
        }
        memset(w->memory, 0, depth * r->unit_bytes); // no page faults in the timed part
    }
    return true;
}

static void workers_free(const struct bench_leg *leg, struct worker *workers)
{
    for (u32 i = 0; i < leg->threads; i++) {
        if (leg->way == BENCH_LIBRARY) {
            opends_free(workers[i].memory);
        } else {
            free(workers[i].memory);
        }
        free(workers[i].slots);
        free(workers[i].latencies_us);
    }
}

static void run_pass(struct run *r, struct bench_pass *pass, bool *is_warm)
{
    const struct bench_leg *leg = r->leg;
    struct worker *workers = calloc(leg->threads, sizeof(*workers));
    u64 units = leg->data->count * r->units_per_file;
    if (workers != NULL && workers_make(r, workers, units)) {
        if (!r->is_checked && !bench_drop_caches(leg->is_cold_all)) {
            *is_warm = true;
        }
        double cpu = cpu_s();
        double start = bench_now_s();
        u32 started = 0;
        while (started < leg->threads && pthread_create(&workers[started].thread, NULL, worker_main,
                                                        &workers[started]) == 0) {
            started++;
        }
        for (u32 i = 0; i < started; i++) {
            pthread_join(workers[i].thread, NULL);
        }
        pass->seconds = bench_now_s() - start;
        pass->cpu_seconds = cpu_s() - cpu;
        pass->bytes = atomic_load(&r->bytes);
        percentiles(workers, started, pass);
    }
    if (workers != NULL) {
        workers_free(leg, workers);
    }
    free(workers);
}

void bench_leg_run(const struct bench_leg *leg, struct bench_result *result)
{
    memset(result, 0, sizeof(*result));
    bool is_library = leg->way == BENCH_LIBRARY;
    if (is_library) {
        setenv("OPENDS_BACKEND", leg->backend, 1);
        if (opends_driver_open().err != OPENDS_SUCCESS) {
            snprintf(result->error, sizeof(result->error), "%s", opends_last_error());
            return;
        }
    }
    for (u32 pass = 0; pass <= leg->repeats && result->error[0] == 0; pass++) {
        if (leg->way == BENCH_FIO) {
            if (pass > 0) {
                bench_fio_pass(leg, result);
            }
            continue;
        }
        struct run r = {.leg = leg,
                        .is_checked = pass == 0,
                        .unit_bytes = ALIGN_UP(MIN(leg->data->size_max, BENCH_UNIT_BYTES), 4096ul),
                        .error_lock = PTHREAD_MUTEX_INITIALIZER};
        r.units_per_file = (leg->data->size_max + BENCH_UNIT_BYTES - 1) / BENCH_UNIT_BYTES;
        struct bench_pass scratch;
        struct bench_pass *into = pass == 0 ? &scratch : &result->passes[result->count];
        memset(into, 0, sizeof(*into));
        run_pass(&r, into, &result->is_warm);
        if (atomic_load(&r.is_failed)) {
            snprintf(result->error, sizeof(result->error), "%s", r.error);
        } else if (pass == 0) {
            result->is_verified = true;
            result->bytes_verified = into->bytes;
        } else {
            result->count++;
        }
    }
    if (is_library) {
        (void)opends_driver_close();
    }
}
