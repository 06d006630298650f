// SPDX-License-Identifier: Apache-2.0
// Fibers, groups, cancellation and deadlines of every wait, limits and stack reuse.
#include "harness.h"

#include "core/buf.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static void log_value(void *arg)
{
    ++*(u32 *)arg;
}

static void yield_then_count(void *arg)
{
    fiber_yield();
    ++*(u32 *)arg;
}

static void join_body(void *arg)
{
    (void)arg;
    u32 count = 0;
    struct group g;
    group_init(&g);
    group_join(&g); // with no children it returns at once
    for (u32 i = 0; i < 20; i++) {
        spawn(&g, i % 2 == 0 ? log_value : yield_then_count, &count);
    }
    assert_int_equal(count, 0); // a child starts later, never inline
    assert_int_equal(g.live, 20);
    group_join(&g);
    assert_int_equal(count, 20);
    spawn(&g, log_value, &count); // a group can be filled again
    group_join(&g);
    assert_int_equal(count, 21);
    group_deinit(&g);
}

static void test_join_waits_for_all(void **state)
{
    (void)state;
    run_here(join_body);
}

static void wait_for_event(void *arg)
{
    assert_int_equal(event_wait(arg), OK);
}

static void limit_body(void *arg)
{
    (void)arg;
    struct group g;
    struct event release;
    group_init(&g);
    event_init(&release);
    for (u32 i = 0; i < 63; i++) { // the 64th is this one
        spawn(&g, wait_for_event, &release);
    }
    assert_int_equal(group_spawn(&g, wait_for_event, &release), ERR_LIMIT_REACHED);
    fiber_yield();
    event_set(&release);
    group_join(&g);
    spawn(&g, wait_for_event, &release);
    group_join(&g);
    group_deinit(&g);
}

static void test_fiber_limit_is_an_error(void **state)
{
    (void)state;
    run_here(limit_body);
}

// Each uses much of its stack and leaves a wait in the middle.
static void use_stack(void *arg)
{
    volatile u8 space[40 * 1024 / 16];
    for (size_t i = 0; i < sizeof(space); i++) {
        space[i] = (u8)i;
    }
    fiber_yield();
    for (size_t i = 0; i < sizeof(space); i++) {
        assert_int_equal(space[i], (u8)i);
    }
    ++*(u32 *)arg;
}

static void note_stack(void *arg)
{
    char here;
    *(uintptr_t *)arg = (uintptr_t)&here & ~(uintptr_t)0xffff;
}

static void many_body(void *arg)
{
    (void)arg;
    u32 count = 0;
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < 10000; i++) {
        spawn(&g, use_stack, &count);
        if (i % 32 == 31) {
            group_join(&g);
        }
    }
    group_join(&g);
    assert_int_equal(count, 10000);
    uintptr_t first = 0;
    uintptr_t second = 0;
    spawn(&g, note_stack, &first);
    group_join(&g);
    spawn(&g, note_stack, &second);
    group_join(&g);
    assert_true(first != 0 && first == second); // the warm stack is used again
    group_deinit(&g);
}

static void test_ten_thousand_fibers_reuse_stacks(void **state)
{
    (void)state;
    run_here(many_body);
}

static void order_body(void *arg)
{
    (void)arg;
    u64 start_ns = core_now_ns();
    assert_int_equal(fiber_sleep(5 * NS_PER_MS), OK);
    assert_true(core_now_ns() - start_ns >= 5 * NS_PER_MS);
    assert_int_equal(fiber_set_deadline(core_now_ns() + 5 * NS_PER_MS), 0);
    assert_int_equal(fiber_sleep(10 * NS_PER_S), ERR_DEADLINE);
    assert_int_equal(fiber_sleep(1), ERR_DEADLINE); // it stays passed
    fiber_shield_enter();
    fiber_shield_enter();
    assert_int_equal(fiber_sleep(NS_PER_MS), OK);
    fiber_shield_leave();
    assert_int_equal(fiber_sleep(NS_PER_MS), OK);
    fiber_shield_leave();
    assert_int_equal(fiber_sleep(1), ERR_DEADLINE);
    assert_true(fiber_set_deadline(0) != 0);
    assert_int_equal(fiber_sleep(1), OK);
}

