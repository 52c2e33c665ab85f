/* SPDX-License-Identifier: Apache-2.0 */
/* router.cu - routers: a block has a token, a thread some of its experts. Sums
 * over experts have 16 lanes, those over choices are made by one thread
 * (router_rows.h is the definition). */
#include "kernels/cuda/words.h"
#include "kernels/cuda/random.h"
#include "kernels/elementary.h"

struct router_shared {
    float x[EXPERTS_MAX], softmax[EXPERTS_MAX], scores[EXPERTS_MAX];
    float d[EXPERTS_MAX], other[EXPERTS_MAX];
    bool taken[EXPERTS_MAX];
    float h[CHOICES_MAX];
    int32_t list[CHOICES_MAX];
    int order[CHOICES_MAX];
    float keys_of_threads[BLOCK_THREADS];
    int at[BLOCK_THREADS];
    float lanes[LANES];
};

#define EACH_EXPERT(j, count) \
    for (int j = THREAD; j < (count); j += BLOCK_THREADS)

DEVICE int expert_of(int32_t chosen)
{
    return chosen < 0 ? -1 - chosen : chosen;
}

DEVICE float factor_of(double scale)
{
    return scale == 0 ? 1.0f : (float)scale;
}

/* ---- sums and the largest of a row ---- */

DEVICE float lanes_fold(struct router_shared *s)
{
    for (int half = LANES / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD < half)
            s->lanes[THREAD] = s->lanes[THREAD] + s->lanes[THREAD + half];
    }
    BARRIER;
    return s->lanes[0];
}

/* Every thread gets it. */
DEVICE float row_sum(struct router_shared *s, const float *x, int count)
{
    float sum = 0;

    BARRIER;
    for (int j = THREAD; THREAD < LANES && j < count; j += LANES)
        sum = sum + x[j];
    if (THREAD < LANES) s->lanes[THREAD] = sum;
    return lanes_fold(s);
}

DEVICE float row_dot(struct router_shared *s, const float *a, const float *b,
                     int count)
{
    float sum = 0;

    BARRIER;
    for (int j = THREAD; THREAD < LANES && j < count; j += LANES)
        sum = __builtin_fmaf(a[j], b[j], sum);
    if (THREAD < LANES) s->lanes[THREAD] = sum;
    return lanes_fold(s);
}

/* Whether key a comes before key b: NaN is larger than all. */
DEVICE bool is_above(float a, float b)
{
    return a > b || (a != a && b == b);
}

/* Whether candidate (a, at) comes before (b, b_at); -1: there is none. */
DEVICE bool is_better(float a, int at, float b, int b_at)
{
    if (at < 0 || b_at < 0) return at >= 0;
    return is_above(a, b) || (!is_above(b, a) && at < b_at);
}

/* The best of keys [0, count) that are not taken, the lower one of equals. */
DEVICE int row_best(struct router_shared *s, const float *keys, int count)
{
    int best = -1;

    BARRIER;
    EACH_EXPERT(j, count)
        if (!s->taken[j] && (best < 0 || is_above(keys[j], keys[best])))
            best = j;
    s->at[THREAD] = best;
    s->keys_of_threads[THREAD] = best < 0 ? 0.0f : keys[best];
    for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD < half &&
            is_better(s->keys_of_threads[THREAD + half], s->at[THREAD + half],
                      s->keys_of_threads[THREAD], s->at[THREAD])) {
            s->keys_of_threads[THREAD] = s->keys_of_threads[THREAD + half];
            s->at[THREAD] = s->at[THREAD + half];
        }
    }
    BARRIER;
    return s->at[0];
}

DEVICE void taken_clear(struct router_shared *s, int count)
{
    BARRIER;
    EACH_EXPERT(j, count) s->taken[j] = false;
}

/* p = softmax of x; returns log of the sum of exponentials. */
DEVICE float row_softmax(struct router_shared *s, float *p, const float *x,
                         int count)
{
    float most, sum, inverse;

    taken_clear(s, count);
    most = x[row_best(s, x, count)];
    EACH_EXPERT(j, count) p[j] = expz_f32(x[j] - most);
    sum = row_sum(s, p, count);
    inverse = 1 / sum;
    EACH_EXPERT(j, count) p[j] = p[j] * inverse;
    BARRIER;
    return most + log_f32(sum);
}

DEVICE void row_sigmoids(float *p, const float *x, int count)
{
    EACH_EXPERT(j, count) p[j] = 1 / (1 + exp_f32(-x[j]));
    BARRIER;
}

