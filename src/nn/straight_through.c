/* SPDX-License-Identifier: Apache-2.0 */
/* straight_through.c - rotated and rounded activations as a layer, and the way
 * back of both gradients. */
#include "nn/straight_through.h"

#include "nn/expert_sums.h"
#include "nn/operand_peaks.h"

/* At most so many leaves has a row. */
static bool is_straight(const struct program *p)
{
    return p->precision.recipe.straight;
}

uint32_t straight_signs(const struct run *run, const struct param *param,
                        enum product_use use)
{
    uint32_t words[4];

    random_block(run->keys.signs, (uint64_t)run->now.number,
                 (uint64_t)param->order * 4 + (uint64_t)use, words);
    return words[0];
}

/* ---- rows ---- */

/* The rows of a matrix, rotated and rounded as activations are. */
struct straight_rows {
    const struct param *param; /* of the product that reads them */
    struct tensor x;
    float *room;               /* as many elements; F alone */
    bool counts;               /* tallies: they are of this parameter alone */
};

static status straight_forward(struct run *run, const struct straight_rows *of,
                               struct tensor out)
{
    const struct program *p = run->program;
    const struct precision *recipe = &p->precision.recipe;
    const struct quantize_span rows = {0, of->x.shape[0], 0, false};
    struct quantize_span cols[QUANTIZED_SPANS_MAX];
    const int64_t count =
        quantized_features(p, of->param, false, cols);
    const struct tensor room =
        tensor_2d(of->room, DTYPE_F32, of->x.shape[0], of->x.shape[1]);
    const struct rotate turn = {.out = room, .in = of->x, .rows = &rows,
                                .cols = cols, .row_spans = 1,
                                .col_spans = count};
    struct quantize call = {.out = out, .in = of->x, .rows = &rows,
                            .cols = cols, .row_spans = 1, .col_spans = count};
    const struct quantized_operand operand = {
        &recipe->activations,
        operand_peaks_value(of->param, USE_FORWARD, false), false};

    if (rows.count == 0) return OK;
    if (recipe->rotate) {
        TRY(run->kernels->rotate(run->stream, &turn));
        call.in = room;
    }
    quantized_set(&call, run, &operand);
    if (!of->counts) call.tally = NULL;
    return run->kernels->quantize(run->stream, &call);
}

/* left NULL: none; gradient == out allowed. */
static status straight_backward(struct run *run, const struct straight_rows *of,
                                struct tensor gradient,
                                const struct tensor *left, struct tensor out)
{
    const struct precision *recipe = &run->program->precision.recipe;
    struct quantize_span cols[QUANTIZED_SPANS_MAX];
    const struct unrotate call = {
        .out = out, .gradient = gradient, .x = of->x, .left = left,
        .cols = cols,
        .col_spans =
            quantized_features(run->program, of->param, false, cols),
        .turn = recipe->rotate, .trust = recipe->trust,
        .format = recipe->activations.format,
        .scale = recipe->activations.scale,
        .factor = precision_factor(recipe)};

    return run->kernels->unrotate(run->stream, &call);
}

status straight_glu(struct run *run, const struct straight_glu *of,
                    struct tensor out)
{
    const struct straight_rows rows = {of->param, out, of->room, false};

    TRY(experts_gate(of->step, run, out, of->h));
    return is_straight(run->program) && quantized_is(run, of->step)
               ? straight_forward(run, &rows, out) : OK;
}

status straight_glu_back(struct run *run, const struct straight_glu *of,
                         struct tensor gradient)
{
    struct straight_rows rows = {of->param, gradient, NULL, false};

    if (!is_straight(run->program) || !quantized_is(run, of->step)) return OK;
    rows.x.data = of->room; /* they are made again */
    TRY(experts_gate(of->step, run, rows.x, of->h));
    return straight_backward(run, &rows, gradient, NULL, gradient);
}

/* ---- the layer ---- */

static int64_t width_of(const struct step *step, const struct program *p)
{
    const int choices = step->set.experts.form.choices;

    return p->slots[step->input].width / (choices > 0 ? choices : 1);
}

/* A slot, or its gradient: rows of tokens, or the rows that experts have. */
static struct tensor rows_of(const struct step *step, const struct run *run,
                             struct tensor view, int64_t count)
{
    const struct tensor rows =
        choice_rows(view, width_of(step, run->program));

    return step->second < 0 ? rows : tensor_rows(rows, 0, count);
}

/* So many rows do experts have. */
static status count_rows(const struct step *step, struct run *run,
                         int64_t *count)
{
    struct choice choice;

    *count = 0;
    if (step->second < 0) return OK;
    choice = choice_of(run, step, step->second);
    TRY(choice_read(run, &choice));
    for (int64_t i = 0; i < choice.tokens * choice.choices; i++)
        *count += choice.chosen[i] >= 0;
    return OK;
}

