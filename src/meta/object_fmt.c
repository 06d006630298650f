// SPDX-License-Identifier: Apache-2.0
// Encoding, and the bounded parse of what comes back from a drive. Pure functions.
#include "meta/object_fmt.h"

#include "base/assert.h"
#include "base/endian.h"

#define ITEM_HEAD_BYTES 5

_Static_assert(8 + 8 + 16 + 4 + 4 == STORE_SUMMARY_BYTES, "the summary is filled exactly");
_Static_assert(1 + META_ATTRS_BYTES_MAX + META_ATTRS_MAX * (ITEM_HEAD_BYTES + 2) + 4 * 64 +
                       META_PART_NUMBER_MAX * (12 + CHECKSUM_BYTES_MAX) <=
                   STORE_ATTRS_BYTES_MAX,
               "the largest attributes fit a record");

size_t checksum_bytes(enum checksum_algorithm a)
{
    static const u8 lengths[CHECKSUM_COUNT] = {
        [CHECKSUM_CRC32] = 4, [CHECKSUM_CRC32C] = 4,  [CHECKSUM_CRC64NVME] = 8,
        [CHECKSUM_SHA1] = 20, [CHECKSUM_SHA256] = 32,
    };
    ASSERT(a < CHECKSUM_COUNT);
    return lengths[a];
}

void object_summary_encode(const struct object_info *info, u8 out[STORE_SUMMARY_BYTES])
{
    ASSERT(info->checksum.algorithm < CHECKSUM_COUNT);
    store_le64(out, info->size);
    store_le64(out + 8, info->modified_ns);
    memcpy(out + 16, info->etag.md5, 16);
    store_le32(out + 32, info->etag.parts);
    out[36] = info->checksum.algorithm;
    out[37] = info->checksum.type;
    out[38] = OBJECT_FORMAT_VERSION;
    out[39] = 0;
}

enum err object_summary_decode(const u8 in[STORE_SUMMARY_BYTES], struct object_info *out)
{
    if (in[38] != OBJECT_FORMAT_VERSION) {
        return ERR_VERSION;
    }
    out->size = load_le64(in);
    out->modified_ns = load_le64(in + 8);
    memcpy(out->etag.md5, in + 16, 16);
    out->etag.parts = load_le32(in + 32);
    out->checksum.algorithm = in[36];
    out->checksum.type = in[37];
    memset(out->checksum.value, 0, sizeof(out->checksum.value));
    if (out->size > META_OBJECT_BYTES_MAX || out->etag.parts > META_PART_NUMBER_MAX ||
        out->checksum.algorithm >= CHECKSUM_COUNT || out->checksum.type > CHECKSUM_COMPOSITE) {
        return ERR_FORMAT;
    }
    return OK;
}

enum err object_attrs_check(const struct attr *attrs, u32 attr_count)
{
    size_t bytes = 0;
    if (attr_count > META_ATTRS_MAX) {
        return ERR_S3_METADATA_TOO_LARGE;
    }
    for (u32 i = 0; i < attr_count; i++) {
        bytes += attrs[i].name.len + attrs[i].value.len;
        if (bytes > META_ATTRS_BYTES_MAX || attrs[i].name.len > UINT16_MAX) {
            return ERR_S3_METADATA_TOO_LARGE;
        }
    }
    return OK;
}

size_t object_attrs_bytes(const struct object_attrs_source *s)
{
    size_t bytes = 1 + s->attrs_raw.len;
    if (s->attrs_raw.len == 0) {
        for (u32 i = 0; i < s->attr_count; i++) {
            bytes += ITEM_HEAD_BYTES + 2 + s->attrs[i].name.len + s->attrs[i].value.len;
        }
    }
    if (s->checksum.algorithm != CHECKSUM_NONE) {
        bytes += ITEM_HEAD_BYTES + checksum_bytes(s->checksum.algorithm);
    }
    if (s->upload != NULL) {
        bytes += ITEM_HEAD_BYTES + UPLOAD_ID_BYTES;
    }
    if (s->parts_raw.len > 0) {
        bytes += ITEM_HEAD_BYTES + s->parts_raw.len;
    }
    return bytes;
}

