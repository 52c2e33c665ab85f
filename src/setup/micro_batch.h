/* SPDX-License-Identifier: Apache-2.0 */
/* micro_batch.h - how many sequences of a step are worked on at once, where
 * the configuration leaves it open.
 *
 * No bit depends on it. Fewer at once need less memory for activations, which
 * a first step has to wait for; but each micro-batch reads the weights and adds
 * to their gradients again, and sums of gradients wait for their siblings. */
#ifndef LOCKSTEP_SETUP_MICRO_BATCH_H
#define LOCKSTEP_SETUP_MICRO_BATCH_H

#include "plan/stage.h"

/* Sequences at once of `batch` of a rank that holds `leaves` of the grid's
 * data leaves: all of them, or equal parts that are subtrees of leaves. On the
 * CPU of 1,024 tokens or more, where that saves memory worth having; on a GPU
 * of 8,192 or more, the fewest parts whose activations take a quarter of
 * train.memory, or of 16 GiB, at most. Of the request, model, length, dtype,
 * device and that limit are read. */
int64_t micro_batch_choose(const struct stage_request *request, int64_t batch,
                           int leaves);

#endif
