/* SPDX-License-Identifier: Apache-2.0 */
/* supervise.h - a supervised run with spare processes. */
#ifndef LOCKSTEP_CLI_SUPERVISE_H
#define LOCKSTEP_CLI_SUPERVISE_H

#include "base/options.h"
#include "cli/command.h"

struct spares {
    const struct arguments *arguments; /* their flags are the ranks', too */
    const char *config;   /* NULL: the run goes on */
    struct options_set *set; /* its mesh is changed */
    int ranks, count;     /* spares */
};

/* Refuses what excludes `train --supervised`: ranks that a launcher started, no
 * folder of the run. ERR_USAGE, ERR_CONFIG. */
status supervised_check(const struct options *o);
/* Whether the run has a checkpoint to go on from. */
bool supervised_saved(const char *run);
/* `train --supervised --spares S`: an agent of this machine has places for
 * ranks and spares. */
status supervise_with_spares(const struct spares *spares);

#endif
