/* SPDX-License-Identifier: Apache-2.0 */
/* apply.c - each parameter's optimizer does its step. */
#include "base/fault.h"
#include "optimizer/whole_tensors.h"

static bool has_elements(const struct update_item *item)
{
    return item->range.first < item->range.last;
}

static status apply_item(const struct update *update,
                         const struct update_item *item, const void *argument)
{
    (void)argument;
    return item->rule->kind->apply(update, item);
}

/* Kinds that see each weight alone have kernels that take split masters. */
static bool takes_split(const struct update_item *item)
{
    return item->rule->kind->apart && item->masters.first == 0;
}

static status apply(const struct update *update,
                    const struct update_item *item)
{
    if (takes_split(item)) return apply_item(update, item, NULL);
    return update_in_parts(update, item, WEIGHT_CHANGES, apply_item, NULL);
}

static status start_item(const struct update *update,
                         const struct update_item *item, const void *argument)
{
    (void)argument;
    return item->rule->kind->start(update, item);
}

status update_apply(const struct update *update, double factor, double lr,
                    int64_t t)
{
    const struct update_call call = {factor, lr, t};

    for (int i = update->first; i < update_end(update); i++) {
        const struct update_item item = update_item(update, i, &call);

        TRY(fault_point("update.item"));
        if (item.rule->frozen || item.rule->kind->apply == NULL) continue;
        if (has_elements(&item)) TRY(apply(update, &item));
    }
    if (update->whole == NULL) return OK;
    return whole_apply(update, &call);
}

status update_start(const struct update *update)
{
    const struct update_call call = {.factor = 1};

    for (int i = 0; i < update->params->count; i++) {
        const struct update_item item = update_item(update, i, &call);

        if (item.rule->frozen || item.rule->kind->start == NULL) continue;
        if (has_elements(&item))
            TRY(update_in_parts(update, &item, WEIGHT_READ, start_item, NULL));
    }
    return OK;
}

/* ---- averages ---- */

static bool has_average(const struct update_item *item)
{
    return !item->rule->frozen && item->rule->kind->average != NULL &&
           has_elements(item);
}

/* Trained weights wait in the place of the gradient. */
static status average_item(const struct update *update,
                           const struct update_item *item, const void *argument)
{
    (void)argument;
    TRY(update->kernels->scale(update->stream, item->gradient, item->weight,
                               1.0));
    return item->rule->kind->average(update, item);
}

static status return_item(const struct update *update,
                          const struct update_item *item, const void *argument)
{
    (void)argument;
    return update->kernels->scale(update->stream, item->weight, item->gradient,
                                  1.0);
}

status update_average(const struct update *update)
{
    const struct update_call call = {.factor = 1};

    for (int i = 0; i < update->params->count; i++) {
        const struct update_item item = update_item(update, i, &call);

        if (!has_average(&item)) continue;
        TRY(update_in_parts(update, &item, WEIGHT_CHANGES, average_item,
                            NULL));
    }
    return OK;
}

status update_return(const struct update *update)
{
    const struct update_call call = {.factor = 1};

    for (int i = 0; i < update->params->count; i++) {
        const struct update_item item = update_item(update, i, &call);

        if (!has_average(&item)) continue;
        TRY(update_in_parts(update, &item, WEIGHT_WRITTEN, return_item, NULL));
    }
    return OK;
}
