/* SPDX-License-Identifier: Apache-2.0 */
/* expert_adapter.h - low-rank adapters beside the matrices of experts. Source:
 * Hu et al. 2021, arXiv:2106.09685, equation 3, for each expert alone.
 *
 *   y = x W[e]' + scale (x A[e]') B[e]'     of the rows x that chose expert e
 *
 *   A [pieces * rank, in], B [pieces * rows, rank]: gate and up, which are one
 *   matrix here, have adapters of their own
 *
 * Nothing of them is kept: x A' is made again for B's gradient.
 *
 * Ranks that cut an expert cut what its inner width does: B of gate and up, A
 * of down. The others they have whole. Then dy B of gate and up, and x A' of
 * down, are sums over those ranks, and each has all of them; the product
 * beside which they are is a sum over the same leaves, of which the first one
 * takes what the adapter adds. */
#ifndef LOCKSTEP_NN_EXPERT_ADAPTER_H
#define LOCKSTEP_NN_EXPERT_ADAPTER_H

#include "nn/exchange.h"
#include "nn/quantized_experts.h"

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
/* Gate and up, forward: y [rows, out] = y + scale (x A') B'. Both of the
 * model's type. */
status expert_adapter_add(const struct expert_adapter *of, struct run *run,
                          const struct expert_rows *x, struct tensor y);
/* Down, backward: dx [rows, in] = dx + scale (dy B) A. */
status expert_adapter_back(const struct expert_adapter *of, struct run *run,
                           const struct expert_rows *dy, struct tensor dx);
/* The other ways, gate and up backward and down forward: the product, by a
 * recipe or not, and what the adapter adds to its first leaf. This function
 * sets call.order. Collective over the ranks that cut the experts. */
struct expert_product {
    struct quantized_experts few;
    enum product_use use;
    struct experts_product call;
};
status expert_adapter_product(const struct expert_adapter *of, struct run *run,
                              struct expert_product *product);
/* The gradients of A and B; first, last: as in struct expert_operands.
 * Collective likewise. */
struct expert_adapter_rows { struct expert_rows dy, x; int first, last; };
status expert_adapter_weight(const struct expert_adapter *of, struct run *run,
                             const struct expert_adapter_rows *rows);

/* Like expert_adapter_weight, where no row has come, so nothing is added. */
status expert_adapter_idle(const struct expert_adapter *of, struct run *run);

/* A sum over the ranks that cut the experts. Tensor ranks add all rows for
 * which there is room. Neighbours that divide the experts add the rows that
 * came. */
struct expert_adapter_sum {
    const struct step *step;
    enum expert_side side;
    int64_t rows;   /* between tensor ranks */
    int64_t shared; /* between neighbours, where all get equal shares */
    int64_t calls;  /* in F, or in B */
};

/* Adds A and B of every expert to the step; does nothing without pieces. */
void expert_adapter_params(struct program *p, int step, enum expert_side side,
                           const struct experts_spec *spec);
/* ERR_CONFIG: a recipe rotates what they read. */
status expert_adapter_check(const struct program *p,
                            const struct experts_spec *spec);
/* Messages between the ranks that cut the experts, for so many rows: those of
 * an event, and their scratch. */
void expert_adapter_exchanges(const struct expert_adapter_sum *sum,
                              const struct program *p,
                              const struct exchange_case *at,
                              struct layer_exchanges *out);
size_t expert_adapter_messages(const struct expert_adapter_sum *sum,
                               const struct program *p,
                               const struct group *tensor);
/* Elements of A and B of an expert. */
int64_t expert_adapter_elements(const struct step *step,
                                const struct program *p,
                                enum expert_side side);

#endif
