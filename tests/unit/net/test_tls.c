// SPDX-License-Identifier: Apache-2.0
// TLS over loopback, with certificates made here: versions, ALPN, bodies both ways, records cut
// anywhere, goodbye, failures and reloading.
#include "fixture.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BIG_BYTES ((size_t)5 * 1000 * 1000 + 11)
#define GET_HELLO "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"

static struct fixture server;
static char folder[] = "/tmp/leat-unit-tls-XXXXXX";
static char cert_path[64];
static char key_path[64];

static void certificate_write(long serial)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"leat", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *f = fopen(cert_path, "w");
    assert_true(f != NULL && PEM_write_X509(f, cert) == 1);
    fclose(f);
    f = fopen(key_path, "w");
    assert_true(f != NULL && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void start(u32 cores)
{
    server = (struct fixture){0};
    certificate_write(1);
    assert_int_equal(http_tls_create(cert_path, key_path, &server.options.tls), OK);
    fixture_start(&server, cores);
}

static void stop(void)
{
    fixture_stop(&server);
    http_tls_destroy(server.options.tls);
}

static int setup_one(void **state)
{
    (void)state;
    start(1);
    return 0;
}

static int setup_two(void **state)
{
    (void)state;
    start(2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stop();
    return 0;
}

struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

// Prepares a client; version 0: any. alpn: wire format or NULL.
static void client_open(struct client *c, int version, const char *alpn)
{
    c->ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(c->ctx, 0);
    if (version != 0) {
        SSL_CTX_set_min_proto_version(c->ctx, version);
        SSL_CTX_set_max_proto_version(c->ctx, version);
    }
    if (alpn != NULL) {
        SSL_CTX_set_alpn_protos(c->ctx, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    }
    c->ssl = SSL_new(c->ctx);
    c->fd = client_connect(&server);
    SSL_set_fd(c->ssl, c->fd);
}

static void client_close(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
    ERR_clear_error();
}

// Interrupted calls (EINTR) show as WANT_READ on a blocking socket; a timeout shows the same way,
// so the number of tries is bounded.
static bool is_again(struct client *c, int rc, int *tries)
{
    int why = SSL_get_error(c->ssl, rc);
    return rc <= 0 && (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) && ++*tries < 100;
}

static int client_handshake(struct client *c)
{
    int rc;
    int tries = 0;
    do {
        rc = SSL_connect(c->ssl);
    } while (is_again(c, rc, &tries));
    return rc;
}

static int client_read(struct client *c, void *out, int cap)
{
    int rc;
    int tries = 0;
    do {
        rc = SSL_read(c->ssl, out, cap);
    } while (is_again(c, rc, &tries));
    return rc;
}

static void client_start(struct client *c, int version)
{
    client_open(c, version, "\x02h2\x08http/1.1");
    assert_int_equal(client_handshake(c), 1);
}

static long tls_client_read(void *connection, void *out, size_t cap)
{
    struct client *c = connection;
    return client_read(c, out, (int)MIN(cap, (size_t)1 << 30));
}

static void tls_client_write(struct client *c, const void *data, size_t len)
{
    int rc;
    int tries = 0;
    do {
        rc = SSL_write(c->ssl, data, (int)len);
    } while (is_again(c, rc, &tries));
    assert_int_equal(rc, (int)len);
}

static void ask(struct client *c, const char *request, int status, const char *body)
{
    struct reply r;
    tls_client_write(c, request, strlen(request));
    reply_read(tls_client_read, c, &r, false);
    assert_int_equal(r.status, status);
    assert_false(r.is_cut);
    assert_string_equal((char *)r.body, body);
    reply_free(&r);
}

static void test_versions(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct client c;
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        client_start(&c, versions[i]);
        assert_int_equal(SSL_version(c.ssl), versions[i]);
        const unsigned char *alpn = NULL;
        unsigned len = 0;
        SSL_get0_alpn_selected(c.ssl, &alpn, &len);
        assert_int_equal(len, 8);
        assert_memory_equal(alpn, "http/1.1", 8);
        for (int k = 0; k < 20; k++) {
            ask(&c, GET_HELLO, 200, "hello");
        }
        client_close(&c);
    }
    fixture_metric_wait(&server, METRIC_TLS_HANDSHAKES, 2);
    // No ALPN is fine; the old versions are not, nor a client that speaks HTTP/2 only.
    client_open(&c, 0, NULL);
    assert_int_equal(client_handshake(&c), 1);
    ask(&c, "GET /about HTTP/1.1\r\nHost: a\r\n\r\n", 200,
        "method=0 text=GET target=/about path=/about query=none agent=[] agents=0 count=1 "
        "length=0 chunked=0 tls=1");
    client_close(&c);
    client_open(&c, TLS1_1_VERSION, NULL);
    assert_int_not_equal(client_handshake(&c), 1);
    client_close(&c);
    client_open(&c, 0, "\x02h2");
    assert_int_not_equal(client_handshake(&c), 1);
    client_close(&c);
    fixture_metric_wait(&server, METRIC_TLS_FAILURES, 2);
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
}

static void test_bodies(void **state)
{
    (void)state;
    u8 *data = malloc(BIG_BYTES);
    for (size_t i = 0; i < BIG_BYTES; i++) {
        data[i] = pattern(i);
    }
    static const size_t sizes[] = {1, 5000, 16384, 100000, BIG_BYTES};
    static const char *const paths[] = {"sum?1000", "sum", "sum?1000000"};
    struct client c;
    client_start(&c, 0);
    for (size_t i = 0; i < ARRAY_LEN(sizes) * 3; i++) {
        size_t size = sizes[i / 3];
        char text[128];
        snprintf(text, sizeof(text), "PUT /%s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
                 paths[i % 3], size);
        tls_client_write(&c, text, strlen(text));
        tls_client_write(&c, data, size);
        struct reply r;
        reply_read(tls_client_read, &c, &r, false);
        snprintf(text, sizeof(text), "%zu %llx", size,
                 (unsigned long long)hash_step(HASH_START, data, size));
        assert_string_equal((char *)r.body, text);
        reply_free(&r);
        snprintf(text, sizeof(text), "GET /%s?%zu HTTP/1.1\r\nHost: a\r\n\r\n",
                 i % 2 == 0 ? "gen" : "chunked", size);
        tls_client_write(&c, text, strlen(text));
        reply_read(tls_client_read, &c, &r, false);
        assert_int_equal(r.length, size);
        assert_memory_equal(r.body, data, size);
        reply_free(&r);
    }
    ask(&c,
        "PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        200, "abc");
    ask(&c, GET_HELLO, 200, "hello");
    client_close(&c);
    free(data);
}

// Records of one byte, many requests in one record, and a refused body that is read away.
static void test_records(void **state)
{
    (void)state;
    struct client c;
    client_start(&c, 0);
    static const char text[] = GET_HELLO GET_HELLO
        "PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody" GET_HELLO;
    for (int round = 0; round < 2; round++) {
        size_t step = round == 0 ? 1 : sizeof(text) - 1;
        for (size_t i = 0; i < sizeof(text) - 1; i += step) {
            tls_client_write(&c, text + i, step);
        }
        for (int i = 0; i < 4; i++) {
            struct reply r;
            reply_read(tls_client_read, &c, &r, false);
            assert_int_equal(r.status, i == 2 ? 403 : 200);
            reply_free(&r);
        }
    }
    if (SSL_version(c.ssl) == TLS1_3_VERSION) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        ask(&c, GET_HELLO, 200, "hello");
        ask(&c, GET_HELLO, 200, "hello");
    }
    ask(&c, "bad request\r\n\r\n", 400, "<Error><Code>BadRequest</Code></Error>");
    u8 byte;
    assert_int_equal(client_read(&c, &byte, 1), 0);
    assert_int_equal(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN); // close_notify
    client_close(&c);
}

static void test_goodbye(void **state)
{
    (void)state;
    struct client c;
    u8 byte;
    client_start(&c, 0);
    ask(&c, "GET /close HTTP/1.1\r\nHost: a\r\n\r\n", 200, "closing");
    int rc = client_read(&c, &byte, 1);
    assert_int_equal(SSL_get_error(c.ssl, rc), SSL_ERROR_ZERO_RETURN);
    client_close(&c);
    // A client that says goodbye; one that just goes; one that goes in the handshake.
    client_start(&c, 0);
    ask(&c, GET_HELLO, 200, "hello");
    SSL_shutdown(c.ssl);
    rc = client_read(&c, &byte, 1);
    assert_true(rc <= 0);
    client_close(&c);
    client_start(&c, 0);
    client_close(&c);
    close(client_connect(&server));
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
    // Broken promises are resets, without a close_notify that would make them look whole.
    client_start(&c, 0);
    static const char abort_text[] = "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n";
    tls_client_write(&c, abort_text, sizeof(abort_text) - 1);
    struct reply r;
    reply_read(tls_client_read, &c, &r, false);
    assert_true(r.is_cut);
    reply_free(&r);
    assert_int_not_equal(SSL_get_error(c.ssl, -1), SSL_ERROR_ZERO_RETURN);
    assert_int_equal(SSL_get_shutdown(c.ssl) & SSL_RECEIVED_SHUTDOWN, 0);
    client_close(&c);
}

static void test_plain_text(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    client_send_text(fd, GET_HELLO);
    u8 some[64];
    while (client_receive(fd, some, 1)) { // an alert, perhaps
    }
    close(fd);
    fixture_metric_wait(&server, METRIC_TLS_FAILURES, 1);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_REQUESTS), 0);
}

