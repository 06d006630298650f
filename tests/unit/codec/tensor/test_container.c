// SPDX-License-Identifier: Apache-2.0
// Containers as a whole: ranges against a full decode, damage of every bit and every truncation,
// the streaming encoder, remote reading, limits, and many threads at once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "codec/tensor/tensor_block.h"
#include "tests/unit/codec/tensor/tensor_data.h"

#include "leat/codec.h"

#define SCRATCH MIB

// A container in memory of its exact size, so that a sanitizer sees every step beyond it.
struct sample {
    u8 *plain;
    size_t n;
    u8 *container;
    u64 size;
    u8 *scratch;
};

static void *exact(size_t n)
{
    void *p = aligned_alloc(64, ALIGN_UP(n == 0 ? 1 : n, 64u));
    assert_non_null(p);
    return p;
}

static struct sample sample_make(enum data_kind kind, struct leat_codec_options o, size_t n)
{
    struct sample s = {.plain = malloc(n + 1), .n = n, .scratch = exact(SCRATCH)};
    struct data_random r = {n + kind};
    u64 bound;
    data_fill(&r, kind, o.type, s.plain, n);
    assert_int_equal(leat_codec_encode_bound(&o, n, 1, &bound), LEAT_CODEC_OK);
    u8 *room = malloc(bound);
    assert_int_equal(leat_codec_encode(&o, s.plain, n, room, bound, s.scratch, SCRATCH, &s.size),
                     LEAT_CODEC_OK);
    s.container = malloc(s.size);
    memcpy(s.container, room, s.size);
    free(room);
    return s;
}

static void sample_free(struct sample *s)
{
    free(s->plain);
    free(s->container);
    free(s->scratch);
}

static void test_ranges(void **state)
{
    (void)state;
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        struct leat_codec_options o = {.block_bytes = 4096, .type = type, .mode = 3};
        struct sample s = sample_make(DATA_WEIGHTS, o, 20011);
        struct data_random r = {type};
        for (u32 i = 0; i < 400; i++) {
            struct leat_codec_range range = {.offset = data_random_u64(&r) % (s.n + 1)};
            range.length = data_random_u64(&r) % (s.n - range.offset + 1);
            if (i % 3 == 0) {
                range.length = MIN(range.length, (u64)i);
            }
            u8 *out = malloc(range.length + 1);
            out[range.length] = 0x77;
            assert_int_equal(leat_codec_decode_range(s.container, s.size, range, out, s.scratch,
                                                     SCRATCH, LEAT_CODEC_CPU_AUTO),
                             LEAT_CODEC_OK);
            assert_memory_equal(out, s.plain + range.offset, range.length);
            assert_int_equal(out[range.length], 0x77);
            free(out);
        }
        u8 byte;
        struct leat_codec_range past[] = {{s.n, 1}, {s.n + 1, 0}, {0, s.n + 1}, {1, UINT64_MAX}};
        for (u32 i = 0; i < ARRAY_LEN(past); i++) {
            assert_int_equal(leat_codec_decode_range(s.container, s.size, past[i], &byte, s.scratch,
                                                     SCRATCH, LEAT_CODEC_CPU_AUTO),
                             LEAT_CODEC_ERR_RANGE);
        }
        sample_free(&s);
    }
}

// A range reads only the blocks it touches: with all other blocks destroyed it still succeeds.
static void test_range_touches_only_its_blocks(void **state)
{
    (void)state;
    struct leat_codec_options o = {.block_bytes = 4096, .type = LEAT_CODEC_TYPE_BF16, .mode = 2};
    struct sample s = sample_make(DATA_WEIGHTS, o, 5 * 4096);
    struct leat_codec_block_info b;
    u8 *out = malloc(4096);
    for (u64 i = 0; i < 5; i++) {
        assert_int_equal(leat_codec_block_info_read(s.container, s.size, i, &b), LEAT_CODEC_OK);
        assert_int_equal(b.mode, LEAT_CODEC_MODE_DENSE);
        assert_int_equal(b.plain_offset, i * 4096);
        if (i != 2) {
            memset(s.container + b.stored_offset, 0, b.stored_bytes);
        }
    }
    struct leat_codec_range range = {2 * 4096 + 5, 4000};
    assert_int_equal(
        leat_codec_decode_range(s.container, s.size, range, out, s.scratch, SCRATCH, 0),
        LEAT_CODEC_OK);
    assert_memory_equal(out, s.plain + range.offset, range.length);
    range.offset -= 6;
    assert_int_equal(
        leat_codec_decode_range(s.container, s.size, range, out, s.scratch, SCRATCH, 0),
        LEAT_CODEC_ERR_FORMAT);
    for (size_t i = 0; i < range.length; i++) {
        assert_int_equal(out[i], 0);
    }
    assert_int_equal(leat_codec_block_info_read(s.container, s.size, 5, &b),
                     LEAT_CODEC_ERR_INVALID);
    free(out);
    sample_free(&s);
}

