// SPDX-License-Identifier: Apache-2.0
// A listing writes some 10,000 elements, so the common one, a short text with room to spare, is one
// check and a straight run of copies; escaping looks at 16 bytes at a time for the few that matter.
#include "codec/xml_write.h"

#include "base/text.h"

#include "base/assert.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define ESCAPE_BYTES_PER_BYTE 6  // "&quot;", "&#x1f;"
#define ESCAPE_UNIT_BYTES_MAX 16 // room that one step of escape() may touch: a vector store
#define U64_DIGITS_MAX        20

void xml_writer_init(struct xml_writer *w, u8 *buf, size_t cap, xml_flush_fn flush, void *flush_arg)
{
    *w = (struct xml_writer){
        .buf = buf, .cap = cap, .limit_bytes = cap, .flush = flush, .flush_arg = flush_arg};
}

void xml_writer_init_arena(struct xml_writer *w, struct arena *arena, size_t initial_bytes,
                           size_t limit_bytes)
{
    size_t cap = MIN(initial_bytes, limit_bytes);
    *w = (struct xml_writer){.arena = arena, .limit_bytes = limit_bytes};
    w->buf = arena_alloc(arena, cap);
    if (w->buf == NULL) {
        w->err = ERR_NO_MEMORY;
        return;
    }
    w->cap = cap;
}

// Hands the buffer's bytes to the flush function.
static void writer_flush(struct xml_writer *w)
{
    if (w->err == OK && w->len > 0) {
        w->err = w->flush(w->flush_arg, BYTES(w->buf, w->len));
        w->len = 0;
    }
}

// Makes the arena's buffer hold `more` bytes further, doubling it.
static void writer_grow(struct xml_writer *w, size_t more)
{
    if (more > w->limit_bytes - w->len) {
        w->err = ERR_LIMIT_REACHED;
        return;
    }
    size_t cap = MIN(MAX(w->cap * 2, w->len + more), w->limit_bytes);
    u8 *buf = arena_alloc(w->arena, cap);
    if (buf == NULL) {
        w->err = ERR_NO_MEMORY;
        return;
    }
    if (w->len > 0) {
        memcpy(buf, w->buf, w->len);
    }
    w->buf = buf;
    w->cap = cap;
}

// put() for bytes that do not fit.
static __attribute__((noinline)) void put_slowly(struct xml_writer *w, struct bytes data)
{
    if (w->err != OK) {
        return;
    }
    if (w->flush == NULL) {
        if (w->arena == NULL) {
            w->err = ERR_LIMIT_REACHED;
            return;
        }
        writer_grow(w, data.len);
    }
    while (w->err == OK && data.len > 0) {
        size_t n = MIN(data.len, w->cap - w->len);
        memcpy(w->buf + w->len, data.data, n);
        w->len += n;
        data = bytes_skip(data, n);
        if (data.len > 0) {
            // Only reached with a flush function: growth made room for all.
            writer_flush(w);
            ASSERT(w->cap > 0);
        }
    }
}

static inline void put(struct xml_writer *w, struct bytes data)
{
    if (LIKELY(w->err == OK && data.len <= w->cap - w->len)) {
        if (data.len > 0) {
            memcpy(w->buf + w->len, data.data, data.len);
        }
        w->len += data.len;
        return;
    }
    put_slowly(w, data);
}

static inline u8 *append(u8 *to, struct bytes data)
{
    memcpy(to, data.data, data.len);
    return to + data.len;
}

// &#xN; with as few digits as there are.
static u8 *append_reference(u8 *to, u32 code)
{
    to = append(to, BYTES_LITERAL("&#x"));
    u32 shift = 28;
    while (shift > 0 && code >> shift == 0) {
        shift -= 4;
    }
    for (;; shift -= 4) {
        *to++ = (u8) "0123456789abcdef"[code >> shift & 15];
        if (shift == 0) {
            break;
        }
    }
    *to++ = ';';
    return to;
}

