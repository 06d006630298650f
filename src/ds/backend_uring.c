// SPDX-License-Identifier: Apache-2.0
// The io_uring backend: the table's row. The work is in ring.c, plan.c, piece.c and engine.c.
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>

#include "ds/backends.h"

static bool uring_probe(char *why, size_t why_size)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(4, &ring, 0);
    if (rc < 0) {
        snprintf(why, why_size, "io_uring cannot be set up: %s%s", strerror(-rc),
                 rc == -EPERM ? " (see the sysctl kernel.io_uring_disabled)" : "");
        return false;
    }
    struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
    bool is_enough = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
                     io_uring_opcode_supported(probe, IORING_OP_ASYNC_CANCEL);
    if (!is_enough) {
        snprintf(why, why_size, "this kernel's io_uring lacks READ, WRITE or ASYNC_CANCEL");
    }
    io_uring_free_probe(probe);
    io_uring_queue_exit(&ring);
    return is_enough;
}

const struct ds_backend *ds_backend_uring(void)
{
    static const struct ds_backend backend = {.name = "uring", .probe = uring_probe};
    return &backend;
}
