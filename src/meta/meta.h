// SPDX-License-Identifier: Apache-2.0
// Buckets, objects, multipart uploads and listings on top of the store. Knows nothing of HTTP. All
// calls run on a fiber of any core and travel to the owner of the placement group themselves.
//
// Keyspace in the store (docs/format/meta.md): the store's key is bucket id (8 bytes, big-endian),
// a space byte (object, upload, part), then the name. hash(bucket id, object key) picks the PG, for
// an upload and its parts too, so an upload and its object always share one PG and Complete is one
// atomic commit. Buckets are records of PG 0 in bucket id 0; every core keeps a copy of the table.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "store/store.h"

#define META_KEY_BYTES_MAX    1024
#define META_BUCKET_NAME_MIN  3
#define META_BUCKET_NAME_MAX  63
#define META_BUCKETS_MAX      10000
#define META_ATTRS_MAX        512
#define META_PART_NUMBER_MAX  10000
#define META_PART_BYTES_MIN   (5 * MIB)
#define META_PUT_BYTES_MAX    (5 * GIB)
#define META_OBJECT_BYTES_MAX (5 * TIB)
#define META_UPLOAD_ID_CHARS  32
#define META_LIST_MAX         1000

struct meta;

struct meta_options {
    u64 part_bytes_min;   // 0: META_PART_BYTES_MIN; less only in tests
    u32 buckets_max;      // 0: META_BUCKETS_MAX; less only in tests
    u64 upload_expiry_ns; // uploads that were initiated longer ago are aborted; 0: never
};

// Runs on core 0 after store_open; fills every core's bucket table, sweeps what a crash left of
// completed or aborted uploads.
MAY_WAIT enum err meta_open(struct store *store, const struct meta_options *options,
                            struct meta **out) NODISCARD;
MAY_WAIT void meta_close(struct meta *m);

// What is alive on the calling core: for status and for tests that look for leaks.
struct meta_usage {
    u64 writers; // object_write_begin without finish or abort
    u64 readers; // object_open without close
    u64 commits; // inside the gates of buckets
    u64 upload_gates;
    u64 buckets;
    u64 md5_runs;   // batches hashed
    u64 md5_pieces; // streams in them: pieces / runs is how well the lanes were filled
};
void meta_usage(struct meta *m, struct meta_usage *out);

// ---- buckets

struct bucket {
    u64 id;         // never reused
    u64 created_ns; // wall clock
    char name[META_BUCKET_NAME_MAX + 1];
};

// AWS's rules for general-purpose bucket names.
bool bucket_name_is_valid(struct bytes name);
// This core's copy of the table; no wait. ERR_S3_NO_SUCH_BUCKET.
enum err bucket_find(struct meta *m, struct bytes name, struct bucket *out) NODISCARD;
// ERR_S3_BUCKET_ALREADY_OWNED (and *out is the existing one), ERR_S3_TOO_MANY_BUCKETS. When it
// returned OK every core knows the bucket and it is durable.
MAY_WAIT enum err bucket_create(struct meta *m, struct bytes name, struct bucket *out) NODISCARD;
// ERR_S3_BUCKET_NOT_EMPTY: it holds an object or an unfinished upload... AWS lets a bucket with
// unfinished uploads go; so does this: uploads are swept with it. Writes racing with it either
// count as content or answer ERR_S3_NO_SUCH_BUCKET; none is lost after being acknowledged.
MAY_WAIT enum err bucket_delete(struct meta *m, struct bytes name) NODISCARD;
// Calls fn for buckets in name order with the prefix, after `after`; stops when fn returns false.
void bucket_list(struct meta *m, struct bytes prefix, struct bytes after,
                 bool (*fn)(void *arg, const struct bucket *b), void *arg);

// ---- objects

enum checksum_algorithm {
    CHECKSUM_NONE = 0,
    CHECKSUM_CRC32,
    CHECKSUM_CRC32C,
    CHECKSUM_CRC64NVME,
    CHECKSUM_SHA1,
    CHECKSUM_SHA256,
    CHECKSUM_COUNT
};
#define CHECKSUM_BYTES_MAX 32
enum checksum_type { CHECKSUM_FULL_OBJECT = 0, CHECKSUM_COMPOSITE };

struct checksum {
    u8 algorithm;                 // enum checksum_algorithm
    u8 type;                      // enum checksum_type
    u8 value[CHECKSUM_BYTES_MAX]; // big-endian as it goes into base64; length by algorithm
};
size_t checksum_bytes(enum checksum_algorithm a); // 4, 4, 8, 20, 32

struct etag {
    u8 md5[16];
    u32 parts; // 0: a plain MD5; else shown as "<hex>-<parts>"
};
#define ETAG_TEXT_MAX 40
void etag_text(const struct etag *e, char out[ETAG_TEXT_MAX]); // without quotes
bool etag_parse(struct bytes text,
                struct etag *out); // with or without quotes; false: not one of ours
bool etag_equal(const struct etag *a, const struct etag *b);

