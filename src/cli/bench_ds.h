// SPDX-License-Identifier: Apache-2.0
// The accelerator-direct benchmark: datasets, legs, and records. A leg is one dataset read one way
// with one number of threads and one depth, repeated; a record of history.jsonl describes one leg.
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/types.h"

#define BENCH_REPEATS_MAX 64
#define BENCH_UNIT_BYTES  (16 * MIB) // the largest single I/O; larger files are read in such steps
#define BENCH_PATH_BYTES  512

enum bench_way { BENCH_LIBRARY, BENCH_PREAD, BENCH_ODIRECT, BENCH_FIO };
enum bench_mode { BENCH_SYNC, BENCH_BATCH, BENCH_ASYNC };

// A dataset on disk: files 0..count-1 with sizes that follow from the shape, and contents that
// follow from the file's number.
struct bench_dataset {
    const char *name;
    char folder[BENCH_PATH_BYTES];
    u64 count;
    u64 bytes;
    u64 size_min;
    u64 size_max;
    u64 per_folder;
    i64 size_shift;      // added to the drawn size of every file
    u64 size_shift_more; // so many files get one byte more
    i64 last_extra;      // and the last one this
};

struct bench_leg {
    const struct bench_dataset *data;
    enum bench_way way;
    enum bench_mode mode;
    const char *backend; // OPENDS_BACKEND, for the library
    u32 threads;
    u32 depth;
    u32 repeats;
    bool is_cold_all; // drop inodes too
};

// One timed pass.
struct bench_pass {
    double seconds;
    double cpu_seconds;
    u64 bytes;
    u64 ios;
    double p50_us, p99_us, p999_us;
};

struct bench_result {
    struct bench_pass passes[BENCH_REPEATS_MAX];
    u32 count;
    bool is_verified;
    bool is_warm; // the page cache could not be dropped before every timed pass
    u64 bytes_verified;
    char error[256];
};

// bench_ds_data.c
// Fills the shape of a dataset by name and scale; false for an unknown name.
bool bench_dataset_shape(const char *name, double scale, const char *folder,
                         struct bench_dataset *out);
// Writes what is missing. False with a message on stderr.
bool bench_dataset_make(struct bench_dataset *d);
u64 bench_file_size(const struct bench_dataset *d, u64 index);
void bench_file_path(const struct bench_dataset *d, u64 index, char *out, size_t size);
// Checks bytes of a file; the first wrong one makes it false.
bool bench_bytes_right(const u8 *bytes, u64 index, u64 offset, u64 count);
// False (and a line on stderr) when it is not allowed: the next pass is a warm one.
bool bench_drop_caches(bool is_all);

// bench_ds_legs.c
void bench_leg_run(const struct bench_leg *leg, struct bench_result *result);
double bench_now_s(void);

// bench_ds_fio.c: one timed pass of fio, added to the result (its error when fio does not run).
void bench_fio_pass(const struct bench_leg *leg, struct bench_result *result);

// bench_ds_overhead.c: nanoseconds a call of a cached 4 KiB read; false when it cannot be measured.
bool bench_overhead(const char *folder, double *library_ns, double *bare_ns, double *pread_ns);

// bench_ds_report.c
int bench_report(const char *folder);
