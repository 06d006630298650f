// SPDX-License-Identifier: Apache-2.0
// encode, decode and plan. Files are streamed through a buffer of a block or so; only the input is
// mapped. An output appears under its name when it is complete and durable, or not at all.
#include <stdlib.h>
#include <string.h>

#include "cli/codec_internal.h"

#define SUFFIX      ".ltc"
#define PIECE_BYTES (4 * MIB) // what goes between two looks at the progress bar

static int fail(const char *path, enum leat_codec_err e)
{
    fprintf(stderr, "leat codec: %s: %s\n", path, leat_codec_err_text(e));
    return 1;
}

// The state of one encoding.
struct encoding {
    struct leat_codec_encoder *encoder;
    struct codec_output out;
    struct codec_progress progress;
    u8 *room;
    size_t room_bytes;
};

// Encodes one region; false with *err OK after a failed write, which has been reported.
static bool region_encode(struct encoding *e, const u8 *data, const struct leat_codec_region *r,
                          enum leat_codec_err *err)
{
    size_t written;
    *err = leat_codec_encoder_set_type(e->encoder, r->type, e->room, e->room_bytes, &written);
    if (*err != LEAT_CODEC_OK || !codec_output_write(&e->out, e->room, written)) {
        return false;
    }
    for (u64 done = 0; done < r->bytes;) {
        size_t consumed;
        size_t n = MIN(r->bytes - done, (u64)PIECE_BYTES);
        *err = leat_codec_encoder_write(e->encoder, data + r->offset + done, n, &consumed, e->room,
                                        e->room_bytes, &written);
        if (*err != LEAT_CODEC_OK || !codec_output_write(&e->out, e->room, written)) {
            return false;
        }
        done += consumed;
        codec_progress_show(&e->progress, r->offset + done);
    }
    return true;
}

static bool regions_encode(struct encoding *e, const u8 *data, const struct leat_codec_region *r,
                           size_t count, enum leat_codec_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!region_encode(e, data, &r[i], err)) {
            return false;
        }
    }
    u64 last_bytes = leat_codec_encoder_finish_bytes(e->encoder);
    u8 *last = codec_alloc(last_bytes);
    u64 written = 0;
    *err = leat_codec_encoder_finish(e->encoder, last, last_bytes, &written);
    bool ok = *err == LEAT_CODEC_OK && codec_output_write(&e->out, last, written);
    free(last);
    return ok;
}

// Encodes a mapped file into `path`.
static int file_encode(const struct codec_args *a, const struct codec_file *in, const char *path)
{
    struct encoding e = {0};
    struct leat_codec_options o = {.block_bytes = a->block_bytes, .mode = a->mode, .cpu = a->cpu};
    size_t count;
    u64 bytes;
    u8 *memory = NULL;
    struct leat_codec_region *regions = codec_regions(in->data, in->size, a->type, &count);
    enum leat_codec_err err = leat_codec_encoder_bytes(&o, in->size, count + 1, &bytes);
    bool ok = false;
    if (err == LEAT_CODEC_OK) {
        memory = codec_alloc(bytes);
        err = leat_codec_encoder_init(&o, in->size, count + 1, memory, bytes, &e.encoder);
    }
    if (err == LEAT_CODEC_OK && codec_output_open(&e.out, path, a->is_forced)) {
        e.room_bytes = leat_codec_encoder_output_bytes_min(e.encoder) + PIECE_BYTES;
        e.room = codec_alloc(e.room_bytes);
        codec_progress_start(&e.progress, "encode", in->size, a->is_quiet);
        ok = regions_encode(&e, in->data, regions, count, &err);
        codec_progress_end(&e.progress);
        ok = codec_output_close(&e.out, ok) && ok;
    }
    free(e.room);
    free(memory);
    free(regions);
    if (err != LEAT_CODEC_OK) {
        return fail(a->input, err);
    }
    return ok ? 0 : 1;
}

int codec_encode_run(const struct codec_args *a)
{
    struct codec_file in;
    char path[CODEC_PATH_BYTES_MAX];
    int n = snprintf(path, sizeof(path), "%s%s", a->output != NULL ? a->output : a->input,
                     a->output != NULL ? "" : SUFFIX);
    if (n < 0 || (size_t)n >= sizeof(path) || !codec_file_open(a->input, &in)) {
        return 1;
    }
    int status = file_encode(a, &in, path);
    codec_file_close(&in);
    if (status == 0 && !a->is_quiet) {
        struct codec_args show = *a;
        show.input = path;
        status = codec_inspect_run(&show);
    }
    return status;
}

// Decodes [begin, end) piece by piece.
static int range_decode(const struct codec_args *a, const struct leat_codec_reader *in,
                        const char *path, u64 begin, u64 end)
{
    struct codec_output out;
    struct codec_progress progress;
    size_t scratch_bytes = leat_codec_decode_scratch_bytes(LEAT_CODEC_BLOCK_BYTES_MAX);
    if (!codec_output_open(&out, path, a->is_forced)) {
        return 1;
    }
    u8 *scratch = codec_alloc(scratch_bytes);
    u8 *room = codec_alloc(PIECE_BYTES);
    enum leat_codec_err err = LEAT_CODEC_OK;
    bool ok = true;
    codec_progress_start(&progress, "decode", end - begin, a->is_quiet);
    for (u64 at = begin; ok && at < end;) {
        struct leat_codec_range range = {at, MIN(end - at, (u64)PIECE_BYTES)};
        err = leat_codec_reader_decode_range(in, range, room, scratch, scratch_bytes, a->cpu);
        ok = err == LEAT_CODEC_OK && codec_output_write(&out, room, range.length);
        at += range.length;
        codec_progress_show(&progress, at - begin);
    }
    codec_progress_end(&progress);
    ok = codec_output_close(&out, ok) && ok;
    free(room);
    free(scratch);
    if (err != LEAT_CODEC_OK) {
        return fail(a->input, err);
    }
    return ok ? 0 : 1;
}

