/* SPDX-License-Identifier: Apache-2.0 */
/* score_peaks.c - the largest attention score of each head over the
 * micro-batches of a step. */
#include "nn/score_peaks.h"

#include <math.h>

#include "nn/layer.h"

/* Query heads of an attention step on this rank; 0: there is none. */
static int own_heads(const struct program *p)
{
    for (int i = 0; i < p->step_count; i++)
        if (p->steps[i].layer == &layer_attention)
            return p->steps[i].set.attention.heads;
    return 0;
}

static int64_t count_of(const struct program *p)
{
    return p->watched.peaks ? (int64_t)p->caches.count * own_heads(p) : 0;
}

size_t score_peaks_bytes(const struct program *program)
{
    return (size_t)(count_of(program) * dtype_bytes(program_real(program)));
}

void *score_peaks_of(const struct run *run, const struct step *step)
{
    const int64_t first =
        (int64_t)step->set.attention.cache * step->set.attention.heads;

    if (run->counted.peaks == NULL) return NULL;
    return (char *)run->counted.peaks +
           first * dtype_bytes(program_real(run->program));
}

void score_peaks_reset(const struct run *run)
{
    const int64_t count =
        run->counted.peaks == NULL ? 0 : count_of(run->program);
    const struct tensor all =
        tensor_1d(run->counted.peaks, program_real(run->program), count);

    for (int64_t i = 0; i < count; i++)
        tensor_set(&all, i, -(double)INFINITY);
}

void score_peaks_collect(const struct run *run, int heads, double *table)
{
    const struct program *p = run->program;

    for (int i = 0; i < p->step_count && run->counted.peaks != NULL; i++) {
        const struct step *step = &p->steps[i];
        const int own = step->set.attention.heads;
        double *row = table + (int64_t)step->block * heads +
                      p->layout.place.at[AXIS_TENSOR] * own;

        if (step->layer != &layer_attention) continue;
        const struct tensor peaks =
            tensor_1d(score_peaks_of(run, step), program_real(p), own);

        for (int h = 0; h < own; h++) {
            const double peak = tensor_get(&peaks, h);

            if (peak > row[h]) row[h] = peak;
        }
    }
}
