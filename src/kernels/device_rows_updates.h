/* SPDX-License-Identifier: Apache-2.0 */
/* device_rows_updates.h - the part of device_rows.c that copies calls of the
 * optimizer. */
#ifndef LOCKSTEP_KERNELS_DEVICE_ROWS_UPDATES_H
#define LOCKSTEP_KERNELS_DEVICE_ROWS_UPDATES_H

static struct adamw adamw_of(const struct launch *l, const struct adamw *call)
{
    struct adamw copy = *call;

    copy.weight = tensor(l, call->weight);
    copy.m = tensor(l, call->m);
    copy.v = tensor(l, call->v);
    copy.gradient = tensor(l, call->gradient);
    copy.copy = maybe(l, call->copy);
    return copy;
}

static struct masters masters_of(const struct launch *l,
                                 const struct masters *call)
{
    struct masters copy = *call;

    copy.values = maybe(l, call->values);
    copy.weights = tensor(l, call->weights);
    copy.lower = tensor(l, call->lower);
    copy.ties = tensor(l, call->ties);
    return copy;
}

static struct element_update update_of(const struct launch *l,
                                       const struct element_update *call)
{
    struct element_update copy = *call;

    copy.weight = maybe(l, call->weight);
    if (call->masters.weights.data != NULL)
        copy.masters = masters_of(l, &call->masters);
    copy.gradient = maybe(l, call->gradient);
    copy.copy = maybe(l, call->copy);
    for (int i = 0; i < UPDATE_STATES; i++) {
        copy.states[i].values = maybe(l, call->states[i].values);
        copy.states[i].scales = where(l, call->states[i].scales);
    }
    return copy;
}

static struct factored factored_of(const struct launch *l,
                                   const struct factored *call)
{
    struct factored copy = *call;

    copy.x = tensor(l, call->x);
    copy.weights = tensor(l, call->weights);
    copy.row = tensor(l, call->row);
    copy.col = maybe(l, call->col);
    copy.row_sums = where(l, call->row_sums);
    copy.col_sums = where(l, call->col_sums);
    copy.blocks = where(l, call->blocks);
    return copy;
}

static struct turned turned_of(const struct launch *l,
                               const struct turned *call)
{
    struct turned copy = *call;

    copy.x = tensor(l, call->x);
    copy.v = tensor(l, call->v);
    copy.m = maybe(l, call->m);
    copy.gradient = maybe(l, call->gradient);
    return copy;
}

static struct descent descent_of(const struct launch *l,
                                 const struct descent *call)
{
    struct descent copy = *call;

    copy.weight = tensor(l, call->weight);
    copy.step = tensor(l, call->step);
    copy.copy = maybe(l, call->copy);
    return copy;
}

#endif
