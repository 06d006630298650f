// SPDX-License-Identifier: Apache-2.0
// The configuration: what is read, and what each wrong line is answered with.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "admin/config.h"

static enum err parse(struct config *c, const char *yaml, struct config_error *error)
{
    config_init(c);
    return config_parse(c, bytes_from_string(yaml), error);
}

// The document must be refused with exactly this message.
static void refused(const char *yaml, const char *message)
{
    struct config c;
    struct config_error error;
    assert_int_equal(parse(&c, yaml, &error), ERR_INVALID);
    if (strcmp(error.text, message) != 0) {
        fail_msg("for: %s\n  want: %s\n  have: %s", yaml, message, error.text);
    }
    config_deinit(&c);
}

static void accepted(const char *yaml, struct config *c)
{
    struct config_error error;
    enum err e = parse(c, yaml, &error);
    if (e != OK) {
        fail_msg("refused: %s", error.text);
    }
}

static void test_defaults(void **state)
{
    (void)state;
    static const char *const nothing[] = {"", "\n", "# only a comment\n", "---\n"};
    for (size_t i = 0; i < ARRAY_LEN(nothing); i++) {
        struct config c;
        accepted(nothing[i], &c);
        assert_string_equal(c.listen, "127.0.0.1:9000");
        assert_string_equal(c.region, "us-east-1");
        assert_int_equal(c.drive_count, 0);
        assert_int_equal(c.cores, 0);
        assert_int_equal(c.log.level, LOG_LEVEL_INFO);
        assert_null(c.tls.cert);
        assert_int_equal(c.store.cache_bytes, 256 * MIB);
        config_deinit(&c);
    }
}

static void test_all_keys(void **state)
{
    (void)state;
    struct config c;
    accepted("listen: '[::1]:0'\n"
             "drives:\n  - /a\n  - b c\n"
             "cores: 3\nregion: eu-west-1\ndomains: [s3.example.com, other]\n"
             "credentials:\n"
             "  - {access_key_id: AAA, secret_access_key: '12345678'}\n"
             "  - {access_key_id: BBB, secret_access_key: 'a/b+c=dd'}\n"
             "tls: {cert: c.pem, key: k.pem, listen: '0.0.0.0:9443'}\n"
             "log: {level: warn, format: json}\n"
             "store:\n  placement_groups: 128\n  segment_bytes: 16MiB\n"
             "  drive_bytes_max: 1TB\n  cache_bytes: 0\n  buffer_bytes: 1 GiB\n"
             "  accept_losses: true\n"
             "uploads: {expire_after: 7d}\n"
             "http:\n  connections_max: 77\n  head_timeout: 500ms\n  idle_timeout: 2m\n"
             "  progress_timeout: 1h\n  body_rate_min: 2KiB\n",
             &c);
    assert_string_equal(c.listen, "[::1]:0");
    assert_int_equal(c.drive_count, 2);
    assert_string_equal(c.drives[1], "b c");
    assert_int_equal(c.cores, 3);
    assert_string_equal(c.region, "eu-west-1");
    assert_int_equal(c.domain_count, 2);
    assert_string_equal(c.domains[0], "s3.example.com");
    assert_int_equal(c.credential_count, 2);
    assert_string_equal(c.credentials[1].access_key, "BBB");
    assert_string_equal(c.credentials[1].secret_key, "a/b+c=dd");
    assert_string_equal(c.tls.cert, "c.pem");
    assert_string_equal(c.tls.listen, "0.0.0.0:9443");
    assert_int_equal(c.log.level, LOG_LEVEL_WARN);
    assert_true(c.log.is_json);
    assert_int_equal(c.store.placement_groups, 128);
    assert_int_equal(c.store.segment_bytes, 16 * MIB);
    assert_int_equal(c.store.drive_bytes_max, 1000000000000);
    assert_int_equal(c.store.cache_bytes, 0);
    assert_int_equal(c.store.buffer_bytes, GIB);
    assert_true(c.store.accepts_losses);
    assert_int_equal(c.uploads.expire_after_ns, 7 * 86400 * NS_PER_S);
    assert_int_equal(c.http.connections_max, 77);
    assert_int_equal(c.http.head_timeout_ns, 500 * NS_PER_MS);
    assert_int_equal(c.http.idle_timeout_ns, 120 * NS_PER_S);
    assert_int_equal(c.http.progress_timeout_ns, 3600 * NS_PER_S);
    assert_int_equal(c.http.body_rate_min, 2048);
    config_deinit(&c);
}

