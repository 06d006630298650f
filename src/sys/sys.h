// SPDX-License-Identifier: Apache-2.0
// The only door to the kernel: clocks, randomness, files and directories, and one I/O engine a
// core. Two implementations: `sys_real_create` (Linux, io_uring; src/sys) and the simulator's
// (src/sim), where time is virtual and drives tear, lose and corrupt. Nothing above this calls the
// kernel.
//
// The file_* and dir_* calls below block. They are for start-up and for the helper pool
// (core/blocking.h); a reactor reads and writes through its I/O engine (sys/io.h) instead.
// Paths are bytes ending in zero. A descriptor is a small int that means something only to its sys.
#pragma once

#include "base/err.h"
#include "base/types.h"

struct sys;
struct io_engine;

#define SYS_OPEN_READ      0x01u
#define SYS_OPEN_WRITE     0x02u
#define SYS_OPEN_CREATE    0x04u // create if absent
#define SYS_OPEN_EXCLUSIVE 0x08u // with CREATE: fail with ERR_EXISTS if present
#define SYS_OPEN_DIRECT    0x10u // O_DIRECT; ERR_UNSUPPORTED where the filesystem refuses it
#define SYS_OPEN_LOCK      0x20u // exclusive advisory lock; ERR_IN_USE if another process holds it
#define SYS_OPEN_PRIVATE   0x40u // with CREATE: mode 0600 instead of 0640

// Receives one name of a directory (without "." and ".."). Returning an error stops the walk.
typedef enum err (*sys_dir_fn)(void *arg, const char *name);

struct sys_space {
    u64 total_bytes;
    u64 free_bytes; // what an unprivileged writer can still take
};

struct sys_ops {
    void (*destroy)(struct sys *s);

    u64 (*clock_mono_ns)(struct sys *s);
    u64 (*clock_wall_ns)(struct sys *s); // since 1970, UTC
    void (*random_bytes)(struct sys *s, void *out, size_t len);

    enum err (*file_open)(struct sys *s, const char *path, unsigned flags, int *out_fd);
    void (*file_close)(struct sys *s, int fd);
    enum err (*file_size)(struct sys *s, int fd, u64 *out);
    // Reserves and zero-fills [0, bytes), so that later writes and flushes change no metadata.
    // `is_zeroed` false reserves without writing (fallocate).
    enum err (*file_allocate)(struct sys *s, int fd, u64 bytes, bool is_zeroed);
    // Whole transfers: a short read is ERR_END, a short write is retried.
    enum err (*file_read)(struct sys *s, int fd, void *buf, size_t len, u64 offset);
    enum err (*file_write)(struct sys *s, int fd, const void *buf, size_t len, u64 offset);
    enum err (*file_flush)(struct sys *s, int fd); // fsync
    enum err (*file_rename)(struct sys *s, const char *from, const char *to);
    enum err (*file_remove)(struct sys *s, const char *path);
    enum err (*dir_create)(struct sys *s, const char *path); // ERR_EXISTS if present
    enum err (*dir_list)(struct sys *s, const char *path, sys_dir_fn fn, void *arg);
    enum err (*dir_flush)(struct sys *s, const char *path); // fsync of the directory
    enum err (*dir_space)(struct sys *s, const char *path, struct sys_space *out);

    // One engine, to be used by the calling thread only (except io_engine_wake).
    enum err (*io_create)(struct sys *s, u32 queue_depth, struct io_engine **out);
};

struct sys {
    const struct sys_ops *ops;
};

static inline u64 sys_mono_ns(struct sys *s)
{
    return s->ops->clock_mono_ns(s);
}
static inline u64 sys_wall_ns(struct sys *s)
{
    return s->ops->clock_wall_ns(s);
}

// The real one. Fails with ERR_UNSUPPORTED (and a log line that says what to do) when the kernel is
// older than 6.1 or io_uring is forbidden.
enum err sys_real_create(struct sys **out);
