// SPDX-License-Identifier: Apache-2.0
// `leat-codec`: the same commands as a small program of its own, for hosts that only need the
// codec.
#include "cli/codec_cmd.h"

int main(int argc, char **argv)
{
    return cli_codec_main(argc, argv);
}
