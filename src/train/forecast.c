/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.c - the inputs of a prediction, from options and a machine. */
#include "train/forecast.h"

#include <string.h>

#include "plan/coded_weights.h"
#include "planner/memory.h"
#include "schedule/known_schedules.h"
#include "setup/setup.h"
#include "setup/suggest.h"
#include "train/draft.h"
#include "train/largest_rank.h"
#include "train/memory_copy.h"
#include "tokenizer/run_tokenizer.h"

void forecast_alone(const struct options_set *set, struct options_set *out)
{
    *out = *set;
    out->values.mesh.data = out->values.mesh.shard = 1;
    out->values.mesh.context = out->values.mesh.tensor = 1;
    out->values.mesh.expert = out->values.mesh.pipe = 1;
    out->values.mesh.layers.count = 0;
    out->values.schedule.name = "1f1b";
}

status forecast_vocabulary(struct forecast *f)
{
    if (f->knows_vocabulary) return OK;
    TRY(run_vocabulary(&f->vocabulary, &f->set.values));
    f->knows_vocabulary = true;
    return OK;
}

status forecast_model(struct forecast *f)
{
    TRY(setup_check_words(&f->set.values));
    if (f->set.values.model.vocab == 0 && f->set.values.model.from[0] == 0 &&
        f->set.values.tokenizer.from[0] != 0) {
        struct options_set alone;
        struct setup setup = {0};
        status result;

        forecast_alone(&f->set, &alone);
        result = forecast_vocabulary(f);
        if (result == OK)
            result = setup_resolve(&setup, &alone, &f->vocabulary, 1, 0);
        if (result == OK) f->model = setup.model;
        setup_free(&setup);
        if (result != OK) {
            status_clear();
            FAIL(ERR_CONFIG, "model.vocab is 0 and the tokenizer could not "
                             "tell it; set model.vocab");
        }
    } else {
        TRY(model_from_options(&f->model, &f->set.values, 0));
    }
    TRY(shape_of(&f->shape, &f->model, f->set.values.data.sequence));
    f->shape.regular = setup_regular(&f->model, &f->set.values);
    f->shape.integer_sums =
        strcmp(f->set.values.numerics.sums, "integer") == 0;
    if (f->as != AS_LOCKSTEP) return OK;
    TRY(setup_precision(&f->shape.precision, &f->set.values, f->model.layers));
    f->shape.gathers_codes =
        strcmp(f->set.values.fsdp.gather_format, "dtype") != 0 &&
        coded_refusal(&f->shape.precision) == NULL;
    return OK;
}

enum { PLANNED_WHOLE = 16 /* pipe ranks; of more, the first and the last, and
                           * the first one of each larger number of blocks */
};

void hunting_free(struct hunting *hunting)
{
    known_stages_free(&hunting->stages);
    *hunting = (struct hunting){0};
}

/* The largest recomputation of its stages. */
static enum recompute made_again(const struct pipeline *pipeline)
{
    enum recompute most = RECOMPUTE_NONE;

    for (int i = 0; i < pipeline->count; i++) {
        const char *word = pipeline->stages[i].recompute;
        const enum recompute one =
            strcmp(word, "none") == 0    ? RECOMPUTE_NONE
            : strcmp(word, "block") == 0 ? RECOMPUTE_BLOCK
                                         : RECOMPUTE_SELECTIVE;

        if (one > most) most = one;
    }
    return most;
}

/* Where a pipe's largest rank may be, by the estimate of each. */
struct estimate { int largest; double bytes; };

static bool is_planned(const struct forecast *f, int position, int pipe,
                       struct estimate estimate)
{
    const double near = 0.85; /* estimates are not so far off */
    const int ends = f->quick ? 1 : pipe > PLANNED_WHOLE ? 4 : pipe;
    struct memory here;

    if (f->quick && position == estimate.largest) return true;
    if (position >= ends && position < pipe - ends) return false;
    if (!f->quick) return true;
    memory_of(&f->layout, &f->shape, position, &here);
    return memory_sum(&here) > near * estimate.bytes;
}

static struct rank_blocks blocks_of(const struct forecast *f,
                                    const struct setup *setup, int position)
{
    struct rank_blocks sum = {0, 0};
    int first = 0;

    for (int stage = 0; stage < setup->schedule.stages; stage++) {
        const struct stage_blocks here = layout_blocks_between(
            &f->shape, first, setup->blocks[stage]);

        first += here.all;
        for (int way = 0; way < 2; way++) {
            const int *places = setup->schedule.places[way];

            if (places == NULL || places[stage] != position) continue;
            sum.all += here.all;
            sum.mixed += here.mixed;
        }
    }
    return sum;
}

/* Ranks that share the batch or a tensor, too: at the place on the pipe where
 * the largest of them may be, or, of a small layout that stands alone, at all
 * places. */
