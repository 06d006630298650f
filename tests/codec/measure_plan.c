// SPDX-License-Identifier: Apache-2.0
// Compares leat_codec_plan's predictions with transfers over a paced link, and prints a CSV. A tool
// for docs/tensor-codec.md, not a test: it says how good the formula is on the machine it runs on.
// The link is a thread that passes a block on when its bytes would have arrived at the rate given.
// One after the other: encode all, send all, decode all. Overlapped: three threads, block by block.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "tests/unit/codec/tensor/tensor_data.h"

#include "leat/codec.h"

#define BLOCK  (256 * KIB)
#define BLOCKS 512u
#define FRESH  64u // different blocks; the rest repeats them
#define ROOM   (BLOCK + LEAT_CODEC_BLOCK_HEADER_BYTES)

struct transfer {
    const u8 *plain;
    u8 *stored; // BLOCKS rooms
    size_t sizes[BLOCKS];
    u64 ready_ns[BLOCKS]; // when each block was encoded: the link takes no heed of late wake-ups
    u8 *back;
    u32 mode;
    double rate;
    bool is_overlapped;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    u32 encoded; // blocks that are through each stage
    u32 sent;
};

static u64 now_ns(void *context)
{
    struct timespec t;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * NS_PER_S + (u64)t.tv_nsec;
}

static void *scratch_make(size_t *n)
{
    *n = ALIGN_UP(leat_codec_encode_scratch_bytes(0) + leat_codec_decode_scratch_bytes(0),
                  (size_t)64);
    return aligned_alloc(64, *n);
}

