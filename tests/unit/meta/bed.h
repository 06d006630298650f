// SPDX-License-Identifier: Apache-2.0
// A bed for tests: a store in a new directory, meta on it, and the verbs that most tests use. A
// body runs as the main fiber on core 0; a failed check ends the process, because fibers and other
// cores are no place for cmocka's long jumps.
#pragma once

#include "harness.h"

#include "codec/crc.h"
#include "codec/digest.h"
#include "core/buf.h"
#include "meta/meta.h"

#define CHECK(expr)                                                                                \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #expr);               \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_ERR(expr, want)                                                                      \
    do {                                                                                           \
        enum err check_err_ = (expr);                                                              \
        if (check_err_ != (want)) {                                                                \
            fprintf(stderr, "%s:%d: %s is %s, not %s\n", __FILE__, __LINE__, #expr,                \
                    err_name(check_err_), err_name(want));                                         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK_OK(expr) CHECK_ERR(expr, OK)

#define TEST_PART_MIN ((u64)1000)
#define B(text)       BYTES_LITERAL(text)

struct bed;
typedef void (*bed_body)(struct bed *bed);
struct bed {
    char dir[64];
    u32 cores;
    struct store *store;
    struct meta *meta;
    bed_body body;
    u64 seed;
};

struct bed_test {
    const char *name;
    bed_body body;
};
#define BED_TEST(name)                                                                             \
    {                                                                                              \
#name, name##_body                                                                         \
    }
void bed_run(u32 cores, bed_body body);
// Runs each body on one core and on two; the first argument, if any, is a pattern of names.
int bed_main(int argc, char **argv, const struct bed_test *tests, size_t count);
// Closes and opens everything.
void bed_reopen(struct bed *bed);
// Runs fn(arg) on a core as a fiber and waits for it.
void bed_on(u32 core, fiber_fn fn, void *arg);
// Runs fn(arg, i) for every i below count, on many fibers at once: flushes are shared.
void bed_parallel(u32 count, void (*fn)(void *arg, u32 i), void *arg);
// Sums over all cores.
struct bed_counts {
    struct meta_usage meta;
    u64 keys;
    u64 live_bytes;
    u64 buf_bytes;
};
void bed_counts(struct bed *bed, struct bed_counts *out);
// Nothing is held any more: no writer, reader, gate or buffer but those of `before`.
void bed_check_idle(struct bed *bed);

// Bytes that depend on their position and a seed.
void pattern(u64 seed, u64 at, u8 *out, size_t len);

struct put {
    struct bytes bucket;
    struct bytes key;
    u64 seed;
    u64 size;
    bool is_size_unknown;
    u32 checksums;
    u8 checksum; // to keep
    const struct attr *attrs;
    u32 attr_count;
    struct write_condition condition;
    struct bytes upload_id;
    u32 part_number;
};
enum err put_run(struct meta *m, const struct put *p, struct object_info *info);
enum err put_simple(struct meta *m, struct bytes bucket, struct bytes key, u64 size, u64 seed);
// Reads [offset, offset + len) and compares it with the pattern.
void check_bytes(struct object_reader *r, u64 seed, u64 offset, u64 len);
// The whole object is that pattern.
void check_object(struct meta *m, struct bytes bucket, struct bytes key, u64 size, u64 seed);
enum err head(struct meta *m, struct bytes bucket, struct bytes key, struct object_info *info);
struct bytes key_of(char *buf, size_t cap, const char *prefix, u64 n);
