// SPDX-License-Identifier: Apache-2.0
// Key locks: a table of the keys that somebody holds or waits for. A slot lives while it has users,
// and slots are reused, so that a lock costs no allocation once the store is warm.
#include <stdlib.h>

#include "codec/hash.h"
#include "store/shard.h"

#define KEY_BUCKETS 1024u

struct key_slot {
    struct list node; // in its bucket
    struct key_slot *next_free;
    u32 pg;
    u32 users; // holder and waiters
    struct fiber_mutex mutex;
    u32 key_bytes;
    u8 key[STORE_KEY_BYTES_MAX];
};

enum err shard_keys_init(struct shard *sh)
{
    sh->key_buckets = calloc(KEY_BUCKETS, sizeof(*sh->key_buckets));
    if (sh->key_buckets == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < KEY_BUCKETS; i++) {
        list_init(&sh->key_buckets[i]);
    }
    return OK;
}

void shard_keys_deinit(struct shard *sh)
{
    for (u32 i = 0; i < KEY_BUCKETS && sh->key_buckets != NULL; i++) {
        ASSERT(list_is_empty(&sh->key_buckets[i])); // a key lock is still held
    }
    while (sh->key_slots_free != NULL) {
        struct key_slot *slot = sh->key_slots_free;
        sh->key_slots_free = slot->next_free;
        free(slot);
    }
    free(sh->key_buckets);
    sh->key_buckets = NULL;
}

static struct key_slot *slot_find(struct list *bucket, u32 pg, struct bytes key)
{
    LIST_FOREACH (node, bucket) {
        struct key_slot *slot = CONTAINER_OF(node, struct key_slot, node);
        if (slot->pg == pg && bytes_equal(BYTES(slot->key, slot->key_bytes), key)) {
            return slot;
        }
    }
    return NULL;
}

static struct key_slot *slot_new(struct shard *sh, struct list *bucket, u32 pg, struct bytes key)
{
    struct key_slot *slot = sh->key_slots_free;
    if (slot != NULL) {
        sh->key_slots_free = slot->next_free;
    } else {
        slot = malloc(sizeof(*slot));
        if (slot == NULL) {
            return NULL;
        }
    }
    slot->pg = pg;
    slot->users = 0;
    slot->key_bytes = (u32)key.len;
    if (key.len > 0) {
        memcpy(slot->key, key.data, key.len);
    }
    fiber_mutex_init(&slot->mutex);
    list_add_tail(bucket, &slot->node);
    return slot;
}

static void slot_leave(struct shard *sh, struct key_slot *slot)
{
    ASSERT(slot->users > 0);
    if (--slot->users == 0) {
        list_remove(&slot->node);
        slot->next_free = sh->key_slots_free;
        sh->key_slots_free = slot;
    }
}

MAY_WAIT enum err pg_key_lock(struct store *s, u32 pg, struct bytes key, struct pg_key_lock *lock)
{
    struct shard *sh = shard_here(s);
    ASSERT(pg < s->pg_count && pg % s->cores == sh->core);
    *lock = (struct pg_key_lock){.store = s, .pg = pg};
    if (key.len > STORE_KEY_BYTES_MAX) {
        return ERR_INVALID;
    }
    struct list *bucket = &sh->key_buckets[hash64(key, pg) % KEY_BUCKETS];
    struct key_slot *slot = slot_find(bucket, pg, key);
    if (slot == NULL) {
        slot = slot_new(sh, bucket, pg, key);
    }
    if (slot == NULL) {
        return ERR_NO_MEMORY;
    }
    slot->users++;
    enum err e = fiber_mutex_lock(&slot->mutex);
    if (e != OK) {
        slot_leave(sh, slot);
        return e;
    }
    lock->slot = slot;
    lock->is_held = true;
    return OK;
}

void pg_key_unlock(struct pg_key_lock *lock)
{
    ASSERT(lock->is_held);
    struct shard *sh = shard_here(lock->store);
    struct key_slot *slot = lock->slot;
    ASSERT(slot->pg == lock->pg);
    fiber_mutex_unlock(&slot->mutex);
    slot_leave(sh, slot);
    lock->is_held = false;
    lock->slot = NULL;
}
