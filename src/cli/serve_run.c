// SPDX-License-Identifier: Apache-2.0
// `leat serve` while the reactors run. The main fiber (core 0) starts the servers of all cores,
// which answer 503 at first; opens the store in a fiber of its own, which a signal may cancel;
// declares it ready; waits for SIGTERM; and takes everything down in the opposite order. A second
// fiber reads signals. When stopping takes too long a timer ends the process: for the store that is
// as good as any other end.
#include "cli/serve.h"

#include <stdio.h>
#include <string.h>

#include "admin/credentials.h"
#include "cli/process.h"
#include "core/fileio.h"
#include "core/metrics.h"

// ---- servers

static MAY_WAIT void servers_start_here(void *arg)
{
    struct serve *s = arg;
    u32 core = core_id();
    const struct config_http *h = &s->config.http;
    enum err e = OK;
    for (u32 i = 0; i < s->door_count && e == OK; i++) {
        struct door *d = &s->doors[i];
        struct http_server_options o = {
            .listen_fd = d->fd[core],
            .handler = admin_handle,
            .error_body = admin_error_body,
            .arg = s->admin,
            .tls = d->is_tls ? s->tls : NULL,
            .connections_max = s->connections_max,
            .head_timeout_ns = h->head_timeout_ns,
            .idle_timeout_ns = h->idle_timeout_ns,
            .progress_timeout_ns = h->progress_timeout_ns,
            .body_rate_min = h->body_rate_min,
        };
        e = http_server_start(&o, &d->server[core]);
        if (e == OK) {
            d->fd[core] = -1; // the server's now
        }
    }
    s->core_result[core] = e;
}

static MAY_WAIT enum err servers_start(struct serve *s)
{
    TRY(core_call_all(servers_start_here, s));
    for (u32 i = 0; i < s->cores; i++) {
        TRY(s->core_result[i]);
    }
    return OK;
}

static MAY_WAIT void servers_stop_here(void *arg)
{
    struct serve *s = arg;
    for (u32 i = 0; i < s->door_count; i++) {
        struct http_server *server = s->doors[i].server[core_id()];
        if (server != NULL) {
            http_server_stop(server, s->drain_deadline_ns);
            s->doors[i].server[core_id()] = NULL;
        }
    }
}

struct core_stop {
    struct serve *s;
    u32 core;
};

static MAY_WAIT void servers_stop_there(void *arg)
{
    struct core_stop *stop = arg;
    if (core_call(stop->core, servers_stop_here, stop->s) != OK) {
        LOG_ERROR("stop_failed", "core=%u hint=\"all of its fibers are busy\"", stop->core);
        process_exit_now(EXIT_CODE_FAILURE);
    }
}

// All cores at once: each waits for its own requests.
static MAY_WAIT void servers_stop(struct serve *s)
{
    struct core_stop stops[CORES_MAX];
    struct group g;
    group_init(&g);
    for (u32 i = 0; i < s->cores; i++) {
        stops[i] = (struct core_stop){.s = s, .core = i};
        if (group_spawn(&g, servers_stop_there, &stops[i]) != OK) {
            servers_stop_there(&stops[i]);
        }
    }
    group_join(&g);
    group_deinit(&g);
}

static MAY_WAIT void state_set_here(void *arg)
{
    struct serve *s = arg;
    admin_set_state(s->admin, s->state, s->s3);
}

static MAY_WAIT enum err state_set(struct serve *s, enum admin_state state)
{
    s->state = state;
    return core_call_all(state_set_here, s);
}

// ---- becoming ready

struct credentials_job {
    struct serve *s;
    struct credentials result;
    enum err e;
};

static void credentials_job(void *arg)
{
    struct credentials_job *job = arg;
    job->e =
        credentials_obtain(job->s->sys, job->s->config.drives[0], process_file_mode, &job->result);
}

// The credentials of environment or file, else the generated ones, which it keeps in the
// configuration's memory.
static MAY_WAIT enum exit_code credentials_provide(struct serve *s)
{
    struct config *c = &s->config;
    if (c->credential_count > 0) {
        return EXIT_CODE_OK;
    }
    struct credentials_job job = {.s = s};
    enum err e = blocking_call(credentials_job, &job);
    if (e != OK || job.e != OK) {
        bool is_config = job.e == ERR_INVALID || job.e == ERR_PERMISSION;
        return is_config ? EXIT_CODE_CONFIG : EXIT_CODE_DRIVE;
    }
    struct bytes access = arena_copy(&c->arena, bytes_from_string(job.result.access_key));
    struct bytes secret = arena_copy(&c->arena, bytes_from_string(job.result.secret_key));
    if (access.data == NULL || secret.data == NULL) {
        return EXIT_CODE_LIMITS;
    }
    c->credentials[0] =
        (struct s3_credential){(const char *)access.data, (const char *)secret.data};
    c->credential_count = 1;
    LOG_INFO(job.result.is_generated ? "credentials_generated" : "credentials_read",
             "file=%s/" CREDENTIALS_FILE " access_key_id=%s", c->drives[0], job.result.access_key);
    return EXIT_CODE_OK;
}

