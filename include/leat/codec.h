// SPDX-License-Identifier: Apache-2.0
// libleatcodec: lossless compression of tensors that decodes block by block.
//
// Weights, checkpoints and KV caches cross a network or a drive compressed and become plain bytes
// where they are used. A container holds independent blocks of at most 1 MiB, each with a checksum
// of its plain bytes, and an index, so that any range is read by decoding only the blocks it
// touches. The format is docs/format/tensor-codec.md.
//
// Errors. Every function that can fail returns enum leat_codec_err; LEAT_CODEC_OK is 0. What it
// hands back comes through out-parameters, which are written only on success unless said otherwise.
// Malformed or damaged input is an error, never undefined behaviour; bytes that do not match their
// checksum are never handed out (the destination is filled with zeros instead).
//
// Memory. No function allocates. The caller asks for a size, brings the memory, and keeps it.
// Scratch memory has no content that outlives a call; it must be aligned to 64 bytes.
//
// Threads. There is no global state. Calls with different output, scratch and encoder memory may
// run at once; one encoder is used by one thread at a time. Nothing waits, sleeps or takes a lock.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEAT_CODEC_API __attribute__((visibility("default")))

#define LEAT_CODEC_BLOCK_BYTES_MIN     1024u
#define LEAT_CODEC_BLOCK_BYTES_MAX     (1024u * 1024u)
#define LEAT_CODEC_BLOCK_BYTES_DEFAULT (256u * 1024u)
#define LEAT_CODEC_HEADER_BYTES        32u // at a container's start
#define LEAT_CODEC_BLOCK_HEADER_BYTES  32u // what a block that does not compress grows by
#define LEAT_CODEC_FOOTER_BYTES        64u // at a container's end
#define LEAT_CODEC_INDEX_ENTRY_BYTES   16u // a block
#define LEAT_CODEC_SCRATCH_ALIGN       64u
#define LEAT_CODEC_PLAIN_BYTES_MAX     (UINT64_C(1) << 46)

enum leat_codec_err {
    LEAT_CODEC_OK = 0,
    LEAT_CODEC_ERR_INVALID = 1,     // an argument is outside what its description allows
    LEAT_CODEC_ERR_SPACE = 2,       // the caller's buffer is smaller than the size asked for before
    LEAT_CODEC_ERR_FORMAT = 3,      // the container is malformed or cut short
    LEAT_CODEC_ERR_CORRUPT = 4,     // decoded bytes do not match their checksum
    LEAT_CODEC_ERR_VERSION = 5,     // the container is of a version that this library cannot read
    LEAT_CODEC_ERR_RANGE = 6,       // the range is not inside the plain bytes
    LEAT_CODEC_ERR_LIMIT = 7,       // more plain bytes than the encoder was made for
    LEAT_CODEC_ERR_UNAVAILABLE = 8, // this machine lacks the processor feature or the GPU
    LEAT_CODEC_ERR_COUNT = 9,
};

// What the elements are. BYTES and INT8 have no exponent: whole bytes are coded.
enum leat_codec_type {
    LEAT_CODEC_TYPE_BYTES = 0,
    LEAT_CODEC_TYPE_BF16 = 1,
    LEAT_CODEC_TYPE_FP16 = 2,
    LEAT_CODEC_TYPE_FP32 = 3,
    LEAT_CODEC_TYPE_FP8_E4M3 = 4,
    LEAT_CODEC_TYPE_FP8_E5M2 = 5,
    LEAT_CODEC_TYPE_INT8 = 6,
    LEAT_CODEC_TYPE_COUNT = 7,
};

// How a block is stored. A request for FAST or DENSE still stores a block RAW where that is
// smaller.
enum leat_codec_mode {
    LEAT_CODEC_MODE_RAW = 0,   // as it is
    LEAT_CODEC_MODE_FAST = 1,  // exponents as places in a palette of 16, at fixed offsets
    LEAT_CODEC_MODE_DENSE = 2, // exponents in a prefix code, in 64 lanes a segment
    LEAT_CODEC_MODE_AUTO = 3,  // by a sample of each block; for options only
};

