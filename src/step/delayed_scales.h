/* SPDX-License-Identifier: Apache-2.0 */
/* delayed_scales.h - scales of operands from the steps before: the largest
 * magnitude of each operand in the whole batch of each of the last steps.
 * Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3.2.
 *
 *   step s    scales from the largest of steps s - window .. s - 1; where an
 *             operand was never seen, each region has its own scale
 *   after it  the batch's largest magnitudes, joined over all ranks, become the
 *             newest row, unless the step was skipped or refused
 *
 * Largest magnitudes are finite numbers rounded up to bfloat16, so that a row
 * is kept in two bytes a value. */
#ifndef LOCKSTEP_STEP_DELAYED_SCALES_H
#define LOCKSTEP_STEP_DELAYED_SCALES_H

#include "base/json.h"
#include "plan/pipeline.h"
#include "step/team.h"

struct delayed {
    struct pipeline *pipeline; /* borrowed */
    int64_t values;            /* of a step; 0: nothing below does a thing */
    int window, rows;          /* steps remembered at most, and now */
    double *table;             /* owned, [values]: of the step under way */
    uint16_t *history;         /* owned, [window][values], oldest first */
};

status delayed_build(struct delayed *delayed, struct pipeline *pipeline);
void delayed_free(struct delayed *delayed);
/* The history that another had for the same model. */
void delayed_take(struct delayed *delayed, const struct delayed *from);
/* Before the first F of a step. Evaluations have the same scales: those of the
 * newest history. */
void delayed_begin(struct delayed *delayed);
/* After the last; collective. */
status delayed_share(struct delayed *delayed, struct team *team);
/* The step counts: its largest magnitudes are remembered. */
void delayed_keep(struct delayed *delayed);

/* For a checkpoint; nothing where no scale is late. ERR_FORMAT. */
status delayed_write(const struct delayed *delayed, struct json_writer *w);
status delayed_read(struct delayed *delayed, const struct json *state,
                    const char *source);

#endif