// Decodes damaged bytes: an error, or the exact original. Returns whether it was an error.
static bool damaged_decode(const struct sample *s, const u8 *container, u64 size, u32 cpu)
{
    struct leat_codec_info info;
    u64 written;
    if (leat_codec_info_read(container, size, &info) != LEAT_CODEC_OK) {
        return true;
    }
    u8 *out = malloc(info.plain_bytes + 1);
    enum leat_codec_err e = leat_codec_decode(container, size, out, info.plain_bytes, s->scratch,
                                              SCRATCH, cpu, &written);
    if (e == LEAT_CODEC_OK) {
        assert_int_equal(written, s->n);
        assert_memory_equal(out, s->plain, s->n);
    }
    free(out);
    return e != LEAT_CODEC_OK;
}

static void test_every_bit_flip(void **state)
{
    (void)state;
    for (u32 type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (u32 mode = 0; mode < LEAT_CODEC_MODE_AUTO; mode++) {
            struct leat_codec_options o = {.block_bytes = 1024, .type = type, .mode = mode};
            struct sample s = sample_make(mode == 1 ? DATA_RARE : DATA_WEIGHTS, o, 2059);
            u64 errors = 0;
            for (u64 bit = 0; bit < s.size * 8; bit++) {
                s.container[bit / 8] ^= (u8)(1u << bit % 8);
                u32 cpu = bit % 2 == 0 ? LEAT_CODEC_CPU_AUTO : LEAT_CODEC_CPU_C;
                errors += damaged_decode(&s, s.container, s.size, cpu) ? 1 : 0;
                s.container[bit / 8] ^= (u8)(1u << bit % 8);
            }
            assert_false(damaged_decode(&s, s.container, s.size, LEAT_CODEC_CPU_AUTO));
            // Only padding and type bytes of RAW blocks may flip without harm.
            assert_true(errors * 10 >= s.size * 8 * 9);
            sample_free(&s);
        }
    }
}

static void test_every_truncation(void **state)
{
    (void)state;
    for (u32 mode = 0; mode < LEAT_CODEC_MODE_AUTO; mode++) {
        struct leat_codec_options o = {
            .block_bytes = 1024, .type = LEAT_CODEC_TYPE_BF16, .mode = mode};
        struct sample s = sample_make(DATA_WEIGHTS, o, 2500);
        for (u64 n = 0; n < s.size; n++) {
            u8 *cut = malloc(n == 0 ? 1 : n);
            memcpy(cut, s.container, n);
            assert_true(damaged_decode(&s, cut, n, LEAT_CODEC_CPU_AUTO));
            memcpy(cut, s.container + (s.size - n), n);
            assert_true(damaged_decode(&s, cut, n, LEAT_CODEC_CPU_AUTO));
            free(cut);
        }
        // A single stored block, cut short.
        struct leat_codec_block_info b;
        assert_int_equal(leat_codec_block_info_read(s.container, s.size, 0, &b), LEAT_CODEC_OK);
        u8 plain[1024];
        for (u32 n = 0; n < b.stored_bytes; n++) {
            u8 *cut = malloc(n == 0 ? 1 : n);
            memcpy(cut, s.container + b.stored_offset, n);
            assert_int_equal(leat_codec_block_decode(cut, n, plain, 1024, s.scratch, SCRATCH, 0),
                             LEAT_CODEC_ERR_FORMAT);
            free(cut);
        }
        sample_free(&s);
    }
}

