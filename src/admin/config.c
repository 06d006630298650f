// SPDX-License-Identifier: Apache-2.0
// From the texts of the configuration file to values that hold: each is checked where it is taken
// over, and an error names its key and line and says what is expected.
#include "admin/config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/config_private.h"
#include "admin/values.h"
#include "base/text.h"

#define CONFIG_ARENA_BYTES (4 * CONFIG_FILE_BYTES_MAX)
#define DRIVE_PATH_LEN_MAX 1023
#define DOMAIN_LEN_MAX     253
#define REGION_LEN_MAX     63
#define BUFFER_BYTES_MAX   ((u64)TIB)

// One parse: what has been read, where it stands, where errors go.
struct taking {
    struct config *c;
    const struct config_lines *lines;
    struct config_error *error;
};

void config_init(struct config *c)
{
    *c = (struct config){
        .listen = CONFIG_LISTEN_DEFAULT,
        .region = CONFIG_REGION_DEFAULT,
        .log = {.level = LOG_LEVEL_INFO},
        .store = {.cache_bytes = CONFIG_CACHE_BYTES},
    };
    arena_init(&c->arena, CONFIG_ARENA_BYTES);
}

void config_deinit(struct config *c)
{
    arena_deinit(&c->arena);
    *c = (struct config){0};
}

enum err config_fail(struct config_error *error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(error->text, sizeof(error->text), fmt, args);
    va_end(args);
    return ERR_INVALID;
}

const char *config_key_help(const char *path)
{
    static const struct {
        const char *path;
        const char *help;
    } keys[] = {
#define KEY(path, help) {path, help},
#include "admin/config.def"
#undef KEY
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i].path, path) == 0) {
            return keys[i].help;
        }
    }
    return "a value";
}

static enum err fail_at(struct taking *t, const char *path, u32 index)
{
    return config_fail(t->error, "key '%s' at line %u must be %s", path,
                       config_lines_find(t->lines, path, index), config_key_help(path));
}

static enum err text_take(struct taking *t, const char *from, const char **out)
{
    struct bytes copy = arena_copy(&t->c->arena, bytes_from_string(from));
    if (copy.data == NULL) {
        return ERR_NO_MEMORY;
    }
    *out = (const char *)copy.data;
    return OK;
}

static enum err number_take(struct taking *t, const char *path, const char *from, u64 min, u64 max,
                            u32 *out)
{
    u64 value;
    if (from == NULL) {
        return OK;
    }
    if (!u64_parse(bytes_from_string(from), max, &value) || value < min) {
        return fail_at(t, path, 0);
    }
    *out = (u32)value;
    return OK;
}

static enum err size_take(struct taking *t, const char *path, const char *from, u64 min, u64 max,
                          u64 *out)
{
    u64 value;
    if (from == NULL) {
        return OK;
    }
    if (!size_parse(from, &value) || value < min || value > max) {
        return fail_at(t, path, 0);
    }
    *out = value;
    return OK;
}

static enum err duration_take(struct taking *t, const char *path, const char *from, u64 *out_ns)
{
    u64 value;
    if (from == NULL) {
        return OK;
    }
    if (!duration_parse(from, &value) || value == 0) {
        return fail_at(t, path, 0);
    }
    *out_ns = value;
    return OK;
}

static enum err address_take(struct taking *t, const char *path, const char *from, const char **out)
{
    if (from == NULL) {
        return OK;
    }
    if (!address_is_valid(from)) {
        return fail_at(t, path, 0);
    }
    return text_take(t, from, out);
}

// A text of 1 to len_max bytes without blanks or control characters.
static bool is_word(const char *text, size_t len_min, size_t len_max, const char *extra)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        u8 c = (u8)text[i];
        bool is_good = extra == NULL ? c > 0x20 && c < 0x7f
                                     : c < 0x80 && (isalnum(c) || strchr(extra, c) != NULL);
        if (!is_good) {
            return false;
        }
    }
    return len >= len_min && len <= len_max;
}

bool config_access_key_is_valid(const char *text)
{
    // No '/': it ends the key within the scope of a signature.
    return is_word(text, CONFIG_ACCESS_KEY_MIN, S3_ACCESS_KEY_MAX, "_-.+=");
}

bool config_secret_key_is_valid(const char *text)
{
    return is_word(text, CONFIG_SECRET_KEY_MIN, S3_SECRET_KEY_MAX, NULL);
}

