// SPDX-License-Identifier: Apache-2.0
// The few calls on sockets that the I/O engine does not carry. None of them blocks. Private to
// net/.
#pragma once

#include "base/types.h"

// A fresh connection: takes O_NONBLOCK off (io_uring would answer EAGAIN instead of waiting) and
// writes the peer's "address:port".
void socket_prepare(int fd, char *peer, size_t cap);
// No more bytes from our side.
void socket_shutdown_write(int fd);
// Makes the close that follows a reset.
void socket_set_reset(int fd);
// For a descriptor that no operation uses.
void socket_close(int fd);
