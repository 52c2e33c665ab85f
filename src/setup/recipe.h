/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - options of products in fewer bits. */
#ifndef LOCKSTEP_SETUP_RECIPE_H
#define LOCKSTEP_SETUP_RECIPE_H

#include "base/options.h"
#include "plan/stage.h"

/* The recipe and the blocks that it is for. */
status recipe_choose(struct stage_request *r, const struct options *o,
                     int layers);

/* numerics.accumulator; "off": bits 0. */
status recipe_accumulator(struct accumulator *out, const char *text);

/* Once it is decided when weights are gathered (request->gather): whether they
 * can be kept or gathered as codes. ERR_CONFIG: train.kept_weights or
 * fsdp.gather_format is recipe, and they cannot. */
status recipe_check_gathers(struct stage_request *request,
                            const struct options *options,
                            const struct mesh *mesh);

#endif
