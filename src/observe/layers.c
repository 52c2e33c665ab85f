/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - observations of a model's layers in the steps that the
 * configuration selects. */
#include "observe/layers.h"

#include <math.h>

#include "base/arena.h"
#include "base/meter.h"
#include "nn/layer.h"
#include "nn/score_peaks.h"

enum kind { KIND_WEIGHT, KIND_GRADIENT, KIND_UPDATE };

int64_t layers_values(int ranks)
{
    return TALLY_VALUES + 2 * (int64_t)ranks;
}

/* ---- metering ---- */

/* All of it is one row of a profile. */
static void metered(struct meter_track *track)
{
    meter_end(track, &(struct meter_what){.kind = METER_DATA,
                                          .name = "observed layers"});
}

/* ---- activations ---- */

/* Whether the step reads what a module that predicts later tokens puts into its
 * block. */
static bool reads_module(const struct program *p, const struct step *step)
{
    return step->index > 1 && step[-2].layer == &layer_mtp_join &&
           step->input == step[-1].output && program_ahead(p, step) > 0;
}

/* Which activation a step reads: block b's input is b, what the steps behind
 * the last block read is the number of blocks; -1: none of these. */
static int reads_activation(const struct layers *l, const struct program *p,
                            const struct step *step)
{
    const struct step *before = step->index > 0 ? step - 1 : NULL;

    if (step->input < 0 || p->slots[step->input].layout.width != 0) return -1;
    if (reads_module(p, step)) return step->block;
    if (program_ahead(p, step) > 0) return -1;
    if (step->block >= 0)
        return before != NULL && before->block == step->block ? -1
                                                              : step->block;
    if (before == NULL) return p->slice.entry >= 0 ? l->blocks : -1;
    return before->block >= 0 ? l->blocks : -1;
}

/* Rows of one slot, which threads share. */
struct looking {
    struct tensor rows;
    struct layer_activation *parts;
};

static void add_row(struct layer_activation *out, const struct tensor *rows,
                    int64_t row)
{
    const int64_t width = rows->shape[1];
    double squares = 0, fourths = 0;

    for (int64_t i = row * width; i < (row + 1) * width; i++) {
        const double x = tensor_get(rows, i);
        const double square = x * x;

        squares += square;
        fourths += square * square;
        if (fabs(x) > out->most) out->most = fabs(x);
    }
    exact_add(&out->squares, squares);
    exact_add(&out->fourths, fourths);
    out->count += width;
}

static void look_part(void *argument, int index, int count)
{
    const struct looking *looking = argument;
    struct layer_activation *out = &looking->parts[index];
    int64_t first, last;

    memset(out, 0, sizeof *out);
    threads_split(looking->rows.shape[0], 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) add_row(out, &looking->rows, i);
}

static void join_activation(struct layer_activation *to,
                            const struct layer_activation *from)
{
    exact_join(&to->squares, &from->squares);
    exact_join(&to->fourths, &from->fourths);
    to->count += from->count;
    if (from->most > to->most) to->most = from->most;
}

/* True on the first of the ranks that have the same tokens; only that rank
 * looks. */
static bool looks_here(const struct program *p, slot which)
{
    return p->slots[which].layout.tokens >> AXIS_TENSOR & 1 ||
           p->layout.place.at[AXIS_TENSOR] == 0;
}

static void look_at(struct layers *l, struct tensor rows, int index)
{
    struct threads *threads = l->pipeline->stages[0].threads;
    struct looking looking = {rows, l->parts};

    threads_run(threads, look_part, &looking);
    for (int i = 0; i < threads_count(threads); i++)
        join_activation(&l->activations[index], &l->parts[i]);
}

/* Rows of a device apart, as many at once as there is room for. */
static status look_through(struct layers *l, const struct run *run,
                           struct tensor rows, int index)
{
    const int64_t row = rows.shape[1] * dtype_bytes(rows.dtype);
    const int64_t most = (int64_t)l->seen_bytes / row;

