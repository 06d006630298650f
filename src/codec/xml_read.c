// SPDX-License-Identifier: Apache-2.0
// expat calls back for elements and text; this file checks the limits and builds the tree. Text is
// collected in one scratch buffer, because only one element can have text at a time: an element's
// text ends where its first child begins.
//
// The first error is kept and stops expat. expat rescans a token that arrives in many pieces from
// its start, which costs the square of the token's length, so a token has a limit of its own.
#include "codec/xml_read.h"

#include <expat.h>

#include "base/assert.h"

#define XML_READER_MAGIC    0x784d4c72u
#define XML_PIECE_BYTES_MAX (32 * KIB) // given to expat at a time
#define XML_TOKEN_BYTES_MAX (64 * KIB) // one tag, comment or the like
#define XML_FIXED_SALT      0x6c656174u

struct open_element {
    struct xml_node *node;
    struct xml_node *last_child;
};

struct xml_reader {
    u32 magic;
    enum err err;
    XML_Parser parser;
    struct arena *arena;
    struct xml_limits limits;
    size_t fed_bytes;
    size_t token_at_bytes; // where the last token that expat saw begins
    u32 elements;
    u32 depth;
    struct open_element *open; // [limits.depth_max]
    u8 *text;                  // [limits.text_bytes_max], of the innermost open element
    size_t text_len;
    struct xml_node *root;
    u32 names_len;
    struct bytes names[XML_NAMES_MAX]; // each name seen, once
};

static void reader_fail(struct xml_reader *r, enum err e)
{
    if (r->err == OK) {
        r->err = e;
        XML_StopParser(r->parser, XML_FALSE);
    }
}

static bool is_blank(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        u8 c = text.data[i];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return false;
        }
    }
    return true;
}

// What stands behind the prefix must be a name by itself, which expat has not seen to. All names of
// S3 begin with a letter of ASCII.
static bool is_local_name(struct bytes name)
{
    if (name.len == 0 || memchr(name.data, ':', name.len) != NULL) {
        return false;
    }
    u8 c = name.data[0];
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// The reader's own copy of a name, without its prefix; data == NULL on failure.
static struct bytes name_intern(struct xml_reader *r, const char *qualified)
{
    const char *colon = strchr(qualified, ':');
    struct bytes name = bytes_from_string(colon != NULL ? colon + 1 : qualified);
    for (u32 i = 0; i < r->names_len; i++) {
        if (bytes_equal(r->names[i], name)) {
            return r->names[i];
        }
    }
    if (r->names_len == XML_NAMES_MAX || !is_local_name(name)) {
        reader_fail(r, ERR_S3_MALFORMED_XML);
        return BYTES_NONE;
    }
    struct bytes copy = arena_copy(r->arena, name);
    if (copy.data == NULL) {
        reader_fail(r, ERR_NO_MEMORY);
        return BYTES_NONE;
    }
    r->names[r->names_len++] = copy;
    return copy;
}

// Hangs the node under the innermost open element, or makes it the root.
static void node_attach(struct xml_reader *r, struct xml_node *node)
{
    if (r->depth == 0) {
        ASSERT(r->root == NULL);
        r->root = node;
        return;
    }
    struct open_element *parent = &r->open[r->depth - 1];
    if (parent->last_child == NULL) {
        parent->node->first_child = node;
    } else {
        parent->last_child->next = node;
    }
    parent->last_child = node;
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct xml_reader *r = user;
    (void)attributes;
    if (r->err != OK) {
        return;
    }
    if (r->depth == r->limits.depth_max || r->elements == r->limits.elements_max ||
        !is_blank(BYTES(r->text, r->text_len))) {
        reader_fail(r, ERR_S3_MALFORMED_XML);
        return;
    }
    struct bytes own_name = name_intern(r, name);
    if (own_name.data == NULL) {
        return;
    }
    struct xml_node *node = arena_alloc_zero(r->arena, sizeof(*node));
    if (node == NULL) {
        reader_fail(r, ERR_NO_MEMORY);
        return;
    }
    node->name = own_name;
    node_attach(r, node);
    r->open[r->depth++] = (struct open_element){.node = node};
    r->elements++;
    r->text_len = 0;
}

static void XMLCALL on_end(void *user, const XML_Char *name)
{
    struct xml_reader *r = user;
    (void)name;
    if (r->err != OK) {
        return;
    }
    ASSERT(r->depth > 0);
    struct xml_node *node = r->open[--r->depth].node;
    struct bytes text = BYTES(r->text, r->text_len);
    r->text_len = 0;
    if (node->first_child != NULL) {
        if (!is_blank(text)) {
            reader_fail(r, ERR_S3_MALFORMED_XML);
        }
        return;
    }
    node->text = arena_copy(r->arena, text);
    if (node->text.data == NULL) {
        reader_fail(r, ERR_NO_MEMORY);
    }
}

static void XMLCALL on_text(void *user, const XML_Char *s, int len)
{
    struct xml_reader *r = user;
    if (r->err != OK) {
        return;
    }
    size_t n = (size_t)len;
    if (n > r->limits.text_bytes_max - r->text_len) {
        // Blanks between elements are no element's text, so they may be any number.
        struct bytes so_far = BYTES(r->text, r->text_len);
        bool is_between = r->depth > 0 && r->open[r->depth - 1].node->first_child != NULL;
        if (!is_between || !is_blank(so_far) || !is_blank(BYTES(s, n))) {
            reader_fail(r, ERR_S3_MALFORMED_XML);
        }
        return;
    }
    memcpy(r->text + r->text_len, s, n);
    r->text_len += n;
}

static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system_id,
                               const XML_Char *public_id, int has_internal_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_internal_subset;
    reader_fail(user, ERR_S3_MALFORMED_XML);
}

