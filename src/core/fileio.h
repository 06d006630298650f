// SPDX-License-Identifier: Apache-2.0
// File I/O for fibers. Transfers are whole: a short read is ERR_END, a short write is continued.
// Not cancellable: the kernel has the buffer until it completes, and drives answer.
#pragma once

#include "core/fiber.h"

MAY_WAIT enum err fileio_read(int fd, void *buf, size_t len, u64 offset) NODISCARD;
MAY_WAIT enum err fileio_write(int fd, const void *buf, size_t len, u64 offset) NODISCARD;
MAY_WAIT enum err fileio_flush(int fd) NODISCARD;
// A write and an fdatasync, linked: one suspension.
MAY_WAIT enum err fileio_write_flush(int fd, const void *buf, size_t len, u64 offset) NODISCARD;
// A write that is durable when it returns, without a word about earlier writes to the file: for a
// filesystem one step, where a write and a flush are two.
MAY_WAIT enum err fileio_write_durable(int fd, const void *buf, size_t len, u64 offset) NODISCARD;
// Any io_op, waited for: returns op->result. Sets op->done and op->user itself. Another fiber may
// end it early with an IO_CANCEL of `op`.
MAY_WAIT i32 io_run(struct io_op *op);
