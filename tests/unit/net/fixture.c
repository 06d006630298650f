// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "core/mailbox.h"

#define PIECE_BYTES ((size_t)100000)

u8 pattern(u64 offset)
{
    return (u8)((offset * 2654435761u) >> 13);
}

u64 hash_step(u64 hash, const void *data, size_t len)
{
    const u8 *p = data;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ p[i]) * 1099511628211ull;
    }
    return hash;
}

static u64 number_of(const struct http_exchange *x)
{
    u64 n = 0;
    return u64_parse(x->query, UINT32_MAX, &n) ? n : 0;
}

MAY_WAIT static void answer(struct http_exchange *x, u32 status, const char *text)
{
    enum err e = http_response_send(x, status, bytes_from_string(text));
    if (e != OK) {
        x->is_keep_alive = false;
    }
}

MAY_WAIT static void handle_echo(struct http_exchange *x)
{
    size_t cap = x->is_chunked ? 4 * MIB : x->content_length;
    u8 *buf = arena_alloc(&x->arena, cap + 1);
    size_t n = 0;
    enum err e = buf == NULL ? ERR_NO_MEMORY : http_body_read_full(x, buf, cap + 1, &n);
    if (e != OK) {
        answer(x, (u32)err_info(e)->http_status, err_name(e));
    } else if (http_response_send(x, 200, BYTES(buf, n)) != OK) {
        x->is_keep_alive = false;
    }
}

MAY_WAIT static void handle_sum(struct http_exchange *x)
{
    size_t piece = number_of(x) == 0 ? 65536 : number_of(x);
    u8 *buf = arena_alloc(&x->arena, piece);
    u64 hash = HASH_START;
    u64 total = 0;
    size_t n = 0;
    enum err e = OK;
    do {
        e = http_body_read(x, buf, piece, &n);
        hash = hash_step(hash, buf, n);
        total += n;
    } while (e == OK && n > 0);
    char text[80];
    snprintf(text, sizeof(text), "%llu %llx", (unsigned long long)total, (unsigned long long)hash);
    answer(x, e == OK ? 200 : (u32)err_info(e)->http_status, e == OK ? text : err_name(e));
}

MAY_WAIT static void handle_generate(struct http_exchange *x, bool is_chunked)
{
    u64 total = number_of(x);
    u8 *buf = arena_alloc(&x->arena, PIECE_BYTES);
    u64 at = 0;
    u64 piece = is_chunked ? 1 : PIECE_BYTES;
    enum err e = http_response_start(x, 200, is_chunked ? HTTP_LENGTH_CHUNKED : total);
    while (e == OK && at < total) {
        u64 n = MIN(piece, (u64)PIECE_BYTES);
        n = MIN(n, total - at);
        for (u64 i = 0; i < n; i++) {
            buf[i] = pattern(at + i);
        }
        e = http_response_write(x, BYTES(buf, n));
        at += n;
        piece = piece * 3 % 70001 + 1;
    }
}

MAY_WAIT static void handle_broken(struct http_exchange *x, bool is_abort)
{
    if (http_response_start(x, 200, 1000) == OK &&
        http_response_write(x, BYTES_LITERAL("some")) == OK && is_abort) {
        http_response_abort(x);
    }
}

MAY_WAIT static void handle_about(struct http_exchange *x)
{
    char text[1024];
    struct bytes agent = http_header_get(x, "x-agent");
    snprintf(text, sizeof(text),
             "method=%d text=%.*s target=%.*s path=%.*s query=%.*s%s agent=[%.*s] agents=%u "
             "count=%u length=%llu chunked=%d tls=%d",
             x->method, BYTES_PRINTF(x->method_text), BYTES_PRINTF(x->target),
             BYTES_PRINTF(x->path), BYTES_PRINTF(x->query), x->query.data == NULL ? "none" : "",
             BYTES_PRINTF(agent), http_header_count(x, "x-agent"), x->header_count,
             (unsigned long long)x->content_length, x->is_chunked, x->is_tls);
    http_response_header_text(x, "X-Peer", x->peer);
    answer(x, 200, text);
}

