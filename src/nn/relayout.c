/* SPDX-License-Identifier: Apache-2.0 */
/* relayout.c - between slots whose tokens the tensor axis cuts and whole ones.
 * Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2 (g and its
 * conjugate: all-gather one way, reduce-scatter the other).
 *
 *   gather   F: every rank's tokens to all     B: sums of the ranks' gradients
 *   scatter  F: sums of the ranks' outputs,    B: every rank's gradient to all
 *               each rank its tokens
 *
 * The sums are those of the grid's tree: what a rank brings is the root of its
 * leaves. The bias and the residual of the product before a scatter come after
 * the sum, as one rank adds them. */
#include "nn/layer.h"

#include <string.h>

/* Elements of each rank's tokens of one context chunk of a sequence. */
static const int64_t *part_counts(const struct run *run, int64_t width)
{
    const struct program *p = run->program;

    for (int i = 0; i < program_tensor_ranks(p); i++)
        run->peers.counts[i] = program_part(p, i).count * width;
    return run->peers.counts;
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

status relayout_gather_tokens(struct run *run, struct tensor whole,
                              struct tensor part)
{
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_ORDERED,
        .out = flat(whole), .in = flat(part),
        .out_counts = part_counts(run, whole.shape[1]),
        .rows = program_rows(run->program)};

    CHECK(run->groups[AXIS_TENSOR] != NULL);
    if (run->event->beside) return overlap_gather(run, whole, part);
    return comm_run(run->groups[AXIS_TENSOR], &call);
}

status relayout_scatter_sums(struct run *run, struct tensor part,
                             struct tensor whole)
{
    const struct comm_call call = {
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = flat(part), .in = flat(whole),
        .in_counts = part_counts(run, whole.shape[1]),
        .rows = program_rows(run->program)};

    CHECK(run->groups[AXIS_TENSOR] != NULL);
    return comm_run(run->groups[AXIS_TENSOR], &call);
}

/* ---- gather ---- */

static status gather_forward(const struct step *step, struct run *run)
{
    return relayout_gather_tokens(run, run_slot(run, step->output),
                         run_slot(run, step->input));
}

/* A narrow view is set once its sum is whole. */
static status set_sum(struct run *run, struct tensor out, struct tensor sum)
{
    if (out.data == sum.data) return OK;
    return run->kernels->scale(run->stream, flat(out), flat(sum), 1.0);
}

/* Room for the sum that a view becomes: its own, unless it is narrow. */
static struct tensor sum_room(const struct run *run, struct tensor out)
{
    if (!dtype_is_narrow(out.dtype)) return out;
    return tensor_2d(run->scratch, dtype_real(out.dtype), out.shape[0],
                     out.shape[1]);
}

static status gather_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);
    struct tensor sum;

    if (run->event->beside) {
        sum = run_sums(run, step->input, true);
        TRY(overlap_wait_all(run, sum));
        return set_sum(run, dx, sum);
    }
    sum = sum_room(run, dx);
    if (run->event->adds) sum.data = run->scratch;
    TRY(relayout_scatter_sums(run, sum, run_gradient(run, step->output)));
    if (!run->event->adds) return set_sum(run, dx, sum);
    return run->kernels->add(run->stream, flat(dx), flat(dx), flat(sum));
}

static int64_t part_elements(const struct program *p, int64_t width)
{
    const int64_t tokens =
        program_part(p, p->layout.place.at[AXIS_TENSOR]).count *
        program_rows(p);

    return tokens * width;
}

static struct step_cost gather_cost(const struct step *step,
                                    const struct program *p)
{
    const int64_t width = p->slots[step->output].width;

    return (struct step_cost){
        .bytes_moved = (double)(p->size.tokens * width * dtype_bytes(p->dtype)),
        .bytes_sent = (double)(part_elements(p, width) *
                               dtype_bytes(p->dtype)) *
                      (program_tensor_ranks(p) - 1)};
}

static size_t gather_scratch(const struct step *step, const struct program *p)
{
    return (size_t)(part_elements(p, p->slots[step->output].width) *
                    dtype_bytes(program_real(p)));
}

