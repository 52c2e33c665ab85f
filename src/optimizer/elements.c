/* SPDX-License-Identifier: Apache-2.0 */
/* elements.c - optimizers that see each weight alone: AdamW, Lion, SGD. */
#include "kernels/math.h"
#include "optimizer/update.h"

/* Blocks of 8-bit states are those of leaves: a call for each. */
static status step_leaves(const struct update *u,
                          const struct update_item *item,
                          const struct element_update *all)
{
    struct held_cursor c = {.param = item->param, .holding = u->holding,
                            .range = &item->range};

    while (held_next(&c)) {
        const int64_t elements = c.now.rows * c.now.count;
        struct element_update call = *all;

        call.weight = held_view(&c, item->weight);
        call.gradient = held_view(&c, item->gradient);
        if (item->copy.data != NULL) call.copy = held_view(&c, item->copy);
        for (int k = 0; k < UPDATE_STATES; k++) {
            struct element_state *state = &call.states[k];
            struct tensor *values = &state->values;

            if (values->data == NULL) continue;
            CHECK(values->dtype == DTYPE_U8);
            CHECK(c.now.at + elements <= values->shape[0]);
            *values = tensor_1d((char *)values->data + c.now.at, DTYPE_U8,
                                elements);
            state->scales += c.now.blocks;
        }
        TRY(u->kernels->update_elements(u->stream, &call));
    }
    return OK;
}

/* Whether kernels are to read split masters, not numbers. */
static bool is_split(const struct update_item *item)
{
    return item->masters.weights.data != NULL && item->weight.data == NULL;
}

status update_elements(const struct update *u, const struct update_item *item,
                       struct element_update *call)
{
    bool coded = false;

    call->weight = item->weight;
    call->gradient = item->gradient;
    call->copy = item->copy;
    if (is_split(item)) call->masters = item->masters;
    call->scale = item->factor;
    call->lr = item->lr;
    call->beta1 = item->beta1;
    call->beta2 = item->beta2;
    call->epsilon = item->epsilon;
    call->decay = item->decay;
    call->from = item->from;
    call->sum = item->sum;
    call->correction1 = 1 - math_pow_int(item->beta1, item->t);
    call->correction2 = 1 - math_pow_int(item->beta2, item->t);
    for (int k = 0; k < UPDATE_STATES; k++) {
        call->states[k] = (struct element_state){
            item->states[k], item->scales[k],
            item->rule->kind->states[k].positive};
        coded = coded || item->scales[k] != NULL;
    }
    if (coded) return step_leaves(u, item, call);
    return u->kernels->update_elements(u->stream, call);
}

/* ---- kinds ---- */

/* Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2. Moments of
 * float32 have a row of their own. */
static status apply_adamw(const struct update *u,
                          const struct update_item *item)
{
    const struct adamw call = {
        .weight = item->weight, .gradient = item->gradient,
        .m = item->states[0], .v = item->states[1], .scale = item->factor,
        .lr = item->lr, .beta1 = item->beta1, .beta2 = item->beta2,
        .epsilon = item->epsilon, .decay = item->decay,
        .correction1 = 1 - math_pow_int(item->beta1, item->t),
        .correction2 = 1 - math_pow_int(item->beta2, item->t),
        .copy = item->copy};
    struct element_update narrow = {.formula = UPDATE_ADAMW};

    if (call.m.dtype != u->layout->real || item->from != 0 ||
        item->sum != NULL || is_split(item))
        return update_elements(u, item, &narrow);
    return u->kernels->adamw(u->stream, &call);
}

const struct optimizer_kind optimizer_adamw = {
    .name = "adamw", .doc = "two moments of each weight",
    .states = {{.name = "m", .title = "first moments", .narrow = true},
               {.name = "v", .title = "second moments", .narrow = true,
                .positive = true}},
    .apart = true, .apply = apply_adamw};

/* Chen et al. 2023, arXiv:2302.06675, program 1. */
static status apply_lion(const struct update *u,
                         const struct update_item *item)
{
    struct element_update call = {.formula = UPDATE_LION};

    return update_elements(u, item, &call);
}

const struct optimizer_kind optimizer_lion = {
    .name = "lion", .doc = "steps of one size, along the sign of a momentum",
    .states = {{.name = "m", .title = "momentum", .narrow = true}},
    .apart = true, .apply = apply_lion};

/* Nesterov's momentum in the form of Sutskever et al. 2013, section 2, decay
 * added to the gradient: torch.optim.SGD with nesterov=True. */
static status apply_sgd(const struct update *u,
                        const struct update_item *item)
{
    struct element_update call = {.formula = UPDATE_SGD};

    return update_elements(u, item, &call);
}

const struct optimizer_kind optimizer_sgd = {
    .name = "sgd", .doc = "Nesterov momentum",
    .states = {{.name = "momentum", .title = "momentum", .narrow = true}},
    .rates = RATES_SGD, .apart = true, .apply = apply_sgd};
