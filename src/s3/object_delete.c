// SPDX-License-Identifier: Apache-2.0
// DeleteObject and DeleteObjects. A batch runs its deletions side by side, so that group commit
// makes many of them durable with one flush.
#include <string.h>

#include "base/text.h"
#include "codec/time_text.h"
#include "codec/xml_read.h"
#include "core/fiber.h"
#include "s3/headers.h"
#include "s3/small_body.h"
#include "s3/s3_private.h"

#define DELETE_KEYS_MAX 1000
#define DELETE_BODY_MAX (8 * MIB)
#define DELETE_FIBERS   64

enum err s3_op_delete_object(struct s3_request *rq)
{
    struct write_condition condition;
    TRY(s3_write_condition(rq, &condition));
    bool existed = false;
    TRY(object_delete(rq->meta, rq->bucket, rq->key, &condition, &existed));
    return s3_respond_empty(rq, 204);
}

struct delete_item {
    struct bytes key;
    struct bytes version_id;
    struct write_condition condition;
    enum err result;
};

struct delete_batch {
    struct s3_request *rq;
    struct delete_item *items;
    u32 count;
    u32 next; // shared by the fibers of one core: no lock is needed
};

static enum err item_parse(struct s3_request *rq, const struct xml_node *node,
                           struct delete_item *item)
{
    *item = (struct delete_item){.key = xml_child_text(node, "Key"),
                                 .version_id = xml_child_text(node, "VersionId")};
    if (item->key.len == 0) {
        return ERR_S3_MALFORMED_XML;
    }
    struct bytes etag = xml_child_text(node, "ETag");
    struct bytes size = xml_child_text(node, "Size");
    struct bytes time = xml_child_text(node, "LastModifiedTime");
    struct write_condition *c = &item->condition;
    if (etag.len > 0) {
        c->if_match_any = bytes_equal(etag, BYTES_LITERAL("*"));
        c->has_if_match = !c->if_match_any && etag_parse(etag, &c->if_match);
        c->if_etag_is_foreign = !c->if_match_any && !c->has_if_match;
    }
    if (size.len > 0) {
        c->has_if_size = u64_parse(size, UINT64_MAX, &c->if_size);
        if (!c->has_if_size) {
            return ERR_S3_MALFORMED_XML;
        }
    }
    if (time.len > 0) {
        u64 ns;
        if (!time_http_parse(time, &ns) && !time_iso8601_parse(time, &ns)) {
            return ERR_S3_MALFORMED_XML;
        }
        c->has_if_modified_at = true;
        c->if_modified_at_s = ns / NS_PER_S;
    }
    (void)rq;
    return OK;
}

static MAY_WAIT void delete_worker(void *arg)
{
    struct delete_batch *batch = arg;
    while (batch->next < batch->count) {
        struct delete_item *item = &batch->items[batch->next++];
        bool existed = false;
        if (item->key.len > META_KEY_BYTES_MAX) {
            item->result = ERR_S3_KEY_TOO_LONG;
        } else if (item->version_id.len > 0 &&
                   !bytes_equal(item->version_id, BYTES_LITERAL("null"))) {
            item->result = ERR_S3_INVALID_ARGUMENT;
        } else {
            item->result = object_delete(batch->rq->meta, batch->rq->bucket, item->key,
                                         &item->condition, &existed);
        }
    }
}

static MAY_WAIT void delete_all(struct delete_batch *batch)
{
    struct group group;
    group_init(&group);
    u32 fibers = MIN(batch->count, (u32)DELETE_FIBERS);
    for (u32 i = 1; i < fibers; i++) {
        // With no fiber left this one does all the work.
        if (group_spawn(&group, delete_worker, batch) != OK) {
            break;
        }
    }
    delete_worker(batch);
    group_join(&group);
    group_deinit(&group);
}

static MAY_WAIT enum err respond_batch(struct s3_request *rq, const struct delete_batch *batch,
                                       bool is_quiet)
{
    struct xml_writer w;
    s3_xml_begin(rq, &w, 512 + (is_quiet ? 0 : (size_t)batch->count * 128));
    xml_writer_open_root(&w, "DeleteResult");
    for (u32 i = 0; i < batch->count; i++) {
        const struct delete_item *item = &batch->items[i];
        bool is_failed = item->result != OK && item->result != ERR_S3_NO_SUCH_KEY;
        if (!is_failed && is_quiet) {
            continue;
        }
        xml_writer_open(&w, is_failed ? "Error" : "Deleted");
        xml_writer_text(&w, "Key", item->key);
        if (item->version_id.len > 0) {
            xml_writer_text(&w, "VersionId", item->version_id);
        }
        if (is_failed) {
            xml_writer_string(&w, "Code", err_info(item->result)->s3_code);
            xml_writer_string(&w, "Message", err_text(item->result));
        }
        xml_writer_close(&w);
    }
    xml_writer_close(&w);
    return s3_respond_xml(rq, &w);
}

enum err s3_op_delete_objects(struct s3_request *rq)
{
    struct bucket b;
    struct bytes body;
    TRY(bucket_find(rq->meta, rq->bucket, &b));
    TRY(s3_read_small_body(rq, DELETE_BODY_MAX, S3_CLAIMS_OF_BODY, &body));
    struct xml_limits limits = XML_LIMITS_S3;
    limits.hash_salt = rq->s3->xml_salt;
    const struct xml_node *root;
    TRY(xml_parse(body, rq->arena, &limits, &root));
    if (!xml_node_is(root, "Delete")) {
        return ERR_S3_MALFORMED_XML;
    }
    struct delete_batch batch = {.rq = rq};
    batch.items = arena_alloc(rq->arena, DELETE_KEYS_MAX * sizeof(*batch.items));
    if (batch.items == NULL) {
        return ERR_NO_MEMORY;
    }
    XML_FOREACH_CHILD(object, root, "Object")
    {
        if (batch.count == DELETE_KEYS_MAX) {
            return ERR_S3_MALFORMED_XML;
        }
        TRY(item_parse(rq, object, &batch.items[batch.count++]));
    }
    if (batch.count == 0) {
        return ERR_S3_MALFORMED_XML;
    }
    delete_all(&batch);
    bool is_quiet = bytes_equal_nocase(xml_child_text(root, "Quiet"), BYTES_LITERAL("true"));
    return respond_batch(rq, &batch, is_quiet);
}
