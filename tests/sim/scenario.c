// SPDX-License-Identifier: Apache-2.0
// Drawing a run from its seed and living it (see scenario.h).
//
// A life: open the store (which recovers), compare every key with the model, let clients work, then
// end: by a close, by the end of the process, or by a power loss at some flush or completion,
// perhaps while still recovering. Between two lives bits may flip.
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_random.h"
#include "trace.h"

#define LIVES_MAX 5
#define BUF_BYTES (24 * MIB)

// What may go wrong in a life besides its end.
enum trouble {
    TROUBLE_NONE,
    TROUBLE_IO_ERRORS,
    TROUBLE_FLIPPED_BITS, // before it starts
    TROUBLE_FAILED_PAGES, // before it starts
    TROUBLE_MISDIRECTED,
};

static void draw_world(struct world *w)
{
    u64 *random = &w->random;
    w->drives = 1 + (u32)draw(random, WORLD_DRIVES_MAX);
    w->pg_count = 1u << (2 + draw(random, 3));
    w->is_large = draw(random, 40) == 0;
    w->segment_bytes = (u64)(w->is_large ? 4 : 1 + draw(random, 3)) * 256 * KIB;
    w->segment_bytes *= w->is_large ? 4 : 1;
    u64 segments = draw_percent(random, 40) ? 18 + draw(random, 8) : 28 + draw(random, 40);
    w->drive_bytes = segments * w->segment_bytes;
    w->cache_bytes = draw_percent(random, 60) ? 2 * MIB : 0;
    w->clients = w->run.is_plain ? 1 : 1 + (u32)draw(random, 6);
    w->client_ops = 8 + (u32)draw(random, draw_percent(random, 20) ? 100 : 30);
    if (w->run.crash_at_flush != 0) {
        // Every crash point of a short life, rather than some of a long one.
        w->client_ops = 6 + (u32)draw(random, 8);
        w->clients = MIN(w->clients, 2u);
    }
    w->delete_percent = 10 + (u32)draw(random, 30);
    w->is_extent_heavy = draw_percent(random, 50);
    u32 keys = draw_percent(random, 30) ? 200 + (u32)draw(random, 200) : 16 + (u32)draw(random, 60);
    model_init(&w->model, keys, random);
    w->is_limited = draw_percent(random, 70);
    // Without a limit of its own the store fills the filesystem.
    w->disk = sim_disk_create(w->is_limited ? 0 : w->drive_bytes + MIB);
    w->compact_percent = draw_percent(random, 50) ? 0 : 1 + (u32)draw(random, 95);
    ASSERT(w->disk != NULL);
    trace("drives %u, pgs %u, segments %llu of %llu KiB, keys %u, clients %u of %u ops", w->drives,
          w->pg_count, (unsigned long long)segments, (unsigned long long)(w->segment_bytes / KIB),
          keys, w->clients, w->client_ops);
}

// Where this life crashes: among the clients' work, or while it opens the store; or not.
static void draw_crash(struct world *w)
{
    u64 *random = &w->random;
    w->is_crash_among_clients = draw_percent(random, 70);
    w->sim.is_crash_after = draw_percent(random, 50);
    u64 flushes = 25;
    if (w->is_crash_among_clients) {
        // Several commits share a flush, and several operations are no commits.
        flushes = 1 + (u64)w->clients * w->client_ops * w->cores / (1 + draw(random, 4));
    }
    u64 how = draw(random, 100);
    if (how < 50) {
        w->sim.crash_at_flush = 1 + draw(random, flushes);
    } else if (how < 90) {
        w->sim.crash_at_event = 1 + draw(random, flushes * 4);
    }
}

// How this life ends, and what the drives do in it.
static void draw_life(struct world *w, enum trouble trouble, bool is_last)
{
    u64 *random = &w->random;
    w->errors = (struct errors){0};
    w->cores = 1 + (u32)draw(random, WORLD_CORES_MAX);
    w->sim = (struct sim_options){.seed = draw_word(random), .sabotage = w->run.sabotage};
    w->sim.short_ppm = w->run.is_plain ? 0 : (u32)draw(random, 2) * 20000;
    w->sim.is_kill = draw_percent(random, 25);
    w->is_crash_among_clients = false;
    w->is_compacting = draw_percent(random, 35);
    if (w->run.crash_at_flush != 0 && !is_last) {
        w->sim.crash_at_flush = w->run.crash_at_flush;
        w->sim.is_crash_after = w->run.is_crash_after;
        w->sim.is_kill = false;
    } else if (!is_last && !w->run.is_plain) {
        draw_crash(w);
    }
    if (trouble == TROUBLE_IO_ERRORS) {
        w->errors.read_ppm = draw_percent(random, 50) ? 3000 : 0;
        w->errors.write_ppm = draw_percent(random, 50) ? 1500 : 0;
        w->errors.flush_ppm = draw_percent(random, 50) ? 3000 : 0;
        // What cannot be read while recovering is lost, if that is accepted.
        w->errors.is_at_open = draw_percent(random, 20);
        bool is_lossy = w->errors.is_at_open && w->errors.read_ppm > 0;
        w->model.is_lenient |= is_lossy;
        w->is_damaged |= is_lossy;
    }
    w->sim.misdirect_ppm = trouble == TROUBLE_MISDIRECTED ? 5000 : 0;
    trace("life %u: cores %u, crash %sat flush %llu %s, at event %llu, %s, trouble %d", w->life,
          w->cores, w->is_crash_among_clients ? "among clients " : "",
          (unsigned long long)w->sim.crash_at_flush, w->sim.is_crash_after ? "after" : "before",
          (unsigned long long)w->sim.crash_at_event, w->sim.is_kill ? "kill" : "power",
          (int)trouble);
}

