/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - cross-entropy over the vocabulary: threads share out tokens. */
#include "kernels/cpu/cpu.h"
#include "kernels/lanes.h"

ELEMENTARY float leaf_sum(float *x, int64_t count, float max, bool replaces)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
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
    float sums[LEAVES_MAX] = {0};

    for (int leaf = 0; leaf < p->leaves; leaf++) {
        int64_t first = leaf * width, count = columns - first;

        if (count <= 0) break;
        if (count > width) count = width;
        sums[leaf] = p->gradient ? leaf_sum(x + first, count, max, true)
                                 : leaf_sum(x + first, count, max, false);
    }
    for (int apart = 1; apart < p->leaves; apart *= 2)
        for (int i = 0; i + apart < p->leaves; i += 2 * apart)
            sums[i] = sums[i] + sums[i + apart];
    return sums[0];
}

/* What a token has of the three numbers. */
struct numbers { float max, at, sum; };

/* From exponentials to the gradient, if asked; returns the loss. */
static double row_end(float *x, int64_t column, struct numbers n,
                      const struct cross_entropy *p)
{
    const int64_t columns = p->logits.shape[1];

    if (p->gradient) {
        const float q = 1.0f / n.sum;

        SIMD for (int64_t i = 0; i < columns; i++) x[i] = x[i] * q;
        if (column >= 0 && column < columns) x[column] = x[column] - 1.0f;
    }
    return (double)(log_f32(n.sum) - (n.at - n.max));
}

static void token_phase(float *x, int64_t token, const struct cross_entropy *p)
{
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
        p->losses[token] = row_end(x, column, n, p);
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
        p->losses[token] = row_end(x, column, n, p);
        break;
    }
}

/* A token without a target takes part in nothing. */
static void token_masked(float *x, int64_t token,
                         const struct cross_entropy *p)
{
    if (p->phase == LOSS_MAXIMUM)
        ((float *)p->maximum)[token] = ((float *)p->target)[token] = 0;
    if (p->phase == LOSS_SUM) ((float *)p->sum)[token] = 1;
    if (p->phase == LOSS_MAXIMUM || p->phase == LOSS_SUM) return;
    p->losses[token] = 0;
    for (int64_t i = 0; p->gradient && i < p->logits.shape[1]; i++) x[i] = 0;
}

static void cross_entropy_body(void *argument, int index, int count)
{
    const struct cross_entropy *p = argument;
    int64_t first, last;

    threads_split(p->logits.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        float *x = (float *)p->logits.data + token * p->logits.stride[0];

        CHECK(p->targets[token] >= -1);
        CHECK(p->phase != LOSS_WHOLE ||
              p->targets[token] < p->logits.shape[1]);
        if (p->targets[token] >= 0) token_phase(x, token, p);
        else token_masked(x, token, p);
    }
}

status CPU(cross_entropy)(struct stream *stream, const struct cross_entropy *p)
{
    struct cross_entropy copy = *p;

    CHECK(p->logits.dtype == DTYPE_F32 && p->logits.stride[1] == 1);
    CHECK(p->leaves >= 1 && p->leaves <= LEAVES_MAX);
    cpu_run(stream, p->logits.shape[0] * p->logits.shape[1],
            cross_entropy_body, &copy);
    return OK;
}
