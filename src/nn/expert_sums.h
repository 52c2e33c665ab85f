/* SPDX-License-Identifier: Apache-2.0 */
/* expert_sums.h - gradients of the matrices of experts. */
#ifndef LOCKSTEP_NN_EXPERT_SUMS_H
#define LOCKSTEP_NN_EXPERT_SUMS_H

#include "nn/choice.h"

struct expert_operands {
    const struct choice_lists *lists;
    struct expert_rows a, b;
};
/* W of a step with a matrix of each expert: the sum of a (row) b (row). */
status experts_weight(const struct step *step, struct run *run,
                      const struct expert_operands *of);

#endif