// Writes `s` through the streaming encoder in pieces of `piece` bytes and compares with the whole.
static void stream_check(const struct sample *s, const struct leat_codec_options *o, size_t piece)
{
    struct leat_codec_encoder *e;
    u64 bytes;
    u64 at = 0;
    assert_int_equal(leat_codec_encoder_bytes(o, s->n, 1, &bytes), LEAT_CODEC_OK);
    u8 *memory = exact(bytes);
    assert_int_equal(leat_codec_encoder_init(o, s->n, 1, memory, bytes - 64, &e),
                     LEAT_CODEC_ERR_INVALID);
    assert_int_equal(leat_codec_encoder_init(o, s->n, 1, memory, bytes, &e), LEAT_CODEC_OK);
    size_t room = leat_codec_encoder_output_bytes_min(e);
    u8 *out = malloc(room);
    size_t consumed;
    size_t written;
    assert_int_equal(leat_codec_encoder_write(e, s->plain, 0, &consumed, out, room - 1, &written),
                     LEAT_CODEC_ERR_SPACE);
    for (size_t done = 0; done < s->n; done += consumed) {
        size_t n = MIN(piece, s->n - done);
        assert_int_equal(
            leat_codec_encoder_write(e, s->plain + done, n, &consumed, out, room, &written),
            LEAT_CODEC_OK);
        assert_true(consumed > 0);
        assert_true(at + written <= s->size);
        assert_memory_equal(out, s->container + at, written);
        at += written;
    }
    assert_int_equal(leat_codec_encoder_write(e, s->plain, 1, &consumed, out, room, &written),
                     LEAT_CODEC_ERR_LIMIT);
    u64 last_room = leat_codec_encoder_finish_bytes(e);
    u8 *last = malloc(last_room);
    u64 last_bytes;
    assert_int_equal(leat_codec_encoder_finish(e, last, last_room - 1, &last_bytes),
                     LEAT_CODEC_ERR_SPACE);
    assert_int_equal(leat_codec_encoder_finish(e, last, last_room, &last_bytes), LEAT_CODEC_OK);
    assert_int_equal(at + last_bytes, s->size);
    assert_memory_equal(last, s->container + at, last_bytes);
    free(last);
    free(out);
    free(memory);
}

static void test_stream_equals_whole(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 1000, 4096, 5000, 100000};
    struct leat_codec_options o = {.block_bytes = 4096, .type = LEAT_CODEC_TYPE_BF16, .mode = 3};
    for (size_t n = 0; n < 20000; n += 4999) {
        struct sample s = sample_make(DATA_WEIGHTS, o, n);
        for (u32 i = 0; i < ARRAY_LEN(pieces); i++) {
            stream_check(&s, &o, pieces[i]);
        }
        sample_free(&s);
    }
}

// Regions of different types share a container; each starts a block, and the index finds it.
static void test_stream_of_regions(void **state)
{
    (void)state;
    enum { REGION = 9001, REGIONS = LEAT_CODEC_TYPE_COUNT, ALL = REGION * REGIONS };
    struct leat_codec_options o = {.block_bytes = 4096, .mode = LEAT_CODEC_MODE_AUTO};
    struct leat_codec_encoder *e;
    struct data_random r = {11};
    u64 bytes;
    u64 bound;
    u8 *plain = malloc(ALL);
    u8 *back = malloc(ALL);
    assert_int_equal(leat_codec_encode_bound(&o, ALL, REGIONS, &bound), LEAT_CODEC_OK);
    assert_int_equal(leat_codec_encoder_bytes(&o, ALL, REGIONS, &bytes), LEAT_CODEC_OK);
    u8 *memory = exact(bytes);
    u8 *out = malloc(bound + 8192);
    u64 at = 0;
    assert_int_equal(leat_codec_encoder_init(&o, ALL, REGIONS, memory, bytes, &e), LEAT_CODEC_OK);
    for (u32 type = 0; type < REGIONS; type++) {
        size_t written;
        size_t consumed;
        u8 *region = plain + (size_t)type * REGION;
        data_fill(&r, DATA_WEIGHTS, type, region, REGION);
        assert_int_equal(leat_codec_encoder_set_type(e, type, out + at, bound - at, &written),
                         LEAT_CODEC_OK);
        at += written;
        assert_int_equal(leat_codec_encoder_write(e, region, REGION, &consumed, out + at,
                                                  bound + 8192 - at, &written),
                         LEAT_CODEC_OK);
        assert_int_equal(consumed, REGION);
        at += written;
    }
    size_t none;
    assert_int_equal(leat_codec_encoder_set_type(e, 0, out + at, 8192, &none),
                     LEAT_CODEC_ERR_LIMIT);
    assert_int_equal(leat_codec_encoder_set_type(e, 99, out + at, 8192, &none),
                     LEAT_CODEC_ERR_INVALID);
    u64 last;
    assert_int_equal(leat_codec_encoder_finish(e, out + at, bound + 8192 - at, &last),
                     LEAT_CODEC_OK);
    at += last;
    assert_true(at <= bound);
    struct leat_codec_info info;
    struct leat_codec_block_info b;
    assert_int_equal(leat_codec_info_read(out, at, &info), LEAT_CODEC_OK);
    assert_int_equal(info.block_count, 3 * REGIONS);
    for (u64 i = 0; i < info.block_count; i++) {
        assert_int_equal(leat_codec_block_info_read(out, at, i, &b), LEAT_CODEC_OK);
        assert_int_equal(b.type, i / 3);
        assert_int_equal(b.plain_offset, i / 3 * REGION + i % 3 * 4096);
    }
    u8 *scratch = exact(SCRATCH);
    assert_int_equal(leat_codec_decode(out, at, back, ALL, scratch, SCRATCH, 0, &last),
                     LEAT_CODEC_OK);
    assert_memory_equal(back, plain, ALL);
    free(scratch);
    free(memory);
    free(out);
    free(plain);
    free(back);
}

