/* SPDX-License-Identifier: Apache-2.0 */
/* rounding_kernels.h - the kernels that round the operands of a recipe's
 * products, as data: the planner prices what quantized_operands.c and
 * straight_through.c call. */
#ifndef LOCKSTEP_NN_ROUNDING_KERNELS_H
#define LOCKSTEP_NN_ROUNDING_KERNELS_H

#include "nn/precision.h"

enum rounded_kernel { ROUNDED_QUANTIZE, ROUNDED_ROTATE, ROUNDED_UNROTATE,
                      ROUNDED_ENCODE, ROUNDED_DECODE };

/* One call, of a matrix of any size. */
struct rounded {
    enum rounded_kernel kernel;
    enum number_format format;
    enum scale_rule scale;
    enum rounding rounding;
    int64_t block_rows, block_cols; /* of quantize, encode and decode */
    bool turn;      /* quantize: with a Hadamard transform; unrotate: back */
    bool columns;   /* rotate: runs lie in columns */
    bool trust;     /* unrotate: with a mask */
    bool real;      /* the matrix is float32, not bfloat16 */
    bool codes;     /* quantize: makes codes and their scales */
};

/* The matrix of a product that is rounded, or other numbers. */
enum rounded_place {
    ROUNDED_FIRST,  /* x of y, dy of dx and of dW */
    ROUNDED_SECOND, /* W of y and of dx, x of dW */
    ROUNDED_KEPT,   /* x of dW before, of a product after attention */
    ROUNDED_LAYER,  /* straight recipes: x before y; dx after it */
    ROUNDED_LEAF,   /* straight recipes: dW, each leaf of the batch */
    ROUNDED_GLU,    /* gate and up: F makes codes of them, which B reads
                     * (glu_codes.h) */
    ROUNDED_PLACES
};

enum { ROUNDED_MOST = 4, ROUNDED_TEXT = 80 };
/* The calls, in order; how many. */
int rounded_calls(const struct precision *recipe, enum product_use use,
                  enum rounded_place place, struct rounded out[ROUNDED_MOST]);
/* "quantize e4m3 1x128 up nearest": a name that says all of it. */
const char *rounded_text(const struct rounded *call, char out[ROUNDED_TEXT]);
/* A number that differs where the text does. */
uint64_t rounded_code(const char *text);

#endif
