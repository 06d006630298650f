// SPDX-License-Identifier: Apache-2.0
// Deriving everything in memory from the drives. Private to store/.
#pragma once

#include "store/footer.h"
#include "store/shard.h"

// Recovers all drives into the shards of all cores, and seals what a crash left unsealed. Runs on
// core 0. ERR_IO, ERR_NO_MEMORY, ERR_VERSION.
MAY_WAIT enum err recovery_run(struct store *s) NODISCARD;

// Loads a segment's footer: read, or rebuilt by a scan if it has none or a damaged one (then
// *is_scanned).
MAY_WAIT enum err recovery_footer_load(struct drive *d, const struct segment *seg, struct footer *f,
                                       bool *is_scanned) NODISCARD;

// Runs `fn` for each block of a footer on each core that owns entries of it.
struct block_call {
    struct store *store;
    struct drive *drive;
    struct segment *seg;
    const u8 *block;
    void *arg;
    enum err result;
};
typedef enum err (*block_fn)(struct shard *sh, struct block_call *call);
MAY_WAIT enum err footer_each_block(struct store *s, struct drive *d, struct segment *seg,
                                    const struct footer *f, block_fn fn, void *arg) NODISCARD;
// True if the entry belongs to this core and drive.
bool footer_entry_is_mine(const struct shard *sh, const struct drive *d,
                          const struct footer_entry *e);
