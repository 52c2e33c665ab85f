/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c - how many tokens chose each expert in a step. */
#include "nn/routes.h"

#include <string.h>

#include "nn/choice.h"

/* A router of several experts; the share of an expert of all tokens is none. */
static bool chooses(const struct step *step)
{
    return step->layer == &layer_choose && step->set.experts.form.experts > 1;
}

/* Counts before those of step `end`. */
static int64_t counts_before(const struct program *p, int end)
{
    int64_t count = 0;

    for (int i = 0; i < end; i++)
        if (chooses(&p->steps[i]))
            count += p->steps[i].set.experts.form.experts + 1;
    return count;
}

size_t routes_bytes(const struct program *program)
{
    if (program->mode != PROGRAM_TRAIN) return 0;
    return (size_t)counts_before(program, program->step_count) *
           sizeof(int64_t);
}

int64_t *routes_of(const struct run *run, const struct step *step)
{
    if (run->counted.routes == NULL || !chooses(step)) return NULL;
    return run->counted.routes + counts_before(run->program, step->index);
}

void routes_reset(const struct run *run)
{
    if (run->counted.routes != NULL)
        memset(run->counted.routes, 0, routes_bytes(run->program));
}

void routes_collect(const struct run *run, int experts, double *table,
                    double *dropped)
{
    const struct program *p = run->program;

    for (int i = 0; i < p->step_count && run->counted.routes != NULL; i++) {
        const int64_t *counts = routes_of(run, &p->steps[i]);

        if (counts == NULL) continue;
        CHECK(p->steps[i].set.experts.form.experts == experts);
        for (int e = 0; e < experts; e++)
            table[(int64_t)p->steps[i].block * experts + e] +=
                (double)counts[e];
        *dropped += (double)counts[experts];
    }
}
