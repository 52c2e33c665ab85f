/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - cross-entropy of a softmax over the vocabulary, and its gradient.
 *
 * The exact maximum of the row comes first, so that the sums of all leaves have
 * one scale whatever rank computes them. */
#include <math.h>
#include "kernels/reference/real.h"

/* Sum of e^(x - max) of one vocabulary leaf; x becomes e^(x - max) if
 * `replaces`. */
static real leaf_sum(real *x, int64_t count, real max, bool replaces)
{
    real lanes[LANES] = {0};

    for (int64_t i = 0; i < count; i++) {
        real e = REAL_EXPZ(x[i] - max);

        lanes[i % LANES] = lanes[i % LANES] + e;
        if (replaces) x[i] = e;
    }
    return real_lanes_fold(lanes);
}

/* Sum over leaves of ceil(vocab / leaves) columns, by the tree. */
static real row_sum(real *x, int64_t vocab, int leaves, real max, bool replaces)
{
    int64_t width = (vocab + leaves - 1) / leaves;
    real sums[LEAVES_MAX] = {0};

    for (int leaf = 0; leaf < leaves; leaf++) {
        int64_t first = leaf * width, rest = vocab - first;

        if (rest <= 0) continue;
        sums[leaf] = leaf_sum(x + first, rest < width ? rest : width, max,
                              replaces);
    }
    for (int apart = 1; apart < leaves; apart *= 2)
        for (int i = 0; i + apart < leaves; i += 2 * apart)
            sums[i] = sums[i] + sums[i + apart];
    return sums[0];
}

/* Returns the loss, -log softmax(x)[target]. */
static double row_loss(real *x, int64_t vocab, int32_t target,
                       const struct cross_entropy *p)
{
    real max = -(real)INFINITY, at = x[target], sum, q;

    for (int64_t i = 0; i < vocab; i++) max = max > x[i] ? max : x[i];
    sum = row_sum(x, vocab, p->leaves, max, p->gradient);
    if (p->gradient) {
        q = 1 / sum;
        for (int64_t i = 0; i < vocab; i++) x[i] = x[i] * q;
        x[target] = x[target] - 1;
    }
    return (double)(REAL_LOG(sum) - (at - max));
}

status NAME(cross_entropy)(struct stream *stream,
                           const struct cross_entropy *p)
{
    int64_t vocab = p->logits.shape[1];

    (void)stream;
    CHECK(p->logits.dtype == REAL_DTYPE && p->logits.stride[1] == 1);
    CHECK(p->leaves >= 1 && p->leaves <= LEAVES_MAX);
    for (int64_t token = 0; token < p->logits.shape[0]; token++) {
        real *x = (real *)p->logits.data + token * p->logits.stride[0];

        CHECK(p->targets[token] >= -1 && p->targets[token] < vocab);
        if (p->targets[token] >= 0) {
            p->losses[token] = row_loss(x, vocab, p->targets[token], p);
            continue;
        }
        p->losses[token] = 0;
        for (int64_t i = 0; p->gradient && i < vocab; i++) x[i] = 0;
    }
    return OK;
}
