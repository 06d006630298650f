// SPDX-License-Identifier: Apache-2.0
// Building and reading store keys. Pure functions; what is read comes from the drive and is
// checked.
#include "meta/keys.h"

#include "base/assert.h"
#include "base/endian.h"

_Static_assert(META_KEY_BYTES_MAX % KEY_GROUP_BYTES == 0, "a longest key fills its groups");
_Static_assert(KEY_HEAD_BYTES + KEY_ORDERED_MAX + UPLOAD_ID_BYTES + 4 <= STORE_KEY_BYTES_MAX,
               "the longest part key fits");
_Static_assert(UPLOAD_ID_BYTES / 3 * 4 == META_UPLOAD_ID_CHARS, "four characters for three bytes");

static const char id_alphabet[65] =
    "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

void upload_id_text(const struct upload_id *id, char out[META_UPLOAD_ID_CHARS + 1])
{
    char *to = out;
    for (size_t i = 0; i < UPLOAD_ID_BYTES; i += 3) {
        u32 bits = (u32)id->bytes[i] << 16 | (u32)id->bytes[i + 1] << 8 | id->bytes[i + 2];
        *to++ = id_alphabet[bits >> 18];
        *to++ = id_alphabet[bits >> 12 & 63];
        *to++ = id_alphabet[bits >> 6 & 63];
        *to++ = id_alphabet[bits & 63];
    }
    *to = 0;
}

bool upload_id_parse(struct bytes text, struct upload_id *out)
{
    if (text.len != META_UPLOAD_ID_CHARS) {
        return false;
    }
    for (size_t i = 0; i < META_UPLOAD_ID_CHARS; i += 4) {
        u32 bits = 0;
        for (size_t j = 0; j < 4; j++) {
            const char *at = memchr(id_alphabet, text.data[i + j], 64);
            if (at == NULL) {
                return false;
            }
            bits = bits << 6 | (u32)(at - id_alphabet);
        }
        u8 *to = out->bytes + i / 4 * 3;
        to[0] = (u8)(bits >> 16);
        to[1] = (u8)(bits >> 8);
        to[2] = (u8)bits;
    }
    return true;
}

static void key_append(struct meta_key *k, const void *data, size_t len)
{
    ASSERT(len <= sizeof(k->data) - k->len);
    if (len > 0) {
        memcpy(k->data + k->len, data, len);
    }
    k->len += (u32)len;
}

void key_space(struct meta_key *k, u64 bucket_id, u8 space)
{
    store_be64(k->data, bucket_id);
    k->data[8] = space;
    k->len = KEY_HEAD_BYTES;
}

void key_bucket(struct meta_key *k, struct bytes name)
{
    key_space(k, 0, KEY_SPACE_BUCKET);
    key_append(k, name.data, name.len);
}

void key_object(struct meta_key *k, u64 bucket_id, struct bytes name)
{
    ASSERT(name.len <= META_KEY_BYTES_MAX);
    key_space(k, bucket_id, KEY_SPACE_OBJECT);
    key_append(k, name.data, name.len);
}

// Appends whole groups while more than one group's worth of the name is left; returns the rest.
static struct bytes key_append_groups(struct meta_key *k, struct bytes name)
{
    const u8 more = KEY_GROUP_MORE;
    while (name.len > KEY_GROUP_BYTES) {
        key_append(k, name.data, KEY_GROUP_BYTES);
        key_append(k, &more, 1);
        name = bytes_skip(name, KEY_GROUP_BYTES);
    }
    return name;
}

void key_ordered_name(struct meta_key *k, u64 bucket_id, u8 space, struct bytes name)
{
    ASSERT(name.len <= META_KEY_BYTES_MAX);
    u8 last[KEY_GROUP_BYTES + 1] = {0};
    key_space(k, bucket_id, space);
    name = key_append_groups(k, name);
    if (name.len > 0) {
        memcpy(last, name.data, name.len);
    }
    last[KEY_GROUP_BYTES] = (u8)name.len;
    key_append(k, last, sizeof(last));
}

void key_ordered_prefix(struct meta_key *k, u64 bucket_id, u8 space, struct bytes prefix)
{
    ASSERT(prefix.len <= META_KEY_BYTES_MAX);
    key_space(k, bucket_id, space);
    prefix = key_append_groups(k, prefix);
    key_append(k, prefix.data, prefix.len);
}

void key_upload(struct meta_key *k, u64 bucket_id, struct bytes name, const struct upload_id *id)
{
    key_ordered_name(k, bucket_id, KEY_SPACE_UPLOAD, name);
    key_append(k, id->bytes, UPLOAD_ID_BYTES);
}

void key_part(struct meta_key *k, u64 bucket_id, struct bytes name, const struct upload_id *id,
              u32 number)
{
    u8 be[4];
    store_be32(be, number);
    key_ordered_name(k, bucket_id, KEY_SPACE_PART, name);
    key_append(k, id->bytes, UPLOAD_ID_BYTES);
    key_append(k, be, sizeof(be));
}

u64 key_bucket_id(struct bytes stored)
{
    return stored.len < KEY_HEAD_BYTES ? 0 : load_be64(stored.data);
}

u8 key_space_of(struct bytes stored)
{
    return stored.len < KEY_HEAD_BYTES ? 0 : stored.data[8];
}

bool key_upload_parse(struct bytes stored, u8 *name, size_t *name_len, struct upload_id *id)
{
    size_t len = 0;
    struct bytes rest = bytes_skip(stored, KEY_HEAD_BYTES);
    for (;;) {
        if (rest.len < KEY_GROUP_BYTES + 1) {
            return false;
        }
        u8 used = rest.data[KEY_GROUP_BYTES];
        size_t n = MIN((size_t)used, KEY_GROUP_BYTES);
        if (used > KEY_GROUP_MORE || len + n > META_KEY_BYTES_MAX) {
            return false;
        }
        memcpy(name + len, rest.data, n);
        len += n;
        rest = bytes_skip(rest, KEY_GROUP_BYTES + 1);
        if (used != KEY_GROUP_MORE) {
            break;
        }
    }
    size_t tail = key_space_of(stored) == KEY_SPACE_PART ? 4 : 0;
    if (rest.len != UPLOAD_ID_BYTES + tail || len == 0) {
        return false;
    }
    memcpy(id->bytes, rest.data, UPLOAD_ID_BYTES);
    *name_len = len;
    return true;
}

bool key_part_parse(struct bytes stored, struct meta_key *upload, u32 *number)
{
    if (stored.len < KEY_HEAD_BYTES + KEY_GROUP_BYTES + 1 + UPLOAD_ID_BYTES + 4 ||
        stored.len > STORE_KEY_BYTES_MAX || stored.data[8] != KEY_SPACE_PART) {
        return false;
    }
    upload->len = 0;
    key_append(upload, stored.data, stored.len - 4);
    upload->data[8] = KEY_SPACE_UPLOAD;
    *number = load_be32(stored.data + stored.len - 4);
    return true;
}

bool key_successor(struct meta_key *k)
{
    while (k->len > 0 && k->data[k->len - 1] == 0xff) {
        k->len--;
    }
    if (k->len == 0) {
        return false;
    }
    k->data[k->len - 1]++;
    return true;
}
