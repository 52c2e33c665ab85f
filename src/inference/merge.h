/* SPDX-License-Identifier: Apache-2.0 */
/* merge.h - low-rank adapters into the matrices beside which they stand. */
#ifndef LOCKSTEP_INFERENCE_MERGE_H
#define LOCKSTEP_INFERENCE_MERGE_H

#include "plan/stage.h"

/* W += (alpha / rank) B A, each element summed in float64 and rounded once,
 * and B = 0: the stage, which must hold whole weights of float32 or float64,
 * computes what a model without adapters and with these weights does. */
status adapters_merge(struct stage *stage);

#endif