static long serial_of(struct client *c)
{
    X509 *cert = SSL_get1_peer_certificate(c->ssl);
    assert_non_null(cert);
    long serial = ASN1_INTEGER_get(X509_get_serialNumber(cert));
    X509_free(cert);
    return serial;
}

static void test_reload(void **state)
{
    (void)state;
    struct client old;
    struct client c;
    client_start(&old, 0);
    assert_int_equal(serial_of(&old), 1);
    certificate_write(2);
    assert_int_equal(http_tls_reload(server.options.tls), OK);
    client_start(&c, 0);
    assert_int_equal(serial_of(&c), 2);
    ask(&c, GET_HELLO, 200, "hello");
    client_close(&c);
    ask(&old, GET_HELLO, 200, "hello");
    client_close(&old);
    // A broken file, a missing one, a key of another certificate: the old pair stays.
    FILE *f = fopen(cert_path, "w");
    assert_non_null(f);
    fputs("not a certificate\n", f);
    fclose(f);
    assert_int_equal(http_tls_reload(server.options.tls), ERR_INVALID);
    unlink(cert_path);
    assert_int_equal(http_tls_reload(server.options.tls), ERR_INVALID);
    certificate_write(3);
    char saved[80];
    snprintf(saved, sizeof(saved), "%s.saved", cert_path);
    assert_int_equal(rename(cert_path, saved), 0);
    certificate_write(4);
    assert_int_equal(rename(saved, cert_path), 0);
    assert_int_equal(http_tls_reload(server.options.tls), ERR_INVALID);
    struct http_tls *none = NULL;
    assert_int_equal(http_tls_create(cert_path, key_path, &none), ERR_INVALID);
    client_start(&c, 0);
    assert_int_equal(serial_of(&c), 2);
    client_close(&c);
}

