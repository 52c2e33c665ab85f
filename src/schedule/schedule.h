/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h - one training step of a pipeline, as plain data.
 *
 * For each pipeline rank, the actions it performs, in order. A schedule knows
 * no model, stream or communicator, so the executor, the simulator and the
 * pictures read the very same object.
 *
 *   stage   contiguous part of the model, 0 .. stages - 1 in forward order
 *   rank    pipeline rank; runs every stage s with rank_of_stage[s] == rank
 *
 * Text form, one line per rank: F0.2 is the forward of stage 0, microbatch 2;
 * B its backward for inputs, W for weights. */
#ifndef LOCKSTEP_SCHEDULE_SCHEDULE_H
#define LOCKSTEP_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "base/text.h"

enum action_kind {
    ACTION_FORWARD,          /* F  activations of a stage */
    ACTION_BACKWARD_INPUT,   /* B  gradient of the stage's input */
    ACTION_BACKWARD_WEIGHT,  /* W  gradient of the stage's parameters */
    ACTION_KIND_COUNT
};

struct action { int16_t kind, stage; int32_t microbatch; };
struct action_list { struct action *items; int count, capacity; };

struct schedule {
    int ranks, stages, microbatches;
    int *rank_of_stage;        /* owned, [stages] */
    struct action_list *lists; /* owned, [ranks] */
};

/* From the row `name` of the schedule table: one stage a rank. Pure integer
 * arithmetic, the same on every rank. ERR_CONFIG: no such row (names the
 * nearest), or it cannot serve these numbers. */
status schedule_build(struct schedule *out, const char *name, int ranks,
                      int microbatches);
void schedule_free(struct schedule *schedule);

/* The rules, stated once: the 0 to 2 actions that must be complete before
 * `action` starts. Returns how many. */
int schedule_needs(const struct schedule *schedule, struct action action,
                   struct action needs[2]);

/* ERR_CONFIG names the first action that is missing, doubled, on a wrong rank
 * or can never start. W of a stage run in order of micro-batches. */
status schedule_verify(const struct schedule *schedule);
/* Most micro-batches between their F and their W on any rank. */
int schedule_held(const struct schedule *schedule);
/* Whether on `rank` each W stands right after the B of its micro-batch. */
bool schedule_fused(const struct schedule *schedule, int rank);
status schedule_write(const struct schedule *schedule, struct text *out);

#endif
