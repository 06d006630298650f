// SPDX-License-Identifier: Apache-2.0
// Writes the XML of S3 responses. Output goes to one of:
//   - a buffer of the caller's, which is the limit;
//   - such a buffer with a flush function, which gets the bytes whenever the buffer is full;
//   - a buffer that doubles inside an arena up to a named limit.
// Errors stick: after the first one, calls do nothing and xml_writer_finish() returns it, so the
// body of a response is written without a check a line. Element names are the program's own
// literals and are not escaped.
//
// Text is any bytes, yet the document is always well-formed UTF-8:
//   & < > " '                     the five named entities
//   tab, line feed, return        &#9; &#10; &#13; (a parser would normalise the raw ones)
//   other control characters,
//   U+FFFE and U+FFFF             &#x1; and so on. XML 1.0 parsers refuse these, as with AWS, which
//   is
//                                 why clients ask for encoding-type=url.
//   bytes that are not UTF-8      U+FFFD for each
// Not thread-safe; owned by the fiber that writes the response.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

#define XML_WRITER_DEPTH_MAX 16
#define XML_S3_NAMESPACE     "http://s3.amazonaws.com/doc/2006-03-01/"

// Takes all of `data` before it returns. An error ends the writing.
typedef enum err (*xml_flush_fn)(void *flush_arg, struct bytes data);

struct xml_writer {
    u8 *buf;
    size_t len;
    size_t cap;
    size_t limit_bytes; // growth stops here; with a flush function, no limit
    struct arena *arena;
    xml_flush_fn flush;
    void *flush_arg;
    enum err err;
    u32 depth;
    struct bytes open[XML_WRITER_DEPTH_MAX]; // names of the open elements
};

// `flush` may be NULL: then more than cap bytes are ERR_LIMIT_REACHED.
void xml_writer_init(struct xml_writer *w, u8 *buf, size_t cap, xml_flush_fn flush,
                     void *flush_arg);
// Starts with initial_bytes (a good guess saves copies). ERR_LIMIT_REACHED past limit_bytes,
// ERR_NO_MEMORY when the arena is exhausted.
void xml_writer_init_arena(struct xml_writer *w, struct arena *arena, size_t initial_bytes,
                           size_t limit_bytes);
// Asserts that every element was closed (unless there was an error), flushes if there is a flush
// function, and gives what lies in the buffer (nothing after a flush). The bytes belong to the
// buffer's owner. `out` may be NULL.
NODISCARD enum err xml_writer_finish(struct xml_writer *w, struct bytes *out);

// The functions proper; names must outlive the element.
void xml_writer_open_bytes(struct xml_writer *w, struct bytes name, struct bytes attributes);
void xml_writer_text_bytes(struct xml_writer *w, struct bytes name, struct bytes text);
void xml_writer_raw_bytes(struct xml_writer *w, struct bytes name, struct bytes raw);
void xml_writer_u64_bytes(struct xml_writer *w, struct bytes name, u64 value);
void xml_writer_empty_bytes(struct xml_writer *w, struct bytes name);

// <?xml version="1.0" encoding="UTF-8"?> and a line feed, as AWS writes it.
void xml_writer_declaration(struct xml_writer *w);
// Closes the innermost open element.
void xml_writer_close(struct xml_writer *w);
// Bytes as they are, anywhere: the caller vouches for them.
void xml_writer_append_raw(struct xml_writer *w, struct bytes raw);
// Escaped text inside the open element.
void xml_writer_append_text(struct xml_writer *w, struct bytes text);

// <name>
static inline void xml_writer_open(struct xml_writer *w, const char *name)
{
    xml_writer_open_bytes(w, bytes_from_string(name), BYTES_NONE);
}
// <name attributes>; the attributes are written as they are: xmlns="..."
static inline void xml_writer_open_with(struct xml_writer *w, const char *name,
                                        const char *attributes)
{
    xml_writer_open_bytes(w, bytes_from_string(name), bytes_from_string(attributes));
}
// The root element of a response: <name xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
static inline void xml_writer_open_root(struct xml_writer *w, const char *name)
{
    xml_writer_open_with(w, name, "xmlns=\"" XML_S3_NAMESPACE "\"");
}
// <name>escaped text</name>
static inline void xml_writer_text(struct xml_writer *w, const char *name, struct bytes text)
{
    xml_writer_text_bytes(w, bytes_from_string(name), text);
}
static inline void xml_writer_string(struct xml_writer *w, const char *name, const char *text)
{
    xml_writer_text_bytes(w, bytes_from_string(name), bytes_from_string(text));
}
// <name>text as it is</name>: for text known to need no escaping (times, hex digits).
static inline void xml_writer_raw(struct xml_writer *w, const char *name, struct bytes raw)
{
    xml_writer_raw_bytes(w, bytes_from_string(name), raw);
}
static inline void xml_writer_u64(struct xml_writer *w, const char *name, u64 value)
{
    xml_writer_u64_bytes(w, bytes_from_string(name), value);
}
static inline void xml_writer_bool(struct xml_writer *w, const char *name, bool value)
{
    xml_writer_raw_bytes(w, bytes_from_string(name),
                         value ? BYTES_LITERAL("true") : BYTES_LITERAL("false"));
}
// <name/>
static inline void xml_writer_empty(struct xml_writer *w, const char *name)
{
    xml_writer_empty_bytes(w, bytes_from_string(name));
}
