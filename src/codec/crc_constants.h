// SPDX-License-Identifier: Apache-2.0
// Constants of the CRCs, all in reflected form (the lowest power in the highest bit). They are
// computed from the polynomials; tests/unit/codec/test_crc.c computes them again by long division.
// Included by crc.c and crc64nvme.c alone.
#pragma once

#include "base/types.h"

#define CRC32_POLY     0xedb88320u
#define CRC32C_POLY    0x82f63b78u
#define CRC64NVME_POLY 0x9a6c9329ac4bc9b5ull

// To fold a 128-bit register forward by n bits: its low half times x^(n+63), its high half times
// x^(n-1), modulo the polynomial.
#define CRC64NVME_FOLD_128_LOW   0xeadc41fd2ba3d420ull
#define CRC64NVME_FOLD_128_HIGH  0x21e9761e252621acull
#define CRC64NVME_FOLD_512_LOW   0x0c32cdb31e18a84aull
#define CRC64NVME_FOLD_512_HIGH  0x62242240ace5045aull
#define CRC64NVME_FOLD_2048_LOW  0x37ccd3e14069cabcull
#define CRC64NVME_FOLD_2048_HIGH 0xa043808c0f782663ull
// For the last reduction: x^127, and the quotient of x^128 by the polynomial without its x^64.
#define CRC64NVME_X127     0x21e9761e252621acull
#define CRC64NVME_QUOTIENT 0x13f67d194d77cfbbull
