// SPDX-License-Identifier: Apache-2.0
// The XML writer: exact output, escaping checked by expat reading it back, and every buffer size
// giving the same bytes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "codec/xml_read.h"
#include "codec/xml_write.h"

#define OUT_BYTES (64 * KIB)

struct sink {
    u8 data[OUT_BYTES];
    size_t len;
    size_t calls;
    size_t fail_at_call;
};

static enum err sink_take(void *arg, struct bytes data)
{
    struct sink *s = arg;
    s->calls++;
    if (s->calls == s->fail_at_call) {
        return ERR_CLOSED;
    }
    assert_true(data.len > 0 && data.len <= OUT_BYTES - s->len);
    memcpy(s->data + s->len, data.data, data.len);
    s->len += data.len;
    return OK;
}

static void write_sample(struct xml_writer *w)
{
    xml_writer_declaration(w);
    xml_writer_open_root(w, "ListBucketResult");
    xml_writer_text(w, "Name", BYTES_LITERAL("bucket"));
    xml_writer_text(w, "Prefix", BYTES_NONE);
    xml_writer_bool(w, "IsTruncated", false);
    xml_writer_open(w, "Contents");
    xml_writer_text(w, "Key",
                    BYTES_LITERAL("a<b>&\"c'\t\n\r\x01\x1f\xc3\xa9 plain tail of the key"));
    xml_writer_raw(w, "LastModified", BYTES_LITERAL("2006-01-02T15:04:05.000Z"));
    xml_writer_u64(w, "Size", UINT64_MAX);
    xml_writer_u64(w, "Zero", 0);
    xml_writer_close(w);
    xml_writer_empty(w, "Owner");
    xml_writer_string(w, "More", "x");
    xml_writer_close(w);
}

static const char sample[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>"
    "<Prefix></Prefix><IsTruncated>false</IsTruncated><Contents>"
    "<Key>a&lt;b&gt;&amp;&quot;c&apos;&#9;&#10;&#13;&#x1;&#x1f;\xc3\xa9 plain tail of the key</Key>"
    "<LastModified>2006-01-02T15:04:05.000Z</LastModified><Size>18446744073709551615</Size>"
    "<Zero>0</Zero></Contents><Owner/><More>x</More></ListBucketResult>";

// A buffer of the caller's: exactly enough is enough, one byte less is not.
static void test_fixed(void **state)
{
    (void)state;
    size_t want_len = sizeof(sample) - 1;
    for (size_t cap = 0; cap < want_len + 40; cap++) {
        u8 *buf = malloc(cap + 1); // sized so that AddressSanitizer sees an overrun
        assert_non_null(buf);
        struct xml_writer w;
        struct bytes out;
        xml_writer_init(&w, buf, cap, NULL, NULL);
        write_sample(&w);
        enum err e = xml_writer_finish(&w, &out);
        assert_int_equal(e, cap < want_len ? ERR_LIMIT_REACHED : OK);
        if (e == OK) {
            assert_true(bytes_equal(out, BYTES(sample, want_len)));
        }
        free(buf);
    }
}

static void test_flush(void **state)
{
    (void)state;
    struct sink *s = malloc(sizeof(*s));
    assert_non_null(s);
    for (size_t cap = 1; cap < 100; cap++) {
        u8 buf[100];
        struct xml_writer w;
        *s = (struct sink){0};
        xml_writer_init(&w, buf, cap, sink_take, s);
        write_sample(&w);
        assert_int_equal(xml_writer_finish(&w, NULL), OK);
        assert_true(bytes_equal(BYTES(s->data, s->len), BYTES(sample, sizeof(sample) - 1)));
        *s = (struct sink){.fail_at_call = 2};
        xml_writer_init(&w, buf, cap, sink_take, s);
        write_sample(&w);
        assert_int_equal(xml_writer_finish(&w, NULL), ERR_CLOSED);
        assert_int_equal(s->calls, 2);
    }
    free(s);
}

static void test_arena(void **state)
{
    (void)state;
    for (size_t initial = 1; initial < 700; initial += 9) {
        struct arena a;
        struct xml_writer w;
        struct bytes out;
        arena_init(&a, MIB);
        xml_writer_init_arena(&w, &a, initial, sizeof(sample) - 1);
        write_sample(&w);
        assert_int_equal(xml_writer_finish(&w, &out), OK);
        assert_true(bytes_equal(out, BYTES(sample, sizeof(sample) - 1)));
        xml_writer_init_arena(&w, &a, initial, sizeof(sample) - 2);
        write_sample(&w);
        assert_int_equal(xml_writer_finish(&w, &out), ERR_LIMIT_REACHED);
        assert_int_equal(out.len, 0);
        arena_deinit(&a);
    }
    struct arena tiny;
    struct xml_writer w;
    arena_init(&tiny, 10 * KIB);
    xml_writer_init_arena(&w, &tiny, 512, MIB);
    for (size_t i = 0; i < 2000; i++) {
        xml_writer_text(&w, "Key", BYTES_LITERAL("0123456789"));
    }
    assert_int_equal(xml_writer_finish(&w, NULL), ERR_NO_MEMORY);
    arena_deinit(&tiny);
}

static void assert_escapes(struct bytes in, struct bytes want)
{
    u8 buf[256];
    struct xml_writer w;
    struct bytes out;
    xml_writer_init(&w, buf, sizeof(buf), NULL, NULL);
    xml_writer_append_text(&w, in);
    assert_int_equal(xml_writer_finish(&w, &out), OK);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, want.len);
}

