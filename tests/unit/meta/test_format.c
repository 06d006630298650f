// SPDX-License-Identifier: Apache-2.0
// Keys, summaries, attributes, ETags and names: round trips, order, and refusal of what is broken.
#include "harness.h"

#include "base/endian.h"
#include "meta/keys.h"
#include "meta/meta.h"
#include "meta/object_fmt.h"

// ---- keys

static struct bytes random_name(u64 *seed, u8 *buf, size_t max)
{
    // Few different bytes, so that prefixes and order are exercised; lengths around the groups'.
    static const u8 alphabet[] = {0x00, 0x01, 'a', 'b', '/', 0xff};
    size_t len = 1 + draw_below(seed, draw_below(seed, 4) == 0 ? max : MIN(max, (size_t)70));
    for (size_t i = 0; i < len; i++) {
        buf[i] = draw_below(seed, 8) < 6 ? 'a' : alphabet[draw_below(seed, sizeof(alphabet))];
    }
    return BYTES(buf, len);
}

static int sign(int c)
{
    return (c > 0) - (c < 0);
}

static void test_ordered_keys_keep_order(void **state)
{
    (void)state;
    u64 seed = 1;
    for (u32 round = 0; round < 20000; round++) {
        u8 a_buf[META_KEY_BYTES_MAX];
        u8 b_buf[META_KEY_BYTES_MAX];
        u8 name[META_KEY_BYTES_MAX];
        size_t name_len;
        struct bytes a = random_name(&seed, a_buf, META_KEY_BYTES_MAX);
        struct bytes b = random_name(&seed, b_buf, META_KEY_BYTES_MAX);
        struct upload_id id = {{(u8)round, (u8)(round >> 8), 3}};
        struct upload_id found;
        struct meta_key ka;
        struct meta_key kb;
        struct meta_key prefix;
        key_upload(&ka, 7, a, &id);
        key_upload(&kb, 7, b, &id);
        assert_int_equal(sign(bytes_compare(meta_key_bytes(&ka), meta_key_bytes(&kb))),
                         sign(bytes_compare(a, b)));
        assert_true(key_upload_parse(meta_key_bytes(&ka), name, &name_len, &found));
        assert_true(bytes_equal(BYTES(name, name_len), a));
        assert_memory_equal(found.bytes, id.bytes, UPLOAD_ID_BYTES);
        // The prefix key begins exactly the keys of names with that prefix.
        struct bytes p = BYTES(b.data, draw_below(&seed, b.len + 1));
        key_ordered_prefix(&prefix, 7, KEY_SPACE_UPLOAD, p);
        assert_true(bytes_has_prefix(meta_key_bytes(&kb), meta_key_bytes(&prefix)));
        assert_int_equal(bytes_has_prefix(meta_key_bytes(&ka), meta_key_bytes(&prefix)),
                         bytes_has_prefix(a, p));
    }
}

static void test_longest_keys_fit(void **state)
{
    (void)state;
    u8 name[META_KEY_BYTES_MAX];
    u8 back[META_KEY_BYTES_MAX];
    size_t back_len;
    struct upload_id id = {{0xff}};
    struct upload_id found;
    struct meta_key part;
    struct meta_key upload;
    struct meta_key of_part;
    u32 number;
    memset(name, 0xff, sizeof(name));
    key_part(&part, UINT64_MAX, BYTES(name, sizeof(name)), &id, META_PART_NUMBER_MAX);
    key_upload(&upload, UINT64_MAX, BYTES(name, sizeof(name)), &id);
    assert_true(part.len <= STORE_KEY_BYTES_MAX);
    assert_true(key_part_parse(meta_key_bytes(&part), &of_part, &number));
    assert_int_equal(number, META_PART_NUMBER_MAX);
    assert_true(bytes_equal(meta_key_bytes(&of_part), meta_key_bytes(&upload)));
    assert_true(key_upload_parse(meta_key_bytes(&part), back, &back_len, &found));
    assert_int_equal(back_len, META_KEY_BYTES_MAX);
    // Cut short anywhere it is refused, never read past.
    for (u32 len = 0; len < part.len; len++) {
        assert_false(key_upload_parse(BYTES(part.data, len), back, &back_len, &found));
    }
}

