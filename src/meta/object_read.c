// SPDX-License-Identifier: Apache-2.0
// Opening, reading and closing an object.
//
// A GET of a small object is one index lookup and one record, at most one call to the owner core of
// the PG, and one message that sends the pinned record home. A HEAD copies what it needs to the
// request's arena while it is on the owner core and pins nothing. Large objects are read in pieces
// that do not cross an extent; while the caller sends one, the next ones are read. All but the
// first of these are given up when memory is short: nobody waits for memory while holding what
// comes later.
#include "meta/meta_internal.h"

#include <stdlib.h>

#include "base/assert.h"

#define READER_MAGIC     0x44414552u // "READ"
#define READ_PIECE_BYTES ((u32)(256 * KIB))
#define READ_AHEAD_MAX   3u // pieces

_Static_assert(STORE_EXTENT_BYTES % READ_PIECE_BYTES == 0, "pieces tile an extent");

// A piece of an extent on its way from the owner core.
struct read_piece {
    struct reader_state *state;
    u64 at;        // in the object
    u64 object_id; // of the extent sequence
    u32 chunk;
    u32 offset; // in the chunk
    u32 len;
    u32 buf_offset;   // where the bytes are in `buf`
    bool is_optional; // ERR_BUSY rather than waiting for memory
    struct held *held;
    enum err result;
    struct event done; // of a piece that is read ahead
};

// A buffer of the owner core, and its charge to that core's budget; both go home by one message,
// which outlives the reader.
struct held {
    struct meta *meta;
    struct buf *buf;
    u64 charge;
    struct message home;
};

// In the caller's arena.
struct reader_state {
    struct meta *meta;
    u32 owner_core;
    u32 pg;
    struct part_list parts;
    struct pg_record record;
    // The extent sequence that was read last, and where it begins in the object.
    u32 ref_index;
    u64 ref_at;
    struct held *view;                       // what the last object_read returned
    struct read_piece ahead[READ_AHEAD_MAX]; // a ring, in the order of the object
    u32 ahead_first;
    u32 ahead_count;
    u64 ahead_end; // where the last of them ends
    struct group group;
};

// ---- open

struct open_object {
    struct meta *meta;
    const struct place *place;
    struct arena *arena;
    struct reader_state *state;
    struct object_reader *reader;
    bool is_head;
    bool is_kept; // the record stays pinned
    enum err result;
};

// Attributes for the caller: in the arena, because a HEAD has no record to point into.
static enum err copy_attrs(struct open_object *o, const struct object_attrs *attrs)
{
    struct object_reader *r = o->reader;
    struct bytes rest = arena_copy(o->arena, attrs->attrs_raw);
    r->attrs = arena_alloc(o->arena, (attrs->attr_count + 1) * sizeof(*r->attrs));
    if (rest.data == NULL || r->attrs == NULL) {
        return ERR_NO_MEMORY;
    }
    r->attr_count = 0;
    while (r->attr_count < attrs->attr_count && object_attr_next(&rest, &r->attrs[r->attr_count])) {
        r->attr_count++;
    }
    ASSERT(r->attr_count == attrs->attr_count);
    return OK;
}

// On the owner core. The caller's arena is this call's until it returns.
MAY_WAIT static void open_run(void *arg)
{
    struct open_object *o = arg;
    struct object_attrs attrs = {0};
    struct pg_record *record = &o->state->record;
    o->result = pg_read(o->meta->store, o->place->pg, meta_key_bytes(&o->place->key), record);
    if (o->result != OK) {
        o->result = o->result == ERR_NOT_FOUND ? ERR_S3_NO_SUCH_KEY : o->result;
        return;
    }
    o->result = object_record_check(record, &o->reader->info, &attrs);
    if (o->result == OK) {
        o->result = copy_attrs(o, &attrs);
    }
    o->reader->part_count = attrs.parts.count;
    o->state->parts = attrs.parts;
    o->is_kept = o->result == OK && (!o->is_head || attrs.parts.count > 0);
    if (!o->is_kept) {
        pg_record_release(record);
    }
}

