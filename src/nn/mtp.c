/* SPDX-License-Identifier: Apache-2.0 */
/* mtp.c - steps of modules that predict later tokens: the table and the head of
 * the model are used again, with other tokens. Source: DeepSeek-V3,
 * arXiv:2412.19437, section 2.2. */

#include "nn/layer.h"

/* ---- the tokens of a step ---- */

/* Array number `ahead` - 1 of [depth][tokens], or that of the next token. */
static const int32_t *tokens_ahead(const struct run *run,
                                   const struct step *step,
                                   const int32_t *next, const int32_t *later)
{
    const int ahead = program_ahead(run->program, step);

    if (ahead == 0) return next;
    CHECK(later != NULL);
    return later + (ahead - 1) * run->program->size.tokens;
}

const int32_t *run_inputs(const struct run *run, const struct step *step)
{
    return tokens_ahead(run, step, run->batch.inputs, run->batch.mtp_inputs);
}

const int32_t *run_targets(const struct run *run, const struct step *step)
{
    return tokens_ahead(run, step, run->batch.targets,
                        run->batch.mtp_targets);
}

double *run_losses(const struct run *run, const struct step *step)
{
    const int ahead = program_ahead(run->program, step);

    return ahead == 0
               ? run->losses
               : run->later.losses + (ahead - 1) * run->program->size.tokens;
}

size_t mtp_bytes(const struct program *p, size_t element)
{
    return arena_aligned((size_t)(p->later.depth * p->size.tokens) * element);
}

/* ---- join: [a | b] ---- */

/* Columns from `first` on, one way or the other. */
static status move_columns(struct run *run, struct tensor wide, int64_t first,
                           struct tensor part, bool back)
{
    const int64_t bytes = dtype_bytes(wide.dtype);
    const struct device_rows here = {(char *)wide.data + first * bytes,
                                     wide.stride[0] * bytes};
    const struct device_rows there = {part.data, part.stride[0] * bytes};

    CHECK(part.dtype == wide.dtype && part.shape[0] == wide.shape[0]);
    return device_copy_rows(run->stream, back ? there : here,
                            back ? here : there, part.shape[0],
                            (size_t)(part.shape[1] * bytes));
}

static status join_forward(const struct step *step, struct run *run)
{
    const struct tensor out = run_slot(run, step->output);
    const struct tensor a = run_slot(run, step->input);

    TRY(move_columns(run, out, 0, a, false));
    return move_columns(run, out, a.shape[1], run_slot(run, step->second),
                        false);
}

static status join_backward(const struct step *step, struct run *run)
{
    const struct tensor dout = run_gradient(run, step->output);
    const struct tensor da = run_gradient(run, step->input);

    CHECK(!run->event->adds && !run->event->adds_second);
    TRY(move_columns(run, dout, 0, da, true));
    return move_columns(run, dout, da.shape[1],
                        run_gradient(run, step->second), true);
}

static struct step_cost join_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t n = program_slot_rows(p, step->output) *
                      p->slots[step->output].width;

    return (struct step_cost){
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};
}

const struct layer layer_mtp_join = {
    .name = "mtp join", .kind = LAYER_ACTIVATION, .forward = join_forward,
    .backward_input = join_backward, .cost = join_cost,
    .second_gradient = true, .forgets_second = true};

static status fail_domino(void)
{
    FAIL(ERR_CONFIG, "tensor.domino: does not work with modules for later "
                     "tokens (mtp.depth); set it to false: tensor.overlap "
                     "works");
}

slot nn_mtp_join(struct program *p, slot a, slot b)
{
    if (p->error == OK && p->layout.overlap.domino) p->error = fail_domino();
    if (p->error != OK) return -1;
    a = relayout_local(p, a);
    b = relayout_local(p, b);
    const int step = program_add_step(p, &layer_mtp_join, a);

    if (p->error != OK) return -1;
    const slot output = program_add_slot(
        p, "mtp join", p->slots[a].width + p->slots[b].width, false);

    if (p->error != OK) return -1;
    CHECK(p->slots[a].layout.tokens == p->slots[b].layout.tokens);
    p->steps[step].second = b;
    p->steps[step].output = output;
    program_lay_as(p, output, a);
    return output;
}
