/* SPDX-License-Identifier: Apache-2.0 */
/* updates.c - one step of optimizers that see each weight alone. The order of
 * operations here is the definition: one expression, one rounding each, FMAs
 * named. A step is computed from the states as they were stored, and what it
 * finds is rounded where it is stored. */
#include <stdbool.h>
#include <string.h>
#include "base/range_sum.h"
#include "kernels/code8.h"
#include "kernels/reference/real.h"
#include "kernels/view.h"

/* The values that all elements of a call share. */
struct constants {
    real scale, beta1, beta2, rest1, rest2, epsilon, root, step, keep, decay,
         lr, share, push;
};

static struct constants constants_of(const struct element_update *p)
{
    return (struct constants){
        .scale = (real)p->scale, .beta1 = (real)p->beta1,
        .beta2 = (real)p->beta2, .rest1 = (real)(1 - p->beta1),
        .rest2 = (real)(1 - p->beta2), .epsilon = (real)p->epsilon,
        .root = (real)(1 / sqrt(p->correction2)),
        .step = (real)(-p->lr / p->correction1),
        .keep = (real)(1 - p->lr * p->decay), .decay = (real)p->decay,
        .lr = (real)-p->lr, .share = (real)p->share,
        .push = (real)(p->lr * (p->beta1 * (1 - p->share) - 1))};
}

/* The weight and states a and b of one element, whose gradient is g. */
static void step_element(enum update_formula formula,
                         const struct constants *c, real g, real *w, real *a,
                         real *b)
{
    real u;

    g = g * c->scale;
    switch (formula) {
    case UPDATE_ADAMW: /* Loshchilov and Hutter 2019, arXiv:1711.05101,
                        * algorithm 2; corrections of bias are in constants */
        *a = REAL_FMA(c->beta1, *a, c->rest1 * g);
        *b = REAL_FMA(c->beta2, *b, c->rest2 * g * g);
        *w = REAL_FMA(c->step,
                      *a / REAL_FMA(REAL_SQRT(*b), c->root, c->epsilon),
                      *w * c->keep);
        break;
    case UPDATE_LION: /* Chen et al. 2023, arXiv:2302.06675, program 1 */
        u = REAL_FMA(c->beta1, *a, c->rest1 * g);
        u = u > 0 ? 1 : u < 0 ? -1 : 0;
        *w = REAL_FMA(c->lr, u, *w * c->keep);
        *a = REAL_FMA(c->beta2, *a, c->rest2 * g);
        break;
    case UPDATE_SGD: /* Sutskever et al. 2013, as torch.optim.SGD writes it */
        g = REAL_FMA(c->decay, *w, g);
        *a = REAL_FMA(c->beta1, *a, g);
        *w = REAL_FMA(c->lr, REAL_FMA(c->beta1, *a, g), *w);
        break;
    case UPDATE_MOMENTUM: /* Jordan et al. 2024, as torch.optim.Muon has it */
        *a = REAL_FMA(c->beta1, *a, c->rest1 * g);
        *w = c->share > 0 ? REAL_FMA(c->beta1, *a, c->rest1 * g) : *a;
        break;
    case UPDATE_FREE: /* Defazio et al. 2024, arXiv:2405.15682, algorithm 1 */
        *b = REAL_FMA(c->beta2, *b, c->rest2 * g * g);
        u = g / REAL_FMA(REAL_SQRT(*b), c->root, c->epsilon);
        u = REAL_FMA(c->decay, *w, u);
        *w = REAL_FMA(c->share, *a - *w, *w);
        *w = REAL_FMA(c->push, u, *w);
        *a = REAL_FMA(c->lr, u, *a);
        break;
    case UPDATE_TOWARDS:
        *w = REAL_FMA(c->share, *a - *w, *w);
        break;
    case UPDATE_AVERAGE:
        u = c->share * (*a - *w);
        *w = *w + u;
        break;
    }
}

static int code_bits(const struct element_state *state)
{
    return state->positive ? CODE8_BITS_MAX : CODE8_SIGNED_BITS;
}

/* The state as it was before; the same place where it is updated in place. */
static struct element_state old_state(const struct element_update *p, int state)
{
    const bool stays = p->formula == UPDATE_TOWARDS ||
                       p->formula == UPDATE_AVERAGE;
    struct element_state old = p->states[state];

    if (stays || old.values.data == NULL) return old;
    old.values.data = (char *)old.values.data + p->from;
    if (old.scales != NULL)
        old.scales = (float *)(void *)((char *)old.scales + p->from);
    return old;
}

static void count_in(const struct element_update *p, const void *at,
                     size_t bytes)
{
    if (p->sum != NULL)
        range_sum_add(p->sum, range_sum_of(p->sum, at, at, bytes));
}

