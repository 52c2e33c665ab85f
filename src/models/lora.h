/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h - which matrices of a model have low-rank adapters.
 * Source: Hu et al. 2021, arXiv:2106.09685. */
#ifndef LOCKSTEP_MODELS_LORA_H
#define LOCKSTEP_MODELS_LORA_H

#include "models/model.h"

struct outside;

/* model->lora from names such as q_proj, or all. ERR_CONFIG: not a matrix of
 * the family's blocks (names the nearest). */
status lora_choose(struct model *model, int rank, double alpha,
                   const char *const *targets, int count);
/* adapter_config.json, as PEFT has it. Reading sets model->lora; ERR_CONFIG: an
 * adapter of another kind. */
status lora_write_config(const struct model *model, struct text *out);
status lora_read_config(struct model *model, const char *path);
/* Is it one of the targets? */
bool lora_has(const struct model *model, const struct decoder *decoder,
              const struct outside *part);

#endif
