/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h - the families of this build by name, and why others are not
 * built. */
#ifndef LOCKSTEP_MODELS_KINDS_H
#define LOCKSTEP_MODELS_KINDS_H

#include "models/model.h"

/* By what options or, where they differ, a config.json call it. ERR_CONFIG: it
 * is none; says what it has that no family here has, where that is known, and
 * the nearest family. `where`: what names it. */
status kinds_find(const char *where, const char *name,
                  const struct model_kind **out);

#endif