// Reads as a remote client would: footer, index, one block; nothing else is looked at.
static void test_remote_reading(void **state)
{
    (void)state;
    struct leat_codec_options o = {.block_bytes = 4096, .type = LEAT_CODEC_TYPE_FP32, .mode = 2};
    struct sample s = sample_make(DATA_WEIGHTS, o, 50000);
    u8 *plain = malloc(4096);
    u8 footer[LEAT_CODEC_FOOTER_BYTES];
    struct leat_codec_info info;
    memcpy(footer, s.container + s.size - sizeof(footer), sizeof(footer));
    assert_int_equal(leat_codec_footer_parse(footer, s.size, &info), LEAT_CODEC_OK);
    assert_int_equal(leat_codec_footer_parse(footer, s.size + 1, &info), LEAT_CODEC_ERR_FORMAT);
    size_t index_bytes = info.block_count * LEAT_CODEC_INDEX_ENTRY_BYTES;
    u8 *index = malloc(index_bytes);
    memcpy(index, s.container + info.index_offset, index_bytes);
    assert_int_equal(leat_codec_index_check(footer, index, &info), LEAT_CODEC_OK);
    for (u64 offset = 0; offset < s.n; offset += 777) {
        u64 number;
        struct leat_codec_block_info b;
        assert_int_equal(leat_codec_index_find(index, &info, offset, &number), LEAT_CODEC_OK);
        assert_int_equal(number, offset / 4096);
        assert_int_equal(leat_codec_index_entry(index, &info, number, &b), LEAT_CODEC_OK);
        u8 *stored = malloc(b.stored_bytes);
        memcpy(stored, s.container + b.stored_offset, b.stored_bytes);
        assert_int_equal(leat_codec_block_decode(stored, b.stored_bytes, plain, b.plain_bytes,
                                                 s.scratch, SCRATCH, 0),
                         LEAT_CODEC_OK);
        assert_memory_equal(plain, s.plain + b.plain_offset, b.plain_bytes);
        free(stored);
    }
    u64 number;
    assert_int_equal(leat_codec_index_find(index, &info, s.n, &number), LEAT_CODEC_ERR_RANGE);
    index[20] ^= 1;
    assert_int_equal(leat_codec_index_check(footer, index, &info), LEAT_CODEC_ERR_FORMAT);
    free(index);
    free(plain);
    sample_free(&s);
}

