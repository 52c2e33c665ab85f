/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.h - runs of 32 elements times a normalised Hadamard matrix, and the
 * way back of what was rounded after it (docs/numerics.md, "Quartet").
 *
 * A run lies in a row, or in a column, and is counted from the first element of
 * its span. A short last one is not multiplied. The matrix is symmetric, so
 * without signs it is its own inverse. */
#ifndef LOCKSTEP_KERNELS_ROTATE_H
#define LOCKSTEP_KERNELS_ROTATE_H

#include "kernels/quantize.h"

enum { ROTATE_RUN = 32 };
/* 1 / sqrt(32). */
#define ROTATE_NORM 0.17677669529663687f

struct rotate {
    struct tensor out;   /* [rows, cols] float32, dense rows */
    struct tensor in;    /* bfloat16 or float32 */
    const struct quantize_span *rows, *cols; /* borrowed */
    int64_t row_spans, col_spans;
    bool columns;        /* runs lie in columns, else in rows */
    uint32_t signs;      /* bit i: element i of each run is negated first */
};

/* The gradient of x, from the gradient g of its rotated and rounded numbers:
 *
 *   h = run of x, rotated; s = the scale of the block h
 *   out = factor (g where |h| < L s, else +0, rotated) (+ left)
 *
 * factor after the rotation, both float32; then left + that. Blocks are runs of
 * a row, short ones too. */
struct unrotate {
    struct tensor out;   /* [rows, cols] bfloat16 or float32; == gradient
                          * allowed */
    struct tensor gradient; /* alike */
    struct tensor x;     /* [rows, cols] bfloat16 */
    const struct tensor *left; /* alike out, == out allowed; NULL: none */
    const struct quantize_span *cols;
    int64_t col_spans;
    bool turn;           /* there is a rotation */
    bool trust;          /* there is a mask */
    enum number_format format;
    enum scale_rule scale; /* of a block alone */
    float factor;
};

/* The elements of a run by their number, in float32: signs, then sums and
 * differences 1, 2, 4, 8 and 16 apart, then times ROTATE_NORM. */
ELEMENTARY void rotate_run(float x[ROTATE_RUN], uint32_t signs)
{
    for (int i = 0; i < ROTATE_RUN; i++) x[i] = signs >> i & 1 ? -x[i] : x[i];
    for (int apart = 1; apart < ROTATE_RUN; apart *= 2)
        for (int i = 0; i < ROTATE_RUN; i += 2 * apart)
            for (int j = i; j < i + apart; j++) {
                const float a = x[j], b = x[j + apart];

                x[j] = a + b;
                x[j + apart] = a - b;
            }
    for (int i = 0; i < ROTATE_RUN; i++) x[i] = x[i] * ROTATE_NORM;
}

#endif