DEVICE void row_load(struct router_shared *s, const struct tensor *t,
                     int64_t row, int count)
{
    EACH_EXPERT(j, count)
        s->x[j] = ((const float *)t->data)[row * t->stride[0] + j];
    BARRIER;
}

/* ---- gates ---- */

/* Sets h, shares of the chosen scores (not normalised: the scores), and order,
 * choices by expert; returns the reciprocal of the sum. One thread runs it. */
DEVICE float shares_make(struct router_shared *s,
                         const struct router_form *form, const float *scores)
{
    const int count = form->choices;
    float sum = 0, inverse, most = s->x[expert_of(s->list[0])];

    for (int i = 0; i < count; i++) {
        const float x = s->x[expert_of(s->list[i])];
        int at = i;

        for (; at > 0 && expert_of(s->list[s->order[at - 1]]) >
                             expert_of(s->list[i]); at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
        most = x > most || x != x ? x : most;
    }
    for (int i = 0; i < count; i++)
        s->h[i] = form->score == ROUTER_CHOSEN
                      ? expz_f32(s->x[expert_of(s->list[i])] - most)
                      : scores[expert_of(s->list[i])];
    if (form->score != ROUTER_CHOSEN && !form->normalised) return 1;
    for (int i = 0; i < count; i++) sum = sum + s->h[s->order[i]];
    inverse = form->score == ROUTER_CHOSEN ? 1 / sum : 1 / (sum + 1e-20f);
    for (int i = 0; i < count; i++) s->h[i] = s->h[i] * inverse;
    return inverse;
}

/* scores = the softmax of the logits near choice i, 0 for the others. */
DEVICE void near_softmax(struct router_shared *s,
                         const struct router_form *form, int i)
{
    const int experts = form->experts;
    const float own = s->x[expert_of(s->list[i])], near = (float)form->near;
    float most, inverse;
    int best;

    BARRIER;
    EACH_EXPERT(j, experts) {
        const float size = s->x[j] < 0 ? -s->x[j] : s->x[j];

        s->taken[j] = (own - s->x[j]) / (size < own ? own : size) > near;
        for (int c = 0; c < i; c++)
            if (expert_of(s->list[c]) == j) s->taken[j] = true;
    }
    best = row_best(s, s->x, experts);
    most = best < 0 ? own : s->x[best];
    if (own > most) most = own;
    EACH_EXPERT(j, experts)
        s->scores[j] = s->taken[j] ? 0.0f : expz_f32(s->x[j] - most);
    inverse = 1 / row_sum(s, s->scores, experts);
    EACH_EXPERT(j, experts) s->scores[j] = s->scores[j] * inverse;
    BARRIER;
}

/* ---- the choice ---- */

/* The score of group g: a thread has a group. */
DEVICE float group_score(const struct router_form *form, const float *keys)
{
    const int each = form->experts / form->groups;
    int best = 0, second = -1;

    for (int j = 1; j < each; j++)
        if (is_above(keys[j], keys[best])) best = j;
    if (form->group != ROUTER_GROUP_TOP2) return keys[best];
    for (int j = 0; j < each; j++)
        if (j != best && (second < 0 || is_above(keys[j], keys[second])))
            second = j;
    return keys[best] + keys[second];
}

/* Experts outside the best groups are taken; keys are in other. */
DEVICE void groups_take(struct router_shared *s,
                        const struct router_form *form)
{
    const int each = form->experts / form->groups;

    EACH_EXPERT(g, form->groups)
        s->d[g] = group_score(form, s->other + g * each);
    taken_clear(s, form->groups);
    for (int i = 0; i < form->groups_chosen; i++) {
        const int best = row_best(s, s->d, form->groups);

        if (THREAD == 0) s->taken[best] = true;
    }
    BARRIER;
    EACH_EXPERT(g, form->groups) s->d[g] = s->taken[g];
    BARRIER;
    EACH_EXPERT(j, form->experts) s->taken[j] = s->d[j / each] == 0;
}

CUDA_KERNEL(router_choose)
{
    const struct router_form *form = &p->of.form;
    const bool near = form->score == ROUTER_NEAR;
    const bool after = form->score == ROUTER_CHOSEN || near;
    const float *bias = (const float *)p->of.bias;
    float *gates =
        (float *)p->of.gates.data + BLOCK * p->of.gates.stride[0];
    SHARED(struct router_shared, s);

    row_load(s, &p->of.logits, BLOCK, form->experts);
    if (form->score == ROUTER_SIGMOID)
        row_sigmoids(s->scores, s->x, form->experts);
    else if (!after)
        row_softmax(s, s->scores, s->x, form->experts);
    EACH_EXPERT(j, form->experts) {
        const float key = after ? s->x[j] : s->scores[j];

        s->other[j] = bias ? key + bias[j] : key;
    }
    BARRIER;
    if (form->groups > 1) groups_take(s, form);
    else taken_clear(s, form->experts);
    for (int i = 0; i < form->choices; i++) {
        const int best = row_best(s, s->other, form->experts);

        if (THREAD != 0) continue;
        s->taken[best] = true;
        s->list[i] = best;
        p->of.chosen[BLOCK * form->choices + i] = best;
    }
    BARRIER;
    if (!near && THREAD == 0) shares_make(s, form, s->scores);
    for (int i = 0; i < form->choices && near; i++) {
        near_softmax(s, form, i);
        if (THREAD == 0) s->h[i] = s->scores[s->list[i]];
    }
    BARRIER;
    EACH_EXPERT(i, form->choices)
        gates[i] = s->h[i] * factor_of(form->scale);
}

/* ---- losses and gradients ---- */

/* A token: softmax is set, with sigmoids scores, and other, their shares. */
struct token_numbers {
    float log_sum, inverse; /* of the sum of sigmoids */
    bool has_losses;
};

DEVICE struct token_numbers token_begin(struct router_shared *s,
                                        const struct router_losses *p)
{
    const int experts = p->form.experts;
    struct token_numbers token = {0, 0,
                                  p->mask == NULL || p->mask[BLOCK] >= 0};

    row_load(s, &p->logits, BLOCK, experts);
    token.log_sum = row_softmax(s, s->softmax, s->x, experts);
    if (p->form.score != ROUTER_SIGMOID) return token;
    row_sigmoids(s->scores, s->x, experts);
    token.inverse = 1 / row_sum(s, s->scores, experts);
    return token;
}

CUDA_KERNEL(router_losses)
{
    const struct router_losses *of = &p->of;
    const int experts = of->form.experts;
    const bool sigmoid = of->form.score == ROUTER_SIGMOID;
    const double *weights =
        of->weights ? of->weights + BLOCK / of->length * experts : NULL;
    double balance = 0, z;
    SHARED(struct router_shared, s);

    const struct token_numbers token = token_begin(s, of);

    if (THREAD != 0) return;
    for (int j = 0; weights && j < experts; j++) {
        const float share =
            sigmoid ? s->scores[j] * token.inverse : s->softmax[j];

        balance = __builtin_fma((double)(float)weights[j], (double)share,
                                balance);
    }
    z = of->z_loss * (double)token.log_sum * (double)token.log_sum;
    if (of->balance) of->balance[BLOCK] = token.has_losses ? balance : 0;
    if (of->z) of->z[BLOCK] = token.has_losses && of->z_loss > 0 ? z : 0;
}

/* d += gradients of the logits, of gates that are softmaxes of near ones. */
DEVICE void near_backward(struct router_shared *s,
                          const struct router_losses *p, const float *dgates)
{
    const int experts = p->form.experts;

    for (int i = 0; i < p->form.choices; i++) {
        const int own = expert_of(s->list[i]);
        const float dgate = s->list[i] < 0 ? 0.0f : dgates[i];
        float of;

        near_softmax(s, &p->form, i);
        of = dgate * factor_of(p->form.scale) * s->scores[own];
        if (THREAD == 0) s->d[own] = s->d[own] + of;
        BARRIER;
        EACH_EXPERT(j, experts)
            s->d[j] = __builtin_fmaf(-of, s->scores[j], s->d[j]);
        BARRIER;
    }
}

/* d += gradients of the chosen scores (ROUTER_CHOSEN: logits). One thread runs
 * it. */
DEVICE void gates_backward(struct router_shared *s,
                           const struct router_losses *p, const float *dgates)
{
    const struct router_form *form = &p->form;
    const float scale = factor_of(form->scale);
    const float inverse = shares_make(
        s, form, form->score == ROUTER_SIGMOID ? s->scores : s->softmax);
    float a = 0;

    for (int i = 0; i < form->choices; i++) {
        const int at = s->order[i];

        a = __builtin_fmaf(s->list[at] < 0 ? 0.0f : dgates[at], s->h[at], a);
    }
    for (int i = 0; i < form->choices; i++) {
        const float dgate = s->list[i] < 0 ? 0.0f : dgates[i];
        float *to = &s->d[expert_of(s->list[i])];

        if (form->score == ROUTER_CHOSEN)
            *to = *to + s->h[i] * scale * (dgate - a);
        else if (form->normalised)
            *to = *to + (dgate - a) * scale * inverse;
        else
            *to = *to + dgate * scale;
    }
}

/* d += the balance loss's gradient of what it balances. */
DEVICE void balance_add(const struct router_losses *p, float *d)
{
    const double *weights = p->weights + BLOCK / p->length * p->form.experts;
    const float scale = factor_of(p->scale);

    EACH_EXPERT(j, p->form.experts)
        d[j] = d[j] + (float)weights[j] * scale;
    BARRIER;
}

/* d, gradients of a softmax, become those of its logits. */
DEVICE void softmax_backward(struct router_shared *s, float *d, int count)
{
    const float dot = row_dot(s, d, s->softmax, count);

    EACH_EXPERT(j, count) d[j] = s->softmax[j] * (d[j] - dot);
    BARRIER;
}

/* d of scores (ROUTER_CHOSEN and ROUTER_NEAR: of logits) becomes that of
 * logits. */
DEVICE void scores_backward(struct router_shared *s,
                            const struct router_losses *p,
                            const struct token_numbers *token)
{
    const int experts = p->form.experts;
    const bool balances = p->weights && token->has_losses;
    const bool sigmoid = p->form.score == ROUTER_SIGMOID;

    if (p->form.score == ROUTER_SOFTMAX) {
        if (balances) balance_add(p, s->d);
        softmax_backward(s, s->d, experts);
        return;
    }
    EACH_EXPERT(j, experts) s->other[j] = 0;
    BARRIER;
    if (balances) balance_add(p, s->other);
    if (!sigmoid) {
        if (!balances) return;
        softmax_backward(s, s->other, experts);
        EACH_EXPERT(j, experts) s->d[j] = s->d[j] + s->other[j];
        return;
    }
    if (balances) {
        EACH_EXPERT(j, experts) s->x[j] = s->scores[j] * token->inverse;
        BARRIER;
        const float dot = row_dot(s, s->other, s->x, experts);

        EACH_EXPERT(j, experts)
            s->d[j] = s->d[j] + (s->other[j] - dot) * token->inverse;
    }
    EACH_EXPERT(j, experts)
        s->d[j] = s->d[j] * (s->scores[j] * (1 - s->scores[j]));
}

CUDA_WIDE_KERNEL(router_backward)
{
    const struct router_losses *of = &p->of;
    const int experts = of->form.experts, choices = of->form.choices;
    const float *dgates = of->dgates.data
                              ? (const float *)of->dgates.data +
                                    BLOCK * of->dgates.stride[0] : NULL;
    float *to = (float *)of->dlogits.data + BLOCK * of->dlogits.stride[0];
    SHARED(struct router_shared, s);

    const struct token_numbers token = token_begin(s, of);

    EACH_EXPERT(j, experts) s->d[j] = 0;
    EACH_EXPERT(i, choices) s->list[i] =
        dgates ? of->chosen[BLOCK * choices + i] : 0;
    BARRIER;
    if (dgates && of->form.score == ROUTER_NEAR)
        near_backward(s, of, dgates);
    else if (dgates && THREAD == 0)
        gates_backward(s, of, dgates);
    BARRIER;
    scores_backward(s, of, &token);
    BARRIER;
    if (of->z_loss > 0 && token.has_losses) {
        const float factor = (float)(2 * of->z_loss) * factor_of(of->scale) *
                             token.log_sum;

        EACH_EXPERT(j, experts)
            s->d[j] = __builtin_fmaf(factor, s->softmax[j], s->d[j]);
    }
    EACH_EXPERT(j, experts) to[j] = s->d[j];
}

CUDA_KERNEL(jitter)
{
    const int64_t row = BLOCK / p->row_blocks;
    const int64_t column = BLOCK % p->row_blocks * BLOCK_THREADS + THREAD;
    float u;

    if (column >= p->y.width) return;
    u = (float)(element_word(p->key, p->rows[row], column) >> 8) * 0x1p-23f - 1;
    value_set(p->y, row, column,
              value_get(p->x, row, column) *
                  __builtin_fmaf(p->epsilon, u, 1.0f));
}
