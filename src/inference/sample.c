/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - the next token from its logits. */
#include "inference/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "kernels/isa.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

enum { AT_ONCE = 512 }; /* logits at once */
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
    if (!(s->min_p >= 0) || s->min_p > 1)
        FAIL(ERR_CONFIG, "min-p of %g is outside 0 to 1", s->min_p);
    if (!(s->penalty >= 0) || !isfinite(s->penalty))
        FAIL(ERR_CONFIG, "a repetition penalty of %g is no positive number; 1 "
                         "has no effect", s->penalty);
    return OK;
}

void sample_penalize(const struct sampling *sampling, struct tensor *logits,
                     const int32_t *ids, int64_t count, bool *marks)
{
    const double penalty = sampling->penalty;

    if (penalty == 0 || penalty == 1) return;
    for (int64_t i = 0; i < count; i++) {
        const double x = tensor_get(logits, ids[i]);

        if (marks[ids[i]]) continue;
        marks[ids[i]] = true;
        tensor_set(logits, ids[i], x > 0 ? x / penalty : x * penalty);
    }
    for (int64_t i = 0; i < count; i++) marks[ids[i]] = false;
}

/* Logits that are not float32 one by one. */
static void find_any(const struct tensor *logits, int64_t *bad,
                       int32_t *largest)
{
    const int64_t vocab = tensor_count(logits);

    for (int64_t i = 0; i < vocab && *bad < 0; i++) {
        const double x = tensor_get(logits, i);

        if (!isfinite(x)) *bad = i;
        if (x > tensor_get(logits, *largest)) *largest = (int32_t)i;
    }
}

/* The first of the largest: its value in a loop that vectorizes, then where it
 * is. x - x is no zero where x is no finite number. */
static void find_f32(const float *x, int64_t vocab, int64_t *bad,
                     int32_t *largest)
{
    float tops[LANES], wrong[LANES] = {0}, top = x[0], odd = 0;
    int64_t i = 0;

    for (int j = 0; j < LANES; j++) tops[j] = top;
    for (; i + LANES <= vocab; i += LANES)
        _Pragma("omp simd")
        for (int j = 0; j < LANES; j++) {
            tops[j] = x[i + j] > tops[j] ? x[i + j] : tops[j];
            wrong[j] += x[i + j] - x[i + j];
        }
    for (; i < vocab; i++) {
        tops[0] = x[i] > tops[0] ? x[i] : tops[0];
        odd += x[i] - x[i];
    }
    for (int j = 0; j < LANES; j++) {
        top = tops[j] > top ? tops[j] : top;
        odd += wrong[j];
    }
    for (i = 0; i < vocab && odd != 0; i++) {
        if (isfinite(x[i])) continue;
        *bad = i;
        return;
    }
    for (i = 0; x[i] != top; i++) continue;
    *largest = (int32_t)i;
}

static status find_largest(const struct tensor *logits, int64_t position,
                           int32_t *largest)
{
    int64_t bad = -1;

    *largest = 0;
    if (logits->dtype == DTYPE_F32)
        find_f32(logits->data, tensor_count(logits), &bad, largest);
    else
        find_any(logits, &bad, largest);
    if (bad >= 0)
        FAIL(ERR_NUMERIC, "the logit of token %lld at position %lld is not a "
                          "finite number", (long long)bad,
             (long long)position);
    return OK;
}

/* Heavier first, then lower ids: a total order, so qsort has one result. */
static int order(const void *left, const void *right)
{
    const struct sample_candidate *a = left, *b = right;

    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* weights [count] of tokens from `first` on. */
static void weigh(const struct tensor *logits, int64_t first, int64_t count,
                  const double top_temperature[2], double *weights)
{
    const double top = top_temperature[0], temperature = top_temperature[1];
    const struct exponentials call = {
        .x = (const float *)logits->data + first, .count = count, .top = top,
        .divisor = temperature, .least = -(double)INFINITY};

    if (logits->dtype == DTYPE_F32) {
        kernels_exponentials(ISA_AUTO, &call, weights);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        weights[i] = math_exp((tensor_get(logits, first + i) - top) /
                              temperature);
}

static int64_t gather(const struct sampling *s, const struct tensor *logits,
                      int32_t largest, struct sample_candidate *out)
{
    const double top = tensor_get(logits, largest);
    const int64_t vocab = tensor_count(logits);
    double weights[AT_ONCE];
    int64_t count = 0;

    for (int64_t first = 0; first < vocab; first += AT_ONCE) {
        const int64_t left = vocab - first;
        const int64_t n = left < AT_ONCE ? left : AT_ONCE;

        weigh(logits, first, n, (const double[2]){top, s->temperature},
              weights);
        for (int64_t i = 0; i < n; i++) {
            const double x = tensor_get(logits, first + i) - top;

            out[count] = (struct sample_candidate){weights[i],
                                                   (int32_t)(first + i)};
            count += !(x / s->temperature < least_exponent);
        }
    }
    return count;
}

/* Keeps those whose weight, of at most 1, is at least min-p. */
static int64_t cut_unlikely(const struct sampling *s,
                            struct sample_candidate *all, int64_t count,
                            double *sum)
{
    int64_t kept = 0;

    *sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (all[i].weight < s->min_p) continue;
        *sum += all[i].weight;
        all[kept++] = all[i];
    }
    return kept;
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

/* Draws where nothing is cut: sums up to each token, in the order of ids, in
 * place of a list; what weighs nothing adds nothing. */
static int32_t draw_from_all(const struct sampling *s,
                             const struct tensor *logits, int32_t largest,
                             double uniform, double *sums)
{
    const int64_t vocab = tensor_count(logits);
    const struct exponentials call = {
        .x = logits->data, .count = vocab,
        .top = tensor_get(logits, largest), .divisor = s->temperature,
        .least = least_exponent};
    int64_t low = 0, high = vocab, last = 0;
    double sum = 0;

    kernels_exponentials(ISA_AUTO, &call, sums);
    for (int64_t i = 0; i < vocab; i++) {
        if (sums[i] > 0) last = i;
        sum += sums[i];
        sums[i] = sum;
    }
    const double target = uniform * sum;

    while (low < high) { /* the first one whose sum is beyond the target */
        const int64_t middle = low + (high - low) / 2;

        if (target < sums[middle]) high = middle;
        else low = middle + 1;
    }
    return (int32_t)(low < vocab ? low : last); /* if rounding leaves a rest */
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
    const double uniform = random_uniform(key, (uint64_t)position);

    _Static_assert(sizeof *scratch >= sizeof(double), "room for sums");
    if (sampling->top_k == 0 && sampling->top_p == 1 && sampling->min_p == 0 &&
        logits->dtype == DTYPE_F32) {
        *id = draw_from_all(sampling, logits, *id, uniform, (void *)scratch);
        return OK;
    }
    count = gather(sampling, logits, *id, scratch);
    count = cut(sampling, scratch, count, &sum);
    if (sampling->min_p > 0)
        count = cut_unlikely(sampling, scratch, count, &sum);
    const double target = uniform * sum;

    for (int64_t i = 0; i < count; i++) {
        *id = scratch[i].id; /* the last one if rounding leaves a rest */
        seen += scratch[i].weight;
        if (target < seen) break;
    }
    return OK;
}
