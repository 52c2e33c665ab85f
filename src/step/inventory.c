/* SPDX-License-Identifier: Apache-2.0 */
/* inventory.c - which elements of the whole model's numbers a rank has. */
#include "step/inventory.h"

#include "checkpoint/convert.h"

/* NULL: there is none with the shape of the weights. */
static const struct optimizer_state *state_of(const struct inventory *h,
                                              int order,
                                              enum inventory_kind kind)
{
    const struct optimizer_state *state = NULL;

    if (kind == INVENTORY_WEIGHT || kind == INVENTORY_GRADIENT) return NULL;
    if (h->rules != NULL)
        state = rule_state(&h->rules[order], (int)(kind - INVENTORY_STATE_0));
    return state == NULL || state->shape == STATE_WHOLE ? NULL : state;
}

const char *inventory_name(const struct inventory *inventory, int order,
                           enum inventory_kind kind)
{
    const struct optimizer_state *state = state_of(inventory, order, kind);

    if (kind == INVENTORY_WEIGHT) return "weight";
    if (kind == INVENTORY_GRADIENT)
        return param_has_gradient(&inventory->whole.params.items[order])
                   ? "gradient" : NULL;
    return state == NULL ? NULL : state->name;
}

enum dtype inventory_dtype(const struct inventory *inventory, int order,
                           enum inventory_kind kind)
{
    const struct optimizer_state *state = state_of(inventory, order, kind);

    return state != NULL && state->narrow &&
                   inventory->type == STATE_BFLOAT16
               ? DTYPE_BF16
               : inventory->dtype;
}

void inventory_read(const struct inventory *inventory,
                    const struct inventory_span *span, int64_t local,
                    int64_t count, void *out)
{
    if (span->coded) {
        state_decode(&span->codes, local, 1, count, out);
        return;
    }
    convert_elements((struct spacing){inventory->dtype, 1}, out,
                     (struct spacing){span->dtype, 1},
                     (const char *)span->data +
                         local * dtype_bytes(span->dtype), count);
}

/* ---- the whole ---- */

/* Names and shapes; no memory of its sizes is taken. */
static status build_whole(struct inventory *h, const struct stage *stage)
{
    const struct stage_request *r = &stage->request;
    struct program *p = &h->whole;
    void *rules = NULL;

    program_init(p, PROGRAM_TRAIN, r->dtype, &r->layout.grid);
    p->layout.mesh = mesh_alone();
    p->layout.place = (struct place){0};
    p->size.batch = p->size.sequences = 1;
    p->size.length = p->size.tokens = r->size.length;
    p->size.context = r->size.context ? r->size.context : r->size.length;
    p->size.vocab = r->model->vocab;
    p->later.depth = r->mtp_depth;
    p->later.block = r->model->layers;
    p->size.logits_chunk = r->size.length;
    h->prefix = r->model->kind->layer_prefix;
    h->dtype = stage_keeps_dtype(stage);
    TRY(r->model->kind->build(p, r->model));
    if (!r->training.optimizer) return OK;
    TRY(memory_take((size_t)p->params.count + 1, sizeof *h->rules, &rules));
    h->rules = rules;
    h->type = r->training.choice.states;
    TRY(rules_build(h->rules, &p->params, &r->training.choice));
    for (int i = 0; i < p->params.count; i++)
        p->params.items[i].frozen = h->rules[i].frozen;
    return OK;
}

/* ---- who answers ---- */

/* Selects the first of the ranks that differ only in axes which do not divide
 * these elements. */
static bool first_of_replicas(const struct inventory_span *span,
                              axis_set divided)
{
    const struct place *place = span->place;

    divided |= param_cut(&span->param->spec);
    divided |= 1u << AXIS_PIPE; /* find_first_stages */
    for (int axis = 1; axis < AXIS_COUNT; axis++)
        if (!(divided >> axis & 1) && place->at[axis] > 0) return false;
    return layout_first_neighbour(&span->param->spec, span->mesh, place);
}

/* holds [whole params]: -1 - p for the first rank p of the pipeline with the
 * parameter. */
static status find_first_stages(struct inventory *h,
                                const struct inventory_of *of, double *holds)
{
    const int params = h->whole.params.count;
    struct group *pipe =
        of->team == NULL ? NULL : team_group(of->team, AXIS_PIPE);
    const int at = pipe == NULL ? 0 : pipe->rank;

    for (int i = 0; i < params; i++) holds[i] = -1e9;
    for (int s = 0; s < of->count; s++) {
        const struct param_table *table = &of->stages[s].program.params;

        for (int i = 0; i < table->count; i++)
            holds[table->items[i].order] = -1 - at;
    }
    if (pipe == NULL) return OK;
    return comm_run_alone(pipe, (struct comm_call){
        .kind = COMM_ALL_REDUCE, .reduction = REDUCE_MAX,
        .out = tensor_1d(holds, DTYPE_F64, params),
        .in = tensor_1d(holds, DTYPE_F64, params)});
}

