// SPDX-License-Identifier: Apache-2.0
// What fibers wait on: order, handing over, limits; timers and deferred work.
#include "harness.h"

struct trail {
    char text[64];
    u32 len;
};

static void trail_add(struct trail *t, char c)
{
    assert_true(t->len + 1 < sizeof(t->text));
    t->text[t->len++] = c;
    t->text[t->len] = '\0';
}

struct step {
    struct trail *trail;
    void *on;
    char name;
    u64 amount;
};

static void queue_fiber(void *arg)
{
    struct step *s = arg;
    assert_int_equal(wait_queue_wait(s->on), OK);
    trail_add(s->trail, s->name);
}

static void queue_body(void *arg)
{
    (void)arg;
    struct wait_queue q;
    struct trail t = {0};
    struct group g;
    wait_queue_init(&q);
    group_init(&g);
    assert_false(wait_queue_wake_one(&q));
    struct step steps[4];
    for (u32 i = 0; i < 4; i++) {
        steps[i] = (struct step){.trail = &t, .on = &q, .name = (char)('a' + i)};
        spawn(&g, queue_fiber, &steps[i]);
    }
    fiber_yield();
    assert_true(wait_queue_wake_one(&q));
    fiber_yield();
    assert_string_equal(t.text, "a");
    wait_queue_wake_all(&q);
    group_join(&g);
    assert_string_equal(t.text, "abcd");
    group_deinit(&g);
}

static void test_wait_queue_is_fifo(void **state)
{
    (void)state;
    run_here(queue_body);
}

static void mutex_fiber(void *arg)
{
    struct step *s = arg;
    assert_int_equal(fiber_mutex_lock(s->on), OK);
    trail_add(s->trail, s->name);
    fiber_yield();
    trail_add(s->trail, s->name);
    fiber_mutex_unlock(s->on);
}

static void mutex_body(void *arg)
{
    (void)arg;
    struct fiber_mutex m;
    struct trail t = {0};
    struct group g;
    fiber_mutex_init(&m);
    group_init(&g);
    assert_int_equal(fiber_mutex_lock(&m), OK);
    struct step steps[3];
    for (u32 i = 0; i < 3; i++) {
        steps[i] = (struct step){.trail = &t, .on = &m, .name = (char)('a' + i)};
        spawn(&g, mutex_fiber, &steps[i]);
    }
    fiber_yield();
    fiber_mutex_unlock(&m);
    assert_true(m.is_held); // it is a's already, nobody can take it in between
    group_join(&g);
    assert_string_equal(t.text, "aabbcc");
    assert_false(m.is_held);
    group_deinit(&g);
}

static void test_mutex_hands_over(void **state)
{
    (void)state;
    run_here(mutex_body);
}

static void lock_either_way(void *arg)
{
    struct step *s = arg;
    if (fiber_mutex_lock(s->on) == OK) {
        trail_add(s->trail, s->name);
        fiber_mutex_unlock(s->on);
    } else {
        trail_add(s->trail, '-');
    }
}

// Cancelled between being served and running: the mutex must not be lost.
static void mutex_race_body(void *arg)
{
    (void)arg;
    struct fiber_mutex m;
    struct trail t = {0};
    struct group g;
    fiber_mutex_init(&m);
    group_init(&g);
    assert_int_equal(fiber_mutex_lock(&m), OK);
    struct step steps[2] = {{&t, &m, 'a', 0}, {&t, &m, 'b', 0}};
    spawn(&g, lock_either_way, &steps[0]);
    spawn(&g, lock_either_way, &steps[1]);
    fiber_yield();
    fiber_mutex_unlock(&m);
    group_cancel(&g);
    group_join(&g);
    assert_string_equal(t.text, "a-");
    assert_false(m.is_held);
    assert_int_equal(fiber_mutex_lock(&m), OK);
    fiber_mutex_unlock(&m);
    group_deinit(&g);
}

static void test_mutex_is_not_lost_to_a_cancel(void **state)
{
    (void)state;
    run_here(mutex_race_body);
}

static void semaphore_fiber(void *arg)
{
    struct step *s = arg;
    trail_add(s->trail, semaphore_take(s->on, s->amount) == OK ? s->name : '-');
}

static void semaphore_body(void *arg)
{
    (void)arg;
    struct semaphore sem;
    struct trail t = {0};
    struct group g;
    struct group big;
    semaphore_init(&sem, 10, 3);
    group_init(&g);
    group_init(&big);
    assert_true(semaphore_try_take(&sem, 8));
    assert_false(semaphore_try_take(&sem, 3));
    struct step steps[4] = {
        {&t, &sem, 'a', 5}, {&t, &sem, 'b', 1}, {&t, &sem, 'c', 2}, {&t, &sem, 'd', 1}};
    spawn(&big, semaphore_fiber, &steps[0]);
    spawn(&g, semaphore_fiber, &steps[1]);
    spawn(&g, semaphore_fiber, &steps[2]);
    fiber_yield();
    assert_string_equal(t.text, ""); // 2 are there, but the large request in front comes first
    assert_int_equal(sem.waiting, 3);
    assert_false(semaphore_try_take(&sem, 1));
    spawn(&g, semaphore_fiber, &steps[3]); // the line is full
    fiber_yield();
    assert_string_equal(t.text, "-");
    group_cancel(&big); // those behind it are served now
    group_join(&big);
    fiber_yield();
    assert_string_equal(t.text, "--b");
    semaphore_give(&sem, 1);
    group_join(&g);
    assert_string_equal(t.text, "--bc");
    assert_int_equal(sem.available, 0);
    assert_int_equal(sem.waiting, 0);
    semaphore_give(&sem, 10);
    assert_int_equal(sem.available, 10);
    group_deinit(&g);
    group_deinit(&big);
}