static void test_successor(void **state)
{
    (void)state;
    struct meta_key k = {.len = 3, .data = {1, 0xff, 0xff}};
    assert_true(key_successor(&k));
    assert_int_equal(k.len, 1);
    assert_int_equal(k.data[0], 2);
    struct meta_key top = {.len = 2, .data = {0xff, 0xff}};
    assert_false(key_successor(&top));
}

static void test_upload_id_text(void **state)
{
    (void)state;
    u64 seed = 5;
    char before_text[META_UPLOAD_ID_CHARS + 1] = "";
    struct upload_id before = {{0}};
    for (u32 i = 0; i < 5000; i++) {
        struct upload_id id;
        struct upload_id back;
        char text[META_UPLOAD_ID_CHARS + 1];
        for (u32 j = 0; j < UPLOAD_ID_BYTES; j++) {
            id.bytes[j] = (u8)draw(&seed);
        }
        upload_id_text(&id, text);
        assert_int_equal(strlen(text), META_UPLOAD_ID_CHARS);
        assert_true(upload_id_parse(bytes_from_string(text), &back));
        assert_memory_equal(id.bytes, back.bytes, UPLOAD_ID_BYTES);
        if (i > 0) {
            assert_int_equal(sign(strcmp(text, before_text)),
                             sign(memcmp(id.bytes, before.bytes, UPLOAD_ID_BYTES)));
        }
        before = id;
        memcpy(before_text, text, sizeof(text));
    }
    struct upload_id id;
    assert_false(upload_id_parse(BYTES_LITERAL("short"), &id));
    assert_false(upload_id_parse(BYTES_LITERAL("../../../../../../../../etc/pass"), &id));
}

// ---- records

static struct object_info sample_info(void)
{
    struct object_info info = {.size = 123, .modified_ns = 456};
    memset(info.etag.md5, 0xab, 16);
    info.checksum.algorithm = CHECKSUM_SHA256;
    info.checksum.type = CHECKSUM_FULL_OBJECT;
    memset(info.checksum.value, 0xcd, 32);
    return info;
}

static void test_summary(void **state)
{
    (void)state;
    struct object_info info = sample_info();
    struct object_info back;
    u8 raw[STORE_SUMMARY_BYTES];
    object_summary_encode(&info, raw);
    assert_int_equal(object_summary_decode(raw, &back), OK);
    assert_int_equal(back.size, 123);
    assert_int_equal(back.modified_ns, 456);
    assert_true(etag_equal(&back.etag, &info.etag));
    assert_int_equal(back.checksum.algorithm, CHECKSUM_SHA256);
    u8 bad[STORE_SUMMARY_BYTES];
    memcpy(bad, raw, sizeof(bad));
    bad[38] = 2;
    assert_int_equal(object_summary_decode(bad, &back), ERR_VERSION);
    memcpy(bad, raw, sizeof(bad));
    bad[36] = CHECKSUM_COUNT;
    assert_int_equal(object_summary_decode(bad, &back), ERR_FORMAT);
    memcpy(bad, raw, sizeof(bad));
    store_le64(bad, META_OBJECT_BYTES_MAX + 1);
    assert_int_equal(object_summary_decode(bad, &back), ERR_FORMAT);
}

static u8 *sample_attrs(struct object_info *info, size_t *bytes)
{
    const struct attr attrs[] = {
        {BYTES_LITERAL("content-type"), BYTES_LITERAL("text/plain")},
        {BYTES_LITERAL("x-amz-meta-empty"), BYTES_NONE},
        {BYTES_LITERAL("tagging"), BYTES_LITERAL("a=1&b=2")},
    };
    u8 parts[PART_LIST_HEAD_BYTES + 2 * (12 + 32)];
    struct object_part one = {.number = 1, .size = 100};
    struct object_part two = {.number = 7, .size = 23};
    memset(two.checksum.value, 0x77, 32);
    part_list_write(parts, 0, CHECKSUM_SHA256, &one);
    part_list_write(parts, 1, CHECKSUM_SHA256, &two);
    struct upload_id id = {{9}};
    info->etag.parts = 2;
    struct object_attrs_source s = {.attrs = attrs,
                                    .attr_count = 3,
                                    .checksum = info->checksum,
                                    .upload = &id,
                                    .parts_raw = BYTES(parts, sizeof(parts))};
    *bytes = object_attrs_bytes(&s);
    u8 *out = malloc(*bytes);
    assert_non_null(out);
    object_attrs_encode(&s, out);
    return out;
}

