// SPDX-License-Identifier: Apache-2.0
// Namespaces: from a file's device to the NVMe character device that takes passthrough commands,
// its block size and limits; and the transport that sends commands through the kernel's driver.
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <liburing.h>

#include "base/endian.h"
#include "ds/backends.h"
#include "ds/driver.h"
#include "ds/nvme.h"
#include "ds/nvme_device.h"

#define NVME_COMMAND_BYTES_MAX (1 * MIB) // below every controller's count of 65,536 blocks

static struct ds_nvme_table *table(void)
{
    return &ds_driver()->nvme;
}

void ds_nvme_init(void)
{
    pthread_mutex_init(&table()->lock, NULL);
    table()->count = 0;
}

void ds_nvme_close_all(void)
{
    for (u32 i = 0; i < table()->count; i++) {
        close(table()->devices[i]->fd);
        free(table()->devices[i]);
    }
    table()->count = 0;
    pthread_mutex_destroy(&table()->lock);
}

// Reads a small number from a sysfs file; false when it is not there.
static bool read_number(const char *folder, const char *name, u64 *out)
{
    char path[512];
    char text[32] = "";
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    bool is_read = fgets(text, sizeof(text), f) != NULL;
    fclose(f);
    char *end;
    *out = strtoull(text, &end, 10);
    return is_read && end != text;
}

// The block size in use and whether blocks carry metadata, by the Identify command.
static int identify(struct ds_nvme_device *d, u32 *metadata_bytes)
{
    u8 *data = aligned_alloc(4096, 4096);
    if (data == NULL) {
        return ENOMEM;
    }
    memset(data, 0, 4096);
    struct nvme_passthru_cmd c = {
        .opcode = 0x06,
        .nsid = d->nsid,
        .addr = (u64)(uintptr_t)data,
        .data_len = 4096,
        .cdw10 = 0, // this namespace
    };
    int rc = ioctl(d->fd, NVME_IOCTL_ADMIN_CMD, &c);
    int sys_errno = rc == 0 ? 0 : rc < 0 ? errno : EIO;
    u32 format = (data[26] & 15u) | (data[26] >> 1 & 0x30u);
    const u8 *row = data + 128 + 4 * format;
    *metadata_bytes = load_le16(row);
    if (sys_errno == 0 && (row[2] < 9 || row[2] > 12)) {
        sys_errno = EMEDIUMTYPE;
    }
    d->block_bytes = 1u << (row[2] & 15);
    free(data);
    return sys_errno;
}

static bool open_namespace(struct ds_nvme_device *d, const char *block_folder, char *why,
                           size_t size)
{
    unsigned controller;
    unsigned id;
    int end = 0;
    u64 sectors_kib = 128;
    const char *name = strrchr(block_folder, '/') + 1;
    if (sscanf(name, "nvme%un%u%n", &controller, &id, &end) != 2 || name[end] != 0) {
        snprintf(why, size, "%s is no NVMe namespace", name);
        return false;
    }
    snprintf(d->name, sizeof(d->name), "/dev/ng%un%u", controller, id);
    d->fd = open(d->name, O_RDWR | O_CLOEXEC);
    if (d->fd < 0) {
        snprintf(why, size, "%s: %s", d->name, strerror(errno));
        return false;
    }
    int nsid = ioctl(d->fd, NVME_IOCTL_ID);
    u32 metadata_bytes = 0;
    d->nsid = (u32)nsid;
    int rc = nsid <= 0 ? ENOTTY : identify(d, &metadata_bytes);
    if (rc != 0 || metadata_bytes != 0) {
        snprintf(why, size, "%s: %s", d->name,
                 rc != 0 ? strerror(rc) : "blocks carry metadata, which is not supported");
        close(d->fd);
        return false;
    }
    (void)read_number(block_folder, "queue/max_hw_sectors_kb", &sectors_kib);
    d->command_bytes_max = MIN(MAX(sectors_kib * KIB, 4 * KIB), NVME_COMMAND_BYTES_MAX);
    // Passthrough commands are never split: scattered pages, one more for an unaligned start, must
    // fit.
    u64 segments = 33;
    (void)read_number(block_folder, "queue/max_segments", &segments);
    d->command_bytes_max = MIN(d->command_bytes_max, (MAX(segments, (u64)2) - 1) * 4096);
    return true;
}

