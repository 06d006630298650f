// SPDX-License-Identifier: Apache-2.0
// The tensor codec on a GPU: on fresh random data the kernels must write what the processor writes and
// give back what went in, and refuse what was damaged; then they are timed against a device copy.
// usage: gpu_codec LIBLEATCODEC-CUDA.SO [SEED]. Status 77: there is no GPU.
#include "leat/codec.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t check_ = (call);                                                               \
        if (check_ != cudaSuccess) {                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(check_));        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int failures;

static void expect(bool ok, const char *what, unsigned a, unsigned b)
{
    if (!ok && failures++ < 20) {
        fprintf(stderr, "FAIL: %s (%u, %u)\n", what, a, b);
    }
}

typedef std::vector<uint8_t> bytes;

static uint16_t bf16_from(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// kind 0 weights, 1 random bytes, 2 zeros, 3 spread exponents, 4 weights with rare outliers
static bytes data_make(std::mt19937_64 &r, uint32_t type, int kind, size_t n)
{
    bytes out(n);
    std::normal_distribution<float> gauss(0.0f, 0.02f);
    size_t e = leat_codec_element_bytes(type);
    for (size_t i = 0; i + e <= n; i += e) {
        float x = gauss(r);
        uint64_t any = r();
        uint32_t v = (uint32_t)any;
        bool is_plain = kind == 0 || (kind == 4 && any >> 40 & 1023u);
        if (is_plain && e == 4) {
            memcpy(&v, &x, 4);
        } else if (is_plain && e == 2) {
            v = bf16_from(x);
        } else if (is_plain) {
            v = (uint32_t)(int32_t)(x * 1000.0f);
        } else if (kind == 2) {
            v = 0;
        } else if (kind == 3) {
            v = (v & 0x807fu) | (uint32_t)(i / e % 256) << 7;
        }
        memcpy(&out[i], &v, e);
    }
    return out;
}

// Device memory of a batch: inputs and outputs at 16-byte borders of two arenas.
struct device_batch {
    std::vector<leat_codec_gpu_block> blocks;
    uint8_t *in = nullptr;
    uint8_t *out = nullptr;
    leat_codec_gpu_block *table = nullptr;
    void *workspace = nullptr;
};

static size_t align16(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

static void batch_make(device_batch &b, const leat_codec_gpu &gpu, const std::vector<bytes> &inputs,
                       const std::vector<size_t> &rooms)
{
    size_t in_bytes = 0, out_bytes = 0;
    for (size_t i = 0; i < inputs.size(); i++) {
        in_bytes += align16(inputs[i].size());
        out_bytes += align16(rooms[i]);
    }
    CHECK(cudaMalloc(&b.in, in_bytes + 16));
    CHECK(cudaMalloc(&b.out, out_bytes + 16));
    CHECK(cudaMemset(b.out, 0x5a, out_bytes + 16));
    CHECK(cudaMalloc(&b.table, inputs.size() * sizeof(leat_codec_gpu_block)));
    size_t work = gpu.workspace_bytes((uint32_t)inputs.size());
    CHECK(cudaMalloc(&b.workspace, work));
    CHECK(cudaMemset(b.workspace, 0, work));
    size_t at = 0, to = 0;
    for (size_t i = 0; i < inputs.size(); i++) {
        leat_codec_gpu_block g = {};
        g.in = b.in + at;
        g.out = b.out + to;
        g.in_bytes = (uint32_t)inputs[i].size();
        g.out_bytes = (uint32_t)rooms[i];
        CHECK(cudaMemcpy(b.in + at, inputs[i].data(), inputs[i].size(), cudaMemcpyHostToDevice));
        b.blocks.push_back(g);
        at += align16(inputs[i].size());
        to += align16(rooms[i]);
    }
}

static void batch_put(device_batch &b)
{
    CHECK(cudaMemcpy(b.table, b.blocks.data(), b.blocks.size() * sizeof(b.blocks[0]),
                     cudaMemcpyHostToDevice));
}

static void batch_get(device_batch &b)
{
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(b.blocks.data(), b.table, b.blocks.size() * sizeof(b.blocks[0]),
                     cudaMemcpyDeviceToHost));
}

static void batch_free(device_batch &b)
{
    cudaFree(b.in);
    cudaFree(b.out);
    cudaFree(b.table);
    cudaFree(b.workspace);
}

static bytes output_get(const leat_codec_gpu_block &g, size_t n)
{
    bytes out(n);
    CHECK(cudaMemcpy(out.data(), g.out, n, cudaMemcpyDeviceToHost));
    return out;
}

static void *scratch_get(size_t *n)
{
    *n = std::max(leat_codec_encode_scratch_bytes(LEAT_CODEC_BLOCK_BYTES_MAX),
                  leat_codec_decode_scratch_bytes(LEAT_CODEC_BLOCK_BYTES_MAX));
    return aligned_alloc(64, (*n + 63) & ~(size_t)63);
}

// One batch of blocks of all types, modes, kinds and many sizes, in one launch each way.
static void identity_test(const leat_codec_gpu &gpu, std::mt19937_64 &r)
{
    static const size_t sizes[] = {1, 31, 1024, 4099, 65536, 100001, 262144, 262147, 1048576};
    size_t scratch_bytes;
    void *scratch = scratch_get(&scratch_bytes);
    std::vector<bytes> plains, stored;
    std::vector<size_t> rooms, plain_rooms;
    std::vector<leat_codec_options> options;
    for (uint32_t type = 0; type < LEAT_CODEC_TYPE_COUNT; type++) {
        for (uint32_t mode = 0; mode <= LEAT_CODEC_MODE_AUTO; mode++) {
            for (int kind = 0; kind < 5; kind++) {
                for (size_t k = 0; k < 3; k++) {
                    size_t n = sizes[r() % (sizeof(sizes) / sizeof(sizes[0]))];
                    leat_codec_options o = {0, type, mode, 0};
                    plains.push_back(data_make(r, type, kind, n));
                    rooms.push_back(n + LEAT_CODEC_BLOCK_HEADER_BYTES);
                    plain_rooms.push_back(n);
                    options.push_back(o);
                }
            }
        }
    }
    device_batch b;
    batch_make(b, gpu, plains, rooms);
    for (size_t i = 0; i < plains.size(); i++) {
        b.blocks[i].type = options[i].type;
        b.blocks[i].mode = options[i].mode;
    }
    batch_put(b);
    expect(gpu.encode(b.table, (uint32_t)plains.size(), b.workspace, nullptr) == 0, "launch", 0, 0);
    batch_get(b);
    for (size_t i = 0; i < plains.size(); i++) {
        bytes mine(rooms[i]);
        size_t n = 0;
        leat_codec_block_encode(&options[i], plains[i].data(), plains[i].size(), mine.data(),
                                mine.size(), scratch, scratch_bytes, &n);
        mine.resize(n);
        expect(b.blocks[i].status == 0 && b.blocks[i].written == n, "encoded size",
               options[i].type, options[i].mode);
        expect(output_get(b.blocks[i], n) == mine, "encoded bytes", options[i].type,
               options[i].mode);
        stored.push_back(mine);
    }
    batch_free(b);
    for (int round = 0; round < 3; round++) {
        // Round 0 decodes what is right, the others what one flipped bit a block has damaged.
        std::vector<bytes> given = stored;
        for (size_t i = 0; round > 0 && i < given.size(); i++) {
            size_t bit = r() % (given[i].size() * 8);
            given[i][bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        device_batch d;
        batch_make(d, gpu, given, plain_rooms);
        batch_put(d);
        expect(gpu.decode(d.table, (uint32_t)given.size(), d.workspace, nullptr) == 0, "launch", 1,
               0);
        batch_get(d);
        for (size_t i = 0; i < given.size(); i++) {
            bytes back = output_get(d.blocks[i], plains[i].size());
            bool is_same = back == plains[i];
            if (round == 0) {
                expect(d.blocks[i].status == 0 && is_same, "decoded", options[i].type,
                       options[i].mode);
            } else {
                bool is_zero = std::all_of(back.begin(), back.end(), [](uint8_t x) { return !x; });
                expect(d.blocks[i].status == 0 ? is_same : is_zero, "damaged", options[i].type,
                       options[i].mode);
            }
        }
        batch_free(d);
    }
    free(scratch);
    printf("identity: %zu blocks of every type and mode, both ways, %d failures\n", plains.size(),
           failures);
}

template <typename F> static double best_seconds(F run)
{
    cudaEvent_t from, to;
    double best = 1e9;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    for (int i = 0; i < 12; i++) {
        float ms;
        CHECK(cudaEventRecord(from));
        run();
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        best = std::min(best, ms / 1e3);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return best;
}

// Times one batch of bf16 weights in blocks of `block` bytes.
static void speed_test(const leat_codec_gpu &gpu, std::mt19937_64 &r, size_t total, size_t block,
                       uint32_t mode)
{
    size_t count = total / block;
    size_t fresh = std::min(count, (size_t)64); // the rest repeats these
    size_t room = align16(block + LEAT_CODEC_BLOCK_HEADER_BYTES);
    uint8_t *plain, *stored, *back;
    leat_codec_gpu_block *encode, *decode;
    void *workspace;
    CHECK(cudaMalloc(&plain, total));
    CHECK(cudaMalloc(&stored, count * room));
    CHECK(cudaMalloc(&back, total));
    CHECK(cudaMalloc(&encode, count * sizeof(*encode)));
    CHECK(cudaMalloc(&decode, count * sizeof(*decode)));
    CHECK(cudaMalloc(&workspace, gpu.workspace_bytes((uint32_t)count)));
    CHECK(cudaMemset(workspace, 0, gpu.workspace_bytes((uint32_t)count)));
    bytes data = data_make(r, LEAT_CODEC_TYPE_BF16, 0, fresh * block);
    std::vector<leat_codec_gpu_block> e(count), d(count);
    for (size_t i = 0; i < count; i++) {
        CHECK(cudaMemcpy(plain + i * block, data.data() + i % fresh * block, block,
                         cudaMemcpyHostToDevice));
        e[i] = {plain + i * block, stored + i * room, (uint32_t)block, (uint32_t)room,
                LEAT_CODEC_TYPE_BF16, mode, 0, 0};
    }
    CHECK(cudaMemcpy(encode, e.data(), count * sizeof(e[0]), cudaMemcpyHostToDevice));
    double encode_s =
        best_seconds([&] { gpu.encode(encode, (uint32_t)count, workspace, nullptr); });
    CHECK(cudaMemcpy(e.data(), encode, count * sizeof(e[0]), cudaMemcpyDeviceToHost));
    size_t stored_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        stored_bytes += e[i].written;
        d[i] = {stored + i * room, back + i * block, e[i].written, (uint32_t)block, 0, 0, 0, 99};
    }
    CHECK(cudaMemcpy(decode, d.data(), count * sizeof(d[0]), cudaMemcpyHostToDevice));
    double decode_s =
        best_seconds([&] { gpu.decode(decode, (uint32_t)count, workspace, nullptr); });
    CHECK(cudaMemcpy(d.data(), decode, count * sizeof(d[0]), cudaMemcpyDeviceToHost));
    bytes got(fresh * block);
    CHECK(cudaMemcpy(got.data(), back + (count - fresh) * block, got.size(),
                     cudaMemcpyDeviceToHost));
    bool ok = std::all_of(d.begin(), d.end(), [](auto &g) { return g.status == 0; });
    for (size_t i = 0; i < fresh; i++) {
        ok = ok && memcmp(&got[i * block], &data[(count - fresh + i) % fresh * block], block) == 0;
    }
    expect(ok, "speed run", mode, (unsigned)(total >> 20));
    double copy_s = best_seconds(
        [&] { CHECK(cudaMemcpyAsync(back, plain, total, cudaMemcpyDeviceToDevice)); });
    printf("%5zu MiB  %4zu KiB  %-5s  ratio %.3f  encode %8.1f  decode %8.1f  copy %8.1f GB/s\n",
           total >> 20, block >> 10, leat_codec_mode_name(mode), (double)total / stored_bytes,
           total / encode_s / 1e9, total / decode_s / 1e9, total / copy_s / 1e9);
    for (void *p : {(void *)plain, (void *)stored, (void *)back, (void *)encode, (void *)decode,
                    workspace}) {
        cudaFree(p);
    }
}

int main(int argc, char **argv)
{
    leat_codec_gpu gpu;
    if (argc < 2) {
        fprintf(stderr, "usage: gpu_codec LIBLEATCODEC-CUDA.SO [SEED]\n");
        return 2;
    }
    if (leat_codec_gpu_open(argv[1], &gpu) != LEAT_CODEC_OK) {
        printf("skipped: no GPU, or %s cannot be loaded\n", argv[1]);
        return 77;
    }
    uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 10) : std::random_device{}();
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("%s, seed %llu\n", device.name, (unsigned long long)seed);
    std::mt19937_64 r(seed);
    identity_test(gpu, r);
    for (size_t total : {(size_t)2 << 20, (size_t)32 << 20, (size_t)1 << 30}) {
        for (uint32_t mode : {LEAT_CODEC_MODE_FAST, LEAT_CODEC_MODE_DENSE}) {
            for (size_t block : {(size_t)64 << 10, (size_t)256 << 10}) {
                speed_test(gpu, r, total, block, mode);
            }
        }
    }
    leat_codec_gpu_close(&gpu);
    printf("%d failed\n", failures);
    return failures == 0 ? 0 : 1;
}