// Which core owns which key in this life.
static void keys_distribute(struct world *w)
{
    memset(w->mine_count, 0, sizeof(w->mine_count));
    for (u32 i = 0; i < w->model.key_count; i++) {
        struct model_key *k = &w->model.keys[i];
        u32 pg = store_pg_of(w->store, model_name(k));
        CHECK(k->pg == UINT32_MAX || k->pg == pg, "a key moved from PG %u to %u", k->pg, pg);
        k->pg = pg;
        u32 core = store_pg_core(w->store, pg);
        CHECK(core < w->cores, "PG %u is owned by core %u of %u", pg, core, w->cores);
        w->mine[core][w->mine_count[core]++] = (u16)i;
    }
}

static void clients_fiber(void *arg)
{
    clients_run(arg);
}

static void call_all(struct world *w, fiber_fn fn)
{
    enum err e = core_call_all(fn, w);
    CHECK(e == OK, "core_call_all: %s", err_name(e));
}

// Cursors and counts of a store that nobody writes to.
MAY_WAIT static void scan_all(struct world *w)
{
    w->keys_counted = 0;
    call_all(w, verify_scan);
    u64 present = 0;
    for (u32 i = 0; i < w->model.key_count; i++) {
        present += model_acked(&w->model.keys[i])->is_present;
    }
    CHECK(w->keys_counted == present, "the store counts %llu keys instead of %llu",
          (unsigned long long)w->keys_counted, (unsigned long long)present);
}

// After recovery.
MAY_WAIT static void verify_all(struct world *w)
{
    // A life that crashed while it recovered may have found the damage and sealed what is left.
    w->model.is_warned = trace_warnings() > w->warnings_at_damage;
    call_all(w, verify_core);
    if (!world_is_crashed(w)) {
        model_restart_settle(&w->model);
        w->is_verified = true;
        scan_all(w);
    }
}

// From now on operations fail as drawn.
static void errors_start(struct world *w)
{
    w->errors.are_on = w->errors.read_ppm + w->errors.write_ppm + w->errors.flush_ppm > 0;
    sim_errors_set(w->sys, w->errors.read_ppm, w->errors.write_ppm, w->errors.flush_ppm);
}

static void life_fiber(void *arg)
{
    struct world *w = arg;
    static const char *const paths[WORLD_DRIVES_MAX] = {"d0", "d1", "d2"};
    struct store_options o = {
        .drives = paths,
        .drive_count = w->drives,
        .pg_count = w->pg_count,
        .segment_bytes = w->segment_bytes,
        .drive_bytes_max = w->is_limited ? w->drive_bytes : 0,
        .cache_bytes = w->cache_bytes,
        .compact_percent = w->compact_percent,
    };
    u64 warnings = trace_warnings();
    if (w->errors.is_at_open) {
        errors_start(w);
    }
    enum err e = store_open(&o, &w->store);
    if (e == ERR_CORRUPT && w->is_damaged && !world_is_crashed(w)) {
        CHECK(trace_warnings() > warnings, "refused to open, and the log says nothing");
        trace("store_open: refused, and told to accept losses");
        w->model.is_lenient = true;
        o.accepts_losses = true;
        e = store_open(&o, &w->store);
    }
    if (e != OK) {
        bool is_explained = w->is_damaged && trace_warnings() > warnings;
        CHECK(world_is_crashed(w) || is_explained || w->errors.are_on, "store_open: %s",
              err_name(e));
        trace("store_open: %s, as may be", err_name(e));
        return;
    }
    keys_distribute(w);
    verify_all(w);
    errors_start(w);
    if (w->is_crash_among_clients) {
        sim_crash_arm(w->sys, w->sim.crash_at_flush, w->sim.is_crash_after, w->sim.crash_at_event);
    }
    if (!world_is_crashed(w)) {
        call_all(w, clients_fiber);
    }
    if (!world_is_crashed(w) && draw_percent(&w->random, 30)) {
        e = store_compact_all(w->store);
        trace("compact_all at the end: %s", err_name(e));
    }
    if (!world_is_crashed(w)) {
        scan_all(w);
    }
    store_close(w->store);
}

