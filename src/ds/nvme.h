// SPDX-License-Identifier: Apache-2.0
// NVMe passthrough: where a file's bytes lie on a namespace, and whether that may be trusted.
//
// The map of a file (FIEMAP) is cached per handle and fenced by a generation (size, mtime, ctime):
// it is used only while the generation is unchanged, and a read is believed only if it is still
// unchanged after the device has answered. Otherwise the operation runs again through the
// filesystem.
//
// `struct ds_nvme_transport` is what a user-space queue pair would replace: today's sends commands
// through io_uring to the kernel's driver and can reach host memory only.
#pragma once

#include "ds/ds.h"

enum ds_nvme_where { DS_NVME_ON_DEVICE, DS_NVME_ZEROS, DS_NVME_IN_FILE };

struct ds_nvme_span {
    enum ds_nvme_where where;
    u64 bytes;       // of the operation, from the asked offset
    u64 device_at;   // byte offset on the namespace of the asked offset
    const char *why; // DS_NVME_IN_FILE: what keeps the device from being asked
};

struct io_uring_sqe;

struct ds_nvme_transport {
    const char *name;
    bool can_reach_device_memory; // peer-to-peer DMA into an accelerator's BAR
    // Fills a ring entry for one command. `memory` is a host address, or a bus address for p2p.
    void (*prepare)(const struct ds_nvme_device *d, struct io_uring_sqe *sqe, bool is_write,
                    u64 device_at, void *memory, u32 bytes, bool is_durable);
};

const struct ds_nvme_transport *ds_nvme_transport_kernel(void);

// Takes the file's map for an operation, or leaves op->ring.extents NULL with the fallback noted.
void ds_nvme_begin(struct ds_op *op);
void ds_nvme_find(struct ds_op *op, u64 offset, u64 bytes, struct ds_nvme_span *out);
// The operation's pieces are done. False when the map had changed: the bytes must not be believed.
bool ds_nvme_end(struct ds_op *op);
void ds_nvme_note_file(struct ds_op *op, const struct ds_nvme_span *span);
u32 ds_nvme_block_bytes(const struct ds_op *op);
u64 ds_nvme_command_bytes_max(const struct ds_op *op);
