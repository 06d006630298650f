// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a safetensors or GGUF file lie and of what type they are. The headers come
// from anywhere: every length is checked before it is used, nesting is limited, nothing allocates.
#include "codec/tensor/tensor_container.h"

#include "base/endian.h"
#include "base/slice.h"

#define JSON_DEPTH_MAX         32u
#define SAFETENSORS_HEADER_MAX (UINT64_C(100) * 1024 * 1024) // as its specification limits it
#define GGUF_ALIGNMENT_DEFAULT 32u
#define GGUF_DIMENSIONS_MAX    8u

// Collects regions in the caller's array, or only counts them when it is full.
struct region_sink {
    struct leat_codec_region *regions;
    size_t capacity;
    size_t count;
};

static void region_add(struct region_sink *sink, struct leat_codec_region region)
{
    if (sink->count < sink->capacity) {
        sink->regions[sink->count] = region;
    }
    sink->count++;
}

// ---- safetensors: eight bytes of length, then a JSON object ----

struct json {
    const u8 *data;
    size_t n;
    size_t at;
};

static void json_blanks(struct json *j)
{
    while (j->at < j->n && (j->data[j->at] == ' ' || j->data[j->at] == '\n' ||
                            j->data[j->at] == '\t' || j->data[j->at] == '\r')) {
        j->at++;
    }
}

// Whether the next thing is `c`; takes it if so.
static bool json_take(struct json *j, u8 c)
{
    json_blanks(j);
    if (j->at < j->n && j->data[j->at] == c) {
        j->at++;
        return true;
    }
    return false;
}

// A string, as it is written (escapes are not resolved: names are only shown).
static bool json_string(struct json *j, struct bytes *out)
{
    if (!json_take(j, '"')) {
        return false;
    }
    size_t begin = j->at;
    while (j->at < j->n && j->data[j->at] != '"') {
        j->at += j->data[j->at] == '\\' ? 2 : 1;
    }
    if (j->at >= j->n) {
        return false;
    }
    *out = BYTES(j->data + begin, j->at - begin);
    j->at++;
    return true;
}

static bool json_u64(struct json *j, u64 *out)
{
    json_blanks(j);
    size_t begin = j->at;
    u64 v = 0;
    while (j->at < j->n && j->data[j->at] >= '0' && j->data[j->at] <= '9') {
        u64 digit = (u64)(j->data[j->at] - '0');
        if (v > (UINT64_MAX - digit) / 10) {
            return false;
        }
        v = v * 10 + digit;
        j->at++;
    }
    *out = v;
    return j->at > begin;
}

// Passes over one value of any kind: brackets are counted, strings skipped.
static bool json_skip(struct json *j)
{
    u32 depth = 0;
    do {
        struct bytes text;
        json_blanks(j);
        if (j->at >= j->n) {
            return false;
        }
        u8 c = j->data[j->at];
        if (c == '"') {
            if (!json_string(j, &text)) {
                return false;
            }
        } else {
            j->at++;
            if (c == '{' || c == '[') {
                if (++depth > JSON_DEPTH_MAX) {
                    return false;
                }
            } else if (c == '}' || c == ']') {
                if (depth == 0) {
                    return false;
                }
                depth--;
            } else if (depth == 0) {
                // A number or a word ends where something that belongs to the frame begins.
                while (j->at < j->n && j->data[j->at] != ',' && j->data[j->at] != '}' &&
                       j->data[j->at] != ']') {
                    j->at++;
                }
            }
        }
    } while (depth > 0);
    return true;
}

static u32 safetensors_type(struct bytes name)
{
    static const struct {
        const char *name;
        u32 type;
    } types[] = {
        {"BF16", LEAT_CODEC_TYPE_BF16},        {"F16", LEAT_CODEC_TYPE_FP16},
        {"F32", LEAT_CODEC_TYPE_FP32},         {"F8_E4M3", LEAT_CODEC_TYPE_FP8_E4M3},
        {"F8_E5M2", LEAT_CODEC_TYPE_FP8_E5M2}, {"I8", LEAT_CODEC_TYPE_INT8},
    };
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (bytes_equal(name, bytes_from_string(types[i].name))) {
            return types[i].type;
        }
    }
    return LEAT_CODEC_TYPE_BYTES;
}

