/* SPDX-License-Identifier: Apache-2.0 */
/* late.c - the largest magnitudes of operands over the micro-batches of a
 * step. */
#include "nn/late.h"

int64_t late_values(const struct program *program)
{
    const struct precision_use *use = &program->precision;

    if (!use->on || program->mode != PROGRAM_TRAIN ||
        !precision_is_late(&use->recipe))
        return 0;
    return (int64_t)program->params.orders * LATE_USES * LATE_OPERANDS;
}

size_t late_bytes(const struct program *program)
{
    return 2 * (size_t)late_values(program) * sizeof(float);
}

void late_place(struct run *run, void *room)
{
    const int64_t count = late_values(run->program);

    if (count == 0) return;
    run->late.known = room;
    run->late.seen = run->late.known + count;
    late_set(run, NULL);
}

void late_set(const struct run *run, const double *known)
{
    const int64_t count =
        run->late.known == NULL ? 0 : late_values(run->program);

    for (int64_t i = 0; i < count; i++) {
        run->late.known[i] = known != NULL ? (float)known[i] : 0;
        run->late.seen[i] = 0;
    }
}

void late_collect(const struct run *run, double *table)
{
    const int64_t count =
        run->late.known == NULL ? 0 : late_values(run->program);

    for (int64_t i = 0; i < count; i++)
        if ((double)run->late.seen[i] > table[i])
            table[i] = (double)run->late.seen[i];
}
