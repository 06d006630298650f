// SPDX-License-Identifier: Apache-2.0
// How `leat serve` gets its configuration: defaults, then the file, then the command line, then the
// environment (credentials only).
#pragma once

#include "admin/config.h"

struct serve_options {
    const char *config_path; // NULL: no file
    const char *listen;
    const char *drives[STORE_DRIVES_MAX];
    u32 drive_count;
    u32 cores; // 0: not given
    bool has_log_format;
    bool is_json;
    bool has_log_level;
    enum log_level log_level;
};

// The command line. Returns an exit code; the message has been printed.
int serve_options_parse(struct serve_options *o, int argc, char **argv);
// Reads the file and lays the options and the environment over it. Logs what is wrong. Also used
// (on the helper pool) for a reload. ERR_INVALID, ERR_NO_MEMORY.
enum err serve_config_load(const struct serve_options *o, struct sys *sys,
                           struct config *c) NODISCARD;
