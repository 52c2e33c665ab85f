/* SPDX-License-Identifier: Apache-2.0 */
/* micro_batches.h - instructions of micro-batches: sequences, F, B and W, and
 * transfers between stages. */
#ifndef LOCKSTEP_STEP_MICRO_BATCHES_H
#define LOCKSTEP_STEP_MICRO_BATCHES_H

#include "step/execute.h"

/* DO_TARGETS. Collective over the world. */
status micro_batch_count_targets(struct executor *executor);
/* DO_BATCH. */
status micro_batch_read_ahead(struct executor *executor,
                              const struct instruction *instruction);
/* Performs an instruction from DO_SAMPLE over DO_FORWARD to DO_RECEIVE_BACK. A
 * transfer is started; the handle is its. */
status micro_batch_act(struct executor *executor,
                       const struct instruction *instruction,
                       struct comm_handle *handle);

#endif
