// SPDX-License-Identifier: Apache-2.0
// Recovery. All cores work through the segments of all drives, a few at a time each, and hand every
// footer block to the cores that own its entries. Merging needs no order: of each key the highest
// seq wins, and what lost is counted as its shadow. When all is merged, references are counted and
// what nothing refers to is dropped.
#include "store/recovery.h"

#include <stdlib.h>

#include "base/endian.h"
#include "base/log.h"
#include "core/mailbox.h"
#include "core/metrics.h"
#include "dev/segment.h"
#include "store/segment_scan.h"

#define RECOVERY_FIBERS 4  // segments that a core works on at once
#define REMOVE_BATCH    64 // tombstones dropped between two walks

// A record with several references, kept until it is known whether it won.
struct many_refs {
    struct many_refs *next;
    u32 pg;
    u32 segment;
    u32 offset_units;
    u32 count;
    u32 key_bytes;
    u8 bytes[]; // ids (8 bytes each), key
};

// A core's part of the work.
struct recovery {
    u32 next_drive; // the next segment to look at
    u32 next_segment;
    struct many_refs *many;
    enum err result;
    u64 records;
    u64 extents;
    u64 scanned;
    u64 strangers;
    u64 lost; // segments of which records of unknown keys are lost
};

// ---- blocks to their owners

bool footer_entry_is_mine(const struct shard *sh, const struct drive *d,
                          const struct footer_entry *e)
{
    const struct store *s = sh->store;
    return e->pg < s->pg_count && e->pg % s->cores == sh->core &&
           store_pg_drive(s, e->pg) == d->super.drive_index;
}

// Which cores own entries of a block. ERR_CORRUPT if an entry is malformed.
static enum err block_owners(const struct store *s, const u8 *block, u64 *cores)
{
    struct footer_entry e;
    enum err err;
    u32 pos = 0;
    *cores = 0;
    while (footer_block_next(block, &pos, &e, &err)) {
        *cores |= 1ull << (e.pg % s->cores);
    }
    return err;
}
_Static_assert(CORES_MAX <= 64, "a bit a core");

struct block_call_at {
    struct block_call call;
    block_fn fn;
};

MAY_WAIT static void block_call_run(void *arg)
{
    struct block_call_at *at = arg;
    at->call.result = at->fn(shard_here(at->call.store), &at->call);
}

// Hands one block to each core that owns entries of it.
MAY_WAIT static enum err block_dispatch(struct block_call call, block_fn fn)
{
    struct store *s = call.store;
    u64 cores;
    TRY(block_owners(s, call.block, &cores));
    for (u32 core = 0; core < s->cores; core++) {
        if ((cores >> core & 1) == 0) {
            continue;
        }
        struct block_call_at at = {.call = call, .fn = fn};
        TRY(core_call(core, block_call_run, &at));
        TRY(at.call.result);
    }
    return OK;
}

MAY_WAIT enum err footer_each_block(struct store *s, struct drive *d, struct segment *seg,
                                    const struct footer *f, block_fn fn, void *arg)
{
    struct block_call call = {.store = s, .drive = d, .seg = seg, .arg = arg};
    for (u32 i = 0; i < f->block_count; i++) {
        call.block = f->blocks[i];
        TRY(block_dispatch(call, fn));
    }
    return OK;
}

// ---- merging

static enum err many_refs_keep(struct recovery *r, u32 segment, const struct footer_entry *e)
{
    size_t ids_bytes = (size_t)e->refs_here * 8;
    struct many_refs *m = malloc(sizeof(*m) + ids_bytes + e->key.len);
    if (m == NULL) {
        return ERR_NO_MEMORY;
    }
    *m = (struct many_refs){.next = r->many,
                            .pg = e->pg,
                            .segment = segment,
                            .offset_units = e->offset_units,
                            .count = e->refs_here,
                            .key_bytes = (u32)e->key.len};
    memcpy(m->bytes, e->ids, ids_bytes);
    if (e->key.len > 0) {
        memcpy(m->bytes + ids_bytes, e->key.data, e->key.len);
    }
    r->many = m;
    return OK;
}

static struct index_value value_of(u32 segment, const struct footer_entry *e)
{
    struct index_value v = {
        .location = {.segment = segment, .offset_units = e->offset_units, .bytes = e->bytes},
        .seq = e->seq,
    };
    if (e->kind == FOOTER_DELETE) {
        v.flags = INDEX_TOMBSTONE;
        return v;
    }
    memcpy(v.summary, e->summary, STORE_SUMMARY_BYTES);
    if (e->ref_count > 0 && e->refs_here > 0) {
        v.flags = INDEX_HAS_REFS;
        v.flags |= e->ref_count > 1 ? INDEX_MANY_REFS : 0;
        v.object_id = load_le64(e->ids);
    }
    return v;
}

