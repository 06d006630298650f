// SPDX-License-Identifier: Apache-2.0
// Receiving an object's or a part's bytes into a writer, shared by PutObject and UploadPart.
#pragma once

#include "s3/body.h"
#include "s3/checksum.h"

struct s3_receive {
    struct bytes upload_id;         // of a part
    u32 part_number;                // 0: a whole object
    u8 keep_algorithm;              // the checksum to compute when the client names none
    struct s3_checksum_claim claim; // parsed by the caller
    struct object_digests digests;
    struct object_writer *writer; // the caller finishes or aborts it
};

// Checks the head, receives and verifies everything. On success the writer waits to be finished; on
// failure there is none.
MAY_WAIT NODISCARD enum err s3_receive(struct s3_request *rq, struct s3_receive *r);
// The checksum to keep: the claimed algorithm's, else keep_algorithm's.
struct checksum s3_receive_checksum(const struct s3_receive *r);
