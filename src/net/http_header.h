// SPDX-License-Identifier: Apache-2.0
// One header field of a request. Apart from http.h, because the file that talks to llhttp needs it
// and llhttp's own names clash with http.h's.
#pragma once

#include "base/slice.h"

struct http_header {
    struct bytes name;  // as sent; compare without case
    struct bytes value; // without surrounding blanks
};
