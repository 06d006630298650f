// SPDX-License-Identifier: Apache-2.0
// Fibers: stackful coroutines that run request and background logic, and what they wait on. A fiber
// never leaves its core. Stacks are 64 KiB, guarded and pooled. Only functions marked MAY_WAIT may
// suspend; the build checks it.
//
// Every wait can end with ERR_CANCELLED (the fiber's group was cancelled) or ERR_DEADLINE (the
// fiber's deadline passed), except the ones that say they cannot; what the caller waited for may
// then still happen later. A wait whose condition holds already is none: it returns OK at once even
// to a cancelled fiber.
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "core/reactor.h"

struct fiber;

// A scope for fibers. It lives on its parent's stack (or in a long-lived struct) and must be joined
// before it goes: group_deinit asserts that no child is left.
struct group {
    u32 magic;
    u32 live; // children that have not returned
    bool is_cancelled;
    struct list children; // struct fiber
    struct fiber *joiner;
};

void group_init(struct group *g);
void group_deinit(struct group *g);
// Starts a fiber on this core. ERR_LIMIT_REACHED when no fiber or stack is left. The child inherits
// the caller's deadline (none when spawned from the loop).
enum err group_spawn(struct group *g, fiber_fn fn, void *arg) NODISCARD;
// Asks all children to end: their waits return ERR_CANCELLED from now on. Does not wait.
void group_cancel(struct group *g);
// Waits until all children have returned; not itself cancellable. But cancellation goes down the
// tree: if the caller is cancelled (and not shielded) before or while it waits here, so is `g`.
MAY_WAIT void group_join(struct group *g);

struct fiber *fiber_current(void); // NULL in the loop
MAY_WAIT void fiber_yield(void);
MAY_WAIT enum err fiber_sleep(u64 duration_ns) NODISCARD;
// The monotonic time after which this fiber's waits fail; 0 means none. Returns the previous one.
u64 fiber_set_deadline(u64 deadline_ns);
u64 fiber_deadline(void);
bool fiber_is_cancelled(void);
// While > 0 waits of this fiber ignore cancellation and deadlines (for what must be finished: a
// commit whose outcome has to be known, giving back a lock). Nests.
void fiber_shield_enter(void);
void fiber_shield_leave(void);

// Fibers of one core waiting for something, FIFO.
struct wait_queue {
    struct list waiters;
};
void wait_queue_init(struct wait_queue *q);
MAY_WAIT enum err wait_queue_wait(struct wait_queue *q) NODISCARD;
// Makes the longest waiter ready; false if there was none. Callable from the loop and from fibers.
bool wait_queue_wake_one(struct wait_queue *q);
void wait_queue_wake_all(struct wait_queue *q);

// A flag that is set once; any number of fibers wait for it.
struct event {
    bool is_set;
    struct wait_queue queue;
};
void event_init(struct event *e);
void event_set(struct event *e);
MAY_WAIT enum err event_wait(struct event *e) NODISCARD;
// Cannot be cancelled and has no deadline: for completions that are certain to come.
MAY_WAIT void event_wait_certain(struct event *e);

// A FIFO mutex between fibers of one core.
struct fiber_mutex {
    bool is_held;
    struct wait_queue queue;
};
void fiber_mutex_init(struct fiber_mutex *m);
MAY_WAIT enum err fiber_mutex_lock(struct fiber_mutex *m) NODISCARD;
void fiber_mutex_unlock(struct fiber_mutex *m);

// A counted limit between fibers of one core (admission, memory budgets), FIFO and fair.
struct semaphore {
    u64 available;
    u64 waiting;     // fibers in line
    u64 waiting_max; // more than this many in line: ERR_LIMIT_REACHED at once
    struct wait_queue queue;
};
void semaphore_init(struct semaphore *s, u64 available, u64 waiting_max);
MAY_WAIT enum err semaphore_take(struct semaphore *s, u64 n) NODISCARD;
bool semaphore_try_take(struct semaphore *s, u64 n);
void semaphore_give(struct semaphore *s, u64 n);

// Timers for engine code (state machines). `fn` runs in the loop and must not wait.
struct timer {
    u64 at_ns;
    void (*fn)(struct timer *t);
    u32 heap_index; // UINT32_MAX when not armed
};
void timer_init(struct timer *t, void (*fn)(struct timer *t));
void timer_arm(struct timer *t, u64 at_ns); // re-arming moves it
void timer_disarm(struct timer *t);
bool timer_is_armed(const struct timer *t);