static void decode(const struct element_state *state, int64_t first,
                   int64_t count, real *out)
{
    const struct tensor *values = &state->values;

    if (values->dtype == DTYPE_U8) {
        const unsigned char *codes = values->data;
        float table[CODE8_COUNT];

        code8_table(code_bits(state), table);
        for (int64_t i = 0; i < count; i++)
            out[i] = table[codes[first + i]] *
                     state->scales[first / UPDATE_BLOCK];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = (real)tensor_get(values, first + i);
}

static void encode(const struct element_state *state, int64_t first,
                   int64_t count, const real *in)
{
    const struct tensor *values = &state->values;

    if (values->dtype == DTYPE_U8) {
        unsigned char *codes = values->data;
        struct code8_bins bins;
        float largest = 0, inverse;

        for (int64_t i = 0; i < count; i++) {
            const float size = (float)(in[i] < 0 ? -in[i] : in[i]);

            largest = size > largest ? size : largest;
        }
        inverse = code8_inverse(largest);
        state->scales[first / UPDATE_BLOCK] = inverse > 0 ? largest : 0;
        code8_bins(code_bits(state), &bins);
        for (int64_t i = 0; i < count; i++)
            codes[first + i] = (unsigned char)code8_of(
                &bins, bins.bits, (float)in[i], inverse);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        tensor_set(values, first + i, (double)in[i]);
}

static void store(const struct element_update *p, int state, int64_t first,
                  int64_t count, const real *in)
{
    const struct element_state *to = &p->states[state];
    const int64_t each = dtype_bytes(to->values.dtype);
    const bool stays = p->formula == UPDATE_TOWARDS ||
                       p->formula == UPDATE_AVERAGE;

    encode(to, first, count, in);
    if (stays) return;
    count_in(p, (char *)to->values.data + first * each,
             (size_t)(count * each));
    if (to->values.dtype == DTYPE_U8)
        count_in(p, &to->scales[first / UPDATE_BLOCK], sizeof(float));
}

static bool is_split(const struct element_update *p)
{
    return p->masters.weights.data != NULL;
}

/* A split master as a number. */
static real *master_open(const struct element_update *p, int64_t at,
                         real *number)
{
    float value;

    masters_read(&p->masters, at, 1, 1, &value);
    *number = (real)value;
    return number;
}

static void master_close(const struct element_update *p, int64_t at,
                         real number)
{
    const struct masters one = masters_part(&p->masters, at, 1);
    const float value = (float)number;

    masters_write(&one, &value);
}

/* Elements [first, first + count) of the call, in one block. */
static void step_block(const struct element_update *p,
                       const struct constants *c, int64_t first,
                       int64_t count)
{
    const struct view weight = view_of(p->weight, REAL_DTYPE);
    const struct view gradient = view_of(p->gradient, REAL_DTYPE);
    real states[UPDATE_STATES][UPDATE_BLOCK] = {{0}};

    for (int k = 0; k < UPDATE_STATES; k++) {
        const struct element_state old = old_state(p, k);

        if (old.values.data != NULL) decode(&old, first, count, states[k]);
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = (first + i) / weight.width;
        const int64_t column = (first + i) % weight.width;
        real number;
        real *w = is_split(p)
                      ? master_open(p, first + i, &number)
                      : (real *)weight.data + row * weight.stride + column;

        if (p->from != 0) memcpy(w, (char *)w + p->from, sizeof *w);
        step_element(p->formula, c,
                     ((real *)gradient.data)[row * gradient.stride + column],
                     w, &states[0][i], &states[1][i]);
        if (is_split(p)) master_close(p, first + i, number);
        count_in(p, w, sizeof *w);
    }
    for (int k = 0; k < UPDATE_STATES; k++)
        if (p->states[k].values.data != NULL)
            store(p, k, first, count, states[k]);
}

status NAME(update_elements)(struct stream *stream,
                             const struct element_update *p)
{
    const struct constants c = constants_of(p);
    const int64_t count = tensor_count(&p->weight);

    (void)stream;
    CHECK(!is_split(p) || (masters_check(&p->masters) == count &&
                           REAL_DTYPE == DTYPE_F32 && p->from == 0 &&
                           p->sum == NULL));
    CHECK(view_same_shape(view_of(p->weight, REAL_DTYPE),
                          view_of(p->gradient, REAL_DTYPE)));
    for (int k = 0; k < UPDATE_STATES; k++) {
        const struct tensor *values = &p->states[k].values;

        CHECK(values->data == NULL || tensor_count(values) == count);
        CHECK(values->data == NULL || values->dtype == REAL_DTYPE ||
              REAL_DTYPE == DTYPE_F32);
    }
    for (int64_t first = 0; first < count; first += UPDATE_BLOCK)
        step_block(p, &c, first,
                   count - first < UPDATE_BLOCK ? count - first
                                                : UPDATE_BLOCK);
    return OK;
}

/* The formula alone: states of the type of the weights, which lie together. */
status NAME(adamw)(struct stream *stream, const struct adamw *p)
{
    const struct constants c = constants_of(&(struct element_update){
        .scale = p->scale, .lr = p->lr, .beta1 = p->beta1, .beta2 = p->beta2,
        .epsilon = p->epsilon, .decay = p->decay,
        .correction1 = p->correction1, .correction2 = p->correction2});
    real *weight = p->weight.data, *m = p->m.data, *v = p->v.data;
    const real *gradient = p->gradient.data;
    const int64_t count = tensor_count(&p->weight);

    (void)stream;
    CHECK(p->weight.dtype == REAL_DTYPE && p->gradient.dtype == REAL_DTYPE);
    CHECK(p->m.dtype == REAL_DTYPE && p->v.dtype == REAL_DTYPE);
    CHECK(tensor_count(&p->m) == count && tensor_count(&p->v) == count);
    CHECK(tensor_count(&p->gradient) == count);
    for (int64_t i = 0; i < count; i++)
        step_element(UPDATE_ADAMW, &c, gradient[i], &weight[i], &m[i], &v[i]);
    return OK;
}
