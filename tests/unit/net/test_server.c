// SPDX-License-Identifier: Apache-2.0
// A whole server over loopback: requests, bodies, pipelining, strictness, broken promises.
#include "fixture.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "strict_cases.h"

#define BIG_BYTES ((size_t)5 * 1000 * 1000 + 7)

static struct fixture server;

static int setup_one(void **state)
{
    (void)state;
    server = (struct fixture){0};
    fixture_start(&server, 1);
    return 0;
}

static int setup_two(void **state)
{
    (void)state;
    server = (struct fixture){0};
    fixture_start(&server, 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_stop(&server);
    return 0;
}

static void assert_body(const struct reply *r, const char *text)
{
    assert_false(r->is_cut);
    assert_int_equal(r->length, strlen(text));
    assert_memory_equal(r->body, text, r->length);
}

// Sends, and checks status and body; the connection stays.
static void ask(int fd, const char *request, int status, const char *body)
{
    struct reply r;
    client_send_text(fd, request);
    client_reply(fd, &r);
    assert_int_equal(r.status, status);
    assert_body(&r, body);
    reply_free(&r);
}

static void assert_alive(int fd)
{
    ask(fd, G "\r\n", 200, "hello");
}

static void test_basics(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    struct reply r;
    client_send_text(fd, G "\r\n");
    client_reply(fd, &r);
    assert_int_equal(r.status, 200);
    assert_body(&r, "hello");
    assert_non_null(strstr(r.head, "\r\nServer: Leat\r\nDate: "));
    assert_non_null(strstr(r.head, " GMT\r\n"));
    assert_null(strstr(r.head, "Connection:"));
    reply_free(&r);
    for (int i = 0; i < 100; i++) {
        assert_alive(fd);
    }
    ask(fd, "GET /about?a=b HTTP/1.1\r\nHost: a\r\nX-Agent: one\r\nX-AGENT:  two \r\n\r\n", 200,
        "method=0 text=GET target=/about?a=b path=/about query=a=b agent=[one] agents=2 count=3 "
        "length=0 chunked=0 tls=0");
    close(fd);
    fixture_metric_wait(&server, METRIC_HTTP_REQUESTS, 102);
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
}

static void test_head_and_bodiless(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    struct reply r;
    client_send_text(fd, "HEAD /gen?123456 HTTP/1.1\r\nHost: a\r\n\r\n");
    client_reply_to_head(fd, &r);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Content-Length: 123456\r\n"));
    reply_free(&r);
    client_send_text(fd, "HEAD /chunked?1000 HTTP/1.1\r\nHost: a\r\n\r\n");
    client_reply_to_head(fd, &r);
    assert_true(r.is_chunked);
    reply_free(&r);
    client_send_text(fd, "GET /204 HTTP/1.1\r\nHost: a\r\n\r\n");
    client_reply(fd, &r);
    assert_int_equal(r.status, 204);
    assert_null(strstr(r.head, "Content-Length"));
    reply_free(&r);
    assert_alive(fd);
    close(fd);
}

static void test_http_1_0(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    struct reply r;
    client_send_text(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_reply(fd, &r);
    assert_non_null(strstr(r.head, "Connection: keep-alive\r\n"));
    reply_free(&r);
    client_send_text(fd, "GET /chunked?1000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_reply(fd, &r);
    assert_false(r.is_chunked);
    assert_true(r.is_close);
    assert_int_equal(r.length, 1000);
    reply_free(&r);
    close(fd);
    fd = client_connect(&server);
    client_send_text(fd, "GET /hello HTTP/1.0\r\n\r\n");
    client_reply(fd, &r);
    assert_true(r.is_close);
    assert_true(client_is_closed(fd));
    reply_free(&r);
    close(fd);
}

static void test_strict_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(strict_cases); i++) {
        const struct strict_case *c = &strict_cases[i];
        int fd = client_connect(&server);
        struct reply r;
        client_send(fd, c->text, c->len);
        client_reply(fd, &r);
        int expected = c->expected == OK ? 200 : err_info(c->expected)->http_status;
        if (r.status != expected) {
            print_error("%s: status %d, expected %d\n", c->name, r.status, expected);
        }
        assert_int_equal(r.status, expected);
        if (c->expected != OK) {
            assert_true(r.is_close);
            assert_non_null(strstr(r.head, "Content-Type: application/xml\r\n"));
            assert_non_null(strstr((char *)r.body, err_info(c->expected)->s3_code));
            assert_true(client_is_closed(fd)); // and no second answer
        } else if (!r.is_close) {
            assert_alive(fd);
        }
        reply_free(&r);
        close(fd);
    }
    i64 refused = 0;
    for (size_t i = 0; i < ARRAY_LEN(strict_cases); i++) {
        refused += strict_cases[i].expected != OK ? 1 : 0;
    }
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_PARSE_ERRORS), refused);
}