static u16 shadows_plus(u16 shadows, bool is_put)
{
    return is_put && shadows < SHADOWS_MAX ? (u16)(shadows + 1) : shadows;
}

static enum err record_merge(struct shard *sh, struct shard_drive *sd, u32 segment,
                             const struct footer_entry *e)
{
    struct pg *p = shard_pg(sh, e->pg);
    p->next_seq = MAX(p->next_seq, e->seq + 1);
    // Most keys have one record: put first, and look at what stood there only if something did.
    struct index_value v = value_of(segment, e);
    struct index_value old;
    bool existed;
    TRY(index_put(&p->index, e->key, &v, &existed, &old));
    if (!existed) {
        shard_live_add(sd, segment, e->bytes);
        return OK;
    }
    if (e->seq > old.seq) {
        shard_live_sub(sd, old.location.segment, old.location.bytes);
        shard_live_add(sd, segment, e->bytes);
        v.shadows = shadows_plus(old.shadows, (old.flags & INDEX_TOMBSTONE) == 0);
        return v.shadows == 0 ? OK : index_put(&p->index, e->key, &v, NULL, NULL);
    }
    old.shadows = shadows_plus(old.shadows, e->kind == FOOTER_PUT);
    return index_put(&p->index, e->key, &old, NULL, NULL);
}

static enum err extent_merge(struct shard *sh, struct shard_drive *sd, u32 segment,
                             const struct footer_entry *e)
{
    if (e->chunk >= EXTENT_CHUNKS_MAX || e->offset_units * RECORD_ALIGN % EXTENT_BLOCK_BYTES != 0) {
        return ERR_CORRUPT;
    }
    struct extent_location at = {.segment = segment,
                                 .offset_blocks =
                                     e->offset_units / (EXTENT_BLOCK_BYTES / RECORD_ALIGN),
                                 .data_bytes = e->data_bytes};
    enum err err = extent_map_found(&sh->extents, e->object_id, e->chunk, &at);
    if (err == OK) {
        shard_live_add(sd, segment, extent_frame_bytes(e->data_bytes));
    }
    return err == ERR_EXISTS ? OK : err; // a second copy is garbage
}

// Frames must lie inside of the segment: what the entry says is used for reads later.
static bool entry_is_sane(const struct drive *d, const struct footer_entry *e)
{
    u64 offset = (u64)e->offset_units * RECORD_ALIGN;
    if (offset < SEGMENT_HEADER_BYTES || e->bytes == 0 || offset + e->bytes > d->segment_bytes) {
        return false;
    }
    if (e->kind == FOOTER_EXTENT) {
        return e->bytes == extent_frame_bytes(e->data_bytes) &&
               (e->object_id >> 32 & 0xfff) == e->pg;
    }
    return e->bytes <= RECORD_FRAME_BYTES_MAX;
}

static enum err entry_merge(struct shard *sh, struct shard_drive *sd, u32 segment,
                            const struct footer_entry *e)
{
    struct recovery *r = sh->recovery;
    switch ((enum footer_kind)e->kind) {
    case FOOTER_PUT:
        if (e->ref_count > 1) {
            TRY(many_refs_keep(r, segment, e));
        }
        r->records++;
        return record_merge(sh, sd, segment, e);
    case FOOTER_DELETE:
        r->records++;
        return record_merge(sh, sd, segment, e);
    case FOOTER_REFS:
        return many_refs_keep(r, segment, e);
    case FOOTER_EXTENT:
        r->extents++;
        return extent_merge(sh, sd, segment, e);
    }
    return ERR_CORRUPT;
}

static enum err block_merge(struct shard *sh, struct block_call *call)
{
    struct shard_drive *sd = &sh->drives[call->drive->super.drive_index];
    struct footer_entry e;
    enum err err;
    u32 pos = 0;
    while (footer_block_next(call->block, &pos, &e, &err)) {
        if (e.pg % sh->store->cores != sh->core) {
            continue;
        }
        if (!footer_entry_is_mine(sh, call->drive, &e) || !entry_is_sane(call->drive, &e)) {
            sh->recovery->strangers++;
            metric_add(METRIC_STORE_CORRUPT, 1);
            continue;
        }
        TRY(entry_merge(sh, sd, call->seg->id, &e));
    }
    return err;
}

