// SPDX-License-Identifier: Apache-2.0
// `leat bench ds`: runs legs over datasets, threads and depths, with plain pread, O_DIRECT pread
// and fio beside them, and appends one JSON record a leg to OUT/history.jsonl. `leat bench ds
// report OUT` writes report.md, sweep.csv and the plots. See docs/performance-ds.md for how to read
// them.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/bench_ds.h"
#include "cli/ds_cmd.h"

#define LIST_MAX 16

struct list_of_text {
    const char *items[LIST_MAX];
    u32 count;
};

struct options {
    char folder[BENCH_PATH_BYTES - 64];
    char out[BENCH_PATH_BYTES - 64];
    double scale;
    u32 repeats;
    bool is_cold_all;
    bool with_baselines;
    bool with_overhead;
    const char *commit;
    struct list_of_text datasets, backends, modes, threads, depths;
};

static int usage(void)
{
    fprintf(
        stderr,
        "usage: bench ds [--folder F] [--out F] [--datasets a,b] [--scale 0..1] [--backends a,b]\n"
        "                [--modes sync,batch,async] [--threads 1,2] [--depths 8,32] [--repeat N]\n"
        "                [--cold pages|all] [--baselines yes|no] [--overhead yes|no] [--commit "
        "ID]\n"
        "       bench ds report OUT\n"
        "datasets: filesize8gib tiktokish imagenetish lmcacheish\n");
    return 2;
}

static bool split(const char *text, struct list_of_text *out)
{
    char *copy = strdup(text); // lives as long as the process: the options point into it
    out->count = 0;
    for (char *save = NULL, *t = copy == NULL ? NULL : strtok_r(copy, ",", &save); t != NULL;
         t = strtok_r(NULL, ",", &save)) {
        if (out->count == LIST_MAX) {
            return false;
        }
        out->items[out->count++] = t;
    }
    return out->count > 0;
}

static bool number(const char *text, u64 min, u64 max, u32 *out)
{
    u64 v;
    if (!u64_parse(bytes_from_string(text), max, &v) || v < min) {
        return false;
    }
    *out = (u32)v;
    return true;
}

static bool copy_path(const char *text, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "%s", text) < size;
}

static bool yes_no(const char *text, bool *out)
{
    *out = strcmp(text, "yes") == 0;
    return *out || strcmp(text, "no") == 0;
}

static bool option_set(struct options *o, const char *name, const char *value)
{
    char *end;
    if (strcmp(name, "--folder") == 0) {
        return copy_path(value, o->folder, sizeof(o->folder));
    }
    if (strcmp(name, "--out") == 0) {
        return copy_path(value, o->out, sizeof(o->out));
    }
    if (strcmp(name, "--scale") == 0) {
        o->scale = strtod(value, &end);
        return *end == 0 && o->scale > 0 && o->scale <= 1;
    }
    if (strcmp(name, "--repeat") == 0) {
        return number(value, 1, BENCH_REPEATS_MAX, &o->repeats);
    }
    if (strcmp(name, "--cold") == 0) {
        o->is_cold_all = strcmp(value, "all") == 0;
        return o->is_cold_all || strcmp(value, "pages") == 0;
    }
    if (strcmp(name, "--baselines") == 0) {
        return yes_no(value, &o->with_baselines);
    }
    if (strcmp(name, "--overhead") == 0) {
        return yes_no(value, &o->with_overhead);
    }
    if (strcmp(name, "--commit") == 0) {
        o->commit = value;
        return true;
    }
    const struct {
        const char *name;
        struct list_of_text *list;
    } lists[] = {{"--datasets", &o->datasets},
                 {"--backends", &o->backends},
                 {"--modes", &o->modes},
                 {"--threads", &o->threads},
                 {"--depths", &o->depths}};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        if (strcmp(name, lists[i].name) == 0) {
            return split(value, lists[i].list);
        }
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *way_name(const struct bench_leg *leg)
{
    switch (leg->way) {
    case BENCH_LIBRARY:
        return leg->backend;
    case BENCH_PREAD:
        return "pread";
    case BENCH_ODIRECT:
        return "odirect-pread";
    case BENCH_FIO:
        return "fio-io_uring";
    }
    return "?";
}

static const char *mode_name(enum bench_mode mode)
{
    switch (mode) {
    case BENCH_SYNC:
        return "sync";
    case BENCH_BATCH:
        return "batch";
    case BENCH_ASYNC:
        return "async";
    }
    return "?";
}

static json_t *environment(const struct options *o)
{
    struct utsname u;
    struct statfs fs;
    double load[3] = {0};
    char cpu[128] = "";
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        char *colon = strstr(line, "model name") == line ? strchr(line, ':') : NULL;
        if (colon != NULL && cpu[0] == 0) {
            snprintf(cpu, sizeof(cpu), "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    uname(&u);
    (void)getloadavg(load, 3);
    u64 fs_type = statfs(o->folder, &fs) == 0 ? (u64)fs.f_type : 0;
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:f, s:s}", "kernel", u.release, "cpu", cpu, "cpus",
                     (int)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                     (json_int_t)(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)), "fs_type",
                     (json_int_t)fs_type, "load_1min", load[0], "commit", o->commit);
}

