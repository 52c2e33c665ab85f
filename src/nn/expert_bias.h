/* SPDX-License-Identifier: Apache-2.0 */
/* expert_bias.h - biases of the products of experts.
 *
 *   up     one of each expert [2 f, 1], added by the product
 *   down   of all experts [experts, width], on every rank that has tokens: a
 *          token's rows are added without it, then gate * bias of each of its
 *          experts. So rows that are sums over ranks need no bias */
#ifndef LOCKSTEP_NN_EXPERT_BIAS_H
#define LOCKSTEP_NN_EXPERT_BIAS_H

#include "nn/choice.h"

/* The step's parameters `which` [experts, n]; data NULL: none. */
struct tensor expert_bias_of(const struct step *step, int which,
                             struct run *run);
/* The gradients of these: sums of the rows dy that tokens chose. */
status expert_bias_sums(const struct step *step, struct run *run,
                        const struct choice_lists *lists, struct tensor dy);

/* A step that combines rows and has the bias of all experts as its first
 * parameter: y + the biases of each token; then the gradients of bias and
 * gates, `places` being scratch that is done with. */
status expert_bias_add(const struct step *step, struct run *run,
                       const struct choice *choice, struct tensor y);
status expert_bias_backward(const struct step *step, struct run *run,
                            const struct choice *choice);
size_t expert_bias_scratch(const struct step *step, const struct program *p);

#endif
