// SPDX-License-Identifier: Apache-2.0
// The subcommands of `leat`. To add one: a main function below, and a line in the table of main.c.
#pragma once

#include "base/types.h"

enum exit_code {
#define EXIT(name, code, text) EXIT_CODE_##name = (code),
#include "cli/exit_codes.def"
#undef EXIT
};

// argv[0] is the command's name. Returns an exit code.
typedef int (*cli_main_fn)(int argc, char **argv);

int cli_serve_main(int argc, char **argv);

// Says on standard error what is wrong with the command line and where help is; EXIT_CODE_USAGE.
int cli_usage_error(const char *command, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *cli_version(void);
