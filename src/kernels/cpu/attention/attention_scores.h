/* SPDX-License-Identifier: Apache-2.0 */
/* attention_scores.h - weights and gradients of scores, from q . k and
 * dout . v, of one key and queries that are adjacent. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_SCORES_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_SCORES_H

#include "kernels/cpu/cpu.h"
#include "kernels/elementary.h"

struct scores {
    float *w, *d;             /* products; set */
    const float *lse, *sums;  /* of the queries: log-sum-exp, dout . out */
    float scale;
    double cap;               /* 0: none */
};

/* Queries [from, to), LANES at a time. */
static inline void scores_plain(const struct scores *s, int from, int to)
{
    const float *lse = s->lse, *sums = s->sums, scale = s->scale;
    float *w = s->w, *d = s->d;

    for (int c = from; c < to; c += LANES) {
        SIMD for (int i = c; i < c + LANES; i++) {
            float weight = expz_f32(w[i] * scale - lse[i]);

            w[i] = weight;
            d[i] = (weight * (d[i] - sums[i])) * scale;
        }
    }
}

static inline void scores_capped(const struct scores *s, int from, int to)
{
    const float *lse = s->lse, *sums = s->sums, scale = s->scale;
    const float cap = (float)s->cap, inverse = (float)(1 / s->cap);
    float *w = s->w, *d = s->d;

    for (int c = from; c < to; c += LANES) {
        SIMD for (int i = c; i < c + LANES; i++) {
            float t = tanh_f32(w[i] * scale * inverse);
            float weight = expz_f32(cap * t - lse[i]);

            w[i] = weight;
            d[i] = weight * (d[i] - sums[i]) *
                   __builtin_fmaf(-t, t, 1.0f) * scale;
        }
    }
}

/* Queries [from, to) of other documents than the key's see nothing of it. */
static inline void scores_apart(const struct scores *s, const int32_t *own,
                                int32_t document, int from, int to)
{
    for (int i = from; i < to; i++) {
        s->w[i] = own[i] == document ? s->w[i] : 0;
        s->d[i] = own[i] == document ? s->d[i] : 0;
    }
}

/* lanes[j] = sum of a * b over elements j, j + LANES, ... */
static inline void scores_lanes(float *lanes, const float *a, const float *b,
                                int width)
{
    float sums[LANES] = {0};
    int e = 0;

    for (; e + LANES <= width; e += LANES)
        SIMD for (int j = 0; j < LANES; j++)
            sums[j] = __builtin_fmaf(a[e + j], b[e + j], sums[j]);
    for (int j = 0; e + j < width; j++)
        sums[j] = __builtin_fmaf(a[e + j], b[e + j], sums[j]);
    memcpy(lanes, sums, sizeof sums);
}

#endif
