/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - the next token from its logits. */
#include "train/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "kernels/math.h"

static const double least_exponent = -40; /* see the header */

status sampling_check(const struct sampling *s)
{
    if (!(s->temperature >= 0) || !isfinite(s->temperature))
        FAIL(ERR_CONFIG, "a temperature of %g is not a number from 0 on",
             s->temperature);
    if (s->top_k < 0)
        FAIL(ERR_CONFIG, "top-k of %lld: 0 keeps all tokens, 1 the likeliest",
             (long long)s->top_k);
    if (!(s->top_p > 0) || s->top_p > 1)
        FAIL(ERR_CONFIG, "top-p of %g is outside 0 (not included) to 1",
             s->top_p);
    return OK;
}

static status find_largest(const struct tensor *logits, int64_t position,
                           int32_t *largest)
{
    const int64_t vocab = tensor_count(logits);

    *largest = 0;
    for (int64_t i = 0; i < vocab; i++) {
        const double x = tensor_get(logits, i);

        if (!isfinite(x))
            FAIL(ERR_NUMERIC, "the logit of token %lld at position %lld is no "
                              "finite number", (long long)i,
                 (long long)position);
        if (x > tensor_get(logits, *largest)) *largest = (int32_t)i;
    }
    return OK;
}

/* Heavier first, then lower ids: a total order, so qsort has one result. */
static int order(const void *left, const void *right)
{
    const struct sample_candidate *a = left, *b = right;

    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int64_t gather(const struct sampling *s, const struct tensor *logits,
                      int32_t largest, struct sample_candidate *out)
{
    const double top = tensor_get(logits, largest);
    const int64_t vocab = tensor_count(logits);
    int64_t count = 0;

    for (int64_t i = 0; i < vocab; i++) {
        const double x = (tensor_get(logits, i) - top) / s->temperature;

        if (x < least_exponent) continue;
        out[count++] = (struct sample_candidate){math_exp(x), (int32_t)i};
    }
    return count;
}

/* The most likely that top-k and top-p keep; *sum = their weight. */
static int64_t cut(const struct sampling *s, struct sample_candidate *all,
                   int64_t count, double *sum)
{
    double total = 0;
    int64_t kept = 0;

    if (s->top_k > 0 || s->top_p < 1)
        qsort(all, (size_t)count, sizeof *all, order);
    if (s->top_k > 0 && s->top_k < count) count = s->top_k;
    for (int64_t i = 0; i < count; i++) total += all[i].weight;
    *sum = 0;
    while (kept < count && (kept == 0 || s->top_p == 1 ||
                            *sum < s->top_p * total))
        *sum += all[kept++].weight;
    return kept;
}

status sample_token(const struct sampling *sampling,
                    const struct tensor *logits, int64_t position,
                    struct sample_candidate *scratch, int32_t *id)
{
    const struct random_key key = random_key_make(sampling->seed, "generate");
    double sum, seen = 0;
    int64_t count;

    TRY(find_largest(logits, position, id));
    if (sampling->temperature == 0 || sampling->top_k == 1) return OK;
    count = gather(sampling, logits, *id, scratch);
    count = cut(sampling, scratch, count, &sum);
    const double target = random_uniform(key, (uint64_t)position) * sum;

    for (int64_t i = 0; i < count; i++) {
        *id = scratch[i].id; /* the last one if rounding leaves a rest */
        seen += scratch[i].weight;
        if (target < seen) break;
    }
    return OK;
}
