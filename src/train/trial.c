/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c - a few steps of a configuration under one layout, kept in memory.
 */
#include "train/trial.h"

#include <string.h>

#include "train/audit.h"
#include "train/feed.h"
#include "train/session.h"

struct rank_trial {
    struct trial *out;
    const struct options_set *set;
    int ranks;
    struct setup setup;
    struct stage stage;
    struct feed feed;
    struct train_step step;
    struct team team;
};

/* The whole arena, on every rank. */
static status collect(struct rank_trial *t, const struct update_arena *arena,
                      void **out)
{
    const struct program *p = &t->stage.program;

    TRY(memory_take((size_t)p->params.elements, (size_t)dtype_bytes(p->dtype),
                    out));
    return zero_collect(&t->step.zero, arena, *out);
}

/* What rank 0 found. */
static status keep(struct rank_trial *t)
{
    struct trial *out = t->out;
    void *weights = NULL, *gradients = NULL;
    status result;

    TRY_GOTO(done, result, collect(t, &t->step.update.weights, &weights));
    TRY_GOTO(done, result, collect(t, &t->step.update.gradients,
                                   &gradients));
    if (team_rank(&t->team) == 0) {
        out->elements = t->stage.program.params.elements;
        out->dtype = t->stage.program.dtype;
        out->memory_bytes = t->stage.bytes;
        out->weights = weights;
        out->gradients = gradients;
        weights = gradients = NULL;
    }
done:
    memory_free(weights);
    memory_free(gradients);
    return result;
}

static status start(struct rank_trial *t)
{
    const struct options *o = &t->set->values;

    return session_start_weights(&t->stage, &t->setup.model, o->init.from,
                                 (uint64_t)o->seed);
}

static status open_trial(struct rank_trial *t, struct group *world)
{
    const bool leads = world == NULL || world->rank == 0;
    const char *cache = t->set->values.data.cache;

    TRY(setup_resolve(&t->setup, t->set, t->ranks,
                      world == NULL ? 0 : world->rank));
    TRY(team_build(&t->team, world, &t->setup.mesh, &t->setup.order,
                   t->set->values.comm.limit));
    TRY(stage_plan(&t->stage, &t->setup.request));
    stage_reserve_messages(&t->stage,
                           train_step_scratch(&t->stage, &t->team, 1));
    /* rank 0 makes the token file, the others find it */
    TRY(team_agree(&t->team,
                   leads ? feed_open(&t->feed, &t->setup, cache) : OK));
    if (!leads) TRY(feed_open(&t->feed, &t->setup, cache));
    TRY(setup_length(&t->setup, t->feed.samples));
    TRY(stage_open(&t->stage));
    team_use_scratch(&t->team, t->stage.memory[MEMORY_MESSAGES].data,
                     t->stage.memory[MEMORY_MESSAGES].bytes);
    TRY(train_step_build(&t->step, &t->stage, "1f1b"));
    train_step_join(&t->step, &t->team);
    setup_update(&t->setup, &t->step.update);
    return team_agree(&t->team, start(t));
}

static status train_steps(struct rank_trial *t)
{
    const int64_t batch = t->set->values.train.batch;
    struct exchanges plan;

    exchanges_of(&plan, &t->stage);
    audit_begin(&t->team);
    for (int64_t i = 0; i < t->out->steps; i++) {
        const struct sample_source source = feed_train(&t->feed, i * batch);
        struct step_result result;

        TRY(train_step_run(&t->step, &source, rate_at(&t->setup.rate, i),
                           i + 1, &result));
        if (team_rank(&t->team) == 0) t->out->losses[i] = result.loss;
    }
    return audit_traffic(&t->team, &plan, t->out->steps);
}

static status rank_body(void *argument, struct group *world)
{
    struct rank_trial t = *(struct rank_trial *)argument;
    status result;

    t.team.world = world;
    TRY_GOTO(done, result, open_trial(&t, world));
    TRY_GOTO(done, result, train_steps(&t));
    TRY_GOTO(done, result, keep(&t));
done:
    team_free(&t.team);
    train_step_free(&t.step);
    feed_close(&t.feed);
    stage_free(&t.stage);
    setup_free(&t.setup);
    return result;
}

status trial_run(struct trial *trial, const struct options_set *set,
                 int ranks, int64_t steps)
{
    struct rank_trial t = {.out = trial, .set = set, .ranks = ranks};
    void *losses = NULL;

    *trial = (struct trial){.steps = steps};
    TRY(memory_take((size_t)steps, sizeof(double), &losses));
    trial->losses = losses;
    if (ranks == 1) return rank_body(&t, NULL);
    return ranks_run(ranks, rank_body, &t);
}

void trial_free(struct trial *trial)
{
    memory_free(trial->losses);
    memory_free(trial->weights);
    memory_free(trial->gradients);
    *trial = (struct trial){0};
}

static double distance(const struct trial *trial, void *one, void *other,
                       bool *exact)
{
    const struct tensor a = tensor_1d(other, trial->dtype, trial->elements);
    const struct tensor b = tensor_1d(one, trial->dtype, trial->elements);
    struct tensor_difference difference;

    tensor_compare(&a, &b, &difference);
    if (difference.count > 0) *exact = false;
    return difference.max_scale > 0 ? difference.max_abs / difference.max_scale
                                    : difference.max_abs;
}

void trial_compare(const struct trial *one, const struct trial *other,
                   struct trial_difference *out)
{
    double scale = 0;

    *out = (struct trial_difference){.exact = true};
    for (int64_t i = 0; i < one->steps; i++) {
        const double d = one->losses[i] - other->losses[i];

        if (d != 0) out->exact = false;
        if (d > out->loss) out->loss = d;
        if (-d > out->loss) out->loss = -d;
        if (one->losses[i] > scale) scale = one->losses[i];
    }
    if (scale > 0) out->loss /= scale;
    out->gradients = distance(one, one->gradients, other->gradients,
                              &out->exact);
    out->weights = distance(one, one->weights, other->weights, &out->exact);
}
