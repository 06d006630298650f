// SPDX-License-Identifier: Apache-2.0
// Operations of simulated clients that read, each compared with the model.
#include "sim_random.h"
#include "trace.h"
#include "world.h"

bool read_error_check(struct world *w, enum err e, const char *what)
{
    if (world_is_crashed(w)) {
        return true;
    }
    bool is_allowed =
        (e == ERR_CORRUPT && w->is_damaged) ||
        (e == ERR_IO && (w->is_damaged || (w->errors.are_on && w->errors.read_ppm > 0))) ||
        e == ERR_NO_MEMORY;
    CHECK(is_allowed, "%s: %s", what, err_name(e));
    trace("%s: %s, as may be", what, err_name(e));
    return true;
}

// Reads one range of a chunk and compares it.
MAY_WAIT static void range_check(struct world *w, const struct model_key *k,
                                 const struct model_ref *ref, u32 chunk, u32 offset, u32 len)
{
    struct buf *b;
    u32 at;
    enum err e = pg_extent_read(w->store, k->pg, ref->object_id, chunk, offset, len, &b, &at);
    if (e != OK) {
        read_error_check(w, e, "pg_extent_read");
        return;
    }
    u64 from = (u64)chunk * STORE_EXTENT_BYTES + offset;
    bool is_equal = content_equals(ref->content, from, b->data + at, len);
    CHECK(is_equal || world_is_crashed(w), "extent %llx chunk %u [%u, +%u): wrong bytes",
          (unsigned long long)ref->object_id, chunk, offset, len);
    buf_put(b);
}

MAY_WAIT void refs_check(struct world *w, struct model_key *k, u32 index, const struct pg_record *r,
                         u64 *random, bool is_whole)
{
    for (u32 i = 0; i < r->ref_count; i++) {
        struct model_ref ref = k->versions[index].refs[i]; // versions may move while this waits
        u32 chunks = (u32)((ref.bytes + STORE_EXTENT_BYTES - 1) / STORE_EXTENT_BYTES);
        for (u32 chunk = 0; chunk < chunks; chunk++) {
            u32 bytes = (u32)MIN(ref.bytes - chunk * STORE_EXTENT_BYTES, STORE_EXTENT_BYTES);
            u32 offset = is_whole ? 0 : (u32)draw(random, bytes);
            u32 len = is_whole ? bytes : 1 + (u32)draw(random, bytes - offset);
            range_check(w, k, &ref, chunk, offset, len);
        }
    }
}

MAY_WAIT static void release_elsewhere(void *arg)
{
    pg_record_release(arg);
}

// Gives a record back, sometimes from another core.
MAY_WAIT static void record_release(struct client *c, struct pg_record *r)
{
    u32 core = draw_percent(&c->random, 30) ? (u32)draw(&c->random, c->world->cores) : c->core;
    if (core == c->core || core_call(core, release_elsewhere, r) != OK) {
        pg_record_release(r);
    }
}

// Reads a key; sometimes keeps the record pinned for a while before it reads the extents.
MAY_WAIT void op_read(struct client *c)
{
    struct world *w = c->world;
    struct model_key *k = client_key(c);
    u32 acked_before = k->acked;
    struct pg_record r = {0};
    enum err e = pg_read(w->store, k->pg, model_name(k), &r);
    if (world_is_crashed(w)) {
        if (e == OK) {
            pg_record_release(&r);
        }
        return;
    }
    if (e == ERR_NOT_FOUND) {
        model_observe(k, UINT32_MAX, acked_before);
        return;
    }
    if (e != OK) {
        read_error_check(w, e, "pg_read");
        return;
    }
    u32 index = model_match_summary(k, r.summary);
    CHECK(index != UINT32_MAX, "a read of \"%.*s\" gave a record that was never written to it",
          (int)MIN(k->name_bytes, 20u), k->name);
    model_check_record(k, index, &r);
    model_observe(k, index, acked_before);
    if (draw_percent(&c->random, 40)) {
        if (fiber_sleep(draw(&c->random, 20 * NS_PER_MS)) != OK) {
            trace("a sleep ended early");
        }
        model_check_record(k, index, &r); // pinned: still the same
    }
    refs_check(w, k, index, &r, &c->random, draw_percent(&c->random, 30));
    record_release(c, &r);
}

// What the index says, at one moment.
void op_lookup(struct client *c)
{
    struct world *w = c->world;
    struct model_key *k = client_key(c);
    struct pg_entry entry;
    bool is_there = pg_lookup(w->store, k->pg, model_name(k), &entry);
    if (world_is_crashed(w)) {
        return;
    }
    u32 index = is_there ? model_match_summary(k, entry.summary) : UINT32_MAX;
    CHECK(!is_there || index != UINT32_MAX, "the index holds a summary that was never written");
    model_observe(k, index, k->acked);
    CHECK(!is_there || entry.has_refs == (k->versions[index].ref_count > 0),
          "the index is wrong about references of version %llu",
          (unsigned long long)k->versions[index].id);
}

// Walks some keys of one PG; the fiber does not wait, so all of it is one moment.
void op_cursor(struct client *c)
{
    struct world *w = c->world;
    if (world_is_crashed(w)) {
        return;
    }
    struct model *m = &w->model;
    struct model_key *from = client_key(c);
    u32 pg = from->pg;
    bool is_after = draw_percent(&c->random, 50);
    struct pg_cursor cursor;
    bool has = pg_cursor_seek(&cursor, w->store, pg, model_name(from), is_after);
    u32 next = (u32)(from - m->keys) + (is_after ? 1 : 0);
    for (u32 steps = 0; steps < 60; steps++) {
        u32 here = m->key_count;
        if (has) {
            struct model_key *k = model_find(m, BYTES(cursor.key, cursor.key_len));
            CHECK(k != NULL && k->pg == pg, "a cursor stands on a key that is not in PG %u", pg);
            here = (u32)(k - m->keys);
            CHECK(here >= next, "a cursor does not ascend");
            u32 index = model_match_summary(k, cursor.summary);
            CHECK(index != UINT32_MAX, "a cursor shows a summary that was never written");
            CHECK(
                k->writers > 0 || index == k->acked, "a cursor shows version %llu instead of %llu",
                (unsigned long long)k->versions[index].id, (unsigned long long)model_acked(k)->id);
        }
        for (; next < here; next++) {
            const struct model_key *k = &m->keys[next];
            CHECK(k->pg != pg || k->writers > 0 || !model_acked(k)->is_present,
                  "a cursor skips version %llu", (unsigned long long)model_acked(k)->id);
        }
        if (!has) {
            return;
        }
        next = here + 1;
        has = pg_cursor_next(&cursor);
    }
}
