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

/* Sum over leaves of `width` columns, by the tree. */
static real row_sum(real *x, const struct cross_entropy *p, real max)
{
    int64_t columns = p->logits.shape[1];
    int64_t width = p->block > 0 ? p->block
                                 : (columns + p->leaves - 1) / p->leaves;
    real sums[LEAVES_MAX] = {0};

    for (int leaf = 0; leaf < p->leaves; leaf++) {
        int64_t first = leaf * width, rest = columns - first;

        if (rest <= 0) continue;
        sums[leaf] = leaf_sum(x + first, rest < width ? rest : width, max,
                              p->gradient);
    }
    for (int apart = 1; apart < p->leaves; apart *= 2)
        for (int i = 0; i + apart < p->leaves; i += 2 * apart)
            sums[i] = sums[i] + sums[i + apart];
    return sums[0];
}

static real row_max(const real *x, int64_t columns)
{
    real max = -(real)INFINITY;

    for (int64_t i = 0; i < columns; i++) max = max > x[i] ? max : x[i];
    return max;
}

/* The three numbers of a token. */
struct numbers { real max, at, sum; };

/* From exponentials to the gradient; `column` of the target may be elsewhere.
 * Returns the loss, -log softmax(x)[target]. */
static double row_end(real *x, int64_t token, const struct numbers *n,
                      const struct cross_entropy *p)
{
    const int64_t columns = p->logits.shape[1];
    const int64_t column = p->targets[token] - p->first;
    const real scale = p->scale > 0 ? (real)p->scale : 1;
    const real log_sum = REAL_LOG(n->sum), z = n->max + log_sum;
    real q = 1 / n->sum * scale;

    if (p->z_loss > 0) q = q * REAL_FMA((real)(2 * p->z_loss), z, 1);
    if (p->z_loss > 0)
        p->z_losses[token] = p->z_loss * (double)z * (double)z;
    if (p->gradient) {
        for (int64_t i = 0; i < columns; i++) x[i] = x[i] * q;
        if (column >= 0 && column < columns) x[column] = x[column] - scale;
    }
    return (double)(log_sum - (n->at - n->max));
}

static void token_phase(real *x, int64_t token, const struct cross_entropy *p)
{
    const int64_t columns = p->logits.shape[1];
    const int64_t column = p->targets[token] - p->first;
    const bool here = column >= 0 && column < columns;
    real *max = p->maximum, *at = p->target, *sum = p->sum;
    struct numbers n;

    switch (p->phase) {
    case LOSS_WHOLE:
        n.max = row_max(x, columns);
        n.at = x[column];
        n.sum = row_sum(x, p, n.max);
        p->losses[token] = row_end(x, token, &n, p);
        break;
    case LOSS_MAXIMUM:
        max[token] = row_max(x, columns);
        at[token] = here ? x[column] : -(real)INFINITY;
        break;
    case LOSS_SUM:
        sum[token] = row_sum(x, p, max[token]);
        break;
    case LOSS_END:
        n = (struct numbers){max[token], at[token], sum[token]};
        p->losses[token] = row_end(x, token, &n, p);
        break;
    }
}

/* A token without a target takes part in nothing. */
static void token_masked(real *x, int64_t token, const struct cross_entropy *p)
{
    if (p->phase == LOSS_MAXIMUM)
        ((real *)p->maximum)[token] = ((real *)p->target)[token] = 0;
    if (p->phase == LOSS_SUM) ((real *)p->sum)[token] = 1;
    if (p->phase == LOSS_MAXIMUM || p->phase == LOSS_SUM) return;
    p->losses[token] = 0;
    if (p->z_loss > 0) p->z_losses[token] = 0;
    for (int64_t i = 0; p->gradient && i < p->logits.shape[1]; i++) x[i] = 0;
}

status NAME(cross_entropy)(struct stream *stream,
                           const struct cross_entropy *p)
{
    (void)stream;
    CHECK(p->logits.dtype == REAL_DTYPE && p->logits.stride[1] == 1);
    CHECK(p->leaves >= 1 && p->leaves <= LEAVES_MAX);
    for (int64_t token = 0; token < p->logits.shape[0]; token++) {
        real *x = (real *)p->logits.data + token * p->logits.stride[0];

        CHECK(p->targets[token] >= -1);
        CHECK(p->phase != LOSS_WHOLE ||
              p->targets[token] < p->logits.shape[1]);
        if (p->targets[token] >= 0) token_phase(x, token, p);
        else token_masked(x, token, p);
    }
    return OK;
}