// Which inner loops run. All yield the same bytes.
enum leat_codec_cpu {
    LEAT_CODEC_CPU_AUTO = 0,
    LEAT_CODEC_CPU_C = 1,
    LEAT_CODEC_CPU_AVX2 = 2,   // needs AVX2 and BMI2
    LEAT_CODEC_CPU_AVX512 = 3, // needs AVX-512 F, BW, DQ, VL, VBMI and VBMI2
};

// All zeros means: bytes, RAW, default block size, best loops. block_bytes is a multiple of 64
// between BLOCK_BYTES_MIN and BLOCK_BYTES_MAX, or 0 for the default.
struct leat_codec_options {
    uint32_t block_bytes;
    uint32_t type; // enum leat_codec_type
    uint32_t mode; // enum leat_codec_mode
    uint32_t cpu;  // enum leat_codec_cpu
};

// What a container says about itself.
struct leat_codec_info {
    uint64_t plain_bytes;
    uint64_t container_bytes;
    uint64_t block_count;
    uint64_t index_offset;
    uint32_t block_bytes_max;
    uint32_t version;
};

// What a block's header says.
struct leat_codec_block_info {
    uint64_t plain_offset;
    uint64_t stored_offset;
    uint32_t plain_bytes;
    uint32_t stored_bytes; // header and payload
    uint32_t type;
    uint32_t mode;
    uint32_t patch_count; // FAST: elements outside the palette
    uint32_t code_bits;   // DENSE: the longest code
};

// ---- Names. Static strings; an unknown value gives "unknown", an unknown name INVALID. ----
LEAT_CODEC_API const char *leat_codec_err_text(enum leat_codec_err e);
LEAT_CODEC_API const char *leat_codec_type_name(uint32_t type); // "bf16", "fp8_e4m3", ...
LEAT_CODEC_API const char *leat_codec_mode_name(uint32_t mode); // "raw", "fast", "dense", "auto"
LEAT_CODEC_API enum leat_codec_err leat_codec_type_from_name(const char *name, uint32_t *type);
LEAT_CODEC_API enum leat_codec_err leat_codec_mode_from_name(const char *name, uint32_t *mode);
LEAT_CODEC_API uint32_t leat_codec_element_bytes(uint32_t type); // 0 when unknown

// The name of the loops that `cpu` gives on this machine: "c", "avx2", "avx512"; NULL when it lacks
// them.
LEAT_CODEC_API const char *leat_codec_cpu_name(uint32_t cpu);

// ---- Sizes, all known before any work. ----

// The most bytes that a container of `plain_bytes` in `regions` separately typed regions can take.
LEAT_CODEC_API enum leat_codec_err leat_codec_encode_bound(const struct leat_codec_options *options,
                                                           uint64_t plain_bytes, uint64_t regions,
                                                           uint64_t *bound);
// Scratch for encoding, and for decoding, with blocks of up to `block_bytes` (0: the default).
LEAT_CODEC_API size_t leat_codec_encode_scratch_bytes(uint32_t block_bytes);
LEAT_CODEC_API size_t leat_codec_decode_scratch_bytes(uint32_t block_bytes);

// ---- Whole containers in memory. ----

// A part of the plain bytes with its own element type.
struct leat_codec_region {
    uint64_t offset;
    uint64_t bytes;
    uint32_t type;
    uint32_t name_bytes; // of the tensor's name, which starts at name_offset in the file's header
    uint64_t name_offset;
};

// Encodes `n` bytes as one container. INVALID: options or scratch; SPACE: `capacity` is below
// leat_codec_encode_bound for one region. `written` gets the container's size.
LEAT_CODEC_API enum leat_codec_err leat_codec_encode(const struct leat_codec_options *options,
                                                     const void *plain, uint64_t n, void *out,
                                                     uint64_t capacity, void *scratch,
                                                     size_t scratch_bytes, uint64_t *written);

