/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - sums of losses of tokens, in the order of the grid. */
#include "train/loss.h"

static int contexts_of(const struct program *p)
{
    return p->chunks > 1 ? p->chunks / 2 : 1;
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

void loss_add(struct loss_sum *sum, const struct program *program,
              int64_t micro_batch, const double *losses)
{
    const int64_t per_leaf = program->batch / program->grid.data;
    const int64_t length = program->length / program->chunks;
    const int parts = program->grid.tensor, last = program->chunks - 1;

    CHECK(contexts_of(program) * parts <= LEAVES_MAX);
    for (int64_t s = 0; s < program->sequences; s++) {
        const int64_t sequence = micro_batch * program->sequences + s;
        const bool first = sequence % per_leaf == 0;

        for (int i = 0; i <= last; i++) {
            const int pair = i < last - i ? i : last - i;

            add_chunk(sum->part[sequence / per_leaf] + pair * parts,
                      first && pair == i,
                      losses + s * program->length + i * length, length,
                      parts);
        }
    }
}

void loss_leaves(struct loss_sum *sum, const struct program *program,
                 double *leaf)
{
    const int parts = program->grid.tensor, contexts = contexts_of(program);
    double context[LEAVES_MAX];

    for (int i = 0; i < program->grid.data; i++) {
        for (int j = 0; j < contexts; j++)
            context[j] = grid_tree(sum->part[i] + j * parts, parts);
        leaf[i] = grid_tree(context, contexts);
    }
}

double loss_sequence(const struct program *program, const double *losses)
{
    const int64_t length = program->length / program->chunks;
    const int contexts = contexts_of(program), last = program->chunks - 1;
    double context[LEAVES_MAX] = {0};

    for (int64_t t = 0; t < program->length; t++) {
        const int chunk = (int)(t / length);

        context[chunk < last - chunk ? chunk : last - chunk] += losses[t];
    }
    return grid_tree(context, contexts);
}
