/* SPDX-License-Identifier: Apache-2.0 */
/* score_peaks.h - the largest attention score of each head over the
 * micro-batches of a step. A maximum is exact, so that no order of work can
 * show. */
#ifndef LOCKSTEP_NN_SCORE_PEAKS_H
#define LOCKSTEP_NN_SCORE_PEAKS_H

#include "nn/run.h"

/* Room for those of this rank's heads: [attention steps][heads] real; 0 where
 * they are not watched. */
size_t score_peaks_bytes(const struct program *program);
/* [heads] of an attention step; NULL: they are not watched. */
void *score_peaks_of(const struct run *run, const struct step *step);
/* Minus infinity everywhere. */
void score_peaks_reset(const struct run *run);
/* Raises table [blocks of the model][all heads] to this rank's peaks. */
void score_peaks_collect(const struct run *run, int heads, double *table);

#endif
