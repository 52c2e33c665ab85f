/* SPDX-License-Identifier: Apache-2.0 */
/* capacity.c - choices that find no place in their expert.
 * Source: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 2.2 (places
 * of an expert, later tokens are dropped). */
#include "nn/capacity.h"

#include <string.h>

bool capacity_drops(const struct program *p, const struct router_form *form)
{
    return p->regular.capacity > 0 && p->mode == PROGRAM_TRAIN &&
           form->experts > 1;
}

status capacity_check(const struct program *p)
{
    if (!p->layout.method.striped) return OK;
    FAIL(ERR_CONFIG, "moe.capacity_factor: context.kind=striped deals out "
                     "tokens one by one, and places are counted over runs of "
                     "positions; allgather, ring, ulysses and hybrid work");
}

/* Runs of positions that a rank has: rows of one expert table each. */
struct segments {
    int tensor, context; /* ranks that have parts of a sequence */
    int64_t rows;        /* of this rank */
    int64_t tokens;      /* of a row of this rank */
    int experts;
};

static struct segments segments_of(const struct step *step,
                                   const struct program *p)
{
    const bool cut = p->slots[step->input].layout.tokens >> AXIS_TENSOR & 1;
    struct segments s = {.tensor = cut ? program_tensor_ranks(p) : 1,
                         .context = p->layout.mesh.size[AXIS_CONTEXT],
                         .rows = program_rows(p),
                         .experts = step->set.experts.form.experts};

    s.tokens = program_slot_rows(p, step->input) / s.rows;
    return s;
}

/* Elements of this rank's table; then those of all tensor ranks, then those of
 * all context ranks, too. */
static int64_t table_size(const struct segments *s)
{
    return s->rows * s->experts;
}

/* Where the tables lie in the scratch: this rank's first; numbers of experts
 * behind them. */
struct tables { size_t wide, all, used, bytes; };

static struct tables tables_of(const struct segments *s)
{
    const size_t own = (size_t)table_size(s) * sizeof(int32_t);
    struct tables at = {.wide = arena_aligned(own)};

    at.all = at.wide + arena_aligned(own * (size_t)s->tensor);
    at.used = at.all + arena_aligned(own * (size_t)(s->tensor * s->context));
    at.bytes = at.used + arena_aligned((size_t)s->experts * sizeof(int64_t));
    return at;
}

size_t capacity_scratch(const struct step *step, const struct program *p)
{
    const struct segments s = segments_of(step, p);

    return capacity_drops(p, &step->set.experts.form) ? tables_of(&s).bytes : 0;
}

/* out = the tables of the ranks of an axis, one behind the other. */
static status join(struct run *run, enum axis axis, int32_t **table,
                   int64_t count, int32_t *out)
{
    const int ranks = run->program->layout.mesh.size[axis];
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_ORDERED,
        .in = tensor_1d(*table, DTYPE_I32, count),
        .out = tensor_1d(out, DTYPE_I32, count * ranks)};

    TRY(comm_run(run->groups[axis], &call));
    *table = out;
    return OK;
}

/* The row of rank `context` that has context chunk `number` of a whole
 * sequence; -1: another rank has it. A rank has two spans, its own and the one
 * that is as far from the end. */
static int64_t row_of_context_chunk(const struct program *p, int context,
                                    int number)
{
    const int ranks = p->layout.mesh.size[AXIS_CONTEXT];
    const int half = p->size.context_chunks / 2;

    if (ranks == 1) return number;
    const int span = number / half;

    if (span == context) return number % half;
    return span == 2 * ranks - 1 - context ? half + number % half : -1;
}

/* Adds what the context chunks of the sequence before that of `row`, and of
 * that one the tensor ranks before this one, have taken. */
static void count_before(const struct program *p, const struct segments *s,
                         const int32_t *table, int64_t row, int64_t *used)
{
    const int own = p->layout.place.at[AXIS_CONTEXT];
    const int part = s->tensor > 1 ? p->layout.place.at[AXIS_TENSOR] : 0;
    const int64_t sequence =
        row / p->size.context_chunks * p->size.context_chunks;
    const int count = p->size.context_chunks * s->context;

    memset(used, 0, (size_t)s->experts * sizeof *used);
    for (int i = 0; i < count; i++) {
        const bool last =
            row_of_context_chunk(p, own, i) == row - sequence;

        for (int c = 0; c < s->context; c++) {
            const int64_t at = row_of_context_chunk(p, c, i);

            for (int t = 0; at >= 0 && t < (last ? part : s->tensor); t++) {
                const int32_t *counts =
                    table + (((int64_t)c * s->tensor + t) * s->rows +
                             sequence + at) * s->experts;

                for (int e = 0; e < s->experts; e++) used[e] += counts[e];
            }
        }
        if (last) return;
    }
}

static void count_own(const struct segments *s, const struct choice *choice,
                      int32_t *table)
{
    const int64_t each = s->tokens * choice->choices;

    memset(table, 0, (size_t)table_size(s) * sizeof *table);
    for (int64_t i = 0; i < s->rows * each; i++)
        table[i / each * s->experts + choice->chosen[i]]++;
}

status capacity_drop(const struct step *step, struct run *run,
                     const struct choice *choice, void *scratch,
                     int64_t *dropped)
{
    const struct program *p = run->program;
    const struct router_form *form = &step->set.experts.form;
    const struct segments s = segments_of(step, p);
    const struct tables at = tables_of(&s);
    int32_t *table = scratch;

    *dropped = 0;
    if (!capacity_drops(p, form)) return OK;
    int32_t *wide = (int32_t *)(void *)((char *)scratch + at.wide);
    int32_t *all = (int32_t *)(void *)((char *)scratch + at.all);
    int64_t *used = (int64_t *)(void *)((char *)scratch + at.used);

    count_own(&s, choice, table);
    if (s.tensor > 1)
        TRY(join(run, AXIS_TENSOR, &table, table_size(&s), wide));
    if (s.context > 1)
        TRY(join(run, AXIS_CONTEXT, &table, table_size(&s) * s.tensor, all));
    if (run->gradients == NULL) return OK;
    const int64_t places =
        router_capacity(p->regular.capacity, form->choices,
                        p->size.length * s.context, form->experts);

    for (int64_t row = 0; row < s.rows; row++) {
        const struct router_tokens tokens = {
            .chosen = choice->chosen, .first = row * s.tokens,
            .tokens = s.tokens, .choices = form->choices};

        count_before(p, &s, table, row, used);
        for (int e = 0; e < s.experts; e++)
            if (used[e] > places) used[e] = places;
        *dropped += router_drop(&tokens, choice->chosen, places, used);
    }
    return OK;
}

void capacity_exchanges(const struct step *step, const struct program *p,
                        const struct exchange_case *at,
                        struct layer_exchanges *out)
{
    const struct segments s = segments_of(step, p);
    const int64_t bytes = table_size(&s) * (int64_t)sizeof(int32_t);

    if (!exchange_forward(at) || !capacity_drops(p, &step->set.experts.form))
        return;
    if (s.tensor > 1)
        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = AXIS_TENSOR, .kind = COMM_ALL_GATHER,
            .what = SENT_PLACES_OF_EXPERTS, .calls = 1,
            .bytes = bytes * (s.tensor - 1)});
    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_CONTEXT, .kind = COMM_ALL_GATHER,
        .what = SENT_PLACES_OF_EXPERTS, .calls = 1,
        .bytes = bytes * s.tensor * (s.context - 1)});
}