// ---- segments

// What was read of a footer is not all of it, and the frames tell it as well.
static bool footer_is_damaged(enum err e)
{
    return e == ERR_CORRUPT || e == ERR_IO;
}

MAY_WAIT enum err recovery_footer_load(struct drive *d, const struct segment *seg, struct footer *f,
                                       bool *is_scanned)
{
    enum err e = footer_read(f, d, seg);
    bool is_damaged = footer_is_damaged(e);
    *is_scanned = e == ERR_NOT_FOUND || is_damaged;
    if (!*is_scanned) {
        return e;
    }
    e = segment_scan(d, seg, f);
    f->is_suspect = f->is_suspect || is_damaged;
    return e;
}

// What a segment turned out to be; core 0 enters it into the drive's books when all are done.
static void segment_verdict(struct segment *seg, enum segment_state state)
{
    seg->verdict = (u8)state;
}

// Merges a sealed segment as its footer is read. When a block turns out damaged, the blocks before
// it have been merged and the scan merges their entries again: that counts shadows and references
// twice, so tombstones and extents may stay until the next start, and nothing is lost.
MAY_WAIT static enum err segment_sealed_merge(struct store *s, struct drive *d, struct segment *seg)
{
    struct footer_reader reader;
    TRY(footer_reader_open(&reader, d, seg));
    struct block_call call = {.store = s, .drive = d, .seg = seg};
    enum err e = OK;
    while (e == OK) {
        e = footer_reader_next(&reader, &call.block);
        if (e == OK) {
            e = block_dispatch(call, block_merge);
        }
    }
    seg->used_bytes = reader.used_bytes;
    seg->is_suspect = reader.is_suspect;
    footer_reader_close(&reader);
    return e == ERR_END ? OK : e;
}

// A segment without a footer serves as well; it is scanned again at the next start.
MAY_WAIT static enum err footer_write_or_not(struct footer *f, struct drive *d,
                                             const struct segment *seg)
{
    enum err e = footer_write(f, d, seg);
    if (e == ERR_IO) {
        LOG_WARN("segment_not_sealed", "drive=%s segment=%u error=%s", d->path, seg->id,
                 err_name(e));
        return OK;
    }
    return e;
}

// Scans a segment that has no footer, or a damaged one, merges what it finds and seals it. One that
// lost records is sealed only when that is accepted: until then each start must find it.
MAY_WAIT static enum err segment_unsealed_merge(struct recovery *r, struct store *s,
                                                struct drive *d, struct segment *seg,
                                                bool is_damaged)
{
    struct footer f;
    footer_init(&f);
    enum err e = segment_scan(d, seg, &f);
    f.is_suspect = f.is_suspect || is_damaged;
    if (e == OK && f.lost > 0) {
        r->lost++;
        LOG_ERROR("records_lost", "drive=%s segment=%u places=%u", d->path, seg->id, f.lost);
    }
    if (e == OK && f.lost > 0 && !s->accepts_losses) {
        segment_verdict(seg, SEGMENT_BROKEN);
    } else if (e == OK && f.entry_count == 0 && f.lost == 0) {
        e = segment_header_advance(d, seg, SEGMENT_FREE);
        segment_verdict(seg, SEGMENT_IDLE);
    } else if (e == OK) {
        e = footer_each_block(s, d, seg, &f, block_merge, NULL);
        if (e == OK) {
            e = footer_write_or_not(&f, d, seg);
        }
        seg->used_bytes = f.used_bytes;
        seg->is_suspect = f.is_suspect;
        segment_verdict(seg, SEGMENT_SEALED);
    }
    footer_deinit(&f);
    return e;
}

MAY_WAIT static enum err segment_used_recover(struct recovery *r, struct store *s, struct drive *d,
                                              struct segment *seg)
{
    enum err e = segment_sealed_merge(s, d, seg);
    bool is_damaged = footer_is_damaged(e);
    if (e != ERR_NOT_FOUND && !is_damaged) {
        segment_verdict(seg, SEGMENT_SEALED);
        return e;
    }
    r->scanned++;
    return segment_unsealed_merge(r, s, d, seg, is_damaged);
}

MAY_WAIT static enum err segment_recover(struct recovery *r, struct store *s, struct drive *d,
                                         struct segment *seg)
{
    enum err e = segment_header_read(d, seg);
    if (e == OK && seg->kind == SEGMENT_FREE) {
        segment_verdict(seg, SEGMENT_IDLE);
        return OK;
    }
    if (e == OK) {
        e = segment_used_recover(r, s, d, seg);
    }
    if (e == ERR_CORRUPT || e == ERR_IO) {
        // It may hold what a tombstone hides, so tombstones stay (see shard_finish).
        LOG_ERROR("segment_lost", "drive=%s segment=%u error=%s", d->path, seg->id, err_name(e));
        r->lost++;
        segment_verdict(seg, SEGMENT_BROKEN);
        return OK;
    }
    return e;
}

