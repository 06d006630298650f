// SPDX-License-Identifier: Apache-2.0
// The credentials that a server makes for itself when nobody gave it any: generated once, kept with
// mode 0600 in the file "credentials" of the first drive, and read again at every later start.
//
//   access_key_id=JBSWY3DPEHPK3PXPJBSW
//   secret_access_key=u0GQmWdO8...
#pragma once

#include "base/err.h"
#include "sys/sys.h"

#define CREDENTIALS_FILE         "credentials"
#define CREDENTIALS_ACCESS_CHARS 20
#define CREDENTIALS_SECRET_CHARS 40
#define CREDENTIALS_TEXT_MAX     129

struct credentials {
    char access_key[CREDENTIALS_TEXT_MAX];
    char secret_key[CREDENTIALS_TEXT_MAX];
    bool is_generated; // just now
};

// Gives a file's permission bits (sys knows no modes). ERR_NOT_FOUND when it is absent.
typedef enum err (*credentials_mode_fn)(const char *path, u32 *out_mode);

// Reads <drive>/credentials, or makes it durable with new ones. Blocking: helper pool. Each error
// comes with a log line that says what to do: ERR_PERMISSION (the file's mode is wider than 0600),
// ERR_INVALID (it is malformed), or what the drive gave.
enum err credentials_obtain(struct sys *sys, const char *drive, credentials_mode_fn mode,
                            struct credentials *out) NODISCARD;

// Fills in random ones.
void credentials_generate(struct sys *sys, struct credentials *out);
// The two lines above, in this order; anything else is false.
bool credentials_parse(const char *text, struct credentials *out);
