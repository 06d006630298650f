// SPDX-License-Identifier: Apache-2.0
// A server that does nothing but HTTP, to be driven by wrk or s3bench and compared with nginx: GET
// answers BYTES bytes (default 4,096), PUT reads the body away. Prints its address and runs until
// its standard input ends.
//
//   bench_http ADDRESS:PORT [CORES [BYTES [CERT KEY]]]
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/mailbox.h"
#include "core/metrics.h"
#include "net/http.h"

#define BODY_BYTES_MAX (64 * MIB)
#define READ_BYTES     (256 * KIB)

struct bench {
    const char *address;
    u32 cores;
    struct bytes body;
    struct http_tls *tls;
    struct http_server *servers[CORES_MAX];
    int fds[CORES_MAX];
};

MAY_WAIT static void handle(void *arg, struct http_exchange *x)
{
    struct bench *b = arg;
    if (x->method == HTTP_PUT) {
        u8 *buf = arena_alloc(&x->arena, READ_BYTES);
        size_t n = 0;
        do {
            if (buf == NULL || http_body_read(x, buf, READ_BYTES, &n) != OK) {
                return;
            }
        } while (n > 0);
        (void)!http_response_send(x, 200, BYTES_NONE);
        return;
    }
    http_response_header_text(x, "ETag", "\"d41d8cd98f00b204e9800998ecf8427e\"");
    http_response_header_text(x, "Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT");
    http_response_header_text(x, "Content-Type", "application/octet-stream");
    if (http_response_send(x, 200, b->body) != OK) {
        x->is_keep_alive = false;
    }
}

static void server_start(void *arg)
{
    struct bench *b = arg;
    u32 core = core_id();
    struct http_server_options o = {
        .listen_fd = b->fds[core], .handler = handle, .arg = b, .tls = b->tls};
    if (http_server_start(&o, &b->servers[core]) != OK) {
        exit(1);
    }
}

MAY_WAIT static void server_stop(void *arg)
{
    struct bench *b = arg;
    http_server_stop(b->servers[core_id()], core_now_ns() + NS_PER_S);
}

static void input_wait(void *arg)
{
    (void)arg;
    char c;
    while (read(STDIN_FILENO, &c, 1) > 0) {
    }
}

MAY_WAIT static void bench_main(void *arg)
{
    struct bench *b = arg;
    if (core_call_all(server_start, b) != OK || blocking_call(input_wait, NULL) != OK ||
        core_call_all(server_stop, b) != OK) {
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    b.address = argc > 1 ? argv[1] : "127.0.0.1:9080";
    b.cores = argc > 2 ? (u32)atoi(argv[2]) : 1;
    size_t bytes = argc > 3 ? (size_t)atoll(argv[3]) : 4096;
    if (b.cores == 0 || b.cores > CORES_MAX || bytes > BODY_BYTES_MAX) {
        return 1;
    }
    b.body = BYTES(calloc(1, bytes + 1), bytes);
    if (argc > 5 && http_tls_create(argv[4], argv[5], &b.tls) != OK) {
        return 1;
    }
    for (u32 i = 0; i < b.cores; i++) {
        if (http_listen(b.address, i == 0, &b.fds[i], NULL) != OK) {
            return 1;
        }
    }
    struct sys *sys = NULL;
    struct runtime *rt = NULL;
    struct runtime_options o = {.cores = b.cores, .buf_bytes = 64 * MIB};
    if (sys_real_create(&sys) != OK || runtime_create(sys, &o, &rt) != OK) {
        return 1;
    }
    printf("%s %u cores, %zu bytes, pid %d\n", b.address, b.cores, bytes, getpid());
    fflush(stdout);
    enum err e = runtime_run(rt, bench_main, &b);
    printf("requests %lld\n", (long long)metric_sum(rt, METRIC_HTTP_REQUESTS));
    runtime_destroy(rt);
    sys->ops->destroy(sys);
    http_tls_destroy(b.tls);
    free((void *)(uintptr_t)b.body.data);
    return e == OK ? 0 : 1;
}
