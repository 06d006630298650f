// SPDX-License-Identifier: Apache-2.0
// The clients of one core: fibers that do random operations until their share is done or the crash
// came.
#include "sim_random.h"
#include "trace.h"
#include "world.h"

#define CLIENTS_MAX 8

struct model_key *client_key(struct client *c)
{
    struct world *w = c->world;
    u32 pick = w->mine[c->core][draw(&c->random, w->mine_count[c->core])];
    return &w->model.keys[pick];
}

MAY_WAIT static void client_step(struct client *c)
{
    struct world *w = c->world;
    u64 kind = draw(&c->random, 100);
    if (kind < 45) {
        op_commit(c, 1);
    } else if (kind < 60) {
        op_commit(c, 2 + (u32)draw(&c->random, 4));
    } else if (kind < 85) {
        op_read(c);
    } else if (kind < 90) {
        op_lookup(c);
    } else if (kind < 95) {
        op_cursor(c);
    } else if (kind < 97) {
        op_abandon(c);
    } else if (kind < 98 && c->core == 0) {
        enum err e = store_compact_all(w->store);
        trace("client %u: compact_all: %s", c->number, err_name(e));
    } else if (fiber_sleep(draw(&c->random, 5 * NS_PER_MS)) != OK) {
        trace("client %u: a sleep ended early", c->number);
    }
}

static void client_fiber(void *arg)
{
    struct client *c = arg;
    struct world *w = c->world;
    for (u32 i = 0; i < w->client_ops && !world_is_crashed(w); i++) {
        client_step(c);
    }
    w->clients_working--;
}

// Compacts while any client works, so that moves race with everything else.
static void compactor_fiber(void *arg)
{
    struct client *c = arg;
    struct world *w = c->world;
    while (w->clients_working > 0 && !world_is_crashed(w)) {
        if (store_compact_all(w->store) != OK ||
            fiber_sleep(1 + draw(&c->random, 4 * NS_PER_MS)) != OK) {
            return;
        }
    }
}

MAY_WAIT void clients_run(struct world *w)
{
    u32 core = core_id();
    if (w->mine_count[core] == 0) {
        return;
    }
    struct client clients[CLIENTS_MAX];
    struct group g;
    group_init(&g);
    w->clients_working += w->clients;
    struct client compactor = {.world = w, .random = w->seed * 7919 + w->life};
    if (core == 0 && w->is_compacting) {
        enum err e = group_spawn(&g, compactor_fiber, &compactor);
        CHECK(e == OK, "group_spawn: %s", err_name(e));
    }
    for (u32 i = 0; i < w->clients; i++) {
        clients[i] = (struct client){.world = w, .core = core, .number = core * 100 + i};
        clients[i].random = w->seed * 1000003 + w->life * 1009 + core * 101 + i;
        enum err e = group_spawn(&g, client_fiber, &clients[i]);
        CHECK(e == OK, "group_spawn: %s", err_name(e));
    }
    group_join(&g);
    group_deinit(&g);
}