MAY_WAIT enum err object_open(struct meta *m, struct bytes bucket, struct bytes key, bool is_head,
                              struct arena *arena, struct object_reader *out)
{
    struct place place;
    TRY(place_find(m, bucket, key, &place));
    struct reader_state *s = arena_alloc(arena, sizeof(*s));
    if (s == NULL) {
        return ERR_NO_MEMORY;
    }
    s->meta = m;
    s->owner_core = place.core;
    s->pg = place.pg;
    s->ahead_first = 0;
    s->ahead_count = 0;
    s->ref_index = 0;
    s->ref_at = 0;
    s->view = NULL;
    struct open_object o = {
        .meta = m, .place = &place, .arena = arena, .state = s, .reader = out, .is_head = is_head};
    TRY(core_call(place.core, open_run, &o));
    TRY(o.result);
    if (o.is_kept) {
        group_init(&s->group);
    }
    out->magic = READER_MAGIC;
    out->meta = m;
    out->state = o.is_kept ? s : NULL;
    meta_core(m)->readers++;
    return OK;
}

// ---- read

static void held_drop(struct held *h)
{
    struct semaphore *out = &meta_core(h->meta)->budget.out;
    buf_put(h->buf);
    semaphore_give(out, h->charge);
    free(h);
}

static void held_arrived(struct message *m)
{
    held_drop(CONTAINER_OF(m, struct held, home));
}

// From any core.
static void held_put(struct held *h, u32 owner_core)
{
    if (h == NULL) {
        return;
    }
    if (owner_core == core_id()) {
        held_drop(h);
        return;
    }
    h->home.fn = held_arrived;
    core_post(owner_core, &h->home);
}

// On the owner core.
MAY_WAIT static void piece_run(void *arg)
{
    struct read_piece *p = arg;
    struct reader_state *s = p->state;
    struct semaphore *out = &meta_core(s->meta)->budget.out;
    struct held *h = malloc(sizeof(*h));
    if (h == NULL) {
        p->result = ERR_NO_MEMORY;
        return;
    }
    *h = (struct held){.meta = s->meta, .charge = budget_charge(p->len)};
    if (p->is_optional) {
        p->result = semaphore_try_take(out, h->charge) ? OK : ERR_BUSY;
    } else {
        p->result = semaphore_take(out, h->charge);
    }
    if (p->result == OK) {
        p->result = pg_extent_read(s->meta->store, s->pg, p->object_id, p->chunk, p->offset, p->len,
                                   &h->buf, &p->buf_offset);
        if (p->result != OK) {
            semaphore_give(out, h->charge);
        }
    }
    if (p->result != OK) {
        free(h);
        return;
    }
    p->held = h;
}

MAY_WAIT static void piece_read(void *arg)
{
    struct read_piece *p = arg;
    enum err e = core_call(p->state->owner_core, piece_run, p);
    p->result = e != OK ? e : p->result;
}

// Which extent holds the byte at `at`, and how much of it to read.
static void piece_locate(struct reader_state *s, u64 at, u64 len, struct read_piece *out)
{
    const struct extent_ref *refs = s->record.refs;
    if (at < s->ref_at) {
        s->ref_index = 0;
        s->ref_at = 0;
    }
    while (at - s->ref_at >= refs[s->ref_index].bytes) {
        s->ref_at += refs[s->ref_index].bytes;
        s->ref_index++;
        ASSERT(s->ref_index < s->record.ref_count);
    }
    u64 in_ref = at - s->ref_at;
    u32 offset = (u32)(in_ref % STORE_EXTENT_BYTES);
    u64 left = refs[s->ref_index].bytes - in_ref;
    left = MIN(left, (u64)(READ_PIECE_BYTES - offset % READ_PIECE_BYTES));
    *out = (struct read_piece){
        .state = s,
        .at = at,
        .object_id = refs[s->ref_index].object_id,
        .chunk = (u32)(in_ref / STORE_EXTENT_BYTES),
        .offset = offset,
        .len = (u32)MIN(len, left),
        .result = ERR_BUG,
    };
}

static void view_drop(struct reader_state *s)
{
    held_put(s->view, s->owner_core);
    s->view = NULL;
}

MAY_WAIT static void ahead_fiber(void *arg)
{
    struct read_piece *p = arg;
    piece_read(p);
    event_set(&p->done);
}

// Waits for the first piece that is read ahead; it is the caller's then.
MAY_WAIT static bool ahead_take(struct reader_state *s, struct read_piece *out)
{
    if (s->ahead_count == 0) {
        return false;
    }
    struct read_piece *p = &s->ahead[s->ahead_first];
    event_wait_certain(&p->done);
    *out = *p;
    s->ahead_first = (s->ahead_first + 1) % READ_AHEAD_MAX;
    s->ahead_count--;
    return true;
}

MAY_WAIT static void ahead_drop(struct reader_state *s)
{
    struct read_piece piece;
    while (ahead_take(s, &piece)) {
        if (piece.result == OK) {
            held_put(piece.held, s->owner_core);
        }
    }
}

