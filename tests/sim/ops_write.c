// SPDX-License-Identifier: Apache-2.0
// Operations of simulated clients that write: batches of puts and deletes, with attributes, inline
// payloads and extents; references kept over a rewrite, moved to another key, or shared.
#include <stdlib.h>
#include <string.h>

#include "sim_random.h"
#include "trace.h"
#include "world.h"

#define BATCH_MAX 5

// One change of a batch while it is made.
struct change {
    struct model_key *key;
    struct version *version; // valid only while nothing waits
    u64 version_id;
    struct pg_key_lock lock;
    struct extent_ref refs[MODEL_REFS_MAX];
    u64 made[MODEL_REFS_MAX]; // sequences that were written for it
    u32 made_count;
    u8 *attrs;
    u8 *payload;
};

static struct version *version_of(struct change *ch)
{
    struct model_key *k = ch->key;
    for (u32 i = k->count; i-- > 0;) {
        if (k->versions[i].id == ch->version_id) {
            return &k->versions[i];
        }
    }
    trace_fail("no version %llu", (unsigned long long)ch->version_id);
}

// Sizes as objects have them: mostly small, some at a limit.
static u32 draw_bytes(u64 *random, u32 max)
{
    switch (draw(random, 8)) {
    case 0:
        return 0;
    case 1:
        return max;
    case 2:
        return (u32)draw(random, max + 1);
    default:
        return (u32)draw(random, MIN(max, 2000u));
    }
}

// Writes one chunk of a sequence.
MAY_WAIT static enum err chunk_write(struct world *w, u32 pg, const struct model_ref *ref,
                                     u32 chunk, u32 bytes)
{
    struct buf *frame = buf_get(STORE_EXTENT_HEADER + ALIGN_UP(bytes, 4096u));
    if (frame == NULL) {
        return ERR_NO_MEMORY;
    }
    content_fill(ref->content, (u64)chunk * STORE_EXTENT_BYTES, frame->data + STORE_EXTENT_HEADER,
                 bytes);
    enum err e = pg_extent_write(w->store, pg, ref->object_id, chunk, frame, bytes);
    buf_put(frame);
    return e;
}

// Writes a new sequence; its name is in *ref whether or not it succeeds.
MAY_WAIT static enum err sequence_write(struct client *c, u32 pg, struct model_ref *ref)
{
    struct world *w = c->world;
    ref->object_id = pg_object_id_new(w->store, pg);
    ref->content = draw_word(&c->random);
    u32 max = (u32)MIN(w->segment_bytes / 4, (u64)128 * KIB);
    ref->bytes = 1 + draw_bytes(&c->random, max - 1);
    if (w->is_large && draw_percent(&c->random, 20)) {
        ref->bytes = STORE_EXTENT_BYTES + draw(&c->random, 300000);
    }
    struct model_ref copy = *ref;
    u32 chunks = (u32)((copy.bytes + STORE_EXTENT_BYTES - 1) / STORE_EXTENT_BYTES);
    for (u32 chunk = 0; chunk < chunks; chunk++) {
        u64 left = copy.bytes - chunk * STORE_EXTENT_BYTES;
        TRY(chunk_write(w, pg, &copy, chunk, (u32)MIN(left, (u64)STORE_EXTENT_BYTES)));
    }
    return OK;
}

// Gives a version new sequences.
MAY_WAIT static enum err version_add_refs(struct client *c, struct change *ch)
{
    u32 count = 1 + (u32)draw(&c->random, draw_percent(&c->random, 20) ? MODEL_REFS_MAX : 1);
    for (u32 i = 0; i < count; i++) {
        struct model_ref ref;
        enum err e = sequence_write(c, ch->key->pg, &ref);
        ch->made[ch->made_count++] = ref.object_id;
        TRY(e);
        struct version *v = version_of(ch);
        v->refs[v->ref_count++] = ref;
    }
    return OK;
}

// Takes over the references of another acknowledged version, whose key is locked too.
static void version_copy_refs(struct version *v, const struct version *from)
{
    v->ref_count = from->ref_count;
    memcpy(v->refs, from->refs, sizeof(v->refs));
}

// Decides what becomes of one key of the batch. `other` is a key of the same batch, or NULL.
MAY_WAIT static enum err change_draw(struct client *c, struct change *ch, struct change *other)
{
    struct world *w = c->world;
    struct version *v = version_of(ch);
    u64 kind = draw(&c->random, 100);
    if (kind < w->delete_percent) {
        return OK; // a delete
    }
    v->is_present = true;
    v->attrs_bytes = draw_bytes(&c->random, draw_percent(&c->random, 3) ? MODEL_ATTRS_MAX : 300);
    const struct version *before = model_acked(ch->key);
    u64 how = draw(&c->random, 100);
    if (how < 10 && before->ref_count > 0) {
        version_copy_refs(v, before); // new attributes, same bytes
        return OK;
    }
    if (how < 25 && other != NULL && model_acked(other->key)->ref_count > 0) {
        version_copy_refs(v, model_acked(other->key)); // moved, or shared if that one stays
        return OK;
    }
    if (how < (w->is_extent_heavy ? 75u : 45u)) {
        return version_add_refs(c, ch);
    }
    u32 max = draw_percent(&c->random, 10) ? (u32)STORE_INLINE_BYTES_MAX : 4000u;
    v->payload_bytes = draw_bytes(&c->random, max);
    return OK;
}

