// SPDX-License-Identifier: Apache-2.0
// What the files of `leat codec` share: the parsed arguments and a few helpers.
#pragma once

#include <stdio.h>

#include "base/types.h"

#include "leat/codec.h"

#define CODEC_TYPE_AUTO      UINT32_MAX // from the file's header, or by sampling
#define CODEC_PATH_BYTES_MAX 1000       // of a file's name, with its zero

struct codec_args {
    const char *input;
    const char *output; // NULL: a name made from the input's
    u32 type;
    u32 mode;
    u32 cpu;
    u32 block_bytes;
    bool is_quiet;
    bool is_forced; // overwrite the output
    u64 range_offset;
    u64 range_bytes; // 0: everything
    double link_bytes_per_s;
    double reuse;
    bool is_encoded;
    bool is_overlapped;
    double seconds;  // of each measurement in bench
    const char *csv; // bench: also write the table there
    bool is_cached;  // bench: only the set that stays in the caches
};

int codec_encode_run(const struct codec_args *a);
int codec_decode_run(const struct codec_args *a);
int codec_inspect_run(const struct codec_args *a);
int codec_plan_run(const struct codec_args *a);
int codec_bench_run(const struct codec_args *a);

// ---- codec_file.c ----

// A file mapped for reading; `data` is NULL when it is empty.
struct codec_file {
    const u8 *data;
    u64 size;
};
// Prints what went wrong and returns false.
bool codec_file_open(const char *path, struct codec_file *file);
void codec_file_close(struct codec_file *file);

// The output: written beside its final name and renamed when it is whole.
struct codec_output {
    FILE *stream;
    char path[CODEC_PATH_BYTES_MAX];
    char part[CODEC_PATH_BYTES_MAX + 8];
};
bool codec_output_open(struct codec_output *out, const char *path, bool is_forced);
bool codec_output_write(struct codec_output *out, const void *data, size_t n);
// Makes the bytes durable and gives the file its name; `is_good` false throws it away.
bool codec_output_close(struct codec_output *out, bool is_good);

// A bar on stderr while it is a terminal; silent otherwise.
struct codec_progress {
    bool is_shown;
    u64 total;
    u32 percent;
    const char *what;
};
void codec_progress_start(struct codec_progress *p, const char *what, u64 total, bool is_quiet);
void codec_progress_show(struct codec_progress *p, u64 done);
void codec_progress_end(struct codec_progress *p);

u64 codec_now_ns(void *context);
void *codec_alloc(size_t n); // aligned to 64; ends the process when there is no memory

// The regions of a file by its header, or one region when it has none: of type `type`, or guessed
// when that is CODEC_TYPE_AUTO. The caller frees the result.
struct leat_codec_region *codec_regions(const u8 *data, u64 size, u32 type, size_t *count);
// Prints what `stored` bytes for `plain` bytes of a region mean. `head` holds its name.
void codec_region_print(const u8 *head, const struct leat_codec_region *r, u64 stored);