static void test_sleep_deadline_shield(void **state)
{
    (void)state;
    run_here(order_body);
}

// One of each kind of wait that can end early.
struct waits {
    struct wait_queue queue;
    struct event event;
    struct fiber_mutex mutex;
    struct semaphore semaphore;
    enum err expected;
    u32 ended;
};

static void wait_queue_fiber(void *arg)
{
    struct waits *w = arg;
    assert_int_equal(wait_queue_wait(&w->queue), w->expected);
    w->ended++;
}

static void wait_event_fiber(void *arg)
{
    struct waits *w = arg;
    assert_int_equal(event_wait(&w->event), w->expected);
    w->ended++;
}

static void wait_mutex_fiber(void *arg)
{
    struct waits *w = arg;
    assert_int_equal(fiber_mutex_lock(&w->mutex), w->expected);
    w->ended++;
}

static void wait_semaphore_fiber(void *arg)
{
    struct waits *w = arg;
    assert_int_equal(semaphore_take(&w->semaphore, 2), w->expected);
    w->ended++;
}

static void wait_sleep_fiber(void *arg)
{
    struct waits *w = arg;
    assert_int_equal(fiber_sleep(100 * NS_PER_S), w->expected);
    w->ended++;
}

static void wait_buf_fiber(void *arg)
{
    struct waits *w = arg;
    struct buf *b;
    assert_int_equal(buf_get_wait(BUF_BYTES_MAX, &b), w->expected);
    w->ended++;
}

static const fiber_fn wait_fibers[] = {wait_queue_fiber,     wait_event_fiber, wait_mutex_fiber,
                                       wait_semaphore_fiber, wait_sleep_fiber, wait_buf_fiber};

static void waits_begin(struct waits *w, struct group *g, enum err expected)
{
    *w = (struct waits){.expected = expected};
    wait_queue_init(&w->queue);
    event_init(&w->event);
    fiber_mutex_init(&w->mutex);
    assert_int_equal(fiber_mutex_lock(&w->mutex), OK);
    semaphore_init(&w->semaphore, 1, 10);
    for (size_t i = 0; i < ARRAY_LEN(wait_fibers); i++) {
        spawn(g, wait_fibers[i], w);
    }
}

static void waits_end(struct waits *w)
{
    assert_int_equal(w->ended, ARRAY_LEN(wait_fibers));
    assert_true(list_is_empty(&w->queue.waiters) && list_is_empty(&w->event.queue.waiters));
    assert_true(list_is_empty(&w->mutex.queue.waiters));
    assert_true(list_is_empty(&w->semaphore.queue.waiters));
    assert_int_equal(w->semaphore.waiting, 0);
    assert_int_equal(w->semaphore.available, 1);
    fiber_mutex_unlock(&w->mutex);
    assert_false(w->mutex.is_held);
}

static void cancel_body(void *arg)
{
    (void)arg;
    struct buf *all = buf_get(BUF_BYTES_MAX);
    assert_non_null(all);
    struct waits w;
    struct group g;
    // Suspended when the cancel comes.
    group_init(&g);
    waits_begin(&w, &g, ERR_CANCELLED);
    fiber_yield();
    assert_int_equal(w.ended, 0);
    group_cancel(&g);
    group_join(&g);
    waits_end(&w);
    // The group is cancelled already: new children's waits end at once.
    waits_begin(&w, &g, ERR_CANCELLED);
    group_join(&g);
    waits_end(&w);
    group_deinit(&g);
    assert_false(fiber_is_cancelled());
    buf_put(all);
}

static void test_cancel_ends_every_wait(void **state)
{
    (void)state;
    run_here(cancel_body);
}

static void deadline_body(void *arg)
{
    (void)arg;
    struct buf *all = buf_get(BUF_BYTES_MAX);
    struct waits w;
    struct group g;
    group_init(&g);
    fiber_set_deadline(core_now_ns() + 3 * NS_PER_MS); // children inherit it
    waits_begin(&w, &g, ERR_DEADLINE);
    group_join(&g); // not itself ended by the deadline
    waits_end(&w);
    waits_begin(&w, &g, ERR_DEADLINE); // it has passed already
    group_join(&g);
    waits_end(&w);
    group_deinit(&g);
    buf_put(all);
}

