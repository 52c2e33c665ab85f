/* SPDX-License-Identifier: Apache-2.0 */
/* average.h - an exponential moving average of the weights, beside whatever
 * the optimizer keeps: the last slot of a parameter's states, divided and saved
 * as the others are ("ema" in checkpoints). Frozen parameters have none; they
 * are their own average.
 * Source: Polyak and Juditsky 1992, doi:10.1137/0330046; with a decay:
 * Tarvainen and Valpola 2017, arXiv:1703.01780, equation in section 2. */
#ifndef LOCKSTEP_OPTIMIZER_AVERAGE_H
#define LOCKSTEP_OPTIMIZER_AVERAGE_H

#include "optimizer/update.h"

/* a = a + (real)(1 - decay) (w - a), three roundings; a of step 0 is w. */
status average_apply(const struct update *update);
status average_start(const struct update *update);
/* Weights and averages change places, in what this rank updates; the copy that
 * kernels read follows. Twice is nothing. */
status average_swap(const struct update *update);

#endif