// Writes the one character at p, which is special or not ASCII; returns how many bytes it was.
static size_t escape_character(u8 **to, const u8 *p, size_t left)
{
    switch (*p) {
    case '&':
        *to = append(*to, BYTES_LITERAL("&amp;"));
        return 1;
    case '<':
        *to = append(*to, BYTES_LITERAL("&lt;"));
        return 1;
    case '>':
        *to = append(*to, BYTES_LITERAL("&gt;"));
        return 1;
    case '"':
        *to = append(*to, BYTES_LITERAL("&quot;"));
        return 1;
    case '\'':
        *to = append(*to, BYTES_LITERAL("&apos;"));
        return 1;
    case '\t':
        *to = append(*to, BYTES_LITERAL("&#9;"));
        return 1;
    case '\n':
        *to = append(*to, BYTES_LITERAL("&#10;"));
        return 1;
    case '\r':
        *to = append(*to, BYTES_LITERAL("&#13;"));
        return 1;
    default:
        break;
    }
    if (*p < 0x20) {
        *to = append_reference(*to, *p);
        return 1;
    }
    if (*p < 0x80) {
        *(*to)++ = *p;
        return 1;
    }
    u32 code;
    size_t n = utf8_decode(p, left, &code);
    if (n == 0) {
        *to = append(*to, BYTES_LITERAL("\xef\xbf\xbd"));
        return 1;
    }
    if (code == 0xfffe || code == 0xffff) {
        *to = append_reference(*to, code);
    } else {
        *to = append(*to, BYTES(p, n));
    }
    return n;
}

// True for bytes that are copied as they are.
static inline bool is_plain(u8 c)
{
    return c >= 0x20 && c < 0x80 && c != '&' && c != '<' && c != '>' && c != '"' && c != '\'';
}

#if defined(__SSE2__)

// A bit for each of the 16 bytes that is not plain. Signed comparison takes bytes from 0x80 with
// the control characters; setting bit 2 makes one pair of '"' and '&', bit 1 one of '<' and '>'.
static inline u32 special_mask(__m128i v)
{
    __m128i low = _mm_cmplt_epi8(v, _mm_set1_epi8(0x20));
    __m128i quote = _mm_cmpeq_epi8(_mm_or_si128(v, _mm_set1_epi8(0x04)), _mm_set1_epi8('&'));
    __m128i angle = _mm_cmpeq_epi8(_mm_or_si128(v, _mm_set1_epi8(0x02)), _mm_set1_epi8('>'));
    __m128i apostrophe = _mm_cmpeq_epi8(v, _mm_set1_epi8('\''));
    return (u32)_mm_movemask_epi8(
        _mm_or_si128(_mm_or_si128(low, quote), _mm_or_si128(angle, apostrophe)));
}

#endif

// Writes text escaped to `to`, until the text ends or less than ESCAPE_UNIT_BYTES_MAX bytes of room
// are left. Returns the new end of the output and moves *text forward.
static u8 *escape(u8 *to, const u8 *room_end, struct bytes *text)
{
    if (text->len == 0) {
        return to;
    }
    const u8 *p = text->data;
    const u8 *end = p + text->len;
    while (p < end && room_end - to >= ESCAPE_UNIT_BYTES_MAX) {
#if defined(__SSE2__)
        if (end - p >= 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
            u32 special = special_mask(v);
            _mm_storeu_si128((__m128i *)(void *)to, v);
            if (special == 0) {
                to += 16;
                p += 16;
                continue;
            }
            u32 plain = (u32)__builtin_ctz(special);
            if (plain > 0) {
                to += plain;
                p += plain;
                continue;
            }
        }
#endif
        if (is_plain(*p)) {
            *to++ = *p++;
        } else {
            p += escape_character(&to, p, (size_t)(end - p));
        }
    }
    *text = BYTES(p, (size_t)(end - p));
    return to;
}

void xml_writer_append_text(struct xml_writer *w, struct bytes text)
{
    while (text.len > 0 && w->err == OK) {
        if (w->cap - w->len >= ESCAPE_UNIT_BYTES_MAX) {
            w->len = (size_t)(escape(w->buf + w->len, w->buf + w->cap, &text) - w->buf);
        } else {
            // Near the end of the buffer: a few bytes aside, which put() may split or refuse.
            u8 aside[2 * ESCAPE_UNIT_BYTES_MAX];
            u8 *end = escape(aside, aside + sizeof(aside), &text);
            put(w, BYTES(aside, (size_t)(end - aside)));
        }
    }
}

