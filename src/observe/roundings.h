/* SPDX-License-Identifier: Apache-2.0 */
/* roundings.h - shares and ranges of a recipe's roundings, in the steps that
 * observe.layers selects: for each operand of each product of each matrix the
 * shares of elements that were cut off at the largest number and that became
 * zero, the largest magnitude, and the range of the scales. Shares are of
 * finite elements that are not zero. No layout shows in them, and looking
 * changes no bit of the run. */
#ifndef LOCKSTEP_OBSERVE_ROUNDINGS_H
#define LOCKSTEP_OBSERVE_ROUNDINGS_H

#include "plan/pipeline.h"
#include "step/team.h"

enum { ROUNDING_OPERANDS = 6 };
/* "y.x", "y.w", "dx.dy", "dx.w", "dw.dy", "dw.x": product and operand. */
extern const char *const rounding_names[ROUNDING_OPERANDS];

struct rounded_operand {
    double cut, zeroed;              /* shares */
    double largest;
    double scale_least, scale_most;
};

struct roundings {
    struct pipeline *pipeline; /* borrowed */
    int64_t count;             /* operands; 0: nothing below does a thing */
    double *sums, *most;       /* owned, [count][3] (nn/tallies.h) */
    struct quantize_tally **kept; /* owned, [stages]: where a run counts */
    bool warned[2];            /* of cut, of zeroed */
};

status roundings_build(struct roundings *roundings, struct pipeline *pipeline);
void roundings_free(struct roundings *roundings);
/* Before a step; looks: it is observed. */
void roundings_begin(struct roundings *roundings, bool looks);
/* After it; collective. Rank 0 warns, once, where a share is larger than the
 * recipe should have. names: of parameters in model order. */
status roundings_end(struct roundings *roundings, struct team *team,
                     const struct param_table *params);
/* An operand of a parameter. False: it was not rounded. */
bool roundings_get(const struct roundings *roundings, int param, int operand,
                   struct rounded_operand *out);
/* The largest shares of all operands; NaN: none was rounded. */
void roundings_worst(const struct roundings *roundings, double *cut,
                     double *zeroed);

#endif
