// SPDX-License-Identifier: Apache-2.0
// Two layers. A *kernel* runs a number of whole blocks over some lanes: 16 lanes with AVX-512, 8
// with AVX2 (or with the shorter registers of AVX-512VL), 4 with the compiler's portable vectors.
// The *scheduler* gives jobs to lanes: a lane first finishes its context's waiting block, then
// takes the whole blocks of its data; when it runs out it gets the next job, and when no job waits
// the last lane moves into the gap, so that the lanes in use are always the first ones.
//
// A kernel run goes as far as the shortest lane. Unused lanes of a kernel read some used lane's
// data and their result is dropped. A single remaining stream goes to md5_update(), which is
// faster.
#include "codec/md5_lanes.h"

#include "base/assert.h"
#include "base/endian.h"
#include "codec/md5_lanes_steps.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// state[i][lane]; p[lane] has blocks * 64 bytes.
typedef void (*md5_kernel_fn)(u32 state[4][MD5_LANES_MAX], const u8 *const p[MD5_LANES_MAX],
                              size_t blocks);

typedef u32 vec4 __attribute__((vector_size(16)));

// Rounds and feed-forward for vectors of type V; LOAD_WORDS fills w from p at `offset`.
#define MD5_KERNEL_BODY(V, LOAD_WORDS)                                                             \
    V a, b, c, d;                                                                                  \
    V w[16];                                                                                       \
    memcpy(&a, state[0], sizeof(V));                                                               \
    memcpy(&b, state[1], sizeof(V));                                                               \
    memcpy(&c, state[2], sizeof(V));                                                               \
    memcpy(&d, state[3], sizeof(V));                                                               \
    for (size_t offset = 0; offset < blocks * DIGEST_BLOCK; offset += DIGEST_BLOCK) {              \
        LOAD_WORDS(w, p, offset);                                                                  \
        V a0 = a, b0 = b, c0 = c, d0 = d;                                                          \
        MD5_ALL_STEPS                                                                              \
        a += a0;                                                                                   \
        b += b0;                                                                                   \
        c += c0;                                                                                   \
        d += d0;                                                                                   \
    }                                                                                              \
    memcpy(state[0], &a, sizeof(V));                                                               \
    memcpy(state[1], &b, sizeof(V));                                                               \
    memcpy(state[2], &c, sizeof(V));                                                               \
    memcpy(state[3], &d, sizeof(V));

// Word i of four streams.
static inline void load_words_4(vec4 w[16], const u8 *const p[], size_t offset)
{
    for (size_t i = 0; i < 16; i++) {
        size_t at = offset + 4 * i;
        w[i] = (vec4){load_le32(p[0] + at), load_le32(p[1] + at), load_le32(p[2] + at),
                      load_le32(p[3] + at)};
    }
}

static void md5_kernel_portable(u32 state[4][MD5_LANES_MAX], const u8 *const p[MD5_LANES_MAX],
                                size_t blocks)
{
    MD5_KERNEL_BODY(vec4, load_words_4)
}

#if defined(__x86_64__)

typedef u32 vec8 __attribute__((vector_size(32)));
typedef u32 vec16 __attribute__((vector_size(64)));

#define TARGET_AVX2     __attribute__((target("avx2")))
#define TARGET_AVX512VL __attribute__((target("avx2,avx512f,avx512vl")))
#define TARGET_AVX512   __attribute__((target("avx512f")))

// Transposes eight rows of eight words: afterwards w[i] holds word i of all rows.
#define TRANSPOSE_8(w, r)                                                                          \
    do {                                                                                           \
        __m256i t[8], u[8];                                                                        \
        for (size_t i = 0; i < 8; i += 2) {                                                        \
            t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);                                          \
            t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);                                      \
        }                                                                                          \
        for (size_t i = 0; i < 8; i += 4) {                                                        \
            u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);                                          \
            u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);                                      \
            u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);                                  \
            u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);                                  \
        }                                                                                          \
        for (size_t i = 0; i < 4; i++) {                                                           \
            (w)[i] = (vec8)_mm256_permute2x128_si256(u[i], u[i + 4], 0x20);                        \
            (w)[i + 4] = (vec8)_mm256_permute2x128_si256(u[i], u[i + 4], 0x31);                    \
        }                                                                                          \
    } while (0)

