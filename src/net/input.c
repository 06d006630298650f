// SPDX-License-Identifier: Apache-2.0
// The input buffer of an exchange: what came and is not yet consumed, behind the head in use. Most
// requests never leave its 16 KiB; a longer head moves to a large buffer until the exchange is
// idle.
#include "net/connection.h"

#include <stdlib.h>

static bool input_grow(struct exchange *e)
{
    ASSERT(e->in_floor == 0);
    if (e->in_capacity >= HTTP_INPUT_LARGE_BYTES) {
        return false;
    }
    u8 *large = malloc(HTTP_INPUT_LARGE_BYTES);
    if (large == NULL) {
        return false;
    }
    memcpy(large, e->in, e->in_end);
    e->in = large;
    e->in_capacity = (u32)HTTP_INPUT_LARGE_BYTES;
    return true;
}

u32 input_room(struct exchange *e, u32 want)
{
    ASSERT(e->in_floor <= e->in_begin && e->in_begin <= e->in_end && e->in_end <= e->in_capacity);
    if (e->in_capacity - e->in_end < want && e->in_begin > e->in_floor) {
        u32 len = e->in_end - e->in_begin;
        memmove(e->in + e->in_floor, e->in + e->in_begin, len);
        e->in_begin = e->in_floor;
        e->in_end = e->in_floor + len;
    }
    if (e->in_capacity - e->in_end < want && e->in_floor == 0) {
        (void)input_grow(e);
    }
    return e->in_capacity - e->in_end;
}

enum err input_parse(struct exchange *e, bool *is_ready)
{
    ASSERT(e->in_floor == 0);
    *is_ready = false;
    struct bytes head = BYTES_NONE;
    TRY(http_head_scan(&e->scan, BYTES(e->in + e->in_begin, e->in_end - e->in_begin), &head));
    if (head.data == NULL) {
        return OK;
    }
    u32 begin = (u32)(head.data - e->in);
    u32 end = begin + (u32)head.len;
    if (e->in_capacity - end < HTTP_INPUT_SLACK_BYTES) {
        // Chunk framing is read behind the head, which stays where it is once it is parsed.
        if (e->in_begin > 0) {
            u32 shift = e->in_begin;
            memmove(e->in, e->in + shift, e->in_end - shift);
            e->in_begin = 0;
            e->in_end -= shift;
            begin -= shift;
            end -= shift;
        }
        if (e->in_capacity - end < HTTP_INPUT_SLACK_BYTES && !input_grow(e)) {
            return ERR_NO_MEMORY;
        }
    }
    TRY(http_head_parse(BYTES(e->in + begin, head.len), e->headers, &e->x));
    e->scan = (struct http_head_scan){0};
    e->in_begin = end;
    e->in_floor = end;
    *is_ready = true;
    return OK;
}