static u8 *put_bytes(u8 *to, const void *data, size_t len)
{
    if (len > 0) {
        memcpy(to, data, len);
    }
    return to + len;
}

static u8 *put_item_head(u8 *to, u8 type, size_t len)
{
    to[0] = type;
    store_le32(to + 1, (u32)len);
    return to + ITEM_HEAD_BYTES;
}

void object_attrs_encode(const struct object_attrs_source *s, u8 *out)
{
    u8 *to = out;
    *to++ = OBJECT_FORMAT_VERSION;
    to = put_bytes(to, s->attrs_raw.data, s->attrs_raw.len);
    for (u32 i = 0; s->attrs_raw.len == 0 && i < s->attr_count; i++) {
        const struct attr *a = &s->attrs[i];
        ASSERT(a->name.len <= META_ATTRS_BYTES_MAX && a->value.len <= META_ATTRS_BYTES_MAX);
        to = put_item_head(to, OBJECT_ITEM_ATTR, 2 + a->name.len + a->value.len);
        store_le16(to, (u16)a->name.len);
        to = put_bytes(to + 2, a->name.data, a->name.len);
        to = put_bytes(to, a->value.data, a->value.len);
    }
    if (s->checksum.algorithm != CHECKSUM_NONE) {
        size_t n = checksum_bytes(s->checksum.algorithm);
        to = put_item_head(to, OBJECT_ITEM_CHECKSUM, n);
        to = put_bytes(to, s->checksum.value, n);
    }
    if (s->upload != NULL) {
        to = put_item_head(to, OBJECT_ITEM_UPLOAD, UPLOAD_ID_BYTES);
        to = put_bytes(to, s->upload->bytes, UPLOAD_ID_BYTES);
    }
    if (s->parts_raw.len > 0) {
        to = put_item_head(to, OBJECT_ITEM_PARTS, s->parts_raw.len);
        to = put_bytes(to, s->parts_raw.data, s->parts_raw.len);
    }
    ASSERT((size_t)(to - out) == object_attrs_bytes(s));
}

size_t part_list_entry_bytes(u8 algorithm)
{
    return 12 + checksum_bytes(algorithm);
}

void part_list_at(const struct part_list *list, u32 index, struct object_part *out)
{
    ASSERT(index < list->count);
    size_t entry_bytes = part_list_entry_bytes(list->algorithm);
    const u8 *p = list->raw.data + PART_LIST_HEAD_BYTES + index * entry_bytes;
    *out = (struct object_part){.number = load_le32(p), .size = load_le64(p + 4)};
    out->checksum.algorithm = list->algorithm;
    memcpy(out->checksum.value, p + 12, entry_bytes - 12);
}

void part_list_write(u8 *raw, u32 index, u8 algorithm, const struct object_part *part)
{
    size_t entry_bytes = part_list_entry_bytes(algorithm);
    u8 *p = raw + PART_LIST_HEAD_BYTES + index * entry_bytes;
    if (index == 0) {
        memset(raw, 0, PART_LIST_HEAD_BYTES);
        raw[0] = algorithm;
    }
    store_le32(raw + 4, index + 1);
    store_le32(p, part->number);
    store_le64(p + 4, part->size);
    memcpy(p + 12, part->checksum.value, entry_bytes - 12);
}