// One tensor's object: {"dtype": ..., "shape": ..., "data_offsets": [begin, end]}.
static bool safetensors_tensor(struct json *j, struct leat_codec_region *region)
{
    bool has_offsets = false;
    if (!json_take(j, '{')) {
        return false;
    }
    while (!json_take(j, '}')) {
        struct bytes key;
        if (!json_string(j, &key) || !json_take(j, ':')) {
            return false;
        }
        if (bytes_equal(key, BYTES_LITERAL("dtype"))) {
            struct bytes type;
            if (!json_string(j, &type)) {
                return false;
            }
            region->type = safetensors_type(type);
        } else if (bytes_equal(key, BYTES_LITERAL("data_offsets"))) {
            u64 begin;
            u64 end;
            if (!json_take(j, '[') || !json_u64(j, &begin) || !json_take(j, ',') ||
                !json_u64(j, &end) || !json_take(j, ']') || end < begin) {
                return false;
            }
            region->offset = begin;
            region->bytes = end - begin;
            has_offsets = true;
        } else if (!json_skip(j)) {
            return false;
        }
        json_take(j, ',');
    }
    return has_offsets;
}

static bool safetensors_collect(const u8 *head, size_t n, struct region_sink *sink)
{
    u64 header = load_le64(head);
    if (header > SAFETENSORS_HEADER_MAX || header > n - 8) {
        return false;
    }
    struct json j = {head + 8, header, 0};
    if (!json_take(&j, '{')) {
        return false;
    }
    while (!json_take(&j, '}')) {
        struct bytes name;
        if (!json_string(&j, &name) || !json_take(&j, ':')) {
            return false;
        }
        if (bytes_equal(name, BYTES_LITERAL("__metadata__"))) {
            if (!json_skip(&j)) {
                return false;
            }
        } else {
            struct leat_codec_region region = {.name_bytes = (u32)name.len,
                                               .name_offset = (u64)(name.data - head)};
            if (!safetensors_tensor(&j, &region) || region.offset > LEAT_CODEC_PLAIN_BYTES_MAX) {
                return false;
            }
            region.offset += 8 + header;
            region_add(sink, region);
        }
        json_take(&j, ',');
    }
    return true;
}

// ---- GGUF: a list of values, a list of tensors, then aligned data ----

struct reader {
    const u8 *data;
    size_t n;
    size_t at;
    bool is_short; // something reached past the end
};

static u64 read_le(struct reader *r, size_t bytes)
{
    u64 v = 0;
    if (bytes > r->n - r->at) {
        r->is_short = true;
        return 0;
    }
    memcpy(&v, r->data + r->at, bytes);
    r->at += bytes;
    return v;
}

static void reader_skip(struct reader *r, u64 bytes)
{
    if (bytes > r->n - r->at) {
        r->is_short = true;
        return;
    }
    r->at += bytes;
}

static struct bytes read_string(struct reader *r)
{
    u64 len = read_le(r, 8);
    size_t at = r->at;
    reader_skip(r, len);
    return r->is_short ? BYTES_NONE : BYTES(r->data + at, len);
}

enum gguf_value {
    GGUF_VALUE_STRING = 8,
    GGUF_VALUE_ARRAY = 9,
    GGUF_VALUE_COUNT = 13,
};

