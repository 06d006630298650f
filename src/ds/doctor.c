// SPDX-License-Identifier: Apache-2.0
// The doctor: what is present, what would be used, what to fix. Probes the system itself, and the
// driver through its public calls, so that what it says is what a program would get.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ds/driver.h"

struct report {
    char *text;
    size_t size;
    size_t used;
    unsigned problems;
};

static void say(struct report *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(struct report *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t room = r->used < r->size ? r->size - r->used : 0;
    int n = vsnprintf(room > 0 ? r->text + r->used : NULL, room, fmt, args);
    va_end(args);
    r->used += n > 0 ? (size_t)n : 0;
}

#define FIX(r, ...)                                                                                \
    do {                                                                                           \
        (r)->problems++;                                                                           \
        say((r), "  fix: " __VA_ARGS__);                                                           \
    } while (0)

static void report_system(struct report *r)
{
    struct utsname u;
    struct rlimit files;
    struct rlimit locked;
    uname(&u);
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    say(r, "library   libopends %d.%d.%d\n", DS_VERSION_MAJOR, DS_VERSION_MINOR, DS_VERSION_PATCH);
    say(r, "kernel    %s %s\n", u.sysname, u.release);
    say(r, "limits    %llu descriptors, ", (unsigned long long)files.rlim_cur);
    if (locked.rlim_cur == RLIM_INFINITY || geteuid() == 0) {
        say(r, "locked memory unlimited\n");
    } else {
        say(r, "%llu KiB locked memory\n", (unsigned long long)locked.rlim_cur / 1024);
        if (locked.rlim_cur < 64 * MIB) {
            FIX(r, "raise RLIMIT_MEMLOCK (ulimit -l) to 65536 KiB, or buffers are pinned for every "
                   "request\n");
        }
    }
    if (files.rlim_cur < 4096) {
        FIX(r, "raise RLIMIT_NOFILE (ulimit -n): each handle keeps one or two descriptors\n");
    }
    if (access("/proc/self/fd", X_OK) != 0) {
        FIX(r, "mount /proc: files opened without O_DIRECT cannot be reopened without it\n");
    }
}

static void report_backends(struct report *r)
{
    const struct ds_config *c = ds_config();
    say(r, "backend   OPENDS_BACKEND=%s, policy %s\n",
        c->backend < 0 ? "auto" : ds_backend((enum ds_backend_id)c->backend)->name,
        ds_policy_name(c->policy));
    for (u32 id = 0; id < DS_BACKEND_COUNT; id++) {
        const char *why;
        bool is_present = ds_backend_is_present((enum ds_backend_id)id, &why);
        const char *name = ds_backend((enum ds_backend_id)id)->name;
        if (is_present) {
            say(r, "  %-6s present\n", name);
            continue;
        }
        say(r, "  %-6s absent: %s\n", name, why);
        if (id == DS_URING) {
            FIX(r, "allow io_uring: without it every call is a plain pread or pwrite\n");
        } else if (c->backend == (int)id) {
            FIX(r, "the backend that OPENDS_BACKEND asks for cannot be used\n");
        }
    }
    say(r, "accel     %s", ds_accel_current()->name);
    if (ds_accel_current() == ds_accel_host() && c->accel != DS_ACCEL_HOST) {
        say(r, " (%s)", ds_driver()->accel_missing);
    }
    say(r, "\n");
}

static const char *path_name(opends_path_t path)
{
    switch (path) {
    case OPENDS_PATH_BUFFERED:
        return "page cache";
    case OPENDS_PATH_DIRECT:
        return "direct";
    case OPENDS_PATH_GDS:
        return "cuFile";
    case OPENDS_PATH_PASSTHROUGH:
        return "NVMe passthrough";
    }
    return "?";
}

// Opens the path (a new file in it when it is a folder) and asks which way its I/O would go.
static void report_path(struct report *r, const char *path)
{
    struct stat st;
    opends_handle_t h;
    opends_path_info_t info;
    if (stat(path, &st) != 0) {
        say(r, "path      %s: %s\n", path, strerror(errno));
        FIX(r, "name a file or a folder that exists\n");
        return;
    }
    bool is_folder = S_ISDIR(st.st_mode);
    int fd = open(path, is_folder ? O_RDWR | O_TMPFILE | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        say(r, "path      %s cannot be opened: %s\n", path, strerror(errno));
        FIX(r, "%s\n",
            is_folder ? "name a file, or a folder that may be written" : "check its permissions");
        return;
    }
    opends_error_t e = opends_handle_register(&h, fd);
    close(fd);
    if (e.err != OPENDS_SUCCESS) {
        say(r, "path      %s cannot be used: %s\n", path, opends_last_error());
        FIX(r, "use another filesystem, or OPENDS_POLICY=auto\n");
        return;
    }
    (void)opends_handle_path(h, &info);
    say(r, "path      %s: %s by %s, device %u:%u", path, path_name(info.path), info.backend,
        info.device_major, info.device_minor);
    if (info.offset_align != 0) {
        say(r, ", offsets in %u, memory in %u bytes", info.offset_align, info.memory_align);
    }
    say(r, "\n");
    if (info.reason[0] != 0) {
        say(r, "  not better: %s\n", info.reason);
    }
    if (info.path == OPENDS_PATH_BUFFERED && ds_config()->backend != DS_REF &&
        ds_config()->policy != DS_POLICY_COMPAT) {
        FIX(r, "put the data on a filesystem with O_DIRECT (XFS, ext4)\n");
    }
    opends_handle_deregister(h);
}

ssize_t opends_doctor(const char *path, char *text, size_t size, unsigned *problems)
{
    struct report r = {.text = text, .size = text == NULL ? 0 : size};
    if (r.size > 0) {
        text[0] = 0;
    }
    report_system(&r);
    bool was_open = ds_is_open();
    opends_error_t e = was_open ? ds_ok() : opends_driver_open();
    if (e.err != OPENDS_SUCCESS) {
        say(&r, "driver    does not open: %s\n", opends_last_error());
        FIX(&r, "correct the environment\n");
    } else {
        report_backends(&r);
        if (path != NULL) {
            report_path(&r, path);
        }
        if (!was_open) {
            (void)opends_driver_close();
        }
    }
    say(&r, "result    %u to fix\n", r.problems);
    if (problems != NULL) {
        *problems = r.problems;
    }
    return (ssize_t)r.used;
}
