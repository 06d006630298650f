// SPDX-License-Identifier: Apache-2.0
// Metrics. A core's cells lie next to each other in the order of the table; only the core writes
// them, with relaxed stores, and whoever sums them may see a core a moment late. Never more than
// one word is read at once, so there is nothing to tear.
#include "core/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum metric_kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

#define CELLS_COUNTER   1
#define CELLS_GAUGE     1
#define CELLS_HISTOGRAM METRIC_HISTOGRAM_CELLS

// Index of each metric's first cell.
#define METRIC(name, kind, help) CELL_##name, CELL_LAST_##name = CELL_##name + CELLS_##kind - 1,
enum metric_cell {
#include "core/metrics.def"
    CELL_COUNT
};
#undef METRIC

struct metric_info {
    const char *name;
    const char *help;
    enum metric_kind kind;
    u32 cell;
};

#define METRIC(name, kind, help) {#name, help, KIND_##kind, CELL_##name},
static const struct metric_info metric_infos[METRIC_COUNT] = {
#include "core/metrics.def"
};
#undef METRIC

u64 *metrics_cells_create(void)
{
    size_t bytes = ALIGN_UP(CELL_COUNT * sizeof(u64), (size_t)CACHE_LINE);
    u64 *cells = aligned_alloc(CACHE_LINE, bytes);
    for (size_t i = 0; cells != NULL && i < bytes / sizeof(u64); i++) {
        cells[i] = 0;
    }
    return cells;
}

static void cell_add(u64 *cell, u64 n)
{
    __atomic_store_n(cell, __atomic_load_n(cell, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

void metric_add(enum metric m, i64 n)
{
    struct reactor *r = reactor_tls;
    if (r != NULL) {
        ASSERT(metric_infos[m].kind != KIND_HISTOGRAM);
        cell_add(&r->cells[metric_infos[m].cell], (u64)n);
    }
}

void metric_set(enum metric m, i64 value)
{
    struct reactor *r = reactor_tls;
    if (r != NULL) {
        ASSERT(metric_infos[m].kind == KIND_GAUGE);
        __atomic_store_n(&r->cells[metric_infos[m].cell], (u64)value, __ATOMIC_RELAXED);
    }
}

void metric_observe_ns(enum metric m, u64 duration_ns)
{
    struct reactor *r = reactor_tls;
    if (r == NULL) {
        return;
    }
    ASSERT(metric_infos[m].kind == KIND_HISTOGRAM);
    u32 bits = 64 - (u32)__builtin_clzll(duration_ns | 1);
    u32 bucket = bits > 10 ? MIN(bits - 10, (u32)METRIC_BUCKETS - 1) : 0;
    u64 *cells = &r->cells[metric_infos[m].cell];
    cell_add(&cells[bucket], 1);
    cell_add(&cells[METRIC_BUCKETS], duration_ns);
}

static u64 cell_sum(struct runtime *rt, u32 cell)
{
    u64 sum = 0;
    for (u32 i = 0; i < rt->cores; i++) {
        sum += __atomic_load_n(&rt->reactors[i]->cells[cell], __ATOMIC_RELAXED);
    }
    return sum;
}

i64 metric_sum(struct runtime *rt, enum metric m)
{
    const struct metric_info *info = &metric_infos[m];
    if (info->kind != KIND_HISTOGRAM) {
        return (i64)cell_sum(rt, info->cell);
    }
    u64 count = 0;
    for (u32 i = 0; i < METRIC_BUCKETS; i++) {
        count += cell_sum(rt, info->cell + i);
    }
    return (i64)count;
}

struct metrics_out {
    struct runtime *rt;
    metrics_write_fn write;
    void *arg;
};

static void PRINTF_LIKE(2, 3) out_line(struct metrics_out *out, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    ASSERT(n > 0 && (size_t)n < sizeof(line));
    out->write(out->arg, line, (size_t)n);
}

// As Prometheus names things: counters end in _total, and times are in seconds.
static void metric_name_write(const struct metric_info *info, char *out, size_t out_bytes)
{
    size_t n = strlen(info->name);
    const char *suffix = "";
    if (info->kind == KIND_COUNTER) {
        suffix = "_total";
    } else if (info->kind == KIND_HISTOGRAM) {
        ASSERT(n > 3 && strcmp(info->name + n - 3, "_NS") == 0);
        n -= 3;
        suffix = "_seconds";
    }
    int written = snprintf(out, out_bytes, "%.*s%s", (int)n, info->name, suffix);
    ASSERT(written > 0 && (size_t)written < out_bytes);
    for (char *c = out; *c != '\0'; c++) {
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    }
}

// Buckets count up, as Prometheus wants them, and stop at the last that holds anything.
static void write_histogram(struct metrics_out *out, const struct metric_info *info,
                            const char *name)
{
    u64 counts[METRIC_BUCKETS];
    u32 last = 0;
    u64 total = 0;
    for (u32 i = 0; i < METRIC_BUCKETS; i++) {
        counts[i] = cell_sum(out->rt, info->cell + i);
        last = counts[i] != 0 ? i : last;
    }
    for (u32 i = 0; i < METRIC_BUCKETS; i++) {
        total += counts[i];
        if (i <= last && i < METRIC_BUCKETS - 1) {
            out_line(out, "leat_%s_bucket{le=\"%.9f\"} %llu\n", name,
                     (double)(1024ULL << i) / (double)NS_PER_S, (unsigned long long)total);
        }
    }
    out_line(out, "leat_%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)total);
    out_line(out, "leat_%s_sum %.9f\n", name,
             (double)cell_sum(out->rt, info->cell + METRIC_BUCKETS) / (double)NS_PER_S);
    out_line(out, "leat_%s_count %llu\n", name, (unsigned long long)total);
}

void metrics_prometheus(struct runtime *rt, metrics_write_fn write, void *arg)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    struct metrics_out out = {.rt = rt, .write = write, .arg = arg};
    for (u32 m = 0; m < METRIC_COUNT; m++) {
        const struct metric_info *info = &metric_infos[m];
        char name[64];
        metric_name_write(info, name, sizeof(name));
        out_line(&out, "# HELP leat_%s %s\n# TYPE leat_%s %s\n", name, info->help, name,
                 kinds[info->kind]);
        if (info->kind == KIND_HISTOGRAM) {
            write_histogram(&out, info, name);
        } else {
            out_line(&out, "leat_%s %lld\n", name, (long long)metric_sum(rt, (enum metric)m));
        }
    }
}
