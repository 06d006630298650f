// SPDX-License-Identifier: Apache-2.0
// Counted buffers from the core's own memory: 4 KiB aligned, usable with O_DIRECT and registered
// with the I/O engine where the kernel allows. A buffer belongs to the core that took it; other
// cores may read it while they hold a reference that was handed to them, and a put from another
// core travels home by message. Reference counts are touched by the owner core only: handing a
// reference to another core means one buf_ref by the owner beforehand.
#pragma once

#include "core/mailbox.h"

// Size classes: 4 KiB, 16 KiB, 64 KiB, 256 KiB, 1 MiB + 4 KiB (an extent frame), 4 MiB.
#define BUF_BYTES_MAX (4 * MIB)

struct buf {
    u32 magic;
    u32 refs;
    u32 capacity_bytes;
    u16 core;
    u8 size_class;
    bool is_pinned; // the kernel has it; putting the last reference asserts
    u8 *data;
    struct message home; // carries foreign_puts to the owner core
    u32 foreign_puts;    // references dropped by other cores and not yet taken off `refs` (atomic)
};

// NULL when the core's memory is used up or bytes > BUF_BYTES_MAX.
struct buf *buf_get(size_t bytes);
// Waits for memory, FIFO among waiters of this core. ERR_LIMIT_REACHED when too many wait already.
#define BUF_WAITERS_MAX 1024
MAY_WAIT enum err buf_get_wait(size_t bytes, struct buf **out) NODISCARD;
void buf_ref(struct buf *b);
void buf_put(struct buf *b); // NULL is allowed; any core
// Bytes of buffer memory of this core: in all, and taken now.
void buf_usage(size_t *total_bytes, size_t *used_bytes);