static status plan_others(struct forecast *f, struct setup *setup, int likely)
{
    enum { TRIED = 8 };
    struct largest largest = {0, (size_t)f->exact_bytes};
    struct place place;

    if (f->ranks == 1) return OK; /* there are none */
    if (f->hunting != NULL || f->ranks > LARGEST_TRIED)
        TRY(largest_at(setup, likely, TRIED, &largest));
    else
        TRY(largest_rank(setup, 0, largest.bytes, &largest));
    if ((double)largest.bytes <= f->exact_bytes) return OK;
    f->exact_bytes = (double)largest.bytes;
    mesh_place(&setup->mesh, &setup->order, largest.rank, &place);
    f->exact_position = place.at[AXIS_PIPE];
    return OK;
}

/* The largest rank, planned to the byte; the ranks of a pipe differ. With a
 * clock each of them is planned, and its list timed while none is above `most`:
 * then walk->made is that of all. */
static status plan_memory(struct forecast *f, struct setup *setup,
                          struct list_clock *walk, double most)
{
    const int pipe = setup->mesh.size[AXIS_PIPE];
    struct estimate estimate = {.largest = 0};
    struct rank_blocks seen = {0, 0};
    struct estimate with_others = {.largest = 0};

    if (f->quick)
        estimate.bytes = memory_largest(&f->layout, &f->shape,
                                        &estimate.largest);
    TRY(known_schedules_lower(setup->schedules, &setup->schedule));
    for (int position = 0; position < pipe; position++) {
        struct place place = {{0}};
        struct draft draft;
        status result = OK;
        double bytes, most_here;
        const bool more =
            !f->quick &&
            rank_blocks_grow(&seen, blocks_of(f, setup, position));

        if (walk == NULL && !more && !is_planned(f, position, pipe, estimate))
            continue;
        place.at[AXIS_PIPE] = position;
        TRY(draft_build(&draft, setup,
                        mesh_rank(&setup->mesh, &setup->order, &place)));
        bytes = (double)draft.pipeline.bytes;
        most_here = bytes + largest_more(setup, &draft.pipeline, &place);
        if (most_here > with_others.bytes)
            with_others = (struct estimate){position, most_here};
        if (bytes > f->exact_bytes) f->recompute = made_again(&draft.pipeline);
        if (bytes > most) walk = NULL;
        if (walk != NULL) result = list_clock_rank(walk, &draft.pipeline);
        draft_free(&draft);
        TRY(result);
        if (bytes <= f->exact_bytes) continue;
        f->exact_bytes = bytes;
        f->exact_position = position;
    }
    return plan_others(f, setup, with_others.largest);
}

/* Nodes are those of the machine, where they are full. */
static status use_nodes(const struct forecast *f, struct setup *setup)
{
    const int devices = (int)f->machine.value[M_DEVICES];
    const int node = f->nodes > 0 ? f->ranks / f->nodes : devices;

    if (f->as != AS_LOCKSTEP || node >= f->ranks || f->ranks % node != 0)
        return OK;
    return setup_use_node(setup, node);
}

static status resolve(struct forecast *f, struct setup *setup, bool suggest)
{
    struct setup_model known = {.vocabulary = &f->vocabulary};

    if (suggest)
        return setup_resolve_or_suggest(setup, &f->set, &f->vocabulary,
                                        f->ranks, 0);
    if (f->hunting == NULL)
        return setup_resolve(setup, &f->set, &f->vocabulary, f->ranks, 0);
    known.parameters = f->hunting->parameters;
    known.trained = f->hunting->trained;
    known.schedules = f->hunting->schedules;
    TRY(setup_resolve_layout(setup, &f->set, f->ranks, &known));
    f->hunting->parameters = setup->parameters;
    f->hunting->trained = setup->trained;
    return OK;
}

/* Where stages with equal plans are planned once. Their pipelines borrow the
 * schedule, which a ramp replaces for each batch. */
static struct known_stages *known_of(const struct forecast *f,
                                     const struct setup *setup,
                                     struct known_stages *alone)
{
    if (f->unfolded || ramp_changes(&setup->ramp)) return NULL;
    return f->hunting != NULL ? &f->hunting->stages : alone;
}

/* Lockstep's own choices where the options leave them open. */
static status settle(struct forecast *f, bool suggest, struct list_clock *walk,
                     double most)
{
    struct known_stages alone = {0};
    struct setup setup = {0};
    status result;

    f->set.values.train.memory =
        (f->max_memory > 0 ? f->max_memory
                           : f->machine.value[M_MEMORY_BYTES]) / 1073741824.0;
    TRY(forecast_vocabulary(f));
    TRY_GOTO(done, result, resolve(f, &setup, suggest));
    TRY_GOTO(done, result, use_nodes(f, &setup));
    setup.known = known_of(f, &setup, &alone);
    f->set.values.train.micro_batch = setup.request.size.micro_batch;
    TRY_GOTO(done, result, plan_memory(f, &setup, walk, most));
done:
    known_stages_free(&alone);
    setup_free(&setup);
    return result;
}

