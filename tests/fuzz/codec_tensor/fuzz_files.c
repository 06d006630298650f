// SPDX-License-Identifier: Apache-2.0
// Reads anything as the header of a safetensors or GGUF file. Two bytes make the file longer than
// what is given of it. Regions must ascend and cover the file exactly.
#include "tests/fuzz/codec_tensor/fuzz_common.h"

#define REGIONS_MAX 512u

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
    static struct leat_codec_region regions[REGIONS_MAX];
    if (size < 2) {
        return 0;
    }
    size_t n = size - 2;
    u64 file_bytes = n + ((u64)data[0] << 8 | data[1]);
    u8 *head = fuzz_alloc(n);
    memcpy(head, data + 2, n);
    size_t count = 0;
    if (leat_codec_file_regions(head, n, file_bytes, regions, REGIONS_MAX, &count) ==
        LEAT_CODEC_OK) {
        u64 at = 0;
        ASSERT(count <= REGIONS_MAX);
        for (size_t i = 0; i < count; i++) {
            ASSERT(regions[i].offset == at && regions[i].bytes > 0);
            ASSERT(regions[i].name_offset + regions[i].name_bytes <= n);
            at += regions[i].bytes;
        }
        ASSERT(at == file_bytes);
    }
    free(head);
    return 0;
}