// Passes over a value; returns it when it is an unsigned 32-bit number, else 0.
static u64 gguf_value(struct reader *r, u32 type)
{
    static const u8 sizes[GGUF_VALUE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    u64 repeat = 1;
    if (type == GGUF_VALUE_ARRAY) {
        type = (u32)read_le(r, 4);
        repeat = read_le(r, 8);
        if (type == GGUF_VALUE_ARRAY) {
            r->is_short = true; // an array in an array: no writer makes one
            return 0;
        }
    }
    if (type >= GGUF_VALUE_COUNT || repeat > r->n) {
        r->is_short = true;
        return 0;
    }
    if (type == GGUF_VALUE_STRING) {
        for (u64 i = 0; i < repeat && !r->is_short; i++) {
            read_string(r);
        }
        return 0;
    }
    if (type == 4 && repeat == 1) {
        return read_le(r, 4);
    }
    reader_skip(r, repeat * sizes[type]);
    return 0;
}

// The element type, and bits per element where they are whole bytes (0: blocks of a quantization).
static u32 gguf_type(u32 type, u64 *element_bytes)
{
    *element_bytes = type == 0 ? 4 : type == 1 || type == 30 ? 2 : type == 24 ? 1 : 0;
    return type == 0    ? LEAT_CODEC_TYPE_FP32
           : type == 1  ? LEAT_CODEC_TYPE_FP16
           : type == 30 ? LEAT_CODEC_TYPE_BF16
           : type == 24 ? LEAT_CODEC_TYPE_INT8
                        : LEAT_CODEC_TYPE_BYTES;
}

static bool gguf_tensor(struct reader *r, struct leat_codec_region *region)
{
    struct bytes name = read_string(r);
    u64 dimensions = read_le(r, 4);
    u64 elements = 1;
    if (r->is_short || dimensions > GGUF_DIMENSIONS_MAX || name.len > UINT32_MAX) {
        return false;
    }
    for (u64 i = 0; i < dimensions; i++) {
        u64 extent = read_le(r, 8);
        if (extent != 0 && elements > LEAT_CODEC_PLAIN_BYTES_MAX / extent) {
            return false;
        }
        elements *= extent;
    }
    u64 element_bytes;
    region->type = gguf_type((u32)read_le(r, 4), &element_bytes);
    region->offset = read_le(r, 8);
    region->bytes = elements * element_bytes;
    region->name_bytes = (u32)name.len;
    region->name_offset = r->is_short || name.len == 0 ? 0 : (u64)(name.data - r->data);
    return !r->is_short && region->offset <= LEAT_CODEC_PLAIN_BYTES_MAX &&
           region->bytes <= LEAT_CODEC_PLAIN_BYTES_MAX;
}

// Walks the values for the alignment, then collects the tensors, whose offsets count from the data.
static bool gguf_collect(const u8 *head, size_t n, struct region_sink *sink)
{
    struct reader r = {head, n, 4, false};
    u64 version = read_le(&r, 4);
    u64 tensors = read_le(&r, 8);
    u64 values = read_le(&r, 8);
    u64 alignment = GGUF_ALIGNMENT_DEFAULT;
    if (r.is_short || version < 2 || version > 3 || tensors > n || values > n) {
        return false;
    }
    for (u64 i = 0; i < values && !r.is_short; i++) {
        struct bytes key = read_string(&r);
        u64 value = gguf_value(&r, (u32)read_le(&r, 4));
        if (bytes_equal(key, BYTES_LITERAL("general.alignment"))) {
            alignment = value;
        }
    }
    if (r.is_short || !IS_POWER_OF_TWO(alignment) || alignment > MIB) {
        return false;
    }
    size_t first = sink->count;
    for (u64 i = 0; i < tensors; i++) {
        struct leat_codec_region region = {0};
        if (!gguf_tensor(&r, &region)) {
            return false;
        }
        region_add(sink, region);
    }
    u64 data = ALIGN_UP((u64)r.at, alignment);
    for (size_t i = first; i < MIN(sink->count, sink->capacity); i++) {
        sink->regions[i].offset += data;
    }
    return true;
}

// ---- both ----

// Heap sort by offset: no recursion, no allocation, and never quadratic on hostile headers.
static void regions_sort(struct leat_codec_region *r, size_t n)
{
    for (size_t end = n, start = n / 2; end > 1;) {
        struct leat_codec_region moving;
        if (start > 0) {
            moving = r[--start];
        } else {
            moving = r[--end];
            r[end] = r[0];
        }
        size_t hole = start;
        for (size_t child; (child = 2 * hole + 1) < end; hole = child) {
            child += child + 1 < end && r[child + 1].offset > r[child].offset ? 1 : 0;
            if (r[child].offset <= moving.offset) {
                break;
            }
            r[hole] = r[child];
        }
        r[hole] = moving;
    }
}

// Turns the tensors in regions[0, tensors) into regions that cover [0, file_bytes) without a gap.
// There is room for 2 * tensors + 1. Empty tensors vanish, overlapping ones are an error.
static bool regions_cover(struct leat_codec_region *regions, size_t tensors, u64 file_bytes,
                          size_t *count)
{
    regions_sort(regions, tensors);
    // Move to the end of the room, so that the fill from the front never overtakes the reading.
    size_t room = 2 * tensors + 1;
    memmove(regions + (room - tensors), regions, tensors * sizeof(*regions));
    u64 at = 0;
    size_t n = 0;
    for (size_t i = room - tensors; i < room; i++) {
        struct leat_codec_region r = regions[i];
        u64 next = i + 1 < room ? regions[i + 1].offset : file_bytes;
        bool is_unsized = r.bytes == 0 && r.type == LEAT_CODEC_TYPE_BYTES && next > r.offset;
        if (is_unsized) {
            r.bytes = next - r.offset; // a quantized GGUF tensor reaches to the next one
        }
        if (r.bytes == 0) {
            continue;
        }
        if (r.offset < at || r.offset > file_bytes || r.bytes > file_bytes - r.offset) {
            return false;
        }
        if (r.offset > at) {
            regions[n++] = (struct leat_codec_region){.offset = at, .bytes = r.offset - at};
        }
        regions[n++] = r;
        at = r.offset + r.bytes;
    }
    if (at < file_bytes) {
        regions[n++] = (struct leat_codec_region){.offset = at, .bytes = file_bytes - at};
    }
    *count = n;
    return true;
}

enum leat_codec_file leat_codec_file_kind(const void *head, size_t n, uint64_t *header_bytes)
{
    const u8 *p = head;
    *header_bytes = 0;
    if (n >= 24 && memcmp(p, "GGUF", 4) == 0) {
        return LEAT_CODEC_FILE_GGUF;
    }
    if (n >= 10 && load_le64(p) <= SAFETENSORS_HEADER_MAX && load_le64(p) >= 2 && p[8] == '{') {
        *header_bytes = 8 + load_le64(p);
        return LEAT_CODEC_FILE_SAFETENSORS;
    }
    return LEAT_CODEC_FILE_UNKNOWN;
}

enum leat_codec_err leat_codec_file_regions(const void *head, size_t n, uint64_t file_bytes,
                                            struct leat_codec_region *regions, size_t capacity,
                                            size_t *count)
{
    u64 header_bytes;
    struct region_sink sink = {regions, capacity, 0};
    bool ok = false;
    if (n > file_bytes || file_bytes > LEAT_CODEC_PLAIN_BYTES_MAX) {
        return LEAT_CODEC_ERR_INVALID;
    }
    enum leat_codec_file kind = leat_codec_file_kind(head, n, &header_bytes);
    if (kind == LEAT_CODEC_FILE_SAFETENSORS) {
        ok = safetensors_collect(head, n, &sink);
    } else if (kind == LEAT_CODEC_FILE_GGUF) {
        ok = gguf_collect(head, n, &sink);
    }
    if (!ok) {
        return LEAT_CODEC_ERR_FORMAT;
    }
    if (2 * sink.count + 1 > capacity) {
        *count = 2 * sink.count + 1;
        return LEAT_CODEC_ERR_SPACE;
    }
    return regions_cover(regions, sink.count, file_bytes, count) ? LEAT_CODEC_OK
                                                                 : LEAT_CODEC_ERR_FORMAT;
}
