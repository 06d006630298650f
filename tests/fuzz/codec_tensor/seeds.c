// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of the fuzz targets into the folder named: small containers and blocks of every
// type and mode, plain tensors, and file headers. Run once; the result is committed.
#include <stdio.h>

#include "tests/fuzz/codec_tensor/fuzz_common.h"
#include "tests/unit/codec/tensor/tensor_data.h"

static void write_file(const char *folder, const char *target, const char *name, const u8 *prefix,
                       size_t prefix_bytes, const void *data, size_t n)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
    FILE *f = fopen(path, "wb");
    ASSERT(f != NULL);
    ASSERT(fwrite(prefix, 1, prefix_bytes, f) == prefix_bytes && fwrite(data, 1, n, f) == n);
    fclose(f);
}

static void write_tensors(const char *folder)
{
    enum { PLAIN = 6000 };
    static u8 plain[PLAIN];
    static u8 out[3 * PLAIN];
    struct data_random r = {7};
    u8 *scratch = fuzz_alloc(MIB);
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        data_fill(&r, DATA_WEIGHTS, type, plain, PLAIN);
        for (u32 mode = 0; mode < LEAT_CODEC_MODE_AUTO; mode++) {
            struct leat_codec_options o = {.type = type, .mode = mode, .block_bytes = 4096};
            char name[64];
            u64 size;
            size_t block;
            snprintf(name, sizeof(name), "%s-%s", leat_codec_type_name(type),
                     leat_codec_mode_name(mode));
            ASSERT(leat_codec_encode(&o, plain, PLAIN, out, sizeof(out), scratch, MIB, &size) ==
                   LEAT_CODEC_OK);
            write_file(folder, "container", name, (const u8 *)"\x07\x40", 2, out, size);
            ASSERT(leat_codec_block_encode(&o, plain, PLAIN, out, sizeof(out), scratch, MIB,
                                           &block) == LEAT_CODEC_OK);
            write_file(folder, "block", name, (const u8 *)"\x01", 1, out, block);
            u8 choice[4] = {(u8)type, (u8)mode, 1, 3};
            write_file(folder, "roundtrip", name, choice, 4, plain, 700);
        }
    }
    free(scratch);
}

static void write_headers(const char *folder)
{
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"a\\\"b\"},\"w.0\":{\"dtype\":\"BF16\","
        "\"shape\":[2,3],\"data_offsets\":[0,12]},\"b\":{\"dtype\":\"F32\",\"shape\":[3],"
        "\"data_offsets\":[12,24]},\"e\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[24,32]}"
        "}";
    u8 safe[8 + sizeof(json) - 1] = {0};
    u64 length = sizeof(json) - 1;
    memcpy(safe, &length, 8);
    memcpy(safe + 8, json, length);
    write_file(folder, "files", "safetensors", (const u8 *)"\0\x20", 2, safe, sizeof(safe));
    static const u8 gguf[] =
        "GGUF\3\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
        "\x11\0\0\0\0\0\0\0general.alignment\4\0\0\0\x20\0\0\0"
        "\4\0\0\0\0\0\0\0list\x09\0\0\0\x08\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0ab"
        "\1\0\0\0\0\0\0\0w\1\0\0\0\x08\0\0\0\0\0\0\0\x1e\0\0\0\0\0\0\0\0\0\0\0"
        "\1\0\0\0\0\0\0\0q\1\0\0\0\x20\0\0\0\0\0\0\0\2\0\0\0\x20\0\0\0\0\0\0\0";
    write_file(folder, "files", "gguf", (const u8 *)"\0\x50", 2, gguf, sizeof(gguf) - 1);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: seeds FOLDER\n");
        return 2;
    }
    write_tensors(argv[1]);
    write_headers(argv[1]);
    return 0;
}