static void test_unknown_keys(void **state)
{
    (void)state;
    refused("listen: 127.0.0.1:1\n\n\n\n\n\ndrvies: [a]\n",
            "unknown key 'drvies' at line 7; did you mean 'drives'?");
    refused("drive: [a]\n", "unknown key 'drive' at line 1; did you mean 'drives'?");
    refused("zzzzzz: 1\n", "unknown key 'zzzzzz' at line 1");
    refused("store:\n  segment_byte: 1MiB\n",
            "unknown key 'segment_byte' in 'store' at line 2; did you mean 'segment_bytes'?");
    refused("http:\n  listen: 1\n", "unknown key 'listen' in 'http' at line 2");
    refused("credentials:\n  - access_key: AAA\n",
            "unknown key 'access_key' in 'credentials[]' at line 2; did you mean 'access_key_id'?");
    refused("log.level: info\n", "unknown key 'log.level' at line 1");
    refused("drives[]: a\n", "unknown key 'drives[]' at line 1; did you mean 'drives'?");
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    refused("cores: 1\ncores: 2\n", "key 'cores' at line 2 stands already at line 1");
    refused("- a\n", "line 1: a mapping of keys is expected here");
    refused("just text\n", "line 1: a mapping of keys is expected here");
    refused("listen: [a]\n", "'listen' at line 1 must not be a list");
    refused("listen: {a: b}\n", "unknown key 'a' in 'listen' at line 1");
    refused("a: &x 1\nb: *x\n", "unknown key 'a' at line 1");
    refused("listen: &x a\nregion: *x\n", "line 2: aliases are not supported");
    refused("listen: a\n---\nlisten: b\n", "line 2: only one YAML document is read");
    refused("\tx: 1\n", "line 1: found character that cannot start any token");
    refused("[a]: 1\n", "line 1: a key must be a plain word");
    refused("drives: a\n", "key 'drives' at line 1 must be a list of 1 to 64 directories");
    refused("cores: 1\nstore:\n", "key 'store' at line 2 must be a mapping");
    refused("credentials: [x]\n", "key 'credentials[]' at line 1 must be an entry with "
                                  "access_key_id and secret_access_key");
    struct config c;
    struct config_error error;
    char many[1024] = "drives:\n";
    for (int i = 0; i < 65; i++) {
        size_t len = strlen(many);
        snprintf(many + len, sizeof(many) - len, "  - d%d\n", i);
    }
    assert_int_equal(parse(&c, many, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "64 max"));
    config_deinit(&c);
}

static void test_wrong_values(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *path;
        int line;
    } cases[] = {
        {"listen: 9000\n", "listen", 1},
        {"listen: localhost:9000\n", "listen", 1},
        {"listen: 127.0.0.1:65536\n", "listen", 1},
        {"listen: '::1:9000'\n", "listen", 1},
        {"cores: 1\nlisten: ''\n", "listen", 2},
        {"drives:\n  - a\n  - ''\n", "drives[]", 3},
        {"cores: 0\n", "cores", 1},
        {"cores: 65\n", "cores", 1},
        {"cores: -1\n", "cores", 1},
        {"cores: many\n", "cores", 1},
        {"region: ''\n", "region", 1},
        {"region: 'us east'\n", "region", 1},
        {"domains: ['a:80']\n", "domains[]", 1},
        {"domains: [a, .b]\n", "domains[]", 1},
        {"credentials:\n  - access_key_id: AAA\n", "credentials[]", 2},
        {"credentials:\n- {access_key_id: a/bc, secret_access_key: '12345678'}\n",
         "credentials[].access_key_id", 2},
        {"credentials:\n- {access_key_id: AAA, secret_access_key: '12345678'}\n"
         "- {access_key_id: BBB,\n   secret_access_key: '1234567'}\n",
         "credentials[].secret_access_key", 4},
        {"tls:\n  cert: ''\n  key: k\n", "tls.cert", 2},
        {"tls:\n  cert: c\n  key: ''\n", "tls.key", 3},
        {"tls:\n  cert: c\n  key: k\n  listen: x\n", "tls.listen", 4},
        {"log:\n  level: loud\n", "log.level", 2},
        {"log:\n  format: xml\n", "log.format", 2},
        {"store:\n  placement_groups: 3\n", "store.placement_groups", 2},
        {"store:\n  placement_groups: 8192\n", "store.placement_groups", 2},
        {"store:\n  segment_bytes: 100000\n", "store.segment_bytes", 2},
        {"store:\n  segment_bytes: 300001\n", "store.segment_bytes", 2},
        {"store:\n  segment_bytes: 2GiB\n", "store.segment_bytes", 2},
        {"store:\n  drive_bytes_max: lots\n", "store.drive_bytes_max", 2},
        {"store:\n  drive_bytes_max: 99999999999TiB\n", "store.drive_bytes_max", 2},
        {"store:\n  cache_bytes: 5 mb\n", "store.cache_bytes", 2},
        {"store:\n  buffer_bytes: 1MiB\n", "store.buffer_bytes", 2},
        {"store:\n  accept_losses: maybe\n", "store.accept_losses", 2},
        {"uploads:\n  expire_after: 7\n", "uploads.expire_after", 2},
        {"http:\n  connections_max: 0\n", "http.connections_max", 2},
        {"http:\n  head_timeout: 30\n", "http.head_timeout", 2},
        {"http:\n  idle_timeout: 0s\n", "http.idle_timeout", 2},
        {"http:\n  progress_timeout: 1 day\n", "http.progress_timeout", 2},
        {"http:\n  body_rate_min: 0\n", "http.body_rate_min", 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char message[CONFIG_ERROR_BYTES];
        snprintf(message, sizeof(message), "key '%s' at line %d must be %s", cases[i].path,
                 cases[i].line, config_key_help(cases[i].path));
        refused(cases[i].yaml, message);
    }
    refused("tls:\n  cert: c\n", "key 'tls' at line 1 must have both cert and key");
    refused("drives: [a, b,\n  a]\n", "drive 'a' at line 2 stands already at line 1");
    refused("credentials:\n- {access_key_id: AAA, secret_access_key: '12345678'}\n"
            "- {access_key_id: AAA, secret_access_key: '12345679'}\n",
            "access key 'AAA' at line 3 is given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_all_keys),
        cmocka_unit_test(test_unknown_keys), cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_wrong_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
