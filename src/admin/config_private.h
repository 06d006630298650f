// SPDX-License-Identifier: Apache-2.0
// What the files behind config.h share.
#pragma once

#include "admin/config.h"

// The file as libcyaml loads it: every scalar still a text, NULL where the key is absent.
struct raw_credential {
    char *access_key_id;
    char *secret_access_key;
};

struct raw_config {
    char *listen;
    char **drives;
    unsigned drives_count;
    char *cores;
    char *region;
    char **domains;
    unsigned domains_count;
    struct raw_credential *credentials;
    unsigned credentials_count;
    struct {
        char *cert;
        char *key;
        char *listen;
    } tls;
    struct {
        char *level;
        char *format;
    } log;
    struct {
        char *placement_groups;
        char *segment_bytes;
        char *drive_bytes_max;
        char *cache_bytes;
        char *buffer_bytes;
        char *accept_losses;
    } store;
    struct {
        char *expire_after;
    } uploads;
    struct {
        char *connections_max;
        char *head_timeout;
        char *idle_timeout;
        char *progress_timeout;
        char *body_rate_min;
    } http;
};

// config_lines.c: where every key and list entry of a document stands.
#define CONFIG_PATH_BYTES 64
#define CONFIG_LINES_MAX  1024
struct config_line {
    char path[CONFIG_PATH_BYTES]; // "store.cache_bytes", "drives[]"
    u32 index;                    // the how-manieth entry, of the path's last list
    u32 line;                     // 1-based
};
struct config_lines {
    struct config_line *list;
    u32 count;
};
// Also refuses what is not YAML, keys that config.def does not know and keys given twice.
// ERR_INVALID with *error filled, ERR_NO_MEMORY. Free with config_lines_free in every case.
enum err config_lines_read(struct config_lines *lines, struct bytes yaml,
                           struct config_error *error) NODISCARD;
void config_lines_free(struct config_lines *lines);
// The line of the key (of the index-th list entry); 0 if it is not in the file.
u32 config_lines_find(const struct config_lines *lines, const char *path, u32 index);

// config_yaml.c: libcyaml. *out is freed by raw_config_free. An empty document gives *out == NULL.
enum err raw_config_load(struct bytes yaml, struct raw_config **out,
                         struct config_error *error) NODISCARD;
void raw_config_free(struct raw_config *raw);

enum err config_fail(struct config_error *error, const char *fmt, ...) PRINTF_LIKE(2, 3);
