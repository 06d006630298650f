// SPDX-License-Identifier: Apache-2.0
// The dispatcher in front of S3, and the three endpoints without a signature.
#include "admin/admin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "core/metrics.h"

#define ADMIN_MAGIC         0x41646d6eu
#define METRICS_BYTES_FIRST (64 * KIB)
#define RETRY_AFTER_TEXT    "1"

struct admin_core {
    _Alignas(CACHE_LINE) enum admin_state state;
    struct s3 *s3;
};

struct admin {
    u32 magic;
    struct admin_options options;
    struct admin_core *core; // [options.cores]
};

enum err admin_create(const struct admin_options *o, struct admin **out)
{
    ASSERT(o->cores > 0 && o->version != NULL);
    struct admin *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return ERR_NO_MEMORY;
    }
    a->core = aligned_alloc(CACHE_LINE, o->cores * sizeof(*a->core));
    if (a->core == NULL) {
        free(a);
        return ERR_NO_MEMORY;
    }
    for (u32 i = 0; i < o->cores; i++) {
        a->core[i] = (struct admin_core){.state = ADMIN_STARTING};
    }
    a->magic = ADMIN_MAGIC;
    a->options = *o;
    *out = a;
    return OK;
}

void admin_destroy(struct admin *a)
{
    ASSERT_MAGIC(a, ADMIN_MAGIC);
    a->magic = 0;
    free(a->core);
    free(a);
}

static struct admin_core *core_of(struct admin *a)
{
    ASSERT_MAGIC(a, ADMIN_MAGIC);
    ASSERT(core_id() < a->options.cores);
    return &a->core[core_id()];
}

void admin_set_state(struct admin *a, enum admin_state state, struct s3 *s3)
{
    ASSERT(state != ADMIN_READY || s3 != NULL);
    struct admin_core *core = core_of(a);
    core->state = state;
    core->s3 = s3;
}

bool admin_host_is_bucket(struct bytes host, const char *const *domains, u32 domain_count)
{
    const u8 *colon = host.len == 0 ? NULL : memchr(host.data, ':', host.len);
    if (colon != NULL) {
        host.len = (size_t)(colon - host.data);
    }
    for (u32 i = 0; i < domain_count; i++) {
        struct bytes domain = bytes_from_string(domains[i]);
        if (host.len > domain.len + 1 && host.data[host.len - domain.len - 1] == '.' &&
            bytes_equal_nocase(BYTES(host.data + host.len - domain.len, domain.len), domain)) {
            return true;
        }
    }
    return false;
}

// ---- the three endpoints

// The client may have gone: then there is nobody to tell.
static MAY_WAIT void send_text(struct http_exchange *x, u32 status, struct bytes body)
{
    http_response_header_text(x, "Content-Type", "text/plain; charset=utf-8");
    http_response_header_text(x, "Cache-Control", "no-store");
    (void)!http_response_send(x, status, body);
}

static MAY_WAIT void answer_live(struct admin *a, struct http_exchange *x)
{
    (void)a;
    send_text(x, 200, BYTES_LITERAL("live\n"));
}

static MAY_WAIT void answer_ready(struct admin *a, struct http_exchange *x)
{
    switch (core_of(a)->state) {
    case ADMIN_READY:
        send_text(x, 200, BYTES_LITERAL("ready\n"));
        return;
    case ADMIN_STARTING:
        http_response_header_text(x, "Retry-After", RETRY_AFTER_TEXT);
        send_text(x, 503, BYTES_LITERAL("starting: the store is being recovered\n"));
        return;
    case ADMIN_DRAINING:
        send_text(x, 503, BYTES_LITERAL("draining: the server is stopping\n"));
        return;
    }
}

// The text of /-/metrics, growing in the request's arena.
struct page {
    struct arena *arena;
    char *text;
    size_t len;
    size_t cap;
    bool is_cut; // the arena had no more
};

static void page_write(void *arg, const char *text, size_t len)
{
    struct page *p = arg;
    if (!p->is_cut && p->len + len > p->cap) {
        size_t cap = MAX(2 * p->cap, METRICS_BYTES_FIRST);
        ASSERT(len <= cap - p->len);
        char *grown = arena_alloc(p->arena, cap);
        p->is_cut = grown == NULL;
        if (grown != NULL) {
            if (p->len > 0) {
                memcpy(grown, p->text, p->len);
            }
            p->text = grown;
            p->cap = cap;
        }
    }
    if (!p->is_cut) {
        memcpy(p->text + p->len, text, len);
        p->len += len;
    }
}

