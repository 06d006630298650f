// SPDX-License-Identifier: Apache-2.0
// The io_uring engine's own state. Private to src/sys.
#pragma once

#include "sys/real.h"

#include <liburing.h>

#define URING_MAGIC         0x55726e67u
#define URING_RECV_GROUP    0 // the one group of provided buffers
#define URING_RECV_MAX      32768u
#define URING_REGION_BYTES  GIB // the kernel's limit of one registered buffer
#define URING_REGIONS_MAX   64u
#define URING_DEPTH_DEFAULT 512u
#define URING_DEPTH_MAX     16384u

struct uring {
    struct io_engine base; // first
    u32 magic;
    bool is_enabled;    // the ring belongs to its thread from its first poll on
    bool is_wake_armed; // the poll on wake_fd is in the kernel
    int wake_fd;
    struct sys_real *sys;
    struct io_uring ring;
    struct list pending; // struct io_op, submitted by their owners, not yet in the ring
    u64 in_flight;       // given to io_submit and not yet done

    u8 *memory; // registered for IO_FLAG_FIXED, in regions of URING_REGION_BYTES
    size_t memory_bytes;

    struct io_uring_buf_ring *recv_ring;
    u8 *recv_memory;
    u32 recv_count;
    u32 recv_bytes;
};

// uring_prep.c: translates an operation for the kernel.
void uring_prep(struct uring *u, struct io_uring_sqe *sqe, struct io_op *op);
// uring_memory.c
bool uring_register_memory(struct io_engine *e, void *base, size_t bytes);
bool uring_recv_pool(struct io_engine *e, u32 count, u32 bytes);
u8 *uring_recv_buffer(struct io_engine *e, u32 recv_id);
void uring_recv_recycle(struct io_engine *e, u32 recv_id);
void uring_memory_deinit(struct uring *u);
// Index of the registered region that holds [ptr, ptr + len), or -1.
int uring_region_of(const struct uring *u, const void *ptr, size_t len);

static inline struct uring *uring_of(struct io_engine *e)
{
    struct uring *u = CONTAINER_OF(e, struct uring, base);
    ASSERT_MAGIC(u, URING_MAGIC);
    return u;
}
