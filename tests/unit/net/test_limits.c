// SPDX-License-Identifier: Apache-2.0
// Slow clients, too many clients, and stopping: with small timeouts, and waiting for what must
// happen, never for time to pass (except to see that nothing happens).
#include "fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define GET_HELLO "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_WAIT  "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
#define LONG_NS   (60 * NS_PER_S)

static struct fixture server;

static void start(u32 cores, u64 head_ms, u64 idle_ms, u64 progress_ms)
{
    server = (struct fixture){0};
    server.options.head_timeout_ns = head_ms == 0 ? LONG_NS : head_ms * NS_PER_MS;
    server.options.idle_timeout_ns = idle_ms == 0 ? LONG_NS : idle_ms * NS_PER_MS;
    server.options.progress_timeout_ns = progress_ms == 0 ? LONG_NS : progress_ms * NS_PER_MS;
    fixture_start(&server, cores);
}

static void wait_entered(void)
{
    while (sem_wait(&server.entered) != 0) {
        assert_int_equal(errno, EINTR);
    }
}

static void assert_reply(int fd, int status, const char *body, bool is_close)
{
    struct reply r;
    client_reply(fd, &r);
    assert_int_equal(r.status, status);
    assert_false(r.is_cut);
    assert_int_equal(r.length, strlen(body));
    assert_memory_equal(r.body, body, r.length);
    assert_int_equal(r.is_close, is_close);
    reply_free(&r);
}

static void test_idle(void **state)
{
    (void)state;
    start(1, 0, 200, 0);
    int fd = client_connect(&server);
    u64 begin = client_now_ms();
    assert_true(client_is_closed(fd));
    assert_in_range(client_now_ms() - begin, 150, 5000);
    close(fd);
    // Each request begins the time anew.
    fd = client_connect(&server);
    for (int i = 0; i < 4; i++) {
        client_expect(fd, GET_HELLO, 200);
        assert_true(client_is_quiet(fd, 100));
    }
    begin = client_now_ms();
    assert_true(client_is_closed(fd));
    assert_in_range(client_now_ms() - begin, 50, 5000);
    close(fd);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_TIMEOUTS), 0);
    fixture_stop(&server);
}

static void test_slow_head(void **state)
{
    (void)state;
    start(1, 300, 0, 0);
    int fd = client_connect(&server);
    client_expect(fd, GET_HELLO, 200);
    u64 begin = client_now_ms();
    // A byte now and then does not help: the whole head has its time.
    static const char text[] = GET_HELLO;
    size_t sent = 0;
    while (sent < sizeof(text) - 2 && client_is_quiet(fd, 30)) {
        client_send(fd, text + sent, 1);
        sent++;
    }
    assert_true(sent < sizeof(text) - 2);
    assert_reply(fd, 400, "<Error><Code>RequestTimeout</Code></Error>", true);
    assert_in_range(client_now_ms() - begin, 200, 5000);
    assert_true(client_is_closed(fd));
    close(fd);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_TIMEOUTS), 1);
    fixture_stop(&server);
}

static void test_stalled_body(void **state)
{
    (void)state;
    start(1, 0, 0, 200);
    int fd = client_connect(&server);
    client_send_text(fd, "PUT /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nsome");
    assert_reply(fd, 400, "PEER_TIMEOUT", true);
    assert_true(client_is_closed(fd));
    close(fd);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_TIMEOUTS), 1);
    fixture_stop(&server);
}

static void test_trickled_body(void **state)
{
    (void)state;
    start(1, 0, 0, 200);
    int fd = client_connect(&server);
    client_send_text(fd, "PUT /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    u64 begin = client_now_ms();
    while (client_is_quiet(fd, 20)) {
        client_send(fd, "x", 1); // moves, but at 50 bytes a second
    }
    assert_in_range(client_now_ms() - begin, 150, 5000);
    assert_reply(fd, 400, "PEER_TIMEOUT", true);
    close(fd);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_TIMEOUTS), 1);
    fixture_stop(&server);
}

static void test_slow_but_fast_enough(void **state)
{
    (void)state;
    start(1, 0, 0, 200);
    int fd = client_connect(&server);
    client_send_text(fd, "PUT /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n");
    static char piece[1000];
    for (int i = 0; i < 20; i++) {
        assert_true(client_is_quiet(fd, 30));
        client_send(fd, piece, sizeof(piece));
    }
    struct reply r;
    client_reply(fd, &r);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_TIMEOUTS), 0);
    fixture_stop(&server);
}