static enum err drives_take(struct taking *t, const struct raw_config *raw)
{
    for (u32 i = 0; i < raw->drives_count; i++) {
        const char *path = raw->drives[i];
        if (path[0] == 0 || strlen(path) > DRIVE_PATH_LEN_MAX) {
            return fail_at(t, "drives[]", i);
        }
        for (u32 j = 0; j < i; j++) {
            if (strcmp(path, raw->drives[j]) == 0) {
                return config_fail(t->error, "drive '%s' at line %u stands already at line %u",
                                   path, config_lines_find(t->lines, "drives[]", i),
                                   config_lines_find(t->lines, "drives[]", j));
            }
        }
        TRY(text_take(t, path, &t->c->drives[i]));
    }
    t->c->drive_count = raw->drives_count;
    return OK;
}

static enum err domains_take(struct taking *t, const struct raw_config *raw)
{
    for (u32 i = 0; i < raw->domains_count; i++) {
        const char *name = raw->domains[i];
        if (!is_word(name, 1, DOMAIN_LEN_MAX, "-._") || name[0] == '.') {
            return fail_at(t, "domains[]", i);
        }
        TRY(text_take(t, name, &t->c->domains[i]));
    }
    t->c->domain_count = raw->domains_count;
    return OK;
}

static enum err credentials_take(struct taking *t, const struct raw_config *raw)
{
    for (u32 i = 0; i < raw->credentials_count; i++) {
        const struct raw_credential *from = &raw->credentials[i];
        struct s3_credential *to = &t->c->credentials[i];
        if (from->access_key_id == NULL || from->secret_access_key == NULL) {
            return fail_at(t, "credentials[]", i);
        }
        if (!config_access_key_is_valid(from->access_key_id)) {
            return fail_at(t, "credentials[].access_key_id", i);
        }
        if (!config_secret_key_is_valid(from->secret_access_key)) {
            return fail_at(t, "credentials[].secret_access_key", i);
        }
        for (u32 j = 0; j < i; j++) {
            if (strcmp(from->access_key_id, t->c->credentials[j].access_key) == 0) {
                return config_fail(t->error, "access key '%s' at line %u is given twice",
                                   from->access_key_id,
                                   config_lines_find(t->lines, "credentials[].access_key_id", i));
            }
        }
        TRY(text_take(t, from->access_key_id, &to->access_key));
        TRY(text_take(t, from->secret_access_key, &to->secret_key));
    }
    t->c->credential_count = raw->credentials_count;
    return OK;
}

static enum err tls_take(struct taking *t, const struct raw_config *raw)
{
    if (raw->tls.cert == NULL && raw->tls.key == NULL && raw->tls.listen == NULL) {
        return OK;
    }
    u32 line = config_lines_find(t->lines, "tls", 0);
    if (raw->tls.cert == NULL || raw->tls.key == NULL) {
        return config_fail(t->error, "key 'tls' at line %u must have both cert and key", line);
    }
    if (raw->tls.cert[0] == 0) {
        return fail_at(t, "tls.cert", 0);
    }
    if (raw->tls.key[0] == 0) {
        return fail_at(t, "tls.key", 0);
    }
    TRY(text_take(t, raw->tls.cert, &t->c->tls.cert));
    TRY(text_take(t, raw->tls.key, &t->c->tls.key));
    return address_take(t, "tls.listen", raw->tls.listen, &t->c->tls.listen);
}

static enum err log_take(struct taking *t, const struct raw_config *raw)
{
    if (raw->log.level != NULL && !log_level_parse(raw->log.level, &t->c->log.level)) {
        return fail_at(t, "log.level", 0);
    }
    if (raw->log.format != NULL) {
        t->c->log.is_json = strcmp(raw->log.format, "json") == 0;
        if (!t->c->log.is_json && strcmp(raw->log.format, "text") != 0) {
            return fail_at(t, "log.format", 0);
        }
    }
    return OK;
}

static enum err bool_take(struct taking *t, const char *path, const char *text, bool *out)
{
    if (text == NULL) {
        return OK;
    }
    *out = strcmp(text, "true") == 0;
    return *out || strcmp(text, "false") == 0 ? OK : fail_at(t, path, 0);
}

