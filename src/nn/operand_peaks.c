/* SPDX-License-Identifier: Apache-2.0 */
/* operand_peaks.c - the largest magnitudes of operands over the micro-batches
 * of a step. */
#include "nn/operand_peaks.h"

int64_t operand_peaks_values(const struct program *program)
{
    const struct precision_use *use = &program->precision;

    if (!use->on || program->mode != PROGRAM_TRAIN ||
        !precision_is_late(&use->recipe))
        return 0;
    return (int64_t)program->params.orders * LATE_USES * LATE_OPERANDS;
}

size_t operand_peaks_bytes(const struct program *program)
{
    return 2 * (size_t)operand_peaks_values(program) * sizeof(float);
}

void operand_peaks_place(struct run *run, void *room)
{
    const int64_t count = operand_peaks_values(run->program);

    if (count == 0) return;
    run->late.known = room;
    run->late.seen = run->late.known + count;
    operand_peaks_set(run, NULL);
}

void operand_peaks_set(const struct run *run, const double *known)
{
    const int64_t count =
        run->late.known == NULL ? 0 : operand_peaks_values(run->program);

    for (int64_t i = 0; i < count; i++) {
        run->late.known[i] = known != NULL ? (float)known[i] : 0;
        run->late.seen[i] = 0;
    }
}

void operand_peaks_collect(const struct run *run, double *table)
{
    const int64_t count =
        run->late.known == NULL ? 0 : operand_peaks_values(run->program);

    for (int64_t i = 0; i < count; i++)
        if ((double)run->late.seen[i] > table[i])
            table[i] = (double)run->late.seen[i];
}
