/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - cross-entropy over the vocabulary: threads share out tokens. */
#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/lanes.h"

/* Exponentials leave memory idle: the next row, `ahead` elements on, is fetched
 * meanwhile for its maximum. */
ELEMENTARY float leaf_sum(float *x, int64_t count, float max, bool replaces,
                          int64_t ahead)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        __builtin_prefetch(x + ahead + i, 0, 2);
        EACH_LANE {
            float e = expz_f32(x[i + j] - max);

            lanes[j] = lanes[j] + e;
            if (replaces) x[i + j] = e;
        }
    }
    for (int j = 0; i + j < count; j++) {
        float e = expz_f32(x[i + j] - max);

        lanes[j] = lanes[j] + e;
        if (replaces) x[i + j] = e;
    }
    return lanes_fold(lanes);
}

static float row_sum(float *x, float max, const struct cross_entropy *p)
{
    int64_t columns = p->logits.shape[1];
    int64_t width = p->block > 0 ? p->block
                                 : (columns + p->leaves - 1) / p->leaves;
    const int64_t ahead = p->logits.stride[0];
    float sums[LEAVES_MAX] = {0};

    for (int leaf = 0; leaf < p->leaves; leaf++) {
        int64_t first = leaf * width, count = columns - first;

        if (count <= 0) break;
        if (count > width) count = width;
        sums[leaf] =
            p->gradient ? leaf_sum(x + first, count, max, true, ahead)
                        : leaf_sum(x + first, count, max, false, ahead);
    }
    for (int apart = 1; apart < p->leaves; apart *= 2)
        for (int i = 0; i + apart < p->leaves; i += 2 * apart)
            sums[i] = sums[i] + sums[i + apart];
    return sums[0];
}

/* The three numbers of a token. */
struct numbers { float max, at, sum; };

/* A call and the type of the gradient. */
struct loss {
    struct cross_entropy p;
    enum dtype dtype;
};

ELEMENTARY void element_put(enum dtype dtype, void *x, int64_t i, float value)
{
    element_set(x, dtype, i, value);
}

/* x times q in place, from the front: a narrow one goes where elements stood
 * that have been read. Twice LANES fill a register of narrow elements. */
ELEMENTARY void row_scale(enum dtype dtype, float *x, int64_t count, float q)
{
    enum { WIDE = 2 * LANES };
    float block[WIDE];
    int64_t i = 0;

    for (; i + WIDE <= count; i += WIDE) {
        SIMD for (int j = 0; j < WIDE; j++) block[j] = x[i + j] * q;
        SIMD for (int j = 0; j < WIDE; j++)
            element_set(x, dtype, i + j, block[j]);
    }
    for (; i < count; i++) element_set(x, dtype, i, x[i] * q);
}

/* q with the slope of c z^2. */
ELEMENTARY float z_slope(float q, float z, double c)
{
    return c > 0 ? q * __builtin_fmaf((float)(2 * c), z, 1.0f) : q;
}

/* From exponentials to the gradient, if asked; returns the loss. */
static double row_end(float *x, int64_t token, struct numbers n,
                      const struct loss *loss)
{
    const int64_t columns = loss->p.logits.shape[1];
    const int64_t column = loss->p.targets[token] - loss->p.first;
    const float log_sum = log_f32(n.sum), z = n.max + log_sum;
    const double c = loss->p.z_loss;

    if (loss->p.gradient) {
        const float scale = loss->p.scale > 0 ? (float)loss->p.scale : 1.0f;
        const float q = z_slope(1.0f / n.sum * scale, z, c);
        const bool here = column >= 0 && column < columns;
        const float target = here ? x[column] * q - scale : 0;

        ELEMENT_CHOOSE(loss->dtype, row_scale, x, columns, q);
        if (here) ELEMENT_CHOOSE(loss->dtype, element_put, x, column, target);
    }
    if (c > 0) loss->p.z_losses[token] = c * (double)z * (double)z;
    return (double)(log_sum - (n.at - n.max));
}

static void token_phase(float *x, int64_t token, const struct loss *loss)
{
    const struct cross_entropy *p = &loss->p;
    const int64_t columns = p->logits.shape[1];
    const int64_t column = p->targets[token] - p->first;
    const bool here = column >= 0 && column < columns;
    float *max = p->maximum, *at = p->target, *sum = p->sum;
    struct numbers n;

    switch (p->phase) {
    case LOSS_WHOLE:
        n.at = x[column];
        n.max = lanes_max(x, columns);
        n.sum = row_sum(x, n.max, p);
        p->losses[token] = row_end(x, token, n, loss);
        break;
    case LOSS_MAXIMUM:
        max[token] = lanes_max(x, columns);
        at[token] = here ? x[column] : -__builtin_inff();
        break;
    case LOSS_SUM:
        sum[token] = row_sum(x, max[token], p);
        break;
    case LOSS_END:
        n = (struct numbers){max[token], at[token], sum[token]};
        p->losses[token] = row_end(x, token, n, loss);
        break;
    }
}

/* A token without a target takes part in nothing. */
static void token_masked(float *x, int64_t token, const struct loss *loss)
{
    const struct cross_entropy *p = &loss->p;

    if (p->phase == LOSS_MAXIMUM)
        ((float *)p->maximum)[token] = ((float *)p->target)[token] = 0;
    if (p->phase == LOSS_SUM) ((float *)p->sum)[token] = 1;
    if (p->phase == LOSS_MAXIMUM || p->phase == LOSS_SUM) return;
    p->losses[token] = 0;
    if (p->z_loss > 0) p->z_losses[token] = 0;
    if (p->gradient)
        memset(x, 0, (size_t)p->logits.shape[1] *
                         (size_t)dtype_bytes(loss->dtype));
}

static void cross_entropy_body(void *argument, int index, int count)
{
    const struct loss *loss = argument;
    const struct cross_entropy *p = &loss->p;
    int64_t first, last;

    threads_split(p->logits.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        float *x = (float *)p->logits.data + token * p->logits.stride[0];

        CHECK(p->targets[token] >= -1);
        CHECK(p->phase != LOSS_WHOLE ||
              p->targets[token] < p->logits.shape[1]);
        if (p->targets[token] >= 0) token_phase(x, token, loss);
        else token_masked(x, token, loss);
    }
}

static status loss_run(struct stream *stream, const struct cross_entropy *p,
                       enum dtype dtype)
{
    struct loss loss = {*p, dtype};

    CHECK(p->logits.dtype == DTYPE_F32 && p->logits.stride[1] == 1);
    CHECK(p->leaves >= 1 && p->leaves <= LEAVES_MAX);
    cpu_run(stream, p->logits.shape[0] * p->logits.shape[1],
            cross_entropy_body, &loss);
    return OK;
}

status CPU(cross_entropy)(struct stream *stream, const struct cross_entropy *p)
{
    return loss_run(stream, p, DTYPE_F32);
}

status CPU(cross_entropy_bf16)(struct stream *stream,
                               const struct cross_entropy *p)
{
    return loss_run(stream, p, DTYPE_BF16);
}

status CPU(cross_entropy_f16)(struct stream *stream,
                              const struct cross_entropy *p)
{
    return loss_run(stream, p, DTYPE_F16);
}