void xml_writer_append_raw(struct xml_writer *w, struct bytes raw)
{
    put(w, raw);
}

void xml_writer_declaration(struct xml_writer *w)
{
    put(w, BYTES_LITERAL("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"));
}

void xml_writer_open_bytes(struct xml_writer *w, struct bytes name, struct bytes attributes)
{
    ASSERT(w->depth < XML_WRITER_DEPTH_MAX);
    w->open[w->depth++] = name;
    put(w, BYTES_LITERAL("<"));
    put(w, name);
    if (attributes.len > 0) {
        put(w, BYTES_LITERAL(" "));
        put(w, attributes);
    }
    put(w, BYTES_LITERAL(">"));
}

static void put_end_tag(struct xml_writer *w, struct bytes name)
{
    put(w, BYTES_LITERAL("</"));
    put(w, name);
    put(w, BYTES_LITERAL(">"));
}

void xml_writer_close(struct xml_writer *w)
{
    ASSERT(w->depth > 0);
    put_end_tag(w, w->open[--w->depth]);
}

static inline u8 *append_start_tag(u8 *to, struct bytes name)
{
    *to++ = '<';
    to = append(to, name);
    *to++ = '>';
    return to;
}

static inline u8 *append_end_tag(u8 *to, struct bytes name)
{
    to = append(to, BYTES_LITERAL("</"));
    to = append(to, name);
    *to++ = '>';
    return to;
}

// True if a whole element with `content` bytes inside surely fits.
static inline bool element_fits(const struct xml_writer *w, struct bytes name, size_t content)
{
    size_t tags = 2 * name.len + sizeof("<></>") - 1;
    return w->err == OK && w->cap - w->len >= tags + content;
}

void xml_writer_text_bytes(struct xml_writer *w, struct bytes name, struct bytes text)
{
    ASSERT(text.len <= SIZE_MAX / 8 - name.len);
    size_t content = ESCAPE_BYTES_PER_BYTE * text.len + ESCAPE_UNIT_BYTES_MAX;
    if (LIKELY(element_fits(w, name, content))) {
        u8 *to = append_start_tag(w->buf + w->len, name);
        to = escape(to, w->buf + w->cap, &text);
        ASSERT(text.len == 0);
        w->len = (size_t)(append_end_tag(to, name) - w->buf);
        return;
    }
    put(w, BYTES_LITERAL("<"));
    put(w, name);
    put(w, BYTES_LITERAL(">"));
    xml_writer_append_text(w, text);
    put_end_tag(w, name);
}

void xml_writer_raw_bytes(struct xml_writer *w, struct bytes name, struct bytes raw)
{
    if (LIKELY(element_fits(w, name, raw.len))) {
        u8 *to = append_start_tag(w->buf + w->len, name);
        if (raw.len > 0) {
            to = append(to, raw);
        }
        w->len = (size_t)(append_end_tag(to, name) - w->buf);
        return;
    }
    put(w, BYTES_LITERAL("<"));
    put(w, name);
    put(w, BYTES_LITERAL(">"));
    put(w, raw);
    put_end_tag(w, name);
}

void xml_writer_u64_bytes(struct xml_writer *w, struct bytes name, u64 value)
{
    char digits[U64_DIGITS_MAX];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    xml_writer_raw_bytes(w, name, BYTES(digits + at, sizeof(digits) - at));
}

void xml_writer_empty_bytes(struct xml_writer *w, struct bytes name)
{
    put(w, BYTES_LITERAL("<"));
    put(w, name);
    put(w, BYTES_LITERAL("/>"));
}

enum err xml_writer_finish(struct xml_writer *w, struct bytes *out)
{
    ASSERT(w->depth == 0 || w->err != OK);
    if (w->flush != NULL) {
        writer_flush(w);
    }
    if (out != NULL) {
        *out = w->err == OK ? BYTES(w->buf, w->len) : BYTES_NONE;
    }
    return w->err;
}
