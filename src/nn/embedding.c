/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c - rows of a table at the tokens, or at their positions. The
 * gradient of a table is a sum over the tokens that name a row. */
#include "nn/layer.h"

/* The rows that this rank has of a table that the tensor axis cuts. */
static struct layout_span rows_here(const struct step *step,
                                    const struct program *p)
{
    return layout_held(&p->params.items[step->param[0]].spec, &p->layout.mesh,
                       &p->layout.place, 0);
}

/* Tokens as rows of the table here; -1: another rank has the row. */
static const int32_t *own_index(const struct step *step, struct run *run)
{
    const struct layout_span rows = rows_here(step, run->program);
    int32_t *index = run->lists;

    const int32_t *inputs = run_inputs(run, step);

    if (program_tensor_ranks(run->program) == 1) return inputs;
    for (int64_t t = 0; t < run_tokens(run); t++) {
        const int64_t row = inputs[t] - rows.first;

        index[t] = row >= 0 && row < rows.count ? (int32_t)row : -1;
    }
    return index;
}

/* Whether the gradient has the rows that tokens name only. */
static bool names_rows(const struct step *step, const struct program *p)
{
    return step->use[0] >= 0 && p->uses[step->use[0]].rows > 0;
}

static size_t index_bytes(const struct step *step, const struct program *p)
{
    const size_t bytes = (size_t)p->size.tokens * sizeof(int32_t);

    if (program_tensor_ranks(p) == 1 && !names_rows(step, p)) return 0;
    return arena_aligned(bytes);
}

