// SPDX-License-Identifier: Apache-2.0
// Fixed-width names, size units and the few macros that every file uses. No code, no state.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef int32_t i32;

#define KIB ((size_t)1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define TIB (GIB * 1024)

#define NS_PER_US ((u64)1000)
#define NS_PER_MS ((u64)1000000)
#define NS_PER_S  ((u64)1000000000)

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })
#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
    })
#define ALIGN_UP(n, to)                 (((n) + ((__typeof__(n))(to)-1)) & ~((__typeof__(n))(to)-1))
#define ALIGN_DOWN(n, to)               ((n) & ~((__typeof__(n))(to)-1))
#define IS_POWER_OF_TWO(n)              ((n) != 0 && ((n) & ((n)-1)) == 0)
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define LIKELY(x)                       __builtin_expect(!!(x), 1)
#define UNLIKELY(x)                     __builtin_expect(!!(x), 0)
#define CACHE_LINE                      64
#define PRINTF_LIKE(fmt, args)          __attribute__((format(printf, fmt, args)))

// A function that can suspend its fiber. It lands in its own section, and tools/check-may-wait
// fails the build when an unmarked function calls a marked one.
#define MAY_WAIT __attribute__((section(".text.may_wait"), noinline))