MAY_WAIT static void handle_big_head(struct http_exchange *x)
{
    char value[1001];
    memset(value, 'v', 1000);
    value[1000] = 0;
    for (u64 i = 0; i < number_of(x); i++) {
        http_response_header_text(x, "X-Big", value);
    }
    enum err e = http_response_start(x, 200, 0);
    if (e != OK) {
        answer(x, 500, e == ERR_LIMIT_REACHED ? "too large" : err_name(e));
    }
}

MAY_WAIT static void handle_wait(struct fixture *f, struct http_exchange *x)
{
    sem_post(&f->entered);
    while (__atomic_load_n(&f->release, __ATOMIC_ACQUIRE) == 0) {
        if (fiber_sleep(NS_PER_MS) != OK) {
            answer(x, 503, "cancelled");
            return;
        }
    }
    answer(x, 200, "released");
}

MAY_WAIT static void handle_first(struct http_exchange *x)
{
    u8 *buf = arena_alloc(&x->arena, number_of(x));
    size_t n = 0;
    enum err e = http_body_read_full(x, buf, number_of(x), &n);
    answer(x, 200, e == OK ? "first" : err_name(e));
}

MAY_WAIT static void handle_deadline(struct http_exchange *x)
{
    u8 buf[100];
    size_t n = 0;
    (void)fiber_set_deadline(core_now_ns() + 50 * NS_PER_MS);
    enum err e = http_body_read_full(x, buf, sizeof(buf), &n);
    answer(x, 200, err_name(e));
}

MAY_WAIT static void handle_204(struct http_exchange *x)
{
    answer(x, 204, "must not be sent");
}

static bool is_path(const struct http_exchange *x, const char *path)
{
    return bytes_equal(x->path, bytes_from_string(path));
}

MAY_WAIT static void handle_other(struct fixture *f, struct http_exchange *x)
{
    if (is_path(x, "/about") || x->target.data[0] == '*') {
        handle_about(x);
    } else if (is_path(x, "/bighead")) {
        handle_big_head(x);
    } else if (is_path(x, "/wait")) {
        handle_wait(f, x);
    } else if (is_path(x, "/first")) {
        handle_first(x);
    } else if (is_path(x, "/deadline")) {
        handle_deadline(x);
    } else if (is_path(x, "/204")) {
        handle_204(x);
    } else if (is_path(x, "/split")) {
        http_response_header_text(x, "X-Split", "a\r\nX-Evil: b");
        answer(x, 200, "split");
    } else {
        answer(x, 404, "no such path");
    }
}

MAY_WAIT static void handle(void *arg, struct http_exchange *x)
{
    struct fixture *f = arg;
    if (is_path(x, "/hello")) {
        answer(x, 200, "hello");
    } else if (is_path(x, "/echo")) {
        handle_echo(x);
    } else if (is_path(x, "/sum")) {
        handle_sum(x);
    } else if (is_path(x, "/gen") || is_path(x, "/chunked")) {
        handle_generate(x, is_path(x, "/chunked"));
    } else if (is_path(x, "/refuse")) {
        answer(x, 403, "refused");
    } else if (is_path(x, "/close")) {
        x->is_keep_alive = false;
        answer(x, 200, "closing");
    } else if (is_path(x, "/abort") || is_path(x, "/short")) {
        handle_broken(x, is_path(x, "/abort"));
    } else if (!is_path(x, "/silent")) {
        handle_other(f, x);
    }
}

static size_t error_body(void *arg, enum err e, char *out, size_t cap)
{
    (void)arg;
    return (size_t)snprintf(out, cap, "<Error><Code>%s</Code></Error>", err_info(e)->s3_code);
}

// ---- the server's thread

static void server_start(void *arg)
{
    struct fixture *f = arg;
    struct http_server_options o = f->options;
    o.listen_fd = f->fds[core_id()];
    o.handler = handle;
    o.error_body = error_body;
    o.arg = f;
    ASSERT(http_server_start(&o, &f->servers[core_id()]) == OK);
}

MAY_WAIT static void server_stop(void *arg)
{
    struct fixture *f = arg;
    // Nothing else runs on this core between this line and the server's knowing.
    __atomic_fetch_add(&f->stopping, 1, __ATOMIC_RELEASE);
    http_server_stop(f->servers[core_id()], core_now_ns() + f->stop_grace_ns);
}

static void stop_wait(void *arg)
{
    struct fixture *f = arg;
    while (sem_wait(&f->stop) != 0) {
    }
}