static void PRINTF_LIKE(2, 3) page_line(struct page *p, const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    ASSERT(n > 0 && (size_t)n < sizeof(line));
    page_write(p, line, (size_t)n);
}

static MAY_WAIT void answer_metrics(struct admin *a, struct http_exchange *x)
{
    struct page p = {.arena = &x->arena};
    page_line(&p,
              "# HELP leat_build_info The version that runs\n# TYPE leat_build_info gauge\n"
              "leat_build_info{version=\"%s\"} 1\n",
              a->options.version);
    page_line(&p,
              "# HELP leat_start_time_seconds When the process started, since 1970\n"
              "# TYPE leat_start_time_seconds gauge\nleat_start_time_seconds %llu.%03u\n",
              (unsigned long long)(a->options.started_wall_ns / NS_PER_S),
              (unsigned)(a->options.started_wall_ns % NS_PER_S / NS_PER_MS));
    page_line(&p,
              "# HELP leat_ready Whether requests are served\n# TYPE leat_ready gauge\n"
              "leat_ready %d\n",
              core_of(a)->state == ADMIN_READY);
    page_line(&p, "# HELP leat_cores Reactors\n# TYPE leat_cores gauge\nleat_cores %u\n",
              a->options.cores);
    metrics_prometheus(reactor_runtime(reactor_current()), page_write, &p);
    if (p.is_cut) {
        send_text(x, 503, BYTES_LITERAL("no memory for the metrics\n"));
        return;
    }
    http_response_header_text(x, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    http_response_header_text(x, "Cache-Control", "no-store");
    (void)!http_response_send(x, 200, BYTES(p.text, p.len));
}

struct endpoint {
    const char *path;
    void (*answer)(struct admin *a, struct http_exchange *x);
};

static const struct endpoint endpoints[] = {
    {"/-/live", answer_live},
    {"/-/ready", answer_ready},
    {"/-/metrics", answer_metrics},
};

static MAY_WAIT void answer_endpoint(struct admin *a, struct http_exchange *x)
{
    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
        if (!bytes_equal(x->path, bytes_from_string(endpoints[i].path))) {
            continue;
        }
        if (x->method != HTTP_GET && x->method != HTTP_HEAD) {
            http_response_header_text(x, "Allow", "GET, HEAD");
            send_text(x, 405, BYTES_LITERAL("only GET and HEAD\n"));
            return;
        }
        endpoints[i].answer(a, x);
        return;
    }
    send_text(x, 404, BYTES_LITERAL("only /-/live, /-/ready and /-/metrics\n"));
}

// ---- dispatch

static MAY_WAIT void answer_not_ready(struct http_exchange *x)
{
    char body[512];
    size_t len = s3_error_body(NULL, ERR_DEADLINE, body, sizeof(body));
    http_response_header_text(x, "Content-Type", "application/xml");
    http_response_header_text(x, "Retry-After", RETRY_AFTER_TEXT);
    (void)!http_response_send(x, 503, BYTES(body, len));
}

static bool is_endpoint(const struct admin *a, const struct http_exchange *x)
{
    struct bytes prefix = BYTES_LITERAL("/-/");
    bool is_below = bytes_has_prefix(x->path, prefix) || bytes_equal(x->path, BYTES_LITERAL("/-"));
    return is_below && !admin_host_is_bucket(http_header_get(x, "host"), a->options.domains,
                                             a->options.domain_count);
}

void admin_handle(void *arg, struct http_exchange *x)
{
    struct admin *a = arg;
    struct admin_core *core = core_of(a);
    if (UNLIKELY(x->path.len > 1 && x->path.data[1] == '-') && is_endpoint(a, x)) {
        answer_endpoint(a, x);
    } else if (core->s3 == NULL) {
        answer_not_ready(x);
    } else {
        s3_handle(core->s3, x);
    }
}

size_t admin_error_body(void *arg, enum err e, char *out, size_t cap)
{
    struct admin *a = arg;
    ASSERT_MAGIC(a, ADMIN_MAGIC);
    return s3_error_body(core_of(a)->s3, e, out, cap);
}
