// SPDX-License-Identifier: Apache-2.0
// Blocking directory calls of the real sys. A rename or a new name is durable only after dir_flush
// of the directory that holds it: callers do that, because they know when one flush serves many.
#include "sys/real.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum err real_file_rename(struct sys *s, const char *from, const char *to)
{
    (void)s;
    return rename(from, to) == 0 ? OK : err_from_errno(errno);
}

enum err real_file_remove(struct sys *s, const char *path)
{
    (void)s;
    return unlink(path) == 0 ? OK : err_from_errno(errno);
}

enum err real_dir_create(struct sys *s, const char *path)
{
    (void)s;
    return mkdir(path, 0750) == 0 ? OK : err_from_errno(errno);
}

enum err real_dir_list(struct sys *s, const char *path, sys_dir_fn fn, void *arg)
{
    (void)s;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return err_from_errno(errno);
    }
    enum err e = OK;
    while (e == OK) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            e = errno == 0 ? OK : err_from_errno(errno);
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            e = fn(arg, entry->d_name);
        }
    }
    closedir(dir);
    return e;
}

enum err real_dir_flush(struct sys *s, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_from_errno(errno);
    }
    enum err e = real_file_flush(s, fd);
    close(fd);
    return e;
}

enum err real_dir_space(struct sys *s, const char *path, struct sys_space *out)
{
    (void)s;
    struct statvfs st;
    if (statvfs(path, &st) != 0) {
        return err_from_errno(errno);
    }
    out->total_bytes = (u64)st.f_blocks * st.f_frsize;
    out->free_bytes = (u64)st.f_bavail * st.f_frsize;
    return OK;
}