static void test_deadline_ends_every_wait(void **state)
{
    (void)state;
    run_here(deadline_body);
}

static void shielded_fiber(void *arg)
{
    struct event *e = arg;
    fiber_shield_enter();
    assert_int_equal(event_wait(e), OK);
    assert_true(fiber_is_cancelled());
    fiber_shield_leave();
    assert_int_equal(fiber_sleep(1), ERR_CANCELLED);
}

static void certain_fiber(void *arg)
{
    event_wait_certain(arg);
}

static void shield_body(void *arg)
{
    (void)arg;
    struct event e;
    struct group g;
    event_init(&e);
    group_init(&g);
    spawn(&g, shielded_fiber, &e);
    spawn(&g, certain_fiber, &e);
    fiber_yield();
    group_cancel(&g);
    fiber_yield();
    fiber_yield();
    assert_int_equal(g.live, 2);
    event_set(&e);
    group_join(&g);
    group_deinit(&g);
}

static void test_shield_and_certain_waits_hold(void **state)
{
    (void)state;
    run_here(shield_body);
}

static void grandchild(void *arg)
{
    assert_int_equal(fiber_sleep(100 * NS_PER_S), ERR_CANCELLED);
    ++*(u32 *)arg;
}

static void child_with_children(void *arg)
{
    struct group g;
    group_init(&g);
    spawn(&g, grandchild, arg);
    spawn(&g, grandchild, arg);
    group_join(&g);
    group_deinit(&g);
}

static void tree_body(void *arg)
{
    (void)arg;
    u32 cancelled = 0;
    struct group g;
    group_init(&g);
    spawn(&g, child_with_children, &cancelled);
    fiber_yield();
    fiber_yield();
    group_cancel(&g);                           // the child waits in its join
    spawn(&g, child_with_children, &cancelled); // and this one is cancelled before it joins
    group_join(&g);
    assert_int_equal(cancelled, 4);
    group_deinit(&g);
}

static void test_cancel_goes_down_the_tree(void **state)
{
    (void)state;
    run_here(tree_body);
}

static void spin_until_set(void *arg)
{
    while (!*(volatile bool *)arg) {
        fiber_yield();
    }
}

// A fiber that always yields must not keep timers from running.
static void fair_body(void *arg)
{
    (void)arg;
    bool is_over = false;
    struct group g;
    group_init(&g);
    spawn(&g, spin_until_set, &is_over);
    assert_int_equal(fiber_sleep(NS_PER_MS), OK);
    is_over = true;
    group_join(&g);
    group_deinit(&g);
}

static void test_yielding_is_fair_to_timers(void **state)
{
    (void)state;
    run_here(fair_body);
}

// Goes down until something stops it.
static u64 recurse(u64 depth)
{
    volatile u8 frame[512];
    frame[depth % sizeof(frame)] = (u8)depth;
    u64 below = depth == 0 ? 0 : recurse(depth - 1);
    return below + frame[depth % sizeof(frame)];
}

static void overflow_body(void *arg)
{
    *(u64 *)arg = recurse(1000);
}

// A fiber that outgrows its stack dies in the guard page before it touches anybody's memory.
static void test_stack_overflow_is_caught(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        u64 sum = 0;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO); // a sanitizer's report of what we do on purpose
        run_with((struct runtime_options){.cores = 1}, overflow_body, &sum);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_waits_for_all),
        cmocka_unit_test(test_fiber_limit_is_an_error),
        cmocka_unit_test(test_ten_thousand_fibers_reuse_stacks),
        cmocka_unit_test(test_sleep_deadline_shield),
        cmocka_unit_test(test_cancel_ends_every_wait),
        cmocka_unit_test(test_deadline_ends_every_wait),
        cmocka_unit_test(test_shield_and_certain_waits_hold),
        cmocka_unit_test(test_cancel_goes_down_the_tree),
        cmocka_unit_test(test_yielding_is_fair_to_timers),
        cmocka_unit_test(test_stack_overflow_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