    CHECK(most > 0);
    for (int64_t first = 0; first < rows.shape[0]; first += most) {
        const int64_t left = rows.shape[0] - first;
        struct tensor some =
            tensor_rows(rows, first, left < most ? left : most);

        TRY(device_read(run->stream, l->seen, some.data,
                        (size_t)(some.shape[0] * row)));
        some.data = l->seen;
        look_at(l, some, index);
    }
    return OK;
}

static status look(void *argument, const struct run *run,
                   const struct event *event)
{
    struct layers *l = argument;
    const struct program *p = run->program;
    const struct step *step = &p->steps[event->step];
    status result = OK;
    int index;

    if (!l->looks || event->pass != PASS_FORWARD) return OK;
    index = reads_activation(l, p, step);
    if (index < 0 || !looks_here(p, step->input)) return OK;
    struct meter_track *track = meter_begin();

    if (l->seen == NULL) look_at(l, run_slot(run, step->input), index);
    else result = look_through(l, run, run_slot(run, step->input), index);
    metered(track);
    return result;
}

static status gather_activation(struct layers *l,
                                struct layer_activation *activation)
{
    const int ranks = team_size(l->team);
    double *counts = l->values + 2 * EXACT_VALUES, *most = counts + 1;

    if (ranks == 1) return OK;
    exact_pack(&activation->squares, l->values);
    exact_pack(&activation->fourths, l->values + EXACT_VALUES);
    *counts = (double)activation->count;
    for (int i = 0; i < ranks; i++) most[i] = 0;
    most[team_rank(l->team)] = activation->most;
    TRY(team_join(l->team, l->values, 2 * EXACT_VALUES + 1 + ranks));
    exact_unpack(&activation->squares, l->values);
    exact_unpack(&activation->fourths, l->values + EXACT_VALUES);
    activation->count = (int64_t)*counts;
    for (int i = 0; i < ranks; i++)
        if (most[i] > activation->most) activation->most = most[i];
    return OK;
}

/* ---- attention scores ---- */

static int heads_of(const struct layers *l)
{
    return l->pipeline->stages[0].request.model->heads;
}

/* Scores are watched in observed steps alone, unless QK-clip does anyway. */
static void watch_scores(struct layers *l, bool watches)
{
    if (l->pipeline->stages[0].request.qk_clip > 0) return;
    for (int i = 0; i < l->pipeline->count; i++) {
        struct run *run = &l->pipeline->stages[i].run;

        /* Another batch of a ramp has another place for them. */
        if (run->counted.peaks != NULL) l->peaks[i] = run->counted.peaks;
        run->counted.peaks = watches ? l->peaks[i] : NULL;
        if (watches) score_peaks_reset(run);
    }
}

static status gather_scores(struct layers *l)
{
    const int64_t count = (int64_t)l->blocks * heads_of(l);

    for (int64_t i = 0; i < count; i++) l->logits[i] = -(double)INFINITY;
    TRY(pipeline_finish(l->pipeline));
    for (int i = 0; i < l->pipeline->count; i++)
        score_peaks_collect(&l->pipeline->stages[i].run, heads_of(l),
                            l->logits);
    return team_largest(l->team, l->logits, count);
}

/* ---- parameters ---- */

/* The stage whose weights hold `data`. */
static const struct stage *stage_of(const struct layers *l, const void *data)
{
    for (int i = 0; i < l->pipeline->count; i++) {
        const struct stage *stage = &l->pipeline->stages[i];
        const struct memory_row *row = &stage->memory[stage_keeps(stage)];
        const char *first = stage->host[stage_keeps(stage)];

        if ((const char *)data >= first &&
            (const char *)data < first + row->bytes)
            return stage;
    }
    CHECK(false && "a span of weights lies in a stage");
    return NULL;
}

