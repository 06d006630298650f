// SPDX-License-Identifier: Apache-2.0
// What the files of the real sys share. Private to src/sys.
#pragma once

#include "sys/io.h"
#include "sys/sys.h"

#define SYS_REAL_MAGIC 0x53795265u

struct sys_real {
    struct sys base; // first
    u32 magic;
    u32 engines_live; // atomic: engines come and go on their own threads
};

static inline struct sys_real *sys_real_of(struct sys *s)
{
    struct sys_real *real = CONTAINER_OF(s, struct sys_real, base);
    ASSERT_MAGIC(real, SYS_REAL_MAGIC);
    return real;
}

// real_file.c
enum err real_file_open(struct sys *s, const char *path, unsigned flags, int *out_fd) NODISCARD;
void real_file_close(struct sys *s, int fd);
enum err real_file_size(struct sys *s, int fd, u64 *out) NODISCARD;
enum err real_file_allocate(struct sys *s, int fd, u64 bytes, bool is_zeroed) NODISCARD;
enum err real_file_read(struct sys *s, int fd, void *buf, size_t len, u64 offset) NODISCARD;
enum err real_file_write(struct sys *s, int fd, const void *buf, size_t len, u64 offset) NODISCARD;
enum err real_file_flush(struct sys *s, int fd) NODISCARD;
// real_dir.c
enum err real_file_rename(struct sys *s, const char *from, const char *to) NODISCARD;
enum err real_file_remove(struct sys *s, const char *path) NODISCARD;
enum err real_dir_create(struct sys *s, const char *path) NODISCARD;
enum err real_dir_list(struct sys *s, const char *path, sys_dir_fn fn, void *arg) NODISCARD;
enum err real_dir_flush(struct sys *s, const char *path) NODISCARD;
enum err real_dir_space(struct sys *s, const char *path, struct sys_space *out) NODISCARD;
// uring.c
enum err uring_create(struct sys *s, u32 queue_depth, struct io_engine **out) NODISCARD;
// Whether this kernel lets the process have an io_uring at all: OK or a negated errno.
int uring_probe(void);
