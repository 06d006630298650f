// SPDX-License-Identifier: Apache-2.0
// Footer blocks and trailers on any bytes: never a crash, never an entry outside of its block, and
// the walk ends. The first byte chooses what is repaired before parsing.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "codec/crc.h"
#include "dev/segment_fmt.h"
#include "store/footer_fmt.h"

#define COOKIE        0x1122334455667788ull
#define REPAIR        0x01u
#define IS_TRAILER    0x02u
#define SEGMENT_BYTES ((u32)MIB)

static void block_try(u8 *block, u32 size, bool is_repaired)
{
    struct footer_block_fmt *h = (struct footer_block_fmt *)(void *)block;
    if (is_repaired && size >= sizeof(*h)) {
        h->magic = FOOTER_BLOCK_MAGIC;
        h->cookie = COOKIE;
        h->index = 0;
        h->used_bytes = size;
        size_t start = offsetof(struct footer_block_fmt, cookie);
        h->crc = crc32c(0, BYTES(block + start, size - start));
    }
    u32 used = footer_block_check(block, size, COOKIE, 0);
    ASSERT(used <= size);
    if (used == 0) {
        return;
    }
    struct footer_entry e;
    enum err err;
    u32 pos = 0;
    u32 entries = 0;
    while (footer_block_next(block, &pos, &e, &err)) {
        ASSERT(++entries <= size && pos <= used);
        if (e.kind == FOOTER_EXTENT) {
            ASSERT(e.object_id != 0 && e.data_bytes <= STORE_EXTENT_BYTES);
            continue;
        }
        const u8 *ids_end = e.ids + (size_t)e.refs_here * 8;
        ASSERT(e.summary >= block && e.summary + STORE_SUMMARY_BYTES <= block + used);
        ASSERT(e.ids >= block && ids_end <= block + used);
        ASSERT(e.key.data >= ids_end && e.key.data + e.key.len <= block + pos);
    }
    ASSERT(err == OK || err == ERR_CORRUPT);
}

static void trailer_try(u8 *block, u32 size, bool is_repaired)
{
    struct footer_trailer_fmt *t = (struct footer_trailer_fmt *)(void *)block;
    if (size < sizeof(*t)) {
        return;
    }
    if (is_repaired) {
        t->magic = FOOTER_TRAILER_MAGIC;
        t->version = FOOTER_VERSION;
        t->cookie = COOKIE;
        t->segment_id = 7;
        t->crc = crc32c(0, BYTES(block, offsetof(struct footer_trailer_fmt, crc)));
    }
    if (footer_trailer_check(t, 7, COOKIE, SEGMENT_BYTES)) {
        ASSERT(t->footer_offset >= SEGMENT_HEADER_BYTES);
        ASSERT((u64)t->footer_offset + t->footer_bytes == SEGMENT_BYTES - FOOTER_TRAILER_BYTES);
        ASSERT((u64)t->block_count * FOOTER_BLOCK_BYTES >= t->footer_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > FOOTER_BLOCK_BYTES) {
        return 0;
    }
    u8 mode = data[0];
    u8 *block = aligned_alloc(8, ALIGN_UP(size, (size_t)8));
    ASSERT(block != NULL);
    memcpy(block, data + 1, size - 1);
    if ((mode & IS_TRAILER) != 0) {
        trailer_try(block, (u32)(size - 1), (mode & REPAIR) != 0);
    } else {
        block_try(block, (u32)(size - 1), (mode & REPAIR) != 0);
    }
    free(block);
    return 0;
}
