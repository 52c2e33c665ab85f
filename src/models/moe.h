/* SPDX-License-Identifier: Apache-2.0 */
/* moe.h - the part of an architecture that is a mixture of experts: options and
 * sizes (docs/experts.md). */
#ifndef LOCKSTEP_MODELS_MOE_H
#define LOCKSTEP_MODELS_MOE_H

#include "models/model.h"

/* Refuses options of experts that this family does not support. */
status moe_check_options(const struct model_kind *kind,
                         const struct options *o);
/* Sizes that nobody gave. */
void moe_fill(struct model *m, const struct options *o);
/* Biases that options add to the model of a config.json. */
status moe_add_bias(struct model *m, const struct options *o);
/* ERR_CONFIG: a rate that is none, or one beside adapters. */
status moe_check_bias(const struct options *o);
/* Dense blocks as moe.dense lists them. */
status moe_choose_dense(struct model *m, const struct options *o);
/* ERR_CONFIG: sizes that cannot be. */
status moe_check(const struct model *m);

#endif
