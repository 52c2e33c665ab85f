/* SPDX-License-Identifier: Apache-2.0 */
/* quantized_operands.h - the operands of a linear layer's products as its
 * recipe rounds them (precision.h), in the layer's scratch.
 *
 * Spans of rows and columns are what no layout cuts: context chunks of
 * sequences, and leaves of the tensor axis in each piece of a fused matrix. So
 * no scale needs a message, and the bits do not show the layout. */
#ifndef LOCKSTEP_NN_QUANTIZED_OPERANDS_H
#define LOCKSTEP_NN_QUANTIZED_OPERANDS_H

#include "kernels/codes.h"
#include "nn/layer.h"

/* Whether the step's products are made by a recipe. */
bool quantized_is(const struct run *run, const struct step *step);

/* How the step's products are summed then; NULL: in float32. */
const struct accumulator *quantized_accumulator(const struct run *run,
                                                const struct step *step);

/* Whether y of the step is a product of integers. */
bool quantized_is_integer(const struct run *run, const struct step *step);
/* Makes it as `call` says, of what the two functions below made of x and of W;
 * call->b is W' . */
status quantized_product(struct run *run, const struct step *step,
                         const struct matmul *call);

/* *x [rows, width] becomes the same rounded: `gradient`: dy, else x. Its rows
 * are whole context chunks of sequences; first: the first one's number in the
 * micro-batch. Valid until the next call for the same operand. */
status quantized_tokens(struct run *run, const struct step *step,
                        enum product_use use, bool gradient, int64_t first,
                        struct tensor *x);
/* x, of W, as codes in the frame (saved_codes.h), where the frame has them for
 * the step; and *x [tokens, width] of those. Room of the weight's numbers is
 * used for it. */
bool quantized_is_saved(const struct run *run, const struct step *step);
status quantized_save(struct run *run, const struct step *step, int64_t first,
                      struct tensor x);
status quantized_saved(struct run *run, const struct step *step, int64_t first,
                       int64_t tokens, struct tensor *x);
/* *w, the step's weight, becomes the same rounded. */
status quantized_weight(struct run *run, const struct step *step,
                        enum product_use use, struct tensor *w);

/* Whether the recipe is for a product that is being built. */
bool quantized_applies(const struct program *p,
                       const struct param_spec *weight);

/* ---- for the products of experts, too ---- */

/* turned: the matrix is summed over its rows. value: operand_peaks_value, which
 * says who counts it; a late scale is of the steps before, or, where nothing is
 * known yet, that of the region now. */
struct quantized_operand {
    const struct precision_role *role;
    int64_t value;
    bool turned;
};
void quantized_set(struct quantize *call, const struct run *run,
                   const struct quantized_operand *of);
/* How codes are made of what the call rounds. */
struct block_coding quantized_coding(const struct quantize *call);
/* *w, a matrix of the parameter, becomes the same rounded, in room->out. */
struct quantized_matrix_room {
    struct quantize_span *rows, *cols;
    struct dropout_row *places; /* as many as rows, and */
    float *wide;                /* ... elements: straight recipes */
    float *peaks;
    void *out;
    float *scales; /* as many as rows times spans of columns: out has codes;
                    * NULL: numbers */
    bool again;    /* it was counted already */
};
status quantized_matrix(struct run *run, const struct param *param,
                        enum product_use use,
                        const struct quantized_matrix_room *room,
                        struct tensor *w);
/* A dimension of the weight that the tensor axis cuts: the leaves of each piece
 * that this rank holds. Others are one span. At most quantized_spans. */
int64_t quantized_features(const struct program *p, const struct param *param,
                           bool rows, struct quantize_span *out);
int64_t quantized_spans(const struct program *p);
enum { QUANTIZED_SPANS_MAX = GRID_LEAVES_MAX * PARAM_PIECES_MAX };
/* How a weight is coded that is gathered so (plan/coded_weights.h), for y or
 * dx; its spans go into rows and cols. */
struct block_coding quantized_weight_coding(const struct program *p,
                                            const struct param *param,
                                            enum product_use use,
                                            struct quantize_span *rows,
                                            struct quantize_span *cols);
/* Like quantized_weight_coding, with the scales of this step, where they are
 * late. */
struct block_coding quantized_weight_now(const struct run *run,
                                         const struct param *param,
                                         enum product_use use,
                                         struct quantize_span *rows,
                                         struct quantize_span *cols);
/* Where a row stands: its sequence in the run, its token of a sequence of this
 * rank, and the site: the weight's number in the model, the product and the
 * operand. */
uint64_t quantized_site(const struct param *param, enum product_use use,
                        bool gradient);
struct dropout_row quantized_place(int64_t sequence, int64_t position,
                                   uint64_t site);

/* The operand of a gradient's product of a straight recipe, rotated into
 * `wide`, which has room for as many elements, and rounded from there. `call`
 * has everything but how it is rounded. */
status quantized_again(struct run *run, const struct param *param,
                       enum product_use use, int64_t value, float *wide,
                       struct quantize *call);

/* Scales of the codes of so many rows, at most. */
int64_t quantized_scales(const struct program *p, int64_t rows);

/* Bytes of scratch, those of the bias's sums first. */
size_t quantized_scratch(const struct step *step, const struct program *p);

#endif
