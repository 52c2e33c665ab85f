/* SPDX-License-Identifier: Apache-2.0 */
/* libraries.h - which libraries compute on a GPU: numerics.gpu and
 * numerics.attention. */
#ifndef LOCKSTEP_SETUP_LIBRARIES_H
#define LOCKSTEP_SETUP_LIBRARIES_H

#include "base/options.h"
#include "plan/stage.h"

/* Once the type is known. ERR_CONFIG. */
status libraries_choose(struct stage_request *request,
                        const struct options *options);

#endif
