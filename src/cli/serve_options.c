// SPDX-License-Identifier: Apache-2.0
#include "cli/serve_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/values.h"
#include "base/text.h"
#include "cli/cli.h"

#define ENV_ACCESS_KEY "LEAT_ACCESS_KEY_ID"
#define ENV_SECRET_KEY "LEAT_SECRET_ACCESS_KEY"

enum option_id {
    OPTION_CONFIG = 1,
    OPTION_DRIVE,
    OPTION_LISTEN,
    OPTION_CORES,
    OPTION_LOG,
    OPTION_LEVEL
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"drive", required_argument, NULL, OPTION_DRIVE},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"cores", required_argument, NULL, OPTION_CORES},
    {"log", required_argument, NULL, OPTION_LOG},
    {"log-level", required_argument, NULL, OPTION_LEVEL},
    {0},
};

static int bad_value(const char *option, const char *value, const char *wanted)
{
    return cli_usage_error("serve", "--%s %s: must be %s", option, value, wanted);
}

static int drive_add(struct serve_options *o, const char *path)
{
    if (path[0] == 0 || strlen(path) > 1023) {
        return bad_value("drive", path, config_key_help("drives[]"));
    }
    if (o->drive_count == STORE_DRIVES_MAX) {
        return cli_usage_error("serve", "more than %d drives", STORE_DRIVES_MAX);
    }
    for (u32 i = 0; i < o->drive_count; i++) {
        if (strcmp(path, o->drives[i]) == 0) {
            return cli_usage_error("serve", "--drive %s is given twice", path);
        }
    }
    o->drives[o->drive_count++] = path;
    return EXIT_CODE_OK;
}

// One option with its value.
static int option_take(struct serve_options *o, enum option_id id, const char *value)
{
    u64 number;
    switch (id) {
    case OPTION_CONFIG:
        o->config_path = value;
        return EXIT_CODE_OK;
    case OPTION_DRIVE:
        return drive_add(o, value);
    case OPTION_LISTEN:
        o->listen = value;
        return address_is_valid(value) ? EXIT_CODE_OK
                                       : bad_value("listen", value, config_key_help("listen"));
    case OPTION_CORES:
        if (!u64_parse(bytes_from_string(value), CORES_MAX, &number) || number == 0) {
            return bad_value("cores", value, config_key_help("cores"));
        }
        o->cores = (u32)number;
        return EXIT_CODE_OK;
    case OPTION_LOG:
        o->has_log_format = true;
        o->is_json = strcmp(value, "json") == 0;
        return o->is_json || strcmp(value, "text") == 0
                   ? EXIT_CODE_OK
                   : bad_value("log", value, config_key_help("log.format"));
    case OPTION_LEVEL:
        o->has_log_level = true;
        return log_level_parse(value, &o->log_level)
                   ? EXIT_CODE_OK
                   : bad_value("log-level", value, config_key_help("log.level"));
    }
    return EXIT_CODE_USAGE;
}

static int option_unknown(const char *given)
{
    const char *names[ARRAY_LEN(long_options) - 1];
    char name[64];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        names[i] = long_options[i].name;
    }
    snprintf(name, sizeof(name), "%s", given + strspn(given, "-"));
    name[strcspn(name, "=")] = 0;
    const char *meant = name_suggest(name, names, ARRAY_LEN(names));
    if (meant != NULL) {
        return cli_usage_error("serve", "unknown option '%s'; did you mean '--%s'?", given, meant);
    }
    return cli_usage_error("serve", "unknown option '%s'", given);
}

int serve_options_parse(struct serve_options *o, int argc, char **argv)
{
    *o = (struct serve_options){0};
    opterr = 0;
    for (;;) {
        int at = optind;
        int id = getopt_long(argc, argv, "+:", long_options, NULL);
        if (id == -1) {
            break;
        }
        if (id == ':') {
            return cli_usage_error("serve", "option '%s' needs a value", argv[at]);
        }
        if (id == '?') {
            return option_unknown(argv[at]);
        }
        int code = option_take(o, (enum option_id)id, optarg);
        if (code != EXIT_CODE_OK) {
            return code;
        }
    }
    if (optind < argc) {
        return cli_usage_error("serve", "unexpected argument '%s'", argv[optind]);
    }
    return EXIT_CODE_OK;
}

static void overlay(const struct serve_options *o, struct config *c)
{
    if (o->listen != NULL) {
        c->listen = o->listen;
    }
    if (o->drive_count > 0) {
        memcpy(c->drives, o->drives, sizeof(c->drives));
        c->drive_count = o->drive_count;
    }
    c->cores = o->cores != 0 ? o->cores : c->cores;
    c->log.is_json = o->has_log_format ? o->is_json : c->log.is_json;
    c->log.level = o->has_log_level ? o->log_level : c->log.level;
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != 0 ? value : NULL;
}

static enum err environment_overlay(struct config *c)
{
    const char *access_key = environment(ENV_ACCESS_KEY);
    const char *secret_key = environment(ENV_SECRET_KEY);
    if (access_key == NULL && secret_key == NULL) {
        return OK;
    }
    if (access_key == NULL || secret_key == NULL) {
        LOG_ERROR("config_invalid",
                  "reason=\"only one of " ENV_ACCESS_KEY " and " ENV_SECRET_KEY " is set\" "
                  "hint=\"set both or none\"");
        return ERR_INVALID;
    }
    if (!config_access_key_is_valid(access_key)) {
        LOG_ERROR("config_invalid", "reason=\"" ENV_ACCESS_KEY " must be %s\"",
                  config_key_help("credentials[].access_key_id"));
        return ERR_INVALID;
    }
    if (!config_secret_key_is_valid(secret_key)) {
        LOG_ERROR("config_invalid", "reason=\"" ENV_SECRET_KEY " must be %s\"",
                  config_key_help("credentials[].secret_access_key"));
        return ERR_INVALID;
    }
    c->credentials[0] = (struct s3_credential){access_key, secret_key};
    c->credential_count = 1;
    return OK;
}

enum err serve_config_load(const struct serve_options *o, struct sys *sys, struct config *c)
{
    if (o->config_path != NULL) {
        struct config_error error = {0};
        enum err e = config_load(c, sys, o->config_path, &error);
        if (e != OK) {
            LOG_ERROR("config_invalid", "file=%s reason=\"%s\"", o->config_path,
                      error.text[0] != 0 ? error.text : err_text(e));
            return e;
        }
    }
    overlay(o, c);
    return environment_overlay(c);
}