static void test_pipelining(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    char *all = malloc(COUNT * 128);
    size_t n = 0;
    for (int i = 0; i < COUNT; i++) {
        n += (size_t)sprintf(
            all + n, "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nbody%04d", i);
    }
    int fd = client_connect(&server);
    client_send(fd, all, n);
    for (int i = 0; i < COUNT; i++) {
        char body[16];
        struct reply r;
        snprintf(body, sizeof(body), "body%04d", i);
        client_reply(fd, &r);
        assert_body(&r, body);
        reply_free(&r);
    }
    assert_alive(fd);
    // Byte by byte, each in a segment of its own.
    for (size_t i = 0; i < n / 10; i++) {
        client_send(fd, all + i, 1);
    }
    for (int i = 0; i < COUNT / 10; i++) {
        struct reply r;
        client_reply(fd, &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.length, 8);
        reply_free(&r);
    }
    assert_alive(fd);
    close(fd);
    free(all);
}

// Many requests of odd sizes in one stream, so that heads and bodies straddle every buffer border.
static void test_pipelining_borders(void **state)
{
    (void)state;
    enum { COUNT = 400 };
    char *all = malloc(COUNT * 1200);
    size_t n = 0;
    for (int i = 0; i < COUNT; i++) {
        int len = i * 37 % 1000;
        n += (size_t)sprintf(
            all + n, "PUT /echo HTTP/1.1\r\nHost: a\r\nX: %0*d\r\nContent-Length: %d\r\n\r\n",
            i % 97 + 1, i, len);
        memset(all + n, 'a' + i % 26, (size_t)len);
        n += (size_t)len;
    }
    int fd = client_connect(&server);
    for (size_t at = 0; at < n; at += 50000) { // answers are small: both directions fit in buffers
        client_send(fd, all + at, MIN((size_t)50000, n - at));
    }
    for (int i = 0; i < COUNT; i++) {
        struct reply r;
        client_reply(fd, &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.length, i * 37 % 1000);
        for (size_t k = 0; k < r.length; k++) {
            assert_int_equal(r.body[k], 'a' + i % 26);
        }
        reply_free(&r);
    }
    close(fd);
    free(all);
}

static u8 *pattern_make(size_t len)
{
    u8 *data = malloc(len);
    for (size_t i = 0; i < len; i++) {
        data[i] = pattern(i);
    }
    return data;
}

static void assert_sum(int fd, const u8 *data, size_t len)
{
    struct reply r;
    char expected[80];
    snprintf(expected, sizeof(expected), "%zu %llx", len,
             (unsigned long long)hash_step(HASH_START, data, len));
    client_reply(fd, &r);
    assert_int_equal(r.status, 200);
    assert_body(&r, expected);
    reply_free(&r);
}

static void test_bodies_in(void **state)
{
    (void)state;
    u8 *data = pattern_make(BIG_BYTES);
    static const size_t sizes[] = {1, 100, 4095, 4096, 4097, 16384, 70000, BIG_BYTES};
    static const int pieces[] = {1000, 65536, 1000000};
    int fd = client_connect(&server);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (size_t k = 0; k < ARRAY_LEN(pieces); k++) {
            char head[128];
            snprintf(head, sizeof(head),
                     "PUT /sum?%d HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", pieces[k],
                     sizes[i]);
            client_send_text(fd, head);
            client_send(fd, data, sizes[i]);
            assert_sum(fd, data, sizes[i]);
        }
    }
    assert_alive(fd);
    close(fd);
    free(data);
}

