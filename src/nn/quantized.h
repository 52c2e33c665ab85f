/* SPDX-License-Identifier: Apache-2.0 */
/* quantized.h - the operands of a linear layer's products as its recipe rounds
 * them (precision.h), in the layer's scratch.
 *
 * Spans of rows and columns are what no layout cuts: chunks of sequences, and
 * leaves of the tensor axis in each piece of a fused matrix. So no scale needs
 * a message, and the bits do not show the layout. */
#ifndef LOCKSTEP_NN_QUANTIZED_H
#define LOCKSTEP_NN_QUANTIZED_H

#include "nn/layer.h"

/* The products of a layer; each rounds its operands anew. */
enum product_use { USE_FORWARD, USE_DGRAD, USE_WGRAD };

/* Whether the step's products are made by a recipe. */
bool quantized_is(const struct run *run, const struct step *step);

/* *x [rows, width] becomes the same rounded: `gradient`: dy, else x. Its rows
 * are whole chunks of sequences; first: the first one's number in the
 * micro-batch. Valid until the next call for the same operand. */
status quantized_tokens(struct run *run, const struct step *step,
                        enum product_use use, bool gradient, int64_t first,
                        struct tensor *x);
/* *w, the step's weight, becomes the same rounded. */
status quantized_weight(struct run *run, const struct step *step,
                        enum product_use use, struct tensor *w);

/* Bytes of scratch, those of the bias's sums first. */
size_t quantized_scratch(const struct step *step, const struct program *p);

#endif
