// SPDX-License-Identifier: Apache-2.0
// TLS sessions over memory: ciphertext in, ciphertext out, and nothing that waits. Private to net/.
#pragma once

#include <openssl/ssl.h>

#include "net/http.h"

// NULL when memory is out. The session keeps the certificate it was made with.
SSL *tls_session_create(struct http_tls *t);
void tls_session_destroy(SSL *ssl); // NULL is allowed
// Takes ciphertext from the peer; ERR_NO_MEMORY.
enum err tls_feed(SSL *ssl, struct bytes in) NODISCARD;
// ERR_CLOSED when it failed (an alert may be pending).
enum err tls_handshake(SSL *ssl, bool *is_done) NODISCARD;
// *out 0: more ciphertext is needed. ERR_END: the peer closed. ERR_CLOSED: broken.
enum err tls_read(SSL *ssl, u8 *buf, size_t cap, size_t *out) NODISCARD;
// Encrypts all of it into what is pending.
enum err tls_write(SSL *ssl, struct bytes data) NODISCARD;
// Ciphertext to be sent; valid until the next call on this session.
struct bytes tls_pending(SSL *ssl);
void tls_pending_done(SSL *ssl);
// Queues a close_notify.
void tls_shutdown(SSL *ssl);
// Gives back memory that a large transfer took.
void tls_trim(SSL *ssl);
