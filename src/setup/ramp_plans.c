/* SPDX-License-Identifier: Apache-2.0 */
/* ramp_plans.c - one plan for a run whose batch changes. */
#include "setup/ramp_plans.h"

#include "step/trace.h"

status ramp_plan_alone(struct pipeline *pipeline, const struct setup *setup,
                       struct team *team, int64_t values)
{
    const struct pipeline_request request = setup_pipeline(setup);

    TRY(pipeline_plan(pipeline, &request));
    if (team->copies == NULL) TRY(team_add_chunks(team, pipeline));
    const int64_t traced = trace_values(&pipeline->schedule);

    pipeline_reserve_ahead(pipeline);
    train_step_reserve(pipeline, team, values > traced ? values : traced);
    return OK;
}

/* Room for another batch too. */
static status add_room(struct pipeline *pipeline, struct setup *setup,
                       struct team *team, int64_t values, int64_t batch)
{
    struct pipeline other = {0};
    status result;

    TRY(setup_use_batch(setup, batch));
    TRY_GOTO(done, result,
             ramp_plan_alone(&other, setup, team, values));
    result = pipeline_reserve_as(pipeline, &other);
done:
    pipeline_free(&other);
    return result;
}

status ramp_plan(struct pipeline *pipeline, struct setup *setup,
                 struct team *team, int64_t values)
{
    const struct ramp *ramp = &setup->ramp;
    const int64_t batch = setup->batch;

    TRY(ramp_plan_alone(pipeline, setup, team, values));
    if (!ramp_changes(ramp)) return OK;
    for (int i = 0; i < ramp->count; i++)
        if (ramp->rows[i].batch != batch)
            TRY(add_room(pipeline, setup, team, values, ramp->rows[i].batch));
    return setup_use_batch(setup, batch);
}

status ramp_switch(struct pipeline *pipeline, struct train_step *step,
                   struct setup *setup, int64_t batch)
{
    const struct train_step before = *step; /* what it owns is freed */
    struct delayed delayed = {0};
    struct routing routing = {0};
    struct pipeline next = {0};
    struct team *team = step->team;
    status result;

    TRY(setup_use_batch(setup, batch));
    TRY_GOTO(done, result, ramp_plan_alone(&next, setup, team, 1));
    delayed = step->delayed;
    routing = step->routing;
    step->delayed = (struct delayed){0};
    step->routing = (struct routing){0};
    train_step_free(step);
    TRY_GOTO(done, result, pipeline_take_over(pipeline, &next));
    TRY_GOTO(done, result, train_step_build(step, pipeline, team));
    setup_update(setup, &step->update);
    delayed_take(&step->delayed, &delayed);
    routing_take(&step->routing, &routing);
    step->rates = before.rates;
    step->scaling = before.scaling;
    step->guard = before.guard;
    step->watch = before.watch;
done:
    delayed_free(&delayed);
    routing_free(&routing);
    pipeline_free(&next);
    return result;
}
