// SPDX-License-Identifier: Apache-2.0
#include "s3/tags.h"

#include <string.h>

#include "base/text.h"
#include "codec/percent.h"
#include "codec/xml_read.h"
#include "s3/s3_private.h"

static enum err too_many(struct s3_request *rq)
{
    return s3_fail(rq, ERR_S3_INVALID_TAG, "Object tags cannot be greater than 10");
}

static enum err decode_one(struct s3_request *rq, struct bytes raw, struct bytes *out)
{
    u8 *p = arena_alloc(rq->arena, raw.len + 1);
    size_t len = 0;
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    if (percent_decode(raw, PERCENT_PLUS_IS_SPACE, p, raw.len, &len) != OK) {
        return s3_fail(rq, ERR_S3_INVALID_ARGUMENT,
                       "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded "
                       "URL query parameters without tag name duplicates.");
    }
    *out = BYTES(p, len);
    return OK;
}

enum err s3_tags_decode(struct s3_request *rq, struct bytes text, struct s3_tag_set *out)
{
    out->count = 0;
    while (text.len > 0) {
        struct bytes pair = bytes_split(&text, '&');
        if (pair.len == 0) {
            continue;
        }
        if (out->count == S3_TAGS_MAX) {
            return too_many(rq);
        }
        const u8 *equals = memchr(pair.data, '=', pair.len);
        size_t key_len = equals == NULL ? pair.len : (size_t)(equals - pair.data);
        struct s3_tag *tag = &out->list[out->count++];
        TRY(decode_one(rq, BYTES(pair.data, key_len), &tag->key));
        TRY(decode_one(rq, equals == NULL ? BYTES_LITERAL("") : bytes_skip(pair, key_len + 1),
                       &tag->value));
    }
    return OK;
}

enum err s3_tags_parse_xml(struct s3_request *rq, struct bytes body, struct s3_tag_set *out)
{
    struct xml_limits limits = XML_LIMITS_S3;
    limits.hash_salt = rq->s3->xml_salt;
    const struct xml_node *root;
    out->count = 0;
    TRY(xml_parse(body, rq->arena, &limits, &root));
    const struct xml_node *set = xml_child(root, "TagSet");
    if (!xml_node_is(root, "Tagging") || set == NULL) {
        return ERR_S3_MALFORMED_XML;
    }
    for (const struct xml_node *n = set->first_child; n != NULL; n = n->next) {
        struct s3_tag tag = {xml_child_text(n, "Key"), xml_child_text(n, "Value")};
        if (!xml_node_is(n, "Tag") || tag.key.data == NULL || tag.value.data == NULL) {
            return ERR_S3_MALFORMED_XML;
        }
        if (out->count == S3_TAGS_MAX) {
            return too_many(rq);
        }
        out->list[out->count++] = tag;
    }
    return OK;
}

// Letters, digits and spaces of any script, and + - = . _ : / @. Which characters beyond ASCII are
// letters is not looked up: they are taken.
static bool tag_text_is_valid(struct bytes text, size_t chars_max)
{
    size_t chars = 0;
    for (size_t at = 0; at < text.len; chars++) {
        u8 c = text.data[at];
        u32 code;
        size_t len = c < 0x80 ? 1 : utf8_decode(text.data + at, text.len - at, &code);
        bool is_alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (len == 0 || chars == chars_max ||
            (c < 0x80 && !is_alnum && (c == 0 || strchr(" +-=._:/@", c) == NULL))) {
            return false;
        }
        at += len;
    }
    return true;
}

static bool key_is_reserved(struct bytes key)
{
    return key.len >= 4 && bytes_equal_nocase(BYTES(key.data, 4), BYTES_LITERAL("aws:"));
}

enum err s3_tags_check(struct s3_request *rq, const struct s3_tag_set *set)
{
    for (u32 i = 0; i < set->count; i++) {
        const struct s3_tag *tag = &set->list[i];
        if (tag->key.len == 0 || !tag_text_is_valid(tag->key, S3_TAG_KEY_CHARS_MAX)) {
            return s3_fail(rq, ERR_S3_INVALID_TAG, "The TagKey you have provided is invalid");
        }
        if (!tag_text_is_valid(tag->value, S3_TAG_VALUE_CHARS_MAX)) {
            return s3_fail(rq, ERR_S3_INVALID_TAG, "The TagValue you have provided is invalid");
        }
        if (key_is_reserved(tag->key)) {
            return s3_fail(rq, ERR_S3_INVALID_TAG,
                           "System tags cannot be added/updated by requester");
        }
        for (u32 j = 0; j < i; j++) {
            if (bytes_equal(set->list[j].key, tag->key)) {
                return s3_fail(rq, ERR_S3_INVALID_TAG,
                               "Cannot provide multiple Tags with the same key");
            }
        }
    }
    return OK;
}

enum err s3_tags_encode(struct s3_request *rq, const struct s3_tag_set *set, struct bytes *out)
{
    size_t cap = 0;
    for (u32 i = 0; i < set->count; i++) {
        cap += 2 + PERCENT_ENCODED_BYTES_MAX(set->list[i].key.len + set->list[i].value.len);
    }
    char *p = arena_alloc(rq->arena, cap + 1);
    size_t len = 0;
    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < set->count; i++) {
        size_t n = 0;
        if (i > 0) {
            p[len++] = '&';
        }
        TRY(percent_encode(set->list[i].key, PERCENT_SLASH_ENCODE, p + len, cap - len, &n));
        len += n;
        p[len++] = '=';
        TRY(percent_encode(set->list[i].value, PERCENT_SLASH_ENCODE, p + len, cap - len, &n));
        len += n;
    }
    *out = BYTES(p, len);
    return OK;
}

u32 s3_tag_count(struct bytes tagging)
{
    u32 count = 0;
    bool is_inside = false;
    for (size_t i = 0; i < tagging.len; i++) {
        if (tagging.data[i] == '&') {
            is_inside = false;
        } else if (!is_inside) {
            is_inside = true;
            count++;
        }
    }
    return count;
}
