/* SPDX-License-Identifier: Apache-2.0 */
/* roundings.c - shares and ranges of a recipe's roundings in observed steps. */
#include "observe/roundings.h"

#include <math.h>

#include "base/log.h"
#include "nn/tallies.h"

const char *const rounding_names[ROUNDING_OPERANDS] = {
    "y.x", "y.w", "dx.dy", "dx.w", "dw.dy", "dw.x"};
_Static_assert(ROUNDING_OPERANDS == (int)LATE_USES * (int)LATE_OPERANDS,
               "a name for each operand");

/* Counts are made in observed steps alone, and in no evaluation. */
static void let_count(struct roundings *r, bool counts)
{
    for (int i = 0; i < r->pipeline->count; i++) {
        struct run *run = &r->pipeline->stages[i].run;

        /* Another batch of a ramp has another place for them. */
        if (run->counted.tallies != NULL) r->kept[i] = run->counted.tallies;
        run->counted.tallies = counts ? r->kept[i] : NULL;
        tallies_reset(run);
    }
}

status roundings_build(struct roundings *r, struct pipeline *pipeline)
{
    void *memory = NULL;

    r->pipeline = pipeline;
    r->count = pipeline_tally_values(pipeline) / 3;
    if (r->count == 0) return OK;
    TRY(memory_take(3 * (size_t)r->count, sizeof *r->sums, &memory));
    r->sums = memory;
    TRY(memory_take(3 * (size_t)r->count, sizeof *r->most, &memory));
    r->most = memory;
    TRY(memory_take((size_t)pipeline->count, sizeof *r->kept, &memory));
    r->kept = memory;
    let_count(r, false);
    return OK;
}

void roundings_free(struct roundings *r)
{
    memory_free(r->sums);
    memory_free(r->most);
    memory_free(r->kept);
    *r = (struct roundings){0};
}

void roundings_begin(struct roundings *r, bool looks)
{
    if (r->count > 0) let_count(r, looks);
}

bool roundings_get(const struct roundings *r, int param, int operand,
                   struct rounded_operand *out)
{
    const int64_t at = 3 * ((int64_t)param * ROUNDING_OPERANDS + operand);
    const double *sums = r->sums + at, *most = r->most + at;

    *out = (struct rounded_operand){0};
    if (r->count == 0 || sums[0] <= 0) return false;
    *out = (struct rounded_operand){sums[1] / sums[0], sums[2] / sums[0],
                                    most[0], -most[2], most[1]};
    return true;
}

void roundings_worst(const struct roundings *r, double *cut, double *zeroed)
{
    *cut = *zeroed = (double)NAN;
    for (int64_t i = 0; i < r->count; i++) {
        struct rounded_operand one;

        if (!roundings_get(r, (int)(i / ROUNDING_OPERANDS),
                           (int)(i % ROUNDING_OPERANDS), &one))
            continue;
        if (!(*cut >= one.cut)) *cut = one.cut;
        if (!(*zeroed >= one.zeroed)) *zeroed = one.zeroed;
    }
}

/* ---- comfort ---- */

static const struct precision_role *role_of(const struct roundings *r,
                                            int operand)
{
    const struct precision *p =
        &r->pipeline->stages[0].program.precision.recipe;
    const struct precision_role *const roles[ROUNDING_OPERANDS] = {
        &p->activations, &p->weights, &p->gradients, &p->weights,
        &p->gradients, &p->activations};

    return roles[operand];
}

/* Scales that are rounded down cut a few numbers off by their nature, and a
 * third of normal numbers become zero in three values. */
static double cut_most(const struct precision_role *role)
{
    return role->scale == SCALE_FLOOR || role->scale == SCALE_MEAN ? 0.1
                                                                   : 0.01;
}

static double zeroed_most(const struct precision_role *role)
{
    return role->format == FORMAT_TERNARY ? 0.8 : 0.5;
}

static void warn(struct roundings *r, bool zeroed, double share, int operand,
                 const char *name)
{
    const struct precision_role *role = role_of(r, operand);

    if (r->warned[zeroed]) return;
    r->warned[zeroed] = true;
    LOG(WARNING, "recipe", "%s, %s: %.1f%% of the elements %s %s (%s); %s",
        name, rounding_names[operand], 100 * share,
        zeroed ? "become 0 in" : "are larger than the largest number of",
        number_formats[role->format].name,
        r->pipeline->stages[0].program.precision.recipe.name,
        zeroed ? "smaller blocks, or another format, would keep them"
               : "scales rounded up, or smaller blocks, would keep them");
}

static void judge(struct roundings *r, const struct param_table *params)
{
    for (int i = 0; i < params->count; i++)
        for (int k = 0; k < ROUNDING_OPERANDS; k++) {
            const struct precision_role *role = role_of(r, k);
            struct rounded_operand one;

            if (!roundings_get(r, i, k, &one)) continue;
            if (one.cut > cut_most(role))
                warn(r, false, one.cut, k, params->items[i].name);
            if (one.zeroed > zeroed_most(role))
                warn(r, true, one.zeroed, k, params->items[i].name);
        }
}

status roundings_end(struct roundings *r, struct team *team,
                     const struct param_table *params)
{
    if (r->count == 0) return OK;
    TRY(pipeline_finish(r->pipeline));
    for (int64_t i = 0; i < 3 * r->count; i++) {
        r->sums[i] = 0;
        r->most[i] = -(double)INFINITY;
    }
    for (int i = 0; i < r->pipeline->count; i++)
        tallies_collect(&r->pipeline->stages[i].run, r->sums, r->most);
    let_count(r, false);
    TRY(team_join(team, r->sums, 3 * r->count));
    TRY(team_largest(team, r->most, 3 * r->count));
    if (team_rank(team) == 0) judge(r, params);
    return OK;
}