static void sleep_until(u64 at_ns)
{
    struct timespec t = {(time_t)(at_ns / NS_PER_S), (long)(at_ns % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void encode_one(struct transfer *t, u32 i, void *scratch, size_t n)
{
    struct leat_codec_options o = {.type = LEAT_CODEC_TYPE_BF16, .mode = t->mode};
    ASSERT(leat_codec_block_encode(&o, t->plain + (size_t)(i % FRESH) * BLOCK, BLOCK,
                                   t->stored + (size_t)i * ROOM, ROOM, scratch, n,
                                   &t->sizes[i]) == LEAT_CODEC_OK);
}

static void decode_one(struct transfer *t, u32 i, void *scratch, size_t n)
{
    ASSERT(leat_codec_block_decode(t->stored + (size_t)i * ROOM, t->sizes[i],
                                   t->back + (size_t)(i % FRESH) * BLOCK, BLOCK, scratch, n,
                                   LEAT_CODEC_CPU_AUTO) == LEAT_CODEC_OK);
}

static void advance(struct transfer *t, u32 *stage)
{
    pthread_mutex_lock(&t->lock);
    ++*stage;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
}

static void await(struct transfer *t, const u32 *stage, u32 more_than)
{
    pthread_mutex_lock(&t->lock);
    while (*stage <= more_than) {
        pthread_cond_wait(&t->moved, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}

static void *encoder_run(void *context)
{
    struct transfer *t = context;
    size_t n;
    void *scratch = scratch_make(&n);
    for (u32 i = 0; i < BLOCKS; i++) {
        encode_one(t, i, scratch, n);
        t->ready_ns[i] = now_ns(NULL);
        advance(t, &t->encoded);
    }
    free(scratch);
    return NULL;
}

static void *link_run(void *context)
{
    struct transfer *t = context;
    u64 free_ns = t->is_overlapped ? 0 : now_ns(NULL); // when the link is free again
    for (u32 i = 0; i < BLOCKS; i++) {
        await(t, &t->encoded, i);
        free_ns = MAX(free_ns, t->ready_ns[i]) + (u64)((double)t->sizes[i] / t->rate * 1e9);
        sleep_until(free_ns);
        advance(t, &t->sent);
    }
    return NULL;
}

// Runs one transfer and returns its seconds.
static double transfer_run(struct transfer *t, u32 mode, double rate, bool is_overlapped)
{
    pthread_t encoder;
    pthread_t link;
    size_t n;
    void *scratch = scratch_make(&n);
    t->mode = mode;
    t->rate = rate;
    t->is_overlapped = is_overlapped;
    t->encoded = 0;
    t->sent = 0;
    u64 begin = now_ns(NULL);
    if (is_overlapped) {
        pthread_create(&encoder, NULL, encoder_run, t);
        pthread_create(&link, NULL, link_run, t);
        for (u32 i = 0; i < BLOCKS; i++) {
            await(t, &t->sent, i);
            decode_one(t, i, scratch, n);
        }
        pthread_join(encoder, NULL);
        pthread_join(link, NULL);
    } else {
        encoder_run(t);
        link_run(t);
        for (u32 i = 0; i < BLOCKS; i++) {
            decode_one(t, i, scratch, n);
        }
    }
    double seconds = (double)(now_ns(NULL) - begin) / 1e9;
    ASSERT(memcmp(t->back, t->plain, FRESH * BLOCK) == 0);
    free(scratch);
    return seconds;
}

// Calibrates anew before each transfer, so that both see the same machine.
static void row_print(struct transfer *t, double rate, u32 mode, bool is_overlapped)
{
    size_t n;
    void *scratch = scratch_make(&n);
    struct leat_codec_plan plan;
    struct leat_codec_plan_input in = {.plain_bytes = (double)BLOCKS * BLOCK,
                                       .link_bytes_per_s = rate,
                                       .reuse = 1.0,
                                       .is_overlapped = is_overlapped};
    struct leat_codec_calibration how = {.plain = t->plain,
                                         .n = BLOCK,
                                         .type = LEAT_CODEC_TYPE_BF16,
                                         .out = t->stored,
                                         .back = t->back,
                                         .round_ns = 100 * NS_PER_MS,
                                         .now_ns = now_ns};
    ASSERT(leat_codec_calibrate(&how, scratch, n, &in.rates) == LEAT_CODEC_OK);
    ASSERT(leat_codec_estimate(t->plain, FRESH * BLOCK, LEAT_CODEC_TYPE_BF16, scratch, n,
                               in.ratio) == LEAT_CODEC_OK);
    ASSERT(leat_codec_plan(&in, &plan) == LEAT_CODEC_OK);
    double predicted = plan.seconds_mode[mode - LEAT_CODEC_MODE_FAST];
    double measured = transfer_run(t, mode, rate, is_overlapped);
    printf("%.2f,%s,%s,%.3f,%.3f,%.2f,%.3f,%s\n", rate / 1e9,
           is_overlapped ? "overlapped" : "sequential", leat_codec_mode_name(mode), predicted,
           measured, measured / predicted, plan.seconds_plain, leat_codec_mode_name(plan.mode));
    fflush(stdout);
    free(scratch);
}

int main(void)
{
    static const double links[] = {0.05e9, 0.1e9, 0.25e9, 0.5e9, 1e9, 2e9};
    static struct transfer t = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .moved = PTHREAD_COND_INITIALIZER};
    struct data_random r = {1};
    u8 *plain = malloc(FRESH * BLOCK);
    t.stored = malloc(BLOCKS * ROOM);
    t.back = malloc(FRESH * BLOCK);
    ASSERT(plain != NULL && t.stored != NULL && t.back != NULL);
    data_fill(&r, DATA_WEIGHTS, LEAT_CODEC_TYPE_BF16, plain, FRESH * BLOCK);
    memset(t.stored, 1, BLOCKS * ROOM); // no page faults in the figures
    memset(t.back, 1, FRESH * BLOCK);
    t.plain = plain;
    printf("link_gb_s,way,mode,predicted_s,measured_s,measured/predicted,plain_s,plan\n");
    for (u32 i = 0; i < ARRAY_LEN(links); i++) {
        for (u32 mode = LEAT_CODEC_MODE_FAST; mode <= LEAT_CODEC_MODE_DENSE; mode++) {
            row_print(&t, links[i], mode, false);
            row_print(&t, links[i], mode, true);
        }
    }
    free(plain);
    free(t.stored);
    free(t.back);
    return 0;
}