/* Where the weights of a span were copied to before the update, masters that
 * are split as numbers. */
static const char *copied(const struct layers *l,
                          const struct inventory_span *span)
{
    const char *data = span->coded ? span->codes.masters.lower.data
                                   : span->data;
    const struct stage *stage = stage_of(l, data);
    const char *from = stage->host[stage_keeps(stage)];

    return (const char *)stage->memory[MEMORY_OBSERVED].data +
           (data - from) * (span->coded ? 2 : 1);
}

static void copy_weights(struct layers *l)
{
    for (int i = 0; i < l->pipeline->count; i++) {
        struct stage *stage = &l->pipeline->stages[i];
        const struct memory_row *from = &stage->memory[stage_keeps(stage)];
        const struct memory_row *to = &stage->memory[MEMORY_OBSERVED];

        CHECK(to->data != NULL);
        if (stage_splits(stage)) {
            stage_join_masters(stage, to->data);
            continue;
        }
        CHECK(to->bytes == from->bytes);
        memcpy(to->data, stage->host[stage_keeps(stage)], from->bytes);
    }
}

/* Elements from `local` on; those of split masters as numbers, some at once. */
static void tally_some(struct layers *l, const struct inventory_span *span,
                       const struct tally_of *of, int64_t local)
{
    enum { AT_ONCE = 4096 };
    struct threads *threads = l->pipeline->stages[0].threads;
    struct tally_of some = *of;
    float values[AT_ONCE];

    if (!span->coded) {
        tally_add(l->room, of, threads, l->room + 1);
        return;
    }
    some.data = values;
    for (int64_t at = 0; at < of->count; at += AT_ONCE) {
        some.count = of->count - at < AT_ONCE ? of->count - at : AT_ONCE;
        inventory_read(l->inventory, span, local + at, some.count, values);
        if (of->less != NULL)
            some.less = (const float *)of->less + at;
        tally_add(l->room, &some, threads, l->room + 1);
    }
}

static void tally_span(struct layers *l, const struct inventory_span *span,
                       enum kind kind, bool histogram)
{
    const int64_t size = dtype_bytes(l->inventory->dtype);
    struct layout_run runs[LAYOUT_RUNS_MAX];
    const int count = inventory_runs(span, true, runs);
    const char *less = kind == KIND_UPDATE ? copied(l, span) : NULL;

    for (int i = 0; i < count; i++) {
        const int64_t at = runs[i].local_first * size;
        const struct tally_of of = {
            .dtype = l->inventory->dtype,
            .data = span->coded ? NULL : (char *)span->data + at,
            .less = less != NULL ? less + at : NULL,
            .count = runs[i].length * runs[i].repeats,
            .histogram = histogram};

        tally_some(l, span, &of, runs[i].local_first);
    }
}

/* One kind of numbers of one parameter, of all ranks, into l->room[0]. */
static status tally_param(struct layers *l, int order, enum kind kind,
                          bool histogram)
{
    const enum inventory_kind wanted =
        kind == KIND_GRADIENT ? INVENTORY_GRADIENT : INVENTORY_WEIGHT;

    tally_reset(l->room);
    for (int i = 0; i < l->inventory->count; i++) {
        const struct inventory_span *span = &l->inventory->spans[i];

        if (span->kind == wanted && span->param->order == order)
            tally_span(l, span, kind, histogram);
    }
    return tally_join(l->room, l->team, histogram, l->values);
}

