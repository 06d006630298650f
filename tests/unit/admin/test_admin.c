// SPDX-License-Identifier: Apache-2.0
// The dispatcher in the states that a test from outside cannot hold still: starting and draining,
// asked over a real socket while the reactor runs.
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "admin/admin.h"
#include "core/mailbox.h"

static const char *const domains[] = {"s3.test"};

// One request on a connection of its own; runs on a helper thread.
struct ask {
    u16 port;
    const char *request;
    char answer[4096];
};

static void ask_blocking(void *arg)
{
    struct ask *a = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(a->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t len = 0;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
        write(fd, a->request, strlen(a->request)) == (ssize_t)strlen(a->request)) {
        ssize_t n;
        while (len + 1 < sizeof(a->answer) &&
               (n = read(fd, a->answer + len, sizeof(a->answer) - 1 - len)) > 0) {
            len += (size_t)n;
        }
    }
    a->answer[len] = 0;
    close(fd);
}

static MAY_WAIT void expect(struct ask *a, const char *target, const char *host, int status,
                            const char *text)
{
    char request[256];
    char begin[32];
    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
             target, host);
    snprintf(begin, sizeof(begin), "HTTP/1.1 %d ", status);
    a->request = request;
    assert_int_equal(blocking_call(ask_blocking, a), OK);
    if (strncmp(a->answer, begin, strlen(begin)) != 0 || strstr(a->answer, text) == NULL) {
        fail_msg("%s: want %d and '%s', have: %s", target, status, text, a->answer);
    }
}

static MAY_WAIT void states_fiber(void *arg)
{
    (void)arg;
    struct admin_options options = {
        .cores = 1,
        .version = "1.2.3-test",
        .domains = domains,
        .domain_count = ARRAY_LEN(domains),
        .started_wall_ns = 1700000000123 * NS_PER_MS,
    };
    struct admin *admin;
    struct http_server *server;
    int fd = -1;
    struct ask *a = calloc(1, sizeof(*a)); // large for a fiber's stack
    assert_non_null(a);
    assert_int_equal(admin_create(&options, &admin), OK);
    assert_int_equal(http_listen("127.0.0.1:0", true, &fd, &a->port), OK);
    struct http_server_options o = {
        .listen_fd = fd, .handler = admin_handle, .error_body = admin_error_body, .arg = admin};
    assert_int_equal(http_server_start(&o, &server), OK);

    expect(a, "/-/live", "x", 200, "\r\n\r\nlive\n");
    expect(a, "/-/ready", "x", 503, "starting");
    expect(a, "/-/ready", "x", 503, "Retry-After: 1");
    expect(a, "/-/metrics", "x", 200, "leat_ready 0\n");
    expect(a, "/-/metrics", "x", 200, "leat_build_info{version=\"1.2.3-test\"} 1\n");
    expect(a, "/-/metrics", "x", 200, "leat_start_time_seconds 1700000000.123\n");
    expect(a, "/bucket/key", "x", 503, "Retry-After: 1");
    expect(a, "/bucket/key", "x", 503, "<Code>ServiceUnavailable</Code>");
    expect(a, "/-/live", "bucket.s3.test", 503, "<Code>ServiceUnavailable</Code>");
    expect(a, "/-/other", "x", 404, "/-/metrics");
    expect(a, "bad target", "x", 400, "<Code>");

    admin_set_state(admin, ADMIN_DRAINING, NULL);
    expect(a, "/-/live", "x", 200, "live");
    expect(a, "/-/ready", "x", 503, "draining");

    http_server_stop(server, core_now_ns() + 5 * NS_PER_S);
    admin_destroy(admin);
    free(a);
}

static void test_states(void **state)
{
    (void)state;
    struct sys *sys;
    struct runtime *rt;
    struct runtime_options options = {.cores = 1, .buf_bytes = 32 * MIB};
    assert_int_equal(sys_real_create(&sys), OK);
    assert_int_equal(runtime_create(sys, &options, &rt), OK);
    assert_int_equal(runtime_run(rt, states_fiber, NULL), OK);
    runtime_destroy(rt);
    sys->ops->destroy(sys);
}

static void test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        bool is_bucket;
    } cases[] = {
        {"bucket.s3.test", true}, {"bucket.s3.test:9000", true},
        {"a.b.c.S3.Test", true},  {"s3.test", false},
        {".s3.test", false},      {"", false},
        {"xs3.test", false},      {"bucket.s3.test.evil", false},
        {"s3.test:9000", false},  {"127.0.0.1:9000", false},
        {"[::1]:9000", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bytes host = bytes_from_string(cases[i].host);
        assert_int_equal(admin_host_is_bucket(host, domains, 1), cases[i].is_bucket);
        assert_false(admin_host_is_bucket(host, NULL, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