// Sends data as chunks of growing odd sizes.
static void chunks_send(int fd, const u8 *data, size_t len, bool has_extras)
{
    size_t size = 1;
    for (size_t at = 0; at < len; at += size, size = size * 3 % 200003 + 1) {
        char line[64];
        size_t n = MIN(size, len - at);
        snprintf(line, sizeof(line), has_extras && at % 3 == 0 ? "%zX;e=1\r\n" : "%zx\r\n", n);
        client_send_text(fd, line);
        client_send(fd, data + at, n);
        client_send_text(fd, "\r\n");
    }
    client_send_text(fd, has_extras ? "0;last\r\nX-Trailer: a\r\n\r\n" : "0\r\n\r\n");
}

static void test_chunked_in(void **state)
{
    (void)state;
    u8 *data = pattern_make(BIG_BYTES);
    static const size_t sizes[] = {0, 1, 5000, 300000, BIG_BYTES};
    int fd = client_connect(&server);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        client_send_text(fd, i % 2 == 0 ? "PUT /sum?1000 HTTP/1.1\r\nHost: a\r\n"
                                          "Transfer-Encoding: chunked\r\n\r\n"
                                        : "PUT /sum HTTP/1.1\r\nHost: a\r\n"
                                          "Transfer-Encoding: chunked\r\n\r\n");
        chunks_send(fd, data, sizes[i], i % 2 == 1);
        assert_sum(fd, data, sizes[i]);
    }
    assert_alive(fd);
    // A broken chunk: the handler is told, answers, and the connection ends.
    client_expect(
        fd, "PUT /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n", 400);
    assert_true(client_is_closed(fd));
    close(fd);
    free(data);
}

static void test_bodies_out(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    static const size_t sizes[] = {0, 1, 4096, 100000, BIG_BYTES};
    for (size_t i = 0; i < ARRAY_LEN(sizes) * 2; i++) {
        char head[128];
        struct reply r;
        size_t size = sizes[i / 2];
        snprintf(head, sizeof(head), "GET /%s?%zu HTTP/1.1\r\nHost: a\r\n\r\n",
                 i % 2 == 0 ? "gen" : "chunked", size);
        client_send_text(fd, head);
        client_reply(fd, &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.is_chunked, i % 2 == 1);
        assert_false(r.is_cut);
        assert_int_equal(r.length, size);
        for (size_t k = 0; k < size; k++) {
            if (r.body[k] != pattern(k)) {
                assert_int_equal(r.body[k], pattern(k));
            }
        }
        reply_free(&r);
    }
    close(fd);
}

