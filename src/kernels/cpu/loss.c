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

static float row_sum(float *x, int64_t vocab, float max,
                     const struct cross_entropy *p)
{
    int64_t width = (vocab + p->leaves - 1) / p->leaves;
    float sums[LEAVES_MAX] = {0};

    for (int leaf = 0; leaf < p->leaves; leaf++) {
        int64_t first = leaf * width, count = vocab - first;

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

static double row_loss(float *x, int64_t vocab, int32_t target,
                       const struct cross_entropy *p)
{
    float at = x[target], max = lanes_max(x, vocab);
    float sum = row_sum(x, vocab, max, p);

    if (p->gradient) {
        float q = 1.0f / sum;

        SIMD for (int64_t i = 0; i < vocab; i++) x[i] = x[i] * q;
        x[target] = x[target] - 1.0f;
    }
    return (double)(log_f32(sum) - (at - max));
}

static void cross_entropy_body(void *argument, int index, int count)
{
    const struct cross_entropy *p = argument;
    int64_t first, last, vocab = p->logits.shape[1];

    threads_split(p->logits.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        float *x = (float *)p->logits.data + token * p->logits.stride[0];

        CHECK(p->targets[token] >= -1 && p->targets[token] < vocab);
        if (p->targets[token] >= 0) {
            p->losses[token] = row_loss(x, vocab, p->targets[token], p);
            continue;
        }
        p->losses[token] = 0;
        for (int64_t i = 0; p->gradient && i < vocab; i++) x[i] = 0;
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
