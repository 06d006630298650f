// SPDX-License-Identifier: Apache-2.0
// A namespace as the nvme backend sees it. Made once per filesystem device, kept until close.
#pragma once

#include "base/types.h"

struct ds_nvme_device {
    u64 device;      // st_dev of the files on it
    u64 start_bytes; // of the partition
    u64 command_bytes_max;
    u32 nsid;
    u32 block_bytes;
    int fd;
    char name[32];
};

// The namespace under a filesystem device; NULL with the reason in `why`.
struct ds_nvme_device *ds_nvme_device_get(u64 device, char *why, size_t size);
bool ds_nvme_any_present(char *why, size_t size);
