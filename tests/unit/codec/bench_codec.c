// SPDX-License-Identifier: Apache-2.0
// What the codecs cost: run by hand, best of several rounds of about 30 ms each.
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "codec/crc.h"
#include "codec/crc64nvme.h"
#include "codec/digest.h"
#include "codec/hash.h"
#include "codec/md5_lanes.h"
#include "codec/percent.h"
#include "codec/time_text.h"
#include "codec/xml_read.h"
#include "codec/xml_write.h"

#define DATA_BYTES MIB
#define ROUNDS     7
#define ROUND_NS   30000000ull

struct bench {
    u8 *data;
    size_t n; // bytes, streams or whatever the case counts
    u64 sink; // keeps results alive
    const EVP_MD *md;
};

static u64 now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (u64)t.tv_sec * NS_PER_S + (u64)t.tv_nsec;
}

// Nanoseconds a call, the best round.
static double measure(struct bench *b, void (*run)(struct bench *b))
{
    double best = 1e18;
    u64 calls = 1;
    for (size_t round = 0; round < ROUNDS;) {
        u64 start = now_ns();
        for (u64 i = 0; i < calls; i++) {
            run(b);
        }
        u64 took = now_ns() - start;
        if (took < ROUND_NS / 2) {
            calls *= 2;
            continue;
        }
        best = MIN(best, (double)took / (double)calls);
        round++;
    }
    return best;
}

static void report(struct bench *b, const char *name, size_t bytes, void (*run)(struct bench *b))
{
    double ns = measure(b, run);
    printf("%-44s %12.1f ns", name, ns);
    if (bytes > 0) {
        printf(" %9.2f GB/s", (double)bytes / ns);
    }
    printf("\n");
}

static void run_crc32c(struct bench *b)
{
    b->sink += crc32c(0, BYTES(b->data, b->n));
}
static void run_crc32(struct bench *b)
{
    b->sink += crc32(0, BYTES(b->data, b->n));
}
static void run_crc64(struct bench *b)
{
    b->sink += crc64nvme(0, BYTES(b->data, b->n));
}
static void run_crc64_table(struct bench *b)
{
    b->sink += crc64nvme_update_table(0, b->data, b->n);
}
#if defined(__x86_64__)
static void run_crc64_clmul(struct bench *b)
{
    b->sink += crc64nvme_update_clmul(0, b->data, b->n);
}
#endif
static void run_combine(struct bench *b)
{
    b->sink = crc64nvme_combine(b->sink, 12345, b->n);
}
static void run_combine32(struct bench *b)
{
    b->sink = crc32c_combine((u32)b->sink, 12345, b->n);
}
static void run_hash64(struct bench *b)
{
    b->sink += hash64(BYTES(b->data, b->n), b->sink);
}
static void run_md5(struct bench *b)
{
    md5_digest(BYTES(b->data, b->n), b->data);
}
static void run_sha1(struct bench *b)
{
    sha1_digest(BYTES(b->data, b->n), b->data);
}
static void run_sha256(struct bench *b)
{
    sha256_digest(BYTES(b->data, b->n), b->data);
}
static void run_evp(struct bench *b)
{
    u8 out[EVP_MAX_MD_SIZE];
    EVP_Digest(b->data, b->n, out, NULL, b->md, NULL);
    b->sink += out[0];
}
static void run_hmac(struct bench *b)
{
    struct hmac_sha256_key key = {{b->data[0]}, {b->data[1]}};
    hmac_sha256(&key, BYTES(b->data, b->n), b->data);
}
static void run_hmac_key(struct bench *b)
{
    struct hmac_sha256_key key;
    hmac_sha256_key_init(&key, BYTES(b->data, 32));
    b->sink += key.inner[0];
}

// n streams of 64 KiB, neighbours in memory.
static void run_lanes(struct bench *b, enum md5_lanes_isa isa)
{
    struct md5 ctx[MD5_LANES_MAX];
    struct md5_lane_job jobs[MD5_LANES_MAX];
    for (size_t i = 0; i < b->n; i++) {
        md5_init(&ctx[i]);
        jobs[i] = (struct md5_lane_job){&ctx[i], BYTES(b->data + i * 64 * KIB, 64 * KIB)};
    }
    md5_lanes_update_isa(jobs, b->n, isa);
    b->sink += ctx[0].state[0];
}
static void run_lanes_best(struct bench *b)
{
    run_lanes(b, md5_lanes_isa_best());
}
static void run_lanes_avx2(struct bench *b)
{
    run_lanes(b, MD5_LANES_AVX2);
}
static void run_lanes_portable(struct bench *b)
{
    run_lanes(b, MD5_LANES_PORTABLE);
}

static void run_percent(struct bench *b)
{
    char out[256];
    size_t len;
    struct bytes key = BYTES_LITERAL("photos/2024/summer holiday/IMG_0001 (copy).jpeg?!");
    if (percent_encode(key, PERCENT_SLASH_KEEP, out, sizeof(out), &len) == OK) {
        b->sink += len;
    }
}
static void run_iso(struct bench *b)
{
    char out[TIME_ISO8601_LEN + 1];
    time_iso8601_format(b->sink += 1234567890123ull, out);
    b->data[0] = (u8)out[10];
}
static void run_http(struct bench *b)
{
    char out[TIME_HTTP_LEN + 1];
    b->sink = (b->sink + 1234567890123ull) & INT64_MAX;
    time_http_format(b->sink, out);
    b->data[0] = (u8)out[10];
}
static void run_http_parse(struct bench *b)
{
    u64 t;
    b->sink += time_http_parse(BYTES_LITERAL("Sun, 06 Nov 1994 08:49:37 GMT"), &t) ? t : 0;
}