// One life of the process.
static void life_run(struct world *w)
{
    struct sim_options options = w->sim;
    if (w->is_crash_among_clients) {
        options.crash_at_flush = 0;
        options.crash_at_event = 0;
    }
    enum err e = sim_create(w->disk, &options, &w->sys);
    CHECK(e == OK, "sim_create: %s", err_name(e));
    struct runtime_options o = {
        .cores = w->cores,
        .fibers_max = 256,
        .buf_bytes = w->is_large ? 4 * BUF_BYTES : BUF_BYTES,
        .is_single_thread = true,
        .schedule_seed = w->sim.seed | 1,
    };
    struct runtime *rt;
    e = runtime_create(w->sys, &o, &rt);
    CHECK(e == OK, "runtime_create: %s", err_name(e));
    w->is_verified = false;
    e = runtime_run(rt, life_fiber, w);
    CHECK(e == OK, "runtime_run: %s", err_name(e));
    runtime_destroy(rt);
    struct sim_stats s;
    sim_stats(w->sys, &s);
    trace("life %u ended: %llu flushes, %llu writes, %llu reads, %s", w->life,
          (unsigned long long)s.flushes, (unsigned long long)s.writes, (unsigned long long)s.reads,
          s.is_crashed ? "crashed" : "closed");
    w->flushes_last = s.flushes;
    w->is_crashed_last = s.is_crashed;
    if (w->model.versions_made == w->model.key_count) {
        // Nobody wrote yet. A crash while formatting may lead to another format, which hashes
        // otherwise.
        for (u32 i = 0; i < w->model.key_count; i++) {
            w->model.keys[i].pg = UINT32_MAX;
        }
    }
    w->sys->ops->destroy(w->sys);
    w->sys = NULL;
}

// Damage of the medium between two lives.
static void damage(struct world *w, enum trouble kind)
{
    bool is_flip = kind == TROUBLE_FLIPPED_BITS;
    u32 count = 1 + (u32)draw(&w->random, draw_percent(&w->random, 50) ? 3 : 60);
    for (u32 i = 0; i < count; i++) {
        char place[600];
        if ((is_flip ? sim_disk_flip_bit : sim_disk_fail_page)(w->disk, &w->random, place,
                                                               sizeof(place))) {
            w->warnings_at_damage = trace_warnings();
            trace("%s in %s", is_flip ? "a bit flipped" : "a page failed", place);
            w->is_damaged = true;
            // After a crash the last commits may have been torn, for all that recovery knows.
            w->model.is_lenient |= w->is_crashed_last;
            w->model.needs_warning = true;
        }
    }
}

static enum trouble draw_trouble(struct world *w)
{
    u64 kind = draw(&w->random, 100);
    if (w->run.is_plain || w->run.crash_at_flush != 0 || w->run.sabotage != SIM_BREAK_NONE) {
        return TROUBLE_NONE;
    }
    return kind < 70   ? TROUBLE_NONE
           : kind < 80 ? TROUBLE_IO_ERRORS
           : kind < 88 ? TROUBLE_FLIPPED_BITS
           : kind < 95 ? TROUBLE_FAILED_PAGES
                       : TROUBLE_MISDIRECTED;
}

static struct world *world_create(u64 seed, const struct run_options *options)
{
    struct world *w = calloc(1, sizeof(*w));
    ASSERT(w != NULL);
    w->seed = seed;
    w->random = seed * 0x9e3779b97f4a7c15u;
    w->run = *options;
    trace_start(seed, options->is_verbose);
    draw_world(w);
    return w;
}

static void world_destroy(struct world *w)
{
    sim_disk_destroy(w->disk);
    model_deinit(&w->model);
    free(w);
}

void scenario_run(u64 seed, const struct run_options *options)
{
    struct world *w = world_create(seed, options);
    u32 lives = options->lives != 0 ? options->lives : 3 + (u32)draw(&w->random, LIVES_MAX - 2);
    enum trouble trouble = draw_trouble(w);
    u32 when = 1 + (u32)draw(&w->random, lives - 1); // the life that has the trouble
    for (w->life = 0; w->life < lives; w->life++) {
        enum trouble now = w->life == when ? trouble : TROUBLE_NONE;
        if (now == TROUBLE_FLIPPED_BITS || now == TROUBLE_FAILED_PAGES) {
            damage(w, now);
        }
        draw_life(w, now, w->life + 1 == lives);
        if (now == TROUBLE_MISDIRECTED) {
            w->is_damaged = true; // reads in this life may find the damage
        }
        life_run(w);
        if (now == TROUBLE_MISDIRECTED) {
            w->model.is_lenient = true;
        }
    }
    world_destroy(w);
}

u64 scenario_count_flushes(u64 seed)
{
    struct run_options o = {.crash_at_flush = UINT64_MAX};
    struct world *w = world_create(seed, &o);
    draw_life(w, TROUBLE_NONE, false);
    life_run(w);
    u64 flushes = w->flushes_last;
    world_destroy(w);
    return flushes;
}
