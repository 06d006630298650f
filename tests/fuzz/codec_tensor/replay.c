// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over the files named, without a fuzzer: the committed seeds as a plain test.
#include <stdio.h>

#include "tests/fuzz/codec_tensor/fuzz_common.h"

#define INPUT_MAX (4 * MIB)

int main(int argc, char **argv)
{
    u8 *data = fuzz_alloc(INPUT_MAX);
    int ran = 0;
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (f == NULL) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(data, 1, INPUT_MAX, f);
        fclose(f);
        LLVMFuzzerTestOneInput(data, n);
        ran++;
    }
    free(data);
    printf("%d inputs\n", ran);
    return ran == 0 ? 1 : 0;
}