static enum exit_code exit_code_of_store(enum err e)
{
    return e == ERR_LIMIT_REACHED || e == ERR_NO_MEMORY ? EXIT_CODE_LIMITS : EXIT_CODE_DRIVE;
}

static MAY_WAIT enum exit_code store_start(struct serve *s)
{
    const struct config *c = &s->config;
    struct store_options o = {
        .drives = c->drives,
        .drive_count = c->drive_count,
        .pg_count = c->store.placement_groups,
        .segment_bytes = c->store.segment_bytes,
        .drive_bytes_max = c->store.drive_bytes_max,
        .cache_bytes = (size_t)c->store.cache_bytes,
        .accepts_losses = c->store.accepts_losses,
    };
    enum err e = store_open(&o, &s->store);
    if (e != OK) {
        return exit_code_of_store(e); // the store has said which drive, and what to do
    }
    struct meta_options meta_options = {
        .part_bytes_min = META_PART_BYTES_MIN,
        .upload_expiry_ns = c->uploads.expire_after_ns,
    };
    e = meta_open(s->store, &meta_options, &s->meta);
    if (e != OK) {
        LOG_ERROR("buckets_not_opened", "drive=%s error=%s text=\"%s\"", c->drives[0], err_name(e),
                  err_text(e));
        return exit_code_of_store(e);
    }
    return EXIT_CODE_OK;
}

static MAY_WAIT enum exit_code s3_start(struct serve *s)
{
    const struct config *c = &s->config;
    struct s3_options o = {
        .meta = s->meta,
        .credentials = c->credentials,
        .credential_count = c->credential_count,
        .region = c->region,
        .domains = c->domains,
        .domain_count = c->domain_count,
    };
    enum err e = s3_create(&o, s->cores, &s->s3);
    if (e != OK) {
        return e == ERR_NO_MEMORY ? EXIT_CODE_LIMITS : EXIT_CODE_CONFIG;
    }
    return state_set(s, ADMIN_READY) == OK ? EXIT_CODE_OK : EXIT_CODE_FAILURE;
}

static void log_ready(struct serve *s)
{
    u64 ms = (sys_mono_ns(s->sys) - s->started_ns) / NS_PER_MS;
    for (u32 i = 0; i < s->door_count; i++) {
        const struct door *d = &s->doors[i];
        int host = (int)(strrchr(d->address, ':') - d->address);
        LOG_INFO("ready", "endpoint=%s://%.*s:%u cores=%u drives=%u keys=%lld ms=%llu",
                 d->is_tls ? "https" : "http", host, d->address, d->port, s->cores,
                 s->config.drive_count, (long long)metric_sum(s->rt, METRIC_STORE_KEYS),
                 (unsigned long long)ms);
    }
}

static MAY_WAIT void boot_fiber(void *arg)
{
    struct serve *s = arg;
    s->code = store_start(s);
    if (s->code == EXIT_CODE_OK) {
        s->code = credentials_provide(s);
    }
    if (s->code == EXIT_CODE_OK) {
        s->code = s3_start(s);
    }
    if (s->code == EXIT_CODE_OK && !s->is_stopping) {
        log_ready(s);
    }
}

// ---- signals

static void watchdog_fired(struct timer *t)
{
    (void)t;
    LOG_ERROR("stop_timeout",
              "ms=%llu hint=\"requests or drives did not end in time; nothing "
              "acknowledged is lost\"",
              (unsigned long long)(SERVE_STOP_NS_MAX / NS_PER_MS));
    process_exit_now(EXIT_CODE_FAILURE);
}

static void stop_begin(struct serve *s)
{
    if (s->is_stopping) {
        LOG_WARN("stopping_at_once", "reason=\"second signal\"");
        process_exit_now(EXIT_CODE_FAILURE);
    }
    LOG_INFO("stopping", "hint=\"finishing requests under way; signal again to stop at once\"");
    s->is_stopping = true;
    s->drain_deadline_ns = core_now_ns() + SERVE_DRAIN_NS_MAX;
    timer_arm(&s->watchdog, core_now_ns() + SERVE_STOP_NS_MAX);
    group_cancel(&s->boot);
    event_set(&s->stop);
}