struct stop_call {
    struct fixture *f;
    u32 core;
};

MAY_WAIT static void stop_on_core(void *arg)
{
    struct stop_call *call = arg;
    ASSERT(core_call(call->core, server_stop, call->f) == OK);
}

// All cores at once: core_call_all would let each use up the grace before the next begins.
MAY_WAIT static void stop_all(struct fixture *f)
{
    struct stop_call calls[CORES_MAX];
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < f->cores; i++) {
        calls[i] = (struct stop_call){.f = f, .core = i};
        ASSERT(group_spawn(&g, stop_on_core, &calls[i]) == OK);
    }
    group_join(&g);
    group_deinit(&g);
}

MAY_WAIT static void runtime_main(void *arg)
{
    struct fixture *f = arg;
    ASSERT(core_call_all(server_start, f) == OK);
    sem_post(&f->started);
    ASSERT(blocking_call(stop_wait, f) == OK);
    u64 begin_ns = sys_mono_ns(core_sys());
    stop_all(f);
    f->stop_ns = (i64)(sys_mono_ns(core_sys()) - begin_ns);
}

static void *thread_main(void *arg)
{
    struct fixture *f = arg;
    // The rings are made by the server's thread: their task work interrupts the thread's system
    // calls, and the client has better things to do.
    struct runtime_options o = {.cores = f->cores, .buf_bytes = 32 * MIB, .fibers_max = 512};
    ASSERT(sys_real_create(&f->sys) == OK && runtime_create(f->sys, &o, &f->rt) == OK);
    f->result = runtime_run(f->rt, runtime_main, f);
    return NULL;
}

void fixture_start(struct fixture *f, u32 cores)
{
    f->cores = cores;
    f->stop_grace_ns = f->stop_grace_ns == 0 ? 5 * NS_PER_S : f->stop_grace_ns;
    f->release = 0;
    sem_init(&f->started, 0, 0);
    sem_init(&f->stop, 0, 0);
    sem_init(&f->entered, 0, 0);
    char address[32] = "127.0.0.1:0";
    for (u32 i = 0; i < cores; i++) {
        assert_int_equal(http_listen(address, i == 0, &f->fds[i], &f->port), OK);
        snprintf(address, sizeof(address), "127.0.0.1:%u", f->port);
    }
    assert_int_equal(pthread_create(&f->thread, NULL, thread_main, f), 0);
    while (sem_wait(&f->started) != 0) {
    }
}

void fixture_stop_begin(struct fixture *f)
{
    sem_post(&f->stop);
}

void fixture_stop(struct fixture *f)
{
    fixture_stop_begin(f);
    pthread_join(f->thread, NULL);
    assert_int_equal(f->result, OK);
    assert_int_equal(fixture_metric(f, METRIC_HTTP_CONNECTIONS), 0);
    assert_int_equal(fixture_metric(f, METRIC_CORE_BUF_USED_BYTES), 0);
    runtime_destroy(f->rt);
    f->sys->ops->destroy(f->sys);
    sem_destroy(&f->started);
    sem_destroy(&f->stop);
    sem_destroy(&f->entered);
}

i64 fixture_metric(struct fixture *f, enum metric m)
{
    return metric_sum(f->rt, m);
}

void fixture_metric_wait(struct fixture *f, enum metric m, i64 value)
{
    u64 end = client_now_ms() + CLIENT_TIMEOUT_MS;
    while (fixture_metric(f, m) != value && client_now_ms() < end) {
        poll(NULL, 0, 1);
    }
    assert_int_equal(fixture_metric(f, m), value);
}

// ---- the client

u64 client_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

int client_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct timeval tv = {.tv_sec = CLIENT_TIMEOUT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    return fd;
}

