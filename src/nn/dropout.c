/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - elements of a slot set to zero at random, the others made larger
 * so that the mean stays. Source: Srivastava et al. 2014, "Dropout: a simple
 * way to prevent neural networks from overfitting", JMLR 15, section 10.
 *
 * Whether an element is kept is a function of the run's seed, of the number of
 * its sequence among all that the run reads, and of its position, block, use
 * and column. A sequence is read in one step, so its number says the step too.
 * Nothing is kept for B, which makes the same numbers again, and nothing of a
 * layout can show. */
#include "nn/layer.h"

/* The counter's bits above the generator's blocks of a row. */
enum { SITE_SHIFT = 20, POSITION_SHIFT = 40 };

static bool cut_by_tokens(const struct program *p, slot which)
{
    return p->slots[which].layout.tokens >> AXIS_TENSOR & 1;
}

/* Where each row of a slot stands. */
static const struct dropout_row *find_rows(const struct step *step,
                                           struct run *run, int64_t count)
{
    const struct program *p = run->program;
    const int64_t context_chunk = p->size.length / p->size.context_chunks;
    struct layout_span own = {0, context_chunk};
    struct dropout_row *rows = run->lists;

    if (cut_by_tokens(p, step->output))
        own = program_part(p, p->layout.place.at[AXIS_TENSOR]);
    for (int64_t i = 0; i < count; i++) {
        const int64_t part = i / own.count; /* a context chunk of a sequence */
        const int64_t token = part % p->size.context_chunks * context_chunk +
                              own.first + i % own.count;
        const int64_t position = program_position(p, token);

        rows[i].low =
            (uint64_t)(run->batch.sequence + part / p->size.context_chunks);
        rows[i].high = (uint64_t)position << POSITION_SHIFT |
                       step->set.dropout.site << SITE_SHIFT;
    }
    return rows;
}

static status drop(const struct step *step, struct run *run,
                   struct dropout *call)
{
    call->key = run->keys.dropout;
    call->rate = run->program->regular.dropout;
    call->rows = find_rows(step, run, call->y.shape[0]);
    return run->kernels->dropout(run->stream, call);
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

/* Outside training: x, or left + x. */
static status pass_through(struct run *run, const struct dropout *call)
{
    if (call->left.data == NULL)
        return run->kernels->scale(run->stream, flat(call->y), flat(call->x),
                                   1.0);
    return run->kernels->add(run->stream, flat(call->y), flat(call->left),
                             flat(call->x));
}

static status dropout_forward(const struct step *step, struct run *run)
{
    struct dropout call = {.y = run_slot(run, step->output),
                           .x = run_slot(run, step->input)};

    if (step->left >= 0) call.left = run_slot(run, step->left);
    if (run->gradients == NULL) return pass_through(run, &call);
    return drop(step, run, &call);
}

static status dropout_backward(const struct step *step, struct run *run)
{
    struct dropout call = {.y = run_gradient(run, step->input),
                           .x = run_gradient(run, step->output)};

    CHECK(!run->event->adds); /* nobody else reads the input */
    return drop(step, run, &call);
}

static struct step_cost dropout_cost(const struct step *step,
                                     const struct program *p)
{
    const int64_t n =
        program_slot_rows(p, step->output) * p->slots[step->output].width;
    const int64_t operands = step->left >= 0 ? 3 : 2;

    return (struct step_cost){
        .flops = (double)(operands * n),
        .bytes_moved = (double)(operands * n * dtype_bytes(p->dtype))};
}

static size_t dropout_scratch(const struct step *step, const struct program *p)
{
    return (size_t)program_slot_rows(p, step->output) *
           sizeof(struct dropout_row);
}

const struct layer layer_dropout = {
    .name = "dropout", .kind = LAYER_DROPOUT, .forward = dropout_forward,
    .backward_input = dropout_backward, .cost = dropout_cost,
    .scratch = dropout_scratch};

/* ---- jitter of routers: Fedus et al. 2021, arXiv:2101.03961, appendix ---- */

static status jitter(const struct step *step, struct run *run, struct tensor y,
                     struct tensor x)
{
    const struct jitter call = {
        .y = y, .x = x, .key = run->keys.jitter,
        .epsilon = run->program->regular.jitter,
        .rows = find_rows(step, run, y.shape[0])};

    return run->kernels->jitter(run->stream, &call);
}

static status jitter_forward(const struct step *step, struct run *run)
{
    const struct tensor y = run_slot(run, step->output);
    const struct tensor x = run_slot(run, step->input);

    if (run->gradients != NULL) return jitter(step, run, y, x);
    return run->kernels->scale(run->stream, flat(y), flat(x), 1.0);
}

/* Behind the rows in scratch: what is added where x has other readers. */
static status jitter_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);
    struct tensor more = dx;

    if (!run->event->adds)
        return jitter(step, run, dx, run_gradient(run, step->output));
    more.data = (char *)run->scratch +
                arena_aligned(dropout_scratch(step, run->program));
    TRY(jitter(step, run, more, run_gradient(run, step->output)));
    return run->kernels->add(run->stream, flat(dx), flat(dx), flat(more));
}

static size_t jitter_scratch(const struct step *step, const struct program *p)
{
    return arena_aligned(dropout_scratch(step, p)) +
           (size_t)(program_slot_rows(p, step->output) *
                    p->slots[step->output].width * dtype_bytes(p->dtype));
}

static const struct layer layer_jitter = {
    .name = "jitter", .kind = LAYER_DROPOUT, .forward = jitter_forward,
    .backward_input = jitter_backward, .cost = dropout_cost,
    .scratch = jitter_scratch};

slot nn_jitter(struct program *p, slot x)
{
    if (p->error != OK || p->regular.jitter == 0) return x;
    x = relayout_local(p, x);
    const int step = program_add_step(p, &layer_jitter, x);
    const slot output = program_add_slot(p, layer_jitter.name,
                                         x < 0 ? 0 : p->slots[x].width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.dropout.site = (uint64_t)(p->block + 1);
    program_lay_as(p, output, x);
    return output;
}

slot nn_dropout(struct program *p, slot x, int use)
{
    if (p->error != OK || p->regular.dropout == 0) return x;
    x = relayout_local(p, x);
    const int step = program_add_step(p, &layer_dropout, x);
    const slot output = program_add_slot(p, layer_dropout.name,
                                         x < 0 ? 0 : p->slots[x].width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.dropout.site =
        (uint64_t)(p->block + 1) * DROPOUT_USES + (uint64_t)use;
    program_lay_as(p, output, x);
    return output;
}
