// SPDX-License-Identifier: Apache-2.0
// Asynchronous I/O of one core. An operation is a struct that its owner keeps alive until `done` is
// called: exactly once, later, from io_engine_poll, never from io_submit. Operations cannot fail to
// be submitted: when the kernel's queue is full they wait in the engine. An operation that carries
// IO_FLAG_LINK and the one that follows it are submitted one after the other, with no poll between;
// when the first fails or is short, the second ends with -ECANCELED.
//
// An engine belongs to the first thread that polls it; only wake may be called by another.
//
// Results: >= 0 a count (bytes, or the new descriptor), < 0 a negated errno. A cancelled operation
// ends with -ECANCELED (or with its result, if that came first); the IO_CANCEL itself with 0,
// -ENOENT (the target had completed) or -EALREADY (it cannot be stopped any more).
#pragma once

#include "base/assert.h"
#include "base/list.h"
#include "base/types.h"

#include <sys/socket.h>
#include <sys/uio.h>

enum io_kind {
    IO_READ = 1, // file: fd, buf, len, offset
    IO_WRITE,    // file: fd, buf, len, offset
    IO_WRITEV,   // file: fd, iov, iov_count, offset
    IO_FLUSH,    // file: fdatasync(fd)
    IO_ACCEPT,   // socket: one connection; result is its descriptor, non-blocking, close-on-exec
    IO_RECV,     // socket: buf, len; with IO_FLAG_WAITALL only short at the end or on error
    IO_SEND,     // socket: buf, len; with IO_FLAG_WAITALL sends all
    IO_SENDMSG,  // socket: msg (iovecs must stay alive)
    IO_CONNECT,  // socket: addr, addr_len
    IO_CLOSE,    // fd
    IO_CANCEL,   // asks for `target` to end early; target's own `done` still comes
};

#define IO_FLAG_WAITALL 0x01u
#define IO_FLAG_MORE    0x02u // MSG_MORE
#define IO_FLAG_FIXED   0x04u // READ/WRITE: buf lies in the engine's registered memory
#define IO_FLAG_LINK                                                                               \
    0x08u // the next submitted operation starts when this one succeeded (WRITE then FLUSH)
#define IO_FLAG_DURABLE                                                                            \
    0x20u // WRITE: when it completes, these bytes are durable (nothing is said of earlier ones)
#define IO_FLAG_SELECT                                                                             \
    0x10u // RECV: the engine picks one of its receive buffers; see io_recv_buffer

enum io_state { IO_IDLE, IO_IN_FLIGHT };

struct io_op {
    u8 kind;  // enum io_kind
    u8 state; // enum io_state
    u16 flags;
    int fd;
    union {
        void *buf;
        const void *const_buf;
        const struct iovec *iov;
        struct msghdr *msg;
        struct io_op *target;
        struct sockaddr *addr;
    };
    u64 offset;
    u32 len; // bytes, iovec count or addr_len; at most IO_BYTES_MAX
    i32 result;
    u32 recv_id; // RECV with SELECT: which receive buffer holds the bytes; give it back
    void (*done)(struct io_op *op);
    void *user;        // the owner's own; no engine looks at it
    struct list queue; // the engine's
};

#define IO_BYTES_MAX ((u32)1 << 30)

// recv_id of a RECV that holds no receive buffer.
#define IO_RECV_NONE UINT32_MAX

struct io_engine;

struct io_engine_ops {
    // Every operation must have completed.
    void (*destroy)(struct io_engine *e);
    void (*submit)(struct io_engine *e, struct io_op *op);
    // Submits what is queued, waits up to timeout_ns for a completion (0: only looks; UINT64_MAX:
    // no limit) or for io_engine_wake, and calls `done` for everything that completed.
    void (*poll)(struct io_engine *e, u64 timeout_ns);
    // Makes a poll of this engine return. Callable from any thread.
    void (*wake)(struct io_engine *e);
    // Registers the core's buffer memory for IO_FLAG_FIXED; false if the kernel refuses (then the
    // flag is ignored).
    bool (*register_memory)(struct io_engine *e, void *base, size_t bytes);
    // Receive buffers for IO_FLAG_SELECT: `count` (a power of two, at most 32768) of `bytes` each;
    // one pool an engine: asking again for the same one is fine, for another is false. False if the
    // kernel refuses. A RECV that finds none free ends with -ENOBUFS:
    // its owner tries again when one was recycled. It holds a buffer only if its result is > 0.
    bool (*recv_pool)(struct io_engine *e, u32 count, u32 bytes);
    u8 *(*recv_buffer)(struct io_engine *e, u32 recv_id);
    void (*recv_recycle)(struct io_engine *e, u32 recv_id);
};

struct io_engine {
    const struct io_engine_ops *ops;
};

static inline void io_submit(struct io_engine *e, struct io_op *op)
{
    ASSERT(op->state == IO_IDLE && op->done != NULL && op->kind != 0);
    op->state = IO_IN_FLIGHT;
    e->ops->submit(e, op);
}