// A name and a value kept with an object: standard headers by their lower-case name
// ("content-type"), user metadata as "x-amz-meta-...", and "tagging" (the URL-encoded tag set).
// Opaque to meta.
struct attr {
    struct bytes name;
    struct bytes value;
};
// The sum of names and values that one object may have: headers are limited by the HTTP server,
// this is the last guard.
#define META_ATTRS_BYTES_MAX (64 * KIB)

struct object_info {
    u64 size;
    u64 modified_ns; // wall clock, strictly later than the object it replaced
    struct etag etag;
    struct checksum checksum; // algorithm NONE if it has none
};

// A condition that must hold, checked in the critical section of the key.
struct write_condition {
    bool if_none_match_any; // If-None-Match: *
    bool if_match_any;      // If-Match: *
    bool has_if_match;
    bool has_if_none_match;  // an ETag that must not be the current one
    bool if_etag_is_foreign; // the given If-Match text is not one of our ETags: never matches
    struct etag if_match;
    struct etag if_none_match;
    // DeleteObject: x-amz-if-match-last-modified-time (whole seconds) and x-amz-if-match-size.
    bool has_if_modified_at;
    bool has_if_size;
    u64 if_modified_at_s;
    u64 if_size;
};

// Writing an object or a part. Life: begin, then any number of (buffer, advance), then digests,
// then finish or abort. Bytes are received straight into the memory that will be written to the
// drive.
struct object_writer;

struct object_write_options {
    struct bytes bucket;
    struct bytes key;
    u64 size_expected; // UINT64_MAX when unknown
    u32 checksums;     // bit set of 1 << enum checksum_algorithm to compute along
    bool needs_md5;    // ETag; true for everything S3
    // For a part: a valid upload id and 1..META_PART_NUMBER_MAX. Else part_number 0.
    struct bytes upload_id;
    u32 part_number;
};
// ERR_S3_NO_SUCH_BUCKET, ERR_S3_NO_SUCH_UPLOAD, ERR_S3_ENTITY_TOO_LARGE, ERR_NO_MEMORY, ...
MAY_WAIT enum err object_write_begin(struct meta *m, const struct object_write_options *o,
                                     struct object_writer **out) NODISCARD;
// Where the next bytes go: at least 1 byte of room. Valid until the next call on the writer.
MAY_WAIT enum err object_write_buffer(struct object_writer *w, u8 **out, size_t *room) NODISCARD;
// `n` bytes were placed there. ERR_S3_ENTITY_TOO_LARGE past size_expected or META_PUT_BYTES_MAX.
MAY_WAIT enum err object_write_advance(struct object_writer *w, size_t n) NODISCARD;
struct object_digests {
    u64 size;
    u8 md5[16];
    u8 checksum[CHECKSUM_COUNT][CHECKSUM_BYTES_MAX]; // of the algorithms asked for
};
// All bytes are in: the digests, to be compared with what the client claimed before finishing.
MAY_WAIT enum err object_write_digests(struct object_writer *w,
                                       struct object_digests *out) NODISCARD;
struct object_finish {
    const struct attr *attrs;
    u32 attr_count;
    struct checksum checksum; // what to keep (algorithm NONE: none)
    struct write_condition condition;
};
// Commits: durable and visible when OK. The writer is gone in every case.
// ERR_S3_PRECONDITION_FAILED, ERR_S3_NO_SUCH_KEY (If-Match on nothing), ERR_S3_NO_SUCH_UPLOAD,
// ERR_S3_NO_SUCH_BUCKET, ERR_DRIVE_FULL, ...
MAY_WAIT enum err object_write_finish(struct object_writer *w, const struct object_finish *f,
                                      struct object_info *out) NODISCARD;
MAY_WAIT void object_write_abort(struct object_writer *w);

// Reading. The reader pins what it reads: overwriting or deleting the key meanwhile changes
// nothing.
struct object_reader {
    u32 magic;
    struct meta *meta;
    struct object_info info;
    struct attr *attrs; // in the arena
    u32 attr_count;
    u32 part_count;             // 0 for a plain object
    struct reader_state *state; // private
};
// ERR_S3_NO_SUCH_BUCKET, ERR_S3_NO_SUCH_KEY, ERR_CORRUPT. `arena` must outlive the reader. is_head:
// only info and attrs.
MAY_WAIT enum err object_open(struct meta *m, struct bytes bucket, struct bytes key, bool is_head,
                              struct arena *arena, struct object_reader *out) NODISCARD;
// The next verified bytes at `offset`, at most `len`: a view until the next object_read, release or
// close. A view takes memory that readers share: do not wait for a writer's while holding one.
// Pass all that is wanted as `len` and go on behind what came: what is left of `len` is read ahead
// meanwhile, and nothing else. *out has at least 1 byte unless offset == size or len == 0.
MAY_WAIT enum err object_read(struct object_reader *r, u64 offset, u64 len,
                              struct bytes *out) NODISCARD;
