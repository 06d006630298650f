// SPDX-License-Identifier: Apache-2.0
// A real server on loopback inside the test, and a plain client. The server's runtime has a thread
// of its own; the test's thread is the client. Each client call is bounded by CLIENT_TIMEOUT_MS.
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/metrics.h"
#include "net/http.h"

#define CLIENT_TIMEOUT_MS 90000 // a bound, not a pace: sanitizers make 500 fibers in half a minute
#define REPLY_HEAD_BYTES  70000

// What the handler does is chosen by the path:
//   /hello         200 "hello"
//   /echo          the body back
//   /sum?N         reads the body N bytes at a time; answers "LENGTH HASH", or the error's name
//   /gen?N         N bytes of pattern();  /chunked?N the same, chunked, in odd pieces
//   /refuse        403 at once, the body unread
//   /close         200, and asks for the connection to be closed
//   /abort /short  promise 1000 bytes and break the promise
//   /silent        answers nothing
//   /about         what the exchange says about the request
//   /split         a response header whose value holds CR LF
//   /bighead?N     N response headers of 1,000 bytes; answers 500 "too large" if refused
//   /204           204, and tries to send a body
//   /wait          posts `entered`, and answers when `release` is set (or its wait was cancelled)
//   /first?N       reads N bytes, then answers 200
//   /deadline      reads the body under a deadline of 50 ms; answers the error's name
struct fixture {
    struct http_server_options options; // set before start
    u32 cores;
    u64 stop_grace_ns;
    u16 port;
    struct runtime *rt;
    struct sys *sys;
    struct http_server *servers[CORES_MAX];
    int fds[CORES_MAX];
    pthread_t thread;
    sem_t started;
    sem_t stop;
    sem_t entered;
    int release;  // atomic
    int stopping; // atomic: cores that have begun to stop
    enum err result;
    i64 stop_ns; // how long stopping took
};

void fixture_start(struct fixture *f, u32 cores);
void fixture_stop_begin(struct fixture *f);
void fixture_stop(struct fixture *f); // stops if not begun, waits, and checks that nothing is left
i64 fixture_metric(struct fixture *f, enum metric m);
// Waits until the metric has that value.
void fixture_metric_wait(struct fixture *f, enum metric m, i64 value);

u8 pattern(u64 offset);
u64 hash_step(u64 hash, const void *data, size_t len);
#define HASH_START 14695981039346656037ull

int client_connect(const struct fixture *f);
int client_socket(void);
void client_socket_connect(const struct fixture *f, int fd);
void client_send(int fd, const void *data, size_t len);
void client_send_text(int fd, const char *text);
// True when the peer ended the connection (with or without a reset); false when bytes came.
bool client_is_closed(int fd);
// True if nothing comes and nothing ends for that long.
bool client_is_quiet(int fd, int ms);
// Receives until `len` bytes are there; false if the connection ended before.
bool client_receive(int fd, void *out, size_t len);
u64 client_now_ms(void);

struct reply {
    int status;
    bool is_chunked;
    bool is_close;
    bool is_cut; // the connection ended inside
    size_t length;
    char *head; // both freed by reply_free
    u8 *body;
};
// Reads bytes from a connection of any kind; returns < 1 at the end.
typedef long (*client_read_fn)(void *connection, void *out, size_t cap);
void reply_read(client_read_fn read_fn, void *connection, struct reply *r, bool has_no_body);
void client_reply(int fd, struct reply *r);
void client_reply_to_head(int fd, struct reply *r);
void reply_free(struct reply *r);
// Sends the text and checks the status.
void client_expect(int fd, const char *request, int status);
