// SPDX-License-Identifier: Apache-2.0
// Names of the public enumerations, and the checks of arguments that every entry point makes.
#include "codec/tensor/tensor_container.h"

static const char *const err_texts[LEAT_CODEC_ERR_COUNT] = {
    [LEAT_CODEC_OK] = "done",
    [LEAT_CODEC_ERR_INVALID] = "an argument is not allowed",
    [LEAT_CODEC_ERR_SPACE] = "the buffer is too small",
    [LEAT_CODEC_ERR_FORMAT] = "malformed or cut short",
    [LEAT_CODEC_ERR_CORRUPT] = "the bytes do not match their checksum",
    [LEAT_CODEC_ERR_VERSION] = "written by a version that this library cannot read",
    [LEAT_CODEC_ERR_RANGE] = "the range is not inside the plain bytes",
    [LEAT_CODEC_ERR_LIMIT] = "more plain bytes or regions than the encoder was made for",
    [LEAT_CODEC_ERR_UNAVAILABLE] = "this machine lacks it",
};

static const char *const type_names[LEAT_CODEC_TYPE_COUNT] = {
    [LEAT_CODEC_TYPE_BYTES] = "bytes",       [LEAT_CODEC_TYPE_BF16] = "bf16",
    [LEAT_CODEC_TYPE_FP16] = "fp16",         [LEAT_CODEC_TYPE_FP32] = "fp32",
    [LEAT_CODEC_TYPE_FP8_E4M3] = "fp8_e4m3", [LEAT_CODEC_TYPE_FP8_E5M2] = "fp8_e5m2",
    [LEAT_CODEC_TYPE_INT8] = "int8",
};

static const char *const mode_names[LEAT_CODEC_MODE_AUTO + 1] = {
    [LEAT_CODEC_MODE_RAW] = "raw",
    [LEAT_CODEC_MODE_FAST] = "fast",
    [LEAT_CODEC_MODE_DENSE] = "dense",
    [LEAT_CODEC_MODE_AUTO] = "auto",
};

// The public constants are the format's; the compiler holds them together.
_Static_assert(LEAT_CODEC_TYPE_COUNT == (int)TENSOR_TYPE_COUNT, "types");
_Static_assert(LEAT_CODEC_TYPE_INT8 == (int)TENSOR_TYPE_INT8, "types");
_Static_assert(LEAT_CODEC_MODE_DENSE == (int)TENSOR_MODE_DENSE, "modes");
_Static_assert(LEAT_CODEC_BLOCK_BYTES_MAX == TENSOR_BLOCK_BYTES_MAX, "blocks");
_Static_assert(LEAT_CODEC_BLOCK_BYTES_MIN == TENSOR_BLOCK_BYTES_MIN, "blocks");
_Static_assert(LEAT_CODEC_BLOCK_BYTES_DEFAULT == TENSOR_BLOCK_BYTES_DEFAULT, "blocks");
_Static_assert(LEAT_CODEC_HEADER_BYTES == TENSOR_HEADER_BYTES, "header");
_Static_assert(LEAT_CODEC_BLOCK_HEADER_BYTES == TENSOR_BLOCK_HEADER_BYTES, "block header");
_Static_assert(LEAT_CODEC_FOOTER_BYTES == TENSOR_FOOTER_BYTES, "footer");
_Static_assert(LEAT_CODEC_INDEX_ENTRY_BYTES == TENSOR_INDEX_ENTRY_BYTES, "index");

const char *leat_codec_err_text(enum leat_codec_err e)
{
    return (u32)e < LEAT_CODEC_ERR_COUNT ? err_texts[e] : "unknown";
}

const char *leat_codec_type_name(uint32_t type)
{
    return type < LEAT_CODEC_TYPE_COUNT ? type_names[type] : "unknown";
}

const char *leat_codec_mode_name(uint32_t mode)
{
    return mode <= LEAT_CODEC_MODE_AUTO ? mode_names[mode] : "unknown";
}

// Finds `name` among `count` names.
static enum leat_codec_err name_find(const char *const *names, u32 count, const char *name,
                                     u32 *number)
{
    for (u32 i = 0; name != NULL && i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            *number = i;
            return LEAT_CODEC_OK;
        }
    }
    return LEAT_CODEC_ERR_INVALID;
}

enum leat_codec_err leat_codec_type_from_name(const char *name, uint32_t *type)
{
    return name_find(type_names, ARRAY_LEN(type_names), name, type);
}

enum leat_codec_err leat_codec_mode_from_name(const char *name, uint32_t *mode)
{
    return name_find(mode_names, ARRAY_LEN(mode_names), name, mode);
}

uint32_t leat_codec_element_bytes(uint32_t type)
{
    return type < LEAT_CODEC_TYPE_COUNT ? tensor_element_bytes(type) : 0;
}

const char *leat_codec_cpu_name(uint32_t cpu)
{
    const struct tensor_ops *ops = tensor_ops_get(cpu);
    return ops == NULL ? NULL : ops->name;
}

size_t leat_codec_encode_scratch_bytes(uint32_t block_bytes)
{
    size_t block = block_bytes == 0 ? TENSOR_BLOCK_BYTES_DEFAULT : block_bytes;
    size_t symbols = MAX(block, (size_t)TENSOR_CHUNK_SYMBOLS * (1 + TENSOR_PATCH_BYTES));
    return sizeof(struct tensor_encode_scratch) + symbols + 64;
}

size_t leat_codec_decode_scratch_bytes(uint32_t block_bytes)
{
    size_t block = block_bytes == 0 ? TENSOR_BLOCK_BYTES_DEFAULT : block_bytes;
    return sizeof(struct tensor_decode_scratch) + block + 64;
}

enum leat_codec_err tensor_options_resolve(const struct leat_codec_options *given,
                                           struct leat_codec_options *options,
                                           const struct tensor_ops **ops)
{
    *options = *given;
    if (options->block_bytes == 0) {
        options->block_bytes = TENSOR_BLOCK_BYTES_DEFAULT;
    }
    if (options->block_bytes < TENSOR_BLOCK_BYTES_MIN ||
        options->block_bytes > TENSOR_BLOCK_BYTES_MAX || options->block_bytes % 64 != 0 ||
        options->type >= LEAT_CODEC_TYPE_COUNT || options->mode > LEAT_CODEC_MODE_AUTO ||
        options->cpu > LEAT_CODEC_CPU_AVX512) {
        return LEAT_CODEC_ERR_INVALID;
    }
    *ops = tensor_ops_get(options->cpu);
    return *ops == NULL ? LEAT_CODEC_ERR_UNAVAILABLE : LEAT_CODEC_OK;
}

enum leat_codec_err tensor_scratch_check(const void *scratch, size_t have, size_t needed)
{
    bool fits = scratch != NULL && have >= needed && (uintptr_t)scratch % 64 == 0;
    return fits ? LEAT_CODEC_OK : LEAT_CODEC_ERR_INVALID;
}