static void run_list_page(struct bench *b)
{
    struct xml_writer w;
    struct bytes out;
    char key[64] = "data/training/shard-00000000/part_0000.tar";
    xml_writer_init(&w, b->data, DATA_BYTES, NULL, NULL);
    xml_writer_declaration(&w);
    xml_writer_open_root(&w, "ListBucketResult");
    for (u32 i = 0; i < 1000; i++) {
        char when[TIME_ISO8601_LEN + 1];
        time_iso8601_format(1700000000ull * NS_PER_S + i * 1234567890ull, when);
        key[20] = (char)('0' + i % 10);
        xml_writer_open(&w, "Contents");
        xml_writer_string(&w, "Key", key);
        xml_writer_raw(&w, "LastModified", BYTES(when, TIME_ISO8601_LEN));
        xml_writer_text(&w, "ETag", BYTES_LITERAL("\"900150983cd24fb0d6963f7d28e17f72\""));
        xml_writer_u64(&w, "Size", 1234567 + i);
        xml_writer_raw(&w, "StorageClass", BYTES_LITERAL("STANDARD"));
        xml_writer_close(&w);
    }
    xml_writer_close(&w);
    if (xml_writer_finish(&w, &out) == OK) {
        b->sink += out.len;
    }
}

static void run_delete_body(struct bench *b)
{
    struct arena a;
    const struct xml_node *root;
    struct xml_limits limits = XML_LIMITS_S3;
    arena_init(&a, 16 * MIB);
    if (xml_parse(BYTES(b->data, b->n), &a, &limits, &root) != OK) {
        abort();
    }
    XML_FOREACH_CHILD(object, root, "Object")
    {
        b->sink += xml_child_text(object, "Key").len;
    }
    arena_deinit(&a);
}

static void bench_sums(struct bench *b)
{
    static const size_t sizes[] = {64, 4096, MIB};
    char name[64];
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct {
            const char *name;
            void (*run)(struct bench *);
        } cases[] = {
            {"crc32c", run_crc32c},
            {"crc32", run_crc32},
            {"crc64nvme", run_crc64},
#if defined(__x86_64__)
            {"crc64nvme pclmul", run_crc64_clmul},
#endif
            {"crc64nvme table", run_crc64_table},
            {"xxh3", run_hash64},
            {"md5", run_md5},
            {"sha1", run_sha1},
            {"sha256", run_sha256},
            {"hmac_sha256", run_hmac},
        };
        b->n = sizes[i];
        for (size_t j = 0; j < ARRAY_LEN(cases); j++) {
            snprintf(name, sizeof(name), "%s %zu", cases[j].name, sizes[i]);
            report(b, name, sizes[i], cases[j].run);
        }
        EVP_MD *sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
        EVP_MD *md5 = EVP_MD_fetch(NULL, "MD5", NULL);
        b->md = sha256;
        report(b, "  OpenSSL EVP sha256, prefetched", sizes[i], run_evp);
        b->md = md5;
        report(b, "  OpenSSL EVP md5, prefetched", sizes[i], run_evp);
        EVP_MD_free(sha256);
        EVP_MD_free(md5);
    }
    report(b, "hmac_sha256 key", 0, run_hmac_key);
}

static void bench_lanes(struct bench *b)
{
    static const size_t streams[] = {1, 2, 3, 4, 8, 12, 16};
    char name[64];
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        b->n = streams[i];
        size_t bytes = streams[i] * 64 * KIB;
        snprintf(name, sizeof(name), "md5 lanes best, %zu streams", streams[i]);
        report(b, name, bytes, run_lanes_best);
        if (md5_lanes_isa_best() >= MD5_LANES_AVX2) {
            snprintf(name, sizeof(name), "md5 lanes avx2, %zu streams", streams[i]);
            report(b, name, bytes, run_lanes_avx2);
        }
        snprintf(name, sizeof(name), "md5 lanes portable, %zu streams", streams[i]);
        report(b, name, bytes, run_lanes_portable);
    }
}

int main(void)
{
    struct bench b = {.data = malloc(DATA_BYTES)};
    if (b.data == NULL) {
        return 1;
    }
    memset(b.data, 0x5a, DATA_BYTES);
    bench_sums(&b);
    bench_lanes(&b);
    b.n = 8 * MIB;
    report(&b, "crc64nvme_combine, 8 MiB", 0, run_combine);
    report(&b, "crc32c_combine, 8 MiB", 0, run_combine32);
    b.n = 5 * TIB - 1;
    report(&b, "crc64nvme_combine, 42 bits set", 0, run_combine);
    report(&b, "percent_encode, 49 bytes", 0, run_percent);
    report(&b, "time_iso8601_format", 0, run_iso);
    report(&b, "time_http_format", 0, run_http);
    report(&b, "time_http_parse", 0, run_http_parse);
    report(&b, "xml: list page of 1000 keys", 0, run_list_page);
    size_t n = (size_t)sprintf((char *)b.data, "<Delete>");
    for (int i = 0; i < 1000; i++) {
        n += (size_t)sprintf((char *)b.data + n,
                             "<Object><Key>data/shard-%06d/part.tar</Key></Object>", i);
    }
    b.n = n + (size_t)sprintf((char *)b.data + n, "</Delete>");
    report(&b, "xml: parse a Delete of 1000 keys", 0, run_delete_body);
    printf("(%llu)\n", (unsigned long long)b.sink);
    free(b.data);
    return 0;
}
