// SPDX-License-Identifier: Apache-2.0
// leat-ds: the accelerator-direct subcommands as a program of their own, for trying and for tests.
#include <stdio.h>
#include <string.h>

#include "cli/ds_cmd.h"

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "bench") == 0) {
        return cli_bench_ds_main(argc - 1, argv + 1);
    }
    if (argc >= 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: leat-ds doctor [PATH] | stats FILE | bench ...\n");
        return 0;
    }
    return cli_ds_main(argc, argv);
}
