// SPDX-License-Identifier: Apache-2.0
// What the files of net/ share: server, connection and exchange in full. Private to net/. All of it
// belongs to one core.
//
// A connection is a state machine that runs in the loop and never suspends. While a request is
// served (CONNECTION_SERVING) a fiber has the connection: it alone starts operations, and the
// machine only watches the time. In every other state the machine has it.
//
//   HANDSHAKE -> IDLE <-> HEAD -> SERVING -> IDLE (keep-alive) or HEAD (pipelined bytes are left)
//   HEAD -> REPLYING (an error response without a handler) -> LINGERING
//   SERVING -> LINGERING (unread bytes: let the client read the response first)
//   any -> FLUSHING (the last bytes of TLS) -> LINGERING or CLOSING; any -> CLOSING -> released
//
// An idle connection holds this struct and a receive in flight, no buffer and no fiber: the engine
// picks one of the core's few receive buffers when bytes arrive. They are copied out at once (some
// 30 ns), because a handler that waits for a drive must not keep buffers from other connections.
#pragma once

#include <assert.h>

#include "core/buf.h"
#include "core/metrics.h"
#include "net/http.h"
#include "net/http_chunks.h"
#include "net/http_parse.h"
#include "net/tls.h"

#define SERVER_MAGIC     0x48747376u
#define CONNECTION_MAGIC 0x4874636eu
#define EXCHANGE_MAGIC   0x48747863u

// The receive pool of a core. Small, so that it stays in the cache (64 MiB cost 7 us a request).
#define HTTP_RECV_BUFFERS      128u
#define HTTP_RECV_BUFFER_BYTES ((u32)(8 * KIB))

#define HTTP_CONNECTIONS_DEFAULT 4096u
// Connections beyond the limit that may be told so at the same time; more are closed unanswered.
#define HTTP_REFUSALS_MAX    64u
#define HTTP_LINGER_NS       (5 * NS_PER_S) // how long a closing client may go on sending
#define HTTP_ACCEPT_RETRY_NS (100 * NS_PER_MS)

#define HTTP_INPUT_BYTES        (16 * KIB) // of an exchange; enough for nearly every head
#define HTTP_INPUT_LARGE_BYTES  (64 * KIB)
#define HTTP_INPUT_SLACK_BYTES  (4 * KIB) // kept free behind a head, for reading chunk framing
#define HTTP_DIRECT_BYTES_MIN   (4 * KIB) // a smaller read goes through the input buffer
#define HTTP_DRAIN_BUFFER_BYTES (64 * KIB)
#define HTTP_TLS_BUFFER_BYTES   (64 * KIB) // ciphertext received at once for a body

#define HTTP_RESPONSE_PREFIX_BYTES 256 // status line and the server's own headers
#define HTTP_RESPONSE_HEAD_BYTES   (2 * KIB)
#define HTTP_ERROR_BODY_BYTES_MAX  (2 * KIB)
#define HTTP_IOV_MAX               4
#define HTTP_PEER_BYTES            64

#define LIMIT_NONE UINT64_MAX

static_assert(HTTP_INPUT_LARGE_BYTES >=
                  HTTP_HEAD_BYTES_MAX + HTTP_RECV_BUFFER_BYTES + HTTP_INPUT_SLACK_BYTES,
              "a head of the largest size and what came behind it fit");

enum connection_state {
    CONNECTION_HANDSHAKE,
    CONNECTION_IDLE,
    CONNECTION_HEAD,
    CONNECTION_SERVING,
    CONNECTION_REPLYING,
    CONNECTION_FLUSHING,
    CONNECTION_LINGERING,
    CONNECTION_CLOSING,
};

struct connection {
    u32 magic;
    u8 state;              // enum connection_state
    bool is_refused;       // beyond the limit: told so and closed
    bool is_handshaken;    // TLS
    bool is_linger_wanted; // after FLUSHING
    bool is_timer_made;
    int fd;
    enum err failure; // why the operations of a fiber end early
    struct http_server *server;
    struct exchange *exchange; // NULL when idle
    SSL *ssl;                  // NULL: plain
    struct list node;          // server->connections
    u64 limit_ns;              // when the present state has taken too long
    enum err limit_error;      // what a fiber is told then
    struct timer timer;        // armed at limit_ns or earlier or a little later; looks again then
    struct io_op recv_op;
    struct io_op send_op;
    struct io_op cancel_recv_op;
    struct io_op cancel_send_op;
    struct io_op close_op;
    struct bytes out; // what the machine itself still has to send
    u64 rate_wait_ns; // time a fiber waited for the peer, and bytes that moved meanwhile
    u64 rate_bytes;
    struct msghdr msg;
    struct buf *tls_buf; // ciphertext of a body
    char peer[HTTP_PEER_BYTES];
};