#define LOAD_WORDS_8(w, p, offset)                                                                 \
    for (size_t half = 0; half < 2; half++) {                                                      \
        __m256i r[8];                                                                              \
        for (size_t lane = 0; lane < 8; lane++) {                                                  \
            r[lane] = _mm256_loadu_si256(                                                          \
                (const __m256i *)(const void *)((p)[lane] + (offset) + 32 * half));                \
        }                                                                                          \
        TRANSPOSE_8((w) + 8 * half, r);                                                            \
    }

TARGET_AVX2 static void md5_kernel_avx2(u32 state[4][MD5_LANES_MAX],
                                        const u8 *const p[MD5_LANES_MAX],
                                        size_t blocks){MD5_KERNEL_BODY(vec8, LOAD_WORDS_8)}

TARGET_AVX512VL
    static void md5_kernel_avx512vl(u32 state[4][MD5_LANES_MAX], const u8 *const p[MD5_LANES_MAX],
                                    size_t blocks){MD5_KERNEL_BODY(vec8, LOAD_WORDS_8)}

// Transposes sixteen rows of sixteen words in four rounds: words, pairs, quarters, halves.
#define LOAD_WORDS_16(w, p, offset)                                                                \
    do {                                                                                           \
        __m512i r[16], t[16];                                                                      \
        for (size_t lane = 0; lane < 16; lane++) {                                                 \
            r[lane] = _mm512_loadu_si512((p)[lane] + (offset));                                    \
        }                                                                                          \
        for (size_t i = 0; i < 16; i += 2) {                                                       \
            t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);                                          \
            t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);                                      \
        }                                                                                          \
        for (size_t i = 0; i < 16; i += 4) {                                                       \
            r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);                                          \
            r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);                                      \
            r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);                                  \
            r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);                                  \
        }                                                                                          \
        for (size_t i = 0; i < 4; i++) {                                                           \
            t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);                                     \
            t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);                                 \
            t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);                            \
            t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);                           \
        }                                                                                          \
        for (size_t i = 0; i < 4; i++) {                                                           \
            (w)[i] = (vec16)_mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);                            \
            (w)[i + 8] = (vec16)_mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);                        \
            (w)[i + 4] = (vec16)_mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);                   \
            (w)[i + 12] = (vec16)_mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);                  \
        }                                                                                          \
    } while (0)

TARGET_AVX512 static void md5_kernel_avx512(u32 state[4][MD5_LANES_MAX],
                                            const u8 *const p[MD5_LANES_MAX], size_t blocks)
{
    MD5_KERNEL_BODY(vec16, LOAD_WORDS_16)
}

#endif

struct md5_kernel {
    md5_kernel_fn run;
    size_t lanes;
    size_t streams_min; // fewer are faster one after the other
};

struct md5_kernels {
    struct md5_kernel wide;   // most lanes
    struct md5_kernel narrow; // faster for as many streams as it has lanes; may be the same
};

static struct md5_kernels kernels_of(enum md5_lanes_isa isa)
{
#if defined(__x86_64__)
    const struct md5_kernel avx2 = {md5_kernel_avx2, 8, 3};
    if (isa == MD5_LANES_AVX512) {
        return (struct md5_kernels){.wide = {md5_kernel_avx512, 16, 2},
                                    .narrow = {md5_kernel_avx512vl, 8, 2}};
    }
    if (isa == MD5_LANES_AVX2) {
        return (struct md5_kernels){.wide = avx2, .narrow = avx2};
    }
#endif
    (void)isa;
    const struct md5_kernel portable = {md5_kernel_portable, 4, 3};
    return (struct md5_kernels){.wide = portable, .narrow = portable};
}

enum md5_lanes_isa md5_lanes_isa_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        return MD5_LANES_AVX512;
    }
    if (__builtin_cpu_supports("avx2")) {
        return MD5_LANES_AVX2;
    }
#endif
    return MD5_LANES_PORTABLE;
}

// What the lanes are doing. Lanes 0 to used-1 have blocks left to do.
struct schedule {
    u32 state[4][MD5_LANES_MAX];
    const u8 *p[MD5_LANES_MAX];
    size_t blocks[MD5_LANES_MAX];
    struct md5_lane_job job[MD5_LANES_MAX]; // data: what comes after the blocks at p
    size_t used;
    const struct md5_lane_job *next;
    const struct md5_lane_job *end;
};

// Points the lane at its job's next whole blocks; without any, keeps the tail in the context and
// returns false.
static bool lane_advance(struct schedule *s, size_t lane)
{
    struct bytes *data = &s->job[lane].data;
    size_t whole = data->len / DIGEST_BLOCK;
    if (whole == 0) {
        if (data->len > 0) {
            memcpy(s->job[lane].ctx->block, data->data, data->len);
        }
        return false;
    }
    s->p[lane] = data->data;
    s->blocks[lane] = whole;
    *data = bytes_skip(*data, whole * DIGEST_BLOCK);
    return true;
}