// A mount with data=journal keeps file data in the journal, where no map points.
static bool is_data_journalled(u64 device)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t line_size = 0;
    char want[32];
    bool is_found = false;
    if (f == NULL) {
        return true; // unknown: do not trust it
    }
    snprintf(want, sizeof(want), " %u:%u ", major(device), minor(device));
    while (!is_found && getline(&line, &line_size, f) >= 0) {
        is_found = strstr(line, want) != NULL && strstr(line, "data=journal") != NULL;
    }
    free(line);
    fclose(f);
    return is_found;
}

// From the block device's folder in sysfs, which is cut down to the whole disk's.
static struct ds_nvme_device *device_make_at(u64 device, char *folder, char *why, size_t size)
{
    u64 number;
    struct ds_nvme_device *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        snprintf(why, size, "out of memory");
        return NULL;
    }
    d->device = device;
    if (read_number(folder, "partition", &number)) {
        (void)read_number(folder, "start", &number);
        d->start_bytes = number * 512;
        *strrchr(folder, '/') = 0;
    }
    bool is_journalled = is_data_journalled(device);
    if (is_journalled) {
        snprintf(why, size, "the filesystem journals data");
    }
    if (is_journalled || !open_namespace(d, folder, why, size)) {
        free(d);
        return NULL;
    }
    return d;
}

static struct ds_nvme_device *device_make(u64 device, char *why, size_t size)
{
    char link[64];
    snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(device), minor(device));
    char *folder = realpath(link, NULL);
    if (folder == NULL) {
        snprintf(why, size, "the filesystem is on no block device (%u:%u)", major(device),
                 minor(device));
        return NULL;
    }
    struct ds_nvme_device *d = device_make_at(device, folder, why, size);
    free(folder);
    return d;
}

struct ds_nvme_device *ds_nvme_device_get(u64 device, char *why, size_t size)
{
    struct ds_nvme_table *t = table();
    struct ds_nvme_device *found = NULL;
    pthread_mutex_lock(&t->lock);
    for (u32 i = 0; i < t->count; i++) {
        found = t->devices[i]->device == device ? t->devices[i] : found;
    }
    if (found == NULL && t->count == DS_NVME_DEVICES_MAX) {
        snprintf(why, size, "more than %u namespaces", DS_NVME_DEVICES_MAX);
    } else if (found == NULL) {
        found = device_make(device, why, size);
        if (found != NULL) {
            t->devices[t->count++] = found;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

bool ds_nvme_any_present(char *why, size_t size)
{
    glob_t g;
    bool is_usable = false;
    if (glob("/dev/ng*n*", 0, NULL, &g) != 0) {
        snprintf(why, size, "no NVMe character device (/dev/ngXnY, Linux 5.13 and later)");
        return false;
    }
    for (size_t i = 0; i < g.gl_pathc && !is_usable; i++) {
        is_usable = access(g.gl_pathv[i], R_OK | W_OK) == 0;
    }
    if (!is_usable) {
        snprintf(why, size, "no permission to use %s", g.gl_pathv[0]);
    }
    globfree(&g);
    return is_usable;
}

static void kernel_prepare(const struct ds_nvme_device *d, struct io_uring_sqe *sqe, bool is_write,
                           u64 device_at, void *memory, u32 bytes, bool is_durable)
{
    ASSERT(device_at % d->block_bytes == 0 && bytes % d->block_bytes == 0 && bytes > 0);
    u64 first = device_at / d->block_bytes;
    struct nvme_uring_cmd c = {
        .opcode = is_write ? 0x01 : 0x02,
        .nsid = d->nsid,
        .addr = (u64)(uintptr_t)memory,
        .data_len = bytes,
        .cdw10 = (u32)first,
        .cdw11 = (u32)(first >> 32),
        .cdw12 = (bytes / d->block_bytes - 1) | (is_write && is_durable ? 1u << 30 : 0),
    };
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = d->fd;
    sqe->cmd_op = NVME_URING_CMD_IO;
    memcpy(sqe->cmd, &c, sizeof(c));
}

const struct ds_nvme_transport *ds_nvme_transport_kernel(void)
{
    static const struct ds_nvme_transport transport = {
        .name = "kernel passthrough",
        .prepare = kernel_prepare,
    };
    return &transport;
}
