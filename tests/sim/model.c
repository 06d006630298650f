// SPDX-License-Identifier: Apache-2.0
// The model of the store (see model.h).
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_random.h"
#include "trace.h"

// Names that share prefixes, end in each other, hold any byte, and are as long as allowed.
static u32 name_make(u32 number, u64 *random, u8 out[STORE_KEY_BYTES_MAX])
{
    static const char *const stems[] = {"data/", "data.v2/", "data-", "d", "\xff\xfe", "a//b/"};
    int n = snprintf((char *)out, STORE_KEY_BYTES_MAX, "%s%u", stems[number % ARRAY_LEN(stems)],
                     number);
    u32 len = (u32)n;
    u64 kind = draw(random, 20);
    if (kind == 0) {
        memset(out + len, (int)draw(random, 256), STORE_KEY_BYTES_MAX - len);
        len = STORE_KEY_BYTES_MAX;
    } else if (kind < 4) {
        out[len++] = 0;
    }
    return len;
}

static int key_compare(const void *a, const void *b)
{
    return bytes_compare(model_name(a), model_name(b));
}

void model_init(struct model *m, u32 key_count, u64 *random)
{
    memset(m, 0, sizeof(*m));
    ASSERT(key_count <= MODEL_KEYS_MAX);
    m->key_count = key_count;
    for (u32 i = 0; i < key_count; i++) {
        m->keys[i].name_bytes = name_make(i, random, m->keys[i].name);
        m->keys[i].pg = UINT32_MAX;
    }
    qsort(m->keys, key_count, sizeof(m->keys[0]), key_compare);
    for (u32 i = 0; i < key_count; i++) {
        struct version *v = model_version_add(m, &m->keys[i], 0);
        v->fate = FATE_ACKED;
    }
}

void model_deinit(struct model *m)
{
    for (u32 i = 0; i < m->key_count; i++) {
        free(m->keys[i].versions);
    }
}

