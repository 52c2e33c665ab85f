/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - options of products in fewer bits. */
#ifndef LOCKSTEP_SETUP_RECIPE_H
#define LOCKSTEP_SETUP_RECIPE_H

#include "base/options.h"
#include "plan/stage.h"

/* The recipe and the blocks that it is for. */
status recipe_choose(struct stage_request *r, const struct options *o,
                     int layers);

#endif
