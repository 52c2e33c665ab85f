/* SPDX-License-Identifier: Apache-2.0 */
/* expert_adapter.h - low-rank adapters beside the matrices of experts. Source:
 * Hu et al. 2021, arXiv:2106.09685, equation 3, for each expert alone.
 *
 *   y = x W[e]' + scale (x A[e]') B[e]'     of the rows x that chose expert e
 *
 *   A [pieces * rank, in], B [pieces * rows, rank]: gate and up, which are one
 *   matrix here, have adapters of their own
 *
 * Nothing of them is kept: x A' is made again for B's gradient. A rank has
 * whole experts. */
#ifndef LOCKSTEP_NN_EXPERT_ADAPTER_H
#define LOCKSTEP_NN_EXPERT_ADAPTER_H

#include "nn/expert_sums.h"

/* The product that the adapter is beside, and its place in the step's
 * parameters: A, then B. */
enum expert_side { EXPERT_UP, EXPERT_DOWN };

struct expert_adapter {
    const struct step *step;
    enum expert_side side;
    const struct choice_lists *lists; /* of the rows */
    void *memory;                     /* expert_adapter_bytes */
    int64_t rows;                     /* that there is room for */
};

/* Has the step one there? The calls below do nothing where it has none. */
bool expert_adapter_is(const struct step *step, enum expert_side side);
/* Scratch for so many rows. */
size_t expert_adapter_bytes(const struct step *step, const struct program *p,
                            enum expert_side side, int64_t rows);
/* y [rows, out] = y + scale (x A') B'. Both of the model's type. */
status expert_adapter_add(const struct expert_adapter *of, struct run *run,
                          const struct expert_rows *x, struct tensor y);
/* dx [rows, in] = dx + scale (dy B) A. */
status expert_adapter_back(const struct expert_adapter *of, struct run *run,
                           const struct expert_rows *dy, struct tensor dx);
/* The gradients of A and B; first, last: as in struct expert_operands. */
struct expert_adapter_rows { struct expert_rows dy, x; int first, last; };
status expert_adapter_weight(const struct expert_adapter *of, struct run *run,
                             const struct expert_adapter_rows *rows);

/* Adds A and B of every expert to the step; does nothing without pieces. */
void expert_adapter_params(struct program *p, int step, enum expert_side side,
                           const struct experts_spec *spec);
/* ERR_CONFIG: ranks cut the experts, or a recipe rotates what they read. */
status expert_adapter_check(const struct program *p,
                            const struct experts_spec *spec);
/* Elements of A and B of an expert. */
int64_t expert_adapter_elements(const struct step *step,
                                const struct program *p,
                                enum expert_side side);

#endif
