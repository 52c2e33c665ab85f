/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.h - a layout that works where another one does not. */
#ifndef LOCKSTEP_SETUP_SUGGEST_H
#define LOCKSTEP_SETUP_SUGGEST_H

#include "setup/setup.h"

/* setup_resolve; where it refuses the ranks or the mesh, the hint names the
 * nearest layout that setup_resolve and the plan accept: it was tried. */
status setup_resolve_or_suggest(struct setup *setup,
                                const struct options_set *set,
                                const struct vocabulary *vocabulary, int ranks,
                                int rank);

#endif
