// SPDX-License-Identifier: Apache-2.0
// Single-thread mode: virtual time, the seeded schedule, and the contract with a simulator's
// engines (core/reactor.h), played here by the smallest sys that keeps it.
#include "harness.h"

#include "core/fileio.h"

#define FAKE_CORES 3

struct fake_sys {
    struct sys base;
    u64 now_ns;
    u64 random;
    struct fake_engine *engines[FAKE_CORES];
    u32 engine_count;
    u32 advances; // polls that let time pass
};

struct fake_engine {
    struct io_engine base;
    struct fake_sys *sys;
    struct list in_flight; // struct io_op; due at op->offset
};

static u64 fake_clock(struct sys *s)
{
    return CONTAINER_OF(s, struct fake_sys, base)->now_ns;
}

static void fake_random(struct sys *s, void *out, size_t len)
{
    struct fake_sys *fake = CONTAINER_OF(s, struct fake_sys, base);
    for (size_t i = 0; i < len; i++) {
        ((u8 *)out)[i] = (u8)++fake->random;
    }
}

static void fake_submit(struct io_engine *e, struct io_op *op)
{
    struct fake_engine *engine = CONTAINER_OF(e, struct fake_engine, base);
    op->offset += engine->sys->now_ns;
    list_add_tail(&engine->in_flight, &op->queue);
}

static u64 fake_next_due(struct fake_sys *s)
{
    u64 due = UINT64_MAX;
    for (u32 i = 0; i < s->engine_count; i++) {
        LIST_FOREACH (node, &s->engines[i]->in_flight) {
            due = MIN(due, CONTAINER_OF(node, struct io_op, queue)->offset);
        }
    }
    return due;
}

static void fake_poll(struct io_engine *e, u64 timeout_ns)
{
    struct fake_engine *engine = CONTAINER_OF(e, struct fake_engine, base);
    struct fake_sys *s = engine->sys;
    if (timeout_ns > 0) {
        u64 due = fake_next_due(s);
        u64 until = timeout_ns == UINT64_MAX ? UINT64_MAX : s->now_ns + timeout_ns;
        assert_true(engine == s->engines[0]);
        assert_true(MIN(due, until) != UINT64_MAX); // a deadlock
        s->now_ns = MAX(s->now_ns, MIN(due, until));
        s->advances++;
    }
    LIST_FOREACH_SAFE (node, &engine->in_flight) {
        struct io_op *op = CONTAINER_OF(node, struct io_op, queue);
        if (op->offset <= s->now_ns) {
            list_remove(node);
            op->result = (i32)op->len;
            op->state = IO_IDLE;
            op->done(op);
        }
    }
}

static void fake_wake(struct io_engine *e)
{
    (void)e;
    fail();
}

static void fake_engine_destroy(struct io_engine *e)
{
    struct fake_engine *engine = CONTAINER_OF(e, struct fake_engine, base);
    assert_true(list_is_empty(&engine->in_flight));
    free(engine);
}

static const struct io_engine_ops fake_engine_ops = {
    .destroy = fake_engine_destroy,
    .submit = fake_submit,
    .poll = fake_poll,
    .wake = fake_wake,
};

static enum err fake_io_create(struct sys *s, u32 depth, struct io_engine **out)
{
    struct fake_sys *fake = CONTAINER_OF(s, struct fake_sys, base);
    struct fake_engine *e = calloc(1, sizeof(*e));
    (void)depth;
    e->base.ops = &fake_engine_ops;
    e->sys = fake;
    list_init(&e->in_flight);
    fake->engines[fake->engine_count++] = e;
    *out = &e->base;
    return OK;
}

static const struct sys_ops fake_ops = {
    .clock_mono_ns = fake_clock,
    .clock_wall_ns = fake_clock,
    .random_bytes = fake_random,
    .io_create = fake_io_create,
};

// What a run did, in order.
struct story {
    u32 entries[4096];
    u32 count;
    u64 end_ns;
    u32 advances;
};

static void tell(struct story *story, u32 what)
{
    assert_true(story->count < ARRAY_LEN(story->entries));
    story->entries[story->count++] = what;
}

struct actor {
    struct story *story;
    u32 number;
};

