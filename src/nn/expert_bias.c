/* SPDX-License-Identifier: Apache-2.0 */
/* expert_bias.c - biases of the products of experts. */
#include "nn/expert_bias.h"


/* ---- up: one of each expert ---- */

struct tensor expert_bias_of(const struct step *step, int which,
                             struct run *run)
{
    struct step other = *step;
    int64_t away = 0;

    if (step->param[which] < 0) return (struct tensor){0};
    const struct tensor first = run_weight(run, step, which);
    const int64_t n = tensor_count(&first);

    for (int i = 1; i < step->each; i++) {
        other.param[which] = step->param[which] + i;
        const struct tensor one = run_weight(run, &other, which);

        if (i == 1)
            away = ((const char *)one.data - (const char *)first.data) /
                   dtype_bytes(first.dtype);
        CHECK((const char *)one.data ==
              (const char *)first.data +
                  i * away * dtype_bytes(first.dtype));
    }
    struct tensor all = tensor_2d(first.data, first.dtype, step->each, n);

    if (step->each > 1) all.stride[0] = away;
    return all;
}

struct bias_rows {
    const struct choice_lists *lists;
    struct tensor dy;
    struct addend addend;
    int sum;              /* of the addend */
};

/* One expert's sum of an addend. */
static status sum_one(const struct step *step, struct run *run, int expert,
                      const struct bias_rows *rows)
{
    const struct addend *addend = &rows->addend;
    const int use = step->use[1] + expert;
    struct gradient_target target;
    struct experts_sums call = {0};
    int64_t row = 0;

    if (!gradient_made(run->program, use)) return OK;
    gradient_begin(run->gradients, use, addend, rows->sum, &target);
    const struct sum_order order = run_order_tokens(run, addend, target.only);
    const struct expert_groups groups = choice_some(rows->lists, expert, 1,
                                                    &row);
    const int64_t first = addend_first_token(run->program, addend);

    for (int64_t i = 0; i < order.segment_count; i++)
        run->segments[i].first += first;
    call.groups = &groups;
    call.order = &order;
    call.continues = target.continues;
    call.adds = target.left;
    call.c = tensor_2d(target.c.data, target.c.dtype, 1,
                       tensor_count(&target.c));
    call.a.matrix = tensor_rows(rows->dy, row, rows->dy.shape[0] - row);
    TRY(run->kernels->experts_sums(run->stream, &call));
    return gradient_end(run->gradients, use, rows->sum);
}

status expert_bias_sums(const struct step *step, struct run *run,
                        const struct choice_lists *lists, struct tensor dy)
{
    struct gradients *g = run->gradients;
    struct bias_rows rows = {.lists = lists, .dy = dy};
    struct addend_cursor cursor = {0};

    if (step->param[1] < 0 || g == NULL) return OK;
    while (addend_next(&g->cut[0], run->batch.index, &cursor, &rows.addend)) {
        const int sums = gradient_sums(g, step->use[1], &rows.addend);

        for (rows.sum = 0; rows.sum < sums; rows.sum++)
            for (int e = 0; e < step->each; e++)
                TRY(sum_one(step, run, e, &rows));
    }
    return OK;
}

/* ---- down: of all experts ---- */

/* Behind the sums of the gradient: gates of every expert [tokens, experts],
 * what the bias adds to the gradients of gates, and dy widened. */
static size_t sums_bytes(const struct step *step, const struct program *p)
{
    return arena_aligned(vector_scratch(
        p, 1, p->params.items[step->param[0]].elements));
}

size_t expert_bias_scratch(const struct step *step, const struct program *p)
{
    const struct router_form *form = &step->set.experts.form;
    const int64_t tokens = program_slot_rows(p, step->output);

    if (step->param[0] < 0) return 0;
    return sums_bytes(step, p) +
           (size_t)(tokens * (form->experts + form->choices +
                              p->slots[step->output].width) *
                    dtype_bytes(program_real(p)));
}

status expert_bias_add(const struct step *step, struct run *run,
                       const struct choice *choice, struct tensor y)
{
    const struct experts_combine call = {
        .y = y, .places = choice->chosen, .numbers = choice->chosen,
        .gates = choice->gates.data, .choices = choice->choices,
        .leaf_experts = step->set.experts.leaf, .left = &y,
        .rows = step->param[0] < 0 ? y : run_weight(run, step, 0)};

    return step->param[0] < 0
               ? OK : run->kernels->experts_combine(run->stream, &call);
}

/* gates [tokens, experts], +0 where a token did not choose. */
static status spread_gates(struct run *run, const struct choice *choice,
                           struct tensor all)
{
    const size_t bytes = (size_t)dtype_bytes(all.dtype);

    TRY(device_fill(run->stream, all.data, 0, (size_t)tensor_bytes(&all)));
    for (int64_t i = 0; i < choice->tokens * choice->choices; i++) {
        const int64_t at =
            i / choice->choices * all.shape[1] + choice->chosen[i];

        if (choice->chosen[i] < 0) continue; /* dropped */
        TRY(device_copy(run->stream, (char *)all.data + (size_t)at * bytes,
                        (const char *)choice->gates.data + (size_t)i * bytes,
                        bytes));
    }
    return OK;
}

status expert_bias_backward(const struct step *step, struct run *run,
                            const struct choice *choice)
{
    const struct program *p = run->program;
    const struct tensor dy = run_gradient(run, step->output);
    const struct tensor dgates = run_gradient(run, step->second);
    const int64_t n = choice->tokens * choice->choices;

    if (step->param[0] < 0) return OK;
    const struct tensor all = tensor_2d(
        (char *)run->scratch + sums_bytes(step, p), program_real(p),
        choice->tokens, step->set.experts.form.experts);
    const struct tensor more = tensor_2d(
        (char *)all.data + tensor_bytes(&all), all.dtype, choice->tokens,
        choice->choices);
    const struct experts_gates dots = {
        .dgates = more, .dy = dy, .rows = run_weight(run, step, 0),
        .places = choice->chosen, .choices = choice->choices};
    const struct tensor sum = tensor_1d(dgates.data, dgates.dtype, n);

    TRY(run->kernels->experts_gates(run->stream, &dots));
    TRY(run->real->add(run->stream, sum, sum,
                       tensor_1d(more.data, more.dtype, n)));
    if (!gradient_made(p, step->use[0])) return OK;
    const struct tensor wide = tensor_2d(
        (char *)more.data + n * dtype_bytes(more.dtype), more.dtype,
        dy.shape[0], dy.shape[1]);

    TRY(spread_gates(run, choice, all));
    TRY(run->kernels->scale(
        run->stream, tensor_1d(wide.data, wide.dtype, tensor_count(&wide)),
        tensor_1d(dy.data, dy.dtype, tensor_count(&dy)), 1.0));
    return local_sums(step, run, all, wide);
}
