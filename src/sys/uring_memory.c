// SPDX-License-Identifier: Apache-2.0
// Memory that the io_uring engine shares with the kernel: the core's registered buffer memory (best
// effort: a kernel or a limit that refuses only makes transfers a little dearer), and the receive
// buffers, a ring from which the kernel picks when bytes arrive, so that an idle connection holds
// none.
#include "sys/uring.h"

#include <limits.h>
#include <sys/mman.h>

_Static_assert(URING_REGION_BYTES <= INT_MAX, "a region's length fits the kernel's type");

bool uring_register_memory(struct io_engine *e, void *base, size_t bytes)
{
    struct uring *u = uring_of(e);
    ASSERT(u->memory == NULL && base != NULL && bytes > 0);
    size_t regions = (bytes + URING_REGION_BYTES - 1) / URING_REGION_BYTES;
    if (regions > URING_REGIONS_MAX) {
        return false;
    }
    struct iovec iov[URING_REGIONS_MAX];
    for (size_t i = 0; i < regions; i++) {
        iov[i].iov_base = (u8 *)base + i * URING_REGION_BYTES;
        iov[i].iov_len = MIN(bytes - i * URING_REGION_BYTES, (size_t)URING_REGION_BYTES);
    }
    if (io_uring_register_buffers(&u->ring, iov, (unsigned)regions) != 0) {
        return false;
    }
    u->memory = base;
    u->memory_bytes = bytes;
    return true;
}

int uring_region_of(const struct uring *u, const void *ptr, size_t len)
{
    uintptr_t at = (uintptr_t)ptr - (uintptr_t)u->memory;
    if (u->memory == NULL || at >= u->memory_bytes || len == 0 || len > u->memory_bytes - at) {
        return -1;
    }
    size_t first = at / URING_REGION_BYTES;
    size_t last = (at + len - 1) / URING_REGION_BYTES;
    return first == last ? (int)first : -1;
}

static size_t recv_ring_bytes(u32 count)
{
    return ALIGN_UP(count * sizeof(struct io_uring_buf), 4 * KIB);
}

bool uring_recv_pool(struct io_engine *e, u32 count, u32 bytes)
{
    struct uring *u = uring_of(e);
    ASSERT(IS_POWER_OF_TWO(count) && count <= URING_RECV_MAX);
    if (u->recv_ring != NULL) {
        return u->recv_count == count && u->recv_bytes == bytes; // shared by two servers
    }
    ASSERT(bytes > 0 && bytes <= IO_BYTES_MAX);
    void *ring = mmap(NULL, recv_ring_bytes(count), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        return false;
    }
    void *memory = mmap(NULL, (size_t)count * bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        munmap(ring, recv_ring_bytes(count));
        return false;
    }
    struct io_uring_buf_reg reg = {
        .ring_addr = (u64)(uintptr_t)ring,
        .ring_entries = count,
        .bgid = URING_RECV_GROUP,
    };
    if (io_uring_register_buf_ring(&u->ring, &reg, 0) != 0) {
        munmap(memory, (size_t)count * bytes);
        munmap(ring, recv_ring_bytes(count));
        return false;
    }
    u->recv_ring = ring;
    u->recv_memory = memory;
    u->recv_count = count;
    u->recv_bytes = bytes;
    io_uring_buf_ring_init(u->recv_ring);
    for (u32 i = 0; i < count; i++) {
        uring_recv_recycle(e, i);
    }
    return true;
}

u8 *uring_recv_buffer(struct io_engine *e, u32 recv_id)
{
    struct uring *u = uring_of(e);
    ASSERT(recv_id < u->recv_count);
    return u->recv_memory + (size_t)recv_id * u->recv_bytes;
}

void uring_recv_recycle(struct io_engine *e, u32 recv_id)
{
    struct uring *u = uring_of(e);
    io_uring_buf_ring_add(u->recv_ring, uring_recv_buffer(e, recv_id), u->recv_bytes,
                          (unsigned short)recv_id, io_uring_buf_ring_mask(u->recv_count), 0);
    io_uring_buf_ring_advance(u->recv_ring, 1);
}

// After the ring is gone, so that the kernel has let go of it all.
void uring_memory_deinit(struct uring *u)
{
    if (u->recv_ring != NULL) {
        munmap(u->recv_memory, (size_t)u->recv_count * u->recv_bytes);
        munmap(u->recv_ring, recv_ring_bytes(u->recv_count));
        u->recv_ring = NULL;
    }
}