static void test_reader_stalls(void **state)
{
    (void)state;
    start(1, 0, 0, 200);
    int fd = client_connect(&server);
    client_send_text(fd, "GET /gen?400000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_metric_wait(&server, METRIC_HTTP_TIMEOUTS, 1);
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
    struct reply r;
    client_reply(fd, &r);
    assert_true(r.is_cut);
    reply_free(&r);
    close(fd);
    fixture_stop(&server);
}

static void test_handler_deadline(void **state)
{
    (void)state;
    start(1, 0, 0, 0);
    int fd = client_connect(&server);
    client_send_text(fd, "PUT /deadline HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
    assert_reply(fd, 200, "DEADLINE", true);
    assert_true(client_is_closed(fd));
    close(fd);
    fixture_stop(&server);
}

static void test_closing_client_sends_on(void **state)
{
    (void)state;
    start(1, 0, 0, 0);
    int fd = client_connect(&server);
    client_send_text(fd, "nonsense\r\n\r\n");
    assert_reply(fd, 400, "<Error><Code>BadRequest</Code></Error>", true);
    u64 begin = client_now_ms();
    // The server reads away what comes for HTTP_LINGER_NS, then resets.
    char byte = 'x';
    while (send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && client_now_ms() - begin < CLIENT_TIMEOUT_MS) {
        poll(NULL, 0, 20);
    }
    assert_in_range(client_now_ms() - begin, 3000, 9000);
    close(fd);
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 0);
    fixture_stop(&server);
}

static void test_connection_limit(void **state)
{
    (void)state;
    server = (struct fixture){0};
    server.options.connections_max = 3;
    fixture_start(&server, 1);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect(&server);
        client_expect(fds[i], GET_HELLO, 200);
    }
    int more = client_connect(&server);
    client_send_text(more, GET_HELLO);
    assert_reply(more, 503, "<Error><Code>SlowDown</Code></Error>", true);
    assert_true(client_is_closed(more));
    close(more);
    assert_int_equal(fixture_metric(&server, METRIC_HTTP_REFUSED), 1);
    client_expect(fds[0], GET_HELLO, 200); // the others are untouched
    close(fds[1]);
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 2);
    fds[1] = client_connect(&server);
    client_expect(fds[1], GET_HELLO, 200);
    // A flood of refused connections that never read is bounded too.
    int flood[100];
    for (int i = 0; i < 100; i++) {
        flood[i] = client_connect(&server);
    }
    fixture_metric_wait(&server, METRIC_HTTP_REFUSED, 101);
    assert_true(fixture_metric(&server, METRIC_HTTP_CONNECTIONS) <= 3 + 64);
    for (int i = 0; i < 100; i++) {
        close(flood[i]);
    }
    fixture_metric_wait(&server, METRIC_HTTP_CONNECTIONS, 3);
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
    }
    fixture_stop(&server);
}

// The fixture's runtime has 512 fibers a core; each waiting request holds one.
static void test_fiber_limit(void **state)
{
    (void)state;
    start(1, 0, 0, 0);
    enum { COUNT = 520 };
    static int fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = client_connect(&server);
        client_send_text(fds[i], GET_WAIT);
    }
    int refused = 0;
    fixture_metric_wait(&server, METRIC_HTTP_ACCEPTED, COUNT);
    static struct pollfd polls[COUNT];
    u64 end = client_now_ms() + CLIENT_TIMEOUT_MS;
    while (refused == 0 && client_now_ms() < end) {
        for (int i = 0; i < COUNT; i++) {
            polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        }
        refused = poll(polls, COUNT, 100);
    }
    assert_true(refused > 0);
    __atomic_store_n(&server.release, 1, __ATOMIC_RELEASE);
    int answered = 0;
    refused = 0;
    for (int i = 0; i < COUNT; i++) {
        struct reply r;
        client_reply(fds[i], &r);
        answered += r.status == 200 ? 1 : 0;
        refused += r.status == 503 ? 1 : 0;
        reply_free(&r);
        close(fds[i]);
    }
    assert_int_equal(answered + refused, COUNT);
    assert_true(refused > 0 && answered > 400);
    fixture_stop(&server);
}

