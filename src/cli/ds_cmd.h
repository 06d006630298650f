// SPDX-License-Identifier: Apache-2.0
// The accelerator-direct subcommands: `leat ds ...` and `leat bench ds ...`.
#pragma once

// argv[0] is the subcommand's own name. Returns the process's exit status.
int cli_ds_main(int argc, char **argv);
int cli_bench_ds_main(int argc, char **argv);