static void test_attrs(void **state)
{
    (void)state;
    struct object_info info = sample_info();
    struct object_attrs attrs;
    struct attr a;
    struct object_part part;
    size_t bytes;
    u8 *raw = sample_attrs(&info, &bytes);
    memset(info.checksum.value, 0, 32);
    assert_int_equal(object_attrs_scan(BYTES(raw, bytes), &info, &attrs), OK);
    assert_int_equal(attrs.attr_count, 3);
    assert_int_equal(info.checksum.value[31], 0xcd);
    assert_true(attrs.has_upload && attrs.upload.bytes[0] == 9);
    struct bytes rest = attrs.attrs_raw;
    assert_true(object_attr_next(&rest, &a));
    assert_true(bytes_equal(a.name, BYTES_LITERAL("content-type")));
    assert_true(bytes_equal(a.value, BYTES_LITERAL("text/plain")));
    assert_true(object_attr_next(&rest, &a));
    assert_int_equal(a.value.len, 0);
    assert_true(object_attr_next(&rest, &a));
    assert_true(bytes_equal(a.value, BYTES_LITERAL("a=1&b=2")));
    assert_false(object_attr_next(&rest, &a));
    assert_int_equal(attrs.parts.count, 2);
    part_list_at(&attrs.parts, 1, &part);
    assert_int_equal(part.number, 7);
    assert_int_equal(part.size, 23);
    assert_int_equal(part.checksum.value[0], 0x77);
    free(raw);
}

// Anything may come back from a drive: the parse ends with an error or an answer, inside the bytes.
static void test_attrs_survive_anything(void **state)
{
    (void)state;
    u64 seed = 11;
    size_t bytes;
    struct object_info info = sample_info();
    u8 *raw = sample_attrs(&info, &bytes);
    u32 refused = 0;
    for (u32 round = 0; round < 50000; round++) {
        // A copy of exact size, so that the sanitizer sees a step past the end.
        size_t len = draw_below(&seed, 3) == 0 ? draw_below(&seed, bytes + 1) : bytes;
        u8 *copy = malloc(len == 0 ? 1 : len);
        assert_non_null(copy);
        memcpy(copy, raw, len);
        for (u64 flips = draw_below(&seed, 4); flips > 0 && len > 0; flips--) {
            copy[draw_below(&seed, len)] = (u8)draw(&seed);
        }
        struct object_info got = info;
        struct object_attrs attrs;
        struct attr a;
        if (object_attrs_scan(BYTES(copy, len), &got, &attrs) == OK) {
            struct bytes rest = attrs.attrs_raw;
            u32 n = 0;
            while (object_attr_next(&rest, &a)) {
                n++;
            }
            assert_int_equal(n, attrs.attr_count);
        } else {
            refused++;
        }
        free(copy);
    }
    assert_true(refused > 1000);
    free(raw);
}

static void test_unknown_items(void **state)
{
    (void)state;
    struct object_info info = {0};
    struct object_attrs attrs;
    const u8 optional[] = {1, 0x7f, 1, 0, 0, 0, 'x'};
    const u8 critical[] = {1, 0x80, 1, 0, 0, 0, 'x'};
    const u8 newer[] = {2};
    assert_int_equal(object_attrs_scan(BYTES(optional, sizeof(optional)), &info, &attrs), OK);
    assert_int_equal(object_attrs_scan(BYTES(critical, sizeof(critical)), &info, &attrs),
                     ERR_VERSION);
    assert_int_equal(object_attrs_scan(BYTES(newer, 1), &info, &attrs), ERR_VERSION);
    assert_int_equal(object_attrs_scan(BYTES_NONE, &info, &attrs), ERR_FORMAT);
}