/* ---- spans ---- */

static status add_span(struct inventory *h, const struct inventory_span *span)
{
    void *spans = h->spans;

    TRY(memory_next(&spans, &h->capacity, h->count, 64, sizeof *h->spans));
    h->spans = spans;
    h->spans[h->count++] = *span;
    return OK;
}

static axis_set axes_of(const struct stage *stage, enum inventory_kind kind)
{
    const struct division *d = &stage->request.divided.division;

    switch (kind) {
    case INVENTORY_WEIGHT: /* masters are divided as what updates them */
        return stage_keeps(stage) == stage_reads(stage) ? d->weights
                                                        : d->states;
    case INVENTORY_GRADIENT:
        return d->weights | d->gradients | d->states;
    default: return d->states;
    }
}

static int index_of(const struct stage *stage,
                    const struct inventory_span *span)
{
    return (int)(span->param - stage->program.params.items);
}

/* A state lies where the stage's plan put it. */
static void find_state(const struct stage *stage, struct inventory_span *span,
                       const struct shard_range *own)
{
    const int number = (int)(span->kind - INVENTORY_STATE_0);
    const int index = index_of(stage, span);
    const struct states *states = &stage->states;
    const struct state_place *place = states_place(states, index, number);
    char *memory = stage->host[MEMORY_STATE_0 + number];

    if (place->type != STATE_INT8) {
        span->data = memory + place->at;
        return;
    }
    span->coded = true;
    span->codes = (struct state_codes){
        .param = span->param, .holding = &stage->holding, .range = *own,
        .codes = (unsigned char *)memory + place->at,
        .scales = (float *)(void *)(memory + place->scales),
        .positive = rule_state(&states->rules[index], number)->positive};
}

/* Masters of which a part is in the weights, from place `at` of theirs on. */
static void find_masters(const struct stage *stage, struct inventory_span *span,
                         const struct shard_range *own, int64_t at)
{
    const enum shard_level level = stage_level(stage, MEMORY_COMPUTE);
    const struct master_arenas arenas = stage_masters(stage, true);
    const int64_t weight = level == SHARD_WHOLE
                               ? span->param->offset + span->first
                               : shard_place(own, level, span->param);

    span->coded = true;
    span->codes = (struct state_codes){
        .range = {.first = span->first, .last = span->last},
        .masters = masters_at(&arenas, weight, at, span->last - span->first)};
}

/* Where the first element of a kind lies that this rank has of a parameter. */
static void find_data(const struct inventory *h, const struct stage *stage,
                      struct inventory_span *span,
                      const struct shard_range *own)
{
    const enum memory_owner row = span->kind == INVENTORY_WEIGHT
                                      ? stage_keeps(stage)
                                      : MEMORY_GRADIENTS;
    const struct optimizer_state *state =
        state_of(h, span->param->order, span->kind);

    const bool gradient = row == MEMORY_GRADIENTS; /* or is kept there */
    const int64_t at =
        !stage_divides(stage, row)
            ? (gradient ? span->param->gradient : span->param->offset) +
                  span->first
        : gradient ? own->gradient_at
                   : shard_place(own, stage_level(stage, row), span->param);

    span->coded = false;
    span->data = NULL;
    span->dtype = inventory_dtype(h, span->param->order, span->kind);
    if (state != NULL && state->shape == STATE_ELEMENTS)
        find_state(stage, span, own);
    else if (span->kind == INVENTORY_WEIGHT && stage_splits(stage))
        find_masters(stage, span, own, at);
    else
        span->data =
            (char *)stage->host[row] + at * dtype_bytes(h->dtype);
}

static bool has_kind(const struct inventory *h, const struct stage *stage,
                     const struct inventory_span *span)
{
    if (span->kind == INVENTORY_WEIGHT) return true;
    if (span->kind == INVENTORY_GRADIENT)
        return stage->host[MEMORY_GRADIENTS] != NULL &&
               param_has_gradient(span->param);
    return inventory_name(h, span->param->order, span->kind) != NULL;
}

/* The numbers of one kind of a parameter. Gradients of a rank that updates a
 * shard are whole sums there only. */
static status add_kind(struct inventory *h, const struct stage *stage,
                       struct inventory_span *span, bool first)
{
    const struct program *p = &stage->program;
    const int index = index_of(stage, span);
    const struct shard_class *class = shard_class(
        &stage->shards, shard_unit_of(&stage->shards, index));
    const axis_set divided = axes_of(stage, span->kind) & class->copied;
    struct shard_range range;

