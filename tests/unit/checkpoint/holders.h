/* SPDX-License-Identifier: Apache-2.0 */
/* holders.h - two holders of the tensors of a small model (room.h). */
#ifndef LOCKSTEP_TESTS_CHECKPOINT_HOLDERS_H
#define LOCKSTEP_TESTS_CHECKPOINT_HOLDERS_H

#include "tests/unit/checkpoint/room.h"

/* The share of holder 0 or 1 in a part: columns before or from the cut of every
 * matrix, packed; an odd vector whole or not at all. */
static inline void hold(struct saved_part *part, struct saved_run *run,
                        int64_t cut, int holder)
{
    const bool matrix = part->dimensions == 2;
    const int64_t cols = matrix ? part->shape[1] : 1;
    const int64_t rows = part->shape[0];
    const float *whole = part->data;
    int64_t first, width;
    float *packed;

    if (matrix && cut >= cols) cut = cols / 2;
    if (!matrix) cut = strcmp(part->kind, "m") == 0;
    first = holder ? cut : 0;
    width = holder ? cols - cut : cut;
    packed = calloc((size_t)(rows * width + 1), sizeof *packed);
    CHECK(packed != NULL);
    for (int64_t r = 0; r < rows; r++)
        memcpy(packed + r * width, whole + r * cols + first,
               (size_t)width * sizeof *packed);
    *run = (struct saved_run){.whole_first = first,
                              .length = width,
                              .repeats = rows,
                              .whole_stride = cols};
    part->runs = run;
    part->run_count = 1;
    part->data = packed;
}

static inline void write_holder(struct checkpoint_save *save,
                                const struct small *small, int64_t cut,
                                int holder)
{
    struct saved_part parts[SMALL_PARTS];
    struct saved_run runs[SMALL_PARTS];

    memcpy(parts, small->parts, sizeof parts);
    for (int i = 0; i < SMALL_PARTS; i++)
        hold(&parts[i], &runs[i], cut, holder);
    IS_OK(checkpoint_save_write(save, parts));
    for (int i = 0; i < SMALL_PARTS; i++) free(parts[i].data);
}

#endif
