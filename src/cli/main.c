// SPDX-License-Identifier: Apache-2.0
// main(): finds the subcommand in the table and runs it. Help texts stand in the table too.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "admin/values.h"
#include "cli/cli.h"
#include "cli/codec_cmd.h"
#include "cli/ds_cmd.h"

#ifndef LEAT_VERSION
#error "the build gives LEAT_VERSION"
#endif

struct command {
    const char *name;
    cli_main_fn run;
    const char *summary;
    const char *help; // what `leat help NAME` prints after the summary
};

static int version_main(int argc, char **argv);
static int help_main(int argc, char **argv);
static int bench_main(int argc, char **argv);

static const char serve_help[] =
    "usage: leat serve [--config FILE] [--drive DIR]... [--listen ADDR:PORT] [--cores N]\n"
    "                  [--log text|json] [--log-level debug|info|warn|error]\n"
    "\n"
    "  --config FILE        YAML file (docs/configuration.md); options override it\n"
    "  --drive DIR          a directory of the store; repeat it for more drives\n"
    "  --listen ADDR:PORT   where to listen, default 127.0.0.1:9000 ([::1]:9000 for IPv6)\n"
    "  --cores N            cores to use, default: every CPU that the process may use\n"
    "  --log text|json      format of the log lines on standard error, default text\n"
    "  --log-level LEVEL    the least important lines to write, default info\n"
    "\n"
    "Credentials: LEAT_ACCESS_KEY_ID and LEAT_SECRET_ACCESS_KEY, else the configuration file,\n"
    "else generated once and kept in the file 'credentials' of the first drive.\n"
    "Signals: SIGTERM and SIGINT finish what is under way and stop within 10 s (a second one\n"
    "stops at once); SIGHUP reads the TLS files and the log level again.\n";

// One line a subcommand.
static const struct command commands[] = {
    {"serve", cli_serve_main, "run the server", serve_help},
    {"codec", cli_codec_main, "the tensor codec on files",
     "usage: leat codec encode|decode|inspect|bench FILE...\n\n'leat codec' alone lists the "
     "options; docs/tensor-codec.md explains them.\n"},
    {"ds", cli_ds_main, "the accelerator-direct library: what is present, what would be used",
     "usage: leat ds doctor [PATH]\n       leat ds stats FILE\n\ndocs/accelerator-io.md explains "
     "the report.\n"},
    {"bench", bench_main, "benchmarks of the accelerator-direct library",
     "usage: leat bench ds [OPTIONS]\n       leat bench ds report FOLDER\n\n'leat bench ds --help' "
     "lists the options.\n"},
    {"version", version_main, "print the version", "usage: leat version\n"},
    {"help", help_main, "explain a command", "usage: leat help [COMMAND]\n"},
};

const char *cli_version(void)
{
    return LEAT_VERSION;
}

int cli_usage_error(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "leat: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nleat: see 'leat help%s%s'\n", command[0] == 0 ? "" : " ", command);
    va_end(args);
    return EXIT_CODE_USAGE;
}

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int command_unknown(const char *name)
{
    const char *names[ARRAY_LEN(commands)];
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        names[i] = commands[i].name;
    }
    const char *meant = name_suggest(name, names, ARRAY_LEN(names));
    if (meant != NULL) {
        return cli_usage_error("", "unknown command '%s'; did you mean '%s'?", name, meant);
    }
    return cli_usage_error("", "unknown command '%s'", name);
}

static int version_main(int argc, char **argv)
{
    if (argc > 1) {
        return cli_usage_error("version", "unexpected argument '%s'", argv[1]);
    }
    printf("leat %s\n", LEAT_VERSION);
    return EXIT_CODE_OK;
}

static int bench_main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "ds") != 0) {
        return cli_usage_error("bench", "say what to measure: 'leat bench ds'");
    }
    return cli_bench_ds_main(argc - 1, argv + 1);
}

static void print_overview(FILE *out)
{
    fprintf(out,
            "leat %s: an S3 object store on a thread-per-core engine\n\n"
            "usage: leat COMMAND [OPTIONS]\n\n",
            LEAT_VERSION);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out, "\n'leat help COMMAND' tells its options.\n\nexit codes:\n");
    static const struct {
        int code;
        const char *text;
    } codes[] = {
#define EXIT(name, code, text) {code, text},
#include "cli/exit_codes.def"
#undef EXIT
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        fprintf(out, "  %d  %s\n", codes[i].code, codes[i].text);
    }
}

static int help_main(int argc, char **argv)
{
    if (argc > 2) {
        return cli_usage_error("help", "unexpected argument '%s'", argv[2]);
    }
    if (argc < 2) {
        print_overview(stdout);
        return EXIT_CODE_OK;
    }
    const struct command *c = command_find(argv[1]);
    if (c == NULL) {
        return command_unknown(argv[1]);
    }
    printf("leat %s: %s\n\n%s", c->name, c->summary, c->help);
    return EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return help_main(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--version") == 0) {
        return version_main(argc - 1, argv + 1);
    }
    const struct command *c = command_find(argv[1]);
    return c == NULL ? command_unknown(argv[1]) : c->run(argc - 1, argv + 1);
}