void client_socket_connect(const struct fixture *f, int fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(f->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

int client_connect(const struct fixture *f)
{
    int fd = client_socket();
    client_socket_connect(f, fd);
    return fd;
}

void client_send(int fd, const void *data, size_t len)
{
    const u8 *p = data;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            return; // the server has refused it; the reply tells
        }
        assert_true(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

void client_send_text(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

static long fd_read(void *connection, void *out, size_t cap)
{
    ssize_t n;
    do {
        n = recv(*(int *)connection, out, cap, 0);
    } while (n < 0 && errno == EINTR); // task work of the ring that this thread created
    assert_false(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    return n;
}

bool client_is_closed(int fd)
{
    u8 byte;
    return fd_read(&fd, &byte, 1) < 1;
}

bool client_is_quiet(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    u64 end = client_now_ms() + (u64)ms;
    int rc;
    do {
        u64 now = client_now_ms();
        rc = poll(&p, 1, now < end ? (int)(end - now) : 0);
    } while (rc < 0 && errno == EINTR);
    return rc == 0;
}

bool client_receive(int fd, void *out, size_t len)
{
    u8 *p = out;
    while (len > 0) {
        long n = fd_read(&fd, p, len);
        if (n < 1) {
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

// Reads up to and with "\r\n\r\n" (or "\r\n" when is_line), byte by byte.
static bool text_read(client_read_fn read_fn, void *connection, char *out, size_t cap, bool is_line)
{
    const char *end = is_line ? "\r\n" : "\r\n\r\n";
    size_t end_len = strlen(end);
    size_t n = 0;
    while (n < end_len || memcmp(out + n - end_len, end, end_len) != 0) {
        assert_true(n + 1 < cap);
        if (read_fn(connection, out + n, 1) < 1) {
            out[n] = 0;
            return false;
        }
        n++;
    }
    out[n] = 0;
    return true;
}

static bool body_read(client_read_fn read_fn, void *connection, struct reply *r, size_t len)
{
    r->body = realloc(r->body, r->length + len + 1);
    assert_non_null(r->body);
    size_t end = r->length + len;
    while (r->length < end) {
        long n = read_fn(connection, r->body + r->length, end - r->length);
        if (n < 1) {
            return false;
        }
        r->length += (size_t)n;
    }
    r->body[r->length] = 0;
    return true;
}

static bool chunks_read(client_read_fn read_fn, void *connection, struct reply *r)
{
    char line[64];
    while (true) {
        if (!text_read(read_fn, connection, line, sizeof(line), true)) {
            return false;
        }
        size_t n = strtoul(line, NULL, 16);
        if ((n > 0 && !body_read(read_fn, connection, r, n)) ||
            !text_read(read_fn, connection, line, sizeof(line), true)) {
            return false;
        }
        assert_string_equal(line, "\r\n");
        if (n == 0) {
            return true;
        }
    }
}

void reply_read(client_read_fn read_fn, void *connection, struct reply *r, bool has_no_body)
{
    *r = (struct reply){0};
    r->body = calloc(1, 1);
    r->head = calloc(1, REPLY_HEAD_BYTES);
    assert_true(r->body != NULL && r->head != NULL);
    if (!text_read(read_fn, connection, r->head, REPLY_HEAD_BYTES, false)) {
        r->is_cut = true;
        return;
    }
    assert_int_equal(sscanf(r->head, "HTTP/1.1 %d ", &r->status), 1);
    r->is_chunked = strstr(r->head, "Transfer-Encoding: chunked\r\n") != NULL;
    r->is_close = strstr(r->head, "Connection: close\r\n") != NULL;
    const char *length = strstr(r->head, "Content-Length: ");
    if (has_no_body || r->status == 204 || r->status == 304 || r->status < 200) {
        return;
    }
    if (r->is_chunked) {
        assert_null(length);
        r->is_cut = !chunks_read(read_fn, connection, r);
    } else if (length != NULL) {
        size_t n = strtoul(length + 16, NULL, 10);
        r->is_cut = !body_read(read_fn, connection, r, n);
    } else {
        assert_true(r->is_close);
        while (body_read(read_fn, connection, r, 1)) {
        }
    }
}

void client_reply(int fd, struct reply *r)
{
    reply_read(fd_read, &fd, r, false);
}

void client_reply_to_head(int fd, struct reply *r)
{
    reply_read(fd_read, &fd, r, true);
}

void reply_free(struct reply *r)
{
    free(r->body);
    free(r->head);
    r->body = NULL;
    r->head = NULL;
}

void client_expect(int fd, const char *request, int status)
{
    struct reply r;
    client_send_text(fd, request);
    client_reply(fd, &r);
    if (r.status != status) {
        print_error("request: %.200s\nreply: %.300s\n", request, r.head);
    }
    assert_int_equal(r.status, status);
    reply_free(&r);
}