// The next segment of this core's share: those whose number is its own modulo the cores.
static struct segment *segment_next(struct shard *sh, struct recovery *r, struct drive **drive)
{
    struct store *s = sh->store;
    for (; r->next_drive < s->drive_count; r->next_drive++, r->next_segment = 0) {
        struct drive *d = s->drives[r->next_drive];
        while (r->next_segment < d->segments_max) {
            u32 id = r->next_segment++;
            if (d->segments[id].state == SEGMENT_UNKNOWN && id % s->cores == sh->core) {
                *drive = d;
                return &d->segments[id];
            }
        }
    }
    return NULL;
}

MAY_WAIT static void recovery_fiber(void *arg)
{
    struct shard *sh = arg;
    struct recovery *r = sh->recovery;
    struct drive *d;
    for (struct segment *seg = segment_next(sh, r, &d); seg != NULL && r->result == OK;
         seg = segment_next(sh, r, &d)) {
        enum err e = segment_recover(r, sh->store, d, seg);
        if (e != OK && r->result == OK) {
            r->result = e;
        }
    }
}

MAY_WAIT static void shard_recover(void *arg)
{
    struct store *s = arg;
    struct shard *sh = shard_here(s);
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < RECOVERY_FIBERS; i++) {
        if (group_spawn(&g, recovery_fiber, sh) != OK) {
            recovery_fiber(sh);
            break;
        }
    }
    group_join(&g);
    group_deinit(&g);
}

// ---- the end: references, tombstones, garbage

struct key_batch {
    u32 count;
    u32 lengths[REMOVE_BATCH];
    u8 keys[REMOVE_BATCH][STORE_KEY_BYTES_MAX];
};

// Walks one group's index: counts single references, and gathers tombstones that hide nothing.
// True if the batch filled up before the end.
static enum err index_walk(struct shard *sh, struct pg *p, bool counts_refs, struct key_batch *dead,
                           bool *is_full)
{
    struct index_cursor c;
    *is_full = false;
    dead->count = 0;
    bool is_there = index_cursor_seek(&p->index, &c, BYTES_NONE, false, false);
    for (; is_there; is_there = index_cursor_next(&c, false)) {
        struct index_value v;
        index_cursor_value(&c, &v);
        if (counts_refs && (v.flags & (INDEX_HAS_REFS | INDEX_MANY_REFS)) == INDEX_HAS_REFS) {
            TRY(extent_map_found_ref(&sh->extents, v.object_id));
        }
        if ((v.flags & INDEX_TOMBSTONE) == 0 || v.shadows > 0) {
            continue;
        }
        if (dead->count < REMOVE_BATCH) {
            dead->lengths[dead->count] = index_cursor_key(&c, dead->keys[dead->count]);
            dead->count++;
        } else {
            *is_full = true;
            if (!counts_refs) {
                break;
            }
        }
    }
    return OK;
}

static void tombstones_drop(struct shard *sh, struct pg *p, const struct key_batch *dead)
{
    for (u32 i = 0; i < dead->count; i++) {
        struct index_value old;
        bool existed = index_remove(&p->index, BYTES(dead->keys[i], dead->lengths[i]), &old);
        ASSERT(existed);
        shard_live_sub(shard_drive_of_pg(sh, p->number), old.location.segment, old.location.bytes);
    }
}

static enum err pg_finish(struct shard *sh, struct pg *p, struct key_batch *dead)
{
    bool counts_refs = true;
    bool keeps_tombstones = shard_drive_of_pg(sh, p->number)->drive->broken_count > 0;
    bool is_full;
    do {
        TRY(index_walk(sh, p, counts_refs, dead, &is_full));
        if (keeps_tombstones) {
            break;
        }
        tombstones_drop(sh, p, dead);
        counts_refs = false;
    } while (is_full);
    p->next_seq = MAX(p->next_seq, sh->store->opens << 40);
    metric_add(METRIC_STORE_KEYS, (i64)index_count(&p->index));
    return OK;
}

