// SPDX-License-Identifier: Apache-2.0
// Certificates and sessions by OpenSSL over memory BIOs. TLS 1.2 and 1.3, ALPN http/1.1, no
// compression, no renegotiation, no server-side session cache (tickets are stateless).
//
// `struct http_tls` is shared by all cores: sessions take a reference to the present context under
// a mutex that is held for a few instructions, once a connection; a reload swaps the context.
#include "net/tls.h"

#include <limits.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"

#define TLS_MAGIC          0x4874746cu
#define TLS_TRIM_BYTES_MIN (32 * KIB)

struct http_tls {
    u32 magic;
    pthread_mutex_t lock;
    SSL_CTX *context; // under lock
    char *cert_path;
    char *key_path;
};

// Takes "http/1.1" if the client offers it; a client that offers only other protocols is refused.
static int alpn_select(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void context_failed(const char *path, const char *what)
{
    char reason[160];
    ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
    LOG_ERROR("tls_load_failed", "path=%s what=\"%s\" reason=\"%s\"", path, what, reason);
    ERR_clear_error();
}

static enum err context_load(const char *cert_path, const char *key_path, SSL_CTX **out)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == NULL) {
        return ERR_NO_MEMORY;
    }
    const char *failed = NULL;
    const char *path = cert_path;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(ctx, alpn_select, NULL);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
        failed = "set the protocol version";
    } else if (SSL_CTX_use_certificate_chain_file(ctx, cert_path) != 1) {
        failed = "read the certificate";
    } else if (SSL_CTX_use_PrivateKey_file(ctx, key_path, SSL_FILETYPE_PEM) != 1) {
        failed = "read the key";
        path = key_path;
    } else if (SSL_CTX_check_private_key(ctx) != 1) {
        failed = "match the key with the certificate";
        path = key_path;
    }
    if (failed != NULL) {
        context_failed(path, failed);
        SSL_CTX_free(ctx);
        return ERR_INVALID;
    }
    *out = ctx;
    return OK;
}

enum err http_tls_create(const char *cert_path, const char *key_path, struct http_tls **out)
{
    struct http_tls *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return ERR_NO_MEMORY;
    }
    t->magic = TLS_MAGIC;
    pthread_mutex_init(&t->lock, NULL);
    t->cert_path = strdup(cert_path);
    t->key_path = strdup(key_path);
    enum err e = t->cert_path == NULL || t->key_path == NULL
                     ? ERR_NO_MEMORY
                     : context_load(cert_path, key_path, &t->context);
    if (e != OK) {
        http_tls_destroy(t);
        return e;
    }
    *out = t;
    return OK;
}

enum err http_tls_reload(struct http_tls *t)
{
    ASSERT_MAGIC(t, TLS_MAGIC);
    SSL_CTX *fresh = NULL;
    TRY(context_load(t->cert_path, t->key_path, &fresh));
    pthread_mutex_lock(&t->lock);
    SSL_CTX *old = t->context;
    t->context = fresh;
    pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(old); // sessions hold their own references
    return OK;
}

void http_tls_destroy(struct http_tls *t)
{
    if (t == NULL) {
        return;
    }
    ASSERT_MAGIC(t, TLS_MAGIC);
    SSL_CTX_free(t->context);
    pthread_mutex_destroy(&t->lock);
    free(t->cert_path);
    free(t->key_path);
    t->magic = 0;
    free(t);
}

SSL *tls_session_create(struct http_tls *t)
{
    ASSERT_MAGIC(t, TLS_MAGIC);
    pthread_mutex_lock(&t->lock);
    SSL *ssl = SSL_new(t->context);
    pthread_mutex_unlock(&t->lock);
    BIO *in = BIO_new(BIO_s_mem());
    BIO *out = BIO_new(BIO_s_mem());
    if (ssl == NULL || in == NULL || out == NULL) {
        SSL_free(ssl);
        BIO_free(in);
        BIO_free(out);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    SSL_set_accept_state(ssl);
    return ssl;
}

void tls_session_destroy(SSL *ssl)
{
    SSL_free(ssl);
}

enum err tls_feed(SSL *ssl, struct bytes in)
{
    ASSERT(in.len <= INT_MAX);
    int n = BIO_write(SSL_get_rbio(ssl), in.data, (int)in.len);
    return n == (int)in.len ? OK : ERR_NO_MEMORY;
}

enum err tls_handshake(SSL *ssl, bool *is_done)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(ssl);
    *is_done = rc == 1;
    if (rc == 1 || SSL_get_error(ssl, rc) == SSL_ERROR_WANT_READ) {
        return OK;
    }
    LOG_DEBUG("tls_handshake_failed", "reason=%lu", ERR_peek_error());
    ERR_clear_error();
    return ERR_CLOSED;
}

enum err tls_read(SSL *ssl, u8 *buf, size_t cap, size_t *out)
{
    *out = 0;
    ERR_clear_error();
    if (SSL_read_ex(ssl, buf, cap, out) == 1) {
        return OK;
    }
    int why = SSL_get_error(ssl, 0);
    if (why == SSL_ERROR_WANT_READ) {
        return OK;
    }
    ERR_clear_error();
    return why == SSL_ERROR_ZERO_RETURN ? ERR_END : ERR_CLOSED;
}

enum err tls_write(SSL *ssl, struct bytes data)
{
    size_t written = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl, data.data, data.len, &written) != 1 || written != data.len) {
        ERR_clear_error();
        return ERR_CLOSED;
    }
    return OK;
}

struct bytes tls_pending(SSL *ssl)
{
    char *data = NULL;
    long len = BIO_get_mem_data(SSL_get_wbio(ssl), &data);
    return len <= 0 ? BYTES_NONE : BYTES(data, (size_t)len);
}

void tls_pending_done(SSL *ssl)
{
    (void)BIO_reset(SSL_get_wbio(ssl));
}

void tls_shutdown(SSL *ssl)
{
    ERR_clear_error();
    (void)SSL_shutdown(ssl);
    ERR_clear_error();
}

static bool bio_is_large(BIO *bio)
{
    BUF_MEM *memory = NULL;
    BIO_get_mem_ptr(bio, &memory);
    return memory != NULL && memory->max > TLS_TRIM_BYTES_MIN && BIO_pending(bio) == 0;
}

void tls_trim(SSL *ssl)
{
    if (bio_is_large(SSL_get_wbio(ssl))) {
        BIO *fresh = BIO_new(BIO_s_mem());
        if (fresh != NULL) {
            SSL_set0_wbio(ssl, fresh);
        }
    }
    if (bio_is_large(SSL_get_rbio(ssl))) {
        BIO *fresh = BIO_new(BIO_s_mem());
        if (fresh != NULL) {
            BIO_set_mem_eof_return(fresh, -1);
            SSL_set0_rbio(ssl, fresh);
        }
    }
}