struct model_key *model_find(struct model *m, struct bytes name)
{
    u32 low = 0;
    u32 high = m->key_count;
    while (low < high) {
        u32 mid = (low + high) / 2;
        int c = bytes_compare(model_name(&m->keys[mid]), name);
        if (c == 0) {
            return &m->keys[mid];
        }
        if (c < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

struct version *model_version_add(struct model *m, struct model_key *k, u64 batch)
{
    if (k->count == k->capacity) {
        k->capacity = MAX(8u, k->capacity * 2);
        k->versions = realloc(k->versions, k->capacity * sizeof(struct version));
        ASSERT(k->versions != NULL);
    }
    struct version *v = &k->versions[k->count++];
    *v = (struct version){.id = ++m->versions_made, .batch = batch, .fate = FATE_IN_FLIGHT};
    return v;
}

// Eight bytes of a stream of content.
static u64 content_word(u64 content, u64 index)
{
    u64 z = content * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
    z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 29);
}

void content_fill(u64 content, u64 at, u8 *out, size_t len)
{
    size_t i = 0;
    while (i < len) {
        u64 word = content_word(content, (at + i) / 8);
        size_t skip = (size_t)((at + i) % 8);
        size_t n = MIN(8 - skip, len - i);
        memcpy(out + i, (const u8 *)&word + skip, n);
        i += n;
    }
}

bool content_equals(u64 content, u64 at, const u8 *data, size_t len)
{
    size_t i = 0;
    while (i < len) {
        u64 word = content_word(content, (at + i) / 8);
        size_t skip = (size_t)((at + i) % 8);
        size_t n = MIN(8 - skip, len - i);
        if (memcmp(data + i, (const u8 *)&word + skip, n) != 0) {
            return false;
        }
        i += n;
    }
    return true;
}

void version_summary(const struct version *v, u8 out[STORE_SUMMARY_BYTES])
{
    memcpy(out, &v->id, sizeof(v->id));
    content_fill(v->id * 4, 0, out + sizeof(v->id), STORE_SUMMARY_BYTES - sizeof(v->id));
}

u64 version_attrs_content(const struct version *v)
{
    return v->id * 4 + 1;
}

u64 version_payload_content(const struct version *v)
{
    return v->id * 4 + 2;
}

u32 model_match_summary(const struct model_key *k, const u8 summary[STORE_SUMMARY_BYTES])
{
    u64 id;
    memcpy(&id, summary, sizeof(id));
    for (u32 i = k->count; i-- > 0;) {
        if (k->versions[i].id == id) {
            u8 expected[STORE_SUMMARY_BYTES];
            version_summary(&k->versions[i], expected);
            bool is_whole = memcmp(expected, summary, sizeof(expected)) == 0;
            return is_whole && k->versions[i].is_present ? i : UINT32_MAX;
        }
    }
    return UINT32_MAX;
}

void model_check_record(const struct model_key *k, u32 index, const struct pg_record *r)
{
    const struct version *v = &k->versions[index];
    unsigned long long id = v->id;
    CHECK(r->attrs.len == v->attrs_bytes &&
              content_equals(version_attrs_content(v), 0, r->attrs.data, r->attrs.len),
          "key %u: version %llu has wrong attributes", k->pg, id);
    CHECK(r->payload.len == v->payload_bytes &&
              content_equals(version_payload_content(v), 0, r->payload.data, r->payload.len),
          "version %llu has a wrong payload", id);
    CHECK(r->ref_count == v->ref_count, "version %llu has %u references instead of %u", id,
          r->ref_count, v->ref_count);
    for (u32 i = 0; i < v->ref_count; i++) {
        CHECK(r->refs[i].object_id == v->refs[i].object_id && r->refs[i].bytes == v->refs[i].bytes,
              "version %llu has a wrong reference %u", id, i);
    }
}

// The index of a version from `from` on that says that the key is absent and may be what was seen.
static u32 absent_index(const struct model_key *k, u32 from, bool is_restart)
{
    for (u32 i = from; i < k->count; i++) {
        const struct version *v = &k->versions[i];
        bool is_possible = v->fate != FATE_FAILED && (is_restart || v->fate != FATE_UNKNOWN);
        if (!v->is_present && is_possible) {
            return i;
        }
    }
    return UINT32_MAX;
}

void model_observe(struct model_key *k, u32 index, u32 acked_before)
{
    if (index == UINT32_MAX) {
        index = absent_index(k, acked_before, false);
        CHECK(index != UINT32_MAX, "a read found nothing, but version %llu was acknowledged",
              (unsigned long long)k->versions[acked_before].id);
    }
    const struct version *v = &k->versions[index];
    unsigned long long id = v->id;
    CHECK(v->fate != FATE_FAILED && v->fate != FATE_UNKNOWN,
          "a read saw version %llu, whose commit failed", id);
    CHECK(index >= acked_before, "a read saw version %llu, older than version %llu", id,
          (unsigned long long)k->versions[acked_before].id);
    // Readers see only what is durable.
    k->acked = MAX(k->acked, index);
}

void model_commit_done(struct model_key *k, u64 version_id, enum fate fate)
{
    for (u32 i = k->count; i-- > 0;) {
        struct version *v = &k->versions[i];
        if (v->id != version_id) {
            continue;
        }
        CHECK(fate != FATE_FAILED || k->acked < i,
              "version %llu was seen, and then its commit failed", (unsigned long long)v->id);
        if (fate == FATE_UNKNOWN && k->acked >= i) {
            return; // it was seen: it must be there after a restart
        }
        v->fate = fate;
        if (fate == FATE_ACKED) {
            k->acked = MAX(k->acked, i);
        }
        return;
    }
    trace_fail("no version %llu", (unsigned long long)version_id);
}

// Damaged media: what was seen holds from now on, whatever should have been there.
static void restart_observe_damaged(struct model *m, struct model_key *k, u32 index)
{
    CHECK(m->is_warned || !m->needs_warning,
          "after a flipped bit version %llu of \"%.*s\" is gone, and the log says nothing",
          (unsigned long long)model_acked(k)->id, (int)MIN(k->name_bytes, 20u), k->name);
    struct version seen = {0};
    if (index != UINT32_MAX) {
        seen = k->versions[index];
    }
    struct version *v = model_version_add(m, k, 0);
    seen.id = index != UINT32_MAX ? seen.id : v->id;
    seen.batch = 0;
    *v = seen;
    k->acked = k->count - 1;
    v->fate = FATE_ACKED;
}

void model_restart_observe(struct model *m, struct model_key *k, u32 index)
{
    u32 absent = absent_index(k, k->acked, true);
    u32 found = index == UINT32_MAX ? absent : index;
    bool is_expected =
        found != UINT32_MAX && found >= k->acked && k->versions[found].fate != FATE_FAILED;
    if (!is_expected && m->is_lenient) {
        restart_observe_damaged(m, k, index);
        return;
    }
    CHECK(found != UINT32_MAX, "after a restart version %llu of \"%.*s\" is lost",
          (unsigned long long)model_acked(k)->id, (int)MIN(k->name_bytes, 20u), k->name);
    const struct version *v = &k->versions[found];
    CHECK(found >= k->acked, "after a restart version %llu came back instead of %llu",
          (unsigned long long)v->id, (unsigned long long)model_acked(k)->id);
    CHECK(v->fate != FATE_FAILED, "after a restart version %llu is there, whose commit failed",
          (unsigned long long)v->id);
    k->acked = found;
}

// Fails if one key of a batch shows it and another key does not, though nothing newer hides it.
static void check_whole(const struct model *m, const struct model_key *k, u32 index)
{
    u64 batch = k->versions[index].batch;
    for (u32 i = 0; i < m->key_count; i++) {
        const struct model_key *other = &m->keys[i];
        for (u32 n = other->acked + 1; n < other->count; n++) {
            bool is_same = other->versions[n].batch == batch;
            // A delete of what was absent anyway shows nothing.
            bool is_visible_change =
                other->versions[n].is_present || model_acked(other)->is_present;
            CHECK(!is_same || !is_visible_change,
                  "after a restart batch %llu is there in part: version %llu is, %llu is not",
                  (unsigned long long)batch, (unsigned long long)k->versions[index].id,
                  (unsigned long long)other->versions[n].id);
        }
    }
}

void model_restart_settle(struct model *m)
{
    for (u32 i = 0; i < m->key_count && !m->is_lenient; i++) {
        const struct model_key *k = &m->keys[i];
        if (k->versions[k->acked].fate != FATE_ACKED && k->versions[k->acked].batch != 0) {
            check_whole(m, k, k->acked);
        }
    }
    for (u32 i = 0; i < m->key_count; i++) {
        struct model_key *k = &m->keys[i];
        k->versions[k->acked].fate = FATE_ACKED;
        for (u32 n = 0; n < k->count; n++) {
            if (n != k->acked && k->versions[n].fate != FATE_ACKED) {
                k->versions[n].fate = FATE_FAILED;
            }
        }
        k->writers = 0;
    }
}