// Gives the lane a job that has at least one whole block; jobs with less are done on the way. False
// when there are no more.
static bool lane_start(struct schedule *s, size_t lane)
{
    while (s->next < s->end) {
        struct md5_lane_job job = *s->next++;
        size_t waiting = job.ctx->len % DIGEST_BLOCK;
        if (waiting + job.data.len < DIGEST_BLOCK) {
            md5_update(job.ctx, job.data);
            continue;
        }
        for (size_t i = 0; i < 4; i++) {
            s->state[i][lane] = job.ctx->state[i];
        }
        job.ctx->len += job.data.len;
        s->job[lane] = job;
        if (waiting > 0) {
            size_t n = DIGEST_BLOCK - waiting;
            memcpy(job.ctx->block + waiting, job.data.data, n);
            s->job[lane].data = bytes_skip(job.data, n);
            s->p[lane] = job.ctx->block;
            s->blocks[lane] = 1;
            return true;
        }
        bool has_blocks = lane_advance(s, lane);
        ASSERT(has_blocks);
        return true;
    }
    return false;
}

// Writes the lane's state back to its context.
static void lane_store(struct schedule *s, size_t lane)
{
    for (size_t i = 0; i < 4; i++) {
        s->job[lane].ctx->state[i] = s->state[i][lane];
    }
}

static void lane_move(struct schedule *s, size_t to, size_t from)
{
    for (size_t i = 0; i < 4; i++) {
        s->state[i][to] = s->state[i][from];
    }
    s->p[to] = s->p[from];
    s->blocks[to] = s->blocks[from];
    s->job[to] = s->job[from];
}

// Runs the kernel as far as the shortest lane and lets the lanes that ran out go on.
static void schedule_run(struct schedule *s, const struct md5_kernel *kernel)
{
    size_t blocks = s->blocks[0];
    for (size_t lane = 1; lane < s->used; lane++) {
        blocks = MIN(blocks, s->blocks[lane]);
    }
    for (size_t lane = s->used; lane < kernel->lanes; lane++) {
        s->p[lane] = s->p[0];
    }
    ASSERT(blocks > 0);
    kernel->run(s->state, s->p, blocks);
    for (size_t lane = s->used; lane-- > 0;) {
        s->p[lane] += blocks * DIGEST_BLOCK;
        s->blocks[lane] -= blocks;
        if (s->blocks[lane] > 0 || lane_advance(s, lane)) {
            continue;
        }
        lane_store(s, lane);
        if (!lane_start(s, lane)) {
            s->used--;
            lane_move(s, lane, s->used);
        }
    }
}

// Does what a lane has left without lanes.
static void lane_finish_alone(struct schedule *s, size_t lane)
{
    struct md5 *ctx = s->job[lane].ctx;
    struct bytes rest = s->job[lane].data;
    lane_store(s, lane);
    // md5_update() counts the length again; the waiting block, if it is one, is already full.
    size_t bytes = s->blocks[lane] * DIGEST_BLOCK;
    ctx->len -= rest.len + bytes;
    ASSERT(ctx->len % DIGEST_BLOCK == 0);
    md5_update(ctx, BYTES(s->p[lane], bytes));
    md5_update(ctx, rest);
}

void md5_lanes_update_isa(const struct md5_lane_job *jobs, size_t n, enum md5_lanes_isa isa)
{
    if (n == 1) {
        md5_update(jobs[0].ctx, jobs[0].data);
        return;
    }
    const struct md5_kernels kernels = kernels_of(isa);
    struct schedule s;
    s.used = 0;
    s.next = jobs;
    s.end = jobs + n;
    // Lanes that no job ever used are read by the kernels, so they need some value.
    memset(s.state, 0, sizeof(s.state));
    while (s.used < kernels.wide.lanes && lane_start(&s, s.used)) {
        s.used++;
    }
    while (s.used >= kernels.narrow.streams_min) {
        schedule_run(&s, s.used > kernels.narrow.lanes ? &kernels.wide : &kernels.narrow);
    }
    for (size_t lane = 0; lane < s.used; lane++) {
        lane_finish_alone(&s, lane);
    }
}

void md5_lanes_update(const struct md5_lane_job *jobs, size_t n)
{
    md5_lanes_update_isa(jobs, n, md5_lanes_isa_best());
}