size_t relayout_messages(const struct program *p, const struct group *tensor,
                         int64_t width)
{
    const enum dtype real = program_real(p);
    int64_t most = 0; /* tokens of a rank, of one context chunk of a sequence */

    for (int i = 0; i < program_tensor_ranks(p); i++)
        if (program_part(p, i).count > most) most = program_part(p, i).count;
    return comm_scratch_bytes(tensor, &(struct comm_call){
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM,
        .out = tensor_1d(NULL, real, most * program_rows(p) * width),
        .in = tensor_1d(NULL, real, p->size.tokens * width),
        .rows = program_rows(p)});
}

static size_t sum_messages(const struct step *step, const struct program *p,
                           const struct group *tensor)
{
    return relayout_messages(p, tensor, p->slots[step->output].width);
}

/* Every rank's tokens to all, and sums of all ranks to each; beside products
 * a call for each sub-batch of the micro-batch. */
static void relayout_exchanges(const struct step *step,
                               const struct program *p,
                               const struct exchange_case *at,
                               struct layer_exchanges *out)
{
    const int64_t width =
        program_slot_width(p, step->output, !exchange_forward(at));
    const int64_t part =
        program_part(p, p->layout.place.at[AXIS_TENSOR]).count *
        program_rows(p) * width;
    const bool gathers = (step->layer->relayout == RELAYOUT_GATHER) ==
                         exchange_forward(at);
    struct layer_exchange exchange = {
        .axis = AXIS_TENSOR, .what = SENT_ACTIVATIONS,
        .calls = at->event->beside ? overlap_batches(p) : 1};

    if (!exchange_forward(at) && !exchange_backward(at)) return;
    exchange.kind = gathers ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER;
    exchange.bytes = gathers ? part * (program_tensor_ranks(p) - 1) *
                                   dtype_bytes(p->dtype)
                             : (p->size.tokens * width - part) *
                                   dtype_bytes(program_real(p));
    layer_exchanges_add(out, p, exchange);
}

static const struct layer layer_gather = {
    .name = "gather", .kind = LAYER_RELAYOUT, .relayout = RELAYOUT_GATHER,
    .forward = gather_forward,
    .backward_input = gather_backward, .cost = gather_cost,
    .scratch = gather_scratch, .messages = sum_messages,
    .exchanges = relayout_exchanges};

/* ---- scatter ---- */

/* Layer scratch of F: the sum, where the slot is narrow; zeros, and the bias
 * widened. */
struct scatter_room { size_t zeros, bias, all; };

static struct scatter_room scatter_room(const struct step *step,
                                        const struct program *p)
{
    const size_t rows = (size_t)program_slot_rows(p, step->output);
    const size_t width = (size_t)p->slots[step->output].width;
    const size_t real = (size_t)dtype_bytes(program_real(p));
    const bool narrow = dtype_is_narrow(p->dtype);
    struct scatter_room room = {
        .zeros = narrow ? arena_aligned(rows * width * real) : 0};

    room.bias = room.zeros;
    if (step->param[0] >= 0) room.bias += arena_aligned(rows * sizeof(int32_t));
    room.all = room.bias;
    if (step->param[0] >= 0 && narrow) room.all += width * real;
    return room;
}

/* sum + bias, row by row: a table of one row, looked up for every token. */
static status add_bias(const struct step *step, struct run *run,
                       struct tensor sum)
{
    const struct scatter_room room = scatter_room(step, run->program);
    struct tensor bias = run_weight(run, step, 0);
    int32_t *zeros = run_list(run, (char *)run->scratch + room.zeros);

    memset(zeros, 0, (size_t)sum.shape[0] * sizeof *zeros);
    if (bias.dtype != sum.dtype) {
        const struct tensor wide = tensor_1d((char *)run->scratch + room.bias,
                                             sum.dtype, bias.shape[0]);

        TRY(run->kernels->scale(run->stream, wide, bias, 1.0));
        bias = wide;
    }
    return run->real->gather_rows(
        run->stream, sum, true,
        tensor_2d(bias.data, bias.dtype, 1, bias.shape[0]), zeros);
}

static status scatter_forward(const struct step *step, struct run *run)
{
    const struct tensor y = run_slot(run, step->output);
    struct tensor sum;

    if (run->event->beside) {
        sum = run_sums(run, step->output, false);
        TRY(overlap_wait_all(run, sum));
    } else {
        sum = sum_room(run, y);
        TRY(relayout_scatter_sums(run, sum, run_slot(run, step->input)));
    }
    if (step->param[0] >= 0) TRY(add_bias(step, run, sum));
    if (run->event->norm > 0) {
        struct add_norm call = {.x = y, .left = run_slot(run, step->left),
                                .y = sum};

        TRY(norm_call(run, run->event->norm, &call.norm));
        return run->kernels->add_norm(run->stream, &call);
    }
    if (step->left < 0) return set_sum(run, y, sum);
    return run->kernels->add(run->stream, flat(y),
                             flat(run_slot(run, step->left)), flat(sum));
}

