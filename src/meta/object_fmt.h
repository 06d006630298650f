// SPDX-License-Identifier: Apache-2.0
// What meta keeps in a record: the 40-byte summary (in the index, so that lists, conditions and
// HEAD-level decisions need no drive) and the attributes (in the record). docs/format/meta.md is
// the specification. Objects, uploads and parts share both layouts. Integers are little-endian.
//
// Summary: size 8, modified_ns 8, MD5 16, parts 4, checksum algorithm 1, checksum type 1,
// version 1, flags 1 (zero).
// Attributes: version 1, then items of {type 1, length 4, value}. A reader skips unknown types
// below OBJECT_ITEM_CRITICAL and refuses the others, so that later versions can add both kinds.
#pragma once

#include "meta/keys.h"
#include "meta/meta.h"

#define OBJECT_FORMAT_VERSION 1

#define OBJECT_ITEM_CRITICAL 0x80

enum object_item {
    OBJECT_ITEM_ATTR = 1,     // name length 2, name, value; all of them first
    OBJECT_ITEM_CHECKSUM = 2, // the checksum's value
    OBJECT_ITEM_UPLOAD = 3,   // the id of the upload that made the object
    // algorithm 1, zero 3, count 4, then {number 4, size 8, checksum value} for each part
    OBJECT_ITEM_PARTS = 0x84,
};

// The encoded list of parts.
struct part_list {
    struct bytes raw; // the item's value; empty: no parts
    u32 count;
    u8 algorithm;
};
#define PART_LIST_HEAD_BYTES 8
size_t part_list_entry_bytes(u8 algorithm);

void object_summary_encode(const struct object_info *info, u8 out[STORE_SUMMARY_BYTES]);
// ERR_VERSION, ERR_FORMAT. Everything but the checksum's value.
enum err object_summary_decode(const u8 in[STORE_SUMMARY_BYTES], struct object_info *out) NODISCARD;

// What goes into the attributes of a record.
struct object_attrs_source {
    const struct attr *attrs;
    u32 attr_count;
    struct bytes attrs_raw; // used instead of `attrs` when not empty: items as scanned
    struct checksum checksum;
    const struct upload_id *upload; // or NULL
    struct bytes parts_raw;         // or empty
};
// ERR_S3_METADATA_TOO_LARGE (META_ATTRS_MAX, META_ATTRS_BYTES_MAX).
enum err object_attrs_check(const struct attr *attrs, u32 attr_count) NODISCARD;
size_t object_attrs_bytes(const struct object_attrs_source *s);
void object_attrs_encode(const struct object_attrs_source *s, u8 *out);

// What stands in the attributes of a record: views into `raw`.
struct object_attrs {
    struct bytes attrs_raw;
    u32 attr_count;
    bool has_upload;
    struct upload_id upload;
    struct part_list parts;
};
// Checks everything, and fills info->checksum.value. ERR_FORMAT, ERR_VERSION.
enum err object_attrs_scan(struct bytes raw, struct object_info *info,
                           struct object_attrs *out) NODISCARD;
// Takes the next attribute from `rest` (starts as attrs_raw, already checked). False at the end.
bool object_attr_next(struct bytes *rest, struct attr *out);
// Part `index` of a checked list; the offset is not filled.
void part_list_at(const struct part_list *list, u32 index, struct object_part *out);
void part_list_write(u8 *raw, u32 index, u8 algorithm, const struct object_part *part);
