// SPDX-License-Identifier: Apache-2.0
// The XML reader: the bodies of S3 requests whole and byte by byte, everything refused, each limit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/xml_read.h"

#define ARENA_BYTES (32 * MIB)

// Parses in pieces of `piece` bytes.
static enum err parse_pieces(struct bytes body, size_t piece, struct arena *a,
                             const struct xml_limits *limits, const struct xml_node **root)
{
    struct xml_reader *r;
    enum err e = xml_reader_create(&r, a, limits);
    assert_int_equal(e, OK);
    while (e == OK && body.len > 0) {
        e = xml_reader_feed(r, BYTES(body.data, MIN(piece, body.len)));
        body = bytes_skip(body, piece);
    }
    enum err end = xml_reader_finish(r, root);
    if (e != OK) {
        assert_int_equal(end, e); // an error comes again
    }
    xml_reader_destroy(r);
    return end;
}

static enum err parse(const char *body)
{
    struct arena a;
    struct xml_limits limits = XML_LIMITS_S3;
    const struct xml_node *root;
    arena_init(&a, ARENA_BYTES);
    enum err e = xml_parse(bytes_from_string(body), &a, &limits, &root);
    arena_deinit(&a);
    return e;
}

static void assert_text(const struct xml_node *node, const char *child, const char *want)
{
    struct bytes text = xml_child_text(node, child);
    if (want == NULL) {
        assert_null(text.data);
        return;
    }
    assert_non_null(text.data);
    assert_true(bytes_equal(text, bytes_from_string(want)));
}

