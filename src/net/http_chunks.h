// SPDX-License-Identifier: Apache-2.0
// The framing of a chunked body, apart from its data: the caller feeds what it has, and takes the
// data itself, so that most of it can be received straight into the reader's memory.
#pragma once

#include "base/err.h"
#include "base/types.h"

#define HTTP_CHUNK_DIGITS_MAX          16         // of a chunk's size
#define HTTP_CHUNK_EXTENSION_BYTES_MAX 256        // of one chunk
#define HTTP_CHUNK_OVERHEAD_BYTES_MAX  (16 * KIB) // all extensions of one body
#define HTTP_TRAILER_BYTES_MAX         (8 * KIB)

enum http_chunks_state {
    CHUNKS_SIZE_FIRST, // the first digit of a size
    CHUNKS_SIZE,
    CHUNKS_EXTENSION,
    CHUNKS_SIZE_LF,
    CHUNKS_DATA, // `remaining` bytes of data follow
    CHUNKS_DATA_CR,
    CHUNKS_DATA_LF,
    CHUNKS_TRAILER_FIRST, // the first byte of a trailer line
    CHUNKS_TRAILER_NAME,
    CHUNKS_TRAILER_VALUE,
    CHUNKS_TRAILER_LF,
    CHUNKS_END_LF,
    CHUNKS_DONE,
};

struct http_chunks {
    u8 state; // enum http_chunks_state
    u8 digits;
    u16 extension_bytes; // of this chunk
    u32 overhead_bytes;  // of all extensions
    u32 trailer_bytes;
    u64 remaining; // data bytes of this chunk still to come
};

void http_chunks_init(struct http_chunks *c);
// Takes framing bytes until data comes, the body ends, or `len` is used up; *used says how many.
// ERR_HTTP_BAD_REQUEST for anything that RFC 9112 does not allow, bare CR and LF included, and past
// the limits above.
enum err http_chunks_frame(struct http_chunks *c, const u8 *in, size_t len, size_t *used) NODISCARD;
// n bytes of data were taken; n <= remaining, only in CHUNKS_DATA.
void http_chunks_take(struct http_chunks *c, u64 n);

static inline bool http_chunks_is_data(const struct http_chunks *c)
{
    return c->state == CHUNKS_DATA;
}
static inline bool http_chunks_is_done(const struct http_chunks *c)
{
    return c->state == CHUNKS_DONE;
}
