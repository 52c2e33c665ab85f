/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - a picture of the work of all pipeline ranks in one step, drawn like
 * the predicted step (lockstep schedule --draw). */
#ifndef LOCKSTEP_STEP_TRACE_H
#define LOCKSTEP_STEP_TRACE_H

#include "step/step.h"

struct trace {
    struct timeline timeline; /* owned: of this rank, then of all */
    double *times;            /* owned, [actions of all ranks][3] */
};

/* Doubles that trace_end joins over the ranks. */
int64_t trace_values(const struct schedule *schedule);
/* Room for a step's actions; they are recorded from the next one on. */
status trace_begin(struct trace *trace, struct train_step *step);
struct trace_picture {
    const char *title, *path;
    const struct timeline *predicted; /* rank 0's; NULL: none */
};
/* After that step: draws the actions of all stages for the first share of the
 * batch, and the predicted ones under them, into a file that rank 0 writes.
 * Collective over the world; ranks of other machines have other clocks. */
status trace_end(struct trace *trace, struct train_step *step,
                 const struct trace_picture *picture);
void trace_free(struct trace *trace);

#endif
