/* SPDX-License-Identifier: Apache-2.0 */
/* loss.cu - cross-entropy: a block has a token. */
#include "kernels/cuda/words.h"

struct loss_shared {
    float most[BLOCK_THREADS];
    float lanes[LEAVES_MAX][LANES];
};

/* A maximum is exact, so its order is free. */
DEVICE float row_max(struct loss_shared *s, const float *x, int64_t columns)
{
    float most = -__builtin_inff();

    for (int64_t i = THREAD; i < columns; i += BLOCK_THREADS)
        most = most > x[i] ? most : x[i];
    s->most[THREAD] = most;
    for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD < half && s->most[THREAD + half] > s->most[THREAD])
            s->most[THREAD] = s->most[THREAD + half];
    }
    BARRIER;
    return s->most[0];
}

/* Sum of e^(x - max); x becomes that where there is a gradient. LANES threads
 * have a leaf of the vocabulary, and as many leaves are done at a time as there
 * are threads for. */
DEVICE float row_sum(struct loss_shared *s, const struct loss_numbers *p,
                     float *x, float max)
{
    const int lane = THREAD % LANES;

    for (int64_t i = THREAD; p->gradient && i < p->columns;
         i += BLOCK_THREADS)
        x[i] = expz_f32(x[i] - max);
    BARRIER;
    for (int leaf = THREAD / LANES; leaf < p->leaves;
         leaf += BLOCK_THREADS / LANES) {
        const int64_t first = leaf * p->leaf_columns;
        int64_t end = first + p->leaf_columns;
        float sum = 0;

        if (end > p->columns) end = p->columns;
        for (int64_t i = first + lane; i < end; i += LANES)
            sum = sum + (p->gradient ? x[i] : expz_f32(x[i] - max));
        s->lanes[leaf][lane] = sum;
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        BARRIER;
        for (int leaf = THREAD / LANES; leaf < p->leaves && lane < half;
             leaf += BLOCK_THREADS / LANES)
            s->lanes[leaf][lane] =
                s->lanes[leaf][lane] + s->lanes[leaf][lane + half];
    }
    for (int apart = 1; apart < p->leaves; apart *= 2) {
        BARRIER;
        for (int at = 2 * apart * THREAD; at + apart < p->leaves;
             at += 2 * apart * BLOCK_THREADS)
            s->lanes[at][0] = s->lanes[at][0] + s->lanes[at + apart][0];
    }
    BARRIER;
    return s->lanes[0][0];
}

/* The three numbers of a token. */
struct numbers { float max, at, sum; };

enum { GRADIENTS = 8 /* of a thread at a time */ };

/* x times q, minus the scale at the target. A narrow number lies where another
 * one stood: all threads have read before one writes. Later numbers lie where
 * earlier ones stood. */
DEVICE void row_gradient(const struct loss_numbers *p, float *x,
                         int64_t column, float q)
{
    for (int64_t first = 0; first < p->columns;
         first += GRADIENTS * BLOCK_THREADS) {
        float values[GRADIENTS];

        UNROLLED for (int i = 0; i < GRADIENTS; i++) {
            const int64_t at = first + i * BLOCK_THREADS + THREAD;

            values[i] = at < p->columns ? x[at] * q : 0;
            if (at == column) values[i] = values[i] - p->scale;
        }
        if (p->dtype != DTYPE_F32) BARRIER;
        UNROLLED for (int i = 0; i < GRADIENTS; i++) {
            const int64_t at = first + i * BLOCK_THREADS + THREAD;

            if (at < p->columns) element_set(x, p->dtype, at, values[i]);
        }
    }
}

/* From exponentials to the gradient, and the losses. */
DEVICE void row_end(const struct loss_numbers *p, float *x, int64_t token,
                    const struct numbers *n)
{
    const int64_t column = p->targets[token] - p->first;
    const float log_sum = log_f32(n->sum), z = n->max + log_sum;
    float q = 1.0f / n->sum * p->scale;

    if (p->z_loss > 0) q = q * __builtin_fmaf(p->twice_z_loss, z, 1.0f);
    if (p->gradient) row_gradient(p, x, column, q);
    if (THREAD != 0) return;
    if (p->z_loss > 0)
        p->z_losses[token] = p->z_loss * (double)z * (double)z;
    p->losses[token] = (double)(log_sum - (n->at - n->max));
}

/* A token without a target takes part in nothing. */
DEVICE void token_masked(const struct loss_numbers *p, float *x,
                         int64_t token)
{
    if (THREAD == 0 && p->phase == LOSS_MAXIMUM)
        p->maximum[token] = p->target[token] = 0;
    if (THREAD == 0 && p->phase == LOSS_SUM) p->sum[token] = 1;
    if (p->phase == LOSS_MAXIMUM || p->phase == LOSS_SUM) return;
    if (THREAD == 0) p->losses[token] = 0;
    if (THREAD == 0 && p->z_loss > 0) p->z_losses[token] = 0;
    for (int64_t i = THREAD; p->gradient && i < p->columns;
         i += BLOCK_THREADS)
        element_set(x, p->dtype, i, 0);
}

CUDA_KERNEL(cross_entropy)
{
    const struct loss_numbers *const l = &p->loss;
    const int64_t token = BLOCK;
    const int64_t column = l->targets[token] - l->first;
    const bool here = column >= 0 && column < l->columns;
    float *x = l->logits + token * l->stride;
    struct numbers n;
    SHARED(struct loss_shared, s);

    if (l->targets[token] < 0) {
        token_masked(l, x, token);
        return;
    }
    n.at = here ? x[column] : -__builtin_inff();
    if (l->phase == LOSS_WHOLE || l->phase == LOSS_MAXIMUM)
        n.max = row_max(s, x, l->columns);
    else
        n.max = l->maximum[token];
    if (l->phase == LOSS_MAXIMUM) {
        if (THREAD == 0) l->maximum[token] = n.max;
        if (THREAD == 0) l->target[token] = n.at;
        return;
    }
    n.sum = l->phase == LOSS_END ? l->sum[token] : row_sum(s, l, x, n.max);
    if (l->phase == LOSS_SUM) {
        if (THREAD == 0) l->sum[token] = n.sum;
        return;
    }
    if (l->phase == LOSS_END) n.at = l->target[token];
    row_end(l, x, token, &n);
}
