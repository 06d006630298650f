// SPDX-License-Identifier: Apache-2.0
// Puts, gets and deletes from any core, for the store's unit tests.
#include "store_test.h"

// One operation on a key, run on the core of its group.
struct kv_op {
    struct store *store;
    char key[64];
    const u8 *payload;
    u32 payload_bytes;
    u8 *out; // STORE_INLINE_BYTES_MAX
    u32 out_bytes;
    bool is_delete;
    enum err result;
};

u32 kv_pg(struct store *s, const char *key)
{
    return store_pg_of(s, bytes_from_string(key));
}

MAY_WAIT static void kv_commit_run(void *arg)
{
    struct kv_op *op = arg;
    struct bytes key = bytes_from_string(op->key);
    u32 pg = kv_pg(op->store, op->key);
    struct pg_key_lock lock;
    op->result = pg_key_lock(op->store, pg, key, &lock);
    if (op->result != OK) {
        return;
    }
    struct store_change c = {.key = key,
                             .is_delete = op->is_delete,
                             .payload = BYTES(op->payload, op->payload_bytes),
                             .attrs = BYTES_LITERAL("attrs")};
    memcpy(c.summary, &op->payload_bytes, sizeof(op->payload_bytes));
    op->result = pg_commit(op->store, pg, &c, 1);
    pg_key_unlock(&lock);
}

MAY_WAIT static void kv_get_run(void *arg)
{
    struct kv_op *op = arg;
    struct pg_record r;
    op->result = pg_read(op->store, kv_pg(op->store, op->key), bytes_from_string(op->key), &r);
    if (op->result != OK) {
        return;
    }
    u32 said;
    memcpy(&said, r.summary, sizeof(said));
    CHECK(said == r.payload.len && bytes_equal(r.attrs, BYTES_LITERAL("attrs")));
    op->out_bytes = (u32)r.payload.len;
    if (r.payload.len > 0) {
        memcpy(op->out, r.payload.data, r.payload.len);
    }
    pg_record_release(&r);
}

MAY_WAIT enum err kv_put(struct store *s, const char *key, const void *data, u32 len)
{
    struct kv_op op = {.store = s, .payload = data, .payload_bytes = len};
    snprintf(op.key, sizeof(op.key), "%s", key);
    CHECK(core_call(store_pg_core(s, kv_pg(s, key)), kv_commit_run, &op) == OK);
    return op.result;
}

MAY_WAIT enum err kv_delete(struct store *s, const char *key)
{
    struct kv_op op = {.store = s, .is_delete = true};
    snprintf(op.key, sizeof(op.key), "%s", key);
    CHECK(core_call(store_pg_core(s, kv_pg(s, key)), kv_commit_run, &op) == OK);
    return op.result;
}

MAY_WAIT enum err kv_get(struct store *s, const char *key, u8 *out, u32 *len)
{
    struct kv_op op = {.store = s, .out = out};
    snprintf(op.key, sizeof(op.key), "%s", key);
    CHECK(core_call(store_pg_core(s, kv_pg(s, key)), kv_get_run, &op) == OK);
    *len = op.out_bytes;
    return op.result;
}
