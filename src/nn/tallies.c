/* SPDX-License-Identifier: Apache-2.0 */
/* tallies.c - counts of what a recipe did to its operands in a step. */
#include "nn/tallies.h"

#include <string.h>

int64_t tallies_count(const struct program *program)
{
    if (!program->precision.on || !program->watched.roundings) return 0;
    return (int64_t)program->params.orders * LATE_USES * LATE_OPERANDS;
}

size_t tallies_bytes(const struct program *program)
{
    return (size_t)tallies_count(program) * sizeof(struct quantize_tally);
}

void tallies_reset(const struct run *run)
{
    if (run->counted.tallies != NULL)
        memset(run->counted.tallies, 0, tallies_bytes(run->program));
}

static void lift(double *most, double value)
{
    if (value > *most) *most = value;
}

void tallies_collect(const struct run *run, double *sums, double *most)
{
    const int64_t count =
        run->counted.tallies == NULL ? 0 : tallies_count(run->program);

    for (int64_t i = 0; i < count; i++, sums += 3, most += 3) {
        const struct quantize_tally *t = &run->counted.tallies[i];

        sums[0] += (double)t->elements;
        sums[1] += (double)t->cut;
        sums[2] += (double)t->zeroed;
        lift(&most[0], (double)t->largest);
        lift(&most[1], (double)t->scale_most);
        if (t->scale_least > 0) lift(&most[2], -(double)t->scale_least);
    }
}
