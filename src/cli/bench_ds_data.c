// SPDX-License-Identifier: Apache-2.0
// Datasets by their published shapes: number of files, sizes, folders. Contents are a function of
// file and offset, so that any byte can be checked without keeping it. A scale below 1 makes fewer
// files; where only one file is left, that one gets smaller.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/endian.h"
#include "cli/bench_ds.h"

struct shape {
    const char *name;
    u64 count;
    u64 bytes; // in all; what fixed sizes do not give
    u64 size_min;
    u64 size_max;
    u64 per_folder;
};

static const struct shape shapes[] = {
    {"filesize8gib", 20, 171798691840, 8589934592, 8589934592, 10},
    {"tiktokish", 448, 3517713980, 7340033, 8388607, 14},
    {"imagenetish", 1199379, 134929413838, 75000, 150000, 1200},
    {"lmcacheish", 1820, 26725171200, 14684160, 14684160, 228},
};

static u64 mix(u64 v)
{
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

u64 bench_file_size(const struct bench_dataset *d, u64 index)
{
    u64 span = d->size_max - d->size_min + 1;
    u64 size = d->size_min + (span <= 1 ? 0 : mix(index + 1) % span) + (u64)d->size_shift +
               (index < d->size_shift_more);
    // tiktokish has no size that is a multiple of 512.
    bool must_be_odd = strcmp(d->name, "tiktokish") == 0;
    size = must_be_odd && size % 512 == 0 ? size - 1 : size;
    return index + 1 == d->count ? size + (u64)d->last_extra : size;
}

static u64 bytes_of(const struct bench_dataset *d)
{
    u64 bytes = 0;
    for (u64 f = 0; f < d->count; f++) {
        bytes += bench_file_size(d, f);
    }
    return bytes;
}

// At full scale the set has the published number of bytes: what the drawn sizes miss of it is
// spread over all files, the remainder goes to the last.
static void match_total(struct bench_dataset *d, u64 published)
{
    i64 missing = (i64)(published - bytes_of(d));
    i64 count = (i64)d->count;
    d->size_shift = (missing >= 0 ? missing : missing - count + 1) / count;
    d->size_shift_more = (u64)(missing - d->size_shift * count);
    d->last_extra = (i64)(published - bytes_of(d));
}

void bench_file_path(const struct bench_dataset *d, u64 index, char *out, size_t size)
{
    snprintf(out, size, "%s/class%04llu/%06llu", d->folder,
             (unsigned long long)(index / d->per_folder), (unsigned long long)index);
}

bool bench_dataset_shape(const char *name, double scale, const char *folder,
                         struct bench_dataset *out)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct shape *s = &shapes[i];
        if (strcmp(s->name, name) != 0) {
            continue;
        }
        double files = (double)s->count * scale;
        *out = (struct bench_dataset){.name = s->name,
                                      .count = files < 1 ? 1 : (u64)(files + 0.5),
                                      .size_min = s->size_min,
                                      .size_max = s->size_max,
                                      .per_folder = s->per_folder};
        if (files < 1) { // a part of one file, in whole blocks
            out->size_min = MAX((u64)((double)s->size_min * files), (u64)4096) / 4096 * 4096;
            out->size_max = out->size_min + (s->size_max - s->size_min);
        }
        snprintf(out->folder, sizeof(out->folder), "%s/%s-%llu", folder, name,
                 (unsigned long long)out->count);
        if (out->count == s->count) {
            match_total(out, s->bytes);
        }
        out->bytes = bytes_of(out);
        return true;
    }
    return false;
}

// 64 bits of content for each 8-byte word of a file.
static u64 content_word(u64 index, u64 word)
{
    u64 v = (index * 0x9e3779b97f4a7c15u + word) * 0xd6e8feb86659fd93u;
    return v ^ v >> 32;
}

static void content_fill(u8 *out, u64 index, u64 offset, u64 bytes)
{
    for (u64 i = 0; i < bytes; i += 8) {
        u64 w = content_word(index, (offset + i) / 8);
        memcpy(out + i, &w, 8); // the buffer has room for a whole last word
    }
}

bool bench_bytes_right(const u8 *bytes, u64 index, u64 offset, u64 count)
{
    u64 i = 0;
    for (; i + 8 <= count; i += 8) {
        if (load_le64(bytes + i) != content_word(index, (offset + i) / 8)) {
            return false;
        }
    }
    u64 last = content_word(index, (offset + i) / 8);
    return memcmp(bytes + i, &last, count - i) == 0;
}

static bool file_make(const struct bench_dataset *d, u64 index, u8 *buffer)
{
    char path[BENCH_PATH_BYTES + 64];
    struct stat st;
    u64 size = bench_file_size(d, index);
    bench_file_path(d, index, path, sizeof(path));
    if (stat(path, &st) == 0 && (u64)st.st_size == size) {
        return true;
    }
    if (index % d->per_folder == 0) {
        char *slash = strrchr(path, '/');
        *slash = 0;
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool is_written = fd >= 0;
    for (u64 at = 0; is_written && at < size;) {
        u64 n = MIN(size - at, 4 * MIB);
        content_fill(buffer, index, at, n);
        is_written = write(fd, buffer, n) == (ssize_t)n;
        at += n;
    }
    if (!is_written) {
        fprintf(stderr, "bench ds: %s: %s\n", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return is_written;
}

bool bench_dataset_make(struct bench_dataset *d)
{
    u8 *buffer = malloc(4 * MIB + 8);
    bool is_made = buffer != NULL && (mkdir(d->folder, 0755) == 0 || errno == EEXIST);
    if (!is_made) {
        fprintf(stderr, "bench ds: %s: %s\n", d->folder, strerror(errno));
    }
    for (u64 i = 0; is_made && i < d->count; i++) {
        is_made = file_make(d, i, buffer);
    }
    free(buffer);
    sync();
    return is_made;
}

// Datasets are synced when they are made and only read after, so their pages are clean.
bool bench_drop_caches(bool is_all)
{
    bool is_dropped = true;
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, is_all ? "3" : "1", 1) != 1) {
        fprintf(stderr, "bench ds: page caches cannot be dropped (%s): the leg is warm\n",
                strerror(errno));
        is_dropped = false;
    }
    if (fd >= 0) {
        close(fd);
    }
    return is_dropped;
}
