// SPDX-License-Identifier: Apache-2.0
// MD5 over several independent streams at once. One MD5 stream is a chain of dependent additions
// and cannot go faster than about 0.7 GB/s; sixteen streams in the lanes of one AVX-512 register
// take hardly longer than one. A reactor collects the buffers of its concurrent PUTs into jobs and
// hashes them in one call.
//
// The contexts are those of codec/digest.h: a stream may go through lanes for one buffer and
// through md5_update() for the next. Pure function; any thread.
#pragma once

#include "base/slice.h"
#include "base/types.h"
#include "codec/digest.h"

#define MD5_LANES_MAX 16 // jobs that run side by side; more than that in one call queue for lanes

struct md5_lane_job {
    struct md5 *ctx;
    struct bytes data;
};

// The same as md5_update(jobs[i].ctx, jobs[i].data) for every i. Any n; lengths may differ (equal
// ones are fastest); no context may appear twice. Jobs are left as they were.
void md5_lanes_update(const struct md5_lane_job *jobs, size_t n);

// For tests and benchmarks: the instructions to use. The processor must have them.
enum md5_lanes_isa { MD5_LANES_PORTABLE, MD5_LANES_AVX2, MD5_LANES_AVX512 };
enum md5_lanes_isa md5_lanes_isa_best(void);
void md5_lanes_update_isa(const struct md5_lane_job *jobs, size_t n, enum md5_lanes_isa isa);
