/* SPDX-License-Identifier: Apache-2.0 */
/* test_sample.c - mirrors src/inference/sample.c: tokens are drawn as often as
 * the exact distribution says, and penalties are those of the paper. */
#include <math.h>
#include "inference/sample.h"
#include "tests/test.h"

enum { VOCAB = 24, DRAWS = 100000 };

/* Logits of both signs, two of them equal. */
static const float values[VOCAB] = {
    1.5f, -0.25f, 2.0f, 0.5f, -3.0f, 1.0f, 1.0f, 0.0f, -1.0f, 2.5f, -0.5f,
    0.75f, -2.0f, 1.25f, 0.25f, -1.5f, 1.75f, -4.0f, 0.1f, -0.1f, 0.6f, -6.0f,
    2.2f, -0.7f};

/* The place of a token among the likeliest: how many come before it. */
static int place(int token)
{
    int before = 0;

    for (int i = 0; i < VOCAB; i++)
        before += values[i] > values[token] ||
                  (values[i] == values[token] && i < token);
    return before;
}

/* The exact distribution, as the papers define it, in long double: token by
 * token, without a list that is cut. */
static void exact(const struct sampling *s, double out[VOCAB])
{
    long double weights[VOCAB], whole = 0, kept = 0, above;
    bool keeps[VOCAB];

    for (int i = 0; i < VOCAB; i++) {
        keeps[i] = s->top_k == 0 || place(i) < s->top_k;
        weights[i] = expl((long double)values[i] /
                          (long double)s->temperature);
        if (keeps[i]) whole += weights[i];
    }
    for (int i = 0; i < VOCAB; i++) {
        above = 0; /* of the likelier ones */
        for (int j = 0; j < VOCAB; j++)
            if (place(j) < place(i)) above += weights[j];
        if (s->top_p < 1) keeps[i] &= above < (long double)s->top_p * whole;
    }
    for (int i = 0; i < VOCAB; i++) {
        const long double most =
            expl(2.5L / (long double)s->temperature); /* of the likeliest */

        keeps[i] &= weights[i] >= (long double)s->min_p * most;
        if (keeps[i]) kept += weights[i];
    }
    for (int i = 0; i < VOCAB; i++)
        out[i] = keeps[i] ? (double)(weights[i] / kept) : 0;
}

/* Pearson's chi-square over tokens that can be drawn. It is n - 1 on average,
 * with a standard deviation of sqrt(2 (n - 1)). */
static void draws_are(const struct sampling *s, enum dtype dtype, int support)
{
    struct sample_candidate scratch[VOCAB];
    double expected[VOCAB], numbers[VOCAB], square = 0;
    int64_t drawn[VOCAB] = {0};
    float narrow[VOCAB];
    int tokens = 0;
    const struct tensor logits = tensor_2d(
        dtype == DTYPE_F32 ? (void *)narrow : (void *)numbers, dtype, 1, VOCAB);

    for (int i = 0; i < VOCAB; i++) narrow[i] = values[i];
    for (int i = 0; i < VOCAB; i++) numbers[i] = (double)values[i];
    exact(s, expected);
    for (int64_t position = 0; position < DRAWS; position++) {
        int32_t id;

        IS_OK(sample_token(s, &logits, position, scratch, &id));
        drawn[id]++;
    }
    for (int i = 0; i < VOCAB; i++) {
        const double mean = expected[i] * DRAWS;

        if (mean == 0) {
            EQUAL_INT(drawn[i], 0);
            continue;
        }
        tokens++;
        square += ((double)drawn[i] - mean) * ((double)drawn[i] - mean) / mean;
    }
    EQUAL_INT(tokens, support);
    CHECK(square < tokens - 1 + 4 * sqrt(2.0 * tokens));
}

TEST(tokens_are_drawn_as_often_as_they_are_likely)
{
    static const struct {
        struct sampling sampling;
        int support; /* tokens that can be drawn */
    } rows[] = {
        {{.temperature = 1, .top_p = 1, .seed = 197001}, 24},
        {{.temperature = 0.7, .top_p = 1, .seed = 197002}, 24},
        {{.temperature = 1, .top_p = 1, .top_k = 5, .seed = 197003}, 5},
        {{.temperature = 1, .top_p = 1, .top_k = 7, .seed = 197012}, 7},
        {{.temperature = 1, .top_p = 0.5, .seed = 197004}, 4},
        {{.temperature = 1.3, .top_p = 0.9, .seed = 197005}, 14},
        {{.temperature = 1, .top_p = 1, .min_p = 0.1, .seed = 197006}, 12},
        {{.temperature = 1, .top_p = 1, .min_p = 1, .seed = 197007}, 1},
        {{.temperature = 2, .top_p = 1, .min_p = 0.3, .seed = 197008}, 13},
        {{.temperature = 1, .top_p = 0.9, .top_k = 12, .seed = 197009}, 9},
        {{.temperature = 1, .top_p = 0.95, .top_k = 14, .min_p = 0.2,
          .seed = 197010}, 8},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        draws_are(&rows[i].sampling, DTYPE_F32, rows[i].support);
        draws_are(&rows[i].sampling, DTYPE_F64, rows[i].support);
    }
}

TEST(each_token_of_the_text_is_penalized_once)
{
    const int32_t ids[] = {2, 4, 7, 2, 2, 4};
    bool marks[VOCAB] = {false};
    double numbers[VOCAB];
    struct tensor logits = tensor_2d(numbers, DTYPE_F64, 1, VOCAB);
    const struct sampling half = {.penalty = 1.25}, none = {.penalty = 1},
                          unset = {.penalty = 0};

    for (int i = 0; i < VOCAB; i++) numbers[i] = (double)values[i];
    sample_penalize(&none, &logits, ids, 6, marks);
    sample_penalize(&unset, &logits, ids, 6, marks);
    for (int i = 0; i < VOCAB; i++) CHECK(numbers[i] == (double)values[i]);
    sample_penalize(&half, &logits, ids, 6, marks);
    for (int i = 0; i < VOCAB; i++) {
        CHECK(numbers[i] == (i == 2 ? 1.6 : i == 4 ? -3.75
                                                   : (double)values[i]));
        CHECK(!marks[i]);
    }
}

TEST(settings_outside_their_range)
{
    const struct sampling most = {.top_p = 1, .min_p = 1.5},
                          least = {.top_p = 1, .min_p = -0.5},
                          negative = {.top_p = 1, .penalty = -1},
                          endless = {.top_p = 1, .penalty = INFINITY},
                          fine = {.top_p = 1, .min_p = 1, .penalty = 2};

    FAILS(sampling_check(&most), ERR_CONFIG, "min-p of 1.5");
    FAILS(sampling_check(&least), ERR_CONFIG, "min-p of -0.5");
    FAILS(sampling_check(&negative), ERR_CONFIG, "repetition penalty of -1");
    FAILS(sampling_check(&endless), ERR_CONFIG, "repetition penalty of inf");
    IS_OK(sampling_check(&fine));
}

TEST_MAIN(tokens_are_drawn_as_often_as_they_are_likely,
          each_token_of_the_text_is_penalized_once,
          settings_outside_their_range)
