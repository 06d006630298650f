// SPDX-License-Identifier: Apache-2.0
// The HTTP/1.1 server: listeners, connections (state machines on the I/O engine, with or without
// TLS) and exchanges. A complete and valid request head starts a fiber that runs the handler; an
// idle connection has no fiber and no buffer. One server a core, sharing the port by SO_REUSEPORT.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "core/fiber.h"
#include "net/http_header.h"

#define HTTP_HEAD_BYTES_MAX    (32 * KIB)
#define HTTP_TARGET_BYTES_MAX  (16 * KIB)
#define HTTP_HEADERS_MAX       256
#define HTTP_REQUEST_ARENA_MAX (32 * MIB)

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_PUT,
    HTTP_POST,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_METHOD_OTHER,
};

struct http_server;
struct http_tls; // certificates, shared by all cores; reloadable

// One request and its response. Lives in the connection; valid until the handler returns.
struct http_exchange {
    enum http_method method;
    struct bytes method_text;
    struct bytes target; // raw: path and query as sent, percent-encoded
    struct bytes path;   // raw, before '?'
    struct bytes query;  // raw, after '?'; data NULL if there is no '?'
    const struct http_header *headers;
    u32 header_count;
    bool has_content_length;
    u64 content_length; // of the body as sent, if has_content_length
    bool is_chunked;    // transfer-encoding: chunked
    bool expects_continue;
    bool is_tls;
    bool is_http_1_0;
    bool is_keep_alive; // the handler may clear it
    struct arena arena; // the request's memory, bounded by HTTP_REQUEST_ARENA_MAX
    const char *peer;   // "address:port"
    u64 started_ns;     // core_now_ns when the head was complete
    u32 status;         // of the response, once started
    u64 response_bytes;
};

// The first header of that name (any case); data NULL if absent. Names are given in lower case.
struct bytes http_header_get(const struct http_exchange *x, const char *name);
u32 http_header_count(const struct http_exchange *x, const char *name);

// Reads body bytes straight into buf; *out 0 at the end. The first call sends "100 Continue" where
// the client waits for it (so check everything about the head before). ERR_CLOSED,
// ERR_PEER_TIMEOUT, ERR_HTTP_BAD_REQUEST (broken chunk).
MAY_WAIT enum err http_body_read(struct http_exchange *x, void *buf, size_t cap,
                                 size_t *out) NODISCARD;
// Fills buf unless the body ends before.
MAY_WAIT enum err http_body_read_full(struct http_exchange *x, void *buf, size_t cap,
                                      size_t *out) NODISCARD;
// True when all of the body was read.
bool http_body_is_done(const struct http_exchange *x);

#define HTTP_LENGTH_CHUNKED UINT64_MAX
// Collects headers; name and value are copied, at most HTTP_RESPONSE_HEAD_BYTES_MAX of them in all
// (past that http_response_start fails). A control byte in a value becomes a blank, so that nothing
// a client chose can split the response. After start: asserts.
#define HTTP_RESPONSE_HEAD_BYTES_MAX (64 * KIB)
void http_response_header(struct http_exchange *x, const char *name, struct bytes value);
void http_response_header_text(struct http_exchange *x, const char *name, const char *value);
void http_response_header_u64(struct http_exchange *x, const char *name, u64 value);
// Fixes status and length. Nothing need be sent yet: the head goes out together with the first
// write or at the end. With HEAD, 204 and 304 no body is sent whatever is written. content_length:
// bytes, or HTTP_LENGTH_CHUNKED. Server, Date and Connection headers are added by the server.
// ERR_LIMIT_REACHED when the headers did not fit: they are forgotten, and the handler may start
// another response.
enum err http_response_start(struct http_exchange *x, u32 status, u64 content_length) NODISCARD;
// Sends the bytes; returns when they may be reused. ERR_CLOSED, ERR_PEER_TIMEOUT. More bytes than
// the response promised: asserts.
MAY_WAIT enum err http_response_write(struct http_exchange *x, struct bytes data) NODISCARD;
// Status, headers so far and the whole body in one send.
MAY_WAIT enum err http_response_send(struct http_exchange *x, u32 status,
                                     struct bytes body) NODISCARD;
bool http_response_is_started(const struct http_exchange *x);
// The response cannot be finished as promised (a read failed half-way): the connection is reset, so
// that the client sees it.
void http_response_abort(struct http_exchange *x);

// Runs on a fiber of the connection's core. On return without a started response the server answers
// 500. An unread body is read away up to HTTP_DRAIN_BYTES_MAX, else the connection is closed after
// the response.
#define HTTP_DRAIN_BYTES_MAX (1 * MIB)
typedef void (*http_handler_fn)(void *arg, struct http_exchange *x);
// A head that cannot be parsed has no exchange to handle: this formats the body of the error
// response (XML for S3).
typedef size_t (*http_error_fn)(void *arg, enum err e, char *out, size_t cap);

struct http_server_options {
    int listen_fd; // bound and listening, this core's own (http_listen); the server closes it
    http_handler_fn handler;
    http_error_fn error_body; // NULL: empty body
    void *arg;
    struct http_tls *tls;    // NULL: plain
    u32 connections_max;     // 0: 4096 a core
    u64 head_timeout_ns;     // whole head; 0: 30 s
    u64 idle_timeout_ns;     // between requests; 0: 75 s
    u64 progress_timeout_ns; // a body or a response must move this often; 0: 60 s
    u64 body_rate_min;       // bytes a second averaged over progress_timeout; 0: 1024
};

// Blocking; start-up only. ERR_IN_USE, ERR_PERMISSION, ERR_INVALID (log says which address). IPv4
// "1.2.3.4:9000", IPv6 "[::1]:9000". Called once a core with the same address (SO_REUSEPORT); the
// first call is made with is_first to detect a port that another process holds. *bound_port: useful
// with port 0.
enum err http_listen(const char *address, bool is_first, int *out_fd, u16 *bound_port);

// Starts accepting on the calling core.
enum err http_server_start(const struct http_server_options *o, struct http_server **out);
// Stops accepting, lets running exchanges finish until deadline_ns (then cancels them), closes idle
// connections at once.
MAY_WAIT void http_server_stop(struct http_server *s, u64 deadline_ns);

// PEM files; blocking (helper pool or start-up). TLS 1.2 and 1.3, ALPN http/1.1.
enum err http_tls_create(const char *cert_path, const char *key_path, struct http_tls **out);
// Loads the files again; connections made from now on use them. On error the old ones stay. Any
// thread.
enum err http_tls_reload(struct http_tls *t);
void http_tls_destroy(struct http_tls *t);
