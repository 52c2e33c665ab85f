/* SPDX-License-Identifier: Apache-2.0 */
/* coordinates.h - how large activations are, and how far training moves them:
 * what `mup` compares over widths. Source: Yang et al. 2022, arXiv:2203.03466,
 * appendix D.1 (coordinate checking). */
#ifndef LOCKSTEP_PROOF_COORDINATES_H
#define LOCKSTEP_PROOF_COORDINATES_H

#include "base/options.h"
#include "mesh/layout.h"

/* The coordinates of one model: the output of each matrix (with the residual
 * where it is added to one), and the logits, over the same tokens before and
 * after steps. */
struct coordinates {
    int count;                       /* activations */
    char (*names)[PARAM_NAME_BYTES]; /* owned, [count]: of the matrix */
    double *sizes;                   /* owned, [count]: mean |x| at step 0 */
    double *changes;                 /* owned, [count]: mean |x - x of step 0|
                                      * after the last */
    double loss;                     /* of the last step */
};

/* Trains `steps` steps of the configuration on one rank. Token files go to
 * data.cache, which must be set. */
status coordinates_measure(struct coordinates *out,
                           const struct options_set *set, int64_t steps);
void coordinates_free(struct coordinates *coordinates);

/* The slope of log y over log x by least squares; points that are not positive
 * are left out. */
double coordinates_slope(const double *x, const double *y, int count);

/* Two panels, standard and muP, each activation a line over the width. */
struct coordinates_panel {
    const char *title;
    const struct coordinates *items; /* [widths] */
};
status coordinates_draw(const struct coordinates_panel panels[2],
                        const double *widths, int count, const char *path);

#endif
