/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h - from options to an optimizer, its states and its masters. */
#ifndef LOCKSTEP_SETUP_OPTIMIZER_H
#define LOCKSTEP_SETUP_OPTIMIZER_H

#include "base/options.h"
#include "optimizer/kind.h"

/* dtype: of the run. ERR_CONFIG: options that do not go together. */
status optimizer_choose(struct optimizer_choice *choice,
                        const struct options *options, enum dtype dtype);

#endif