static enum err store_take(struct taking *t, const struct raw_config *raw)
{
    struct config_store *s = &t->c->store;
    TRY(number_take(t, "store.placement_groups", raw->store.placement_groups, 1, STORE_PGS_MAX,
                    &s->placement_groups));
    if (s->placement_groups != 0 && !IS_POWER_OF_TWO(s->placement_groups)) {
        return fail_at(t, "store.placement_groups", 0);
    }
    TRY(size_take(t, "store.segment_bytes", raw->store.segment_bytes, STORE_SEGMENT_BYTES_MIN,
                  STORE_SEGMENT_BYTES_MAX, &s->segment_bytes));
    if (s->segment_bytes % (4 * KIB) != 0) {
        return fail_at(t, "store.segment_bytes", 0);
    }
    TRY(size_take(t, "store.drive_bytes_max", raw->store.drive_bytes_max, 0, UINT64_MAX,
                  &s->drive_bytes_max));
    TRY(bool_take(t, "store.accept_losses", raw->store.accept_losses, &s->accepts_losses));
    TRY(size_take(t, "store.cache_bytes", raw->store.cache_bytes, 0, TIB, &s->cache_bytes));
    return size_take(t, "store.buffer_bytes", raw->store.buffer_bytes, CONFIG_BUFFER_CORE_MIN,
                     BUFFER_BYTES_MAX, &s->buffer_bytes);
}

static enum err http_take(struct taking *t, const struct raw_config *raw)
{
    struct config_http *h = &t->c->http;
    TRY(number_take(t, "http.connections_max", raw->http.connections_max, 1, CONFIG_CONNECTIONS_MAX,
                    &h->connections_max));
    TRY(duration_take(t, "http.head_timeout", raw->http.head_timeout, &h->head_timeout_ns));
    TRY(duration_take(t, "http.idle_timeout", raw->http.idle_timeout, &h->idle_timeout_ns));
    TRY(duration_take(t, "http.progress_timeout", raw->http.progress_timeout,
                      &h->progress_timeout_ns));
    return size_take(t, "http.body_rate_min", raw->http.body_rate_min, 1, TIB, &h->body_rate_min);
}

static enum err config_take(struct taking *t, const struct raw_config *raw)
{
    TRY(address_take(t, "listen", raw->listen, &t->c->listen));
    TRY(drives_take(t, raw));
    TRY(number_take(t, "cores", raw->cores, 1, CORES_MAX, &t->c->cores));
    if (raw->region != NULL) {
        if (!is_word(raw->region, 1, REGION_LEN_MAX, "-_")) {
            return fail_at(t, "region", 0);
        }
        TRY(text_take(t, raw->region, &t->c->region));
    }
    TRY(domains_take(t, raw));
    TRY(credentials_take(t, raw));
    TRY(tls_take(t, raw));
    TRY(log_take(t, raw));
    TRY(store_take(t, raw));
    TRY(duration_take(t, "uploads.expire_after", raw->uploads.expire_after,
                      &t->c->uploads.expire_after_ns));
    return http_take(t, raw);
}

enum err config_parse(struct config *c, struct bytes yaml, struct config_error *error)
{
    struct config_lines lines = {0};
    struct raw_config *raw = NULL;
    error->text[0] = 0;
    if (yaml.len == 0) {
        return OK;
    }
    enum err e = config_lines_read(&lines, yaml, error);
    if (e == OK && lines.count > 0) {
        e = raw_config_load(yaml, &raw, error);
    }
    if (e == OK && raw != NULL) {
        struct taking t = {.c = c, .lines = &lines, .error = error};
        e = config_take(&t, raw);
    }
    raw_config_free(raw);
    config_lines_free(&lines);
    return e;
}

static enum err file_read_whole(struct sys *sys, const char *path, struct arena *arena,
                                struct bytes *out, struct config_error *error)
{
    int fd;
    enum err e = sys->ops->file_open(sys, path, SYS_OPEN_READ, &fd);
    if (e != OK) {
        return config_fail(error, "the file cannot be opened: %s",
                           e == ERR_NOT_FOUND    ? "it does not exist"
                           : e == ERR_PERMISSION ? "no permission"
                                                 : err_text(e));
    }
    u64 bytes = 0;
    e = sys->ops->file_size(sys, fd, &bytes);
    u8 *text = NULL;
    if (e == OK && bytes > CONFIG_FILE_BYTES_MAX) {
        e = config_fail(error, "the file is larger than %zu bytes", CONFIG_FILE_BYTES_MAX);
    } else if (e == OK) {
        text = arena_alloc(arena, (size_t)bytes + 1);
        e = text == NULL ? ERR_NO_MEMORY : sys->ops->file_read(sys, fd, text, (size_t)bytes, 0);
    }
    sys->ops->file_close(sys, fd);
    if (e != OK && error->text[0] == 0) {
        return config_fail(error, "the file cannot be read: %s", err_text(e));
    }
    *out = BYTES(text, (size_t)bytes);
    return e;
}

enum err config_load(struct config *c, struct sys *sys, const char *path,
                     struct config_error *error)
{
    struct bytes yaml = BYTES_NONE;
    error->text[0] = 0;
    TRY(file_read_whole(sys, path, &c->arena, &yaml, error));
    return config_parse(c, yaml, error);
}
