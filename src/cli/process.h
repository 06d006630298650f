// SPDX-License-Identifier: Apache-2.0
// What a server asks of its process rather than of sys: signals, the limit of open files, standard
// error, and the end. The only file of cli/ that calls the kernel; nothing here is simulated.
#pragma once

#include "base/err.h"
#include "base/log.h"

// Lines to standard error, stamped with the wall clock. Called again to change the format.
void process_log_init(enum log_level level, bool is_json);
u64 process_wall_ns(void);

// Blocks SIGTERM, SIGINT and SIGHUP for the calling thread and those it starts, ignores SIGPIPE,
// and gives a descriptor from which the three are read. -1 on failure.
int process_signals_open(void);
// The descriptor's records.
#define PROCESS_SIGNAL_BYTES 128
enum process_signal { PROCESS_SIGNAL_NONE, PROCESS_SIGNAL_STOP, PROCESS_SIGNAL_RELOAD };
enum process_signal process_signal_of(const void *record);
void process_fd_close(int fd);

// Raises the soft limit of open files to the hard one and gives it.
u64 process_files_raise(void);
// Permission bits of a file; ERR_NOT_FOUND if it is absent. A credentials_mode_fn.
enum err process_file_mode(const char *path, u32 *out_mode);
// Ends the process without cleaning up.
_Noreturn void process_exit_now(int code);
