// SPDX-License-Identifier: Apache-2.0
// The baseline that is a program of its own: fio with its io_uring engine, and its JSON report.
#include <stdio.h>

#include "cli/bench_ds.h"

// A number at a path of names and array positions ("jobs", "0", ...), or 0.
static double fio_number(const json_t *root, const char *const *path)
{
    const json_t *at = root;
    for (; *path != NULL && at != NULL; path++) {
        at = json_is_array(at) ? json_array_get(at, 0) : json_object_get(at, *path);
    }
    return json_number_value(at);
}

#define FIO(...) fio_number(root, (const char *const[]){"jobs", "0", __VA_ARGS__, NULL})

// Fills a pass from fio's report; false when it has read nothing. fio times each request from its
// completion's side (clat), a request being 1 MiB.
static bool fio_pass(const json_t *root, struct bench_pass *pass)
{
    double run_s = FIO("read", "runtime") / 1000;
    *pass = (struct bench_pass){
        .seconds = run_s,
        .cpu_seconds = (FIO("usr_cpu") + FIO("sys_cpu")) / 100 * FIO("job_runtime") / 1000,
        .bytes = (u64)FIO("read", "io_bytes"),
        .ios = (u64)FIO("read", "total_ios"),
        .p50_us = FIO("read", "clat_ns", "percentile", "50.000000") / 1000,
        .p99_us = FIO("read", "clat_ns", "percentile", "99.000000") / 1000,
        .p999_us = FIO("read", "clat_ns", "percentile", "99.900000") / 1000,
    };
    return run_s > 0 && pass->bytes > 0 && FIO("error") == 0;
}

// fio's io_uring engine over the first file, for bandwidth to compare with.
void bench_fio_pass(const struct bench_leg *leg, struct bench_result *result)
{
    struct bench_pass *pass = &result->passes[result->count++];
    char command[1024];
    char path[BENCH_PATH_BYTES + 64];
    bench_file_path(leg->data, 0, path, sizeof(path));
    u64 bytes = bench_file_size(leg->data, 0);
    snprintf(command, sizeof(command),
             "fio --name=leg --filename=%s --rw=read --bs=1M --direct=1 --ioengine=io_uring "
             "--iodepth=%u --size=%llu --readonly --percentile_list=50:99:99.9 "
             "--output-format=json 2>/dev/null",
             path, leg->depth, (unsigned long long)(bytes / MIB * MIB));
    result->is_warm = !bench_drop_caches(leg->is_cold_all) || result->is_warm;
    FILE *f = popen(command, "re");
    json_error_t problem;
    // fio may print a line of its own before the report.
    int c = f == NULL ? EOF : fgetc(f);
    while (c != EOF && c != '{') {
        c = fgetc(f);
    }
    json_t *root = NULL;
    if (c == '{') {
        ungetc(c, f);
        root = json_loadf(f, JSON_DISABLE_EOF_CHECK, &problem);
    }
    int status = f == NULL ? -1 : pclose(f);
    if (root == NULL || status != 0 || !fio_pass(root, pass)) {
        snprintf(result->error, sizeof(result->error), "fio did not run (is it installed?)");
    }
    json_decref(root);
}
