// SPDX-License-Identifier: Apache-2.0
// Rebuilds a footer from the frames of a segment that has none, or whose footer is damaged.
#pragma once

#include "store/footer.h"

// Fills `f` (reset first). A commit is proved durable by a later one in the same segment: of such a
// commit every readable record counts. Of the last commit only whole atomic groups with intact
// payloads do: it may be torn. ERR_IO, ERR_NO_MEMORY.
MAY_WAIT enum err segment_scan(struct drive *d, const struct segment *seg,
                               struct footer *f) NODISCARD;
