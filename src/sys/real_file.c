// SPDX-License-Identifier: Apache-2.0
// Blocking file calls of the real sys, for start-up and the helper pool. Errors are returned, not
// logged: the caller knows which drive and which file it was about.
#include "sys/real.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Zeros are written in pieces of this size.
#define ZERO_BYTES MIB

static int open_flags(unsigned flags)
{
    int result = O_CLOEXEC;
    bool is_written = (flags & SYS_OPEN_WRITE) != 0;
    if (is_written) {
        result |= (flags & SYS_OPEN_READ) != 0 ? O_RDWR : O_WRONLY;
    } else {
        result |= O_RDONLY;
    }
    result |= (flags & SYS_OPEN_CREATE) != 0 ? O_CREAT : 0;
    result |= (flags & SYS_OPEN_EXCLUSIVE) != 0 ? O_EXCL : 0;
    result |= (flags & SYS_OPEN_DIRECT) != 0 ? O_DIRECT : 0;
    return result;
}

enum err real_file_open(struct sys *s, const char *path, unsigned flags, int *out_fd)
{
    (void)s;
    ASSERT((flags & (SYS_OPEN_READ | SYS_OPEN_WRITE)) != 0);
    ASSERT((flags & SYS_OPEN_EXCLUSIVE) == 0 || (flags & SYS_OPEN_CREATE) != 0);
    mode_t mode = (flags & SYS_OPEN_PRIVATE) != 0 ? 0600 : 0640;
    int fd;
    do {
        fd = open(path, open_flags(flags), mode);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        // A filesystem without direct I/O says EINVAL.
        bool is_refused = errno == EINVAL && (flags & SYS_OPEN_DIRECT) != 0;
        return is_refused ? ERR_UNSUPPORTED : err_from_errno(errno);
    }
    if ((flags & SYS_OPEN_LOCK) != 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        enum err e = errno == EWOULDBLOCK ? ERR_IN_USE : err_from_errno(errno);
        close(fd);
        return e;
    }
    *out_fd = fd;
    return OK;
}

void real_file_close(struct sys *s, int fd)
{
    (void)s;
    // What must be durable was flushed; after that an error of close says nothing new.
    int rc = close(fd);
    ASSERT(rc == 0 || errno != EBADF);
}

enum err real_file_size(struct sys *s, int fd, u64 *out)
{
    (void)s;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return err_from_errno(errno);
    }
    *out = (u64)st.st_size;
    return OK;
}

// Zeros go through page-aligned memory of their own, so that direct descriptors take them too.
static enum err write_zeros(struct sys *s, int fd, u64 bytes)
{
    void *zeros = mmap(NULL, ZERO_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zeros == MAP_FAILED) {
        return ERR_NO_MEMORY;
    }
    enum err e = OK;
    for (u64 at = 0; at < bytes && e == OK; at += ZERO_BYTES) {
        e = real_file_write(s, fd, zeros, (size_t)MIN(bytes - at, (u64)ZERO_BYTES), at);
    }
    munmap(zeros, ZERO_BYTES);
    return e;
}

enum err real_file_allocate(struct sys *s, int fd, u64 bytes, bool is_zeroed)
{
    int rc;
    do {
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    } while (rc != 0 && errno == EINTR);
    // A filesystem that cannot reserve (EOPNOTSUPP) still takes the zeros.
    if (rc != 0 && !(errno == EOPNOTSUPP && is_zeroed)) {
        return err_from_errno(errno);
    }
    if (!is_zeroed) {
        return OK;
    }
    TRY(write_zeros(s, fd, bytes));
    // Until the zeros are on the drive the extents count as unwritten, and the next flush would
    // have to convert them: the metadata write that this call exists to avoid.
    return real_file_flush(s, fd);
}

enum err real_file_read(struct sys *s, int fd, void *buf, size_t len, u64 offset)
{
    (void)s;
    u8 *next = buf;
    while (len > 0) {
        ssize_t n = pread(fd, next, len, (off_t)offset);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return err_from_errno(errno);
        }
        if (n == 0) {
            return ERR_END;
        }
        next += n;
        len -= (size_t)n;
        offset += (u64)n;
    }
    return OK;
}

enum err real_file_write(struct sys *s, int fd, const void *buf, size_t len, u64 offset)
{
    (void)s;
    const u8 *next = buf;
    while (len > 0) {
        ssize_t n = pwrite(fd, next, len, (off_t)offset);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return err_from_errno(errno);
        }
        if (n == 0) {
            return ERR_IO; // a drive that takes nothing would spin here for ever
        }
        next += n;
        len -= (size_t)n;
        offset += (u64)n;
    }
    return OK;
}

enum err real_file_flush(struct sys *s, int fd)
{
    (void)s;
    int rc;
    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 ? OK : err_from_errno(errno);
}
