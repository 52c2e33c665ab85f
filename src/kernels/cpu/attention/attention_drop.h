/* SPDX-License-Identifier: Apache-2.0 */
/* attention_drop.h - the dropout factors of attention's weights. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_DROP_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_DROP_H

#include "kernels/cpu/random_words.h"

/* LANES adjacent queries against `keys` keys, at positions. */
struct drop_tile {
    int64_t sequence, head; /* of the call */
    int64_t query, key;
    int keys;
};

/* out[j * stride + i] = 0 or 1 / (1 - rate) of key j and query i. */
static inline void drop_factors(const struct attention *p,
                                const struct drop_tile *t, float *out,
                                int stride)
{
    const uint32_t least = dropout_least(p->drop.rate);
    const float factor = (float)(1 / (1 - p->drop.rate));
    const int64_t end = t->key + t->keys;
    struct dropout_row at = {p->drop.sequence + (uint64_t)t->sequence, 0};
    uint32_t words[4 * RANDOM_LANES];

    for (int64_t key = t->key - t->key % 4; key < end; key += 4) {
        at.high = (uint64_t)(p->drop.head + t->head) << DROPOUT_HEAD_SHIFT |
                  (uint64_t)t->query << DROPOUT_QUERY_SHIFT |
                  (uint64_t)(key / 4);
        random_words(words, p->drop.key, at,
                     UINT64_C(1) << DROPOUT_QUERY_SHIFT);
        for (int w = 0; w < 4; w++) {
            const int64_t j = key + w - t->key;
            const uint32_t *word = words + w * RANDOM_LANES;

            if (j < 0 || j >= t->keys) continue;
            SIMD for (int i = 0; i < LANES; i++)
                out[j * stride + i] = word[i] >= least ? factor : 0;
        }
    }
}
_Static_assert((int)LANES == (int)RANDOM_LANES, "a query a lane");

/* x[i] times factors[i], LANES wide. */
static inline void drop_lanes(float *x, const float *factors)
{
    SIMD for (int i = 0; i < LANES; i++) x[i] = x[i] * factors[i];
}

#endif
