// SPDX-License-Identifier: Apache-2.0
// What decides whether a write may happen, from the index alone. Called with the key's lock held.
#include "meta/meta_internal.h"

#include "base/assert.h"

enum err object_peek(struct store *s, u32 pg, struct bytes key, struct object_info *out,
                     bool *exists)
{
    struct pg_entry entry;
    *exists = pg_lookup(s, pg, key, &entry);
    return *exists ? object_summary_decode(entry.summary, out) : OK;
}

enum err write_condition_check(const struct write_condition *c, const struct object_info *now)
{
    bool wants_existing = c->if_match_any || c->has_if_match || c->if_etag_is_foreign ||
                          c->has_if_modified_at || c->has_if_size;
    if (now == NULL) {
        return wants_existing ? ERR_S3_NO_SUCH_KEY : OK;
    }
    bool holds = !c->if_none_match_any && !c->if_etag_is_foreign;
    if (c->has_if_match) {
        holds = holds && etag_equal(&c->if_match, &now->etag);
    }
    if (c->has_if_none_match) {
        holds = holds && !etag_equal(&c->if_none_match, &now->etag);
    }
    if (c->has_if_modified_at) {
        holds = holds && c->if_modified_at_s == now->modified_ns / NS_PER_S;
    }
    if (c->has_if_size) {
        holds = holds && c->if_size == now->size;
    }
    return holds ? OK : ERR_S3_PRECONDITION_FAILED;
}

u64 modified_after(const struct object_info *replaced)
{
    u64 now_ns = core_wall_ns();
    return replaced == NULL ? now_ns : MAX(now_ns, replaced->modified_ns + 1);
}

enum err object_record_check(const struct pg_record *r, struct object_info *info,
                             struct object_attrs *attrs)
{
    TRY(object_summary_decode(r->summary, info));
    TRY(object_attrs_scan(r->attrs, info, attrs));
    u64 bytes = r->payload.len;
    for (u32 i = 0; i < r->ref_count; i++) {
        if (r->refs[i].bytes > META_OBJECT_BYTES_MAX) {
            return ERR_FORMAT;
        }
        bytes += r->refs[i].bytes;
    }
    if (bytes != info->size || (r->payload.len > 0 && r->ref_count > 0) ||
        (info->etag.parts > 0) != (attrs->parts.count > 0)) {
        return ERR_FORMAT;
    }
    return OK;
}
