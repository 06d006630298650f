// SPDX-License-Identifier: Apache-2.0
// The keys under which meta keeps its records in the store (docs/format/meta.md). Byte order of the
// store's keys is the order of listings, so every layout here preserves order.
//
//   0 (8 bytes)     'b' bucket name                                  a bucket
//   0 (8 bytes)     'n'                                              the next bucket id
//   bucket id (BE)  'o' key                                          an object
//   bucket id (BE)  'u' ordered(key) upload id                       a multipart upload
//   bucket id (BE)  'p' ordered(key) upload id part number (4, BE)   a part of an upload
//
// ordered() makes a key self-delimiting without changing the order: groups of KEY_GROUP_BYTES, each
// followed by one byte that says how many of them are the key's (padded with zeros), or
// KEY_GROUP_MORE when the key goes on after a full group.
#pragma once

#include "base/slice.h"
#include "meta/meta.h"

#define KEY_SPACE_BUCKET  'b'
#define KEY_SPACE_COUNTER 'n'
#define KEY_SPACE_OBJECT  'o'
#define KEY_SPACE_PART    'p'
#define KEY_SPACE_UPLOAD  'u'

#define KEY_HEAD_BYTES  ((size_t)9) // bucket id and space
#define KEY_GROUP_BYTES ((size_t)32)
#define KEY_GROUP_MORE  33
#define KEY_ORDERED_MAX ((size_t)(META_KEY_BYTES_MAX / KEY_GROUP_BYTES) * (KEY_GROUP_BYTES + 1))

// The time of initiation and 16 random bytes: uploads of one key sort by age, and an id cannot be
// guessed. Its text is base 64 over an alphabet in ASCII order, so that texts sort as the bytes do.
#define UPLOAD_ID_BYTES 24
struct upload_id {
    u8 bytes[UPLOAD_ID_BYTES];
};

void upload_id_text(const struct upload_id *id, char out[META_UPLOAD_ID_CHARS + 1]);
bool upload_id_parse(struct bytes text, struct upload_id *out);

struct meta_key {
    u32 len;
    u8 data[STORE_KEY_BYTES_MAX];
};

static inline struct bytes meta_key_bytes(const struct meta_key *k)
{
    return BYTES(k->data, k->len);
}

// Everything of one space of a bucket begins with this.
void key_space(struct meta_key *k, u64 bucket_id, u8 space);
void key_bucket(struct meta_key *k, struct bytes name);
void key_object(struct meta_key *k, u64 bucket_id, struct bytes name);
void key_upload(struct meta_key *k, u64 bucket_id, struct bytes name, const struct upload_id *id);
void key_part(struct meta_key *k, u64 bucket_id, struct bytes name, const struct upload_id *id,
              u32 number);
// Everything of one space whose object key is `name`, or begins with `prefix`, begins with these.
void key_ordered_name(struct meta_key *k, u64 bucket_id, u8 space, struct bytes name);
void key_ordered_prefix(struct meta_key *k, u64 bucket_id, u8 space, struct bytes prefix);

u64 key_bucket_id(struct bytes stored);
u8 key_space_of(struct bytes stored); // 0 if the key is too short to have one
// The object key (into `name`, room for META_KEY_BYTES_MAX) and id of an upload's or a part's key.
// False if the key is malformed.
bool key_upload_parse(struct bytes stored, u8 *name, size_t *name_len, struct upload_id *id);
// The key of the upload that a part belongs to, and the part's number.
bool key_part_parse(struct bytes stored, struct meta_key *upload, u32 *number);

// Turns k into the least key that is greater than every key beginning with k. False if there is
// none (all bytes are 0xff).
bool key_successor(struct meta_key *k);
