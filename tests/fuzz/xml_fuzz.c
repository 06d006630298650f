// SPDX-License-Identifier: Apache-2.0
// The XML reader on any bytes: never a crash; the same verdict and the same tree whatever pieces
// the body comes in; and what was read, written by the XML writer, reads the same again. The first
// byte chooses the size of the pieces.
#include "base/assert.h"
#include "codec/xml_read.h"
#include "codec/xml_write.h"
#include "fuzz.h"

#define ARENA_BYTES (4 * MIB)
#define TEXT_MAX    1024

static const struct xml_limits limits = {
    .bytes_max = 64 * KIB,
    .depth_max = 8,
    .elements_max = 200,
    .text_bytes_max = TEXT_MAX,
};

static enum err read_pieces(struct bytes body, size_t piece, struct arena *a,
                            const struct xml_node **root)
{
    struct xml_reader *r;
    TRY(xml_reader_create(&r, a, &limits));
    enum err e = OK;
    while (e == OK && body.len > 0) {
        e = xml_reader_feed(r, BYTES(body.data, MIN(piece, body.len)));
        body = bytes_skip(body, piece);
    }
    e = xml_reader_finish(r, root);
    xml_reader_destroy(r);
    return e;
}

// Depth is limited by the reader.
static void assert_same(const struct xml_node *a, const struct xml_node *b)
{
    for (; a != NULL && b != NULL; a = a->next, b = b->next) {
        ASSERT(bytes_equal(a->name, b->name));
        ASSERT(bytes_equal(a->text, b->text));
        ASSERT(a->text.len <= TEXT_MAX);
        assert_same(a->first_child, b->first_child);
    }
    ASSERT(a == NULL && b == NULL);
}

static void write_tree(struct xml_writer *w, const struct xml_node *node)
{
    for (; node != NULL; node = node->next) {
        if (node->first_child == NULL) {
            xml_writer_text_bytes(w, node->name, node->text);
            continue;
        }
        xml_writer_open_bytes(w, node->name, BYTES_NONE);
        write_tree(w, node->first_child);
        xml_writer_close(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t piece = data[0] % 32 + 1;
    struct bytes body = BYTES(data + 1, size - 1);
    struct arena a;
    const struct xml_node *whole;
    const struct xml_node *pieces;
    arena_init(&a, ARENA_BYTES);
    enum err e = xml_parse(body, &a, &limits, &whole);
    enum err e_pieces = read_pieces(body, piece, &a, &pieces);
    ASSERT(e == e_pieces || e == ERR_NO_MEMORY || e_pieces == ERR_NO_MEMORY);
    if (e == OK && e_pieces == OK) {
        struct xml_writer w;
        struct bytes out;
        const struct xml_node *again;
        assert_same(whole, pieces);
        xml_writer_init_arena(&w, &a, 32 + piece, MIB);
        write_tree(&w, whole);
        if (xml_writer_finish(&w, &out) == OK && out.len <= limits.bytes_max) {
            ASSERT(xml_parse(out, &a, &limits, &again) == OK);
            assert_same(whole, again);
        }
    }
    arena_deinit(&a);
    return 0;
}
