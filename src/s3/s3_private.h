// SPDX-License-Identifier: Apache-2.0
// The server object behind s3.h, for the files of this folder.
#pragma once

#include "codec/digest.h"
#include "s3/s3.h"

#define S3_MAGIC          0x5333ed6eu
#define S3_KEY_CACHE_SIZE 32 // signing keys kept a core

// A derived signing key: good for one credential and one day.
struct s3_signing_key {
    u32 credential; // index + 1; 0: empty
    char day[9];
    struct hmac_sha256_key key;
};

// What belongs to one core.
struct s3_core {
    _Alignas(CACHE_LINE) struct s3_signing_key keys[S3_KEY_CACHE_SIZE];
    u32 next_key;
    u64 request_count;
};

struct s3 {
    u32 magic;
    struct meta *meta;
    struct {
        char access_key[S3_ACCESS_KEY_MAX + 1];
        char secret_key[S3_SECRET_KEY_MAX + 1];
    } credentials[S3_CREDENTIALS_MAX];
    u32 credential_count;
    char region[64];
    char domains[S3_DOMAINS_MAX][256];
    u32 domain_count;
    u64 request_salt; // makes request ids of two processes differ
    u64 xml_salt;
    u32 cores;
    struct s3_core *core; // [cores]
};
