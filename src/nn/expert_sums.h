/* SPDX-License-Identifier: Apache-2.0 */
/* expert_sums.h - the matrices of experts: as one operand, their gradients, and
 * their place in the program. */
#ifndef LOCKSTEP_NN_EXPERT_SUMS_H
#define LOCKSTEP_NN_EXPERT_SUMS_H

#include "nn/choice.h"

/* The step as if it had the parameter `which` alone. */
struct step with_param(const struct step *step, int which);
/* All matrices of the step's first parameter [experts, rows, cols], which lie
 * at equal distances; the same transposed. */
struct tensor weights_of(const struct step *step, struct run *run);
struct tensor transposed(struct tensor all);

/* out = the gate of rows [gate, up], clamped where the step has a limit; and
 * backward. */
status experts_gate(const struct step *step, struct run *run,
                    struct tensor out, struct tensor gate_up);
status experts_gate_backward(const struct step *step, struct run *run,
                             struct tensor dgate_up, struct tensor dout,
                             struct tensor gate_up);

struct expert_operands {
    const struct choice_lists *lists;
    struct expert_rows a, b;
    const struct expert_beside *pieces; /* rows of the sums that have columns
                           * of a and b of their own; NULL: all have all */
    const struct accumulator *accumulator; /* of the sums; NULL: float32 */
    int first, last;      /* pairs of an expert and a source, [expert][source],
                           * that are summed; 0, 0: all */
};
/* W of a step: the gradient of each expert's matrix is the sum over its rows of
 * the outer product of a (row) and b (row). Where b has no data the parameter
 * is a vector of each expert, and its gradient the sum of a (row). */
status experts_weight(const struct step *step, struct run *run,
                      const struct expert_operands *of);

/* Rows that several ranks have returned: all [parts, rows, width], real. The
 * parts of each are added by the tree, into the first; out [rows, width] is the
 * sum, rounded once if it is narrow. */
status expert_parts_add(struct run *run, struct tensor all, int parts,
                        struct tensor out);

/* A parameter `which` of each expert that this rank has. */
void experts_params(struct program *p, int step, int which,
                    const struct param_spec *spec, int experts);

#endif
