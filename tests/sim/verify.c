// SPDX-License-Identifier: Apache-2.0
// Comparing a store that just started with the model, and a quiet one at any time.
#include "sim_random.h"
#include "trace.h"
#include "world.h"

// Reads one key whole. The index and the record must agree.
MAY_WAIT static void verify_key(struct world *w, struct model_key *k)
{
    struct pg_entry entry;
    bool is_there = pg_lookup(w->store, k->pg, model_name(k), &entry);
    u32 index = is_there ? model_match_summary(k, entry.summary) : UINT32_MAX;
    CHECK(!is_there || index != UINT32_MAX, "after a restart \"%.*s\" has an alien summary",
          (int)MIN(k->name_bytes, 20u), k->name);
    struct pg_record r = {0};
    enum err e = pg_read(w->store, k->pg, model_name(k), &r);
    if (world_is_crashed(w)) {
        if (e == OK) {
            pg_record_release(&r);
        }
        return;
    }
    if (e == OK) {
        CHECK(is_there && model_match_summary(k, r.summary) == index,
              "after a restart record and index of \"%.*s\" differ", (int)MIN(k->name_bytes, 20u),
              k->name);
        model_check_record(k, index, &r);
        refs_check(w, k, index, &r, &w->random, true);
        pg_record_release(&r);
    } else if (e == ERR_NOT_FOUND) {
        CHECK(!is_there, "after a restart the index has a key that pg_read has not");
    } else {
        read_error_check(w, e, "pg_read after a restart");
    }
    if (!world_is_crashed(w)) {
        model_restart_observe(&w->model, k, index);
    }
}

MAY_WAIT void verify_core(void *world)
{
    struct world *w = world;
    u32 core = core_id();
    for (u32 i = 0; i < w->mine_count[core] && !world_is_crashed(w); i++) {
        verify_key(w, &w->model.keys[w->mine[core][i]]);
    }
}

void verify_scan(void *world)
{
    struct world *w = world;
    struct model *m = &w->model;
    u32 core = core_id();
    for (u32 pg = 0; pg < store_pg_count(w->store); pg++) {
        if (store_pg_core(w->store, pg) != core) {
            continue;
        }
        struct pg_cursor cursor;
        bool has = pg_cursor_seek(&cursor, w->store, pg, BYTES_NONE, false);
        for (u32 i = 0; i < m->key_count; i++) {
            const struct model_key *k = &m->keys[i];
            if (k->pg != pg || !model_acked(k)->is_present) {
                continue;
            }
            bool is_same = has && bytes_equal(BYTES(cursor.key, cursor.key_len), model_name(k));
            CHECK(is_same, "a walk over PG %u misses version %llu or has a key too many", pg,
                  (unsigned long long)model_acked(k)->id);
            CHECK(model_match_summary(k, cursor.summary) == k->acked,
                  "a walk shows another version");
            has = pg_cursor_next(&cursor);
        }
        CHECK(!has, "a walk over PG %u has a key too many: \"%.*s\"", pg,
              (int)MIN(cursor.key_len, 20u), cursor.key);
    }
    struct store_usage usage;
    store_usage(w->store, &usage);
    w->keys_counted += usage.keys;
}
