/* SPDX-License-Identifier: Apache-2.0 */
/* router_rows.h - the rows of routers: which experts a token goes to, their
 * gates, the losses that balance them, and the gradient of all that. Threads
 * share tokens.
 *
 * Included by reference/router.c and by cpu/router.c, which compiles the same
 * for each instruction set: ROUTER_ROW names a row. */
#include "kernels/expert_index.h"

static bool is_dropped(int32_t chosen)
{
    return chosen < 0;
}

static int expert_of(int32_t chosen)
{
    return chosen < 0 ? -1 - chosen : chosen;
}

/* Row sums of 16 lanes. */
static real row_sum(const real *x, int count)
{
    real lanes[LANES] = {0};

    for (int i = 0; i < count; i += LANES)
        for (int j = 0; j < LANES && i + j < count; j++)
            lanes[j] = lanes[j] + x[i + j];
    return real_lanes_fold(lanes);
}

static real row_dot(const real *a, const real *b, int count)
{
    real lanes[LANES] = {0};
    int i = 0;

    for (; i + LANES <= count; i += LANES) {
        ROUTER_SIMD
        for (int j = 0; j < LANES; j++)
            lanes[j] = REAL_FMA(a[i + j], b[i + j], lanes[j]);
    }
    for (int j = 0; i + j < count; j++)
        lanes[j] = REAL_FMA(a[i + j], b[i + j], lanes[j]);
    return real_lanes_fold(lanes);
}

/* A number that is larger than the largest before, or NaN. */
static real larger(real a, real b)
{
    return a > b || a != a ? a : b;
}

/* p = softmax of x; returns log of the sum of exponentials. */
static real softmax(real *p, const real *x, int count)
{
    real most = x[0], sum, inverse;

    for (int j = 1; j < count; j++) most = larger(x[j], most);
    ROUTER_SIMD
    for (int j = 0; j < count; j++) p[j] = REAL_EXPZ(x[j] - most);
    sum = row_sum(p, count);
    inverse = 1 / sum;
    for (int j = 0; j < count; j++) p[j] = p[j] * inverse;
    return most + REAL_LOG(sum);
}

static void sigmoids(real *s, const real *x, int count)
{
    ROUTER_SIMD
    for (int j = 0; j < count; j++) s[j] = 1 / (1 + REAL_EXP(-x[j]));
}

/* ---- the choice ---- */

/* Whether key a comes before key b: NaN is larger than all. */
static bool is_above(real a, real b)
{
    return a > b || (a != a && b == b);
}

/* The `count` best of keys [0, n) that are not `taken`; marks them. */
static void best_take(const real *keys, int n, int count, bool *taken,
                      int32_t *out)
{
    for (int i = 0; i < count; i++) {
        int best = -1;

        for (int j = 0; j < n; j++)
            if (!taken[j] && (best < 0 || is_above(keys[j], keys[best])))
                best = j;
        CHECK(best >= 0);
        taken[best] = true;
        out[i] = best;
    }
}

/* Marks experts outside the best groups as taken. */
static void groups_take(const struct router_form *form, const real *keys,
                        bool *taken)
{
    const int each = form->experts / form->groups;
    real scores[EXPERTS_MAX];
    bool chosen[EXPERTS_MAX] = {false};
    int32_t list[EXPERTS_MAX];

    for (int g = 0; g < form->groups; g++) {
        const real *group = keys + g * each;
        bool top[EXPERTS_MAX] = {false};
        int32_t two[2];

        best_take(group, each, form->group == ROUTER_GROUP_TOP2 ? 2 : 1, top,
                  two);
        scores[g] = form->group == ROUTER_GROUP_TOP2
                        ? group[two[0]] + group[two[1]] : group[two[0]];
    }
    best_take(scores, form->groups, form->groups_chosen, chosen, list);
    for (int j = 0; j < form->experts; j++) taken[j] = !chosen[j / each];
}