// Checks header, footer and index of a container that lies in memory as a whole. FORMAT, VERSION.
LEAT_CODEC_API enum leat_codec_err leat_codec_info_read(const void *container, uint64_t n,
                                                        struct leat_codec_info *info);

// Decodes all of it. SPACE: `capacity` is below info.plain_bytes.
LEAT_CODEC_API enum leat_codec_err leat_codec_decode(const void *container, uint64_t n, void *plain,
                                                     uint64_t capacity, void *scratch,
                                                     size_t scratch_bytes, uint32_t cpu,
                                                     uint64_t *written);

// Decodes plain bytes [offset, offset + length) into `out`. RANGE when they reach past the end.
struct leat_codec_range {
    uint64_t offset;
    uint64_t length;
};
LEAT_CODEC_API enum leat_codec_err leat_codec_decode_range(const void *container, uint64_t n,
                                                           struct leat_codec_range range, void *out,
                                                           void *scratch, size_t scratch_bytes,
                                                           uint32_t cpu);

// Describes block number `block` of a container in memory. INVALID: there is no such block.
LEAT_CODEC_API enum leat_codec_err leat_codec_block_info_read(const void *container, uint64_t n,
                                                              uint64_t block,
                                                              struct leat_codec_block_info *info);

// A container in memory that has been checked once, for many reads of it. The caller keeps both;
// the container must not change meanwhile. The other calls above open it anew each time, which
// takes time in proportion to its blocks.
struct leat_codec_reader {
    const void *container;
    const void *index;
    struct leat_codec_info info;
};
LEAT_CODEC_API enum leat_codec_err leat_codec_reader_open(const void *container, uint64_t n,
                                                          struct leat_codec_reader *reader);
LEAT_CODEC_API enum leat_codec_err
leat_codec_reader_decode_range(const struct leat_codec_reader *reader,
                               struct leat_codec_range range, void *out, void *scratch,
                               size_t scratch_bytes, uint32_t cpu);
LEAT_CODEC_API enum leat_codec_err
leat_codec_reader_block_info(const struct leat_codec_reader *reader, uint64_t block,
                             struct leat_codec_block_info *info);

// ---- Remote containers: read the footer, then the index, then only the blocks that matter. ----

// From the last LEAT_CODEC_FOOTER_BYTES of a container of `container_bytes`.
// info.block_bytes_max is not known from a footer and is set to LEAT_CODEC_BLOCK_BYTES_MAX.
LEAT_CODEC_API enum leat_codec_err
leat_codec_footer_parse(const void *footer, uint64_t container_bytes, struct leat_codec_info *info);
// Checks the info.block_count * LEAT_CODEC_INDEX_ENTRY_BYTES bytes at info.index_offset against the
// footer.
LEAT_CODEC_API enum leat_codec_err leat_codec_index_check(const void *footer, const void *index,
                                                          const struct leat_codec_info *info);
// What block number `block` covers, from a checked index: plain_offset, plain_bytes, stored_offset,
// and in stored_bytes the bytes to read (with the gap before what follows). The rest is zero.
LEAT_CODEC_API enum leat_codec_err leat_codec_index_entry(const void *index,
                                                          const struct leat_codec_info *info,
                                                          uint64_t block,
                                                          struct leat_codec_block_info *out);
// The number of the block that holds plain byte `offset`. RANGE past the end.
LEAT_CODEC_API enum leat_codec_err leat_codec_index_find(const void *index,
                                                         const struct leat_codec_info *info,
                                                         uint64_t offset, uint64_t *block);
// Decodes one stored block (header, payload, maybe a gap) of exactly `plain_bytes` into `plain`.
LEAT_CODEC_API enum leat_codec_err leat_codec_block_decode(const void *stored, size_t stored_bytes,
                                                           void *plain, size_t plain_bytes,
                                                           void *scratch, size_t scratch_bytes,
                                                           uint32_t cpu);
