// SPDX-License-Identifier: Apache-2.0
// `leat serve` before the reactors run: configuration, limits, listening sockets (so that a taken
// port is found before a drive is touched), certificates, reactors. Every way to fail has its exit
// code and a log line that says what to do.
#include "cli/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/process.h"
#include "sys/thread.h"

#define CONNECTIONS_DEFAULT 4096 // a core

static u32 cpu_count(void)
{
    cpu_set_t cpus;
    sys_thread_cpus(&cpus);
    int n = CPU_COUNT(&cpus);
    return n < 1 ? 1 : MIN((u32)n, (u32)CORES_MAX);
}

// What is missing altogether, or only wrong together with the number of cores.
static enum exit_code config_check(struct serve *s)
{
    const struct config *c = &s->config;
    if (c->drive_count == 0) {
        LOG_ERROR("config_invalid", "reason=\"no drive\" hint=\"give --drive DIR, or the key "
                                    "'drives' in the configuration file\"");
        return EXIT_CODE_CONFIG;
    }
    s->cores = c->cores != 0 ? c->cores : cpu_count();
    u64 buffer_bytes = c->store.buffer_bytes;
    if (buffer_bytes != 0 && buffer_bytes / s->cores < CONFIG_BUFFER_CORE_MIN) {
        LOG_ERROR("config_invalid",
                  "key=store.buffer_bytes reason=\"%llu bytes are too few for %u cores\" "
                  "hint=\"give at least %lluMiB, or fewer cores\"",
                  (unsigned long long)buffer_bytes, s->cores,
                  (unsigned long long)(CONFIG_BUFFER_CORE_MIN * s->cores / MIB));
        return EXIT_CODE_CONFIG;
    }
    return EXIT_CODE_OK;
}

// Shares the process's file descriptors between connections and the segments of drives.
static enum exit_code limits_check(struct serve *s)
{
    u64 limit = process_files_raise();
    u64 base = SERVE_FILES_BASE + (u64)SERVE_FILES_CORE * s->cores;
    u64 wanted = s->config.http.connections_max;
    u64 needed = MAX((u64)SERVE_FILES_MIN, base + wanted + SERVE_FILES_MIN / 4);
    if (limit < needed) {
        LOG_ERROR("too_few_files",
                  "limit=%llu needed=%llu hint=\"raise the limit of open files (ulimit -n, or "
                  "LimitNOFILE= in a systemd unit)%s\"",
                  (unsigned long long)limit, (unsigned long long)needed,
                  wanted > 0 ? " or lower http.connections_max" : "");
        return EXIT_CODE_LIMITS;
    }
    if (wanted == 0) {
        wanted = MIN((u64)CONNECTIONS_DEFAULT * s->cores, (limit - base) / 2);
    }
    s->connections_max = (u32)((wanted + s->cores - 1) / s->cores);
    LOG_DEBUG("limits", "files=%llu connections_max=%llu", (unsigned long long)limit,
              (unsigned long long)wanted);
    return EXIT_CODE_OK;
}

static enum exit_code door_open(struct serve *s, const char *address, bool is_tls)
{
    ASSERT(s->door_count < SERVE_DOORS_MAX);
    struct door *d = &s->doors[s->door_count++];
    *d = (struct door){.address = address, .is_tls = is_tls};
    for (u32 i = 0; i < CORES_MAX; i++) {
        d->fd[i] = -1;
    }
    char bound[128];
    snprintf(bound, sizeof(bound), "%s", address);
    for (u32 i = 0; i < s->cores; i++) {
        enum err e = http_listen(bound, i == 0, &d->fd[i], &d->port);
        if (e != OK) {
            return e == ERR_LIMIT_REACHED ? EXIT_CODE_LIMITS : EXIT_CODE_LISTEN;
        }
        if (i == 0) { // port 0: the others share what the kernel chose
            int host = (int)(strrchr(address, ':') - address);
            snprintf(bound, sizeof(bound), "%.*s:%u", host, address, d->port);
        }
    }
    return EXIT_CODE_OK;
}

