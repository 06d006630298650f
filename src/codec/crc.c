// SPDX-License-Identifier: Apache-2.0
// CRC-32 and CRC-32C by ISA-L, and the joining of CRCs.
//
// A CRC of ab is crc(a) moved forward by the length of b, that is multiplied by x^(8 * len_b)
// modulo the polynomial, plus crc(b). The powers x^(8 * 2^i) are constants, so the cost is one
// multiplication for each bit set in len_b (one for parts of 8 MiB).
#include "codec/crc.h"

#include <isa-l/crc.h>

#include "codec/crc_constants.h"

#define CRC_PIECE_BYTES GIB // ISA-L's CRC-32C takes an int

u32 crc32c(u32 crc, struct bytes data)
{
    u32 state = ~crc;
    while (data.len > 0) {
        size_t n = MIN(data.len, CRC_PIECE_BYTES);
        // The parameter lacks its const; nothing is written.
        state = crc32_iscsi((unsigned char *)(uintptr_t)data.data, (int)n, state);
        data = bytes_skip(data, n);
    }
    return ~state;
}

u32 crc32(u32 crc, struct bytes data)
{
    return crc32_gzip_refl(crc, data.data, data.len);
}

// x^(8 * 2^i) modulo each polynomial.
static const u32 crc32_powers[64] = {
    0x00800000, 0x00008000, 0xedb88320, 0xb1e6b092, 0xa06a2517, 0xed627dae, 0x88d14467, 0xd7bbfe6a,
    0xec447f11, 0x8e7ea170, 0x6427800e, 0x4d47bae0, 0x09fe548f, 0x83852d0f, 0x30362f1a, 0x7b5a9cc3,
    0x31fec169, 0x9fec022a, 0x6c8dedc4, 0x15d6874d, 0x5fde7a4e, 0xbad90e37, 0x2e4e5eef, 0x4eaba214,
    0xa8a472c0, 0x429a969e, 0x148d302a, 0xc40ba6d0, 0xc4e22c3c, 0x40000000, 0x20000000, 0x08000000,
    0x00800000, 0x00008000, 0xedb88320, 0xb1e6b092, 0xa06a2517, 0xed627dae, 0x88d14467, 0xd7bbfe6a,
    0xec447f11, 0x8e7ea170, 0x6427800e, 0x4d47bae0, 0x09fe548f, 0x83852d0f, 0x30362f1a, 0x7b5a9cc3,
    0x31fec169, 0x9fec022a, 0x6c8dedc4, 0x15d6874d, 0x5fde7a4e, 0xbad90e37, 0x2e4e5eef, 0x4eaba214,
    0xa8a472c0, 0x429a969e, 0x148d302a, 0xc40ba6d0, 0xc4e22c3c, 0x40000000, 0x20000000, 0x08000000,
};

static const u32 crc32c_powers[64] = {
    0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
    0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
    0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc,
    0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
    0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72,
    0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6,
    0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe,
    0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000,
};

// a * b modulo a reflected 32-bit polynomial.
static u32 multiply32(u32 a, u32 b, u32 poly)
{
    u32 product = 0;
    for (u32 i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (poly & (0u - (b & 1)));
    }
    return product;
}

// Moves a CRC forward over `len` bytes.
static u32 shift32(u32 crc, u64 len, const u32 powers[64], u32 poly)
{
    for (; len != 0; len &= len - 1) {
        crc = multiply32(powers[__builtin_ctzll(len)], crc, poly);
    }
    return crc;
}

u32 crc32c_combine(u32 crc_a, u32 crc_b, u64 len_b)
{
    return shift32(crc_a, len_b, crc32c_powers, CRC32C_POLY) ^ crc_b;
}

u32 crc32_combine(u32 crc_a, u32 crc_b, u64 len_b)
{
    return shift32(crc_a, len_b, crc32_powers, CRC32_POLY) ^ crc_b;
}
