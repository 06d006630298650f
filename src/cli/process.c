// SPDX-License-Identifier: Apache-2.0
// No state: each function is one question to the kernel.
#include "cli/process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

_Static_assert(sizeof(struct signalfd_siginfo) == PROCESS_SIGNAL_BYTES, "the kernel's record");

// One write a line, so that lines of several threads do not mix. A line that cannot be written is
// lost: there is no place left to say so.
static void stderr_line(enum log_level level, const char *line, size_t len)
{
    (void)level;
    struct iovec iov[2] = {
        {.iov_base = (void *)(uintptr_t)line, .iov_len = len},
        {.iov_base = (void *)(uintptr_t) "\n", .iov_len = 1},
    };
    ssize_t n;
    do {
        n = writev(STDERR_FILENO, iov, 2);
    } while (n < 0 && errno == EINTR);
}

u64 process_wall_ns(void)
{
    struct timespec ts;
    int rc = clock_gettime(CLOCK_REALTIME, &ts);
    ASSERT(rc == 0);
    return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}

void process_log_init(enum log_level level, bool is_json)
{
    log_init(stderr_line, process_wall_ns, level, is_json);
}

int process_signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
        return -1;
    }
    // Blocking: the I/O engine waits for it. (Non-blocking, it would answer EAGAIN at once.)
    return signalfd(-1, &set, SFD_CLOEXEC);
}

enum process_signal process_signal_of(const void *record)
{
    struct signalfd_siginfo info;
    memcpy(&info, record, sizeof(info));
    if (info.ssi_signo == SIGHUP) {
        return PROCESS_SIGNAL_RELOAD;
    }
    bool is_stop = info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
    return is_stop ? PROCESS_SIGNAL_STOP : PROCESS_SIGNAL_NONE;
}

void process_fd_close(int fd)
{
    close(fd);
}

u64 process_files_raise(void)
{
    struct rlimit limit;
    int rc = getrlimit(RLIMIT_NOFILE, &limit);
    ASSERT(rc == 0);
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            limit = raised;
        }
    }
    return limit.rlim_cur;
}

enum err process_file_mode(const char *path, u32 *out_mode)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return err_from_errno(errno);
    }
    *out_mode = st.st_mode & 07777;
    return OK;
}

_Noreturn void process_exit_now(int code)
{
    _exit(code);
}
