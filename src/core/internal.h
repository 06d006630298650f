// SPDX-License-Identifier: Apache-2.0
// What the files of core/ share: the reactor, the runtime and the fiber in full. Private to core/.
//
// Everything in `struct reactor` is touched by its own thread alone, except `mailbox`, `is_asleep`
// (atomics, on a cache line of their own) and `cells` (written by the owner, read racily word by
// word by metric_sum).
#pragma once

#include "core/buf.h"
#include "core/fiber.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "core/reactor.h"
#include "sys/thread.h"

#define REACTOR_MAGIC 0x52656163u
#define RUNTIME_MAGIC 0x52756e74u
#define FIBER_MAGIC   0x46696265u
#define GROUP_MAGIC   0x47726f75u

#define FIBER_STACK_BYTES      (64 * KIB)
#define FIBER_GUARD_BYTES      (4 * KIB)
#define FIBERS_MAX_DEFAULT     8192u
#define FIBERS_MAX_LIMIT       (1u << 20)
#define BUF_BYTES_DEFAULT      (256 * MIB)
#define TURN_FIBERS_MAX        256u // fibers that run in one turn before the I/O engine has its own
#define TIMER_NOT_ARMED        UINT32_MAX
#define RANDOM_POOL_BYTES      512
#define SCHEDULE_DRAW_MAX      16u // how far from the head the seeded scheduler picks a fiber
#define BLOCKING_THREADS_MAX   3u
#define METRIC_HISTOGRAM_CELLS (METRIC_BUCKETS + 1) // buckets, then the sum

enum fiber_state { FIBER_FREE = 0, FIBER_READY, FIBER_RUNNING, FIBER_PARKED };

struct fiber {
    u32 magic;
    u8 state;        // enum fiber_state
    bool is_certain; // parked in a wait that neither cancellation nor a deadline ends
    u16 shield;
    void *sp;         // saved stack pointer while it does not run
    enum err result;  // of the wait that ended
    struct list node; // ready list, or the wait queue that it is parked in
    struct list group_node;
    struct group *group;
    struct group *joining; // while parked in group_join
    fiber_fn fn;
    void *arg;
    u64 amount; // what it waits for in a semaphore's or the buffer pool's queue
    void *granted;
    struct timer deadline; // at_ns is the deadline, 0 for none; armed by the first wait under it
    struct fiber *next_free;
    u8 *stack; // lowest usable byte
    u32 slot;  // gives the colour of the stack's top
    void *tsan;
    u32 valgrind_id;
};

struct timer_entry {
    u64 at_ns;
    struct timer *timer;
};

struct timer_heap {
    struct timer_entry *entries;
    u32 count;
    u32 capacity;
};

// Where the loop itself runs while a fiber does, and what sanitizers want to know about it.
struct loop_context {
    void *sp;
    void *tsan;
    void *asan_fake_stack;
    const void *stack_bottom;
    size_t stack_bytes;
};

struct buf_pool;
struct blocking_pool;

struct reactor {
    u32 magic;
    u32 core;
    struct runtime *rt;
    struct io_engine *io;
    u64 now_ns;
    struct fiber *current;
    struct list ready;
    u32 ready_count;
    struct list yielded; // ready again in the next turn
    struct list deferred;
    struct timer_heap timers;
    u64 wakes; // cores to wake at the end of the turn, a bit each
    bool is_stopping;
    struct loop_context loop;
    struct message stop;

    struct fiber *fibers; // fibers_max of them; stacks come with their first use
    struct fiber *fibers_free;
    u32 fibers_made;
    u32 fibers_live;
    struct group calls; // fibers that run core_call for other cores
    u64 random_left;
    u8 random_pool[RANDOM_POOL_BYTES];
    struct buf_pool *bufs;
    u64 *cells; // metrics
    pthread_t thread;

    // Other cores write here.
    struct message *mailbox __attribute__((aligned(CACHE_LINE)));
    u32 is_asleep;
};

struct runtime {
    u32 magic;
    u32 cores;
    struct sys *sys;
    struct runtime_options options;
    u64 schedule; // state of the seeded scheduler; 0: FIFO
    bool has_run;
    fiber_fn main_fn;
    void *main_arg;
    struct group main_group;
    cpu_set_t cpus; // what the process may use
    struct blocking_pool *blocking;
    struct reactor *reactors[CORES_MAX];
};

// reactor.c
// The one thread-local of the program: which reactor runs here. It is addressed directly (initial
// exec), because every wait, timer and metric looks at it.
extern _Thread_local struct reactor *reactor_tls
    __attribute__((visibility("hidden"), tls_model("initial-exec")));
void reactor_set_current(struct reactor *r);
void reactor_turn(struct reactor *r, bool is_sleep_allowed);
bool reactor_is_busy(const struct reactor *r);
void reactor_run(struct reactor *r);
u64 schedule_draw(struct runtime *rt, u64 below);
// The reactor of the caller, which must be on one.
static inline struct reactor *reactor_here(void)
{
    struct reactor *r = reactor_tls;
    ASSERT_MAGIC(r, REACTOR_MAGIC);
    return r;
}

// reactor_make.c
enum err reactor_create(struct runtime *rt, u32 core, struct reactor **out) NODISCARD;
void reactor_destroy(struct reactor *r);

// fiber.c
void fiber_run(struct reactor *r, struct fiber *f);
// Puts a parked fiber on the ready list, out of whatever queue it is in.
void fiber_ready(struct fiber *f, enum err result);
// Why a wait may not begin: OK, ERR_CANCELLED or ERR_DEADLINE.
enum err fiber_wait_check(struct fiber *f) NODISCARD;
// Suspends the caller until fiber_ready. It may stand in one queue through `node`.
MAY_WAIT enum err fiber_park(struct fiber *f) NODISCARD;
// The same for a wait that nothing ends early.
MAY_WAIT void fiber_park_certain(struct fiber *f);
enum err group_spawn_until(struct group *g, fiber_fn fn, void *arg, u64 deadline_ns) NODISCARD;
void fibers_deinit(struct reactor *r);

// timer.c
u64 timer_heap_next_ns(const struct timer_heap *h); // UINT64_MAX when empty
bool timer_heap_run(struct reactor *r);
void timer_heap_deinit(struct timer_heap *h);

// mailbox.c
void reactor_post(struct reactor *r, struct message *m);
bool mailbox_run(struct reactor *r);
void reactor_wake(struct reactor *r);        // any thread; nothing if it is awake
void mailbox_wake_others(struct reactor *r); // those that this turn sent something to
bool mailbox_is_empty(const struct reactor *r);

// blocking.c
enum err blocking_pool_create(struct runtime *rt, struct blocking_pool **out) NODISCARD;
void blocking_pool_destroy(struct blocking_pool *p);

// buf.c
enum err buf_pool_create(struct reactor *r, size_t bytes, struct buf_pool **out) NODISCARD;
void buf_pool_destroy(struct buf_pool *p);
bool buf_pool_holds(const struct buf_pool *p, const void *ptr, size_t len);

// metrics.c
u64 *metrics_cells_create(void);