static void test_delete(void **state)
{
    (void)state;
    static const char body[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<s3:Delete xmlns:s3=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n"
        "  <s3:Object><s3:Key> a b\t</s3:Key><s3:VersionId>null</s3:VersionId></s3:Object>\n"
        "  <!-- comment --><?pi x?>\n"
        "  <s3:Object a='1'><s3:Key>&lt;&amp;&gt;&quot;&apos;&#13;&#x20AC;<![CDATA[<x>]]>y</s3:Key>"
        "<s3:ETag/></s3:Object>\n"
        "  <s3:Quiet>true</s3:Quiet>\n</s3:Delete>\n";
    struct xml_limits limits = XML_LIMITS_S3;
    for (size_t piece = 1; piece < sizeof(body); piece++) {
        struct arena a;
        const struct xml_node *root;
        arena_init(&a, ARENA_BYTES);
        assert_int_equal(parse_pieces(BYTES(body, sizeof(body) - 1), piece, &a, &limits, &root),
                         OK);
        assert_true(xml_node_is(root, "Delete"));
        const struct xml_node *first = xml_child(root, "Object");
        assert_text(first, "Key", " a b\t");
        assert_text(first, "VersionId", "null");
        assert_text(first, "ETag", NULL);
        const struct xml_node *second = xml_next(first);
        assert_text(second, "Key", "<&>\"'\r\xe2\x82\xac<x>y");
        assert_text(second, "ETag", "");
        assert_null(xml_next(second));
        assert_text(root, "Quiet", "true");
        assert_null(xml_child(root, "Nothing"));
        assert_null(xml_child(NULL, "Nothing"));
        arena_deinit(&a);
    }
}

static void test_many_parts(void **state)
{
    (void)state;
    size_t cap = 4 * MIB;
    char *body = malloc(cap);
    assert_non_null(body);
    size_t len = (size_t)sprintf(body, "<CompleteMultipartUpload>");
    for (int i = 1; i <= 10000; i++) {
        len += (size_t)snprintf(body + len, cap - len,
                                "<Part><ETag>&quot;%032x&quot;</ETag><PartNumber>%d</PartNumber>"
                                "<ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME></Part>",
                                i, i);
    }
    len += (size_t)sprintf(body + len, "</CompleteMultipartUpload>");
    struct arena a;
    struct xml_limits limits = XML_LIMITS_S3;
    const struct xml_node *root;
    arena_init(&a, ARENA_BYTES);
    assert_int_equal(xml_parse(BYTES(body, len), &a, &limits, &root), OK);
    u32 parts = 0;
    XML_FOREACH_CHILD(part, root, "Part")
    {
        char want[40];
        parts++;
        sprintf(want, "%u", parts);
        assert_text(part, "PartNumber", want);
        sprintf(want, "\"%032x\"", parts);
        assert_text(part, "ETag", want);
    }
    assert_int_equal(parts, 10000);
    assert_true(a.used_bytes < 8 * MIB);
    arena_deinit(&a);
    // With too small an arena it is an error, not a crash.
    arena_init(&a, 256 * KIB);
    assert_int_equal(xml_parse(BYTES(body, len), &a, &limits, &root), ERR_NO_MEMORY);
    arena_deinit(&a);
    free(body);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *malformed[] = {
        "",
        " ",
        "x",
        "<a>",
        "<a></b>",
        "<a/><b/>",
        "<a>x<b/></a>",
        "<a><b/>x</a>",
        "<a>&unknown;</a>",
        "<a>\x01</a>",
        "<a>&#1;</a>",
        "<a>\xff</a>",
        "<a>\xc0\x80</a>",
        "<a:/>",
        "<a:b:c/>",
        "<?xml version=\"1.0\" encoding=\"made-up\"?><a/>",
        "<!DOCTYPE a><a/>",
        "<!DOCTYPE a [<!ENTITY e \"x\">]><a>&e;</a>",
        "<!DOCTYPE a [<!ENTITY % e SYSTEM \"http://127.0.0.1/\"> %e;]><a>x</a>",
        "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a>x</a>",
    };
    for (size_t i = 0; i < ARRAY_LEN(malformed); i++) {
        assert_int_equal(parse(malformed[i]), ERR_S3_MALFORMED_XML);
    }
    assert_int_equal(parse("<a/>"), OK);
    assert_int_equal(parse("<a>x</a>"), OK);
    assert_int_equal(parse(" <a> <b/> </a> "), OK);
}

static enum err parse_limited(const char *body, struct xml_limits limits)
{
    struct arena a;
    const struct xml_node *root;
    arena_init(&a, ARENA_BYTES);
    enum err e = parse_pieces(bytes_from_string(body), 3, &a, &limits, &root);
    arena_deinit(&a);
    return e;
}

static void test_limits(void **state)
{
    (void)state;
    struct xml_limits l = XML_LIMITS_S3;
    l.bytes_max = 14;
    assert_int_equal(parse_limited("<a><b>x</b></a>", l), ERR_S3_MAX_MESSAGE_LENGTH);
    l.bytes_max = 15;
    assert_int_equal(parse_limited("<a><b>x</b></a>", l), OK);
    l.depth_max = 1;
    assert_int_equal(parse_limited("<a><b>x</b></a>", l), ERR_S3_MALFORMED_XML);
    l.depth_max = 2;
    assert_int_equal(parse_limited("<a><b>x</b></a>", l), OK);
    l.elements_max = 1;
    assert_int_equal(parse_limited("<a><b>x</b></a>", l), ERR_S3_MALFORMED_XML);
    l.elements_max = 2;
    l.bytes_max = 100;
    l.text_bytes_max = 4;
    assert_int_equal(parse_limited("<a><b>&lt;bc&gt;</b></a>", l), OK);
    assert_int_equal(parse_limited("<a><b>abcde</b></a>", l), ERR_S3_MALFORMED_XML);
    assert_int_equal(parse_limited("<a><b>abcd</b>         </a>", l), OK);
    assert_int_equal(parse_limited("<a><b>abcd</b>        x</a>", l), ERR_S3_MALFORMED_XML);
}

static void test_names_limit(void **state)
{
    (void)state;
    char body[2048] = "<r>";
    for (u32 i = 1; i < XML_NAMES_MAX; i++) {
        sprintf(body + strlen(body), "<n%u/>", i);
    }
    size_t len = strlen(body);
    strcpy(body + len, "</r>");
    assert_int_equal(parse(body), OK);
    strcpy(body + len, "<more/></r>");
    assert_int_equal(parse(body), ERR_S3_MALFORMED_XML);
}

// A token without end, fed in small pieces, must not cost the square of its length.
static void test_endless_token(void **state)
{
    (void)state;
    struct arena a;
    struct xml_limits limits = XML_LIMITS_S3;
    struct xml_reader *r;
    arena_init(&a, ARENA_BYTES);
    assert_int_equal(xml_reader_create(&r, &a, &limits), OK);
    enum err e = xml_reader_feed(r, BYTES_LITERAL("<a><b x='"));
    size_t fed = 0;
    u8 filler[KIB];
    memset(filler, 'y', sizeof(filler));
    while (e == OK && fed < MIB) {
        e = xml_reader_feed(r, BYTES(filler, sizeof(filler)));
        fed += sizeof(filler);
    }
    assert_int_equal(e, ERR_S3_MALFORMED_XML);
    assert_true(fed <= 66 * KIB);
    xml_reader_destroy(r);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delete),      cmocka_unit_test(test_many_parts),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_names_limit), cmocka_unit_test(test_endless_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
