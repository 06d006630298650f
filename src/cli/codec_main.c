// SPDX-License-Identifier: Apache-2.0
// Arguments of `leat codec` and the verbs.
#include "cli/codec_cmd.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/slice.h"
#include "base/text.h"
#include "cli/codec_internal.h"

static const char usage[] =
    "usage: leat codec encode FILE [-o OUT] [--type T] [--mode M] [--block BYTES]\n"
    "       leat codec decode FILE [-o OUT] [--range OFFSET:LENGTH]\n"
    "       leat codec inspect FILE\n"
    "       leat codec plan FILE --link BYTES-PER-S [--reuse N] [--encoded] [--overlap]\n"
    "       leat codec bench [--seconds S] [--cached] [--csv OUT]\n"
    "\n"
    "Compresses tensors without loss. encode understands safetensors and GGUF and takes each\n"
    "tensor's type from the header; other files are of the --type given, or guessed by sampling.\n"
    "  --type     bytes bf16 fp16 fp32 fp8_e4m3 fp8_e5m2 int8 (default: from the file)\n"
    "  --mode     raw fast dense auto (default: auto, by a sample of each block)\n"
    "  --block    bytes of input in a block, 1024 to 1048576, a multiple of 64 (default: 262144)\n"
    "  --cpu      auto c avx2 avx512 (default: auto)\n"
    "  --range    decode only these plain bytes\n"
    "  --force    replace an existing output\n"
    "  --quiet    no progress bar, no list of tensors\n"
    "  --cached   bench only a set of blocks that stays in the caches, not one from memory\n";

enum {
    OPTION_TYPE = 256,
    OPTION_MODE,
    OPTION_BLOCK,
    OPTION_CPU,
    OPTION_RANGE,
    OPTION_LINK,
    OPTION_REUSE,
    OPTION_ENCODED,
    OPTION_OVERLAP,
    OPTION_SECONDS,
    OPTION_CSV,
    OPTION_CACHED,
};

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"force", no_argument, NULL, 'f'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"type", required_argument, NULL, OPTION_TYPE},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"block", required_argument, NULL, OPTION_BLOCK},
    {"cpu", required_argument, NULL, OPTION_CPU},
    {"range", required_argument, NULL, OPTION_RANGE},
    {"link", required_argument, NULL, OPTION_LINK},
    {"reuse", required_argument, NULL, OPTION_REUSE},
    {"encoded", no_argument, NULL, OPTION_ENCODED},
    {"overlap", no_argument, NULL, OPTION_OVERLAP},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"csv", required_argument, NULL, OPTION_CSV},
    {"cached", no_argument, NULL, OPTION_CACHED},
    {NULL, 0, NULL, 0},
};

static bool number_parse(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == 0 && *out > 0.0 && *out < 1e18;
}

static bool range_parse(const char *text, struct codec_args *a)
{
    const char *colon = strchr(text, ':');
    return colon != NULL &&
           u64_parse(BYTES(text, (size_t)(colon - text)), INT64_MAX, &a->range_offset) &&
           u64_parse(bytes_from_string(colon + 1), INT64_MAX, &a->range_bytes) &&
           a->range_bytes > 0;
}

static bool cpu_parse(const char *text, u32 *cpu)
{
    static const char *const names[] = {"auto", "c", "avx2", "avx512"};
    for (u32 i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *cpu = i;
            return leat_codec_cpu_name(i) != NULL;
        }
    }
    return false;
}

// Takes one option; false when its argument is wrong.
static bool option_take(int option, const char *value, struct codec_args *a)
{
    u64 block;
    switch (option) {
    case 'o':
        a->output = value;
        return true;
    case 'f':
        a->is_forced = true;
        return true;
    case 'q':
        a->is_quiet = true;
        return true;
    case OPTION_TYPE:
        return leat_codec_type_from_name(value, &a->type) == LEAT_CODEC_OK;
    case OPTION_MODE:
        return leat_codec_mode_from_name(value, &a->mode) == LEAT_CODEC_OK;
    case OPTION_BLOCK:
        if (!u64_parse(bytes_from_string(value), LEAT_CODEC_BLOCK_BYTES_MAX, &block) ||
            block < LEAT_CODEC_BLOCK_BYTES_MIN || block % 64 != 0) {
            return false;
        }
        a->block_bytes = (u32)block;
        return true;
    case OPTION_CPU:
        return cpu_parse(value, &a->cpu);
    case OPTION_RANGE:
        return range_parse(value, a);
    case OPTION_LINK:
        return number_parse(value, &a->link_bytes_per_s);
    case OPTION_REUSE:
        return number_parse(value, &a->reuse) && a->reuse >= 1.0;
    case OPTION_ENCODED:
        a->is_encoded = true;
        return true;
    case OPTION_OVERLAP:
        a->is_overlapped = true;
        return true;
    case OPTION_SECONDS:
        return number_parse(value, &a->seconds) && a->seconds <= 60.0;
    case OPTION_CSV:
        a->csv = value;
        return true;
    case OPTION_CACHED:
        a->is_cached = true;
        return true;
    default:
        return false;
    }
}

static const struct verb {
    const char *name;
    int (*run)(const struct codec_args *a);
    bool needs_file;
} verbs[] = {
    {"encode", codec_encode_run, true},   {"decode", codec_decode_run, true},
    {"inspect", codec_inspect_run, true}, {"plan", codec_plan_run, true},
    {"bench", codec_bench_run, false},
};

static const struct verb *verb_find(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(verbs); i++) {
        if (strcmp(argv[1], verbs[i].name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

int cli_codec_main(int argc, char **argv)
{
    struct codec_args a = {
        .type = CODEC_TYPE_AUTO, .mode = LEAT_CODEC_MODE_AUTO, .reuse = 1.0, .seconds = 0.2};
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    const struct verb *verb = verb_find(argc, argv);
    if (verb == NULL) {
        fputs(usage, stderr);
        return 2;
    }
    argc--;
    argv++;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "o:fqh", options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (option == '?') {
            return 2;
        }
        if (!option_take(option, optarg, &a)) {
            fprintf(stderr, "leat codec: '%s' is not allowed here; see leat codec --help\n",
                    optarg);
            return 2;
        }
    }
    if (argc - optind != (verb->needs_file ? 1 : 0)) {
        fputs(usage, stderr);
        return 2;
    }
    a.input = argv[optind];
    return verb->run(&a);
}
