// SPDX-License-Identifier: Apache-2.0
// The report: history.jsonl into report.md (tables of the newest record of each leg), sweep.csv
// (all records) and plots by gnuplot (report.png, report.svg).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench_ds.h"

#define PLOT_DATASETS 4
#define PLOT_WAYS     12

static const char *const datasets[PLOT_DATASETS] = {"filesize8gib", "tiktokish", "imagenetish",
                                                    "lmcacheish"};

struct way {
    const char *backend;
    const char *mode;
};

// The columns of the summary and the bars of the plot.
static const struct way ways[PLOT_WAYS] = {
    {"pread", "sync"},  {"odirect-pread", "sync"}, {"fio-io_uring", "sync"}, {"ref", "sync"},
    {"ref", "batch"},   {"ref", "async"},          {"uring", "sync"},        {"uring", "batch"},
    {"uring", "async"}, {"nvme", "sync"},          {"nvme", "batch"},        {"gds", "sync"},
};

static const char *text_of(const json_t *record, const char *name)
{
    const char *t = json_string_value(json_object_get(json_object_get(record, "config"), name));
    return t == NULL ? "" : t;
}

static i64 int_of(const json_t *record, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(record, "config"), name));
}

static double real_of(const json_t *record, const char *name)
{
    return json_number_value(json_object_get(json_object_get(record, "result"), name));
}

static json_t *load(const char *folder)
{
    char path[BENCH_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/history.jsonl", folder);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        fprintf(stderr, "bench ds: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    json_t *all = json_array();
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, f) > 0) {
        json_error_t error;
        json_t *record = json_loads(line, 0, &error);
        if (record == NULL) {
            fprintf(stderr, "bench ds: a line of history.jsonl is malformed: %s\n", error.text);
            continue;
        }
        json_array_append_new(all, record);
    }
    free(line);
    fclose(f);
    return all;
}

// The best record of a dataset and way, by median bandwidth; NULL when there is none without error.
static const json_t *best(const json_t *all, const char *dataset, const struct way *w)
{
    const json_t *found = NULL;
    size_t i;
    json_t *r;
    json_array_foreach(all, i, r)
    {
        bool is_it = strcmp(text_of(r, "dataset"), dataset) == 0 &&
                     strcmp(text_of(r, "backend"), w->backend) == 0 &&
                     strcmp(text_of(r, "mode"), w->mode) == 0 &&
                     json_object_get(r, "error") == NULL;
        if (is_it && (found == NULL || real_of(r, "mib_s") > real_of(found, "mib_s"))) {
            found = r;
        }
    }
    return found;
}

