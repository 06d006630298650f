// SPDX-License-Identifier: Apache-2.0
// On-disk layout of `drive.leat`, the superblock of a drive (docs/format/drive.md). Little-endian.
#pragma once

#include "base/types.h"

#define DRIVE_SUPER_MAGIC   0x5641454cu // "LEAV"
#define DRIVE_SUPER_VERSION 1
#define DRIVE_SUPER_BYTES   4096
#define DRIVE_FMT_DRIVES    64

struct drive_super_fmt {
    u32 magic;
    u16 version; // another one is refused
    u16 minor;   // a larger one is read: it only adds what may be ignored
    u8 store_uuid[16];
    u8 drive_uuid[16];
    u32 drive_index;
    u32 drive_count;
    u32 pg_count;
    u32 reserved0;
    u64 segment_bytes;
    u64 opens;  // how often the store was opened; 0: formatting never finished
    u64 secret; // seeds the placement hash
    u8 drives[DRIVE_FMT_DRIVES][16];
    u8 reserved[4096 - 80 - DRIVE_FMT_DRIVES * 16 - 4];
    u32 crc; // CRC-32C of everything before
};
_Static_assert(sizeof(struct drive_super_fmt) == DRIVE_SUPER_BYTES, "one block");
_Static_assert(offsetof(struct drive_super_fmt, drives) == 80, "no holes");
