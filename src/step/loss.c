/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - the loss of a step, as a tree over the leaves of the grid. */
#include "step/loss.h"

#include <math.h>

static int64_t cells(const struct loss_sum *loss)
{
    return (int64_t)loss->leaves * loss->contexts * loss->parts;
}

status loss_build(struct loss_sum *loss, int leaves, const struct grid *grid)
{
    void *table = NULL;

    *loss = (struct loss_sum){
        .leaves = leaves, .parts = grid->tensor,
        .contexts = grid->context > 1 ? grid->context : 1};
    TRY(memory_take((size_t)loss_count(loss), sizeof *loss->table, &table));
    loss->table = table;
    return OK;
}

void loss_free(struct loss_sum *loss)
{
    memory_free(loss->table);
    *loss = (struct loss_sum){0};
}

void loss_begin(struct loss_sum *loss)
{
    loss->bad = 0;
    for (int64_t i = 0; i < loss_count(loss); i++) loss->table[i] = 0;
}

int64_t loss_count(const struct loss_sum *loss)
{
    return cells(loss) + 2;
}

int64_t loss_targets(const struct loss_sum *loss)
{
    return (int64_t)loss->table[cells(loss)];
}

bool loss_is_bad(const struct loss_sum *loss)
{
    return loss->table[cells(loss) + 1] > 0;
}

/* Tokens of one part of one chunk: granules in order, a chain each. */
static void add_part(double *sum, bool first, const double *losses,
                     int64_t count)
{
    for (int64_t at = 0; at < count; at += GRANULE) {
        const int64_t end = at + GRANULE < count ? at + GRANULE : count;
        double granule = 0;

        for (int64_t i = at; i < end; i++) granule += losses[i];
        *sum = first && at == 0 ? granule : *sum + granule;
    }
}

/* Context leaves of this rank: pairs of chunks. */
static int contexts_of(const struct program *p)
{
    return p->size.context_chunks > 1 ? p->size.context_chunks / 2 : 1;
}

/* One chunk of one sequence. */
static void add_chunk(double *sums, bool first, const double *losses,
                      int64_t length, int parts)
{
    for (int i = 0; i < parts; i++) {
        const int64_t begin = length * i / parts;

        add_part(&sums[i], first, losses + begin,
                 length * (i + 1) / parts - begin);
    }
}

/* One sequence of a leaf, into its row of the table. */
static void add_sequence(struct loss_sum *loss, const struct program *p,
                         double *row, bool first, const double *losses)
{
    const int64_t length = p->size.length / p->size.context_chunks;
    const int before = p->layout.place.at[AXIS_CONTEXT] * contexts_of(p);
    const int last = p->size.context_chunks - 1;

    for (int i = 0; i <= last; i++) {
        const int pair = i < last - i ? i : last - i;

        add_chunk(row + (before + pair) * loss->parts, first && pair == i,
                  losses + i * length, length, loss->parts);
    }
}

void loss_add(struct loss_sum *loss, const struct run *run,
              const double *losses, int64_t first, int index)
{
    const struct program *p = run->program;
    const int64_t per_leaf = p->size.batch / p->layout.grid.data;
    const int64_t row = (int64_t)loss->contexts * loss->parts;
    double *after = &loss->table[cells(loss)];
    bool finite = true;

    for (int64_t s = 0; s < p->size.sequences; s++) {
        const int64_t sequence = first + s;

        add_sequence(loss, p, &loss->table[sequence / per_leaf * row],
                     sequence % per_leaf == 0, losses + s * p->size.length);
    }
    for (int64_t t = 0; t < p->size.tokens; t++) {
        after[0] += run->batch.targets[t] >= 0;
        finite = finite && isfinite(losses[t]);
    }
    if (finite) return;
    after[1] += 1;
    if (loss->bad == 0) loss->bad = index + 1;
}

double loss_total(struct loss_sum *loss)
{
    const int nodes = loss->leaves * loss->contexts;
    double *table = loss->table;

    /* A root lies before all that is not read yet. */
    for (int i = 0; i < nodes; i++)
        table[i] = grid_tree(&table[(int64_t)i * loss->parts], loss->parts);
    for (int i = 0; i < loss->leaves; i++)
        table[i] = grid_tree(&table[(int64_t)i * loss->contexts],
                             loss->contexts);
    return grid_tree(table, loss->leaves);
}

double loss_sequence(const struct program *program, const double *losses)
{
    const int64_t length = program->size.length / program->size.context_chunks;
    const int contexts = contexts_of(program);
    const int last = program->size.context_chunks - 1;
    double context[LEAVES_MAX] = {0};

    CHECK(contexts <= LEAVES_MAX);
    for (int64_t t = 0; t < program->size.length; t++) {
        const int chunk = (int)(t / length);

        context[chunk < last - chunk ? chunk : last - chunk] += losses[t];
    }
    return grid_tree(context, contexts);
}