/* Whether setup chooses what is made again. */
static bool leaves_recompute(const struct options *o)
{
    return o->train.recompute.count == 0 ||
           strcmp(o->train.recompute.items[0], "auto") == 0;
}

status forecast_layout(struct forecast *f)
{
    const struct layout_request request = {
        &f->set.values, &f->shape, &f->machine, f->as, f->ranks, f->nodes,
        f->blocks};

    if (f->as == AS_LOCKSTEP) TRY(settle(f, true, NULL, 0));
    TRY(layout_from_options(&f->layout, &request));
    if (f->as == AS_LOCKSTEP && leaves_recompute(&f->set.values))
        f->layout.recompute = f->recompute;
    if (f->as == AS_LOCKSTEP &&
        frames_of(&f->layout.frames, &f->layout, &f->shape) != OK)
        status_clear(); /* what is needed is planned to the byte */
    f->layout.offload = f->offload;
    if (f->exact_bytes > 0)
        f->exact_bytes = memory_left(&f->layout, &f->shape, f->exact_bytes);
    return OK;
}

status forecast_exactly(struct forecast *f)
{
    return settle(f, false, NULL, 0);
}

status forecast_exactly_timed(struct forecast *f, double most,
                              struct steps *out)
{
    const struct cost cost = forecast_cost(f);
    struct list_clock walk = {.ranks = 0};
    status result;

    *out = (struct steps){.span_count = 0};
    TRY_GOTO(done, result, list_clock_begin(&walk, &cost, f->layout.pipe));
    TRY_GOTO(done, result, settle(f, false, &walk, most));
    if (walk.made == walk.ranks && f->exact_bytes <= most)
        result = list_clock_finish(&walk, out);
done:
    list_clock_free(&walk);
    return result;
}

enum {
    WALKED_ITEMS = 1 << 17, /* blocks of micro-batches, in the lists */
    PLAYED_ITEMS = 1 << 21  /* in all runs of the clock: about a second */
};

static status walk_lists(struct list_clock *walk, struct forecast *f,
                         struct setup *setup, struct known_stages *alone)
{
    TRY(forecast_vocabulary(f));
    TRY(resolve(f, setup, false));
    TRY(use_nodes(f, setup));
    setup->known = known_of(f, setup, alone);
    TRY(known_schedules_lower(setup->schedules, &setup->schedule));
    for (int position = 0; position < walk->ranks; position++) {
        struct place place = {{0}};
        struct draft draft;
        status result;

        place.at[AXIS_PIPE] = position;
        TRY(draft_build(&draft, setup,
                        mesh_rank(&setup->mesh, &setup->order, &place)));
        f->state_bytes[position] = (double)memory_copy_bytes(&draft.pipeline);
        result = list_clock_rank(walk, &draft.pipeline);
        draft_free(&draft);
        TRY(result);
    }
    return OK;
}

bool forecast_walks(const struct forecast *f, const struct layout *l)
{
    const double items = (double)l->microbatches * f->shape.layers;

    return f->as == AS_LOCKSTEP && l->pipe <= WALKED_PIPE &&
           items <= WALKED_ITEMS && items * f->clocks <= PLAYED_ITEMS;
}

double forecast_work(const struct forecast *f, const struct layout *l)
{
    const double each = 6.0 * l->pipe * l->chunks; /* of a micro-batch */
    const double gathers = l->zero == 3 ? 6.0 * f->shape.layers : 0;

    if (!forecast_walks(f, l)) return 0.2 * l->microbatches * each;
    return l->microbatches * (each + gathers) + 500.0 * l->pipe;
}

status forecast_steps(struct forecast *f, struct steps *out)
{
    const struct cost cost = forecast_cost(f);
    struct known_stages alone = {0};
    struct setup setup = {0};
    struct list_clock walk = {.ranks = 0};
    status result;

    if (!forecast_walks(f, &f->layout)) return steps_build(out, &cost);
    TRY_GOTO(done, result, list_clock_begin(&walk, &cost, f->layout.pipe));
    TRY_GOTO(done, result, walk_lists(&walk, f, &setup, &alone));
    TRY_GOTO(done, result, list_clock_finish(&walk, out));
    f->walked = true;
done:
    list_clock_free(&walk);
    known_stages_free(&alone);
    setup_free(&setup);
    return result;
}

struct cost forecast_cost(const struct forecast *f)
{
    return (struct cost){&f->machine, &f->shape, &f->layout};
}

void forecast_free(struct forecast *f)
{
    options_free(&f->set);
    machine_free(&f->machine);
}