// Reads on from `at`, or from where the pieces end that are on their way, up to `end`. Without a
// fiber to spare, what is missing is read when it is asked for.
static void ahead_fill(struct reader_state *s, u64 at, u64 end)
{
    if (s->ahead_count == 0) {
        s->ahead_end = at;
    }
    while (s->ahead_count < READ_AHEAD_MAX && s->ahead_end < end) {
        struct read_piece *p = &s->ahead[(s->ahead_first + s->ahead_count) % READ_AHEAD_MAX];
        piece_locate(s, s->ahead_end, end - s->ahead_end, p);
        p->is_optional = s->ahead_count > 0;
        event_init(&p->done);
        if (group_spawn(&s->group, ahead_fiber, p) != OK) {
            break;
        }
        s->ahead_end += p->len;
        s->ahead_count++;
    }
}

MAY_WAIT static void piece_get(struct reader_state *s, u64 offset, u64 len, struct read_piece *out)
{
    if (s->ahead_count > 0 && s->ahead[s->ahead_first].at == offset) {
        (void)ahead_take(s, out);
        if (out->result != ERR_BUSY) {
            return;
        }
    }
    ahead_drop(s);
    piece_locate(s, offset, len, out);
    piece_read(out);
}

MAY_WAIT static enum err read_extents(struct reader_state *s, u64 offset, u64 len,
                                      struct bytes *out)
{
    struct read_piece piece;
    piece_get(s, offset, len, &piece);
    TRY(piece.result);
    s->view = piece.held;
    *out = BYTES(piece.held->buf->data + piece.buf_offset, MIN(len, (u64)piece.len));
    if (out->len == piece.len) {
        ahead_fill(s, offset + out->len, offset + len);
    }
    return OK;
}

MAY_WAIT enum err object_read(struct object_reader *r, u64 offset, u64 len, struct bytes *out)
{
    ASSERT_MAGIC(r, READER_MAGIC);
    struct reader_state *s = r->state;
    *out = BYTES_NONE;
    if (offset >= r->info.size || len == 0) {
        return OK;
    }
    ASSERT(s != NULL); // not after is_head
    view_drop(s);
    len = MIN(len, r->info.size - offset);
    if (s->record.ref_count == 0) {
        *out = BYTES(s->record.payload.data + offset, len);
        return OK;
    }
    return read_extents(s, offset, len, out);
}

void object_read_release(struct object_reader *r)
{
    ASSERT_MAGIC(r, READER_MAGIC);
    if (r->state != NULL) {
        view_drop(r->state);
    }
}

// ---- parts

enum err object_part_at(struct object_reader *r, u32 index, struct object_part *out)
{
    ASSERT_MAGIC(r, READER_MAGIC);
    if (r->part_count == 0 && index == 0) {
        *out =
            (struct object_part){.number = 1, .size = r->info.size, .checksum = r->info.checksum};
        return OK;
    }
    if (index >= r->part_count) {
        return ERR_S3_INVALID_PART_NUMBER;
    }
    struct object_part part;
    u64 at = 0;
    for (u32 i = 0; i < index; i++) {
        part_list_at(&r->state->parts, i, &part);
        at += part.size;
    }
    part_list_at(&r->state->parts, index, out);
    out->offset = at;
    return OK;
}

enum err object_part_find(struct object_reader *r, u32 number, struct object_part *out)
{
    ASSERT_MAGIC(r, READER_MAGIC);
    u64 at = 0;
    if (r->part_count == 0) {
        return number == 1 ? object_part_at(r, 0, out) : ERR_S3_INVALID_PART_NUMBER;
    }
    for (u32 i = 0; i < r->part_count; i++) {
        part_list_at(&r->state->parts, i, out);
        out->offset = at;
        if (out->number == number) {
            return OK;
        }
        at += out->size;
    }
    return ERR_S3_INVALID_PART_NUMBER;
}

// ---- close

MAY_WAIT void object_close(struct object_reader *r)
{
    ASSERT_MAGIC(r, READER_MAGIC);
    struct meta_core *mc = meta_core(r->meta);
    struct reader_state *s = r->state;
    ASSERT(mc->readers > 0);
    mc->readers--;
    r->magic = 0;
    r->state = NULL;
    if (s == NULL) {
        return;
    }
    view_drop(s);
    ahead_drop(s);
    group_join(&s->group);
    group_deinit(&s->group);
    pg_record_release(&s->record);
}
