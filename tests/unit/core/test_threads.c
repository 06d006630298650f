// SPDX-License-Identifier: Apache-2.0
// What crosses threads: messages in order, waking under load, calls between cores, helper threads,
// metrics; and that idle reactors cost nothing. Built to run under ThreadSanitizer.
#include "harness.h"

#include "core/metrics.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#define CORES    4
#define MESSAGES 20000

struct sequence;

struct numbered {
    struct message message;
    struct sequence *sequence;
    u32 number;
};

// Messages of one sender core to one receiver core.
struct sequence {
    struct numbered messages[64];
    u32 sent;
    u32 next_expected; // the receiver's
    u32 from;
    u32 to;
};

struct ring_test {
    struct sequence sequences[CORES][CORES];
};

static void sequence_returned(struct message *m);

static void sequence_arrived(struct message *m)
{
    struct numbered *n = CONTAINER_OF(m, struct numbered, message);
    assert_int_equal(core_id(), n->sequence->to);
    assert_int_equal(n->number, n->sequence->next_expected);
    n->sequence->next_expected++;
    m->fn = sequence_returned;
    core_post(n->sequence->from, m);
}

// The sender's: the message is free again, so it carries the next number.
static void sequence_returned(struct message *m)
{
    struct numbered *n = CONTAINER_OF(m, struct numbered, message);
    assert_int_equal(core_id(), n->sequence->from);
    if (n->sequence->sent < MESSAGES) {
        n->number = n->sequence->sent++;
        m->fn = sequence_arrived;
        core_post(n->sequence->to, m);
    }
}

static void send_to_all(void *arg)
{
    struct ring_test *t = arg;
    u32 from = core_id();
    for (u32 to = 0; to < CORES; to++) {
        struct sequence *s = &t->sequences[from][to];
        s->from = from;
        s->to = to;
        for (size_t i = 0; i < ARRAY_LEN(s->messages); i++) {
            s->messages[i].sequence = s;
            s->messages[i].number = s->sent++;
            s->messages[i].message.fn = sequence_arrived;
            core_post(to, &s->messages[i].message);
        }
    }
}

static void wait_for_all(void *arg)
{
    struct ring_test *t = arg;
    u32 to = core_id();
    for (u32 from = 0; from < CORES; from++) {
        while (t->sequences[from][to].next_expected < MESSAGES) {
            assert_int_equal(fiber_sleep(NS_PER_MS), OK);
        }
    }
}

static void order_body(void *arg)
{
    struct ring_test *t = arg;
    assert_int_equal(core_call_all(send_to_all, t), OK);
    assert_int_equal(core_call_all(wait_for_all, t), OK);
    // The last messages may be on their way back still: each core looks once more.
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(core_call_all(wait_for_all, t), OK);
    }
    i64 counted = metric_sum(reactor_runtime(reactor_current()), METRIC_CORE_MESSAGES);
    assert_true(counted >= (i64)CORES * CORES * MESSAGES);
}

static void test_messages_arrive_in_order(void **state)
{
    (void)state;
    struct ring_test *t = calloc(1, sizeof(*t));
    run_with((struct runtime_options){.cores = CORES}, order_body, t);
    free(t);
}

struct hop {
    u32 hops;
    u32 cores_seen[CORES];
};

static void hop_on(void *arg)
{
    struct hop *h = arg;
    h->cores_seen[core_id()]++;
    h->hops++;
    if (h->hops < 400) {
        assert_int_equal(core_call((core_id() + 1) % CORES, hop_on, arg), OK);
    }
}

// A chain of nested calls through all cores: each hop wakes a core that sleeps.
static void wake_body(void *arg)
{
    struct hop *h = arg;
    hop_on(h);
    assert_int_equal(h->hops, 400);
    for (u32 i = 0; i < CORES; i++) {
        assert_int_equal(h->cores_seen[i], 400 / CORES);
    }
}

static void test_nested_calls_wake_sleeping_cores(void **state)
{
    (void)state;
    struct hop h = {0};
    run_with((struct runtime_options){.cores = CORES, .fibers_max = 128, .is_pinned = true},
             wake_body, &h);
}

static void check_deadline(void *arg)
{
    assert_int_equal(fiber_deadline(), *(u64 *)arg);
    assert_int_equal(fiber_sleep(100 * NS_PER_S), ERR_DEADLINE);
    *(u64 *)arg = core_id();
}

static void count_cores(void *arg)
{
    (*(u64 *)arg)++;
}

