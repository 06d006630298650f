// SPDX-License-Identifier: Apache-2.0
// How much of a core's buffer memory requests may hold: half of it for bytes on their way in, a
// quarter for bytes on their way out. The rest stays for the store, whose writes need memory
// themselves: were it all in the frames of writers that wait for those writes, nothing would ever
// move again. Waiting is FIFO and bounded (ERR_LIMIT_REACHED, that is 503 SlowDown).
//
// Memory is charged on the core that owns it, by what the pool really gives.
#pragma once

#include "core/buf.h"
#include "core/fiber.h"

#define BUDGET_WAITERS_MAX 4096

struct budget {
    struct semaphore in;  // bytes
    struct semaphore out; // bytes
};

// On the core itself.
void budget_init(struct budget *b);
MAY_WAIT enum err budget_buf_get(struct semaphore *s, size_t bytes, struct buf **out) NODISCARD;
// Drops a reference; the last one gives the bytes back. On the core that owns the buffer.
void budget_buf_put(struct semaphore *s, struct buf *buf);
// For buffers that somebody else gets: charge before, return after.
u64 budget_charge(size_t bytes);
