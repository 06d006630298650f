// SPDX-License-Identifier: Apache-2.0
// Metrics: sums over cores, histogram buckets at their borders, the Prometheus text.
#include "harness.h"

#include "core/metrics.h"

#include <stdio.h>

struct text {
    char data[65536];
    size_t len;
};

static void collect(void *arg, const char *data, size_t len)
{
    struct text *t = arg;
    assert_true(t->len + len < sizeof(t->data));
    memcpy(t->data + t->len, data, len);
    t->len += len;
}

static void count_here(void *arg)
{
    (void)arg;
    metric_add(METRIC_S3_REQUESTS, 10 + core_id());
    metric_set(METRIC_STORE_KEYS, 5);
    metric_add(METRIC_STORE_KEYS, -2);
}

static void metrics_body(void *arg)
{
    struct text *t = arg;
    struct runtime *rt = reactor_runtime(reactor_current());
    assert_int_equal(core_call_all(count_here, NULL), OK);
    assert_int_equal(metric_sum(rt, METRIC_S3_REQUESTS), 21);
    assert_int_equal(metric_sum(rt, METRIC_STORE_KEYS), 6);
    // Bucket i holds durations below 2^i * 1,024 ns.
    const u64 durations[] = {0, 1023, 1024, 2047, 2048, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(durations); i++) {
        metric_observe_ns(METRIC_S3_GET_NS, durations[i]);
    }
    assert_int_equal(metric_sum(rt, METRIC_S3_GET_NS), 6);
    metrics_prometheus(rt, collect, t);
}

static void test_metrics(void **state)
{
    (void)state;
    struct text *t = calloc(1, sizeof(*t));
    metric_add(METRIC_S3_REQUESTS, 1); // outside of a reactor: nothing
    run_with((struct runtime_options){.cores = 2}, metrics_body, t);
    static const char *const lines[] = {
        "# HELP leat_s3_requests_total S3 requests\n# TYPE leat_s3_requests_total counter\n"
        "leat_s3_requests_total 21\n",
        "# TYPE leat_store_keys gauge\nleat_store_keys 6\n",
        "# TYPE leat_s3_get_seconds histogram\nleat_s3_get_seconds_bucket{le=\"0.000001024\"} 2\n"
        "leat_s3_get_seconds_bucket{le=\"0.000002048\"} "
        "4\nleat_s3_get_seconds_bucket{le=\"0.000004096\"} 5\n",
        "leat_s3_get_seconds_bucket{le=\"+Inf\"} 6\n",
        "leat_s3_get_seconds_count 6\n",
        // Nothing observed: one bucket, no noise.
        "# TYPE leat_s3_list_seconds histogram\nleat_s3_list_seconds_bucket{le=\"0.000001024\"} 0\n"
        "leat_s3_list_seconds_bucket{le=\"+Inf\"} 0\nleat_s3_list_seconds_sum 0.000000000\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        if (strstr(t->data, lines[i]) == NULL) {
            print_message("missing: %s\nin: %s", lines[i], t->data);
            fail();
        }
    }
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_metrics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