// Fills a core with fibers that wait, so that it refuses calls; and lets them go.
struct crowd {
    struct group group;
    struct event release;
    struct message let_go;
    struct message filled;
    struct event is_full;
    u32 held;
};

static void hold_fiber(void *arg)
{
    assert_int_equal(event_wait(arg), OK);
}

static void crowd_let_go(struct message *m)
{
    event_set(&CONTAINER_OF(m, struct crowd, let_go)->release);
}

static void crowd_filled(struct message *m)
{
    event_set(&CONTAINER_OF(m, struct crowd, filled)->is_full);
}

// Keeps its own fiber too: only then is the core full.
static void crowd_fill(void *arg)
{
    struct crowd *crowd = arg;
    group_init(&crowd->group);
    event_init(&crowd->release);
    while (group_spawn(&crowd->group, hold_fiber, &crowd->release) == OK) {
        crowd->held++;
    }
    core_post(0, &crowd->filled);
    group_join(&crowd->group);
    group_deinit(&crowd->group);
}

static void crowd_caller(void *arg)
{
    assert_int_equal(core_call(1, crowd_fill, arg), OK);
}

static void call_body(void *arg)
{
    (void)arg;
    u64 deadline_ns = core_now_ns() + 3 * NS_PER_MS;
    u64 value = deadline_ns;
    u64 cores = 0;
    fiber_set_deadline(deadline_ns);
    assert_int_equal(core_call(1, check_deadline, &value), OK);
    assert_int_equal(value, 1);
    fiber_set_deadline(0);
    assert_int_equal(core_call(0, count_cores, &cores), OK);
    assert_int_equal(core_call_all(count_cores, &cores), OK);
    assert_int_equal(cores, 3);

    struct crowd crowd = {.let_go = {.fn = crowd_let_go}, .filled = {.fn = crowd_filled}};
    event_init(&crowd.is_full);
    struct group g;
    group_init(&g);
    spawn(&g, crowd_caller, &crowd);
    assert_int_equal(event_wait(&crowd.is_full), OK);
    assert_int_equal(core_call(1, count_cores, &cores), ERR_LIMIT_REACHED);
    assert_int_equal(cores, 3);
    assert_int_equal(crowd.held, 15);
    core_post(1, &crowd.let_go);
    group_join(&g);
    assert_int_equal(core_call(1, count_cores, &cores), OK);
    group_deinit(&g);
}

static void test_calls_between_cores(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 2, .fibers_max = 16}, call_body, NULL);
}

struct blocking_test {
    pthread_t reactor;
    u32 ran;
    u32 value;
};

static void block_a_while(void *arg)
{
    struct blocking_test *t = arg;
    assert_false(pthread_equal(t->reactor, pthread_self()));
    assert_null(reactor_current());
    struct timespec ts = {.tv_nsec = NS_PER_MS};
    nanosleep(&ts, NULL); // it is what this function is about: it blocks
    t->value = 42;
}

static void blocking_caller(void *arg)
{
    struct blocking_test *t = arg;
    t->reactor = pthread_self();
    assert_int_equal(blocking_call(block_a_while, t), OK);
    assert_int_equal(t->value, 42);
    t->ran++;
}

static void never_runs(void *arg)
{
    (void)arg;
    fail();
}

static void blocking_cancelled(void *arg)
{
    (void)arg;
    assert_int_equal(blocking_call(never_runs, NULL), ERR_CANCELLED);
}

static void blocking_on_each(void *arg)
{
    (void)arg;
    static struct blocking_test tests[2][20];
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < 20; i++) {
        spawn(&g, blocking_caller, &tests[core_id()][i]);
    }
    group_join(&g);
    for (u32 i = 0; i < 20; i++) {
        assert_int_equal(tests[core_id()][i].ran, 1);
    }
    group_cancel(&g);
    spawn(&g, blocking_cancelled, NULL);
    group_join(&g);
    group_deinit(&g);
}

static void blocking_body(void *arg)
{
    assert_int_equal(core_call_all(blocking_on_each, arg), OK);
}

static void test_blocking_calls_run_on_helpers(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = 2, .is_pinned = true}, blocking_body, NULL);
}

struct gate {
    pthread_mutex_t lock;
    u32 refused;
};

