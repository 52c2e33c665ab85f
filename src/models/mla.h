/* SPDX-License-Identifier: Apache-2.0 */
/* mla.h - multi-head latent attention as a part of an architecture
 * (docs/latent_attention.md). */
#ifndef LOCKSTEP_MODELS_MLA_H
#define LOCKSTEP_MODELS_MLA_H

#include "models/model.h"

/* Refuses options that a family does not support; fills sizes that nobody
 * gave. */
status mla_check_options(const struct model_kind *kind,
                         const struct options *o);
void mla_fill(struct model *m, const struct options *o);
/* Sizes that follow from the others. ERR_CONFIG: sizes that cannot be. */
status mla_settle(struct model *m);
/* The attention of a block: x [tokens, width], normed already. */
slot mla_attention(struct program *p, const struct model *m, slot x);

#endif
