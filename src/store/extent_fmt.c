// SPDX-License-Identifier: Apache-2.0
// Encoding and strict decoding of extent frames.
#include "store/extent_fmt.h"

#include "base/assert.h"
#include "codec/crc.h"

void extent_encode(u8 *frame, const struct extent_name *name, u64 cookie, u32 data_bytes)
{
    ASSERT(data_bytes > 0 && data_bytes <= STORE_EXTENT_BYTES);
    u32 blocks = extent_blocks(data_bytes);
    u8 *data = frame + EXTENT_BLOCK_BYTES;
    memset(data + data_bytes, 0, (size_t)blocks * EXTENT_BLOCK_BYTES - data_bytes);
    struct extent_fmt *h = (struct extent_fmt *)(void *)frame;
    memset(h, 0, sizeof(*h));
    h->magic = EXTENT_MAGIC;
    h->version = EXTENT_VERSION;
    h->pg = name->pg;
    h->cookie = cookie;
    h->object_id = name->object_id;
    h->chunk = name->chunk;
    h->data_bytes = data_bytes;
    for (u32 i = 0; i < blocks; i++) {
        h->crcs[i] = crc32c(0, BYTES(data + (size_t)i * EXTENT_BLOCK_BYTES, EXTENT_BLOCK_BYTES));
    }
    h->crc = crc32c(0, BYTES(frame, offsetof(struct extent_fmt, crc)));
}

const struct extent_fmt *extent_parse(const u8 *block, u64 cookie)
{
    const struct extent_fmt *h = (const struct extent_fmt *)(const void *)block;
    bool is_sane = h->magic == EXTENT_MAGIC && h->cookie == cookie &&
                   h->version == EXTENT_VERSION && h->data_bytes > 0 &&
                   h->data_bytes <= STORE_EXTENT_BYTES && h->object_id != 0 &&
                   h->crc == crc32c(0, BYTES(block, offsetof(struct extent_fmt, crc)));
    return is_sane ? h : NULL;
}

bool extent_blocks_are_valid(const u32 *crcs, u32 first, u32 count, const u8 *data)
{
    ASSERT(first + count <= EXTENT_BLOCKS_MAX);
    for (u32 i = 0; i < count; i++) {
        if (crc32c(0, BYTES(data + (size_t)i * EXTENT_BLOCK_BYTES, EXTENT_BLOCK_BYTES)) !=
            crcs[first + i]) {
            return false;
        }
    }
    return true;
}
