/* SPDX-License-Identifier: Apache-2.0 */
/* sinks.c - attention sinks: each head has a score that no key has, which takes
 * its share of the softmax. Source: gpt-oss, as released (OpenAI 2025).
 *
 *   F   y = g out, g = 1 / (1 + exp(sink - lse)), over attention's output
 *   B   dsink = sum of (g - 1) (dy . y);  dout = g dy, over the gradient
 *
 * lse is the log-sum-exp of the scores without the sink. Attention's own
 * backward pass reads y as its output: (dout . y) is the sum that its softmax
 * with the sink has, so that it needs to know nothing of it. */

#include "nn/layer.h"

/* Numbers of rows, which are heads of tokens. In scratch behind the sums of the
 * gradient: gates g, logits or dots, g - 1, dots times that, the sinks, -1;
 * choices and places; rows as they were. */
struct sinks_room {
    int64_t rows, heads;
    size_t gates, numbers, rests, shares, sinks, one, chosen, places, copy, all;
};

static struct sinks_room room_of(const struct step *step,
                                 const struct program *p)
{
    const int64_t heads = p->slots[step->second].width;
    struct sinks_room room = {
        .rows = program_slot_rows(p, step->output) * heads, .heads = heads,
        .gates = arena_aligned(vector_scratch(p, 1, heads))};
    const size_t rows = (size_t)room.rows;
    const size_t real = (size_t)dtype_bytes(program_real(p));

    room.numbers = room.gates + arena_aligned(rows * real);
    room.rests = room.numbers + arena_aligned(rows * real);
    room.shares = room.rests + arena_aligned(rows * real);
    room.sinks = room.shares + arena_aligned(rows * real);
    room.one = room.sinks + arena_aligned((size_t)heads * real);
    room.chosen = room.one + arena_aligned(real);
    room.places = room.chosen + arena_aligned(rows * sizeof(int32_t));
    room.copy = room.places + arena_aligned(rows * sizeof(int32_t));
    room.all = room.copy +
               arena_aligned((size_t)(program_slot_rows(p, step->output) *
                                      p->slots[step->output].width *
                                      dtype_bytes(p->dtype)));
    return room;
}

static size_t sinks_scratch(const struct step *step, const struct program *p)
{
    return room_of(step, p).all;
}

struct sinks {
    struct sinks_room room;
    struct tensor gates, numbers, rests, shares; /* [rows, 1] real */
    int32_t *chosen, *places;
    void *copy;
};

static struct sinks sinks_of(const struct step *step, struct run *run)
{
    struct sinks_room room = room_of(step, run->program);
    const enum dtype real = program_real(run->program);
    char *at = run->scratch;

    /* A call that generates has fewer tokens than there is room for. */
    room.rows = run_slot(run, step->second).shape[0] * room.heads;
    struct sinks s = {
        .room = room, .gates = tensor_2d(at + room.gates, real, room.rows, 1),
        .numbers = tensor_2d(at + room.numbers, real, room.rows, 1),
        .rests = tensor_2d(at + room.rests, real, room.rows, 1),
        .shares = tensor_2d(at + room.shares, real, room.rows, 1),
        .copy = at + room.copy};

    s.chosen = (int32_t *)(void *)(at + room.chosen);
    s.places = run_list(run, at + room.places);
    for (int64_t i = 0; i < room.rows; i++) s.places[i] = (int32_t)i;
    return s;
}

/* Each head of each token by itself. */
static struct tensor rows_of(const struct sinks *s, struct tensor view)
{
    return tensor_2d(view.data, view.dtype, s->room.rows,
                     tensor_count(&view) / s->room.rows);
}

/* Numbers of heads of tokens, as [tokens, heads]. */
static struct tensor of_heads(const struct sinks *s, struct tensor numbers)
{
    return tensor_2d(numbers.data, numbers.dtype, s->room.rows / s->room.heads,
                     s->room.heads);
}

/* numbers = lse - sink: what is added to every token is the negative of a
 * sink. */
static status subtract(const struct run *run, const struct sinks *s,
                       struct tensor lse, struct tensor sinks)
{
    const struct tensor negative =
        tensor_1d((char *)run->scratch + s->room.sinks, lse.dtype,
                  s->room.heads);
    struct tensor every = of_heads(s, negative);

    every.stride[0] = 0;
    TRY(run->kernels->scale(run->stream, negative, sinks, -1.0));
    return run->real->add(run->stream, of_heads(s, s->numbers),
                          of_heads(s, lse), every);
}

