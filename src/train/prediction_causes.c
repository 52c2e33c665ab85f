/* SPDX-License-Identifier: Apache-2.0 */
/* prediction_causes.c - the predicted step and the measured one, cause by
 * cause. */
#include "train/prediction_causes.h"

enum { PRODUCTS, ATTENTION, MEMORY, UPDATE, WAITS, OTHER };

static const char *const names[REPORT_CAUSES] = {
    "products", "attention", "memory-bound", "update", "messages and waiting",
    "other"};

/* Which of them a kind of spans is. */
static int of_kind(enum meter_kind kind)
{
    static const int causes[METER_KINDS] = {
        [METER_MATMUL] = PRODUCTS, [METER_ATTENTION] = ATTENTION,
        [METER_MEMORY] = MEMORY, [METER_OPTIMIZER] = UPDATE,
        [METER_MESSAGES] = WAITS, [METER_IDLE] = WAITS,
        [METER_DATA] = OTHER, [METER_OTHER] = OTHER};

    return causes[kind];
}

/* The cause that one of the planner belongs to, in an item. Everything after
 * the mean of the gradients is the update's. */
static int of_cause(enum step_item item, int cause)
{
    if (cause >= CAUSE_TENSOR) return WAITS;
    if (item == ITEM_NORM || item == ITEM_UPDATE) return UPDATE;
    switch (cause) {
    case CAUSE_PRODUCT: return PRODUCTS;
    case CAUSE_ATTENTION: return ATTENTION;
    case CAUSE_UPDATE: return UPDATE;
    case CAUSE_HOST: return OTHER;
    default: return MEMORY; /* roundings and small kernels, too */
    }
}

/* Adds up the work of the rank itself; the rest of the step it waits. */
static void add_predicted(const struct steps *steps, double step_s, double *ms)
{
    const struct timed_list *list = &steps->lists.lists[0];
    double waits = step_s;

    for (int i = 0; i < list->count; i++) {
        const struct timed *t = &list->items[i];
        const struct spent *span = &steps->spans[t->kind];
        const double whole = spent_seconds(span);

        if ((t->resource != CLOCK_COMPUTE && t->resource != CLOCK_HOST) ||
            whole <= 0)
            continue;
        for (int c = 0; c < CAUSES; c++) {
            const int cause = of_cause(steps->items[t->kind], c);
            const double s = (t->end - t->begin) * span->seconds[c] / whole;

            if (cause == WAITS) continue;
            ms[cause] += 1e3 * s;
            waits -= s;
        }
    }
    ms[WAITS] = waits > 0 ? 1e3 * waits : 0;
}

void prediction_causes(const struct steps *steps, double step_s,
                       const struct profile *profile,
                       struct report_prediction *out)
{
    double predicted[REPORT_CAUSES] = {0}, measured[REPORT_CAUSES] = {0};

    out->cause_count = 0;
    if (profile == NULL || steps->lists.ranks < 1 || profile->step_ms <= 0)
        return;
    add_predicted(steps, step_s, predicted);
    measured[OTHER] = profile->step_ms;
    for (int i = 0; i < profile->count; i++) {
        const int cause = of_kind(profile->rows[i].kind);

        if (cause == OTHER) continue;
        measured[cause] += profile->rows[i].ms;
        measured[OTHER] -= profile->rows[i].ms;
    }
    for (int i = 0; i < REPORT_CAUSES; i++)
        if (predicted[i] > 0 || measured[i] > 0)
            out->causes[out->cause_count++] = (struct report_cause){
                names[i], measured[i] > 0 ? measured[i] : 0, predicted[i]};
}
