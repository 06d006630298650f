// SPDX-License-Identifier: Apache-2.0
// The only thing that connects two cores: messages, kept by their sender until they ran, delivered
// in order per pair of cores. Posting wakes a sleeping core. The atomics of the program are here.
#pragma once

#include "core/fiber.h"

struct message {
    struct message *next;          // the mailbox's
    void (*fn)(struct message *m); // runs in the target core's loop: must not wait
};

// Hands the message to `core` (the own one is allowed); it may be reused once fn was called.
void core_post(u32 core, struct message *m);

// Runs fn(arg) on a fiber of `core` and returns when it returned. On the own core it is a plain
// call. The callee inherits the caller's deadline. Not cancellable itself: fn is certain to run and
// end. Fails with ERR_LIMIT_REACHED (fn did not run) when that core has no fiber left.
MAY_WAIT enum err core_call(u32 core, fiber_fn fn, void *arg) NODISCARD;
// Runs fn(arg) on every core, one after the other or at once, and waits for all.
MAY_WAIT enum err core_call_all(fiber_fn fn, void *arg) NODISCARD;

// Runs a blocking function on the process's helper threads (in the simulation: inline, after a
// virtual delay) and waits for it. For opening files, allocating segments, reading certificates.
// Not cancellable once begun. fn did not run when it returns an error: ERR_LIMIT_REACHED
// (BLOCKING_WAITING_MAX calls wait already), ERR_CANCELLED or ERR_DEADLINE (before it began).
#define BLOCKING_WAITING_MAX 1024
MAY_WAIT enum err blocking_call(void (*fn)(void *arg), void *arg) NODISCARD;
