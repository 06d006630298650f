// SPDX-License-Identifier: Apache-2.0
// The thin header under the device code. On the GPU a phase is what each thread of a group does
// between two barriers; on the host the same phase is run for one thread after the other, which is
// a valid order of the same program, so that its results can be compared bit for bit without a GPU.
#pragma once

#include "codec/tensor/tensor_choose.h"

#ifdef __CUDACC__
#define PORT_GLOBAL static __device__
#define PORT_FN     static __device__ __forceinline__
#define PHASE(threads, call)                                                                       \
    do {                                                                                           \
        u32 thread = threadIdx.x;                                                                  \
        call;                                                                                      \
        __syncthreads();                                                                           \
    } while (0)
PORT_FN void port_add32(u32 *to, u32 v)
{
    atomicAdd(to, v);
}
PORT_FN u32 port_load32(const void *p) // aligned to 4
{
    return *(const u32 *)p;
}
PORT_FN u64 port_load64(const void *p) // aligned to 8
{
    return *(const unsigned long long *)p;
}
PORT_FN void port_store128(void *p, u64 low, u64 high) // aligned to 16
{
    *(ulonglong2 *)p = make_ulonglong2(low, high);
}
PORT_FN u32 port_byte_perm(u32 a, u32 b, u32 selector)
{
    return __byte_perm(a, b, selector);
}
#else
#include <string.h>
#define PORT_GLOBAL static const
#define PORT_FN     static inline __attribute__((unused))
#define PHASE(threads, call)                                                                       \
    do {                                                                                           \
        for (u32 thread = 0; thread < (threads); thread++) {                                       \
            call;                                                                                  \
        }                                                                                          \
    } while (0)
PORT_FN void port_add32(u32 *to, u32 v)
{
    *to += v;
}
PORT_FN u32 port_load32(const void *p)
{
    u32 v;
    memcpy(&v, __builtin_assume_aligned(p, 4), 4);
    return v;
}
PORT_FN u64 port_load64(const void *p)
{
    u64 v;
    memcpy(&v, __builtin_assume_aligned(p, 8), 8);
    return v;
}
PORT_FN void port_store128(void *p, u64 low, u64 high)
{
    memcpy(p, &low, 8);
    memcpy((u8 *)p + 8, &high, 8);
}
// Each nibble of the selector takes one of the eight bytes of a (0 to 3) and b (4 to 7).
PORT_FN u32 port_byte_perm(u32 a, u32 b, u32 selector)
{
    u64 both = a | (u64)b << 32;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) {
        out |= (u32)(both >> (selector >> 4 * i & 7u) * 8 & 255u) << 8 * i;
    }
    return out;
}
#endif

// Unaligned, little-endian.
PORT_FN u32 port_load16(const u8 *p)
{
    return p[0] | (u32)p[1] << 8;
}
