// SPDX-License-Identifier: Apache-2.0
// The three CRCs that S3 and the store use. All start at 0 and chain: crc(crc(0, a), b) equals
// crc(0, ab); the inversions that the standards ask for happen inside. Combine joins the CRCs of
// two neighbouring ranges without their bytes, which is what a full-object checksum of a multipart
// upload is. Pure functions; any thread; no alignment is asked of the bytes.
#pragma once

#include "base/slice.h"
#include "base/types.h"

// CRC-32C (Castagnoli, iSCSI). "123456789" gives e3069283.
u32 crc32c(u32 crc, struct bytes data);
// CRC-32 of IEEE 802.3, zlib and S3's x-amz-checksum-crc32. "123456789" gives cbf43926.
u32 crc32(u32 crc, struct bytes data);
// CRC-64/NVME. "123456789" gives ae8b14860a799888.
u64 crc64nvme(u64 crc, struct bytes data);

// The CRC of a followed by b, given both CRCs and the length of b. At most 64 small steps, one for
// each bit set in the length.
u32 crc32c_combine(u32 crc_a, u32 crc_b, u64 len_b);
u32 crc32_combine(u32 crc_a, u32 crc_b, u64 len_b);
u64 crc64nvme_combine(u64 crc_a, u64 crc_b, u64 len_b);
