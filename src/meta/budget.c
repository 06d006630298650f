// SPDX-License-Identifier: Apache-2.0
#include "meta/budget.h"

#include "base/assert.h"

void budget_init(struct budget *b)
{
    size_t total;
    size_t used;
    buf_usage(&total, &used);
    semaphore_init(&b->in, total / 2, BUDGET_WAITERS_MAX);
    semaphore_init(&b->out, total / 4, BUDGET_WAITERS_MAX);
}

// The pool's size classes (core/buf.h).
u64 budget_charge(size_t bytes)
{
    static const u32 classes[] = {4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB + 4 * KIB, 4 * MIB};
    ASSERT(bytes <= BUF_BYTES_MAX);
    u32 i = 0;
    while (bytes > classes[i]) {
        i++;
    }
    return classes[i];
}

MAY_WAIT enum err budget_buf_get(struct semaphore *s, size_t bytes, struct buf **out)
{
    u64 charge = budget_charge(bytes);
    TRY(semaphore_take(s, charge));
    enum err e = buf_get_wait(bytes, out);
    if (e != OK) {
        semaphore_give(s, charge);
        return e;
    }
    ASSERT((*out)->capacity_bytes == charge);
    return OK;
}

void budget_buf_put(struct semaphore *s, struct buf *buf)
{
    if (buf == NULL) {
        return;
    }
    u64 charge = buf->refs == 1 ? buf->capacity_bytes : 0;
    buf_put(buf);
    if (charge > 0) {
        semaphore_give(s, charge);
    }
}