// On the helper pool: it reads files.
static void reload_job(void *arg)
{
    struct serve *s = arg;
    struct config c;
    config_init(&c);
    if (serve_config_load(&s->options, s->sys, &c) == OK) {
        log_set_level(c.log.level);
        enum err e = s->tls != NULL ? http_tls_reload(s->tls) : OK;
        if (e == OK) {
            LOG_INFO("reloaded", "tls=%s", s->tls != NULL ? "yes" : "none");
        } else {
            LOG_ERROR("tls_not_reloaded", "error=%s hint=\"the files loaded before stay in use\"",
                      err_name(e));
        }
    } else {
        LOG_ERROR("not_reloaded", "hint=\"the configuration loaded before stays in use\"");
    }
    config_deinit(&c);
}

static MAY_WAIT void signal_fiber(void *arg)
{
    struct serve *s = arg;
    u8 record[PROCESS_SIGNAL_BYTES];
    while (!s->is_over) {
        s->signal_op = (struct io_op){
            .kind = IO_READ, .fd = s->signal_fd, .buf = record, .len = sizeof(record)};
        i32 n = io_run(&s->signal_op);
        if (n != (i32)sizeof(record)) {
            if (!s->is_over) {
                LOG_ERROR("signals_failed", "errno=%d", -n);
            }
            return;
        }
        enum process_signal signal = process_signal_of(record);
        if (signal == PROCESS_SIGNAL_STOP) {
            stop_begin(s);
        } else if (signal == PROCESS_SIGNAL_RELOAD && blocking_call(reload_job, s) != OK) {
            LOG_ERROR("not_reloaded", "hint=\"the helper threads are busy; try again\"");
        }
    }
}

static MAY_WAIT void signals_end(struct serve *s, struct group *signals)
{
    s->is_over = true;
    if (s->signal_op.state == IO_IN_FLIGHT) {
        struct io_op cancel = {.kind = IO_CANCEL, .target = &s->signal_op};
        (void)io_run(&cancel);
    }
    group_join(signals);
}

// ---- the whole

// In the opposite order of starting. What was never opened is left out.
static MAY_WAIT void take_down(struct serve *s)
{
    if (s->drain_deadline_ns == 0) {
        s->drain_deadline_ns = core_now_ns() + NS_PER_S; // it failed to start: only 503s are left
    }
    if (state_set(s, ADMIN_DRAINING) != OK) {
        LOG_WARN("drain_not_announced", "hint=\"all fibers are busy\"");
    }
    servers_stop(s);
    if (s->s3 != NULL) {
        s3_destroy(s->s3);
    }
    if (s->meta != NULL) {
        meta_close(s->meta);
    }
    if (s->store != NULL) {
        store_close(s->store);
    }
}

static MAY_WAIT void serve_until_told(struct serve *s)
{
    enum err e = servers_start(s);
    if (e == OK) {
        e = group_spawn(&s->boot, boot_fiber, s);
    }
    if (e != OK) {
        s->code = EXIT_CODE_LIMITS;
    }
    group_join(&s->boot);
    if (s->code == EXIT_CODE_OK) {
        event_wait_certain(&s->stop);
    }
    if (s->is_stopping) {
        s->code = EXIT_CODE_OK; // also when it interrupted the start
    }
    take_down(s);
}

void serve_fiber(void *arg)
{
    struct serve *s = arg;
    ASSERT_MAGIC(s, SERVE_MAGIC);
    struct admin_options options = {
        .cores = s->cores,
        .version = cli_version(),
        .domains = s->config.domains,
        .domain_count = s->config.domain_count,
        .started_wall_ns = core_wall_ns(),
    };
    if (admin_create(&options, &s->admin) != OK) {
        s->code = EXIT_CODE_LIMITS;
        return;
    }
    event_init(&s->stop);
    group_init(&s->boot); // a signal may cancel it at any time: it stays until signals have ended
    timer_init(&s->watchdog, watchdog_fired);
    struct group signals;
    group_init(&signals);
    if (group_spawn(&signals, signal_fiber, s) == OK) {
        serve_until_told(s);
        signals_end(s, &signals);
    } else {
        s->code = EXIT_CODE_LIMITS;
    }
    group_deinit(&signals);
    group_deinit(&s->boot);
    timer_disarm(&s->watchdog);
    admin_destroy(s->admin);
    if (s->is_stopping) {
        LOG_INFO("stopped", "ms=%llu",
                 (unsigned long long)((core_now_ns() + SERVE_DRAIN_NS_MAX - s->drain_deadline_ns) /
                                      NS_PER_MS));
    }
}