static void test_odd_characters(void **state)
{
    (void)state;
    assert_escapes(BYTES_LITERAL("\0"), BYTES_LITERAL("&#x0;"));
    assert_escapes(BYTES_LITERAL("\x7f"), BYTES_LITERAL("\x7f"));
    assert_escapes(BYTES_LITERAL("\xef\xbf\xbe"), BYTES_LITERAL("&#xfffe;"));
    assert_escapes(BYTES_LITERAL("\xef\xbf\xbf"), BYTES_LITERAL("&#xffff;"));
    assert_escapes(BYTES_LITERAL("\xef\xbf\xbd"), BYTES_LITERAL("\xef\xbf\xbd"));
    assert_escapes(BYTES_LITERAL("\xf0\x9f\x98\x80"), BYTES_LITERAL("\xf0\x9f\x98\x80"));
    assert_escapes(BYTES_LITERAL("\xf4\x8f\xbf\xbf"), BYTES_LITERAL("\xf4\x8f\xbf\xbf"));
#define BAD "\xef\xbf\xbd"
    assert_escapes(BYTES_LITERAL("\x80"), BYTES_LITERAL(BAD));
    assert_escapes(BYTES_LITERAL("\xc3"), BYTES_LITERAL(BAD));
    assert_escapes(BYTES_LITERAL("\xc0\x80"), BYTES_LITERAL(BAD BAD));
    assert_escapes(BYTES_LITERAL("\xe0\x80\x80"), BYTES_LITERAL(BAD BAD BAD));
    assert_escapes(BYTES_LITERAL("\xed\xa0\x80"), BYTES_LITERAL(BAD BAD BAD));
    assert_escapes(BYTES_LITERAL("\xf4\x90\x80\x80"), BYTES_LITERAL(BAD BAD BAD BAD));
    assert_escapes(BYTES_LITERAL("\xc3z"), BYTES_LITERAL(BAD "z"));
    assert_escapes(BYTES_LITERAL("\xff"), BYTES_LITERAL(BAD));
}

// Appends a random character of the ranges that XML can carry, in UTF-8.
static size_t random_character(u8 *to, u64 *seed)
{
    static const char specials[] = "&<>\"'\t\n\r ]]>aaaaaaaaaaaaaaaaaaaaaaaaaaaa/-.";
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    u32 r = (u32)(*seed >> 33);
    switch (r % 8) {
    case 0: {
        u32 code = 0x80 + (r >> 3) % 0x780;
        to[0] = (u8)(0xc0 | code >> 6);
        to[1] = (u8)(0x80 | (code & 63));
        return 2;
    }
    case 1: {
        u32 code = 0x800 + (r >> 3) % 0xd000;
        to[0] = (u8)(0xe0 | code >> 12);
        to[1] = (u8)(0x80 | (code >> 6 & 63));
        to[2] = (u8)(0x80 | (code & 63));
        return 3;
    }
    case 2: {
        u32 code = 0x10000 + (r >> 3) % 0x100000;
        to[0] = (u8)(0xf0 | code >> 18);
        to[1] = (u8)(0x80 | (code >> 12 & 63));
        to[2] = (u8)(0x80 | (code >> 6 & 63));
        to[3] = (u8)(0x80 | (code & 63));
        return 4;
    }
    default:
        to[0] = (u8)specials[(r >> 3) % (sizeof(specials) - 1)];
        return 1;
    }
}

// Whatever text goes in, a parser gets the same text out.
static void test_round_trip(void **state)
{
    (void)state;
    u64 seed = 1;
    for (size_t round = 0; round < 4000; round++) {
        u8 text[300];
        size_t len = 0;
        for (size_t i = 0; i < round % 70; i++) {
            len += random_character(text + len, &seed);
        }
        struct arena a;
        struct xml_writer w;
        struct bytes out;
        const struct xml_node *root;
        struct xml_limits limits = XML_LIMITS_S3;
        arena_init(&a, MIB);
        xml_writer_init_arena(&w, &a, 64 + round % 500, 16 * KIB);
        xml_writer_declaration(&w);
        xml_writer_open_root(&w, "R");
        xml_writer_text(&w, "Key", BYTES(text, len));
        xml_writer_close(&w);
        assert_int_equal(xml_writer_finish(&w, &out), OK);
        assert_int_equal(xml_parse(out, &a, &limits, &root), OK);
        assert_true(bytes_equal(xml_child_text(root, "Key"), BYTES(text, len)));
        arena_deinit(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed),      cmocka_unit_test(test_flush),
        cmocka_unit_test(test_arena),      cmocka_unit_test(test_odd_characters),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
