// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "meta/meta_internal.h"

// Aborts every upload that was initiated before that time. Any core. What was aborted before an
// error stays so.
MAY_WAIT enum err uploads_expire(struct meta *m, u64 before_ns, u64 *aborted) NODISCARD;

// Does so again and again until it is cancelled. arg: the struct meta, whose options say how old.
MAY_WAIT void upload_expiry_fiber(void *arg);
