/* SPDX-License-Identifier: Apache-2.0 */
/* rounds.h - how often a step reduces gradients that ranks divide
 * (zero_reduce): once, or after every micro-batch, so that no rank holds whole
 * gradients. */
#ifndef LOCKSTEP_SETUP_ROUNDS_H
#define LOCKSTEP_SETUP_ROUNDS_H

#include "setup/setup.h"

/* Decides it for the batch, the grid and the schedule of `setup`: sets rounds
 * of its request, and batch and grid to those of one round. `alone` says that
 * the schedule must become one of a single micro-batch, which runs once for
 * each round. ERR_CONFIG: zero_reduce=each where it cannot be; says why. */
status rounds_choose(struct setup *setup, bool *alone);

/* ERR_CONFIG: it is no word of zero_reduce. */
status rounds_check(const char *name);

/* How gradients of leaves are added (numerics.sums); once the grid is known.
 * ERR_CONFIG: another word, or what cannot be; says why. */
status rounds_sums(struct setup *setup);

/* How many bits gradients have on their way to their owners (zero_format).
 * ERR_CONFIG: another word, or what cannot be; says why. */
status rounds_format(struct setup *setup);

/* Why gradients cannot be reduced after each micro-batch, in `out`; NULL: they
 * can. Once rounds_choose has decided that a step reduces them once. */
enum { ROUNDS_REASON = 320 };
const char *rounds_obstacle(const struct setup *setup, char out[ROUNDS_REASON]);

#endif