// Encodes up to LEAT_CODEC_BLOCK_BYTES_MAX bytes as one stored block, without a container around
// it. `capacity` is at least n + LEAT_CODEC_BLOCK_HEADER_BYTES. `written` never exceeds that sum.
LEAT_CODEC_API enum leat_codec_err leat_codec_block_encode(const struct leat_codec_options *options,
                                                           const void *plain, size_t n, void *out,
                                                           size_t capacity, void *scratch,
                                                           size_t scratch_bytes, size_t *written);

// ---- Streaming encoder: plain bytes in, container bytes out, neither whole in memory. ----

struct leat_codec_encoder;

// The memory an encoder needs for at most `plain_bytes_max` in at most `regions_max` regions: one
// block of input, scratch, and the index, which leaves last.
LEAT_CODEC_API enum leat_codec_err
leat_codec_encoder_bytes(const struct leat_codec_options *options, uint64_t plain_bytes_max,
                         uint64_t regions_max, uint64_t *bytes);
// Makes an encoder in `memory` (aligned to 64), which the caller keeps until the end.
LEAT_CODEC_API enum leat_codec_err leat_codec_encoder_init(const struct leat_codec_options *options,
                                                           uint64_t plain_bytes_max,
                                                           uint64_t regions_max, void *memory,
                                                           uint64_t memory_bytes,
                                                           struct leat_codec_encoder **encoder);
// The room that encoder_write and encoder_set_type need in `out` to make progress.
LEAT_CODEC_API size_t leat_codec_encoder_output_bytes_min(const struct leat_codec_encoder *encoder);
// Takes up to `n` bytes and writes up to `capacity`. `consumed` below `n` means: empty `out` and
// come again with the rest. SPACE: `capacity` is below output_bytes_min. LIMIT: plain_bytes_max.
LEAT_CODEC_API enum leat_codec_err leat_codec_encoder_write(struct leat_codec_encoder *encoder,
                                                            const void *plain, size_t n,
                                                            size_t *consumed, void *out,
                                                            size_t capacity, size_t *written);
// Ends the current region: what comes next has elements of `type` and starts a block of its own.
LEAT_CODEC_API enum leat_codec_err leat_codec_encoder_set_type(struct leat_codec_encoder *encoder,
                                                               uint32_t type, void *out,
                                                               size_t capacity, size_t *written);
// The room that encoder_finish needs now.
LEAT_CODEC_API uint64_t leat_codec_encoder_finish_bytes(const struct leat_codec_encoder *encoder);
// Writes the last block, the index and the footer. The encoder is done with then; a SPACE error
// leaves it as it was.
LEAT_CODEC_API enum leat_codec_err leat_codec_encoder_finish(struct leat_codec_encoder *encoder,
                                                             void *out, uint64_t capacity,
                                                             uint64_t *written);

// ---- What the bytes are. ----

// Guesses the element type of `n` bytes by what each type would gain on a sample. BYTES when
// nothing gains. The scratch is that for encoding with the default block.
LEAT_CODEC_API enum leat_codec_err leat_codec_detect(const void *plain, size_t n, void *scratch,
                                                     size_t scratch_bytes, uint32_t *type);

enum leat_codec_file {
    LEAT_CODEC_FILE_UNKNOWN = 0,
    LEAT_CODEC_FILE_SAFETENSORS = 1,
    LEAT_CODEC_FILE_GGUF = 2,
};
// Which format the first bytes of a file announce, and how many bytes its header has at most as far
// as these bytes tell (0 when it does not say; at least 16 bytes should be given).
LEAT_CODEC_API enum leat_codec_file leat_codec_file_kind(const void *head, size_t n,
                                                         uint64_t *header_bytes);
// Splits a safetensors or GGUF file of `file_bytes`, whose first `n` bytes are `head`, into regions
// in ascending order that cover the whole file; what is no tensor is of type BYTES with no name.
// FORMAT: malformed, or the header is longer than `n`. SPACE: more than `capacity` regions; `count`
// is written then too, with the number needed.
LEAT_CODEC_API enum leat_codec_err leat_codec_file_regions(const void *head, size_t n,
                                                           uint64_t file_bytes,
                                                           struct leat_codec_region *regions,
                                                           size_t capacity, size_t *count);