static enum exit_code doors_open(struct serve *s)
{
    const struct config *c = &s->config;
    if (c->tls.cert != NULL) {
        enum err e = http_tls_create(c->tls.cert, c->tls.key, &s->tls);
        if (e != OK) {
            LOG_ERROR("tls_failed",
                      "cert=%s key=%s error=%s hint=\"both must be readable PEM files that fit "
                      "together\"",
                      c->tls.cert, c->tls.key, err_name(e));
            return EXIT_CODE_CONFIG;
        }
    }
    bool is_tls_apart = c->tls.cert != NULL && c->tls.listen != NULL;
    enum exit_code code = door_open(s, c->listen, c->tls.cert != NULL && !is_tls_apart);
    if (code == EXIT_CODE_OK && is_tls_apart) {
        code = door_open(s, c->tls.listen, true);
    }
    return code;
}

static enum exit_code exit_code_of_start(enum err e)
{
    if (e == ERR_UNSUPPORTED || e == ERR_PERMISSION) {
        return EXIT_CODE_KERNEL;
    }
    return e == ERR_LIMIT_REACHED || e == ERR_NO_MEMORY ? EXIT_CODE_LIMITS : EXIT_CODE_FAILURE;
}

static enum exit_code reactors_run(struct serve *s)
{
    struct runtime_options o = {
        .cores = s->cores,
        .buf_bytes = s->config.store.buffer_bytes / s->cores / (4 * KIB) * (4 * KIB),
        .is_pinned = s->cores <= cpu_count(),
        .is_registered = true,
    };
    enum err e = runtime_create(s->sys, &o, &s->rt);
    if (e != OK) {
        LOG_ERROR("start_failed",
                  "cores=%u error=%s hint=\"fewer cores, or less store.buffer_bytes, need less "
                  "memory and fewer descriptors\"",
                  s->cores, err_name(e));
        return exit_code_of_start(e);
    }
    s->code = EXIT_CODE_FAILURE;
    e = runtime_run(s->rt, serve_fiber, s);
    runtime_destroy(s->rt);
    return e == OK ? s->code : exit_code_of_start(e);
}

// From a configuration that was read to the end of the server.
static enum exit_code serve_configured(struct serve *s)
{
    enum exit_code code = config_check(s);
    if (code == EXIT_CODE_OK) {
        code = limits_check(s);
    }
    if (code == EXIT_CODE_OK) {
        code = doors_open(s);
    }
    if (code == EXIT_CODE_OK) {
        code = reactors_run(s);
    }
    for (u32 d = 0; d < s->door_count; d++) {
        for (u32 i = 0; i < s->cores; i++) {
            if (s->doors[d].fd[i] >= 0) {
                process_fd_close(s->doors[d].fd[i]);
            }
        }
    }
    if (s->tls != NULL) {
        http_tls_destroy(s->tls);
    }
    return code;
}

static enum exit_code serve_with_sys(struct serve *s)
{
    config_init(&s->config);
    enum exit_code code = EXIT_CODE_CONFIG;
    if (serve_config_load(&s->options, s->sys, &s->config) == OK) {
        process_log_init(s->config.log.level, s->config.log.is_json);
        s->signal_fd = process_signals_open();
        if (s->signal_fd >= 0) {
            code = serve_configured(s);
            process_fd_close(s->signal_fd);
        } else {
            LOG_ERROR("signals_failed", "hint=\"raise the limit of open files (ulimit -n)\"");
            code = EXIT_CODE_LIMITS;
        }
    }
    config_deinit(&s->config);
    return code;
}

int cli_serve_main(int argc, char **argv)
{
    struct serve *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return EXIT_CODE_LIMITS;
    }
    s->magic = SERVE_MAGIC;
    int code = serve_options_parse(&s->options, argc, argv);
    if (code == EXIT_CODE_OK) {
        enum log_level level = s->options.has_log_level ? s->options.log_level : LOG_LEVEL_INFO;
        process_log_init(level, s->options.has_log_format && s->options.is_json);
        enum err e = sys_real_create(&s->sys);
        if (e == OK) {
            s->started_ns = sys_mono_ns(s->sys);
            code = (int)serve_with_sys(s);
            s->sys->ops->destroy(s->sys);
        } else {
            code = (int)exit_code_of_start(e);
        }
    }
    s->magic = 0;
    free(s);
    return code;
}
