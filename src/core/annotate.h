// SPDX-License-Identifier: Apache-2.0
// What AddressSanitizer, ThreadSanitizer and valgrind must be told about fibers' stacks. All of it
// compiles to nothing in a plain build without valgrind's header. Private to core/.
#pragma once

#include "core/internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define LEAT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define LEAT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LEAT_TSAN 1
#endif
#endif

#ifdef LEAT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LEAT_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(from, to) 0u
#define VALGRIND_STACK_DEREGISTER(id)     ((void)(id))
#endif

static inline void annotate_stack_made(struct fiber *f)
{
    f->valgrind_id = (u32)VALGRIND_STACK_REGISTER(f->stack, f->stack + FIBER_STACK_BYTES);
#ifdef LEAT_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
#ifdef LEAT_ASAN
    // What stood at these addresses before may have left marks that outlived its unmapping.
    __asan_unpoison_memory_region(f->stack, FIBER_STACK_BYTES);
#endif
}

static inline void annotate_stack_gone(struct fiber *f)
{
    VALGRIND_STACK_DEREGISTER(f->valgrind_id);
#ifdef LEAT_ASAN
    // liburing maps its rings by raw system call, perhaps right here, and would inherit the marks.
    __asan_unpoison_memory_region(f->stack, FIBER_STACK_BYTES);
#endif
#ifdef LEAT_TSAN
    __tsan_destroy_fiber(f->tsan);
#endif
}

// On the loop's stack, about to switch to `f`; and back on it.
static inline void annotate_enter(struct loop_context *loop, struct fiber *f)
{
    (void)loop;
    (void)f;
#ifdef LEAT_ASAN
    __sanitizer_start_switch_fiber(&loop->asan_fake_stack, f->stack, FIBER_STACK_BYTES);
#endif
#ifdef LEAT_TSAN
    loop->tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
}

static inline void annotate_entered_loop(struct loop_context *loop)
{
    (void)loop;
#ifdef LEAT_ASAN
    __sanitizer_finish_switch_fiber(loop->asan_fake_stack, NULL, NULL);
#endif
}

// On a fiber's stack, about to switch to the loop; `fake_stack` is NULL when it will never return.
static inline void annotate_leave(struct loop_context *loop, void **fake_stack)
{
    (void)loop;
    (void)fake_stack;
#ifdef LEAT_ASAN
    __sanitizer_start_switch_fiber(fake_stack, loop->stack_bottom, loop->stack_bytes);
#endif
#ifdef LEAT_TSAN
    __tsan_switch_to_fiber(loop->tsan, 0);
#endif
}

static inline void annotate_entered_fiber(struct loop_context *loop, void *fake_stack)
{
    (void)loop;
    (void)fake_stack;
#ifdef LEAT_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &loop->stack_bottom, &loop->stack_bytes);
#endif
}

static inline void annotate_poison(void *data, size_t bytes)
{
    (void)data;
    (void)bytes;
#ifdef LEAT_ASAN
    __asan_poison_memory_region(data, bytes);
#endif
}

static inline void annotate_unpoison(void *data, size_t bytes)
{
    (void)data;
    (void)bytes;
#ifdef LEAT_ASAN
    __asan_unpoison_memory_region(data, bytes);
#endif
}
