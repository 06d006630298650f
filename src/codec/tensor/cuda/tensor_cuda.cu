// SPDX-License-Identifier: Apache-2.0
// The kernels around the device code, and the functions that leat_codec_gpu_open looks up.
// One launch handles a batch of blocks of any sizes and modes. Decoding runs a group of 64 threads for
// each segment (up to GROUPS_MAX groups a block), whose last group compares the checksum; encoding
// runs a group of 256 threads a block. Nothing is allocated, nothing waits.
#include "codec/tensor/cuda/device_encode.h"

#include "leat/codec.h"

#include <cuda_runtime.h>

#define GROUPS_MAX  8u
#define CAPABILITY_MIN 8 // compute capability, major

// What the groups of a block add up; all zeros between launches.
struct decode_progress {
    unsigned long long sum;
    unsigned finished;
    unsigned status;
};

// Adds this group's share; true in the group that came last, which then sees all shares.
static __device__ bool progress_add(struct decode_progress *p, const struct decode_shared *s,
                                    unsigned groups)
{
    unsigned long long sum = 0;
    for (u32 i = 0; i < BATCH_TILES; i++) {
        sum += s->sum[i];
    }
    atomicAdd(&p->sum, sum);
    if (s->status != 0) {
        atomicMax(&p->status, s->status);
    }
    __threadfence();
    return atomicAdd(&p->finished, 1u) + 1u == groups;
}

static __global__ void __launch_bounds__(DECODE_THREADS)
    decode_kernel(struct leat_codec_gpu_block *batch, struct decode_progress *progress)
{
    __shared__ struct decode_shared s;
    __shared__ bool is_last;
    __shared__ u32 verdict;
    struct leat_codec_gpu_block *g = batch + blockIdx.x;
    struct decode_progress *p = progress + blockIdx.x;
    struct decode_block b = {(const u8 *)g->in, g->in_bytes, (u8 *)g->out, g->out_bytes};
    PHASE(DECODE_THREADS, decode_begin(thread, &s, &b));
    unsigned groups = s.segments < gridDim.y ? s.segments : gridDim.y;
    if (blockIdx.y >= groups) {
        return;
    }
    for (u32 segment = blockIdx.y; segment < s.segments && s.status == 0; segment += groups) {
        decode_segment(&s, &b, segment);
    }
    if (threadIdx.x == 0) {
        is_last = progress_add(p, &s, groups);
    }
    __syncthreads();
    if (!is_last) {
        return;
    }
    if (threadIdx.x == 0) {
        __threadfence();
        u64 sum = atomicAdd(&p->sum, 0ull);
        verdict = atomicAdd(&p->status, 0u);
        if (verdict == 0 && !decode_is_right(&s, sum)) {
            verdict = DEVICE_ERR_CORRUPT;
        }
        g->status = verdict;
        g->written = verdict == 0 ? g->out_bytes : 0;
        p->sum = 0;
        p->finished = 0;
        p->status = 0;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; verdict != 0 && i < g->out_bytes; i += DECODE_THREADS) {
        b.plain[i] = 0; // what is not right is not handed out
    }
}

static __global__ void __launch_bounds__(ENCODE_THREADS)
    encode_kernel(struct leat_codec_gpu_block *batch)
{
    __shared__ struct encode_shared s;
    struct leat_codec_gpu_block *g = batch + blockIdx.x;
    struct encode_block b = {(const u8 *)g->in, g->in_bytes, (u8 *)g->out, g->type, g->mode};
    u32 status = b.plain_bytes == 0 || b.plain_bytes > TENSOR_BLOCK_BYTES_MAX ||
                         b.type >= TENSOR_TYPE_COUNT || b.mode > ENCODE_MODE_AUTO
                     ? LEAT_CODEC_ERR_INVALID
                 : g->out_bytes < b.plain_bytes + TENSOR_BLOCK_HEADER_BYTES ? LEAT_CODEC_ERR_SPACE
                                                                            : LEAT_CODEC_OK;
    if (status != LEAT_CODEC_OK) {
        if (threadIdx.x == 0) {
            g->status = status;
            g->written = 0;
        }
        return;
    }
    encode_block_device(&s, &b);
    if (threadIdx.x == 0) {
        g->written = header_finish(&s, &b);
        g->status = LEAT_CODEC_OK;
    }
}

extern "C" {

// 0 when there is a device that can run the kernels.
LEAT_CODEC_API int leat_codec_cuda_probe(void)
{
    int count = 0;
    int device = 0;
    int major = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
        return 1;
    }
    return major >= CAPABILITY_MIN ? 0 : 1;
}

LEAT_CODEC_API size_t leat_codec_cuda_workspace_bytes(uint32_t count)
{
    return (size_t)count * sizeof(struct decode_progress);
}

LEAT_CODEC_API int leat_codec_cuda_encode(struct leat_codec_gpu_block *batch, uint32_t count,
                                          void *workspace, void *stream)
{
    (void)workspace;
    if (count == 0) {
        return 0;
    }
    encode_kernel<<<count, ENCODE_THREADS, 0, (cudaStream_t)stream>>>(batch);
    return (int)cudaGetLastError();
}

LEAT_CODEC_API int leat_codec_cuda_decode(struct leat_codec_gpu_block *batch, uint32_t count,
                                          void *workspace, void *stream)
{
    if (count == 0) {
        return 0;
    }
    decode_kernel<<<dim3(count, GROUPS_MAX), DECODE_THREADS, 0, (cudaStream_t)stream>>>(
        batch, (struct decode_progress *)workspace);
    return (int)cudaGetLastError();
}
}