// An entity that expat does not know, which it would otherwise pass over in silence.
static void XMLCALL on_skipped_entity(void *user, const XML_Char *name, int is_parameter_entity)
{
    (void)name;
    (void)is_parameter_entity;
    reader_fail(user, ERR_S3_MALFORMED_XML);
}

enum err xml_reader_create(struct xml_reader **out, struct arena *arena,
                           const struct xml_limits *limits)
{
    ASSERT(limits->depth_max > 0 && limits->elements_max > 0 && limits->text_bytes_max > 0);
    struct xml_reader *r = arena_alloc_zero(arena, sizeof(*r));
    if (r == NULL) {
        return ERR_NO_MEMORY;
    }
    r->arena = arena;
    r->limits = *limits;
    r->open = arena_alloc(arena, limits->depth_max * sizeof(*r->open));
    r->text = arena_alloc(arena, limits->text_bytes_max);
    if (r->open == NULL || r->text == NULL) {
        return ERR_NO_MEMORY;
    }
    r->parser = XML_ParserCreate(NULL);
    if (r->parser == NULL) {
        return ERR_NO_MEMORY;
    }
    // Without a salt of ours expat would ask the kernel for random bytes.
    unsigned long salt = limits->hash_salt != 0 ? limits->hash_salt : XML_FIXED_SALT;
    XML_SetHashSalt(r->parser, salt);
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
    XML_SetSkippedEntityHandler(r->parser, on_skipped_entity);
    r->magic = XML_READER_MAGIC;
    *out = r;
    return OK;
}

void xml_reader_destroy(struct xml_reader *r)
{
    if (r == NULL) {
        return;
    }
    ASSERT_MAGIC(r, XML_READER_MAGIC);
    XML_ParserFree(r->parser);
    r->magic = 0;
}

// Gives expat one piece and turns its verdict into ours.
static void reader_parse(struct xml_reader *r, struct bytes piece, bool is_last)
{
    enum XML_Status status =
        XML_Parse(r->parser, (const char *)piece.data, (int)piece.len, is_last ? 1 : 0);
    r->fed_bytes += piece.len;
    if (r->err != OK) {
        return;
    }
    if (status != XML_STATUS_OK) {
        bool is_memory = XML_GetErrorCode(r->parser) == XML_ERROR_NO_MEMORY;
        r->err = is_memory ? ERR_NO_MEMORY : ERR_S3_MALFORMED_XML;
        return;
    }
    // expat's last token of this piece, or -1 if the piece did not even finish one.
    XML_Index token = XML_GetCurrentByteIndex(r->parser);
    r->token_at_bytes = token >= 0 ? (size_t)token : r->token_at_bytes;
    if (!is_last && r->fed_bytes - r->token_at_bytes > XML_TOKEN_BYTES_MAX) {
        r->err = ERR_S3_MALFORMED_XML;
    }
}

enum err xml_reader_feed(struct xml_reader *r, struct bytes data)
{
    ASSERT_MAGIC(r, XML_READER_MAGIC);
    if (r->err == OK && data.len > r->limits.bytes_max - r->fed_bytes) {
        r->err = ERR_S3_MAX_MESSAGE_LENGTH;
    }
    while (r->err == OK && data.len > 0) {
        size_t n = MIN(data.len, XML_PIECE_BYTES_MAX);
        reader_parse(r, BYTES(data.data, n), false);
        data = bytes_skip(data, n);
    }
    return r->err;
}

enum err xml_reader_finish(struct xml_reader *r, const struct xml_node **root)
{
    ASSERT_MAGIC(r, XML_READER_MAGIC);
    if (r->err == OK) {
        reader_parse(r, BYTES_LITERAL(""), true);
    }
    if (r->err == OK) {
        ASSERT(r->depth == 0 && r->root != NULL);
        *root = r->root;
    }
    return r->err;
}

enum err xml_parse(struct bytes body, struct arena *arena, const struct xml_limits *limits,
                   const struct xml_node **root)
{
    struct xml_reader *r;
    TRY(xml_reader_create(&r, arena, limits));
    enum err result;
    TRY_OUT(result, xml_reader_feed(r, body));
    TRY_OUT(result, xml_reader_finish(r, root));
out:
    xml_reader_destroy(r);
    return result;
}

bool xml_node_is(const struct xml_node *node, const char *name)
{
    return bytes_equal(node->name, bytes_from_string(name));
}

const struct xml_node *xml_child(const struct xml_node *node, const char *name)
{
    const struct xml_node *child = node != NULL ? node->first_child : NULL;
    while (child != NULL && !xml_node_is(child, name)) {
        child = child->next;
    }
    return child;
}

const struct xml_node *xml_next(const struct xml_node *node)
{
    const struct xml_node *next = node->next;
    // Names are kept once, so the same name is the same pointer.
    while (next != NULL && next->name.data != node->name.data) {
        next = next->next;
    }
    return next;
}

struct bytes xml_child_text(const struct xml_node *node, const char *name)
{
    const struct xml_node *child = xml_child(node, name);
    if (child == NULL) {
        return BYTES_NONE;
    }
    return child->text.data != NULL ? child->text : BYTES_LITERAL("");
}
