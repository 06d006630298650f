// SPDX-License-Identifier: Apache-2.0
// Any bytes as an aws-chunked body, signed and unsigned, in pieces: never a crash, never more bytes
// than announced, and unsigned bytes never pass as signed. The first byte chooses mode and pieces,
// the second the announced length.
#include "../unit/s3/fake_http.c"
#include "fuzz.h"

#include <stdlib.h>
#include "s3/body.h"

#include <stdio.h>

static const enum s3_payload modes[] = {
    S3_PAYLOAD_UNSIGNED,
    S3_PAYLOAD_CHUNKS_SIGNED,
    S3_PAYLOAD_CHUNKS_SIGNED_TRAILER,
    S3_PAYLOAD_CHUNKS_UNSIGNED_TRAILER,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct s3 *s3 = calloc(1, sizeof(*s3));
    struct s3_core *core = aligned_alloc(CACHE_LINE, sizeof(*core));
    struct fake_http *f = malloc(sizeof(*f));
    struct s3_body *b = malloc(sizeof(*b));
    char head[256];
    fake_s3_init(s3, core, "a", "b", NULL);
    u64 announced = data[1];
    snprintf(head, sizeof(head),
             "PUT /b/k\nHost: h\nContent-Length: %zu\nx-amz-decoded-content-length: %u\n", size - 2,
             data[1]);
    ASSERT(fake_http_init(f, s3, bytes_from_string(head), BYTES(data + 2, size - 2)));
    f->read_max = data[0] >> 2;
    f->rq.auth.payload = modes[data[0] & 3];
    f->rq.auth.scope = BYTES_LITERAL("20130524/us-east-1/s3/aws4_request");
    strcpy(f->rq.auth.date, "20130524T000000Z");
    memset(f->rq.auth.signature, 'a', 64);
    hmac_sha256_key_init(&f->rq.auth.signing_key, BYTES_LITERAL("unknown to the fuzzer"));
    enum err e = s3_body_init(b, &f->rq, META_PUT_BYTES_MAX);
    u64 total = 0;
    size_t n = 1;
    while (e == OK && n > 0) {
        u8 piece[37];
        e = s3_body_read(b, piece, sizeof(piece), &n);
        total += n;
    }
    if (f->rq.auth.payload != S3_PAYLOAD_UNSIGNED) {
        ASSERT(total <= announced);
        ASSERT(e != OK || total == announced);
        ASSERT(!b->is_chunk_signed || e != OK);
    }
    fake_http_deinit(f);
    free(b);
    free(f);
    free(core);
    free(s3);
    return 0;
}
