// SPDX-License-Identifier: Apache-2.0
// Reason phrases of HTTP statuses. Private to net/.
#pragma once

#include "base/types.h"

// "" for a status that has none here; HTTP allows an empty phrase.
const char *status_phrase(u32 status);
