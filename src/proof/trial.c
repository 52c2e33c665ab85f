/* SPDX-License-Identifier: Apache-2.0 */
/* trial.c - a few steps of a configuration under one layout, kept in memory.
 */
#include "proof/trial.h"

#include <math.h>
#include <string.h>

#include "inference/session.h"
#include "nn/row_codes.h"
#include "proof/audit.h"
#include "setup/cores.h"
#include "setup/hosts.h"
#include "setup/ramp_plans.h"
#include "tokenizer/run_tokenizer.h"
#include "train/checks.h"
#include "train/feed.h"

struct rank_trial {
    struct trial *out;
    const struct options_set *set;
    int ranks;
    struct run_tokenizer tokenizer;
    struct setup setup;
    struct pipeline pipeline;
    struct feed feed;
    struct train_step step;
    struct team team;
    struct inventory inventory;
    const struct trial_observer *observer; /* NULL: nobody */
    int64_t allocations; /* before the first step */
    struct exchanges plan;  /* of a step with the batch of now */
    int64_t asked;       /* steps; those of further batches follow */
    struct exchange_steps since; /* the batch changed */
};

static bool leads(const struct rank_trial *t)
{
    return team_rank(&t->team) == 0;
}

/* ---- beginning ---- */

static status plan(struct rank_trial *t, struct group *world)
{
    struct hosts_found hosts;

    TRY(run_tokenizer_read(&t->tokenizer, &t->set->values));
    TRY(setup_resolve(&t->setup, t->set, &t->tokenizer.vocabulary, t->ranks,
                      world == NULL ? 0 : world->rank));
    TRY(checks_run(&t->setup, run_tokenizer_of(&t->tokenizer)));
    TRY(hosts_find(world, &hosts));
    TRY(setup_use_node(&t->setup, hosts.node));
    t->setup.request.machine.local_rank = hosts.local_rank;
    TRY(cores_share(world, (int)t->set->values.train.threads,
                    &t->setup.request.machine.threads));
    TRY(team_build(&t->team, world, &t->setup.mesh, &t->setup.order,
                   t->set->values.comm.limit));
    return ramp_plan(&t->pipeline, &t->setup, &t->team, 1);
}

static status open_stage(struct rank_trial *t)
{
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};
    const struct options *o = &t->set->values;

    TRY(pipeline_open(&t->pipeline));
    const struct memory_row *rows = t->pipeline.stages[0].memory;

    team_use_scratch(&t->team, rows[MEMORY_MESSAGES].data,
                     rows[MEMORY_MESSAGES].bytes);
    TRY(team_use_library(&t->team, o->comm.library,
                         t->pipeline.stages[0].device));
    TRY(train_step_build(&t->step, &t->pipeline, &t->team));
    setup_update(&t->setup, &t->step.update);
    t->step.scaling = t->setup.scaling;
    TRY(inventory_build(&t->inventory, &of));
    TRY(session_start_weights(&of, o->init.from, (uint64_t)o->seed));
    TRY(train_step_start(&t->step));
    return train_step_refresh(&t->step);
}

static status open_feed(struct rank_trial *t)
{
    return feed_open(&t->feed, &t->setup, run_tokenizer_of(&t->tokenizer),
                     t->set->values.data.cache);
}

static status open_trial(struct rank_trial *t, struct group *world)
{
    TRY(plan(t, world));
    /* rank 0 makes the token file, the others find it */
    TRY(team_agree(&t->team, leads(t) ? open_feed(t) : OK));
    if (!leads(t)) TRY(open_feed(t));
    TRY(setup_length(&t->setup, t->feed.samples));
    if (leads(t)) {
        t->out->warmup = t->set->values.optimizer.warmup;
        t->out->length = t->setup.rate.steps;
    }
    return team_agree(&t->team, open_stage(t));
}

/* ---- the steps ---- */

static status observe(struct rank_trial *t, int64_t done)
{
    const struct sample_source source = feed_train(&t->feed, 0);

    if (t->observer == NULL) return OK;
    return t->observer->look(t->observer->argument, &t->step, &source, done);
}

/* Adds what rows of experts have sent by the choices of tokens, or takes it
 * away. */
static void add_routed(struct rank_trial *t, int sign)
{
    for (int i = 0; i < t->pipeline.count; i++) {
        const struct run *run = &t->pipeline.stages[i].run;

        t->since.routed_calls += sign * run->counted.routed.calls;
        t->since.routed_bytes += sign * run->counted.routed.bytes;
        t->since.routed_between += sign * run->counted.routed.between;
    }
}

/* Messages are counted for each batch. */
static void begin_batch(struct rank_trial *t)
{
    exchanges_of(&t->plan, &t->pipeline);
    t->since = (struct exchange_steps){0};
    add_routed(t, -1);
    audit_begin(&t->team);
}

static status end_batch(struct rank_trial *t)
{
    if (t->since.made == 0) return OK;
    if (leads(t)) t->out->batches++;
    add_routed(t, 1);
    return team_agree(&t->team,
                      audit_traffic(&t->team, &t->plan, &t->since));
}

