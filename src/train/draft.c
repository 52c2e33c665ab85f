/* SPDX-License-Identifier: Apache-2.0 */
/* draft.c - the plan of one rank: its memory and its messages. */
#include "train/draft.h"

#include "observe/observe.h"
#include "setup/ramp_plans.h"
#include "train/validation.h"

static status build(struct draft *draft, struct setup *setup, int rank,
                    bool alone)
{
    const int ranks = mesh_ranks(&setup->mesh);
    const struct options *o = &setup->set->values;
    int64_t values = validation_values(o);

    if (observe_values(o, ranks) > values) values = observe_values(o, ranks);
    setup_place(setup, rank);
    if (ranks > 1) TRY(ranks_imagine(&draft->world, ranks, rank));
    TRY(team_build(&draft->team, ranks > 1 ? &draft->world : NULL,
                   &setup->mesh, &setup->order, o->comm.limit));
    TRY((alone ? ramp_plan_alone(&draft->pipeline, setup, &draft->team, values)
               : ramp_plan(&draft->pipeline, setup, &draft->team, values)));
    exchanges_of(&draft->exchanges, &draft->pipeline);
    for (int i = 0; i < draft->exchanges.count; i++)
        if (draft->exchanges.items[i].bytes > INT64_MAX / 2)
            FAIL(ERR_CONFIG, "a step in which a rank sends more than 2^62 "
                             "bytes; set train.batch lower, or "
                             "train.micro_batch higher");
    return OK;
}

static status build_or_free(struct draft *draft, struct setup *setup, int rank,
                            bool alone)
{
    *draft = (struct draft){0};
    const status result = build(draft, setup, rank, alone);

    if (result == OK) return OK;
    draft_free(draft);
    return status_pass(result, __FILE__, __LINE__);
}

status draft_build(struct draft *draft, struct setup *setup, int rank)
{
    return build_or_free(draft, setup, rank, false);
}

status draft_build_alone(struct draft *draft, struct setup *setup, int rank)
{
    return build_or_free(draft, setup, rank, true);
}

void draft_free(struct draft *draft)
{
    pipeline_free(&draft->pipeline);
    team_free(&draft->team);
    if (draft->world.size > 0) group_free(&draft->world);
    *draft = (struct draft){0};
}