    if (!has_kind(h, stage, span)) return OK;
    span->first = 0;
    span->last = span->param->elements;
    shard_own(&stage->shards, &p->params, index, &range);
    if (span->kind == INVENTORY_WEIGHT &&
        stage_level(stage, stage_keeps(stage)) == SHARD_SHARD)
        shard_whole(&stage->shards, &p->params, index, &range);
    if (divided != 0 && class->ranks > 1) {
        span->first = range.first;
        span->last = range.last;
    }
    if (span->first == span->last) return OK;
    find_data(h, stage, span, &range);
    span->owned = first && first_of_replicas(span, divided);
    span->divided = divided | param_cut(&span->param->spec);
    return add_span(h, span);
}

static status add_whole(struct inventory *h,
                        const struct inventory_whole *whole)
{
    if (h->whole_count == h->whole_capacity) {
        const int capacity = h->whole_capacity ? 2 * h->whole_capacity : 64;
        void *wholes = h->wholes;

        TRY(memory_grow(&wholes, (size_t)capacity, sizeof *h->wholes));
        h->wholes = wholes;
        h->whole_capacity = capacity;
    }
    h->wholes[h->whole_count++] = *whole;
    return OK;
}

/* Whole states of the tensors of a parameter that this rank owns. */
static status add_wholes(struct inventory *h, const struct stage *stage,
                         int index, bool first)
{
    const struct states *states = &stage->states;
    const struct matrices *m = &states->matrices;

    for (int i = 0; i < m->count; i++) {
        const struct matrix *tensor = &m->items[i];

        if (tensor->param != index || tensor->owner != m->rank) continue;
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            struct inventory_whole whole = {
                .order = stage->program.params.items[index].order,
                .tensor = tensor->tensor, .owned = first,
                .state = rule_state(&states->rules[index], k)};

            if (whole.state == NULL || whole.state->shape != STATE_WHOLE)
                continue;
            whole.data = (char *)stage->host[MEMORY_STATE_0 + k] +
                         states_place(states, index, k)->at +
                         states_whole_at(states, tensor, k) *
                             dtype_bytes(h->dtype);
            TRY(add_whole(h, &whole));
        }
    }
    return OK;
}

static status add_stage(struct inventory *h, const struct stage *stage,
                        double *holds, int at)
{
    const struct program *p = &stage->program;

    for (int i = 0; i < p->params.count; i++) {
        const struct param *param = &p->params.items[i];
        const bool first = holds[param->order] == -1 - at;

        holds[param->order] = 0; /* a second stage here has a copy */
        for (int k = 0; k < INVENTORY_KINDS; k++) {
            struct inventory_span span = {
                .kind = (enum inventory_kind)k, .param = param,
                .mesh = &p->layout.mesh, .place = &p->layout.place};

            TRY(add_kind(h, stage, &span, first));
        }
        TRY(add_wholes(h, stage, i, first));
    }
    return OK;
}

status inventory_build(struct inventory *inventory,
                       const struct inventory_of *of)
{
    const int at = of->team == NULL ? 0 : of->team->place.at[AXIS_PIPE];
    void *memory = NULL;
    double *holds;
    status result;

    *inventory = (struct inventory){0};
    TRY(build_whole(inventory, of->stages));
    TRY(memory_take((size_t)inventory->whole.params.count + 1, sizeof *holds,
                    &memory));
    holds = memory;
    TRY_GOTO(done, result, find_first_stages(inventory, of, holds));
    for (int i = 0; i < of->count; i++)
        TRY_GOTO(done, result,
                 add_stage(inventory, &of->stages[i], holds, at));
done:
    memory_free(memory);
    return result;
}

void inventory_free(struct inventory *inventory)
{
    program_free(&inventory->whole);
    memory_free(inventory->spans);
    memory_free(inventory->wholes);
    memory_free(inventory->rules);
    *inventory = (struct inventory){0};
}

/* ---- runs ---- */

/* Whole rows that touch are one long row: a beginning is cut off. False:
 * nothing is left. */
static bool clip(struct layout_run *run, int64_t first)
{
    const int64_t skip = first - run->whole_first;

    if (skip <= 0) return true;
    if (run->repeats > 1 || skip >= run->length) return false;
    run->whole_first += skip;
    run->local_first += skip;
    run->length -= skip;
    return true;
}

int inventory_runs(const struct inventory_span *span, bool owned,
              struct layout_run runs[LAYOUT_RUNS_MAX])
{
    const struct param_spec *spec = &span->param->spec;
    const int64_t width = spec->vector ? 1 : spec->cols;
    const int count = layout_runs(spec, span->mesh, span->place, span->first,
                                  span->last, runs);
    int kept = 0;

    if (owned && !span->owned) return 0;
    for (int i = 0; i < count; i++) {
        struct layout_run run = runs[i];
        int64_t row = 0;

        run.local_first -= span->first;
        if (owned) {
            for (int j = 0; j < run.piece; j++) row += spec->pieces[j].rows;
            row += layout_own_first(spec, span->mesh, span->place,
                                    run.piece);
            if (!clip(&run, row * width)) continue;
        }
        runs[kept++] = run;
    }
    return kept;
}
