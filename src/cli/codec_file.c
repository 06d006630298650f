// SPDX-License-Identifier: Apache-2.0
// Files, progress and regions for `leat codec`. One process, one thread; inputs are mapped.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/codec_internal.h"

#define NAME_COLUMNS 48
#define BAR_COLUMNS  40u

bool codec_file_open(const char *path, struct codec_file *file)
{
    struct stat st;
    *file = (struct codec_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        fprintf(stderr, "leat codec: %s: %s\n", path, fd < 0 ? strerror(errno) : "not a file");
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    file->size = (u64)st.st_size;
    void *data = NULL;
    if (file->size > 0) {
        data = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    if (data == MAP_FAILED) {
        fprintf(stderr, "leat codec: %s: %s\n", path, strerror(errno));
        return false;
    }
    file->data = data;
    return true;
}

void codec_file_close(struct codec_file *file)
{
    if (file->data != NULL) {
        munmap((void *)(uintptr_t)file->data, file->size);
    }
    *file = (struct codec_file){0};
}

bool codec_output_open(struct codec_output *out, const char *path, bool is_forced)
{
    if (strlen(path) >= sizeof(out->path)) {
        fprintf(stderr, "leat codec: the name of the output is too long\n");
        return false;
    }
    strcpy(out->path, path);
    snprintf(out->part, sizeof(out->part), "%s.part", path);
    if (!is_forced && access(path, F_OK) == 0) {
        fprintf(stderr, "leat codec: %s exists; --force replaces it\n", path);
        return false;
    }
    out->stream = fopen(out->part, "wbe");
    if (out->stream == NULL) {
        fprintf(stderr, "leat codec: %s: %s\n", out->part, strerror(errno));
    }
    return out->stream != NULL;
}

bool codec_output_write(struct codec_output *out, const void *data, size_t n)
{
    if (fwrite(data, 1, n, out->stream) == n) {
        return true;
    }
    fprintf(stderr, "leat codec: %s: %s\n", out->part, strerror(errno));
    return false;
}

bool codec_output_close(struct codec_output *out, bool is_good)
{
    bool ok = is_good && fflush(out->stream) == 0 && fsync(fileno(out->stream)) == 0;
    ok = fclose(out->stream) == 0 && ok;
    ok = ok && rename(out->part, out->path) == 0;
    if (!ok) {
        if (is_good) {
            fprintf(stderr, "leat codec: %s: %s\n", out->path, strerror(errno));
        }
        unlink(out->part);
    }
    return ok;
}

void codec_progress_start(struct codec_progress *p, const char *what, u64 total, bool is_quiet)
{
    *p = (struct codec_progress){.is_shown = !is_quiet && isatty(STDERR_FILENO) == 1,
                                 .total = total == 0 ? 1 : total,
                                 .percent = UINT32_MAX,
                                 .what = what};
}

void codec_progress_show(struct codec_progress *p, u64 done)
{
    u32 percent = (u32)(done * 100 / p->total);
    if (!p->is_shown || percent == p->percent) {
        return;
    }
    char bar[BAR_COLUMNS + 1];
    for (u32 i = 0; i < BAR_COLUMNS; i++) {
        bar[i] = i * 100 < percent * BAR_COLUMNS ? '#' : '.';
    }
    bar[BAR_COLUMNS] = 0;
    fprintf(stderr, "\r%s [%s] %3u%%", p->what, bar, percent);
    p->percent = percent;
}

void codec_progress_end(struct codec_progress *p)
{
    if (p->is_shown) {
        fprintf(stderr, "\r%*s\r", (int)(BAR_COLUMNS + 24), "");
    }
}

u64 codec_now_ns(void *context)
{
    struct timespec t;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * NS_PER_S + (u64)t.tv_nsec;
}

void *codec_alloc(size_t n)
{
    void *p = aligned_alloc(64, ALIGN_UP(n == 0 ? 1 : n, 64u));
    if (p == NULL) {
        fprintf(stderr, "leat codec: no memory for %zu bytes\n", n);
        exit(1);
    }
    return p;
}

// The header may be long: the whole mapped file is offered, and only the header is read.
static struct leat_codec_region *file_regions(const u8 *data, u64 size, size_t *count)
{
    u64 header;
    size_t capacity = 1024;
    if (size < 16 || leat_codec_file_kind(data, size, &header) == LEAT_CODEC_FILE_UNKNOWN) {
        return NULL;
    }
    for (;;) {
        struct leat_codec_region *r = codec_alloc(capacity * sizeof(*r));
        enum leat_codec_err e = leat_codec_file_regions(data, size, size, r, capacity, count);
        if (e == LEAT_CODEC_OK) {
            return r;
        }
        free(r);
        if (e != LEAT_CODEC_ERR_SPACE) {
            return NULL; // it only looked like one of these formats
        }
        capacity = *count;
    }
}

struct leat_codec_region *codec_regions(const u8 *data, u64 size, u32 type, size_t *count)
{
    struct leat_codec_region *r = NULL;
    if (type == CODEC_TYPE_AUTO) {
        r = file_regions(data, size, count);
        if (r != NULL) {
            return r;
        }
        size_t scratch_bytes = leat_codec_encode_scratch_bytes(0);
        void *scratch = codec_alloc(scratch_bytes);
        if (leat_codec_detect(data, size, scratch, scratch_bytes, &type) != LEAT_CODEC_OK) {
            type = LEAT_CODEC_TYPE_BYTES;
        }
        free(scratch);
    }
    r = codec_alloc(sizeof(*r));
    *r = (struct leat_codec_region){.bytes = size, .type = type};
    *count = 1;
    return r;
}

void codec_region_print(const u8 *head, const struct leat_codec_region *r, u64 stored)
{
    char name[NAME_COLUMNS + 1] = "(no tensor)";
    if (r->name_bytes > 0) {
        // A long name keeps its end, which tells tensors apart.
        u32 skip = r->name_bytes > NAME_COLUMNS ? r->name_bytes - NAME_COLUMNS : 0;
        u32 n = r->name_bytes - skip;
        for (u32 i = 0; i < n; i++) {
            u8 c = head[r->name_offset + skip + i];
            name[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
        }
        name[n] = 0;
    }
    printf("%-*s %-8s %14llu -> %14llu  %6.3f\n", NAME_COLUMNS, name, leat_codec_type_name(r->type),
           (unsigned long long)r->bytes, (unsigned long long)stored,
           stored == 0 ? 1.0 : (double)r->bytes / (double)stored);
}
