// SPDX-License-Identifier: Apache-2.0
// The schema of the configuration file, and its loading by libcyaml. Scalars stay texts here: what
// they must satisfy is checked in config.c, which can say it better.
#include "admin/config_private.h"

#include <cyaml/cyaml.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 4096
#define OPTIONAL_TEXT  (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)

#define TEXT(key, type, member)                                                                    \
    CYAML_FIELD_STRING_PTR(key, OPTIONAL_TEXT, type, member, 0, TEXT_BYTES_MAX)

static const cyaml_schema_value_t text_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, TEXT_BYTES_MAX),
};

static const cyaml_schema_field_t credential_fields[] = {
    TEXT("access_key_id", struct raw_credential, access_key_id),
    TEXT("secret_access_key", struct raw_credential, secret_access_key),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t credential_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_credential, credential_fields),
};

// Fields of the nested mappings, by their offset in their own struct.
#define NESTED(key, group, member) TEXT(key, __typeof__(((struct raw_config *)0)->group), member)

static const cyaml_schema_field_t tls_fields[] = {
    NESTED("cert", tls, cert),
    NESTED("key", tls, key),
    NESTED("listen", tls, listen),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t log_fields[] = {
    NESTED("level", log, level),
    NESTED("format", log, format),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t store_fields[] = {
    NESTED("placement_groups", store, placement_groups),
    NESTED("segment_bytes", store, segment_bytes),
    NESTED("drive_bytes_max", store, drive_bytes_max),
    NESTED("cache_bytes", store, cache_bytes),
    NESTED("buffer_bytes", store, buffer_bytes),
    NESTED("accept_losses", store, accept_losses),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t uploads_fields[] = {
    NESTED("expire_after", uploads, expire_after),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t http_fields[] = {
    NESTED("connections_max", http, connections_max),
    NESTED("head_timeout", http, head_timeout),
    NESTED("idle_timeout", http, idle_timeout),
    NESTED("progress_timeout", http, progress_timeout),
    NESTED("body_rate_min", http, body_rate_min),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t top_fields[] = {
    TEXT("listen", struct raw_config, listen),
    CYAML_FIELD_SEQUENCE_COUNT("drives", OPTIONAL_TEXT, struct raw_config, drives, drives_count,
                               &text_schema, 0, STORE_DRIVES_MAX),
    TEXT("cores", struct raw_config, cores),
    TEXT("region", struct raw_config, region),
    CYAML_FIELD_SEQUENCE_COUNT("domains", OPTIONAL_TEXT, struct raw_config, domains, domains_count,
                               &text_schema, 0, S3_DOMAINS_MAX),
    CYAML_FIELD_SEQUENCE_COUNT("credentials", OPTIONAL_TEXT, struct raw_config, credentials,
                               credentials_count, &credential_schema, 0, S3_CREDENTIALS_MAX),
    CYAML_FIELD_MAPPING("tls", CYAML_FLAG_OPTIONAL, struct raw_config, tls, tls_fields),
    CYAML_FIELD_MAPPING("log", CYAML_FLAG_OPTIONAL, struct raw_config, log, log_fields),
    CYAML_FIELD_MAPPING("store", CYAML_FLAG_OPTIONAL, struct raw_config, store, store_fields),
    CYAML_FIELD_MAPPING("uploads", CYAML_FLAG_OPTIONAL, struct raw_config, uploads, uploads_fields),
    CYAML_FIELD_MAPPING("http", CYAML_FLAG_OPTIONAL, struct raw_config, http, http_fields),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t top_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw_config, top_fields),
};

// libcyaml explains an error by log lines: what, then where from the inside out.
struct explanation {
    char what[160];
    char where[96];
};

static void __attribute__((format(printf, 3, 0)))
explain(cyaml_log_t level, void *arg, const char *fmt, va_list args)
{
    struct explanation *x = arg;
    char line[160];
    if (level < CYAML_LOG_ERROR) {
        return;
    }
    vsnprintf(line, sizeof(line), fmt, args);
    line[strcspn(line, "\n")] = 0;
    static const char prefix[] = "Load: ";
    const char *text =
        strncmp(line, prefix, sizeof(prefix) - 1) == 0 ? line + sizeof(prefix) - 1 : line;
    if (x->what[0] == 0) {
        snprintf(x->what, sizeof(x->what), "%s", text);
    } else if (x->where[0] == 0 && strstr(text, "(line: ") != NULL) {
        snprintf(x->where, sizeof(x->where), "%s", text + strspn(text, " "));
    }
}

static const cyaml_config_t *config_for(struct explanation *x, cyaml_config_t *out)
{
    *out = (cyaml_config_t){
        .log_fn = explain,
        .log_ctx = x,
        .log_level = CYAML_LOG_ERROR,
        .mem_fn = cyaml_mem,
        .flags = CYAML_CFG_NO_ALIAS,
    };
    return out;
}

enum err raw_config_load(struct bytes yaml, struct raw_config **out, struct config_error *error)
{
    struct explanation x = {0};
    cyaml_config_t config;
    cyaml_data_t *data = NULL;
    cyaml_err_t rc =
        cyaml_load_data(yaml.data, yaml.len, config_for(&x, &config), &top_schema, &data, NULL);
    if (rc == CYAML_ERR_OOM) {
        return ERR_NO_MEMORY;
    }
    if (rc != CYAML_OK) {
        return config_fail(error, "%s %s", x.what[0] != 0 ? x.what : cyaml_strerror(rc), x.where);
    }
    *out = data;
    return OK;
}

void raw_config_free(struct raw_config *raw)
{
    struct explanation x = {0};
    cyaml_config_t config;
    if (raw != NULL && cyaml_free(config_for(&x, &config), &top_schema, raw, 0) != CYAML_OK) {
        LOG_WARN("config_not_freed", "reason=\"%s\"", x.what);
    }
}
