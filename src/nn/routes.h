/* SPDX-License-Identifier: Apache-2.0 */
/* routes.h - how many tokens chose each expert in the forward passes of a step,
 * block by block. Integers, so that no order of work can show. Targets that are
 * masked do not count. */
#ifndef LOCKSTEP_NN_ROUTES_H
#define LOCKSTEP_NN_ROUTES_H

#include "nn/run.h"

/* Room for the counts of this rank's routers; 0: there are none. */
size_t routes_bytes(const struct program *program);
/* [experts], then choices that were dropped, of a step that chooses; NULL:
 * nobody counts. */
int64_t *routes_of(const struct run *run, const struct step *step);
void routes_reset(const struct run *run);
/* Adds to table [blocks of the model][experts], and to *dropped. */
void routes_collect(const struct run *run, int experts, double *table,
                    double *dropped);

#endif
