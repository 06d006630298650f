// SPDX-License-Identifier: Apache-2.0
// The ways of computing CRC-64/NVME, apart, for their test and benchmark. Everything else calls
// crc64nvme(). The state is the CRC without its inversions. The caller makes sure that the
// processor has what the way needs.
#pragma once

#include "base/types.h"

typedef u64 (*crc64nvme_update_fn)(u64 state, const u8 *p, size_t len);

u64 crc64nvme_update_table(u64 state, const u8 *p, size_t len);
#if defined(__x86_64__)
u64 crc64nvme_update_clmul(u64 state, const u8 *p, size_t len);  // pclmul, sse4.1
u64 crc64nvme_update_vclmul(u64 state, const u8 *p, size_t len); // and avx512f, vpclmulqdq
#endif