// Numbers ascend and sizes add up to the object's.
static enum err part_list_scan(struct bytes value, const struct object_info *info,
                               struct part_list *out)
{
    if (value.len < PART_LIST_HEAD_BYTES || value.data[0] >= CHECKSUM_COUNT) {
        return ERR_FORMAT;
    }
    out->raw = value;
    out->algorithm = value.data[0];
    out->count = load_le32(value.data + 4);
    if (out->count == 0 || out->count > META_PART_NUMBER_MAX || out->count != info->etag.parts ||
        value.len !=
            PART_LIST_HEAD_BYTES + (size_t)out->count * part_list_entry_bytes(out->algorithm)) {
        return ERR_FORMAT;
    }
    u64 sum = 0;
    u32 before = 0;
    for (u32 i = 0; i < out->count; i++) {
        struct object_part part;
        part_list_at(out, i, &part);
        if (part.number <= before || part.number > META_PART_NUMBER_MAX ||
            part.size > META_OBJECT_BYTES_MAX) {
            return ERR_FORMAT;
        }
        before = part.number;
        sum += part.size;
    }
    return sum == info->size ? OK : ERR_FORMAT;
}

// Takes one item off the front; false if it is cut short.
static bool item_next(struct bytes *rest, u8 *type, struct bytes *value)
{
    if (rest->len < ITEM_HEAD_BYTES) {
        return false;
    }
    size_t len = load_le32(rest->data + 1);
    *type = rest->data[0];
    if (len > rest->len - ITEM_HEAD_BYTES) {
        return false;
    }
    *value = BYTES(rest->data + ITEM_HEAD_BYTES, len);
    *rest = BYTES(rest->data + ITEM_HEAD_BYTES + len, rest->len - ITEM_HEAD_BYTES - len);
    return true;
}

static enum err item_scan(u8 type, struct bytes value, struct object_info *info,
                          struct object_attrs *out)
{
    switch (type) {
    case OBJECT_ITEM_ATTR:
        if (value.len < 2 || load_le16(value.data) > value.len - 2 ||
            out->attr_count == META_ATTRS_MAX) {
            return ERR_FORMAT;
        }
        out->attr_count++;
        return OK;
    case OBJECT_ITEM_CHECKSUM:
        if (info->checksum.algorithm == CHECKSUM_NONE ||
            value.len != checksum_bytes(info->checksum.algorithm)) {
            return ERR_FORMAT;
        }
        memcpy(info->checksum.value, value.data, value.len);
        return OK;
    case OBJECT_ITEM_UPLOAD:
        if (value.len != UPLOAD_ID_BYTES) {
            return ERR_FORMAT;
        }
        out->has_upload = true;
        memcpy(out->upload.bytes, value.data, UPLOAD_ID_BYTES);
        return OK;
    case OBJECT_ITEM_PARTS:
        return part_list_scan(value, info, &out->parts);
    default:
        return type & OBJECT_ITEM_CRITICAL ? ERR_VERSION : OK;
    }
}

enum err object_attrs_scan(struct bytes raw, struct object_info *info, struct object_attrs *out)
{
    *out = (struct object_attrs){0};
    if (raw.len < 1) {
        return ERR_FORMAT;
    }
    if (raw.data[0] != OBJECT_FORMAT_VERSION) {
        return ERR_VERSION;
    }
    struct bytes rest = BYTES(raw.data + 1, raw.len - 1);
    const u8 *attrs = rest.data;
    bool is_past_attrs = false;
    while (rest.len > 0) {
        u8 type;
        struct bytes value;
        if (!item_next(&rest, &type, &value)) {
            return ERR_FORMAT;
        }
        if (type != OBJECT_ITEM_ATTR) {
            is_past_attrs = true;
        } else if (is_past_attrs) {
            return ERR_FORMAT;
        } else {
            out->attrs_raw = BYTES(attrs, (size_t)(value.data + value.len - attrs));
        }
        TRY(item_scan(type, value, info, out));
    }
    return OK;
}

bool object_attr_next(struct bytes *rest, struct attr *out)
{
    u8 type;
    struct bytes value;
    if (!item_next(rest, &type, &value)) {
        return false;
    }
    ASSERT(type == OBJECT_ITEM_ATTR && value.len >= 2);
    size_t name_len = load_le16(value.data);
    out->name = BYTES(value.data + 2, name_len);
    out->value = BYTES(value.data + 2 + name_len, value.len - 2 - name_len);
    return true;
}
