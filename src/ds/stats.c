// SPDX-License-Identifier: Apache-2.0
// Counters and latency histograms per device, backend and operation. Threads add to one of a few
// shards without a lock; readers sum them up. Devices beyond the limit are counted together.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ds/driver.h"

#define STAT_SHARDS 8u

struct stat_cell {
    _Atomic u64 calls;
    _Atomic u64 errors;
    _Atomic u64 bytes;
    _Atomic u64 latency_ns_sum;
    _Atomic u64 buckets[OPENDS_STAT_BUCKETS];
};

struct ds_stat_device {
    u64 device;
    struct stat_cell cells[STAT_SHARDS][DS_BACKEND_COUNT][2];
};

static struct ds_stat_table *table(void)
{
    return &ds_driver()->stats;
}

void ds_stats_init(void)
{
    // Devices once seen stay: handles of an earlier opening may still point at them.
    if (atomic_load(&table()->count) == 0) {
        pthread_mutex_init(&table()->lock, NULL);
    }
    (void)opends_stats_reset();
}

struct ds_stat_device *ds_stats_device(u64 device)
{
    struct ds_stat_table *t = table();
    u32 count = atomic_load_explicit(&t->count, memory_order_acquire);
    for (u32 i = 0; i < count; i++) {
        struct ds_stat_device *d = atomic_load(&t->devices[i]);
        if (d->device == device) {
            return d;
        }
    }
    pthread_mutex_lock(&t->lock);
    struct ds_stat_device *found = NULL;
    count = atomic_load(&t->count);
    for (u32 i = 0; i < count && found == NULL; i++) {
        struct ds_stat_device *d = atomic_load(&t->devices[i]);
        if (d->device == device || i == DS_DEVICES_MAX - 1) {
            found = d;
        }
    }
    if (found == NULL) {
        found = calloc(1, sizeof(*found));
        if (found != NULL) {
            found->device = count == DS_DEVICES_MAX - 1 ? 0 : device;
            atomic_store(&t->devices[count], found);
            atomic_store_explicit(&t->count, count + 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

// Four buckets an octave from 128 ns.
static u32 bucket_of(u64 ns)
{
    if (ns < 128) {
        return 0;
    }
    u32 octave = 63 - (u32)__builtin_clzll(ns);
    u32 index = (octave - 7) * 4 + (u32)(ns >> (octave - 2) & 3);
    return MIN(index, (u32)OPENDS_STAT_BUCKETS - 1);
}

uint64_t opends_stat_bucket_ns(unsigned bucket)
{
    u64 base = (u64)128 << (bucket / 4);
    return base + base / 4 * (bucket % 4 + 1);
}

static u32 shard_of_thread(void)
{
    // The stack's address tells threads apart well enough, and costs nothing.
    u8 here;
    return (u32)((uintptr_t)&here >> 20) % STAT_SHARDS;
}

void ds_stats_record(struct ds_stat_device *d, const struct ds_op *op, u64 latency_ns)
{
    if (d == NULL) {
        return;
    }
    struct stat_cell *c = &d->cells[shard_of_thread()][op->backend][op->opcode & 1];
    atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed);
    if (op->result >= 0) {
        atomic_fetch_add_explicit(&c->bytes, (u64)op->result, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&c->errors, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&c->latency_ns_sum, latency_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->buckets[bucket_of(latency_ns)], 1, memory_order_relaxed);
}

// Sums one device, backend and operation over the shards; false when nothing was counted.
static bool collect(const struct ds_stat_device *d, u32 backend, u32 opcode, opends_stat_t *out)
{
    memset(out, 0, sizeof(*out));
    for (u32 s = 0; s < STAT_SHARDS; s++) {
        const struct stat_cell *c = &d->cells[s][backend][opcode];
        out->calls += atomic_load_explicit(&c->calls, memory_order_relaxed);
        out->errors += atomic_load_explicit(&c->errors, memory_order_relaxed);
        out->bytes += atomic_load_explicit(&c->bytes, memory_order_relaxed);
        out->latency_ns_sum += atomic_load_explicit(&c->latency_ns_sum, memory_order_relaxed);
        for (u32 b = 0; b < OPENDS_STAT_BUCKETS; b++) {
            out->latency_buckets[b] += atomic_load_explicit(&c->buckets[b], memory_order_relaxed);
        }
    }
    snprintf(out->backend, sizeof(out->backend), "%s",
             ds_backend((enum ds_backend_id)backend)->name);
    out->opcode = opcode == 0 ? OPENDS_READ : OPENDS_WRITE;
    out->device_major = (unsigned)(d->device >> 8 & 0xfff);
    out->device_minor = (unsigned)((d->device & 0xff) | (d->device >> 12 & 0xfff00));
    return out->calls > 0;
}

opends_error_t opends_stats_get(opends_stat_t *stats, unsigned *nr)
{
    if (nr == NULL || (stats == NULL && *nr != 0)) {
        return ds_fail(OPENDS_INVALID_VALUE, 0, "nr or stats is NULL");
    }
    u32 found = 0;
    u32 count = atomic_load_explicit(&table()->count, memory_order_acquire);
    for (u32 i = 0; i < count; i++) {
        for (u32 b = 0; b < DS_BACKEND_COUNT; b++) {
            for (u32 op = 0; op < 2; op++) {
                opends_stat_t s;
                if (!collect(atomic_load(&table()->devices[i]), b, op, &s)) {
                    continue;
                }
                if (found < *nr) {
                    stats[found] = s;
                }
                found++;
            }
        }
    }
    *nr = found;
    return ds_ok();
}

opends_error_t opends_stats_reset(void)
{
    u32 count = atomic_load_explicit(&table()->count, memory_order_acquire);
    for (u32 i = 0; i < count; i++) {
        struct ds_stat_device *d = atomic_load(&table()->devices[i]);
        for (u32 s = 0; s < STAT_SHARDS * DS_BACKEND_COUNT * 2; s++) {
            struct stat_cell *c = &((struct stat_cell *)d->cells)[s];
            atomic_store(&c->calls, 0);
            atomic_store(&c->errors, 0);
            atomic_store(&c->bytes, 0);
            atomic_store(&c->latency_ns_sum, 0);
            for (u32 b = 0; b < OPENDS_STAT_BUCKETS; b++) {
                atomic_store_explicit(&c->buckets[b], 0, memory_order_relaxed);
            }
        }
    }
    return ds_ok();
}

// Text that counts what it would need, like snprintf over several calls.
struct text_out {
    char *text;
    size_t size;
    size_t used;
};

static void out_add(struct text_out *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void out_add(struct text_out *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t room = o->used < o->size ? o->size - o->used : 0;
    int n = vsnprintf(room > 0 ? o->text + o->used : NULL, room, fmt, args);
    va_end(args);
    o->used += n > 0 ? (size_t)n : 0;
}

static void add_histogram(struct text_out *o, const char *labels, const opends_stat_t *s)
{
    u64 below = 0;
    for (u32 b = 0; b < OPENDS_STAT_BUCKETS; b++) {
        below += s->latency_buckets[b];
        if (b % 4 == 3) { // an octave a line keeps the text readable
            out_add(o, "opends_io_latency_seconds_bucket{%s,le=\"%.9g\"} %llu\n", labels,
                    (double)opends_stat_bucket_ns(b) / 1e9, (unsigned long long)below);
        }
    }
    out_add(o, "opends_io_latency_seconds_bucket{%s,le=\"+Inf\"} %llu\n", labels,
            (unsigned long long)s->calls);
    out_add(o, "opends_io_latency_seconds_sum{%s} %.9f\n", labels, (double)s->latency_ns_sum / 1e9);
    out_add(o, "opends_io_latency_seconds_count{%s} %llu\n", labels, (unsigned long long)s->calls);
}

// One metric family: kind 0 calls, 1 errors, 2 bytes, 3 the histogram.
static void add_family(struct text_out *o, int kind)
{
    static const char *const heads[] = {
        "# HELP opends_io_total Finished operations.\n# TYPE opends_io_total counter\n",
        "# HELP opends_io_errors_total Failed operations.\n# TYPE opends_io_errors_total counter\n",
        "# HELP opends_io_bytes_total Bytes moved.\n# TYPE opends_io_bytes_total counter\n",
        ("# HELP opends_io_latency_seconds From submission to completion.\n"
         "# TYPE opends_io_latency_seconds histogram\n")};
    out_add(o, "%s", heads[kind]);
    u32 count = atomic_load_explicit(&table()->count, memory_order_acquire);
    for (u32 i = 0; i < count * DS_BACKEND_COUNT * 2; i++) {
        opends_stat_t s;
        struct ds_stat_device *d = atomic_load(&table()->devices[i / (DS_BACKEND_COUNT * 2)]);
        if (!collect(d, i / 2 % DS_BACKEND_COUNT, i % 2, &s)) {
            continue;
        }
        char labels[128];
        snprintf(labels, sizeof(labels), "backend=\"%s\",operation=\"%s\",device=\"%u:%u\"",
                 s.backend, s.opcode == OPENDS_READ ? "read" : "write", s.device_major,
                 s.device_minor);
        if (kind == 3) {
            add_histogram(o, labels, &s);
            continue;
        }
        static const char *const names[] = {"opends_io_total", "opends_io_errors_total",
                                            "opends_io_bytes_total"};
        u64 value = kind == 0 ? s.calls : kind == 1 ? s.errors : s.bytes;
        out_add(o, "%s{%s} %llu\n", names[kind], labels, (unsigned long long)value);
    }
}

ssize_t opends_stats_prometheus(char *text, size_t size)
{
    struct text_out o = {.text = text, .size = text == NULL ? 0 : size};
    if (o.size > 0) {
        text[0] = 0;
    }
    for (int kind = 0; kind < 4; kind++) {
        add_family(&o, kind);
    }
    out_add(&o,
            "# HELP opends_handles Registered file handles.\n# TYPE opends_handles gauge\n"
            "opends_handles %ld\n",
            opends_use_count());
    return (ssize_t)o.used;
}