/* Numbers 0 to count - 1, the one with the lowest expert first. */
static void by_expert(const int32_t *chosen, int count, int *order)
{
    for (int i = 0; i < count; i++) {
        int at = i;

        for (; at > 0 && expert_of(chosen[order[at - 1]]) >
                             expert_of(chosen[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Sets h, the chosen scores' shares of their sum (not normalised: the scores),
 * and returns the reciprocal of the sum. */
static real shares(const struct router_form *form, const real *scores,
                   const real *x, const int32_t *chosen, real *h)
{
    const int count = form->choices;
    int order[CHOICES_MAX];
    real sum = 0, inverse, most = x[expert_of(chosen[0])];

    by_expert(chosen, count, order);
    for (int i = 1; i < count; i++)
        most = larger(x[expert_of(chosen[i])], most);
    for (int i = 0; i < count; i++)
        h[i] = form->score == ROUTER_CHOSEN
                   ? REAL_EXPZ(x[expert_of(chosen[i])] - most)
                   : scores[expert_of(chosen[i])];
    if (form->score != ROUTER_CHOSEN && !form->normalised) return 1;
    for (int i = 0; i < count; i++) sum = sum + h[order[i]];
    inverse = form->score == ROUTER_CHOSEN ? 1 / sum
                                           : 1 / (sum + (real)1e-20);
    for (int i = 0; i < count; i++) h[i] = h[i] * inverse;
    return inverse;
}

/* p = the softmax of the logits near choice i, 0 for the others. */
static void near_softmax(const struct router_form *form, const real *x,
                         const int32_t *chosen, int i, real *p)
{
    const int experts = form->experts;
    const real own = x[expert_of(chosen[i])], near = (real)form->near;
    bool far[EXPERTS_MAX];
    real most = own, inverse;

    for (int j = 0; j < experts; j++) {
        const real size = x[j] < 0 ? -x[j] : x[j];

        far[j] = (own - x[j]) / (size < own ? own : size) > near;
    }
    for (int c = 0; c < i; c++) far[expert_of(chosen[c])] = true;
    for (int j = 0; j < experts; j++)
        if (!far[j]) most = larger(x[j], most);
    for (int j = 0; j < experts; j++)
        p[j] = far[j] ? 0 : REAL_EXPZ(x[j] - most);
    inverse = 1 / row_sum(p, experts);
    for (int j = 0; j < experts; j++) p[j] = p[j] * inverse;
}

static void near_gates(const struct router_form *form, const real *x,
                       const int32_t *chosen, real *gates)
{
    real p[EXPERTS_MAX];

    for (int i = 0; i < form->choices; i++) {
        near_softmax(form, x, chosen, i, p);
        gates[i] = p[expert_of(chosen[i])];
    }
}

static real factor_of(double scale)
{
    return scale == 0 ? 1 : (real)scale;
}

/* Scores of all experts: a softmax, unless sigmoids. */
static void scores_of(const struct router_form *form, real *scores,
                      const real *x)
{
    if (form->score == ROUTER_SIGMOID) sigmoids(scores, x, form->experts);
    else softmax(scores, x, form->experts);
}

static const real *row_at(struct tensor t, int64_t row)
{
    return (const real *)t.data + row * t.stride[0];
}

static void token_choose(const struct router *p, int64_t token)
{
    const struct router_form *form = &p->form;
    const real *x = row_at(p->logits, token), *bias = p->bias;
    const bool near = form->score == ROUTER_NEAR;
    const bool after = form->score == ROUTER_CHOSEN || near;
    int32_t *chosen = p->chosen + token * form->choices;
    real *gates = (real *)p->gates.data + token * p->gates.stride[0];
    real scores[EXPERTS_MAX], keys[EXPERTS_MAX];
    bool taken[EXPERTS_MAX] = {false};

    if (!after) scores_of(form, scores, x);
    const real *from = after ? x : scores;

    keys[0] = 0; /* there is one: gcc asks */
    for (int j = 0; j < form->experts; j++)
        keys[j] = bias ? from[j] + bias[j] : from[j];
    if (form->groups > 1) groups_take(form, keys, taken);
    best_take(keys, form->experts, form->choices, taken, chosen);
    if (near) near_gates(form, x, chosen, gates);
    else shares(form, scores, x, chosen, gates);
    for (int i = 0; i < form->choices; i++)
        gates[i] = gates[i] * factor_of(form->scale);
}

static void router_body(void *argument, int index, int count)
{
    const struct router *p = argument;
    int64_t first, last;

    threads_split(p->logits.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) token_choose(p, token);
}

static void logits_check(const struct router_form *form, struct tensor logits)
{
    CHECK(form->experts >= 1 && form->experts <= EXPERTS_MAX);
    CHECK(form->choices >= 1 && form->choices <= CHOICES_MAX);
    CHECK(form->choices <= form->experts);
    CHECK(logits.dtype == REAL_DTYPE && logits.shape[1] == form->experts);
    CHECK(logits.stride[1] == 1);
}

status ROUTER_ROW(router_choose)(struct stream *stream, const struct router *p)
{
    struct router call = *p;

    logits_check(&p->form, p->logits);
    CHECK(p->gates.dtype == REAL_DTYPE && p->gates.stride[1] == 1);
    CHECK(p->gates.shape[1] == p->form.choices);
    threads_run(stream->threads, router_body, &call);
    return OK;
}

/* ---- losses and gradients ---- */

/* A token while its losses are made: p are the shares that are balanced. */
struct token {
    const real *x;
    real softmax[EXPERTS_MAX], scores[EXPERTS_MAX], shares[EXPERTS_MAX];
    real log_sum, inverse; /* of the sum of sigmoids */
    const real *balanced;
    bool has_losses;
};

static void token_begin(const struct router_losses *p, int64_t at,
                        struct token *token)
{
    const int experts = p->form.experts;

    token->x = row_at(p->logits, at);
    token->has_losses = p->mask == NULL || p->mask[at] >= 0;
    token->log_sum = softmax(token->softmax, token->x, experts);
    token->balanced = token->softmax;
    if (p->form.score != ROUTER_SIGMOID) return;
    sigmoids(token->scores, token->x, experts);
    token->inverse = 1 / row_sum(token->scores, experts);
    for (int j = 0; j < experts; j++)
        token->shares[j] = token->scores[j] * token->inverse;
    token->balanced = token->shares;
}

static void token_losses(const struct router_losses *p, int64_t at)
{
    const int experts = p->form.experts;
    struct token token;
    double balance = 0, z;

    token_begin(p, at, &token);
    for (int j = 0; p->weights && j < experts; j++)
        balance = __builtin_fma(
            (real)p->weights[at / p->length * experts + j],
            token.balanced[j], balance);
    z = p->z_loss * (double)token.log_sum * (double)token.log_sum;
    if (p->balance) p->balance[at] = token.has_losses ? balance : 0;
    if (p->z) p->z[at] = token.has_losses && p->z_loss > 0 ? z : 0;
}

/* d += gradients of the logits, of gates that are softmaxes of near ones. */
static void near_backward(const struct router_losses *p, int64_t at,
                          const real *x, real *d)
{
    const int experts = p->form.experts;
    const int32_t *chosen = p->chosen + at * p->form.choices;
    const real *dgates = row_at(p->dgates, at);
    real near[EXPERTS_MAX];

    for (int i = 0; i < p->form.choices; i++) {
        const real dgate = is_dropped(chosen[i]) ? 0 : dgates[i];
        const real factor = dgate * factor_of(p->form.scale);

        near_softmax(&p->form, x, chosen, i, near);
        const int own = expert_of(chosen[i]);
        const real of = factor * near[own];

        d[own] = d[own] + of;
        for (int j = 0; j < experts; j++)
            d[j] = REAL_FMA(-of, near[j], d[j]);
    }
}

/* Gradients of the chosen scores (ROUTER_CHOSEN: logits), added to d. */
static void gates_backward(const struct router_losses *p, int64_t at,
                           const struct token *token, real *d)
{
    const struct router_form *form = &p->form;
    const int32_t *chosen = p->chosen + at * form->choices;
    const real *dgates = row_at(p->dgates, at);
    const real scale = factor_of(form->scale);
    real h[CHOICES_MAX], inverse, a = 0;
    int order[CHOICES_MAX];

    inverse = shares(form, form->score == ROUTER_SIGMOID ? token->scores
                                                         : token->softmax,
                     token->x, chosen, h);
    by_expert(chosen, form->choices, order);
    for (int i = 0; i < form->choices; i++)
        a = REAL_FMA(is_dropped(chosen[order[i]]) ? 0 : dgates[order[i]],
                     h[order[i]], a);
    for (int i = 0; i < form->choices; i++) {
        const real dgate = is_dropped(chosen[i]) ? 0 : dgates[i];
        real *to = &d[expert_of(chosen[i])];

        if (form->score == ROUTER_CHOSEN)
            *to = *to + h[i] * scale * (dgate - a);
        else if (form->normalised)
            *to = *to + (dgate - a) * scale * inverse;
        else
            *to = *to + dgate * scale;
    }
}

/* d += the balance loss's gradient of what it balances. */
static void balance_backward(const struct router_losses *p, int64_t at,
                             real *d)
{
    const double *weights = p->weights + at / p->length * p->form.experts;
    const real scale = factor_of(p->scale);

    for (int j = 0; j < p->form.experts; j++)
        d[j] = d[j] + (real)weights[j] * scale;
}

/* d, gradients of a softmax p, become those of its logits. */
static void softmax_backward(real *d, const real *p, int count)
{
    const real dot = row_dot(d, p, count);

    for (int j = 0; j < count; j++) d[j] = p[j] * (d[j] - dot);
}

/* Gradients of scores (ROUTER_CHOSEN and ROUTER_NEAR: logits of gates) become
 * those of logits, with those of the balance loss. */
static void scores_backward(const struct router_losses *p, int64_t at,
                            const struct token *token, real *d)
{
    const int experts = p->form.experts;
    const bool balances = p->weights && token->has_losses;
    real other[EXPERTS_MAX] = {0};

    if (p->form.score == ROUTER_SOFTMAX) {
        if (balances) balance_backward(p, at, d);
        softmax_backward(d, token->softmax, experts);
        return;
    }
    if (balances) balance_backward(p, at, other);
    if (p->form.score != ROUTER_SIGMOID) {
        if (balances) softmax_backward(other, token->softmax, experts);
        for (int j = 0; balances && j < experts; j++) d[j] = d[j] + other[j];
        return;
    }
    if (balances) {
        const real dot = row_dot(other, token->shares, experts);

        for (int j = 0; j < experts; j++)
            d[j] = d[j] + (other[j] - dot) * token->inverse;
    }
    for (int j = 0; j < experts; j++)
        d[j] = d[j] * (token->scores[j] * (1 - token->scores[j]));
}

static void token_backward(const struct router_losses *p, int64_t at)
{
    const int experts = p->form.experts;
    struct token token;
    real d[EXPERTS_MAX] = {0};
    real *to = (real *)p->dlogits.data + at * p->dlogits.stride[0];

    token_begin(p, at, &token);
    if (p->dgates.data != NULL && p->form.score == ROUTER_NEAR)
        near_backward(p, at, token.x, d);
    else if (p->dgates.data != NULL)
        gates_backward(p, at, &token, d);
    scores_backward(p, at, &token, d);
    if (p->z_loss > 0 && token.has_losses) {
        const real factor = (real)(2 * p->z_loss) * factor_of(p->scale) *
                            token.log_sum;

        for (int j = 0; j < experts; j++)
            d[j] = REAL_FMA(factor, token.softmax[j], d[j]);
    }
    for (int j = 0; j < experts; j++) to[j] = d[j];
}

static void losses_body(void *argument, int index, int count)
{
    const struct router_losses *p = argument;
    int64_t first, last;

    threads_split(p->logits.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) token_losses(p, token);
}

static void backward_body(void *argument, int index, int count)
{
    const struct router_losses *p = argument;
    int64_t first, last;

    threads_split(p->logits.shape[0], 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++)
        token_backward(p, token);
}

status ROUTER_ROW(router_losses)(struct stream *stream,
                           const struct router_losses *p)
{
    struct router_losses call = *p;

    logits_check(&p->form, p->logits);
    CHECK(!p->weights || p->length >= 1);
    threads_run(stream->threads, losses_body, &call);
    return OK;
}

status ROUTER_ROW(router_backward)(struct stream *stream,
                             const struct router_losses *p)
{
    struct router_losses call = *p;

    logits_check(&p->form, p->logits);
    logits_check(&p->form, p->dlogits);
    CHECK(!p->weights || p->length >= 1);
    CHECK(p->dgates.data == NULL || (p->dgates.dtype == REAL_DTYPE &&
                                     p->dgates.stride[1] == 1));
    threads_run(stream->threads, backward_body, &call);
    return OK;
}