/* ... and room for rows on their way into a sum over ranks, which is real. */
static size_t row_scratch(const struct step *step, const struct program *p)
{
    const int64_t elements = p->size.tokens * p->slots[step->output].width;
    const bool wide = p->slots[step->output].dtype != p->dtype;

    return index_bytes(step, p) +
           (wide ? (size_t)(elements * dtype_bytes(p->dtype)) : 0);
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

/* Looks rows up where a head has the table in strips (generation). */
static status look_up_strips(const struct step *step, struct run *run,
                             const int32_t *index)
{
    const struct tensor out = run_slot(run, step->output);
    const struct tensor table = run_weight(run, step, 0);

    for (int64_t t = 0; t < out.shape[0]; t++)
        strips_row(&run->kernels->strips, &table, index[t],
                   tensor_rows(out, t, 1).data);
    return OK;
}

/* Rows of the table into the slot, or added to it. */
static status look_up(const struct step *step, struct run *run,
                      const int32_t *index, bool adds)
{
    const struct tensor out = run_slot(run, step->output);
    const struct tensor table = run_weight(run, step, 0);
    struct tensor rows = out;

    if (out.dtype == table.dtype)
        return run->kernels->gather_rows(run->stream, out, adds, table, index);
    rows.dtype = table.dtype;
    rows.data = (char *)run->scratch + index_bytes(step, run->program);
    TRY(run->kernels->gather_rows(run->stream, rows, false, table, index));
    if (adds)
        return run->kernels->add(run->stream, flat(out), flat(out),
                                 flat(rows));
    return run->kernels->scale(run->stream, flat(out), flat(rows), 1.0);
}

static status embedding_forward(const struct step *step, struct run *run)
{
    if (run_in_strips(run, step, 0))
        return look_up_strips(step, run, run_inputs(run, step));
    return look_up(step, run, own_index(step, run), false);
}

/* Only the first of the ranks whose outputs are added adds the positions. */
static status position_forward(const struct step *step, struct run *run)
{
    if (run->program->layout.place.at[AXIS_TENSOR] > 0) return OK;
    return look_up(step, run, run->batch.positions, true);
}

static status scatter(const struct step *step, struct run *run,
                      const int32_t *index)
{
    struct gradients *g = run->gradients;
    const struct tensor dy = run_gradient(run, step->output);
    struct addend_cursor cursor = {0};
    struct addend addend;

    if (!gradient_made(run->program, step->use[0])) return OK;
    TRY(overlap_wait_all(run, dy));
    while (addend_next(&g->cut[0], run->batch.index, &cursor, &addend)) {
        const int sums = gradient_sums(g, step->use[0], &addend);

        for (int i = 0; i < sums; i++) {
            struct gradient_target target;
            struct token_order order;

            gradient_begin(g, step->use[0], &addend, i, &target);
            order = run_token_order(run, &addend, target.continues);
            order.only = target.only;
            TRY(run->kernels->scatter_rows(
                run->stream, target.c, addend_rows(run, dy, &addend),
                index + addend_first_token(run->program, &addend), &order));
            TRY(gradient_end(g, step->use[0], i));
        }
    }
    return OK;
}

static status embedding_weight(const struct step *step, struct run *run)
{
    if (names_rows(step, run->program)) {
        tied_rows_find(&run->gradients->named, run->batch.inputs,
                        run_tokens(run), run->lists);
        return scatter(step, run, run->lists);
    }
    return scatter(step, run, own_index(step, run));
}

static status position_weight(const struct step *step, struct run *run)
{
    return scatter(step, run, run->batch.positions);
}

static struct step_cost embedding_cost(const struct step *step,
                                       const struct program *p)
{
    const int64_t n = p->size.tokens * p->slots[step->output].width;

    return (struct step_cost){
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};
}

static const struct layer layer_embedding = {
    .name = "embedding", .kind = LAYER_EMBEDDING, .looks_up = true,
    .forward = embedding_forward,
    .backward_weight = embedding_weight, .cost = embedding_cost,
    .scratch = row_scratch,
    .keeps_output_gradient_for_w = true};

static status scale_over(const struct step *step, struct run *run,
                         struct tensor x)
{
    x = tensor_1d(x.data, x.dtype, tensor_count(&x));
    return run->kernels->scale(run->stream, x, x, step->set.scale.factor);
}

static status scale_forward(const struct step *step, struct run *run)
{
    return scale_over(step, run, run_slot(run, step->output));
}

static status scale_backward(const struct step *step, struct run *run)
{
    const struct tensor dy = run_gradient(run, step->output);

    TRY(overlap_wait_all(run, dy));
    return scale_over(step, run, dy);
}

static const struct layer layer_scale = {
    .name = "scale", .kind = LAYER_EMBEDDING, .forward = scale_forward,
    .backward_input = scale_backward, .cost = embedding_cost,
    .in_place = true};

static const struct layer layer_position = {
    .name = "positions", .kind = LAYER_EMBEDDING, .forward = position_forward,
    .backward_weight = position_weight, .cost = embedding_cost,
    .scratch = row_scratch, .in_place = true,
    .keeps_output_gradient_for_w = true};

/* A lookup in a table; shared: the parameter that it is, -1: a new one. */
static slot add_lookup(struct program *p, const struct param_spec *table,
                       int shared)
{
    const int step = program_add_step(p, &layer_embedding, -1);
    const slot output = program_add_slot(p, "embedding", table->cols, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    if (table->split_rows != AXIS_NONE)
        program_set_partial(p, output, table->split_rows);
    if (shared < 0) program_add_param(p, step, 0, table);
    else program_add_use(p, step, 0, shared);
    if (p->error != OK) return -1;
    p->uses[p->use_count - 1].scatter = true;
    p->uses[p->use_count - 1].enters = shared < 0;
    return output;
}

slot nn_embedding(struct program *p, const struct param_spec *table)
{
    const slot output = add_lookup(p, table, -1);

    if (output < 0) return -1;
    return table->split_rows == AXIS_TENSOR
               ? output : relayout_uncut(p, output, table->name);
}

slot nn_mtp_embedding(struct program *p)
{
    if (p->error != OK) return -1;
    CHECK(p->steps[0].layer == &layer_embedding);
    const int table = p->steps[0].param[0];

    return add_lookup(p, &p->params.items[table].spec, table);
}

slot nn_position_embedding(struct program *p, slot x,
                           const struct param_spec *table)
{
    const int step = program_add_step(p, &layer_position, x);

    if (p->error != OK) return -1;
    p->steps[step].output = x;
    program_add_param(p, step, 0, table);
    if (p->error == OK) p->uses[p->use_count - 1].scatter = true;
    return x;
}

slot nn_scale_over(struct program *p, slot x, double factor)
{
    const int step = program_add_step(p, &layer_scale, x);

    if (p->error != OK) return -1;
    p->steps[step].output = x;
    p->steps[step].set.scale.factor = factor;
    return x;
}