// Reloads while both cores make sessions.
static void test_reload_busy(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct client c[4];
        for (int k = 0; k < 4; k++) {
            client_start(&c[k], 0);
        }
        assert_int_equal(http_tls_reload(server.options.tls), OK);
        for (int k = 0; k < 4; k++) {
            ask(&c[k], GET_HELLO, 200, "hello");
            client_close(&c[k]);
        }
    }
}

static void test_handshake_stalls(void **state)
{
    (void)state;
    server = (struct fixture){0};
    certificate_write(1);
    assert_int_equal(http_tls_create(cert_path, key_path, &server.options.tls), OK);
    server.options.head_timeout_ns = 100 * NS_PER_MS;
    fixture_start(&server, 1);
    int fd = client_connect(&server);
    client_send(fd, "\x16\x03", 2);
    assert_true(client_is_closed(fd));
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_TIMEOUTS), 1);
    close(fd);
    stop();
}

static void test_stop(void **state)
{
    (void)state;
    start(2);
    struct client c[6];
    u8 byte;
    for (int i = 0; i < 6; i++) {
        client_start(&c[i], 0);
        ask(&c[i], GET_HELLO, 200, "hello");
    }
    int half = client_connect(&server); // never begins its handshake
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 7);
    stop();
    for (int i = 0; i < 6; i++) {
        int rc = client_read(&c[i], &byte, 1);
        assert_int_equal(SSL_get_error(c[i].ssl, rc), SSL_ERROR_ZERO_RETURN);
        client_close(&c[i]);
    }
    assert_true(client_is_closed(half));
    close(half);
}

#define WITH_ONE(test) cmocka_unit_test_setup_teardown(test, setup_one, teardown)
#define WITH_TWO(test) cmocka_unit_test_setup_teardown(test, setup_two, teardown)

int main(void)
{
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    snprintf(cert_path, sizeof(cert_path), "%s/cert.pem", folder);
    snprintf(key_path, sizeof(key_path), "%s/key.pem", folder);
    const struct CMUnitTest tests[] = {
        WITH_ONE(test_versions),     WITH_ONE(test_bodies),
        WITH_ONE(test_records),      WITH_ONE(test_goodbye),
        WITH_ONE(test_plain_text),   WITH_ONE(test_reload),
        WITH_TWO(test_versions),     WITH_TWO(test_reload_busy),
        WITH_TWO(test_bodies),       cmocka_unit_test(test_handshake_stalls),
        cmocka_unit_test(test_stop),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(cert_path);
    unlink(key_path);
    rmdir(folder);
    return rc;
}
