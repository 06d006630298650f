// SPDX-License-Identifier: Apache-2.0
// One reactor a core: a pinned thread with its own I/O engine, fibers, timers, mailbox, buffer
// pools and metrics. Everything that a reactor owns is touched by its thread alone; another core
// sends a message (core/mailbox.h). A reactor never blocks and never spins: with nothing to do it
// sleeps in its I/O engine.
//
// `struct runtime` is the set of reactors of a process (or of a simulation, where all "cores" run
// on one thread, interleaved by the seed).
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
    bool is_single_thread; // all reactors on the calling thread (the simulator)
    u64 schedule_seed;     // with is_single_thread: order of reactors and ready fibers; 0: FIFO
};

enum err runtime_create(struct sys *sys, const struct runtime_options *options,
                        struct runtime **out);
// Every fiber must have ended.
void runtime_destroy(struct runtime *rt);
// Runs `fn(arg)` as a fiber on core 0 and the reactors until it returns; then the reactors stop.
// Every other fiber must have ended by then. The calling thread becomes core 0.
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