/* The share of a head's softmax that keys have. */
static status find_gates(const struct step *step, struct run *run,
                         const struct sinks *s)
{
    const struct router router = {
        .form = {.score = ROUTER_SIGMOID, .experts = 1, .choices = 1},
        .logits = s->numbers, .gates = s->gates, .chosen = s->chosen};

    TRY(subtract(run, s, run_slot(run, step->second),
                 run_weight(run, step, 0)));
    return run->kernels->router_choose(run->stream, &router);
}

/* Each row times its gate. */
static status multiply(struct run *run, const struct sinks *s,
                       struct tensor view)
{
    struct tensor rows = rows_of(s, view);
    const struct experts_combine call = {
        .y = rows, .places = s->places, .numbers = s->chosen,
        .gates = s->gates.data, .choices = 1, .leaf_experts = 1,
        .rows = tensor_2d(s->copy, rows.dtype, rows.shape[0],
                          rows.shape[1])};

    TRY(device_copy(run->stream, s->copy, rows.data,
                    (size_t)tensor_bytes(&rows)));
    return run->kernels->experts_combine(run->stream, &call);
}

static status sinks_forward(const struct step *step, struct run *run)
{
    const struct sinks s = sinks_of(step, run);

    TRY(find_gates(step, run, &s));
    return multiply(run, &s, run_slot(run, step->output));
}

/* shares = numbers (g - 1). */
static status share_of_sinks(const struct run *run, const struct sinks *s)
{
    void *const one = (char *)run->scratch + s->room.one;
    struct tensor every = tensor_2d(one, s->gates.dtype, s->room.rows, 1);
    const struct tensor here = tensor_1d(run_list(run, one), every.dtype, 1);
    const struct experts_combine call = {
        .y = s->shares, .rows = s->numbers, .places = s->places,
        .numbers = s->chosen, .gates = s->rests.data, .choices = 1,
        .leaf_experts = 1};

    tensor_set(&here, 0, -1);
    TRY(run_told(run, one, (size_t)dtype_bytes(here.dtype)));
    every.stride[0] = 0;
    TRY(run->real->add(run->stream, s->rests, s->gates, every));
    return run->real->experts_combine(run->stream, &call);
}

static status sinks_backward(const struct step *step, struct run *run)
{
    const struct sinks s = sinks_of(step, run);
    const struct tensor dy = run_gradient(run, step->output);
    const struct experts_gates dots = {
        .dgates = s.numbers, .dy = rows_of(&s, dy),
        .rows = rows_of(&s, run_slot(run, step->output)),
        .places = s.places, .choices = 1};
    const struct tensor shares = of_heads(&s, s.shares);
    struct vector_pass pass = {0};

    TRY(overlap_wait_all(run, dy));
    TRY(find_gates(step, run, &s));
    TRY(run->kernels->experts_gates(run->stream, &dots));
    TRY(share_of_sinks(run, &s));
    while (vector_next(run, step, 0, &pass)) {
        TRY(run->real->sum_rows(run->stream, pass.sums[0],
                                addend_rows(run, shares, &pass.addend),
                                &pass.order));
        TRY(vector_end(run, step, 0, &pass));
    }
    return multiply(run, &s, dy);
}

static struct step_cost sinks_cost(const struct step *step,
                                   const struct program *p)
{
    const int64_t n =
        program_slot_rows(p, step->output) * p->slots[step->output].width;

    return (struct step_cost){
        .flops = (double)n,
        .bytes_moved = (double)(4 * n * dtype_bytes(p->dtype))};
}

static const struct layer layer_sinks = {
    .name = "sinks", .kind = LAYER_ATTENTION, .forward = sinks_forward,
    .backward_input = sinks_backward, .cost = sinks_cost,
    .scratch = sinks_scratch, .in_place = true, .keeps_output_for_b = true};

static status fail_exchange(void)
{
    FAIL(ERR_CONFIG, "context.kind: with attention sinks heads are not "
                     "exchanged for tokens, nor tokens striped; take "
                     "allgather or ring");
}

slot nn_sinks(struct program *p, slot x, const struct param_spec *spec)
{
    const struct step *last = p->step_count > 0
                                  ? &p->steps[p->step_count - 1] : NULL;

    if (p->error != OK) return -1;
    CHECK(last != NULL && last->layer == &layer_attention &&
          last->output == x);
    const slot lse = last->aux;

    if (p->layout.method.exchange > 1 || p->layout.method.striped)
        p->error = fail_exchange();
    const int step = program_add_step(p, &layer_sinks, x);

    if (p->error != OK) return -1;
    p->steps[step].output = x;
    p->steps[step].second = lse;
    program_add_param(p, step, 0, spec);
    return p->error == OK ? x : -1;
}
