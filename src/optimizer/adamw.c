/* SPDX-License-Identifier: Apache-2.0 */
/* adamw.c - Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2. */
#include "kernels/math.h"
#include "optimizer/update.h"

static status apply(const struct update *u, const struct update_item *item)
{
    const struct adamw call = {
        .weight = item->weight, .gradient = item->gradient,
        .m = item->states[0], .v = item->states[1], .scale = item->factor,
        .lr = item->lr, .beta1 = item->beta1, .beta2 = item->beta2,
        .epsilon = item->epsilon, .decay = item->decay,
        .correction1 = 1 - math_pow_int(item->beta1, item->t),
        .correction2 = 1 - math_pow_int(item->beta2, item->t),
        .copy = item->copy};

    return u->kernels->adamw(u->stream, &call);
}

const struct optimizer_kind optimizer_adamw = {
    .name = "adamw", .doc = "two moments of each weight",
    .states = {{.name = "m", .title = "first moments", .narrow = true},
               {.name = "v", .title = "second moments", .narrow = true,
                .positive = true}},
    .apply = apply};