static void test_limits_and_arguments(void **state)
{
    (void)state;
    struct leat_codec_options bad[] = {
        {.block_bytes = 512}, {.block_bytes = 1000}, {.block_bytes = 2 * 1048576},
        {.type = 7},          {.mode = 4},           {.cpu = 4}};
    u64 bound;
    for (u32 i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(leat_codec_encode_bound(&bad[i], 1, 1, &bound), LEAT_CODEC_ERR_INVALID);
    }
    struct leat_codec_options o = {.type = 1, .mode = 2};
    assert_int_equal(leat_codec_encode_bound(&o, 1, 0, &bound), LEAT_CODEC_ERR_INVALID);
    assert_int_equal(leat_codec_encode_bound(&o, LEAT_CODEC_PLAIN_BYTES_MAX + 1, 1, &bound),
                     LEAT_CODEC_ERR_INVALID);
    struct sample s = sample_make(DATA_WEIGHTS, o, 3000);
    u8 out[3000];
    u64 written;
    assert_int_equal(
        leat_codec_decode(s.container, s.size, out, 2999, s.scratch, SCRATCH, 0, &written),
        LEAT_CODEC_ERR_SPACE);
    assert_int_equal(leat_codec_decode(s.container, s.size, out, 3000, s.scratch, 100, 0, &written),
                     LEAT_CODEC_ERR_INVALID);
    assert_int_equal(
        leat_codec_decode(s.container, s.size, out, 3000, s.scratch + 1, SCRATCH - 1, 0, &written),
        LEAT_CODEC_ERR_INVALID);
    assert_int_equal(
        leat_codec_decode(s.container, s.size, out, 3000, s.scratch, SCRATCH, 9, &written),
        LEAT_CODEC_ERR_INVALID);
    size_t size;
    assert_int_equal(leat_codec_block_encode(&o, s.plain, 0, out, 32, s.scratch, SCRATCH, &size),
                     LEAT_CODEC_ERR_INVALID);
    assert_int_equal(leat_codec_block_encode(&o, s.plain, 100, out, 131, s.scratch, SCRATCH, &size),
                     LEAT_CODEC_ERR_SPACE);
    // A future version is told apart from damage.
    struct tensor_header h;
    struct leat_codec_info info;
    memcpy(&h, s.container, sizeof(h));
    h.version = 2;
    h.check = tensor_hash(&tensor_ops_c, &h, offsetof(struct tensor_header, check));
    memcpy(s.container, &h, sizeof(h));
    assert_int_equal(leat_codec_info_read(s.container, s.size, &info), LEAT_CODEC_ERR_VERSION);
    sample_free(&s);
}

struct worker {
    pthread_t thread;
    const struct sample *sample;
    u32 cpu;
    bool ok;
};

static void *worker_run(void *context)
{
    struct worker *w = context;
    u8 *scratch = aligned_alloc(64, SCRATCH);
    u8 *out = malloc(w->sample->n);
    u8 *again = malloc(w->sample->size + 65536);
    w->ok = true;
    for (u32 i = 0; i < 20; i++) {
        u64 written = 0;
        struct leat_codec_options o = {.block_bytes = 65536, .type = 1, .mode = 3, .cpu = w->cpu};
        enum leat_codec_err e = leat_codec_decode(w->sample->container, w->sample->size, out,
                                                  w->sample->n, scratch, SCRATCH, w->cpu, &written);
        w->ok = w->ok && e == LEAT_CODEC_OK && memcmp(out, w->sample->plain, w->sample->n) == 0;
        size_t block;
        e = leat_codec_block_encode(&o, w->sample->plain, 65536, again, 65536 + 32, scratch,
                                    SCRATCH, &block);
        w->ok = w->ok && e == LEAT_CODEC_OK &&
                memcmp(again, w->sample->container + LEAT_CODEC_HEADER_BYTES, block) == 0;
    }
    free(again);
    free(out);
    free(scratch);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct leat_codec_options o = {.block_bytes = 65536, .type = 1, .mode = 3};
    struct sample s = sample_make(DATA_WEIGHTS, o, 300001);
    struct worker workers[8];
    for (u32 i = 0; i < ARRAY_LEN(workers); i++) {
        u32 cpu = i % 4;
        workers[i] = (struct worker){
            .sample = &s, .cpu = leat_codec_cpu_name(cpu) == NULL ? LEAT_CODEC_CPU_AUTO : cpu};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
    }
    for (u32 i = 0; i < ARRAY_LEN(workers); i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].ok);
    }
    sample_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_range_touches_only_its_blocks),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_stream_equals_whole),
        cmocka_unit_test(test_stream_of_regions),
        cmocka_unit_test(test_remote_reading),
        cmocka_unit_test(test_limits_and_arguments),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