static void test_out_of_descriptors(void **state)
{
    (void)state;
    start(1, 0, 0, 0);
    struct rlimit old;
    getrlimit(RLIMIT_NOFILE, &old);
    // The kernel looks at the limit when an accept is started, so the one that waits already still
    // succeeds; the next fails until the limit is raised again.
    int earlier = client_connect(&server);
    client_expect(earlier, GET_HELLO, 200);
    int fd = client_socket();
    int second = client_socket();
    struct rlimit low = {.rlim_cur = (rlim_t)second + 1, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    client_socket_connect(&server, fd);
    client_expect(fd, GET_HELLO, 200);
    client_socket_connect(&server, second);
    client_send_text(second, GET_HELLO);
    bool is_quiet = client_is_quiet(second, 100);
    client_expect(fd, GET_HELLO, 200);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_true(is_quiet);
    assert_reply(second, 200, "hello", false); // accepted by the retry
    close(second);
    close(fd);
    close(earlier);
    fixture_stop(&server);
}

static void test_stop_idle(void **state)
{
    (void)state;
    start(2, 0, 0, 0);
    int fds[20];
    for (int i = 0; i < 20; i++) {
        fds[i] = client_connect(&server);
        client_expect(fds[i], GET_HELLO, 200);
    }
    int partial = client_connect(&server);
    client_send_text(partial, "GET /hel");
    fixture_stop(&server);
    assert_true(server.stop_ns < (i64)(2 * NS_PER_S));
    for (int i = 0; i < 20; i++) {
        assert_true(client_is_closed(fds[i]));
        close(fds[i]);
    }
    assert_true(client_is_closed(partial));
    close(partial);
}

// What runs when the stop comes is finished, and told that the connection ends.
static void test_stop_busy(void **state)
{
    (void)state;
    start(2, 0, 0, 0);
    int fds[10];
    for (int i = 0; i < 10; i++) {
        fds[i] = client_connect(&server);
        client_send_text(fds[i], GET_WAIT GET_HELLO);
    }
    for (int i = 0; i < 10; i++) {
        wait_entered();
    }
    int idle = client_connect(&server);
    client_expect(idle, GET_HELLO, 200);
    fixture_stop_begin(&server);
    while (__atomic_load_n(&server.stopping, __ATOMIC_ACQUIRE) < 2) {
        poll(NULL, 0, 1);
    }
    assert_true(client_is_closed(idle));
    __atomic_store_n(&server.release, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 10; i++) {
        struct reply r;
        client_reply(fds[i], &r);
        assert_int_equal(r.status, 200);
        reply_free(&r);
        assert_true(client_is_closed(fds[i])); // the pipelined one is not answered
        close(fds[i]);
    }
    close(idle);
    fixture_stop(&server);
}

// What does not finish in time is cancelled: handlers that wait, bodies that do not come, readers
// that do not read, and a client that never says goodbye.
static void test_stop_forced(void **state)
{
    (void)state;
    server = (struct fixture){.stop_grace_ns = 100 * NS_PER_MS};
    fixture_start(&server, 2);
    int waiting = client_connect(&server);
    client_send_text(waiting, GET_WAIT);
    wait_entered();
    int sending = client_connect(&server);
    client_send_text(sending, "PUT /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
                              "Expect: 100-continue\r\n\r\n");
    struct reply r;
    client_reply(sending, &r);
    assert_int_equal(r.status, 100); // the handler reads
    reply_free(&r);
    int reading = client_connect(&server);
    client_send_text(reading, "GET /gen?400000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    u8 some[1000];
    assert_true(client_receive(reading, some, sizeof(some)));
    int lingering = client_connect(&server);
    client_expect(lingering, "nonsense\r\n\r\n", 400);
    fixture_stop(&server);
    assert_in_range((u64)server.stop_ns, 90 * NS_PER_MS, 4 * NS_PER_S);
    close(waiting);
    close(sending);
    close(reading);
    close(lingering);
}

static void test_listen_errors(void **state)
{
    (void)state;
    static const char *const bad[] = {"",          "9000",        ":9000",         "1.2.3.4",
                                      "1.2.3:1",   "1.2.3.4:x",   "1.2.3.4:65536", "[::1]",
                                      "[::1]9000", "localhost:1", "[::1:1",        "1.2.3.4:"};
    int fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(http_listen(bad[i], true, &fd, NULL), ERR_INVALID);
    }
    assert_int_equal(http_listen("203.0.113.1:0", true, &fd, NULL), ERR_INVALID);
    u16 port = 0;
    int first = -1;
    char address[32];
    assert_int_equal(http_listen("127.0.0.1:0", true, &first, &port), OK);
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    assert_int_equal(http_listen(address, true, &fd, NULL), ERR_IN_USE); // another process
    int second = -1;
    assert_int_equal(http_listen(address, false, &second, NULL), OK); // another core
    close(first);
    close(second);
    assert_int_equal(http_listen(address, true, &first, NULL), OK); // free again at once
    close(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_slow_head),
        cmocka_unit_test(test_stalled_body),
        cmocka_unit_test(test_trickled_body),
        cmocka_unit_test(test_slow_but_fast_enough),
        cmocka_unit_test(test_reader_stalls),
        cmocka_unit_test(test_handler_deadline),
        cmocka_unit_test(test_closing_client_sends_on),
        cmocka_unit_test(test_connection_limit),
        cmocka_unit_test(test_fiber_limit),
        cmocka_unit_test(test_out_of_descriptors),
        cmocka_unit_test(test_stop_idle),
        cmocka_unit_test(test_stop_busy),
        cmocka_unit_test(test_stop_forced),
        cmocka_unit_test(test_listen_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