static void read_virtual(struct actor *a, u64 duration_ns)
{
    u8 byte;
    assert_int_equal(fileio_read(3, &byte, 1, duration_ns), OK);
    tell(a->story, a->number);
}

static void act(void *arg)
{
    struct actor *a = arg;
    tell(a->story, a->number);
    fiber_yield();
    tell(a->story, a->number);
    read_virtual(a, NS_PER_S * (a->number % 3));
    assert_int_equal(fiber_sleep(NS_PER_S * 10), OK);
    tell(a->story, a->number);
}

static void helper(void *arg)
{
    tell(((struct actor *)arg)->story, 1000);
}

static void act_on_core(void *arg)
{
    struct story *story = arg;
    struct actor actors[6];
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < 6; i++) {
        actors[i] = (struct actor){story, core_id() * 10 + i};
        spawn(&g, act, &actors[i]);
    }
    assert_int_equal(blocking_call(helper, &actors[0]), OK);
    group_join(&g);
    group_deinit(&g);
}

struct core_call_args {
    u32 core;
    struct story *story;
};

static void call_core(void *arg)
{
    struct core_call_args *c = arg;
    assert_int_equal(core_call(c->core, act_on_core, c->story), OK);
}

static void story_body(void *arg)
{
    struct story *story = arg;
    struct core_call_args calls[FAKE_CORES];
    struct group g;
    u64 start_ns = core_now_ns();
    group_init(&g);
    for (u32 i = 0; i < FAKE_CORES; i++) {
        calls[i] = (struct core_call_args){i, story};
        spawn(&g, call_core, &calls[i]);
    }
    group_join(&g);
    group_deinit(&g);
    u64 took_ns = core_now_ns() - start_ns;
    assert_true(took_ns >= 12 * NS_PER_S && took_ns < 12 * NS_PER_S + NS_PER_MS);
}

static void run_story(u64 seed, struct story *story)
{
    struct fake_sys fake = {.base = {.ops = &fake_ops}, .now_ns = 1000};
    struct runtime *rt;
    struct runtime_options options = {.cores = FAKE_CORES,
                                      .fibers_max = 64,
                                      .buf_bytes = MIB,
                                      .is_single_thread = true,
                                      .schedule_seed = seed};
    memset(story, 0, sizeof(*story));
    assert_int_equal(runtime_create(&fake.base, &options, &rt), OK);
    assert_int_equal(runtime_run(rt, story_body, story), OK);
    runtime_destroy(rt);
    story->end_ns = fake.now_ns;
    story->advances = fake.advances;
}

static void test_a_seed_repeats_its_run(void **state)
{
    (void)state;
    static struct story first;
    static struct story again;
    static struct story other;
    u32 different = 0;
    for (u64 seed = 0; seed < 20; seed++) {
        run_story(seed, &first);
        run_story(seed, &again);
        assert_int_equal(first.count, FAKE_CORES * (6 * 4 + 1));
        assert_memory_equal(&first, &again, sizeof(first));
        run_story(seed + 1, &other);
        different += memcmp(first.entries, other.entries, sizeof(first.entries)) != 0;
    }
    assert_true(different >= 19);
}

// Twelve virtual seconds are a handful of jumps, not a wait.
static void test_time_jumps(void **state)
{
    (void)state;
    static struct story story;
    run_story(7, &story);
    assert_true(story.end_ns >= 12 * NS_PER_S);
    assert_in_range(story.advances, 5, 100);
}

// The real sys serves this mode with one core.
static void real_body(void *arg)
{
    u64 *took_ns = arg;
    u64 start_ns = core_now_ns();
    assert_int_equal(fiber_sleep(3 * NS_PER_MS), OK);
    *took_ns = core_now_ns() - start_ns;
}

static void test_single_thread_on_the_real_sys(void **state)
{
    (void)state;
    u64 took_ns = 0;
    run_with((struct runtime_options){.cores = 1, .is_single_thread = true, .schedule_seed = 3},
             real_body, &took_ns);
    assert_true(took_ns >= 3 * NS_PER_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seed_repeats_its_run),
        cmocka_unit_test(test_time_jumps),
        cmocka_unit_test(test_single_thread_on_the_real_sys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