/* Memory taken for another batch of a ramp is not part of a step. The count
 * includes all rank threads, so every rank waits until all have it. */
static status use_batch(struct rank_trial *t, int64_t batch)
{
    if (batch == t->setup.batch) return OK;
    TRY(end_batch(t));
    TRY(team_agree(&t->team, OK));
    const int64_t before = arena_allocations();

    TRY(team_agree(&t->team, OK));
    inventory_free(&t->inventory);
    TRY(ramp_switch(&t->pipeline, &t->step, &t->setup, batch));
    const struct inventory_of of = {t->pipeline.stages, t->pipeline.count,
                                    &t->team};

    TRY(inventory_build(&t->inventory, &of));
    begin_batch(t);
    TRY(team_agree(&t->team, OK));
    t->allocations += arena_allocations() - before;
    return team_agree(&t->team, OK);
}

static status train_steps(struct rank_trial *t)
{
    const struct ramp *ramp = &t->setup.ramp;
    int64_t samples = 0;

    for (int64_t i = 0; i < t->out->steps; i++) {
        const struct sample_source source = feed_train(
            &t->feed, ranges_at(&t->feed.left_out, 0, samples));
        const int64_t batch =
            i < t->asked ? ramp_batch(ramp, i)
                         : ramp_further_batch(ramp, t->asked,
                                              (int)(i - t->asked));
        struct step_result result;

        samples += batch;
        TRY(use_batch(t, batch));
        t->step.next = i + 1 < t->out->steps
            ? feed_ahead(&t->feed, ranges_at(&t->feed.left_out, 0, samples))
            : (struct sample_source){0};
        train_step_begin(&t->step, i);
        TRY(train_step_run(&t->step, &source, setup_rate(&t->setup, i),
                           i + 1, &result));
        t->since.made++;
        t->since.updated += !result.skipped;
        TRY(observe(t, i + 1));
        if (!leads(t)) continue;
        t->out->skipped += result.skipped;
        t->out->losses[i] = result.loss;
        t->out->norms[i] = result.norm;
        t->out->others[2 * i] = result.z_loss;
        t->out->others[2 * i + 1] = result.max_score;
    }
    return OK;
}

/* ---- what is checked of a rank ---- */

static status check_memory(const struct rank_trial *t)
{
    for (int i = 0; i < t->pipeline.count; i++) {
        const struct stage *stage = &t->pipeline.stages[i];
        const size_t apart = stage->apart.bytes;
        size_t rows = 0;

        for (int j = 0; j < MEMORY_OWNERS; j++) rows += stage->memory[j].bytes;
        if (stage->bytes != rows || stage->arena.planned + apart != rows ||
            stage->arena.peak + apart != rows)
            FAIL(ERR_VERIFY, "rank %d: %zu bytes were planned, %zu were taken, "
                             "the rows add up to %zu", team_rank(&t->team),
                 stage->bytes, stage->arena.peak + apart, rows);
    }
    /* of all rank threads of this process */
    if (arena_allocations() != t->allocations)
        FAIL(ERR_VERIFY, "rank %d: %lld allocations beyond the plan were made "
                         "during the steps", team_rank(&t->team),
             (long long)(arena_allocations() - t->allocations));
    return OK;
}

static status keep(struct rank_trial *t)
{
    struct gathered_numbers nothing; /* all threads share the trial: rank 0
                                      * fills it */
    int most = (int)(t->pipeline.bytes >> 6); /* rows are multiples of 64 */
    const struct precision_use *precision = &t->setup.request.precision;

    TRY(team_most(&t->team, &most));
    TRY(stages_fetch(t->pipeline.stages, t->pipeline.count));
    TRY(gathered_numbers_gather(leads(t) ? &t->out->whole : &nothing,
                                &t->inventory, &t->team));
    if (!leads(t)) return OK;
    t->out->memory_bytes = (size_t)most << 6;
    t->out->exact = t->setup.exact;
    t->out->fast = stage_products_fast(&t->pipeline.stages[0]);
    t->out->narrow = dtype_is_narrow(t->setup.request.dtype) ||
                     t->setup.request.reduction.bits > 0;
    t->out->coarse = row_codes_twice(precision) &&
                     precision->recipe.activations.format == FORMAT_E2M1;
    if (t->setup.mesh.size[AXIS_PIPE] > 1)
        snprintf(t->out->schedule, sizeof t->out->schedule, "%.31s",
                 t->set->values.schedule.name);
    return OK;
}

/* Between the second agreement and the end of the batch no rank may allocate
 * memory: a step that does is found by the count. */
static status run_checked(struct rank_trial *t)
{
    TRY(observe(t, 0));
    begin_batch(t);
    TRY(team_agree(&t->team, OK));
    t->allocations = arena_allocations();
    TRY(team_agree(&t->team, OK));
    TRY(train_steps(t));
    TRY(end_batch(t));
    TRY(team_agree(&t->team, check_memory(t)));
    TRY(team_agree(&t->team, keep(t)));
    return team_part(&t->team);
}

