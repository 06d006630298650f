// SPDX-License-Identifier: Apache-2.0
// inspect: what a container holds and what each tensor gained; for a file that is no container,
// what each tensor would gain, by a sample.
#include <stdlib.h>
#include <string.h>

#include "cli/codec_internal.h"

#define HEADER_FIRST_BYTES MIB
#define HEADER_MAX_BYTES   (256 * MIB)

// Blocks, plain and stored bytes by mode.
struct tally {
    u64 blocks[3];
    u64 plain[3];
    u64 stored[3];
};

// Decodes the first bytes of the plain file until they hold its whole header, and finds the
// regions. NULL when it is neither safetensors nor GGUF; the caller frees *head and the result.
static struct leat_codec_region *container_regions(const struct codec_file *in,
                                                   const struct leat_codec_info *info, u8 **head,
                                                   size_t *count)
{
    size_t scratch_bytes = leat_codec_decode_scratch_bytes(LEAT_CODEC_BLOCK_BYTES_MAX);
    u8 *scratch = codec_alloc(scratch_bytes);
    struct leat_codec_region *found = NULL;
    u64 limit = MIN(info->plain_bytes, (u64)HEADER_MAX_BYTES);
    *head = NULL;
    for (u64 n = MIN(limit, (u64)HEADER_FIRST_BYTES); found == NULL; n = MIN(n * 4, limit)) {
        u64 header;
        free(*head);
        *head = codec_alloc(n);
        struct leat_codec_range range = {0, n};
        if (leat_codec_decode_range(in->data, in->size, range, *head, scratch, scratch_bytes,
                                    LEAT_CODEC_CPU_AUTO) != LEAT_CODEC_OK ||
            leat_codec_file_kind(*head, n, &header) == LEAT_CODEC_FILE_UNKNOWN) {
            break;
        }
        enum leat_codec_err e =
            leat_codec_file_regions(*head, n, info->plain_bytes, NULL, 0, count);
        if (e == LEAT_CODEC_ERR_SPACE) {
            found = codec_alloc(*count * sizeof(*found));
            size_t capacity = *count;
            if (leat_codec_file_regions(*head, n, info->plain_bytes, found, capacity, count) !=
                LEAT_CODEC_OK) {
                free(found);
                found = NULL;
                break;
            }
        } else if (n == limit) {
            break;
        }
    }
    free(scratch);
    return found;
}

// Adds up the blocks of every region and prints it. Blocks never cross regions that the encoder
// knew.
static enum leat_codec_err blocks_walk(const struct codec_file *in,
                                       const struct leat_codec_info *info, u64 *stored,
                                       const struct leat_codec_region *regions, size_t count,
                                       struct tally *t)
{
    size_t region = 0;
    const u8 *index = in->data + info->index_offset;
    for (u64 i = 0; i < info->block_count; i++) {
        struct leat_codec_block_info b;
        enum leat_codec_err e = leat_codec_index_entry(index, info, i, &b);
        if (e != LEAT_CODEC_OK) {
            return e;
        }
        // The mode stands at byte 4 of a block's header; the index has vouched for its place.
        u32 mode = in->data[b.stored_offset + 4];
        if (mode > LEAT_CODEC_MODE_DENSE) {
            return LEAT_CODEC_ERR_FORMAT;
        }
        t->blocks[mode]++;
        t->plain[mode] += b.plain_bytes;
        t->stored[mode] += b.stored_bytes;
        while (region + 1 < count && b.plain_offset >= regions[region + 1].offset) {
            region++;
        }
        if (count > 0) {
            stored[region] += b.stored_bytes;
        }
    }
    return LEAT_CODEC_OK;
}

static int container_inspect(const struct codec_args *a, const struct codec_file *in,
                             const struct leat_codec_info *info)
{
    u8 *head;
    size_t count = 0;
    struct tally t = {0};
    struct leat_codec_region *regions = container_regions(in, info, &head, &count);
    u64 *stored = codec_alloc((count + 1) * sizeof(*stored));
    memset(stored, 0, (count + 1) * sizeof(*stored));
    enum leat_codec_err e = blocks_walk(in, info, stored, regions, regions == NULL ? 0 : count, &t);
    for (size_t i = 0; regions != NULL && i < count && e == LEAT_CODEC_OK; i++) {
        codec_region_print(head, &regions[i], stored[i]);
    }
    free(stored);
    free(regions);
    free(head);
    if (e != LEAT_CODEC_OK) {
        fprintf(stderr, "leat codec: %s: %s\n", a->input, leat_codec_err_text(e));
        return 1;
    }
    for (u32 mode = 0; mode < 3; mode++) {
        if (t.blocks[mode] > 0) {
            printf("%-5s %8llu blocks %14llu -> %14llu  %6.3f\n", leat_codec_mode_name(mode),
                   (unsigned long long)t.blocks[mode], (unsigned long long)t.plain[mode],
                   (unsigned long long)t.stored[mode],
                   (double)t.plain[mode] / (double)t.stored[mode]);
        }
    }
    printf("container of version %u: %llu plain bytes in %llu, ratio %.4f\n", info->version,
           (unsigned long long)info->plain_bytes, (unsigned long long)info->container_bytes,
           (double)info->plain_bytes / (double)info->container_bytes);
    return 0;
}

// What each region would gain in the denser of the modes, by a sample.
static int plain_inspect(const struct codec_args *a, const struct codec_file *in)
{
    size_t count;
    size_t scratch_bytes = leat_codec_encode_scratch_bytes(0);
    u8 *scratch = codec_alloc(scratch_bytes);
    struct leat_codec_region *regions = codec_regions(in->data, in->size, a->type, &count);
    u64 total = 0;
    for (size_t i = 0; i < count; i++) {
        double ratio[2] = {1.0, 1.0};
        if (regions[i].bytes > 0 &&
            leat_codec_estimate(in->data + regions[i].offset, regions[i].bytes, regions[i].type,
                                scratch, scratch_bytes, ratio) != LEAT_CODEC_OK) {
            continue;
        }
        u64 stored = (u64)((double)regions[i].bytes / MAX(ratio[0], ratio[1]));
        codec_region_print(in->data, &regions[i], stored);
        total += stored;
    }
    printf("estimate: %llu plain bytes in %llu\n", (unsigned long long)in->size,
           (unsigned long long)total);
    free(regions);
    free(scratch);
    return 0;
}

int codec_inspect_run(const struct codec_args *a)
{
    struct codec_file in;
    struct leat_codec_info info;
    if (!codec_file_open(a->input, &in)) {
        return 1;
    }
    enum leat_codec_err e = leat_codec_info_read(in.data, in.size, &info);
    int status;
    if (e == LEAT_CODEC_OK) {
        status = container_inspect(a, &in, &info);
    } else if (in.size >= 8 && memcmp(in.data, "LEATTEN", 7) == 0) {
        fprintf(stderr, "leat codec: %s: %s\n", a->input, leat_codec_err_text(e));
        status = 1;
    } else {
        status = plain_inspect(a, &in);
    }
    codec_file_close(&in);
    return status;
}