static enum err many_refs_count(struct shard *sh, const struct many_refs *m)
{
    struct pg *p = shard_pg(sh, m->pg);
    struct index_value v;
    struct bytes key = BYTES(m->bytes + (size_t)m->count * 8, m->key_bytes);
    bool has_won = index_find(&p->index, key, &v) && v.location.segment == m->segment &&
                   v.location.offset_units == m->offset_units;
    for (u32 i = 0; has_won && i < m->count; i++) {
        TRY(extent_map_found_ref(&sh->extents, load_le64(m->bytes + (size_t)i * 8)));
    }
    return OK;
}

static enum err shard_finish_run(struct shard *sh)
{
    struct key_batch *dead = malloc(sizeof(*dead));
    if (dead == NULL) {
        return ERR_NO_MEMORY;
    }
    enum err e = OK;
    for (const struct many_refs *m = sh->recovery->many; m != NULL && e == OK; m = m->next) {
        e = many_refs_count(sh, m);
    }
    for (u32 i = 0; i < sh->pg_count && e == OK; i++) {
        e = pg_finish(sh, &sh->pgs[i], dead);
    }
    free(dead);
    TRY(e);
    return extent_map_sweep(&sh->extents);
}

MAY_WAIT static void shard_finish(void *arg)
{
    struct shard *sh = shard_here(arg);
    sh->recovery->result = shard_finish_run(sh);
    while (sh->recovery->many != NULL) {
        struct many_refs *m = sh->recovery->many;
        sh->recovery->many = m->next;
        free(m);
    }
}

// ---- all of it

static enum err results_gather(struct store *s)
{
    for (u32 core = 0; core < s->cores; core++) {
        TRY(s->shards[core]->recovery->result);
    }
    return OK;
}

static void verdicts_enter(struct store *s)
{
    for (u32 i = 0; i < s->drive_count; i++) {
        struct drive *d = s->drives[i];
        for (u32 id = 0; id < d->segments_max; id++) {
            if (d->segments[id].state == SEGMENT_UNKNOWN) {
                drive_segment_found(d, id, (enum segment_state)d->segments[id].verdict);
            }
        }
    }
}

// When records are lost whose keys nobody knows, any key may be absent, or older than it was: that
// is not served unless the operator says so.
static enum err losses_judge(const struct store *s)
{
    u64 segments = 0;
    for (u32 i = 0; i < s->drive_count; i++) {
        segments += s->drives[i]->missing_count;
    }
    for (u32 core = 0; core < s->cores; core++) {
        segments += s->shards[core]->recovery->lost;
    }
    if (segments == 0) {
        return OK;
    }
    if (s->accepts_losses) {
        LOG_ERROR("losses_accepted", "segments=%llu", (unsigned long long)segments);
        return OK;
    }
    LOG_ERROR("losses_found",
              "segments=%llu hint=\"objects are missing or older than they were, see the lines "
              "above; repair the drive, or start once with 'store.accept_losses: true' in the "
              "configuration to serve what is left\"",
              (unsigned long long)segments);
    return ERR_CORRUPT;
}

MAY_WAIT static enum err recovery_phases(struct store *s)
{
    u64 begun_ns = core_now_ns();
    TRY(core_call_all(shard_recover, s));
    TRY(results_gather(s));
    TRY(losses_judge(s));
    verdicts_enter(s);
    TRY(core_call_all(shard_finish, s));
    TRY(results_gather(s));
    u64 records = 0;
    u64 extents = 0;
    u64 scanned = 0;
    u64 strangers = 0;
    for (u32 core = 0; core < s->cores; core++) {
        const struct recovery *r = s->shards[core]->recovery;
        records += r->records;
        extents += r->extents;
        scanned += r->scanned;
        strangers += r->strangers;
    }
    LOG_INFO("store_recovered",
             "records=%llu extents=%llu segments_scanned=%llu strangers=%llu duration_ms=%llu",
             (unsigned long long)records, (unsigned long long)extents, (unsigned long long)scanned,
             (unsigned long long)strangers,
             (unsigned long long)((core_now_ns() - begun_ns) / NS_PER_MS));
    return OK;
}

MAY_WAIT enum err recovery_run(struct store *s)
{
    struct recovery *all = calloc(s->cores, sizeof(*all));
    if (all == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 core = 0; core < s->cores; core++) {
        s->shards[core]->recovery = &all[core];
    }
    enum err e = recovery_phases(s);
    for (u32 core = 0; core < s->cores; core++) {
        s->shards[core]->recovery = NULL;
        while (all[core].many != NULL) { // left only by an error
            struct many_refs *m = all[core].many;
            all[core].many = m->next;
            free(m);
        }
    }
    free(all);
    return e;
}