static struct straight_rows input_of(const struct step *step, struct run *run,
                                     int64_t count)
{
    const struct param *param = &run->program->params.items[step->named];

    return (struct straight_rows){
        param, rows_of(step, run, run_slot(run, step->input), count),
        run->scratch, param->spec.expert == 0};
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

static status rotate_forward(const struct step *step, struct run *run)
{
    int64_t count;

    TRY(count_rows(step, run, &count));
    const struct straight_rows of = input_of(step, run, count);
    const struct tensor out =
        rows_of(step, run, run_slot(run, step->output), count);

    if (quantized_is(run, step)) return straight_forward(run, &of, out);
    return run->kernels->scale(run->stream, flat(out), flat(of.x), 1.0);
}

static status rotate_backward(const struct step *step, struct run *run)
{
    int64_t count;

    TRY(count_rows(step, run, &count));
    const struct straight_rows of = input_of(step, run, count);
    const struct tensor dx =
        rows_of(step, run, run_gradient(run, step->input), count);
    const struct tensor dy =
        rows_of(step, run, run_gradient(run, step->output), count);
    const struct tensor *left = run->event->adds ? &dx : NULL;

    if (quantized_is(run, step))
        return straight_backward(run, &of, dy, left, dx);
    if (left != NULL)
        return run->kernels->add(run->stream, flat(dx), flat(dx), flat(dy));
    return run->kernels->scale(run->stream, flat(dx), flat(dy), 1.0);
}

static struct step_cost rotate_cost(const struct step *step,
                                    const struct program *p)
{
    const int64_t n = p->size.tokens * p->slots[step->input].width;

    return (struct step_cost){
        .flops = (double)(12 * n),
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};
}

static size_t rotate_scratch(const struct step *step, const struct program *p)
{
    return (size_t)(program_slot_rows(p, step->input) *
                    p->slots[step->input].width) * sizeof(float);
}

static const struct layer layer_rotate = {
    .name = "rotate", .kind = LAYER_ACTIVATION, .forward = rotate_forward,
    .backward_input = rotate_backward, .cost = rotate_cost,
    .scratch = rotate_scratch, .keeps_input_for_b = true};

slot straight_rotate(struct program *p, slot x, const struct param_spec *weight,
                     slot choice, int choices)
{
    if (p->error != OK || !is_straight(p) || !quantized_applies(p, weight))
        return x;
    x = relayout_local(p, x);
    if (p->error != OK) return -1;
    const int step = program_add_step(p, &layer_rotate, x);
    const slot output =
        program_add_slot(p, layer_rotate.name, p->slots[x].width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].few = true;
    p->steps[step].second = choice;
    p->steps[step].set.experts.form.choices = choices;
    program_lay_as(p, output, x);
    return output;
}

void straight_name(struct program *p, slot x, int param)
{
    for (int i = p->step_count - 1; i >= 0; i--)
        if (p->steps[i].output == x) { /* the step that made it */
            if (p->steps[i].layer == &layer_rotate) p->steps[i].named = param;
            return;
        }
}

/* ---- gradients of weights ---- */

/* The sum of a leaf, of the weight that is used. */
static status leaf_back(void *argument, int use, struct tensor leaf)
{
    const struct straight_weights *w = argument;
    struct run *run = w->run;
    const struct program *p = run->program;
    const struct precision *recipe = &p->precision.recipe;
    struct quantize_span cols[QUANTIZED_SPANS_MAX];
    struct step one = *w->step;

    one.param[0] += use - one.use[0];
    CHECK(use >= one.use[0] && use < one.use[0] + one.each);
    const struct unrotate call = {
        .out = leaf, .gradient = leaf, .x = run_weight(run, &one, 0),
        .cols = cols,
        .col_spans = quantized_features(
            p, &p->params.items[one.param[0]], false, cols),
        .turn = recipe->rotate, .trust = recipe->trust,
        .format = recipe->weights.format, .scale = recipe->weights.scale,
        .factor = precision_factor(recipe)};

    return run->kernels->unrotate(run->stream, &call);
}

void straight_begin(struct straight_weights *w, struct run *run,
                    const struct step *step)
{
    *w = (struct straight_weights){run, step};
    if (!is_straight(run->program) || !quantized_is(run, step)) return;
    run->gradients->finish = leaf_back;
    run->gradients->finish_argument = w;
}

void straight_end(struct run *run)
{
    run->gradients->finish = NULL;
}