int codec_decode_run(const struct codec_args *a)
{
    struct codec_file in;
    struct leat_codec_reader reader;
    char path[CODEC_PATH_BYTES_MAX];
    size_t length = strlen(a->input);
    bool has_suffix =
        length > strlen(SUFFIX) && strcmp(a->input + length - strlen(SUFFIX), SUFFIX) == 0;
    if (a->output == NULL && !has_suffix) {
        fprintf(stderr, "leat codec: name the output with -o\n");
        return 2;
    }
    int n = a->output != NULL
                ? snprintf(path, sizeof(path), "%s", a->output)
                : snprintf(path, sizeof(path), "%.*s", (int)(length - strlen(SUFFIX)), a->input);
    if (n < 0 || (size_t)n >= sizeof(path) || !codec_file_open(a->input, &in)) {
        return 1;
    }
    int status;
    enum leat_codec_err err = leat_codec_reader_open(in.data, in.size, &reader);
    u64 end = 0;
    if (err == LEAT_CODEC_OK) {
        end = a->range_bytes == 0 ? reader.info.plain_bytes : a->range_offset + a->range_bytes;
        err = end > reader.info.plain_bytes ? LEAT_CODEC_ERR_RANGE : LEAT_CODEC_OK;
    }
    status = err != LEAT_CODEC_OK ? fail(a->input, err)
                                  : range_decode(a, &reader, path, a->range_offset, end);
    codec_file_close(&in);
    return status;
}

// Measures this machine on a block from the middle of the file and fills in the input of a plan.
static enum leat_codec_err plan_measure(const struct codec_args *a, const struct codec_file *in,
                                        u32 type, struct leat_codec_plan_input *input)
{
    size_t scratch_bytes =
        MAX(leat_codec_encode_scratch_bytes(0), leat_codec_decode_scratch_bytes(0));
    size_t n = MIN(in->size, (u64)LEAT_CODEC_BLOCK_BYTES_DEFAULT);
    u8 *scratch = codec_alloc(scratch_bytes);
    u8 *out = codec_alloc(n + LEAT_CODEC_BLOCK_HEADER_BYTES);
    u8 *back = codec_alloc(n);
    struct leat_codec_calibration how = {
        .plain = in->data + ALIGN_DOWN((in->size - n) / 2, 4u),
        .n = n,
        .type = type,
        .cpu = a->cpu,
        .out = out,
        .back = back,
        .round_ns = (u64)(a->seconds * 1e9),
        .now_ns = codec_now_ns,
    };
    enum leat_codec_err err =
        leat_codec_estimate(in->data, in->size, type, scratch, scratch_bytes, input->ratio);
    if (err == LEAT_CODEC_OK) {
        err = leat_codec_calibrate(&how, scratch, scratch_bytes, &input->rates);
    }
    free(back);
    free(out);
    free(scratch);
    return err;
}

int codec_plan_run(const struct codec_args *a)
{
    struct codec_file in;
    struct leat_codec_plan plan;
    if (a->link_bytes_per_s <= 0.0) {
        fprintf(stderr, "leat codec: plan needs --link\n");
        return 2;
    }
    if (!codec_file_open(a->input, &in)) {
        return 1;
    }
    struct leat_codec_plan_input input = {.plain_bytes = (double)in.size,
                                          .link_bytes_per_s = a->link_bytes_per_s,
                                          .reuse = a->reuse,
                                          .is_encoded = a->is_encoded,
                                          .is_overlapped = a->is_overlapped};
    size_t count;
    struct leat_codec_region *regions = codec_regions(in.data, in.size, a->type, &count);
    // The largest region stands for the file.
    size_t largest = 0;
    for (size_t i = 1; i < count; i++) {
        largest = regions[i].bytes > regions[largest].bytes ? i : largest;
    }
    u32 type = regions[largest].type;
    enum leat_codec_err err =
        in.size == 0 ? LEAT_CODEC_ERR_INVALID : plan_measure(a, &in, type, &input);
    free(regions);
    codec_file_close(&in);
    if (err == LEAT_CODEC_OK) {
        err = leat_codec_plan(&input, &plan);
    }
    if (err != LEAT_CODEC_OK) {
        return fail(a->input, err);
    }
    printf("type %s, link %.3f GB/s, reuse %.0f%s%s\n", leat_codec_type_name(type),
           a->link_bytes_per_s / 1e9, a->reuse, a->is_encoded ? ", encoded already" : "",
           a->is_overlapped ? ", overlapped" : "");
    printf("raw    ratio 1.000                                      predicted %.6f s\n",
           plan.seconds_plain);
    for (u32 i = 0; i < 2; i++) {
        printf("%-6s ratio %.3f  encode %6.2f GB/s  decode %6.2f GB/s  predicted %.6f s\n",
               leat_codec_mode_name(LEAT_CODEC_MODE_FAST + i), input.ratio[i],
               input.rates.encode[i] / 1e9, input.rates.decode[i] / 1e9, plan.seconds_mode[i]);
    }
    printf("decision: %s\n", leat_codec_mode_name(plan.mode));
    return 0;
}