static void test_semaphore_is_fair_and_limited(void **state)
{
    (void)state;
    run_here(semaphore_body);
}

static void event_fiber(void *arg)
{
    struct step *s = arg;
    assert_int_equal(event_wait(s->on), OK);
    trail_add(s->trail, s->name);
}

static void event_body(void *arg)
{
    (void)arg;
    struct event e;
    struct trail t = {0};
    struct group g;
    event_init(&e);
    group_init(&g);
    struct step steps[2] = {{&t, &e, 'a', 0}, {&t, &e, 'b', 0}};
    spawn(&g, event_fiber, &steps[0]);
    spawn(&g, event_fiber, &steps[1]);
    fiber_yield();
    event_set(&e);
    event_set(&e);
    group_join(&g);
    assert_string_equal(t.text, "ab");
    assert_int_equal(event_wait(&e), OK);
    event_wait_certain(&e);
    group_deinit(&g);
}

static void test_event_wakes_all(void **state)
{
    (void)state;
    run_here(event_body);
}

#define TIMERS 500

struct timers {
    u64 last_ns;
    u32 fired;
    struct event all;
    u32 expected;
};

struct timed {
    struct timer timer;
    struct timers *all;
};

static void timed_fired(struct timer *t)
{
    struct timed *timed = CONTAINER_OF(t, struct timed, timer);
    assert_false(timer_is_armed(t));
    assert_true(t->at_ns >= timed->all->last_ns); // in order of time
    assert_true(t->at_ns <= core_now_ns());       // never early
    timed->all->last_ns = t->at_ns;
    timed->all->fired++;
    if (timed->all->fired == timed->all->expected) {
        event_set(&timed->all->all);
    }
}

static void timer_body(void *arg)
{
    (void)arg;
    static struct timed timed[TIMERS];
    struct timers all = {0};
    event_init(&all.all);
    u64 base_ns = core_now_ns();
    for (u32 i = 0; i < TIMERS; i++) {
        timed[i].all = &all;
        timer_init(&timed[i].timer, timed_fired);
        assert_false(timer_is_armed(&timed[i].timer));
        timer_arm(&timed[i].timer, base_ns + core_random_u64() % (20 * NS_PER_MS));
    }
    for (u32 i = 0; i < TIMERS; i++) {
        if (i % 3 == 0) {
            timer_disarm(&timed[i].timer);
            timer_disarm(&timed[i].timer); // twice is harmless
            assert_false(timer_is_armed(&timed[i].timer));
        } else if (i % 3 == 1) { // re-arming moves it, earlier or later
            timer_arm(&timed[i].timer, base_ns + core_random_u64() % (20 * NS_PER_MS));
            all.expected++;
        } else {
            all.expected++;
        }
    }
    assert_int_equal(event_wait(&all.all), OK);
    assert_int_equal(fiber_sleep(25 * NS_PER_MS), OK);
    assert_int_equal(all.fired, all.expected);
}

static void test_timers_fire_in_order(void **state)
{
    (void)state;
    run_here(timer_body);
}

static void rearm_in_the_past(struct timer *t)
{
    struct timed *timed = CONTAINER_OF(t, struct timed, timer);
    timed->all->fired++;
    if (timed->all->fired < 5) {
        timer_arm(t, 1);
    } else {
        event_set(&timed->all->all);
    }
}

static void rearm_body(void *arg)
{
    (void)arg;
    struct timers all = {0};
    struct timed timed = {.all = &all};
    event_init(&all.all);
    timer_init(&timed.timer, rearm_in_the_past);
    timer_arm(&timed.timer, 1);
    fiber_yield();
    assert_int_equal(all.fired, 1); // once a turn
    event_wait_certain(&all.all);
    assert_int_equal(all.fired, 5);
}

static void test_timer_in_the_past_fires_once_a_turn(void **state)
{
    (void)state;
    run_here(rearm_body);
}

struct batch {
    struct deferred deferred;
    struct trail *trail;
    u32 again;
};

static void batch_run(struct deferred *d)
{
    struct batch *b = CONTAINER_OF(d, struct batch, deferred);
    assert_null(fiber_current());
    trail_add(b->trail, 'D');
    if (b->again > 0) {
        b->again--;
        core_defer(d);
    }
}

struct deferring {
    struct batch *batch;
    char name;
};

static void defer_fiber(void *arg)
{
    struct deferring *d = arg;
    trail_add(d->batch->trail, d->name);
    core_defer(&d->batch->deferred);
}

static void defer_body(void *arg)
{
    (void)arg;
    struct trail t = {0};
    struct batch b = {.deferred = {.fn = batch_run}, .trail = &t, .again = 1};
    struct deferring fibers[3] = {{&b, 'a'}, {&b, 'b'}, {&b, 'c'}};
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < 3; i++) {
        spawn(&g, defer_fiber, &fibers[i]);
    }
    fiber_yield();
    assert_string_equal(t.text, "abcD"); // once, after all that were ready
    fiber_yield();
    assert_string_equal(t.text, "abcDD"); // deferred from inside: the next turn's
    group_join(&g);
    group_deinit(&g);
}

static void test_deferred_runs_once_after_the_ready(void **state)
{
    (void)state;
    run_here(defer_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_queue_is_fifo),
        cmocka_unit_test(test_mutex_hands_over),
        cmocka_unit_test(test_mutex_is_not_lost_to_a_cancel),
        cmocka_unit_test(test_semaphore_is_fair_and_limited),
        cmocka_unit_test(test_event_wakes_all),
        cmocka_unit_test(test_timers_fire_in_order),
        cmocka_unit_test(test_timer_in_the_past_fires_once_a_turn),
        cmocka_unit_test(test_deferred_runs_once_after_the_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
