/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_free.c - AdamW without a schedule, by an average that is not kept.
 * Source: Defazio et al. 2024, arXiv:2405.15682, algorithm 1.
 *
 *   z  what is stepped: z' = z - lr (g / (sqrt v + epsilon) + decay y)
 *   x  its weighted average: x' = (1 - c) x + c z', c = lr^2 / sum of lr^2
 *   y  what is trained, where gradients are taken: (1 - beta1) z + beta1 x
 *
 * Weights are y, and z is a state; x = y + (1 - 1 / beta1) (z - y) when it is
 * asked for. So a step computes y' without x. */
#include "optimizer/update.h"

double rate_share(struct rate_sum *sum, double lr)
{
    if (lr > sum->most) sum->most = lr;
    sum->sum += sum->most * sum->most;
    return sum->sum > 0 ? sum->most * sum->most / sum->sum : 0;
}

static status start(const struct update *u, const struct update_item *item)
{
    return u->kernels->scale(u->stream, item->states[0], item->weight, 1.0);
}

static status apply(const struct update *u, const struct update_item *item)
{
    struct element_update call = {.formula = UPDATE_FREE, .share = u->share};

    return update_elements(u, item, &call);
}

static status average(const struct update *u, const struct update_item *item)
{
    const struct element_update call = {
        .formula = UPDATE_TOWARDS, .weight = item->weight,
        .gradient = item->gradient, .states = {{.values = item->states[0]}},
        .share = 1 - 1 / item->beta1};

    return u->kernels->update_elements(u->stream, &call);
}

const struct optimizer_kind optimizer_schedule_free = {
    .name = "schedule_free", .doc = "AdamW with an average instead of a "
                                    "schedule",
    .states = {{.name = "z", .title = "stepped weights"},
               {.name = "v", .title = "second moments"},
               {.name = "y", .shape = STATE_KEPT}},
    .apart = true, .start = start, .apply = apply, .average = average};