/* The buckets that are not empty, and the empty ones between them. */
static status write_histogram(struct layers *l, const char *prefix,
                              const char *name)
{
    const struct tally *tally = l->room;
    double limits[TALLY_BUCKETS], counts[TALLY_BUCKETS];
    char tag[PARAM_NAME_BYTES + 32];
    int first = 0, last = TALLY_BUCKETS - 1, count = 0;

    if (team_rank(l->team) != 0 || !events_on(l->events)) return OK;
    if (tally->count == 0) return OK; /* frozen: no gradient */
    while (first < last && tally->buckets[first] == 0) first++;
    while (last > first && tally->buckets[last] == 0) last--;
    for (int i = first; i <= last; i++) {
        limits[count] = tally_edge(i);
        counts[count++] = (double)tally->buckets[i];
    }
    snprintf(tag, sizeof tag, "%s/%s", prefix, name);
    const struct events_histogram histogram = {
        .tag = tag, .least = tally->least, .greatest = tally->greatest,
        .count = (double)tally->count, .sum = exact_value(&tally->sum),
        .sum_squares = exact_value(&tally->squares), .limits = limits,
        .counts = counts, .buckets = count};
    const struct events_moment moment = {l->step, l->time_s};

    return events_histograms(l->events, moment, &histogram, 1);
}

static status see_kind(struct layers *l, int order, enum kind kind,
                       double *norm)
{
    static const char *const prefixes[] = {"weights", "gradients"};
    const bool histogram = l->histograms && kind != KIND_UPDATE;

    TRY(tally_param(l, order, kind, histogram));
    *norm = tally_norm(l->room);
    if (!histogram) return OK;
    return write_histogram(l, prefixes[kind],
                           l->inventory->whole.params.items[order].name);
}

/* Between the norm and the update. */
static status see_gradients(void *argument)
{
    struct layers *l = argument;

    if (!l->looks && !l->histograms) return OK;
    struct meter_track *track = meter_begin();

    TRY(stages_fetch(l->pipeline->stages, l->pipeline->count));
    for (int i = 0; i < l->inventory->whole.params.count; i++) {
        TRY(see_kind(l, i, KIND_WEIGHT, &l->norms[i].weight));
        TRY(see_kind(l, i, KIND_GRADIENT, &l->norms[i].gradient));
    }
    if (l->looks) copy_weights(l);
    metered(track);
    return OK;
}

/* After the update. */
static status see_update(void *argument)
{
    struct layers *l = argument;

    if (!l->looks) return OK;
    struct meter_track *track = meter_begin();

    TRY(stages_fetch(l->pipeline->stages, l->pipeline->count));
    for (int i = 0; i < l->inventory->whole.params.count; i++)
        TRY(see_kind(l, i, KIND_UPDATE, &l->norms[i].update));
    metered(track);
    return OK;
}

/* ---- experts ---- */

/* Whether experts have biases of the choice. */
static bool has_biases(const struct layers *l)
{
    const struct param_table *params = &l->inventory->whole.params;

    for (int i = 0; i < params->count; i++)
        if (params->items[i].spec.role == ROLE_SELECTION_BIAS) return true;
    return false;
}

static double bias_of(const struct layers *l, const struct inventory_span *span,
                      int64_t local)
{
    double value[1];
    const struct tensor bias = tensor_1d(value, l->inventory->dtype, 1);

    inventory_read(l->inventory, span, local, 1, value);
    return tensor_get(&bias, 0);
}

/* The biases that this rank answers for. */
static void copy_biases(struct layers *l)
{
    for (int i = 0; i < l->inventory->count; i++) {
        const struct inventory_span *span = &l->inventory->spans[i];
        struct layout_run runs[LAYOUT_RUNS_MAX];

        if (span->kind != INVENTORY_WEIGHT ||
            span->param->spec.role != ROLE_SELECTION_BIAS)
            continue;
        const int count = inventory_runs(span, true, runs);
        double *to = l->biases +
                     (int64_t)span->param->layer * l->routing->experts;

        for (int j = 0; j < count; j++)
            for (int64_t e = 0; e < runs[j].length * runs[j].repeats; e++)
                to[runs[j].whole_first + e] =
                    bias_of(l, span, runs[j].local_first + e);
    }
}