// Fills in what the store is given.
static void change_fill(struct change *ch, struct store_change *out)
{
    const struct version *v = version_of(ch);
    *out = (struct store_change){.key = model_name(ch->key), .is_delete = !v->is_present};
    if (!v->is_present) {
        return;
    }
    version_summary(v, out->summary);
    ch->attrs = malloc(v->attrs_bytes + 1);
    ch->payload = malloc(v->payload_bytes + 1);
    ASSERT(ch->attrs != NULL && ch->payload != NULL);
    content_fill(version_attrs_content(v), 0, ch->attrs, v->attrs_bytes);
    content_fill(version_payload_content(v), 0, ch->payload, v->payload_bytes);
    out->attrs = BYTES(ch->attrs, v->attrs_bytes);
    out->payload = BYTES(ch->payload, v->payload_bytes);
    for (u32 i = 0; i < v->ref_count; i++) {
        ch->refs[i] = (struct extent_ref){v->refs[i].object_id, v->refs[i].bytes};
    }
    out->refs = ch->refs;
    out->ref_count = v->ref_count;
}

// What the result of a commit means for its versions.
static enum fate fate_of(struct world *w, enum err e, bool was_sent, bool is_deletes_only)
{
    if (world_is_crashed(w)) {
        return was_sent ? FATE_UNKNOWN : FATE_FAILED;
    }
    if (e == OK) {
        return FATE_ACKED;
    }
    bool is_faulty = w->errors.are_on || w->is_damaged;
    CHECK(e != ERR_DRIVE_FULL || !is_deletes_only || is_faulty, "a full drive refused a delete");
    if (e == ERR_IO) {
        CHECK(is_faulty, "a commit failed with IO, and the drives had no fault");
        return was_sent ? FATE_UNKNOWN : FATE_FAILED;
    }
    bool is_known = e == ERR_DRIVE_FULL || e == ERR_NO_MEMORY || e == ERR_LIMIT_REACHED;
    CHECK(is_known, "a commit failed with %s", err_name(e));
    return FATE_FAILED;
}

// Draws, writes and commits the changes, whose keys are locked.
MAY_WAIT static void batch_run(struct client *c, struct change *changes, u32 count)
{
    struct world *w = c->world;
    u64 batch = ++w->model.batches_made;
    bool is_deletes_only = true;
    enum err e = OK;
    for (u32 i = 0; i < count; i++) {
        changes[i].key->writers++;
        CHECK(changes[i].key->writers == 1, "two fibers hold the lock of one key");
        changes[i].version_id = model_version_add(&w->model, changes[i].key, batch)->id;
    }
    for (u32 i = 0; i < count && e == OK; i++) {
        struct change *other = count > 1 ? &changes[(i + 1) % count] : NULL;
        e = change_draw(c, &changes[i], other);
    }
    struct store_change out[BATCH_MAX];
    bool was_sent = e == OK;
    if (was_sent) {
        for (u32 i = 0; i < count; i++) {
            change_fill(&changes[i], &out[i]);
            is_deletes_only &= out[i].is_delete;
        }
        e = pg_commit(w->store, changes[0].key->pg, out, count);
    }
    enum fate fate = fate_of(w, e, was_sent, was_sent && is_deletes_only);
    trace("client %u: batch %llu of %u in pg %u, first version %llu %s: %s", c->number,
          (unsigned long long)batch, count, changes[0].key->pg,
          (unsigned long long)changes[0].version_id,
          version_of(&changes[0])->is_present ? "put" : "delete", err_name(e));
    for (u32 i = 0; i < count; i++) {
        model_commit_done(changes[i].key, changes[i].version_id, fate);
        changes[i].key->writers--;
        for (u32 n = 0; n < changes[i].made_count && e != OK; n++) {
            pg_extent_abandon(w->store, changes[i].key->pg, changes[i].made[n]);
        }
        free(changes[i].attrs);
        free(changes[i].payload);
    }
}

// Picks distinct keys of one PG, in order, so that locks are always taken in the same order.
static u32 batch_pick(struct client *c, struct change *changes, u32 count)
{
    struct model *m = &c->world->model;
    const struct model_key *first = client_key(c);
    u32 picked = 0;
    u32 start = (u32)(first - m->keys);
    for (u32 i = start; i < m->key_count && picked < count; i++) {
        if (m->keys[i].pg == first->pg && (i == start || draw_percent(&c->random, 60))) {
            changes[picked++] = (struct change){.key = &m->keys[i]};
        }
    }
    return picked;
}

MAY_WAIT void op_commit(struct client *c, u32 key_count)
{
    struct world *w = c->world;
    struct change changes[BATCH_MAX];
    u32 count = batch_pick(c, changes, MIN(key_count, (u32)BATCH_MAX));
    u32 locked = 0;
    if (draw_percent(&c->random, 5)) {
        fiber_set_deadline(core_now_ns() + 1 + draw(&c->random, 3 * NS_PER_MS));
    }
    while (locked < count) {
        const struct model_key *k = changes[locked].key;
        enum err e = pg_key_lock(w->store, k->pg, model_name(k), &changes[locked].lock);
        if (e != OK) {
            bool is_known = e == ERR_NO_MEMORY || (e == ERR_DEADLINE && fiber_deadline() != 0);
            CHECK(is_known, "pg_key_lock: %s", err_name(e));
            break;
        }
        locked++;
    }
    fiber_set_deadline(0);
    if (locked == count) {
        batch_run(c, changes, count);
    }
    while (locked > 0) {
        pg_key_unlock(&changes[--locked].lock);
    }
}

// Writes a sequence that nothing will refer to.
MAY_WAIT void op_abandon(struct client *c)
{
    struct world *w = c->world;
    u32 pg = client_key(c)->pg;
    struct model_ref ref;
    enum err e = sequence_write(c, pg, &ref);
    if (e != OK && !world_is_crashed(w)) {
        fate_of(w, e, false, false);
    }
    if (draw_percent(&c->random, 80)) {
        pg_extent_abandon(w->store, pg, ref.object_id);
    }
}
