/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - the integers of mixtures of experts: counts, capacity, groups,
 * and the order in which the rows of a token are added. */
#include <math.h>
#include <string.h>
#include "kernels/expert_index.h"

status router_form_check(const struct router_form *form)
{
    const int groups = form->groups > 1 ? form->groups : 1;
    const int chosen = groups > 1 ? form->groups_chosen : 1;

    if (form->experts < 1 || form->experts > EXPERTS_MAX)
        FAIL(ERR_CONFIG, "a router of %d experts: expected 1 to %d",
             form->experts, EXPERTS_MAX);
    if (form->choices < 1 || form->choices > form->experts ||
        form->choices > CHOICES_MAX)
        FAIL(ERR_CONFIG,
             "%d experts for each token of %d: expected 1 to %d",
             form->choices, form->experts,
             form->experts < CHOICES_MAX ? form->experts : CHOICES_MAX);
    if (form->score == ROUTER_NEAR && !(form->near > 0 && form->near <= 2))
        FAIL(ERR_CONFIG, "router_jitter_noise: %g; expected more than 0, up "
                         "to 1", form->near / 2);
    if (form->experts % groups != 0)
        FAIL(ERR_CONFIG, "%d groups do not divide %d experts", groups,
             form->experts);
    if (chosen < 1 || chosen > groups)
        FAIL(ERR_CONFIG, "%d groups for each token of %d: expected 1 to %d",
             chosen, groups, groups);
    if (form->choices > chosen * (form->experts / groups))
        FAIL(ERR_CONFIG, "%d experts for each token, but %d of %d groups have "
             "%d together", form->choices, chosen, groups,
             chosen * (form->experts / groups));
    if (groups > 1 && form->group == ROUTER_GROUP_TOP2 &&
        form->experts / groups < 2)
        FAIL(ERR_CONFIG, "%d groups of %d experts have one each: the sum of a "
             "group's two largest scores needs two", groups, form->experts);
    return OK;
}

/* A dropped choice keeps its expert. */
static int32_t chosen_expert(int32_t chosen)
{
    return chosen < 0 ? -1 - chosen : chosen;
}

static bool token_counts(const struct router_tokens *of, int64_t token)
{
    return of->mask == NULL || of->mask[token] >= 0;
}

void router_count(const struct router_tokens *of, int64_t *counts)
{
    for (int64_t t = of->first; t < of->first + of->tokens; t++) {
        const int32_t *chosen = of->chosen + t * of->choices;

        for (int i = 0; i < of->choices && token_counts(of, t); i++)
            counts[chosen_expert(chosen[i])]++;
    }
}

void router_balance(const struct router_balance *of, double *weights)
{
    const int devices = of->devices > 1 ? of->devices : 1;
    const int each = of->experts / devices;
    int64_t total = 0;

    CHECK(of->experts % devices == 0);
    for (int i = 0; i < of->experts; i++) total += of->counts[i];
    for (int i = 0; i < of->experts; i++)
        weights[i] = total == 0 ? 0
                                : (double)of->experts *
                                      (double)of->counts[i] / (double)total;
    for (int d = 0; d < devices; d++) {
        double *f = weights + d * each, mean = 0;

        for (int i = 0; i < each; i++) mean += f[i];
        mean = mean / each;
        for (int i = 0; i < each; i++)
            f[i] = of->alpha * f[i] + of->alpha_device * mean;
    }
}

int64_t router_drop(const struct router_tokens *of, int32_t *chosen,
                    int64_t capacity, int64_t *used)
{
    int64_t dropped = 0;

    for (int64_t i = of->first * of->choices;
         i < (of->first + of->tokens) * of->choices; i++) {
        const int32_t expert = chosen_expert(of->chosen[i]);

        chosen[i] = used[expert] < capacity ? expert : -1 - expert;
        if (used[expert] < capacity) used[expert]++;
        else dropped++;
    }
    return dropped;
}

void expert_groups_make(const struct router_tokens *of, int first, int experts,
                        const struct expert_lists *out)
{
    const int64_t begin = of->first * of->choices;
    const int64_t count = of->tokens * of->choices;
    const int32_t *chosen = of->chosen + begin;
    int32_t *next = out->offsets + 1; /* of expert e: next[e - 1] meanwhile */

    memset(out->offsets, 0, sizeof *out->offsets * ((size_t)experts + 1));
    for (int64_t i = 0; i < count; i++)
        if (chosen[i] >= first && chosen[i] < first + experts)
            next[chosen[i] - first]++;
    for (int e = 0; e < experts; e++) next[e] += out->offsets[e];
    /* next[e] is the end of expert e; from the last entry back to the first. */
    for (int64_t i = count - 1; i >= 0; i--) {
        out->places[i] = -1;
        if (chosen[i] < first || chosen[i] >= first + experts) continue;
        out->places[i] = --next[chosen[i] - first];
        out->entries[out->places[i]] = (int32_t)i;
    }
    /* Each is its expert's beginning now. */
    for (int e = 0; e < experts; e++) out->offsets[e] = next[e];
    out->offsets[experts] = 0;
    for (int64_t i = 0; i < count; i++)
        if (out->places[i] >= 0) out->offsets[experts]++;
}

void experts_combine_check(const struct experts_combine *p)
{
    CHECK(p->choices >= 1 && p->choices <= CHOICES_MAX);
    CHECK(p->leaf_experts >= 1 && p->y.stride[1] == 1);
    CHECK(p->rows.stride[1] == 1 && p->rows.shape[1] == p->y.shape[1]);
    if (p->left)
        CHECK(p->left->shape[0] == p->y.shape[0] && p->left->stride[1] == 1);
}

void expert_groups_check(const struct expert_groups *groups)
{
    CHECK(groups->experts >= 1 && groups->choices >= 1);
    CHECK(groups->offsets[0] >= 0);
    for (int e = 0; e < groups->experts; e++)
        CHECK(groups->offsets[e] <= groups->offsets[e + 1]);
}

void expert_rows_check(const struct expert_groups *groups,
                       const struct expert_rows *rows, enum dtype dtype)
{
    CHECK(rows->matrix.dtype == dtype && rows->matrix.stride[1] == 1);
    CHECK(rows->gathered ||
          rows->matrix.shape[0] >= groups->offsets[groups->experts]);
}
