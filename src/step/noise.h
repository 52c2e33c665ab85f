/* SPDX-License-Identifier: Apache-2.0 */
/* noise.h - the gradient-noise scale: about how many tokens a batch may have
 * before more of them hardly help. Source: McCandlish et al. 2018,
 * arXiv:1812.06162, section 2.2 and appendix A.1.
 *
 * With G the mean gradient of B tokens, E |G|^2 = |true G|^2 + trace / B. Two
 * sizes of batch give both unknowns:
 *
 *   big    the batch of the step                           1 / B = 1 / targets
 *   small  some leaves of it alone (numerics.grid_data): mean of their |G|^2,
 *          mean of their 1 / targets
 *
 *   trace    = (small - big) / (1 / B_small - 1 / B_big)
 *   gradient = (big / B_small - small / B_big) / (1 / B_small - 1 / B_big)
 *   noise scale = trace / gradient, in tokens
 *
 * The average is that of trace and of gradient, each with a decay of 0.9 a
 * measurement. Leaves are fixed by the configuration and each is a step without
 * an update in which all other sequences are masked, so no layout changes a
 * bit. Leaves take turns. */
#ifndef LOCKSTEP_STEP_NOISE_H
#define LOCKSTEP_STEP_NOISE_H

#include "base/json.h"
#include "step/step.h"

struct noise {
    int64_t every;          /* steps between measurements; 0: none */
    int leaves, data_leaves; /* measured at once; of the grid */
    int64_t count;          /* measurements */
    double trace, gradient; /* averages */
    /* of the measurement that goes on */
    double small, inverse;  /* mean |G|^2, mean 1 / targets */
    int measured;           /* leaves; 0: none, or one was not finite */
};

/* As the options say. ERR_CONFIG: the batch has one leaf only. */
status noise_plan(struct noise *noise, const struct options *options,
                  int data_leaves);
/* Before the step (counted from 0) is made: gradients of leaves of its batch,
 * where a measurement is due. Collective. */
status noise_begin(struct noise *noise, struct train_step *train,
                   const struct sample_source *source, int64_t step,
                   int64_t batch);
/* After it, with the whole batch's norm and targets: NaN where there is none.
 */
void noise_end(struct noise *noise, const struct step_result *result,
               double *now, double *average);
/* trace and gradient from both sizes. */
void noise_solve(double small, double inverse_small, double big,
                 double inverse_big, double out[2]);

/* For a checkpoint; nothing unless it is measured. ERR_FORMAT. */
void noise_write(const struct noise *noise, struct json_writer *writer);
status noise_read(struct noise *noise, const struct json *state,
                  const char *source);

#endif
