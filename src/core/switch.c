// SPDX-License-Identifier: Apache-2.0
// The stack switch: assembly for x86-64 and aarch64, ucontext elsewhere (or with
// LEAT_FIBER_UCONTEXT, which keeps that path testable). Only what the ABI calls callee-saved is
// kept; MXCSR and the x87 control word are the process's and never change.
//
// The last step jumps through a register instead of returning: a return whose call was made on
// another stack is always mispredicted by the return stack (26 ns against 6 ns measured).
#include "core/switch.h"

#include "base/assert.h"

#if defined(__x86_64__) && !defined(LEAT_FIBER_UCONTEXT)

__asm__(".text\n"
        ".p2align 5\n"
        ".globl fiber_switch\n"
        ".hidden fiber_switch\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    popq %rcx\n"
        "    jmpq *%rcx\n"
        ".size fiber_switch, . - fiber_switch\n");

void *fiber_switch_prepare(u8 *bottom, u8 *top, void (*entry)(void))
{
    ASSERT(((uintptr_t)top & 15) == 0 && top - bottom >= 1024);
    u64 *sp = (u64 *)(void *)top;
    *--sp = 0; // a return address of nobody, which also ends a backtrace
    *--sp = (u64)(uintptr_t)entry;
    for (int i = 0; i < 6; i++) {
        *--sp = 0;
    }
    return sp;
}

#elif defined(__aarch64__) && !defined(LEAT_FIBER_UCONTEXT)

__asm__(".text\n"
        ".p2align 5\n"
        ".globl fiber_switch\n"
        ".hidden fiber_switch\n"
        ".type fiber_switch, %function\n"
        "fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    mov x9, x30\n"
        "    br x9\n"
        ".size fiber_switch, . - fiber_switch\n");

void *fiber_switch_prepare(u8 *bottom, u8 *top, void (*entry)(void))
{
    ASSERT(((uintptr_t)top & 15) == 0 && top - bottom >= 1024);
    u64 *sp = (u64 *)(void *)(top - 160);
    for (int i = 0; i < 20; i++) {
        sp[i] = 0;
    }
    sp[11] = (u64)(uintptr_t)entry; // x30
    return sp;
}

#else

#include <ucontext.h>

// A saved context is a ucontext_t on the stack that it describes.
void fiber_switch(void **save, void *load)
{
    ucontext_t here;
    *save = &here;
    int rc = swapcontext(&here, load);
    ASSERT(rc == 0);
}

void *fiber_switch_prepare(u8 *bottom, u8 *top, void (*entry)(void))
{
    ucontext_t *context = (ucontext_t *)(void *)ALIGN_DOWN((uintptr_t)(top - sizeof(*context)), 64);
    int rc = getcontext(context);
    ASSERT(rc == 0);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = (size_t)((u8 *)context - bottom);
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    return context;
}

#endif
