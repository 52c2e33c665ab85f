/* SPDX-License-Identifier: Apache-2.0 */
/* average.c - an exponential moving average of the weights. */
#include "optimizer/average.h"

static status move(const struct update *u, const struct update_item *item,
                   const void *argument)
{
    const struct tensor average = item->states[STATE_AVERAGE];

    (void)argument;
    return u->kernels->update_elements(u->stream, &(struct element_update){
        .formula = UPDATE_AVERAGE, .weight = average, .gradient = item->weight,
        .states = {{.values = item->weight}}, .scale = 1,
        .share = 1 - item->rule->average, .from = u->from, .sum = u->sum});
}

static status start(const struct update *u, const struct update_item *item,
                    const void *argument)
{
    (void)argument;
    return u->kernels->scale(u->stream, item->states[STATE_AVERAGE],
                             item->weight, 1.0);
}

enum { AT_ONCE = 32768 }; /* bytes that the host has of each */

/* Not in a step: by copies on the host. */
static status swap(const struct update *u, const struct update_item *item,
                   const void *argument)
{
    const struct tensor average = item->states[STATE_AVERAGE];
    const size_t all = (size_t)tensor_bytes(&average);
    char copies[2][AT_ONCE];

    (void)argument;
    for (size_t at = 0; at < all; at += AT_ONCE) {
        const size_t bytes = all - at < AT_ONCE ? all - at : AT_ONCE;
        char *const a = (char *)average.data + at;
        char *const w = (char *)item->weight.data + at;
        const struct device_bytes both[] = {{copies[0], a, bytes},
                                            {copies[1], w, bytes}};

        TRY(device_read_all(u->stream, both, 2));
        TRY(device_write(u->stream, a, copies[1], bytes));
        TRY(device_write(u->stream, w, copies[0], bytes));
    }
    return OK;
}

static status each(const struct update *u, enum weight_use use,
                   update_work *work)
{
    const struct update_call call = {.factor = 1};

    for (int i = u->first; i < update_end(u); i++) {
        const struct update_item item = update_item(u, i, &call);
        const struct tensor *average = &item.states[STATE_AVERAGE];

        if (item.range.first == item.range.last || average->data == NULL)
            continue;
        CHECK(average->dtype == dtype_real(u->kernels->dtype) &&
              average->shape[0] == item.range.last - item.range.first);
        TRY(update_in_parts(u, &item, use, work, NULL));
    }
    return OK;
}

status average_apply(const struct update *update)
{
    return each(update, WEIGHT_READ, move);
}

status average_start(const struct update *update)
{
    return each(update, WEIGHT_READ, start);
}

status average_swap(const struct update *update)
{
    TRY(each(update, WEIGHT_CHANGES, swap));
    return update_copy(update);
}
