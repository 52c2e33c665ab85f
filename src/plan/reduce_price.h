/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_price.h - the price of reducing divided gradients after every
 * micro-batch (each), and of doing it once a step, by formulas.
 *
 *   N ranks divide the gradients of a stage, which take G bytes; a step has R
 *   micro-batches. Of a micro-batch, or of all of them, `nodes` sums of leaves
 *   are alive at once (node_limit).
 *
 *           kept by a rank, in G                  sent by a rank, in G
 *   each    (1 + log2 R) / N + two units          R (N - 1) / N
 *             + nodes of a micro-batch - 1
 *   once    nodes of the step                     (N - 1) / N
 *
 * Source: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, section 7, for G;
 * the trees over leaves are those of docs/numerics.md. */
#ifndef LOCKSTEP_PLAN_REDUCE_PRICE_H
#define LOCKSTEP_PLAN_REDUCE_PRICE_H

#include "mesh/grid.h"

/* A rank computes so many FLOP in the time in which it sends a byte: an H100
 * that reaches 40% of its 989 TFLOP/s beside 400 Gb/s. Slower links need more
 * tokens, slower processors fewer. */
enum { REDUCE_FLOP_A_BYTE = 8192 };

struct reduce_facts {
    int ranks;          /* N */
    struct cut cut;     /* of the rank's batch: its leaves, and R micro-batches
                         * as they are */
    double units;       /* of a stage: its blocks */
    int64_t tokens;     /* of a micro-batch, on this rank */
    bool idle;          /* a token uses some parameters only (experts) */
};

struct reduce_price { double kept, sent; }; /* in G, of a rank */
struct reduce_price reduce_price(const struct reduce_facts *facts, bool each);

/* Whether `each` keeps less and takes no longer: it sends nothing more, or F, B
 * and W of a micro-batch (6 FLOP for each token and parameter) take as long as
 * its gradients travel, 4 bytes for each parameter. */
bool reduce_each_pays(const struct reduce_facts *facts);

#endif