static status gather_biases(struct layers *l)
{
    const int64_t count = (int64_t)l->blocks * l->routing->experts;

    if (l->biases == NULL) return OK;
    memset(l->biases, 0, (size_t)count * sizeof *l->biases);
    copy_biases(l);
    return team_join(l->team, l->biases, count);
}

/* ---- building ---- */

/* Room for rows of a device apart, of any slot that is looked at. */
static status take_seen(struct layers *l)
{
    enum { AT_ONCE = 1 << 20 };
    void *memory = NULL;

    l->seen_bytes = AT_ONCE;
    if (l->pipeline->stages[0].device == NULL) return OK;
    TRY(memory_take(l->seen_bytes, 1, &memory));
    l->seen = memory;
    return OK;
}

status layers_build(struct layers *l, struct train_step *step,
                    const struct inventory *inventory,
                    struct events_writer *events)
{
    struct pipeline *pipeline = step->pipeline;
    const size_t threads =
        (size_t)threads_count(pipeline->stages[0].threads);
    const int ranks = team_size(step->team);
    const size_t params = (size_t)inventory->whole.params.count;
    void *memory = NULL;

    l->pipeline = pipeline;
    l->team = step->team;
    l->inventory = inventory;
    l->events = events;
    l->blocks = model_blocks(pipeline->stages[0].request.model);
    TRY(memory_take((size_t)l->blocks + 1, sizeof *l->activations, &memory));
    l->activations = memory;
    TRY(memory_take(threads, sizeof *l->parts, &memory));
    l->parts = memory;
    TRY(memory_take(params + 1, sizeof *l->norms, &memory));
    l->norms = memory;
    TRY(memory_take(threads + 1, sizeof *l->room, &memory));
    l->room = memory;
    TRY(memory_take((size_t)layers_values(ranks), sizeof *l->values,
                    &memory));
    l->values = memory;
    TRY(memory_take((size_t)l->blocks * (size_t)heads_of(l),
                    sizeof *l->logits, &memory));
    l->logits = memory;
    TRY(memory_take((size_t)pipeline->count, sizeof *l->peaks, &memory));
    l->peaks = memory;
    l->routing = &step->routing;
    TRY(take_seen(l));
    if (has_biases(l)) {
        TRY(memory_take((size_t)l->blocks * (size_t)l->routing->experts,
                        sizeof *l->biases, &memory));
        l->biases = memory;
    }
    watch_scores(l, false);
    TRY(roundings_build(&l->roundings, pipeline));
    l->probe = (struct run_probe){look, l};
    l->watch = (struct step_watch){see_gradients, see_update, l};
    for (int i = 0; i < pipeline->count; i++)
        pipeline->stages[i].run.probe = &l->probe;
    step->watch = &l->watch;
    return OK;
}

void layers_free(struct layers *l)
{
    memory_free(l->activations);
    memory_free(l->parts);
    memory_free(l->logits);
    memory_free(l->peaks);
    memory_free(l->norms);
    memory_free(l->room);
    memory_free(l->values);
    memory_free(l->biases);
    memory_free(l->seen);
    roundings_free(&l->roundings);
    *l = (struct layers){0};
}

void layers_begin(struct layers *l, int64_t step, bool looks, bool histograms)
{
    l->step = step;
    l->looks = looks;
    l->histograms = histograms;
    watch_scores(l, looks);
    roundings_begin(&l->roundings, looks);
    if (!looks) return;
    memset(l->activations, 0,
           (size_t)(l->blocks + 1) * sizeof *l->activations);
}

status layers_end(struct layers *l)
{
    const bool looked = l->looks;

    l->looks = l->histograms = false; /* not at validations */
    if (!looked) return OK;
    for (int i = 0; i <= l->blocks; i++)
        TRY(gather_activation(l, &l->activations[i]));
    TRY(gather_scores(l));
    TRY(gather_biases(l));
    watch_scores(l, false);
    return roundings_end(&l->roundings, l->team,
                         &l->inventory->whole.params);
}
