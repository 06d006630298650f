// SPDX-License-Identifier: Apache-2.0
// `leat codec`: the tensor codec on files.
#pragma once

// Runs `codec VERB ...` (argv[0] is "codec") and returns the process's exit status: 0 done, 1
// failed, 2 wrong use. Prints to stdout; errors and progress go to stderr.
int cli_codec_main(int argc, char **argv);