// ---- The decision. ----

// Rates in plain bytes a second and ratios plain / stored, for FAST and DENSE in this order.
struct leat_codec_rates {
    double encode[2];
    double decode[2];
};
struct leat_codec_plan_input {
    double plain_bytes;
    double link_bytes_per_s;
    double ratio[2]; // from leat_codec_estimate or from experience
    struct leat_codec_rates rates;
    double reuse;       // how many times the encoded bytes cross the link for one encoding, from 1
    bool is_encoded;    // the encoding is done already or happens elsewhere: it costs nothing
    bool is_overlapped; // encoder, link and decoder work at once on different blocks
};
struct leat_codec_plan {
    uint32_t mode;          // RAW: send plain bytes
    double seconds;         // predicted for one transfer in that mode
    double seconds_plain;   // predicted for one transfer without encoding
    double seconds_mode[2]; // predicted for FAST and DENSE
};
// Formula and its measurement: docs/tensor-codec.md. INVALID: a rate, ratio or count is not
// positive and finite.
LEAT_CODEC_API enum leat_codec_err leat_codec_plan(const struct leat_codec_plan_input *input,
                                                   struct leat_codec_plan *plan);
// What FAST and DENSE would gain on a sample of `plain`: ratios, not below 1.
LEAT_CODEC_API enum leat_codec_err leat_codec_estimate(const void *plain, size_t n, uint32_t type,
                                                       void *scratch, size_t scratch_bytes,
                                                       double ratio[2]);
// Measures this machine's rates on `plain` for about 4 * `round_ns`: the fastest call of each kind.
// `now_ns` reads a monotonic clock. `out` has room for n + BLOCK_HEADER_BYTES, `back` for n; n is 1
// to the default block size.
struct leat_codec_calibration {
    const void *plain;
    size_t n;
    uint32_t type;
    uint32_t cpu;
    void *out;
    void *back;
    uint64_t round_ns;
    uint64_t (*now_ns)(void *context);
    void *context;
};
LEAT_CODEC_API enum leat_codec_err leat_codec_calibrate(const struct leat_codec_calibration *how,
                                                        void *scratch, size_t scratch_bytes,
                                                        struct leat_codec_rates *rates);

// ---- GPU. ----

// Loads the CUDA kernels (libleatcodec-cuda.so) by dlopen, from `path` or by its name when NULL.
// UNAVAILABLE: no library, no driver or no device; everything above works without it.
struct leat_codec_gpu;
LEAT_CODEC_API enum leat_codec_err leat_codec_gpu_open(const char *path,
                                                       struct leat_codec_gpu *gpu);
LEAT_CODEC_API void leat_codec_gpu_close(struct leat_codec_gpu *gpu);

// One block of a batch. All pointers are device memory, 16-byte aligned.
struct leat_codec_gpu_block {
    const void *in;
    void *out;
    uint32_t in_bytes;  // encode: plain; decode: stored (header and payload)
    uint32_t out_bytes; // encode: capacity, at least in_bytes + header; decode: exactly plain bytes
    uint32_t type;      // encode only
    uint32_t mode;      // encode only
    uint32_t written;   // result: bytes written to `out`
    uint32_t status;    // result: enum leat_codec_err
};
// Filled by gpu_open. `batch` is device memory with `count` entries; `stream` is a CUstream or
// NULL. Each call is one launch; results are there when the stream has passed it. `workspace` is
// device memory of workspace_bytes(count), zeroed before its first use; every launch leaves it
// zeroed, and two launches that may run at once need two. encode writes what block_encode writes.
struct leat_codec_gpu {
    void *library;
    size_t (*workspace_bytes)(uint32_t count);
    int (*encode)(struct leat_codec_gpu_block *batch, uint32_t count, void *workspace,
                  void *stream);
    int (*decode)(struct leat_codec_gpu_block *batch, uint32_t count, void *workspace,
                  void *stream);
};

#ifdef __cplusplus
}
#endif
