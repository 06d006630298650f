// SPDX-License-Identifier: Apache-2.0
// Groups: the scopes of structured concurrency. Cancellation is a flag that every wait looks at,
// plus a push for the children that are suspended now; it goes down the tree through group_join.
#include "core/internal.h"

void group_init(struct group *g)
{
    *g = (struct group){.magic = GROUP_MAGIC};
    list_init(&g->children);
}

void group_deinit(struct group *g)
{
    ASSERT_MAGIC(g, GROUP_MAGIC);
    ASSERT(g->live == 0 && list_is_empty(&g->children) && g->joiner == NULL);
    g->magic = 0;
}

enum err group_spawn(struct group *g, fiber_fn fn, void *arg)
{
    struct fiber *parent = fiber_current();
    return group_spawn_until(g, fn, arg, parent == NULL ? 0 : parent->deadline.at_ns);
}

// Depth of recursion is the depth of nested joins, each of which has a fiber of its own.
void group_cancel(struct group *g)
{
    ASSERT_MAGIC(g, GROUP_MAGIC);
    if (g->is_cancelled) {
        return;
    }
    g->is_cancelled = true;
    LIST_FOREACH (node, &g->children) {
        struct fiber *f = CONTAINER_OF(node, struct fiber, group_node);
        if (f->state != FIBER_PARKED || f->shield > 0) {
            continue;
        }
        if (f->joining != NULL) {
            group_cancel(f->joining);
        } else if (!f->is_certain) {
            fiber_ready(f, ERR_CANCELLED);
        }
    }
}

MAY_WAIT void group_join(struct group *g)
{
    struct fiber *f = fiber_current();
    ASSERT(f != NULL);
    ASSERT_MAGIC(g, GROUP_MAGIC);
    ASSERT(g->joiner == NULL && f->group != g);
    if (g->live == 0) {
        return;
    }
    if (f->shield == 0 && f->group->is_cancelled) {
        group_cancel(g);
    }
    g->joiner = f;
    f->joining = g;
    fiber_park_certain(f);
    f->joining = NULL;
    g->joiner = NULL;
    ASSERT(g->live == 0);
}