void object_read_release(struct object_reader *r);
// Part `number` (1-based position for a completed upload: its part number) of the object.
struct object_part {
    u32 number;
    u64 offset;
    u64 size;
    struct checksum checksum;
};
enum err object_part_find(struct object_reader *r, u32 number, struct object_part *out) NODISCARD;
enum err object_part_at(struct object_reader *r, u32 index, struct object_part *out) NODISCARD;
MAY_WAIT void object_close(struct object_reader *r);

// Deleting what does not exist is OK (*existed false).
MAY_WAIT enum err object_delete(struct meta *m, struct bytes bucket, struct bytes key,
                                const struct write_condition *condition, bool *existed) NODISCARD;

// Replaces attributes (copy onto itself with REPLACE): same bytes, new attrs and time. The source
// must still have `etag`.
MAY_WAIT enum err object_rewrite_attrs(struct meta *m, struct bytes bucket, struct bytes key,
                                       const struct attr *attrs, u32 attr_count,
                                       const struct write_condition *condition,
                                       struct object_info *out) NODISCARD;

// Sets one attribute, or removes it (value.data NULL); everything else stays as it is, the time of
// the last change too. One commit; none if there is nothing to remove. ERR_S3_NO_SUCH_KEY,
// ERR_S3_METADATA_TOO_LARGE.
MAY_WAIT enum err object_set_attr(struct meta *m, struct bytes bucket, struct bytes key,
                                  const struct attr *attr) NODISCARD;

// ---- listing

struct list_request {
    struct bytes bucket;
    struct bytes prefix;
    struct bytes delimiter; // empty: none; any length
    struct bytes after;     // names <= this are skipped; a common prefix equal to it is skipped too
    u32 max;                // 0..META_LIST_MAX
};
struct list_item {
    struct bytes name; // key or common prefix, in the arena
    bool is_prefix;
    struct object_info info; // checksum.value is not filled, its algorithm and type are
};
struct list_result {
    struct list_item *items; // in byte order, each name once, prefixes and keys interleaved
    u32 count;
    bool is_truncated;
    struct bytes next_after; // when truncated: pass as `after` to go on
};
MAY_WAIT enum err object_list(struct meta *m, const struct list_request *rq, struct arena *arena,
                              struct list_result *out) NODISCARD;

// ---- multipart uploads

struct upload_options {
    struct bytes bucket;
    struct bytes key;
    const struct attr *attrs;
    u32 attr_count;
    u8 checksum_algorithm; // NONE if the client named none
    u8 checksum_type;
};
MAY_WAIT enum err upload_create(struct meta *m, const struct upload_options *o,
                                char upload_id[META_UPLOAD_ID_CHARS + 1]) NODISCARD;
struct upload_info {
    u64 initiated_ns;
    u8 checksum_algorithm;
    u8 checksum_type;
};
MAY_WAIT enum err upload_find(struct meta *m, struct bytes bucket, struct bytes key,
                              struct bytes upload_id, struct upload_info *out) NODISCARD;
MAY_WAIT enum err upload_abort(struct meta *m, struct bytes bucket, struct bytes key,
                               struct bytes upload_id) NODISCARD;

struct complete_part {
    u32 number;
    struct etag etag;
    struct checksum checksum; // algorithm NONE if the client gave none
};
struct complete_request {
    struct bytes bucket;
    struct bytes key;
    struct bytes upload_id;
    const struct complete_part *parts; // strictly ascending, 1..META_PART_NUMBER_MAX of them
    u32 part_count;
    struct checksum checksum; // of the whole object as claimed; NONE if not given
    bool has_size;
    u64 size; // x-amz-mp-object-size
    struct write_condition condition;
};
// ERR_S3_INVALID_PART, ERR_S3_INVALID_PART_ORDER, ERR_S3_ENTITY_TOO_SMALL, ERR_S3_NO_SUCH_UPLOAD,
// ERR_S3_BAD_DIGEST, ERR_S3_INVALID_REQUEST (size), ERR_S3_PRECONDITION_FAILED. A failed Complete
// leaves the upload as it was. A repeated Complete with the same parts after success (the object
// still being its result) is OK again and gives the same answer.
MAY_WAIT enum err upload_complete(struct meta *m, const struct complete_request *rq,
                                  struct object_info *out) NODISCARD;

struct part_info {
    u32 number;
    struct object_info info;
};
// Parts with number > after, at most max, in order.
MAY_WAIT enum err upload_list_parts(struct meta *m, struct bytes bucket, struct bytes key,
                                    struct bytes upload_id, u32 after, u32 max, struct arena *arena,
                                    struct part_info **parts, u32 *count,
                                    bool *is_truncated) NODISCARD;
struct upload_item {
    struct bytes key; // or common prefix
    bool is_prefix;
    char upload_id[META_UPLOAD_ID_CHARS + 1];
    struct upload_info info;
};
struct upload_list_request {
    struct bytes bucket;
    struct bytes prefix;
    struct bytes delimiter;
    struct bytes after_key;
    struct bytes after_upload_id; // empty: skip all uploads of after_key
    u32 max;
};
MAY_WAIT enum err upload_list(struct meta *m, const struct upload_list_request *rq,
                              struct arena *arena, struct upload_item **items, u32 *count,
                              bool *is_truncated) NODISCARD;
