// SPDX-License-Identifier: Apache-2.0
// One page of names, of objects or of uploads: the machinery behind object_list and upload_list.
#pragma once

#include "meta/meta_internal.h"

struct list_query {
    struct bytes bucket;
    struct bytes prefix;
    struct bytes delimiter;
    struct bytes after;
    bool has_after_upload; // uploads: go on behind this upload of `after`, else behind all of them
    struct upload_id after_upload;
    u32 max;
    u8 space; // KEY_SPACE_OBJECT or KEY_SPACE_UPLOAD
};

struct list_entry {
    struct bytes name;
    bool is_prefix;          // the fields below are then unused
    struct upload_id upload; // uploads only, else zeros
    u8 summary[STORE_SUMMARY_BYTES];
};

struct list_page {
    struct list_entry *entries; // in the arena
    u32 count;
    bool is_truncated;
};

MAY_WAIT enum err list_page(struct meta *m, const struct list_query *q, struct arena *arena,
                            struct list_page *out) NODISCARD;