struct response {
    u8 *head; // prefix room, then headers
    u32 head_capacity;
    u32 head_end;
    u32 head_begin; // once started
    bool is_started;
    bool is_head_sent;
    bool is_chunked;
    bool has_no_body; // HEAD, 204, 304: bytes are counted but not sent
    bool is_overflow;
    u64 length; // promised
    u64 written;
};

struct exchange {
    u32 magic;
    struct connection *connection;
    struct exchange *next_free;
    struct http_exchange x;
    // input: [0, in_floor) is the head that x points into, [in_begin, in_end) not yet consumed
    u8 *in;
    u32 in_capacity;
    u32 in_floor;
    u32 in_begin;
    u32 in_end;
    struct http_head_scan scan;
    // body
    u64 body_remaining; // with Content-Length
    struct http_chunks chunks;
    bool is_body_done;
    bool is_body_broken;
    bool is_continue_sent;
    bool is_aborted;
    struct response response;
    struct http_header headers[HTTP_HEADERS_MAX];
    u8 head_memory[HTTP_RESPONSE_HEAD_BYTES];
    u8 in_memory[HTTP_INPUT_BYTES];
};

struct http_server {
    u32 magic;
    struct http_server_options options;
    struct io_engine *io;
    struct list connections;
    u32 connection_count; // refused ones included
    u32 refused_count;
    bool is_stopping;
    bool is_accept_done; // the accept will not be started again
    struct io_op accept_op;
    struct io_op accept_cancel_op;
    struct timer accept_retry;
    struct event is_drained; // stopping, and the last connection is gone
    struct group fibers;
    struct list connections_free;
    struct exchange *exchanges_free;
    u64 date_second;
    char date[64];   // the lines "Server" and "Date"
    u8 *tls_scratch; // gathers a small response into one TLS record
};

// server.c
struct exchange *server_exchange_get(struct http_server *s);
void server_exchange_put(struct http_server *s, struct exchange *e);
void server_connection_release(struct connection *c);
// The header lines "Server" and "Date", formatted once a second.
const char *server_date(struct http_server *s);

// connection.c
void connection_start(struct connection *c);
// Sets when the present state has taken too long. Cheap when the timer stands near enough.
void connection_limit_set(struct connection *c, u64 timeout_ns, enum err e);
static inline void connection_limit_clear(struct connection *c)
{
    c->limit_ns = LIMIT_NONE;
}
// Ends what is in flight and the connection; the exchange must be idle (no fiber has it).
void connection_close(struct connection *c);
// The same, with a reset for the peer.
void connection_reset(struct connection *c);
// Says goodbye first: close_notify, and time to read the response if is_linger.
void connection_finish(struct connection *c, bool is_linger);
// A fiber has the connection: makes its present and later operations end with `e`.
void connection_fail(struct connection *c, enum err e);
// Answers with the error's status without a handler, then closes.
void connection_reply_error(struct connection *c, enum err e);
// The request is answered and the connection lives on: looks at what is buffered. True when it is
// one more whole request, parsed and ready in c->exchange.
bool connection_continue(struct connection *c);

// input.c
// Makes room for `want` bytes at in + in_end, by moving what is buffered or growing. Growing is
// only possible while no head is in use. Returns the room there is.
u32 input_room(struct exchange *e, u32 want);
// Looks for a whole head and parses it; *is_ready says whether there was one.
enum err input_parse(struct exchange *e, bool *is_ready) NODISCARD;

// stream.c: moving bytes from a fiber that serves a request
MAY_WAIT enum err stream_read(struct connection *c, u8 *buf, size_t cap, size_t *out) NODISCARD;
// Sends all; iov is used up.
MAY_WAIT enum err stream_write(struct connection *c, struct iovec *iov, u32 count) NODISCARD;

// body.c
void body_init(struct exchange *e);
// Reads an unread rest away so that the next request can be found; false when that is too much.
MAY_WAIT bool body_drain(struct exchange *e);

// response.c
void response_init(struct exchange *e);
// Writes an error response whole into the exchange's memory, for the machine to send.
struct bytes response_error_format(struct exchange *e, enum err error);
// After the handler: sends what is still to be sent, and answers 500 where it sent nothing.
MAY_WAIT enum err response_finish(struct exchange *e) NODISCARD;

// exchange.c
MAY_WAIT void exchange_serve(void *connection); // the fiber

static inline struct exchange *exchange_of(const struct http_exchange *x)
{
    struct exchange *e = (struct exchange *)((uintptr_t)x - offsetof(struct exchange, x));
    ASSERT_MAGIC(e, EXCHANGE_MAGIC);
    return e;
}