static void test_attrs_limits(void **state)
{
    (void)state;
    struct attr attrs[META_ATTRS_MAX + 1];
    u8 *big = calloc(1, META_ATTRS_BYTES_MAX + 1);
    assert_non_null(big);
    for (u32 i = 0; i < META_ATTRS_MAX + 1; i++) {
        attrs[i] = (struct attr){BYTES_LITERAL("n"), BYTES_NONE};
    }
    assert_int_equal(object_attrs_check(attrs, META_ATTRS_MAX), OK);
    assert_int_equal(object_attrs_check(attrs, META_ATTRS_MAX + 1), ERR_S3_METADATA_TOO_LARGE);
    attrs[0].value = BYTES(big, META_ATTRS_BYTES_MAX - 1);
    assert_int_equal(object_attrs_check(attrs, 1), OK);
    attrs[0].value = BYTES(big, META_ATTRS_BYTES_MAX);
    assert_int_equal(object_attrs_check(attrs, 1), ERR_S3_METADATA_TOO_LARGE);
    free(big);
}

// ---- names

static void test_etag(void **state)
{
    (void)state;
    struct etag e;
    char text[ETAG_TEXT_MAX];
    assert_true(etag_parse(BYTES_LITERAL("\"d41d8cd98f00b204e9800998ecf8427e\""), &e));
    assert_int_equal(e.parts, 0);
    assert_true(etag_parse(BYTES_LITERAL("D41D8CD98F00B204E9800998ECF8427E-10000"), &e));
    assert_int_equal(e.parts, 10000);
    etag_text(&e, text);
    assert_string_equal(text, "d41d8cd98f00b204e9800998ecf8427e-10000");
    static const char *const bad[] = {
        "",
        "\"\"",
        "\"",
        "d41d8cd98f00b204e9800998ecf8427",
        "d41d8cd98f00b204e9800998ecf8427e-",
        "d41d8cd98f00b204e9800998ecf8427e-0",
        "d41d8cd98f00b204e9800998ecf8427e-10001",
        "d41d8cd98f00b204e9800998ecf8427e-1x",
        "d41d8cd98f00b204e9800998ecf8427ex",
        "g41d8cd98f00b204e9800998ecf8427e",
        "\"d41d8cd98f00b204e9800998ecf8427e",
        "*",
    };
    for (u32 i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(etag_parse(bytes_from_string(bad[i]), &e));
    }
}

static void test_bucket_names(void **state)
{
    (void)state;
    static const char *const good[] = {"abc",          "a-b",          "a.b.c",
                                       "1bucket",      "bucket1",      "192.168.5",
                                       "192.168.5.4a", "1921.168.5.4", "a--b"};
    static const char *const bad[] = {
        "",
        "ab",
        "Abc",
        "a_b",
        "-abc",
        "abc-",
        ".abc",
        "abc.",
        "a..b",
        "a.-b",
        "a-.b",
        "192.168.5.4",
        "xn--abc",
        "sthree-x",
        "amzn-s3-demo-x",
        "abc-s3alias",
        "abc--ol-s3",
        "abc.mrap",
        "abc--x-s3",
        "abc--table-s3",
        "a/b",
        "a b",
        "../..",
        "b\xc3\xbcro",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    for (u32 i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(bucket_name_is_valid(bytes_from_string(good[i])));
    }
    for (u32 i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(bucket_name_is_valid(bytes_from_string(bad[i])));
    }
    char longest[META_BUCKET_NAME_MAX + 1];
    memset(longest, 'a', sizeof(longest));
    assert_true(bucket_name_is_valid(BYTES(longest, META_BUCKET_NAME_MAX)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordered_keys_keep_order),
        cmocka_unit_test(test_longest_keys_fit),
        cmocka_unit_test(test_successor),
        cmocka_unit_test(test_upload_id_text),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_attrs),
        cmocka_unit_test(test_attrs_survive_anything),
        cmocka_unit_test(test_unknown_items),
        cmocka_unit_test(test_attrs_limits),
        cmocka_unit_test(test_etag),
        cmocka_unit_test(test_bucket_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
