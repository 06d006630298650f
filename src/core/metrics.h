// SPDX-License-Identifier: Apache-2.0
// Metrics: facts in a table (core/metrics.def), one array a core, summed when somebody asks. Adding
// is one plain add on the core's own cache line.
//   METRIC(name, kind, help)  kind: COUNTER, GAUGE (sum over cores), HISTOGRAM (ns, log2 buckets)
#pragma once

#include "core/reactor.h"

#define METRIC(name, kind, help) METRIC_##name,
enum metric {
#include "core/metrics.def"
    METRIC_COUNT
};
#undef METRIC

#define METRIC_BUCKETS 40 // bucket i counts durations < 2^i * 1.024 us; the last has no bound

// Outside of a reactor the first three do nothing.
void metric_add(enum metric m, i64 n);     // counters and gauges
void metric_set(enum metric m, i64 value); // gauges: this core's share
void metric_observe_ns(enum metric m, u64 duration_ns);
// The sum over all cores; racy reads of single words are fine here.
i64 metric_sum(struct runtime *rt, enum metric m);
// Prometheus text of all metrics ("leat_" prefix, lower case) through `write`; may be called on any
// core.
typedef void (*metrics_write_fn)(void *arg, const char *text, size_t len);
void metrics_prometheus(struct runtime *rt, metrics_write_fn write, void *arg);