static void pass_gate(void *arg)
{
    struct gate *gate = arg;
    pthread_mutex_lock(&gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_caller(void *arg)
{
    struct gate *gate = arg;
    enum err e = blocking_call(pass_gate, gate);
    if (e != OK) {
        assert_int_equal(e, ERR_LIMIT_REACHED);
        gate->refused++;
    }
}

static void blocking_limit_body(void *arg)
{
    struct gate *gate = arg;
    struct group g;
    group_init(&g);
    pthread_mutex_lock(&gate->lock);
    for (u32 i = 0; i < BLOCKING_WAITING_MAX + 10; i++) {
        spawn(&g, gate_caller, gate);
    }
    while (gate->refused == 0) {
        fiber_yield();
    }
    pthread_mutex_unlock(&gate->lock);
    group_join(&g);
    assert_in_range(gate->refused, 1, 10); // up to as many as there are helpers had begun
    group_deinit(&g);
}

static void test_blocking_calls_are_limited(void **state)
{
    (void)state;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    run_with((struct runtime_options){.cores = 1, .fibers_max = 2000}, blocking_limit_body, &gate);
}

static u64 process_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (u64)ts.tv_sec * NS_PER_S + (u64)ts.tv_nsec;
}

// With nothing to do a reactor sleeps in the kernel: it makes no turn, so no system call, and uses
// no CPU. A voluntary context switch is what each sleep costs.
static void idle_body(void *arg)
{
    (void)arg;
    u64 cores = 0;
    struct rusage before;
    struct rusage after;
    assert_int_equal(core_call_all(count_cores, &cores), OK);
    assert_int_equal(fiber_sleep(50 * NS_PER_MS), OK); // whatever was under way is over
    i64 loops = metric_sum(reactor_runtime(reactor_current()), METRIC_CORE_LOOPS);
    getrusage(RUSAGE_SELF, &before);
    u64 cpu_ns = process_cpu_ns();
    assert_int_equal(fiber_sleep(500 * NS_PER_MS), OK);
    cpu_ns = process_cpu_ns() - cpu_ns;
    getrusage(RUSAGE_SELF, &after);
    loops = metric_sum(reactor_runtime(reactor_current()), METRIC_CORE_LOOPS) - loops;
    assert_in_range(loops, 1, 4);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 1, 10);
    assert_true(cpu_ns < 10 * NS_PER_MS);
}

static void test_idle_reactors_cost_nothing(void **state)
{
    (void)state;
    run_with((struct runtime_options){.cores = CORES}, idle_body, NULL);
}

static void check_affinity(void *arg)
{
    const cpu_set_t *allowed = arg;
    cpu_set_t now;
    sched_getaffinity(0, sizeof(now), &now);
    assert_int_equal(CPU_COUNT(&now), 1);
    CPU_AND(&now, &now, allowed);
    assert_int_equal(CPU_COUNT(&now), 1);
}

static void check_helper_affinity(void *arg)
{
    cpu_set_t now;
    sched_getaffinity(0, sizeof(now), &now);
    assert_true(CPU_EQUAL(&now, (const cpu_set_t *)arg));
}

static void affinity_body(void *arg)
{
    assert_int_equal(core_call_all(check_affinity, arg), OK);
    assert_int_equal(blocking_call(check_helper_affinity, arg), OK);
}

static void test_pinning(void **state)
{
    (void)state;
    cpu_set_t before;
    cpu_set_t after;
    sched_getaffinity(0, sizeof(before), &before);
    run_with((struct runtime_options){.cores = 3, .is_pinned = true}, affinity_body, &before);
    sched_getaffinity(0, sizeof(after), &after);
    assert_true(CPU_EQUAL(&before, &after)); // the caller gets its own back
}

static void test_options_out_of_range(void **state)
{
    (void)state;
    struct sys *sys;
    struct runtime *rt;
    assert_int_equal(sys_real_create(&sys), OK);
    struct runtime_options options = {.cores = 0};
    assert_int_equal(runtime_create(sys, &options, &rt), ERR_INVALID);
    options.cores = CORES_MAX + 1;
    assert_int_equal(runtime_create(sys, &options, &rt), ERR_INVALID);
    options.cores = 1;
    options.fibers_max = UINT32_MAX;
    assert_int_equal(runtime_create(sys, &options, &rt), ERR_INVALID);
    sys->ops->destroy(sys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_arrive_in_order),
        cmocka_unit_test(test_nested_calls_wake_sleeping_cores),
        cmocka_unit_test(test_calls_between_cores),
        cmocka_unit_test(test_blocking_calls_run_on_helpers),
        cmocka_unit_test(test_blocking_calls_are_limited),
        cmocka_unit_test(test_idle_reactors_cost_nothing),
        cmocka_unit_test(test_pinning),
        cmocka_unit_test(test_options_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