static status rank_body(void *argument, struct group *world)
{
    struct rank_trial t = *(struct rank_trial *)argument;
    status result;

    t.team.world = world;
    TRY_GOTO(done, result, open_trial(&t, world));
    result = run_checked(&t);
done:
    inventory_free(&t.inventory);
    train_step_free(&t.step);
    team_free(&t.team);
    feed_close(&t.feed);
    pipeline_free(&t.pipeline);
    setup_free(&t.setup);
    run_tokenizer_free(&t.tokenizer);
    return result;
}

/* Steps that bring in the batches of a ramp which `steps` do not reach. */
static status count_further(const struct options *o, int64_t steps,
                            int64_t *count)
{
    const struct option_list *rows = &o->train.batch_ramp;
    struct ramp ramp;
    const status result = ramp_read(&ramp, rows->items, rows->count,
                                    o->train.batch);

    *count = result == OK ? ramp_further(&ramp, steps) : 0;
    ramp_free(&ramp);
    return result;
}

/* Room for so many steps. */
static status begin(struct trial *trial, int64_t steps)
{
    void *memory = NULL;

    *trial = (struct trial){.steps = steps};
    TRY(memory_take((size_t)steps, sizeof(double), &memory));
    trial->losses = memory;
    TRY(memory_take((size_t)steps, sizeof(double), &memory));
    trial->norms = memory;
    TRY(memory_take((size_t)steps, 2 * sizeof(double), &memory));
    trial->others = memory;
    return OK;
}

status trial_run(struct trial *trial, const struct options_set *set,
                 int ranks, int64_t steps)
{
    struct rank_trial t = {.out = trial, .set = set, .ranks = ranks,
                           .asked = steps};
    int64_t further;

    TRY(count_further(&set->values, steps, &further));
    TRY(begin(trial, steps + further));
    if (ranks == 1) return rank_body(&t, NULL);
    return ranks_run(ranks, rank_body, &t);
}

status trial_run_world(struct trial *trial, const struct options_set *set,
                       struct group *world, int64_t steps)
{
    struct rank_trial t = {.out = trial, .set = set, .asked = steps,
                           .ranks = world == NULL ? 1 : world->size};
    int64_t further;

    TRY(count_further(&set->values, steps, &further));
    TRY(begin(trial, steps + further));
    return rank_body(&t, world);
}

status trial_observe(struct trial *trial, const struct options_set *set,
                     int64_t steps, const struct trial_observer *observer)
{
    struct rank_trial t = {.out = trial, .set = set, .ranks = 1,
                           .asked = steps, .observer = observer};

    TRY(begin(trial, steps));
    return rank_body(&t, NULL);
}

void trial_free(struct trial *trial)
{
    memory_free(trial->losses);
    memory_free(trial->norms);
    memory_free(trial->others);
    gathered_numbers_free(&trial->whole);
    *trial = (struct trial){0};
}

/* ---- comparing ---- */

static double distance(const struct gathered_numbers *one,
                       const struct gathered_numbers *other,
                       enum inventory_kind kind, bool *exact)
{
    const struct tensor a = tensor_1d(other->data[kind], other->dtype,
                                      other->elements);
    const struct tensor b = tensor_1d(one->data[kind], one->dtype,
                                      one->elements);
    struct tensor_difference difference;

    tensor_compare(&a, &b, &difference);
    if (difference.count > 0) *exact = false;
    return difference.max_scale > 0 ? difference.max_abs / difference.max_scale
                                    : difference.max_abs;
}

/* The same bits, or two NaNs. */
static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void trial_compare(const struct trial *one, const struct trial *other,
                   struct trial_difference *out)
{
    double scale = 0;

    *out = (struct trial_difference){.exact = true};
    for (int64_t i = 0; i < one->steps; i++) {
        const double a = one->losses[i], b = other->losses[i];
        const double d = same(a, b) ? 0 : fabs(a - b);

        if (!same(a, b) || !same(one->norms[i], other->norms[i]) ||
            !same(one->others[2 * i], other->others[2 * i]) ||
            !same(one->others[2 * i + 1], other->others[2 * i + 1]))
            out->exact = false;
        if (isnan(d)) out->loss = INFINITY;
        else if (d > out->loss) out->loss = d;
        if (one->losses[i] > scale) scale = one->losses[i];
    }
    if (scale > 0) out->loss /= scale;
    out->gradients = distance(&one->whole, &other->whole, INVENTORY_GRADIENT,
                              &out->exact);
    out->weights = distance(&one->whole, &other->whole, INVENTORY_WEIGHT,
                            &out->exact);
    for (int k = INVENTORY_STATE_0; k < INVENTORY_GRADIENT; k++)
        distance(&one->whole, &other->whole, (enum inventory_kind)k,
                 &out->exact);
}