static double mib_s(const struct bench_pass *p)
{
    return p->seconds > 0 ? (double)p->bytes / (double)MIB / p->seconds : 0;
}

// Medians over the passes, each of its own quantity.
static double median_of(const struct bench_result *r, double (*value)(const struct bench_pass *p))
{
    double v[BENCH_REPEATS_MAX];
    for (u32 i = 0; i < r->count; i++) {
        v[i] = value(&r->passes[i]);
    }
    qsort(v, r->count, sizeof(double), compare);
    return r->count == 0 ? 0 : v[r->count / 2];
}

static double pass_p50(const struct bench_pass *p)
{
    return p->p50_us;
}

static double pass_p99(const struct bench_pass *p)
{
    return p->p99_us;
}

static double pass_p999(const struct bench_pass *p)
{
    return p->p999_us;
}

static double pass_ios(const struct bench_pass *p)
{
    return p->seconds > 0 ? (double)p->ios / p->seconds : 0;
}

static double pass_cpu(const struct bench_pass *p)
{
    return p->bytes > 0 ? p->cpu_seconds / ((double)p->bytes / (double)GIB) : 0;
}

static json_t *result_json(const struct bench_result *r)
{
    double low = 1e300;
    double high = 0;
    json_t *passes = json_array();
    for (u32 i = 0; i < r->count; i++) {
        double v = mib_s(&r->passes[i]);
        low = MIN(low, v);
        high = MAX(high, v);
        json_array_append_new(passes, json_real(v));
    }
    double median = median_of(r, mib_s);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:I, s:o}", "mib_s",
                     median, "mib_s_min", r->count == 0 ? 0.0 : low, "mib_s_max", high, "spread",
                     median > 0 ? (high - low) / median : 0.0, "iops", median_of(r, pass_ios),
                     "p50_us", median_of(r, pass_p50), "p99_us", median_of(r, pass_p99), "p999_us",
                     median_of(r, pass_p999), "cpu_s_per_gib", median_of(r, pass_cpu), "verified",
                     (int)r->is_verified, "bytes_verified", (json_int_t)r->bytes_verified, "passes",
                     passes);
}

static bool append(const struct options *o, json_t *record)
{
    char path[BENCH_PATH_BYTES];
    char time_text[40];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(time_text, sizeof(time_text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_object_set_new(record, "schema_version", json_integer(1));
    json_object_set_new(record, "run_timestamp", json_string(time_text));
    json_object_set_new(record, "env", environment(o));
    snprintf(path, sizeof(path), "%s/history.jsonl", o->out);
    FILE *f = fopen(path, "ae");
    bool is_written = f != NULL && json_dumpf(record, f, JSON_COMPACT | JSON_SORT_KEYS) == 0 &&
                      fputc('\n', f) != EOF;
    if (f != NULL && fclose(f) != 0) {
        is_written = false;
    }
    if (!is_written) {
        fprintf(stderr, "bench ds: %s: %s\n", path, strerror(errno));
    }
    json_decref(record);
    return is_written;
}

static bool leg_record(const struct options *o, const struct bench_leg *leg)
{
    struct bench_result *r = malloc(sizeof(*r));
    if (r == NULL) {
        return false;
    }
    bench_leg_run(leg, r);
    json_t *config = json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:I, s:I, s:i, s:s}", "backend",
                               way_name(leg), "dataset", leg->data->name, "mode",
                               leg->way == BENCH_FIO ? "sync" : mode_name(leg->mode), "threads",
                               (int)leg->threads, "depth", (int)leg->depth, "scale", o->scale,
                               "files", (json_int_t)leg->data->count, "bytes",
                               (json_int_t)leg->data->bytes, "n", (int)leg->repeats, "cold",
                               r->is_warm         ? "no"
                               : leg->is_cold_all ? "all"
                                                  : "pages");
    json_t *record = json_pack("{s:o, s:o}", "config", config, "result", result_json(r));
    if (r->error[0] != 0) {
        json_object_set_new(record, "error", json_string(r->error));
    }
    printf("%-13s %-12s %-5s t=%-2u d=%-3u %8.0f MiB/s  p99 %7.0f us  %5.2f cpu s/GiB  %s%s\n",
           leg->data->name, way_name(leg), mode_name(leg->mode), leg->threads, leg->depth,
           median_of(r, mib_s), median_of(r, pass_p99), median_of(r, pass_cpu),
           r->is_verified ? "verified" : "", r->error);
    fflush(stdout);
    bool is_good = r->error[0] == 0;
    free(r);
    return append(o, record) && is_good;
}

