/* SPDX-License-Identifier: Apache-2.0 */
/* phases.h - divided weights that are gathered once for all micro-batches: when
 * a stage has its weights whole, and where.
 *
 * A phase is from the first to the last F of a stage on this rank, or from its
 * first B to its last W; one phase where nothing of another stage comes between
 * them, or where they mix. The stages of a rank share the room: breadth-first
 * needs that of one stage or two, 1f1b that of all.
 * Source: Lamy-Poirier 2023, "Breadth-first pipeline parallelism",
 * arXiv:2211.05953, section 4. */
#ifndef LOCKSTEP_PLAN_PHASES_H
#define LOCKSTEP_PLAN_PHASES_H

#include "plan/pipeline.h"

/* Sets stage->phases of every stage, and the row of stages[0] to the room of
 * all. Nothing, unless weights are gathered so. */
status phases_plan(struct pipeline *pipeline);

#endif
