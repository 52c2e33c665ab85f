/* SPDX-License-Identifier: Apache-2.0 */
/* mup.h - the maximal update parametrisation, so that a learning rate found at
 * a small width holds at a large one.
 * Source: Yang et al. 2022, arXiv:2203.03466, table 8.
 *
 * With m = width / base width, and what stays as it is left out:
 *
 *                                                Adam      SGD
 *   matrices of blocks     deviation / root m    rate / m
 *   routers of experts     deviation / m         rate / m  rate / m
 *   gain, bias of the
 *   norm before the head   gain / m              rate / m  rate / m
 *   all else                                               rate * m
 *
 * The table multiplies logits by 1 / m. Here the gain of the norm before the
 * head has that factor: by the symmetry of its appendix J.2.1 (a factor of the
 * forward pass moves into the initial value and the rate: once for Adam, twice
 * for SGD, whose rate of a gain is * m there) training is the same, tied heads
 * included, and a finished model is one that every reader of its family knows.
 * Its gradient is then m times the table's: the norm that clips, and epsilon,
 * take it times `gain`.
 * A router is a matrix of outputs: as many as there are experts, at every
 * width. The table gives those a factor 1 / m too; here it is in the matrix, by
 * the same symmetry, so its gradient is m times the table's as well. Experts
 * are matrices of blocks. (arXiv:2508.09752 derives rules for both.) The losses
 * of balance are as they are: they read logits, whose size does not change.
 * Embeddings, positions, the head, biases and the gains of other norms begin
 * as at the base width. Gains that all heads share and biases of logits do not
 * grow with the width: under SGD too they learn as at the base. Heads must grow
 * in number, not in width: then scores need no other scale. */
#ifndef LOCKSTEP_MODELS_MUP_H
#define LOCKSTEP_MODELS_MUP_H

#include "models/model.h"

struct mup {
    double deviation; /* factor of the initial deviation */
    double rate;      /* of the learning rate of Adam and its relatives */
    double sgd;       /* of that of SGD */
    double gain;      /* of the initial value of a norm's weight */
};

/* All 1 where model->mup is 0. */
struct mup mup_of(const struct model *model, const struct param *param);

#endif