static bool dataset_baselines(const struct options *o, struct bench_leg leg)
{
    bool is_good = true;
    leg.mode = BENCH_SYNC;
    leg.depth = 1;
    for (u32 t = 0; t < o->threads.count; t++) {
        is_good = is_good && number(o->threads.items[t], 1, 256, &leg.threads);
        leg.way = BENCH_PREAD;
        is_good = is_good && leg_record(o, &leg);
        leg.way = BENCH_ODIRECT;
        is_good = is_good && leg_record(o, &leg);
    }
    // fio reads one file: a fair comparison only where files are large.
    if (is_good && leg.data->size_min >= 64 * MIB) {
        leg.way = BENCH_FIO;
        leg.threads = 1;
        for (u32 d = 0; d < o->depths.count && is_good; d++) {
            is_good = number(o->depths.items[d], 1, 4096, &leg.depth) && leg_record(o, &leg);
        }
    }
    return is_good;
}

static bool dataset_library(const struct options *o, struct bench_leg leg, enum bench_mode mode)
{
    bool is_good = true;
    leg.way = BENCH_LIBRARY;
    leg.mode = mode;
    u32 depths = mode == BENCH_SYNC ? 1 : o->depths.count;
    for (u32 b = 0; b < o->backends.count; b++) {
        leg.backend = o->backends.items[b];
        for (u32 t = 0; t < o->threads.count; t++) {
            for (u32 d = 0; d < depths && is_good; d++) {
                leg.depth = 1;
                is_good = number(o->threads.items[t], 1, 256, &leg.threads) &&
                          (mode == BENCH_SYNC || number(o->depths.items[d], 1, 4096, &leg.depth)) &&
                          leg_record(o, &leg);
            }
        }
    }
    return is_good;
}

static bool overhead_record(const struct options *o)
{
    double library = 0;
    double bare = 0;
    double plain = 0;
    if (!bench_overhead(o->folder, &library, &bare, &plain)) {
        fprintf(stderr, "bench ds: the overhead cannot be measured\n");
        return false;
    }
    printf("overhead of a cached 4 KiB read: library %.0f ns, bare io_uring %.0f ns (%+.0f), pread "
           "%.0f ns\n",
           library, bare, library - bare, plain);
    return append(o, json_pack("{s:{s:s}, s:{s:f, s:f, s:f}}", "config", "dataset", "overhead-4k",
                               "result", "library_ns", library, "bare_io_uring_ns", bare,
                               "pread_ns", plain));
}

static bool run_all(const struct options *o)
{
    bool is_good = !o->with_overhead || overhead_record(o);
    for (u32 i = 0; i < o->datasets.count && is_good; i++) {
        struct bench_dataset d;
        if (!bench_dataset_shape(o->datasets.items[i], o->scale, o->folder, &d)) {
            fprintf(stderr, "bench ds: unknown dataset %s\n", o->datasets.items[i]);
            return false;
        }
        is_good = bench_dataset_make(&d);
        struct bench_leg leg = {.data = &d, .repeats = o->repeats, .is_cold_all = o->is_cold_all};
        if (is_good && o->with_baselines) {
            is_good = dataset_baselines(o, leg);
        }
        for (u32 m = 0; m < o->modes.count && is_good; m++) {
            const char *mode = o->modes.items[m];
            bool is_known = strcmp(mode, "sync") == 0 || strcmp(mode, "batch") == 0 ||
                            strcmp(mode, "async") == 0;
            if (!is_known) {
                fprintf(stderr, "bench ds: unknown mode %s\n", mode);
                return false;
            }
            is_good = dataset_library(o, leg,
                                      mode[0] == 's'   ? BENCH_SYNC
                                      : mode[0] == 'b' ? BENCH_BATCH
                                                       : BENCH_ASYNC);
        }
    }
    return is_good;
}

static void options_default(struct options *o)
{
    *o = (struct options){.scale = 0.01,
                          .repeats = 5,
                          .with_baselines = true,
                          .with_overhead = true,
                          .commit = "unknown"};
    (void)copy_path("bench-ds-data", o->folder, sizeof(o->folder));
    (void)copy_path("bench-ds-out", o->out, sizeof(o->out));
    (void)split("tiktokish,imagenetish,lmcacheish,filesize8gib", &o->datasets);
    (void)split("ref,uring", &o->backends);
    (void)split("sync,batch,async", &o->modes);
    (void)split("1,4", &o->threads);
    (void)split("8,32", &o->depths);
}

int cli_bench_ds_main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "report") == 0) {
        return bench_report(argv[2]);
    }
    struct options *o = malloc(sizeof(*o));
    if (o == NULL) {
        return 1;
    }
    options_default(o);
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc || !option_set(o, argv[i], argv[i + 1])) {
            fprintf(stderr, "bench ds: bad option %s\n", argv[i]);
            free(o);
            return usage();
        }
    }
    bool is_good = (mkdir(o->folder, 0755) == 0 || errno == EEXIST) &&
                   (mkdir(o->out, 0755) == 0 || errno == EEXIST);
    if (!is_good) {
        fprintf(stderr, "bench ds: %s: %s\n", o->out, strerror(errno));
    }
    is_good = is_good && run_all(o);
    free(o);
    return is_good ? 0 : 1;
}