static FILE *create(const char *folder, const char *name)
{
    char path[BENCH_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    if (f == NULL) {
        fprintf(stderr, "bench ds: %s: %s\n", path, strerror(errno));
    }
    return f;
}

static bool write_csv(const char *folder, const json_t *all)
{
    FILE *f = create(folder, "sweep.csv");
    if (f == NULL) {
        return false;
    }
    fprintf(f,
            "backend,dataset,mode,threads,depth,cold,files,bytes,n,mib_s,mib_s_min,mib_s_max,iops,"
            "p50_us,p99_us,p999_us,cpu_s_per_gib,verified,error\n");
    size_t i;
    json_t *r;
    json_array_foreach(all, i, r)
    {
        const char *error = json_string_value(json_object_get(r, "error"));
        if (strcmp(text_of(r, "dataset"), "overhead-4k") == 0) {
            continue;
        }
        fprintf(
            f,
            "%s,%s,%s,%lld,%lld,%s,%lld,%lld,%lld,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.3f,%d,%s\n",
            text_of(r, "backend"), text_of(r, "dataset"), text_of(r, "mode"),
            (long long)int_of(r, "threads"), (long long)int_of(r, "depth"), text_of(r, "cold"),
            (long long)int_of(r, "files"), (long long)int_of(r, "bytes"), (long long)int_of(r, "n"),
            real_of(r, "mib_s"), real_of(r, "mib_s_min"), real_of(r, "mib_s_max"),
            real_of(r, "iops"), real_of(r, "p50_us"), real_of(r, "p99_us"), real_of(r, "p999_us"),
            real_of(r, "cpu_s_per_gib"),
            json_is_true(json_object_get(json_object_get(r, "result"), "verified")),
            error == NULL ? "" : error);
    }
    return fclose(f) == 0;
}

static void write_dataset(FILE *f, const json_t *all, const char *dataset)
{
    fprintf(f,
            "\n### %s\n\n| way | threads | depth | MiB/s (median) | min to max | ops/s | p50 us | "
            "p99 us | "
            "p99.9 us | CPU s/GiB | verified |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
            dataset);
    size_t i;
    json_t *r;
    json_array_foreach(all, i, r)
    {
        if (strcmp(text_of(r, "dataset"), dataset) != 0) {
            continue;
        }
        const char *error = json_string_value(json_object_get(r, "error"));
        fprintf(f,
                "| %s %s | %lld | %lld | %.0f | %.0f to %.0f | %.0f | %.0f | %.0f | %.0f | %.2f | "
                "%s |\n",
                text_of(r, "backend"), text_of(r, "mode"), (long long)int_of(r, "threads"),
                (long long)int_of(r, "depth"), real_of(r, "mib_s"), real_of(r, "mib_s_min"),
                real_of(r, "mib_s_max"), real_of(r, "iops"), real_of(r, "p50_us"),
                real_of(r, "p99_us"), real_of(r, "p999_us"), real_of(r, "cpu_s_per_gib"),
                error != NULL ? error
                : json_is_true(json_object_get(json_object_get(r, "result"), "verified"))
                    ? "every byte"
                    : "-");
    }
}

static const json_t *single_thread_ref(const json_t *all, const char *dataset)
{
    size_t i;
    json_t *r;
    json_array_foreach(all, i, r)
    {
        if (strcmp(text_of(r, "dataset"), dataset) == 0 &&
            strcmp(text_of(r, "backend"), "ref") == 0 && strcmp(text_of(r, "mode"), "sync") == 0 &&
            int_of(r, "threads") == 1) {
            return r;
        }
    }
    return NULL;
}

static void write_marks(FILE *f, const json_t *all)
{
    const struct way uring_batch = {"uring", "batch"};
    const struct way fio = {"fio-io_uring", "sync"};
    const json_t *small = best(all, "imagenetish", &uring_batch);
    const json_t *ref = single_thread_ref(all, "imagenetish");
    const json_t *large = best(all, "filesize8gib", &uring_batch);
    const json_t *bare = best(all, "filesize8gib", &fio);
    fprintf(f, "\n## Marks\n\n");
    if (small != NULL && ref != NULL) {
        fprintf(f,
                "- imagenetish, uring batch against ref, one thread, sync, cold: %.2f times (mark: "
                "5)\n",
                real_of(small, "mib_s") / real_of(ref, "mib_s"));
    }
    if (large != NULL && bare != NULL) {
        fprintf(f, "- filesize8gib, uring batch against fio's io_uring: %.0f %% (mark: 90 %%)\n",
                100 * real_of(large, "mib_s") / real_of(bare, "mib_s"));
    }
    size_t i;
    json_t *r;
    json_array_foreach(all, i, r)
    {
        if (strcmp(text_of(r, "dataset"), "overhead-4k") == 0) {
            fprintf(
                f,
                "- cached 4 KiB read: %.0f ns over bare io_uring (mark: below 1000); library %.0f, "
                "bare %.0f, pread %.0f ns\n",
                real_of(r, "library_ns") - real_of(r, "bare_io_uring_ns"), real_of(r, "library_ns"),
                real_of(r, "bare_io_uring_ns"), real_of(r, "pread_ns"));
        }
    }
}

static bool write_report(const char *folder, const json_t *all)
{
    FILE *f = create(folder, "report.md");
    if (f == NULL) {
        return false;
    }
    const json_t *env = json_object_get(json_array_get(all, json_array_size(all) - 1), "env");
    char *env_text = json_dumps(env, JSON_SORT_KEYS);
    fprintf(f,
            "# Accelerator-direct reads\n\nMachine: `%s`\n\nEach pass opens, registers, reads and "
            "closes "
            "every file, cold (page caches dropped). Medians of the passes. A latency is that of a "
            "file or, of larger ones, of a step of 16 MiB; fio's is that of a request of 1 MiB.\n",
            env_text == NULL ? "?" : env_text);
    free(env_text);
    write_marks(f, all);
    fprintf(f, "\n## Best of each way (MiB/s)\n\n| dataset |");
    for (u32 w = 0; w < PLOT_WAYS; w++) {
        fprintf(f, " %s %s |", ways[w].backend, ways[w].mode);
    }
    fprintf(f, "\n|---|");
    for (u32 w = 0; w < PLOT_WAYS; w++) {
        fprintf(f, "---|");
    }
    for (u32 d = 0; d < PLOT_DATASETS; d++) {
        fprintf(f, "\n| %s |", datasets[d]);
        for (u32 w = 0; w < PLOT_WAYS; w++) {
            const json_t *r = best(all, datasets[d], &ways[w]);
            if (r == NULL) {
                fprintf(f, " - |");
            } else {
                fprintf(f, " %.0f |", real_of(r, "mib_s"));
            }
        }
    }
    fprintf(f, "\n\n## All legs\n");
    for (u32 d = 0; d < PLOT_DATASETS; d++) {
        write_dataset(f, all, datasets[d]);
    }
    return fclose(f) == 0;
}

// A grouped bar chart: datasets along the axis, a bar for each way that has a record anywhere.
static bool write_plots(const char *folder, const json_t *all)
{
    FILE *data = create(folder, "plot.dat");
    FILE *script = create(folder, "plot.gp");
    if (data == NULL || script == NULL) {
        return false;
    }
    bool is_used[PLOT_WAYS] = {false};
    u32 columns = 1;
    for (u32 w = 0; w < PLOT_WAYS; w++) {
        for (u32 d = 0; d < PLOT_DATASETS; d++) {
            is_used[w] = is_used[w] || best(all, datasets[d], &ways[w]) != NULL;
        }
        columns += is_used[w];
    }
    fprintf(data, "dataset");
    for (u32 w = 0; w < PLOT_WAYS; w++) {
        if (is_used[w]) {
            fprintf(data, " \"%s %s\"", ways[w].backend, ways[w].mode);
        }
    }
    for (u32 d = 0; d < PLOT_DATASETS; d++) {
        fprintf(data, "\n%s", datasets[d]);
        for (u32 w = 0; w < PLOT_WAYS; w++) {
            const json_t *r = best(all, datasets[d], &ways[w]);
            if (is_used[w]) {
                fprintf(data, " %.1f", r == NULL ? 0.0 : real_of(r, "mib_s"));
            }
        }
    }
    fprintf(data, "\n");
    fprintf(script,
            "set style data histograms\nset style fill solid 0.85 border -1\nset boxwidth 0.9\n"
            "set key outside right noenhanced\nset ylabel 'MiB/s, median, cold'\nset yrange [0:*]\n"
            "set grid ytics\nset xtics noenhanced\n"
            "set terminal pngcairo size 1200,500\nset output '%s/report.png'\n"
            "plot for [i=2:%u] '%s/plot.dat' using i:xtic(1) title columnhead(i)\n"
            "set terminal svg size 1200,500\nset output '%s/report.svg'\nreplot\n",
            folder, columns, folder, folder);
    bool is_written = fclose(data) == 0;
    is_written = fclose(script) == 0 && is_written;
    char command[2 * BENCH_PATH_BYTES];
    snprintf(command, sizeof(command), "gnuplot '%s/plot.gp' 2>'%s/plot.log'", folder, folder);
    int status = is_written ? system(command) : 1;
    if (status != 0) {
        fprintf(stderr, "bench ds: gnuplot did not draw the plots (see %s/plot.log)\n", folder);
    }
    return status == 0;
}

int bench_report(const char *folder)
{
    if (strlen(folder) > BENCH_PATH_BYTES - 32 || strchr(folder, '\'') != NULL) {
        fprintf(stderr, "bench ds: the folder's name is too long or has a quote\n");
        return 2;
    }
    json_t *all = load(folder);
    if (all == NULL || json_array_size(all) == 0) {
        fprintf(stderr, "bench ds: no records\n");
        json_decref(all);
        return 1;
    }
    bool is_good = write_csv(folder, all);
    is_good = write_report(folder, all) && is_good;
    is_good = write_plots(folder, all) && is_good;
    json_decref(all);
    if (is_good) {
        printf("%s/report.md, sweep.csv, report.png, report.svg\n", folder);
    }
    return is_good ? 0 : 1;
}