static status scatter_backward(const struct step *step, struct run *run)
{
    const struct tensor dy = run_gradient(run, step->output);
    struct vector_pass pass = {0};

    CHECK(!run->event->adds); /* a sum over ranks has one reader */
    TRY(relayout_gather_tokens(run, run_gradient(run, step->input), dy));
    if (step->param[0] < 0) return OK;
    while (vector_next(run, step, 0, &pass)) {
        TRY(run->kernels->sum_rows(run->stream, pass.sums[0],
                                   addend_rows(run, dy, &pass.addend),
                                   &pass.order));
        TRY(vector_end(run, step, 0, &pass));
    }
    return OK;
}

static struct step_cost scatter_cost(const struct step *step,
                                     const struct program *p)
{
    const int64_t width = p->slots[step->output].width;
    const int64_t all = p->size.tokens * width;
    const int64_t real = dtype_bytes(program_real(p));

    return (struct step_cost){
        .bytes_moved = (double)(all * real),
        .bytes_sent = (double)((all - part_elements(p, width)) * real)};
}

static size_t scatter_scratch(const struct step *step, const struct program *p)
{
    const size_t room = scatter_room(step, p).all;
    const size_t sums = step->param[0] < 0
                            ? 0
                            : vector_scratch(p, 1,
                                             p->slots[step->output].width);

    return sums > room ? sums : room;
}

const struct layer layer_scatter = {
    .name = "scatter", .kind = LAYER_RELAYOUT, .relayout = RELAYOUT_SCATTER,
    .forward = scatter_forward,
    .backward_input = scatter_backward, .cost = scatter_cost,
    .scratch = scatter_scratch, .messages = sum_messages,
    .exchanges = relayout_exchanges, .makes_norm = true};

/* ---- building ---- */

static const unsigned tensor_bit = 1u << AXIS_TENSOR;

slot relayout_scatter(struct program *p, slot x, const struct param_spec *bias)
{
    const int step = program_add_step(p, &layer_scatter, x);
    const slot output = program_add_slot(
        p, layer_scatter.name, x < 0 ? 0 : p->slots[x].width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->slots[output].layout = p->slots[x].layout;
    p->slots[output].layout.partial &= ~tensor_bit;
    p->slots[output].layout.tokens |= tensor_bit;
    if (bias != NULL) program_add_param(p, step, 0, bias);
    return output;
}

slot relayout_local(struct program *p, slot x)
{
    if (p->error != OK || !(p->slots[x].layout.partial & tensor_bit) ||
        program_tensor_ranks(p) == 1)
        return x;
    if (p->slots[x].local < 0) {
        const int block = p->block;
        slot local;

        program_enter_block(p, p->slots[x].block); /* part of what wrote x */
        local = relayout_scatter(p, x, NULL);
        if (local >= 0) p->slots[local].block = p->slots[x].block;
        program_enter_block(p, block);
        if (p->error != OK) return -1;
        p->slots[x].local = local;
    }
    return p->slots[x].local;
}

slot relayout_whole(struct program *p, slot x, bool again)
{
    const slot from = relayout_local(p, x);

    if (p->error != OK || program_tensor_ranks(p) == 1 ||
        !(p->slots[from].layout.tokens & tensor_bit))
        return from;
    const int step = program_add_step(p, &layer_gather, from);
    const slot output = program_add_slot(p, layer_gather.name,
                                         p->slots[from].width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    program_lay_as(p, output, from);
    p->slots[output].layout.tokens &= ~tensor_bit;
    p->slots[output].again = again;
    p->slots[output].gradient_dtype = program_real(p);
    return output;
}

static status fail_uncut(const char *name)
{
    FAIL(ERR_CONFIG, "%s: the tensor axis does not cut it; it runs on one "
                     "tensor rank only", name);
}

slot relayout_uncut(struct program *p, slot x, const char *name)
{
    if (program_tensor_ranks(p) == 1) return x;
    p->error = fail_uncut(name);
    return -1;
}
