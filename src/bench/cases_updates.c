/* SPDX-License-Identifier: Apache-2.0 */
/* cases_updates.c - updates of weights: [weights]. */
#include <string.h>

#include "base/range_sum.h"
#include "bench/cases.h"

/* The float32 row makes no copy. */
static void adamw_settle(struct operands *o)
{
    if (o->dtype == DTYPE_F32)
        memcpy(o->t[4].data, o->t[0].data,
               (size_t)tensor_bytes(&o->t[0]));
}

/* A second moment is not negative. */
static void make_second_moment(const struct tensor *t)
{
    const int64_t count = tensor_count(t);
    float *v = t->data;

    for (int64_t i = 0; i < count; i++) v[i] = v[i] < 0 ? -v[i] : v[i];
}

void case_adamw(struct operands *o, const int64_t *s)
{
    for (int i = 0; i < 4; i++)
        o->t[i] = case_vector(case_operand_real(o, 1, s[0]));
    o->t[4] = (struct tensor){.data = NULL};
    make_second_moment(&o->t[2]);
    o->flops = 13.0 * (double)s[0];
    o->bytes = 28.0 * (double)s[0]; /* four read, three written */
    if (!dtype_is_narrow(o->narrow)) return;
    o->t[4] = case_vector(case_operand(o, 1, s[0]));
    o->bytes += 2.0 * (double)s[0];
    o->settle = adamw_settle;
}

status case_adamw_run(const struct kernels *k, struct stream *stream,
                        struct operands *o)
{
    struct adamw p = {.weight = o->t[0], .m = o->t[1], .v = o->t[2],
                      .gradient = o->t[3], .scale = 0.5, .lr = 1e-3,
                      .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
                      .decay = 0.1, .correction1 = 0.5, .correction2 = 0.1};

    if (k->dtype != DTYPE_F32) p.copy = o->t[4];
    return k->adamw(stream, &p);
}

void case_descend(struct operands *o, const int64_t *s)
{
    for (int i = 0; i < 2; i++)
        o->t[i] = case_vector(case_operand_real(o, 1, s[0]));
    o->t[4] = (struct tensor){.data = NULL};
    o->flops = 3.0 * (double)s[0];
    o->bytes = 12.0 * (double)s[0];
    if (!dtype_is_narrow(o->narrow)) return;
    o->t[4] = case_vector(case_operand(o, 1, s[0]));
    o->bytes += 2.0 * (double)s[0];
    o->settle = adamw_settle;
}

status case_descend_run(const struct kernels *k, struct stream *stream,
                          struct operands *o)
{
    struct descent p = {.weight = o->t[0], .step = o->t[1], .rate = 1e-3,
                        .keep = 0.999};

    if (k->dtype != DTYPE_F32) p.copy = o->t[4];
    return k->descend(stream, &p);
}

/* Others, by what the case's second size says: 8-bit AdamW, Lion, SGD,
 * schedule-free. Any bits are codes. */
void case_update(struct operands *o, const int64_t *s)
{
    static const double bytes[] = {16, 20, 20, 28}; /* of an element */
    static const double flops[] = {13, 8, 7, 16};

    for (int i = 0; i < 4; i++)
        o->t[i] = case_vector(case_operand_real(o, 1, s[0]));
    make_second_moment(&o->t[2]);
    for (int i = 4; i < 6; i++)
        o->t[i] = case_vector(case_operand_real(o, 1, s[0] / UPDATE_BLOCK + 1));
    o->flops = flops[s[1]] * (double)s[0];
    o->bytes = bytes[s[1]] * (double)s[0];
}

static status update_run(const struct kernels *k, struct stream *stream,
                         struct operands *o, enum update_formula formula)
{
    struct element_update p = {
        .formula = formula, .weight = o->t[0], .gradient = o->t[3],
        .states = {{.values = o->t[1]}, {.values = o->t[2]}}, .scale = 0.5,
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
        .decay = 0.1, .correction1 = 0.5, .correction2 = 0.1, .share = 0.1};

    if (formula == UPDATE_ADAMW)
        for (int i = 0; i < 2; i++)
            p.states[i] = (struct element_state){
                tensor_1d(o->t[1 + i].data, DTYPE_U8,
                          tensor_count(&o->t[1 + i])),
                o->t[4 + i].data, i == 1};
    else if (formula != UPDATE_FREE)
        p.states[1].values.data = NULL;
    return k->update_elements(stream, &p);
}

status case_adamw8_run(const struct kernels *k, struct stream *stream,
                         struct operands *o)
{
    return update_run(k, stream, o, UPDATE_ADAMW);
}

status case_lion_run(const struct kernels *k, struct stream *stream,
                       struct operands *o)
{
    return update_run(k, stream, o, UPDATE_LION);
}

status case_free_run(const struct kernels *k, struct stream *stream,
                       struct operands *o)
{
    return update_run(k, stream, o, UPDATE_FREE);
}

/* New numbers, and behind them the old ones. */
void case_apart(struct operands *o, const int64_t *s)
{
    for (int i = 0; i < 3; i++)
        o->t[i] = case_vector(case_operand_real(o, 2, s[0]));
    o->t[3] = case_vector(case_operand_real(o, 1, s[0]));
    make_second_moment(&o->t[2]);
    o->flops = 13.0 * (double)s[0];
    o->bytes = 28.0 * (double)s[0];
}

status case_apart_run(const struct kernels *k, struct stream *stream,
                      struct operands *o)
{
    const int64_t count = tensor_count(&o->t[3]);
    struct range_sum sum = {o->t[0].data, 0};
    struct element_update p = {
        .formula = UPDATE_ADAMW, .gradient = o->t[3], .scale = 0.5,
        .weight = tensor_1d(o->t[0].data, DTYPE_F32, count),
        .states = {{.values = tensor_1d(o->t[1].data, DTYPE_F32, count)},
                   {.values = tensor_1d(o->t[2].data, DTYPE_F32, count)}},
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
        .decay = 0.1, .correction1 = 0.5, .correction2 = 0.1,
        .from = count * (int64_t)sizeof(float), .sum = &sum};

    return k->update_elements(stream, &p);
}
