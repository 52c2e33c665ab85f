/* SPDX-License-Identifier: Apache-2.0 */
/* precision.h - how products of linear layers are made in few bits: one row for
 * each recipe (docs/precision.md).
 *
 *   forward   y  = x Wᵀ     activations and weights
 *   dgrad     dx = dy W     gradients and weights
 *   wgrad     dW = dyᵀ x    gradients and activations
 *
 * Each operand is rounded to blocks of its format (kernels/quantize.h) just
 * before the product, from bfloat16, and the product is that of bfloat16.
 *
 * A straight recipe (straight_through.h) rounds x and W once, for y. Both
 * products of the gradients read these numbers, rounded again as gradients
 * are. */
#ifndef LOCKSTEP_NN_PRECISION_H
#define LOCKSTEP_NN_PRECISION_H

#include "kernels/kernels.h"

/* The products of a layer; each rounds its operands anew. */
enum product_use { USE_FORWARD, USE_DGRAD, USE_WGRAD };

/* How weights, activations or gradients are rounded. */
struct precision_role {
    enum number_format format;
    int64_t along, across; /* sides of a block: in the dimension that is
                            * summed, and in the other; 0, 0: a region, which
                            * is a context chunk of a sequence (all rows of a
                            * leaf) by a leaf of the columns; 0, 1: a row of
                            * it */
    enum scale_rule scale;
    enum rounding rounding;
    bool fixed;            /* blocks do not turn with the product: the operand
                            * has the same values in both of its products */
};

struct precision {
    const char *name;      /* "mxfp8" */
    struct precision_role weights, activations, gradients;
    bool turn;             /* both operands of wgrad are first transformed;
                            * straight: and those of dgrad */
    int high_share;        /* percent of the blocks, the last ones, that stay
                            * bfloat16, rounded up */
    const char *title;     /* one line for people */
    const char *source;
    struct precision_role kept; /* the input of the product after attention as
                            * it is kept for dW, which rounds it again;
                            * bfloat16: as it is. To nearest, its scale is of
                            * now */
    struct precision_role glu; /* gate and up on their way to B (glu_codes.h);
                            * bfloat16: as they are. Like kept */
    bool straight;
    bool rotate;           /* straight: x and W are rotated before they are
                            * rounded, and gradients back */
    bool trust;            /* straight: no gradient where a number was cut
                            * off */
};

/* Which blocks of a model have a recipe: [first, end). */
struct precision_use {
    bool on;               /* else none has */
    struct precision recipe;
    bool changed;          /* the recipe, by rows of one's own */
    int first, end;
    int64_t steps;         /* of the run that it is for; 0: all */
    int history;           /* steps whose largest magnitudes late scales
                            * remember */
    struct accumulator accumulator; /* of the products */
    bool saved;            /* inputs wait for W as codes where they can
                            * (saved_codes.h) */
    bool kept;             /* weights are kept as codes where they can be
                            * (plan/coded_weights.h) */
    bool dispatched;       /* rows go to experts as codes where they can
                            * (row_codes.h) */
    bool twice;            /* ... and where they are rounded again, too */
};

enum { PRECISIONS = 11 };
extern const struct precision precisions[PRECISIONS];

/* ERR_CONFIG: no such recipe (names the nearest). *out NULL: "none". */
status precision_parse(const struct precision **out, const char *name);
/* Words of rows for scale rules. */
extern const char *const precision_scale_names[SCALE_COUNT];
/* Changes a recipe by rows of one's own (precision_rows.c). ERR_CONFIG: a row
 * that says nothing, or what no kernel does; two rows for one role. */
status precision_change(struct precision *recipe, const char *const *rows,
                        int count);
/* Rows and columns of a block of an operand as it lies; 0: of the region.
 * `turned`: it is summed over its rows. */
void precision_block(const struct precision_role *role, bool turned,
                     int64_t side[2]);
/* A straight recipe multiplies gradients by this at the end: their operands
 * were made smaller so that none is cut off. */
float precision_factor(const struct precision *recipe);
/* Whether y is a product of integers: ternary weights, one scale for a leaf,
 * times int8 activations, one for a token or a context chunk
 * (kernels/integers.h). */
bool precision_is_integer(const struct precision *recipe);
/* Whether scales of a recipe come from the steps before. */
bool precision_is_late(const struct precision *recipe);
/* Blocks at the end of a model that a recipe leaves as they are. */
int precision_high(const struct precision *recipe, int layers);

#endif
