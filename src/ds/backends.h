// SPDX-License-Identifier: Apache-2.0
// The backends' entry points, and what they export to the driver beside their table.
#pragma once

#include "ds/ds.h"

const struct ds_backend *ds_backend_ref(void);
const struct ds_backend *ds_backend_uring(void);
const struct ds_backend *ds_backend_gds(void);
const struct ds_backend *ds_backend_nvme(void);

// A thread ends and gives its ring back (sync_queue.c).
void ds_sync_queue_release(struct ds_queue *q);

void ds_nvme_init(void);
void ds_nvme_close_all(void);

// Batches of cuFile (gds_batch.c): ends what waits and was cancelled; waits for the rest and stops.
void ds_gds_batch_kick(void);
void ds_gds_batch_stop(void);
// Ends cuFile with the driver.
void ds_gds_close(void);
