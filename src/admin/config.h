// SPDX-License-Identifier: Apache-2.0
// The configuration of a server: defaults, the YAML file, and what it must satisfy. The command
// line and the environment are laid over it by cli/. A `struct config` owns its strings by an arena
// and is immutable once the server runs.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "base/slice.h"
#include "core/reactor.h"
#include "s3/s3.h"
#include "store/store.h"

#define CONFIG_FILE_BYTES_MAX  ((size_t)MIB)
#define CONFIG_LISTEN_DEFAULT  "127.0.0.1:9000"
#define CONFIG_REGION_DEFAULT  "us-east-1"
#define CONFIG_CACHE_BYTES     ((u64)256 * MIB)
#define CONFIG_BUFFER_CORE_MIN ((u64)32 * MIB)
#define CONFIG_CONNECTIONS_MAX 1000000u
#define CONFIG_ACCESS_KEY_MIN  3
#define CONFIG_SECRET_KEY_MIN  8

struct config_tls {
    const char *cert; // NULL: no TLS
    const char *key;
    const char *listen; // NULL: `listen` itself speaks TLS
};

struct config_log {
    enum log_level level;
    bool is_json;
};

// 0 where the store's or the server's own default holds.
struct config_store {
    u32 placement_groups;
    u64 segment_bytes;
    u64 drive_bytes_max;
    u64 cache_bytes;
    u64 buffer_bytes; // of all cores together
    bool accepts_losses;
};

struct config_uploads {
    u64 expire_after_ns; // 0: never
};

struct config_http {
    u32 connections_max; // of all cores together
    u64 head_timeout_ns;
    u64 idle_timeout_ns;
    u64 progress_timeout_ns;
    u64 body_rate_min;
};

struct config {
    struct arena arena;
    const char *listen;
    const char *drives[STORE_DRIVES_MAX];
    u32 drive_count;
    u32 cores; // 0: as many as the process has CPUs
    const char *region;
    const char *domains[S3_DOMAINS_MAX];
    u32 domain_count;
    struct s3_credential credentials[S3_CREDENTIALS_MAX];
    u32 credential_count;
    struct config_tls tls;
    struct config_log log;
    struct config_store store;
    struct config_uploads uploads;
    struct config_http http;
};

#define CONFIG_ERROR_BYTES 512
// What is wrong, in one line for the user: names key and line.
struct config_error {
    char text[CONFIG_ERROR_BYTES];
};

void config_init(struct config *c);
void config_deinit(struct config *c);
// Lays the YAML document over `c`. ERR_INVALID with *error filled, ERR_NO_MEMORY.
enum err config_parse(struct config *c, struct bytes yaml, struct config_error *error) NODISCARD;
// Reads the file through sys (blocking: start-up and the helper pool) and parses it.
enum err config_load(struct config *c, struct sys *sys, const char *path,
                     struct config_error *error) NODISCARD;

// What a key's value has to be, for messages.
const char *config_key_help(const char *path);

// The rules of single values, shared with the command line and the environment.
bool config_access_key_is_valid(const char *text);
bool config_secret_key_is_valid(const char *text);
