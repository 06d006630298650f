// SPDX-License-Identifier: Apache-2.0
// Reads the XML of S3 request bodies (Delete, CompleteMultipartUpload, CreateBucketConfiguration,
// Tagging and their like) into a small tree in the request's arena. expat does the parsing; this
// file refuses what a request body never needs and an attacker does: DTDs, entities beyond the five
// named ones, and anything past the limits. A control character is malformed, raw or as a reference
// (&#x1;), as it is with AWS.
//
// The tree: names without their namespace prefix ("s3:Key" is "Key"); attributes, comments and
// processing instructions dropped; CDATA is text. The text of an element without children is exact,
// blanks included. An element with children has no text: blanks between them are dropped, anything
// else is malformed (no S3 schema has mixed content).
//
// Errors: ERR_S3_MAX_MESSAGE_LENGTH past bytes_max; ERR_S3_MALFORMED_XML for everything else that
// is wrong with the body; ERR_NO_MEMORY when the arena or the heap is exhausted.
// Not thread-safe; owned by the fiber that serves the request. Never waits.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

struct xml_limits {
    size_t bytes_max;      // of the whole body
    u32 depth_max;         // of nested elements, the root being 1
    u32 elements_max;      // in all
    size_t text_bytes_max; // in one element, after decoding
    u64 hash_salt;         // expat's defence against chosen names; draw it once per process
};

// Different element names in one body; far above what any S3 schema has.
#define XML_NAMES_MAX 64

// A good setting for every S3 body: 1,000 keys of 1,024 bytes with each byte written as a
// character reference, or 10,000 parts with all their checksums. Nodes of the largest
// CompleteMultipartUpload take about 4 MiB of arena.
#define XML_LIMITS_S3                                                                              \
    ((struct xml_limits){.bytes_max = 8 * MIB,                                                     \
                         .depth_max = 16,                                                          \
                         .elements_max = 100000,                                                   \
                         .text_bytes_max = 4 * KIB,                                                \
                         .hash_salt = 0})

struct xml_node {
    struct bytes name;
    struct bytes text; // a zero follows it; never NULL in an element without children
    struct xml_node *first_child;
    struct xml_node *next; // sibling, in the body's order
};

struct xml_reader;

// The reader and its tree use `arena`; the tree lives as long as the arena does.
NODISCARD enum err xml_reader_create(struct xml_reader **out, struct arena *arena,
                                     const struct xml_limits *limits);
// Frees what expat holds. Allowed at any moment; NULL is fine. The tree stays.
void xml_reader_destroy(struct xml_reader *r);
// Parses the next bytes of the body, in pieces of any size. An error is final and comes again.
NODISCARD enum err xml_reader_feed(struct xml_reader *r, struct bytes data);
// The body has ended. An empty or unfinished body is malformed.
NODISCARD enum err xml_reader_finish(struct xml_reader *r, const struct xml_node **root);

// All of it for a body in one piece.
NODISCARD enum err xml_parse(struct bytes body, struct arena *arena,
                             const struct xml_limits *limits, const struct xml_node **root);

bool xml_node_is(const struct xml_node *node, const char *name);
// The first child of that name, or NULL (also when node is NULL).
const struct xml_node *xml_child(const struct xml_node *node, const char *name);
// The next sibling of the same name, or NULL.
const struct xml_node *xml_next(const struct xml_node *node);
// The text of the first child of that name; data == NULL when there is none. An element that is
// there but empty has data != NULL and length 0.
struct bytes xml_child_text(const struct xml_node *node, const char *name);

// for each child element `child` of that name
#define XML_FOREACH_CHILD(child, node, child_name)                                                 \
    for (const struct xml_node *child = xml_child(node, child_name); child != NULL;                \
         child = xml_next(child))
