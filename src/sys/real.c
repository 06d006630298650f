// SPDX-License-Identifier: Apache-2.0
// The real sys: Linux. Clocks and randomness, and the check that this kernel can carry Leat. The
// object holds no state that changes, so any thread may use it; each I/O engine belongs to one.
#include "sys/real.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <time.h>

#define KERNEL_MAJOR_MIN 6
#define KERNEL_MINOR_MIN 1

static void real_destroy(struct sys *s)
{
    struct sys_real *real = sys_real_of(s);
    ASSERT(__atomic_load_n(&real->engines_live, __ATOMIC_ACQUIRE) == 0);
    real->magic = 0;
    free(real);
}

static u64 clock_ns(clockid_t id)
{
    struct timespec ts;
    int rc = clock_gettime(id, &ts);
    ASSERT(rc == 0);
    return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}

static u64 real_clock_mono_ns(struct sys *s)
{
    (void)s;
    return clock_ns(CLOCK_MONOTONIC);
}

static u64 real_clock_wall_ns(struct sys *s)
{
    (void)s;
    return clock_ns(CLOCK_REALTIME);
}

// Fills from the kernel's generator. It cannot fail once the kernel has booted, short of EINTR.
static void real_random_bytes(struct sys *s, void *out, size_t len)
{
    (void)s;
    u8 *next = out;
    while (len > 0) {
        ssize_t n = getrandom(next, len, 0);
        if (n < 0) {
            ASSERT(errno == EINTR);
            continue;
        }
        next += n;
        len -= (size_t)n;
    }
}

// Says in one line what the user can do about a kernel that does not offer io_uring.
static enum err check_kernel(void)
{
    struct utsname name;
    unsigned major = 0;
    unsigned minor = 0;
    if (uname(&name) != 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2) {
        LOG_ERROR("kernel_unknown",
                  "hint=\"uname gave no version; Linux %d.%d or newer is needed\"",
                  KERNEL_MAJOR_MIN, KERNEL_MINOR_MIN);
        return ERR_UNSUPPORTED;
    }
    if (major < KERNEL_MAJOR_MIN || (major == KERNEL_MAJOR_MIN && minor < KERNEL_MINOR_MIN)) {
        LOG_ERROR("kernel_too_old", "release=%s hint=\"Linux %d.%d or newer is needed\"",
                  name.release, KERNEL_MAJOR_MIN, KERNEL_MINOR_MIN);
        return ERR_UNSUPPORTED;
    }
    int rc = uring_probe();
    if (rc == 0) {
        return OK;
    }
    const char *hint = "see the errno";
    if (rc == -EPERM || rc == -EACCES) {
        hint =
            "io_uring is forbidden: set sysctl kernel.io_uring_disabled=0, or allow the io_uring "
            "system calls in the container's seccomp profile";
    } else if (rc == -ENOSYS) {
        hint = "this kernel or sandbox has no io_uring";
    } else if (rc == -ENOMEM) {
        hint = "raise the limit of locked memory (ulimit -l)";
    } else if (rc == -EMFILE || rc == -ENFILE) {
        hint = "raise the limit of open files (ulimit -n)";
    }
    LOG_ERROR("io_uring_unavailable", "errno=%d hint=\"%s\"", -rc, hint);
    return rc == -EMFILE || rc == -ENFILE ? ERR_LIMIT_REACHED : ERR_UNSUPPORTED;
}

static const struct sys_ops real_ops = {
    .destroy = real_destroy,
    .clock_mono_ns = real_clock_mono_ns,
    .clock_wall_ns = real_clock_wall_ns,
    .random_bytes = real_random_bytes,
    .file_open = real_file_open,
    .file_close = real_file_close,
    .file_size = real_file_size,
    .file_allocate = real_file_allocate,
    .file_read = real_file_read,
    .file_write = real_file_write,
    .file_flush = real_file_flush,
    .file_rename = real_file_rename,
    .file_remove = real_file_remove,
    .dir_create = real_dir_create,
    .dir_list = real_dir_list,
    .dir_flush = real_dir_flush,
    .dir_space = real_dir_space,
    .io_create = uring_create,
};

enum err sys_real_create(struct sys **out)
{
    TRY(check_kernel());
    struct sys_real *real = calloc(1, sizeof(*real));
    if (real == NULL) {
        return ERR_NO_MEMORY;
    }
    real->base.ops = &real_ops;
    real->magic = SYS_REAL_MAGIC;
    *out = &real->base;
    return OK;
}
