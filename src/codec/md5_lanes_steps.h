// SPDX-License-Identifier: Apache-2.0
// The 64 steps of MD5 (RFC 1321) over vectors: a macro, because a vector passed to a function would
// need that function compiled for the same instructions. A to D and w[16] are vectors of u32, one
// lane a stream. The plain operators become vpternlog and vprold where the target has them.
// Included by md5_lanes.c alone.
#pragma once

#define MD5_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define MD5_G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define MD5_H(x, y, z) ((x) ^ (y) ^ (z))
#define MD5_I(x, y, z) ((y) ^ ((x) | ~(z)))

// Hides a vector's value from the compiler, which would otherwise reorder the sums around it.
#if defined(__x86_64__)
#define MD5_KEEP(v) __asm__("" : "+x"(v))
#elif defined(__aarch64__)
#define MD5_KEEP(v) __asm__("" : "+w"(v))
#else
#define MD5_KEEP(v) (void)(v)
#endif

// Only b is new; what does not depend on it is added first, so that a step waits for four
// operations and not for five.
#define MD5_STEP(f, a, b, c, d, word, shift, constant)                                             \
    a += w[word] + (u32)(constant);                                                                \
    MD5_KEEP(a);                                                                                   \
    a += f(b, c, d);                                                                               \
    a = ((a << (shift)) | (a >> (32 - (shift)))) + b;

// Four steps, after which a to d are in their places again.
#define MD5_FOUR(f, w0, w1, w2, w3, s0, s1, s2, s3, k0, k1, k2, k3)                                \
    MD5_STEP(f, a, b, c, d, w0, s0, k0)                                                            \
    MD5_STEP(f, d, a, b, c, w1, s1, k1)                                                            \
    MD5_STEP(f, c, d, a, b, w2, s2, k2)                                                            \
    MD5_STEP(f, b, c, d, a, w3, s3, k3)

#define MD5_F4(w0, w1, w2, w3, ...) MD5_FOUR(MD5_F, w0, w1, w2, w3, 7, 12, 17, 22, __VA_ARGS__)
#define MD5_G4(w0, w1, w2, w3, ...) MD5_FOUR(MD5_G, w0, w1, w2, w3, 5, 9, 14, 20, __VA_ARGS__)
#define MD5_H4(w0, w1, w2, w3, ...) MD5_FOUR(MD5_H, w0, w1, w2, w3, 4, 11, 16, 23, __VA_ARGS__)
#define MD5_I4(w0, w1, w2, w3, ...) MD5_FOUR(MD5_I, w0, w1, w2, w3, 6, 10, 15, 21, __VA_ARGS__)

#define MD5_ALL_STEPS                                                                              \
    MD5_F4(0, 1, 2, 3, 0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee)                             \
    MD5_F4(4, 5, 6, 7, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501)                             \
    MD5_F4(8, 9, 10, 11, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be)                           \
    MD5_F4(12, 13, 14, 15, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821)                         \
    MD5_G4(1, 6, 11, 0, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa)                            \
    MD5_G4(5, 10, 15, 4, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8)                           \
    MD5_G4(9, 14, 3, 8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed)                            \
    MD5_G4(13, 2, 7, 12, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a)                           \
    MD5_H4(5, 8, 11, 14, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c)                           \
    MD5_H4(1, 4, 7, 10, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70)                            \
    MD5_H4(13, 0, 3, 6, 0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05)                            \
    MD5_H4(9, 12, 15, 2, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665)                           \
    MD5_I4(0, 7, 14, 5, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039)                            \
    MD5_I4(12, 3, 10, 1, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1)                           \
    MD5_I4(8, 15, 6, 13, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1)                           \
    MD5_I4(4, 11, 2, 9, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391)
