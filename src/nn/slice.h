/* SPDX-License-Identifier: Apache-2.0 */
/* slice.h - the part of a model that one pipeline stage computes.
 *
 * The model file builds the whole program; program_slice then keeps a run of
 * blocks, with what stands before the first block or after the last one where
 * the stage is the first or the last. The one activation that crosses a cut,
 * the residual stream, becomes the slice's entry or exit slot:
 *
 *   F   entry is filled by the caller, exit is read by him
 *   B   the gradient of exit is filled by the caller, that of entry read
 *
 * The steps, sums and weights of all slices together are those of the whole:
 * a cut moves no bit. */
#ifndef LOCKSTEP_NN_SLICE_H
#define LOCKSTEP_NN_SLICE_H

#include "nn/program.h"

struct slice {
    int first, last;    /* blocks [first, last) */
    bool begins, ends;  /* also what is before the blocks, after them */
};

/* Whether the slice is the whole of a model of `blocks` blocks. */
bool slice_is_whole(const struct slice *slice, int blocks);
/* Cuts a built program down. A parameter whose uses lie in several slices is
 * in each of them: `shared`, and a `copy` where its first use is elsewhere.
 * ERR_CONFIG: nothing is left, or more than one activation crosses a cut. */
status program_slice(struct program *program, const struct slice *slice);

#endif
