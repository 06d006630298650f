// SPDX-License-Identifier: Apache-2.0
// One reactor a core: a pinned thread with its own I/O engine, fibers, timers, mailbox, buffer
// pools and metrics. Everything that a reactor owns is touched by its thread alone; another core
// sends a message (core/mailbox.h). A reactor never blocks and never spins: with nothing to do it
// sleeps in its I/O engine.
//
// One turn of the loop: messages, timers that are due, ready fibers (until none is ready, or
// TURN_FIBERS_MAX ran), deferred work, then the I/O engine. Clocks are read once a turn.
//
// `struct runtime` is the set of reactors of a process (or of a simulation, where all "cores" run
// on one thread, interleaved by the seed).
//
// Single-thread mode (is_single_thread), the contract with the simulator's I/O engines:
//  - The runtime gives each reactor one turn, in an order drawn from schedule_seed (0: by number),
//    and each turn ends with poll(engine, 0). Such a poll must not advance the clock: it only calls
//    `done` for what is due on that engine.
//  - Only when a whole round found nothing to do anywhere (no message, due timer, ready fiber,
//    deferred work, and no completion), the runtime calls poll on the engine of core 0 with the
//    time from now to the nearest timer over all reactors (UINT64_MAX: there is none). That poll
//    advances the clock: by the timeout, or to the earliest completion that is due on *any* engine
//    of this sys if that comes first, and calls `done` only for its own engine's. The other
//    engines' due completions are delivered by the next round's polls.
//  - With neither a timer nor an operation in flight nothing can ever happen again: the simulator
//    treats that poll (UINT64_MAX, nothing pending) as a deadlock and aborts with a message.
//  - wake is never needed and is not called. blocking_call waits for a virtual delay drawn from the
//    seed and then runs its function inline.
//  - With the real sys this mode needs cores == 1: nobody would sleep in the other engines.
#pragma once

#include "base/err.h"
#include "sys/io.h"
#include "sys/sys.h"

struct reactor;
struct runtime;

#define CORES_MAX 64

struct runtime_options {
    u32 cores;             // 1 to CORES_MAX
    u32 io_queue_depth;    // 0: 512
    u32 fibers_max;        // a core; 0: 8192
    size_t buf_bytes;      // buffer memory a core; 0: 256 MiB
    bool is_pinned;        // pin each reactor to a CPU
    bool is_registered;    // pin the buffer memory and register it with the I/O engine, if allowed
    bool is_single_thread; // all reactors on the calling thread (the simulator)
    u64 schedule_seed;     // with is_single_thread: order of reactors and ready fibers; 0: FIFO
};

// ERR_INVALID for options out of range, ERR_NO_MEMORY, or what creating the I/O engines gave.
enum err runtime_create(struct sys *sys, const struct runtime_options *options,
                        struct runtime **out);
// Every fiber must have ended.
void runtime_destroy(struct runtime *rt);
// Runs `fn(arg)` as a fiber on core 0 and the reactors until it returns; then the reactors stop.
// Every other fiber must have ended by then. The calling thread becomes core 0. Once a runtime.
// ERR_LIMIT_REACHED when a thread cannot be started (fn did not run).
typedef void (*fiber_fn)(void *arg);
enum err runtime_run(struct runtime *rt, fiber_fn fn, void *arg);
u32 runtime_cores(const struct runtime *rt);
struct reactor *runtime_reactor(struct runtime *rt, u32 core);

// The reactor of the calling thread (NULL outside of one). In the single-thread simulation it is
// the one that runs now.
struct reactor *reactor_current(void);
struct runtime *reactor_runtime(struct reactor *r);
struct sys *reactor_sys(struct reactor *r);
struct io_engine *reactor_io(struct reactor *r);
u32 reactor_core(const struct reactor *r);

// The core that runs the caller, its sys, and its clocks. now_ns is read once a loop turn: cheap.
u32 core_id(void);
struct sys *core_sys(void);
u64 core_now_ns(void);  // monotonic
u64 core_wall_ns(void); // since 1970
void core_random(void *out, size_t len);
u64 core_random_u64(void);

// Something that asks to run once at the end of the current loop turn, when no fiber is ready: used
// to gather work into batches (MD5 lanes, log commits). Deferring twice before it ran is harmless.
struct deferred {
    struct list node;
    bool is_queued;
    void (*fn)(struct deferred *d); // runs in the loop: must not wait
};
void core_defer(struct deferred *d);