static void test_expect_continue(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    struct reply r;
    // The word comes only when the handler reads.
    client_send_text(fd, "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                         "Expect: 100-continue\r\n\r\n");
    client_reply(fd, &r);
    assert_int_equal(r.status, 100);
    reply_free(&r);
    client_send_text(fd, "abc");
    client_reply(fd, &r);
    assert_int_equal(r.status, 200);
    assert_body(&r, "abc");
    assert_false(r.is_close);
    reply_free(&r);
    // The client did not wait: no word.
    ask(fd, "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
        200, "abc");
    // An empty body gets the word all the same: botocore keeps the state of a final answer without
    // it, and the next response on the connection is never understood.
    client_send_text(fd, "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
                         "Expect: 100-continue\r\n\r\n");
    client_reply(fd, &r);
    assert_int_equal(r.status, 100);
    reply_free(&r);
    client_reply(fd, &r);
    assert_int_equal(r.status, 200);
    assert_false(r.is_close);
    reply_free(&r);
    // Refused by the head alone: no word, and the connection ends since the body may or may not
    // come.
    client_send_text(fd, "PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                         "Expect: 100-continue\r\n\r\n");
    client_reply(fd, &r);
    assert_int_equal(r.status, 403);
    assert_true(r.is_close);
    assert_body(&r, "refused");
    assert_true(client_is_closed(fd));
    reply_free(&r);
    close(fd);
}

static void test_unread_body(void **state)
{
    (void)state;
    int fd = client_connect(&server);
    u8 *data = pattern_make(BIG_BYTES);
    static const size_t small[] = {3, 5000, 100000, HTTP_DRAIN_BYTES_MAX};
    struct reply r;
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        char head[128];
        snprintf(head, sizeof(head),
                 "PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", small[i]);
        client_send_text(fd, head);
        client_send(fd, data, small[i]);
        client_reply(fd, &r);
        assert_int_equal(r.status, 403);
        assert_false(r.is_close);
        reply_free(&r);
        assert_alive(fd); // in step
    }
    client_send_text(fd, "PUT /refuse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunks_send(fd, data, 100000, true);
    client_reply(fd, &r);
    assert_int_equal(r.status, 403);
    reply_free(&r);
    ask(fd, "PUT /first?5 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789", 200,
        "first");
    assert_alive(fd);
    // Too much to read away: the response says that the connection ends, and it reaches a client
    // that sends its whole body before it reads.
    char head[128];
    snprintf(head, sizeof(head), "PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             BIG_BYTES);
    client_send_text(fd, head);
    client_send(fd, data, BIG_BYTES);
    client_reply(fd, &r);
    assert_int_equal(r.status, 403);
    assert_true(r.is_close);
    assert_body(&r, "refused");
    assert_true(client_is_closed(fd));
    reply_free(&r);
    close(fd);
    free(data);
}

static void test_broken_promises(void **state)
{
    (void)state;
    struct reply r;
    static const char *const requests[] = {"GET /abort HTTP/1.1\r\nHost: a\r\n\r\n",
                                           "GET /short HTTP/1.1\r\nHost: a\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        int fd = client_connect(&server);
        client_send_text(fd, requests[i]);
        client_reply(fd, &r);
        assert_int_equal(r.status, 200);
        assert_true(r.is_cut);
        reply_free(&r);
        close(fd);
    }
    int fd = client_connect(&server);
    client_expect(fd, "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n", 500);
    client_send_text(fd, "GET /split HTTP/1.1\r\nHost: a\r\n\r\n");
    client_reply(fd, &r);
    assert_non_null(strstr(r.head, "X-Split: a  X-Evil: b\r\n"));
    reply_free(&r);
    client_expect(fd, "GET /bighead?60 HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    client_expect(fd, "GET /bighead?70 HTTP/1.1\r\nHost: a\r\n\r\n", 500);
    client_send_text(fd, "GET /close HTTP/1.1\r\nHost: a\r\n\r\n" G "\r\n");
    client_reply(fd, &r);
    assert_true(r.is_close);
    assert_body(&r, "closing");
    assert_true(client_is_closed(fd)); // the pipelined request is not answered
    reply_free(&r);
    close(fd);
}

static void test_client_leaves(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "GET /hel",
        P "Content-Length: 1000\r\n\r\nabc",
        P "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        "PUT /sum HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        "GET /gen?200000000 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /chunked?200000000 HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts) * 2; i++) {
        int fd = client_connect(&server);
        client_send_text(fd, texts[i / 2]);
        u8 some[1000];
        if (i / 2 >= 5) {
            assert_true(client_receive(fd, some, sizeof(some)));
        }
        if (i % 2 == 1) {
            struct linger none = {.l_onoff = 1, .l_linger = 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        }
        close(fd);
    }
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
    // Half closed: the request is whole and is answered.
    int fd = client_connect(&server);
    client_send_text(fd, G "\r\n");
    shutdown(fd, SHUT_WR);
    struct reply r;
    client_reply(fd, &r);
    assert_body(&r, "hello");
    assert_true(client_is_closed(fd));
    reply_free(&r);
    close(fd);
    // Half closed inside the body: the handler is told and its answer arrives.
    fd = client_connect(&server);
    client_send_text(fd, "PUT /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
    shutdown(fd, SHUT_WR);
    client_reply(fd, &r);
    assert_int_equal(r.status, 400);
    assert_body(&r, "CLOSED");
    reply_free(&r);
    close(fd);
}

static void test_large_heads(void **state)
{
    (void)state;
    static const size_t sizes[] = {4000,  7000,  9000,  11000, 12270, 12280,
                                   12290, 12300, 12310, 15000, 17000, 32000};
    char *text = malloc(40000);
    int fd = client_connect(&server);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        // With a chunked body, which is read behind the head.
        size_t n = (size_t)sprintf(text, "PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                                         "chunked\r\nX-Pad: ");
        memset(text + n, 'p', sizes[i] - n);
        n = sizes[i];
        n += (size_t)sprintf(text + n, "\r\n\r\n5\r\nabcde\r\n3\r\nfgh\r\n0\r\n\r\n");
        client_send(fd, text, n);
        struct reply r;
        client_reply(fd, &r);
        assert_int_equal(r.status, 200);
        assert_body(&r, "abcdefgh");
        reply_free(&r);
        assert_alive(fd);
    }
    // One that never ends is refused at the limit, not at its end.
    memset(text, 'x', 40000);
    memcpy(text, G "X: ", strlen(G "X: "));
    client_send(fd, text, 40000);
    struct reply r;
    client_reply(fd, &r);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr((char *)r.body, "RequestHeaderSectionTooLarge"));
    assert_true(client_is_closed(fd));
    reply_free(&r);
    close(fd);
    free(text);
}

struct worker {
    pthread_t thread;
    u32 seed;
    u32 done;
};

// A client among many: random requests on changing connections, each answer checked.
static void *worker_main(void *arg)
{
    struct worker *w = arg;
    u8 *data = pattern_make(200000);
    int fd = client_connect(&server);
    for (int i = 0; i < 150; i++) {
        w->seed = w->seed * 1664525 + 1013904223;
        size_t len = (w->seed >> 8) % 200000;
        char head[160];
        struct reply r;
        bool is_put = (w->seed >> 28) % 2 == 0;
        bool is_last = (w->seed >> 29) % 4 == 0;
        snprintf(head, sizeof(head),
                 is_put ? "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n%s\r\n"
                        : "GET /gen?%zu HTTP/1.1\r\nHost: a\r\n%s\r\n",
                 len, is_last ? "Connection: close\r\n" : "");
        client_send_text(fd, head);
        if (is_put) {
            client_send(fd, data, len);
        }
        client_reply(fd, &r);
        bool is_right = r.status == 200 && r.length == len && r.is_close == is_last &&
                        memcmp(r.body, data, len) == 0;
        reply_free(&r);
        if (!is_right) {
            break;
        }
        if (is_last) {
            close(fd);
            fd = client_connect(&server);
        }
        w->done++;
    }
    close(fd);
    free(data);
    return NULL;
}

static void test_many_clients(void **state)
{
    (void)state;
    enum { WORKERS = 12 };
    struct worker workers[WORKERS] = {0};
    for (u32 i = 0; i < WORKERS; i++) {
        workers[i].seed = i * 77 + 1;
        pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
    }
    for (u32 i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].done, 150);
    }
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
}

// More ready connections in one turn than there are receive buffers.
static void test_many_connections(void **state)
{
    (void)state;
    enum { CONNECTIONS = 400 };
    int fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = client_connect(&server);
    }
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, CONNECTIONS);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CONNECTIONS; i++) {
            client_send_text(fds[i], G "\r\n");
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            struct reply r;
            client_reply(fds[i], &r);
            assert_body(&r, "hello");
            reply_free(&r);
        }
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        close(fds[i]);
    }
}

#define WITH_ONE(test) cmocka_unit_test_setup_teardown(test, setup_one, teardown)
#define WITH_TWO(test) cmocka_unit_test_setup_teardown(test, setup_two, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ONE(test_basics),           WITH_ONE(test_head_and_bodiless),
        WITH_ONE(test_http_1_0),         WITH_ONE(test_strict_cases),
        WITH_ONE(test_pipelining),       WITH_ONE(test_pipelining_borders),
        WITH_ONE(test_bodies_in),        WITH_ONE(test_chunked_in),
        WITH_ONE(test_bodies_out),       WITH_ONE(test_expect_continue),
        WITH_ONE(test_unread_body),      WITH_ONE(test_broken_promises),
        WITH_ONE(test_client_leaves),    WITH_ONE(test_large_heads),
        WITH_ONE(test_many_clients),     WITH_ONE(test_many_connections),
        WITH_TWO(test_basics),           WITH_TWO(test_pipelining),
        WITH_TWO(test_client_leaves),    WITH_TWO(test_many_clients),
        WITH_TWO(test_many_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
