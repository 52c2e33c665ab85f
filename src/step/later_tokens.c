/* SPDX-License-Identifier: Apache-2.0 */
/* later_tokens.c - the part of a step that modules for later tokens need. */
#include "step/later_tokens.h"

#include <math.h>
#include <string.h>

status later_build(struct later_tokens *later, int depth, int leaves,
                   const struct grid *grid)
{
    void *memory = NULL;
    int64_t count = 0;

    *later = (struct later_tokens){.depth = depth};
    for (int i = 0; i < depth; i++) {
        TRY(loss_build(&later->losses[i], leaves, grid));
        count += loss_count(&later->losses[i]);
    }
    TRY(memory_take((size_t)count + 1, sizeof *later->joined, &memory));
    later->joined = memory;
    return OK;
}

void later_free(struct later_tokens *later)
{
    for (int i = 0; i < later->depth; i++) loss_free(&later->losses[i]);
    memory_free(later->joined);
    *later = (struct later_tokens){0};
}

/* ---- tokens ---- */

/* The target that module `ahead` has at token t, -1: none: the document, the
 * sequence or the targets end before it. */
static int32_t target_of(const struct later_sequence *s, int64_t t, int ahead)
{
    const int64_t at = t + ahead;

    if (at >= s->count || s->documents[at] != s->documents[t]) return -1;
    return s->targets[at];
}

void later_fill(const struct program *program,
                const struct later_sequence *s,
                const struct later_arrays *out, int64_t at)
{
    for (int d = 0; d < program->later.depth; d++)
        for (int64_t i = 0; i < program->size.length; i++) {
            const int64_t t = program_position(program, i);
            const int64_t place = d * out->rows + at + i;
            const int64_t later = t + d + 1 < s->count ? t + d + 1 : t;

            out->targets[place] = target_of(s, t, d + 1);
            out->inputs[place] = s->inputs[later];
        }
}

/* ---- targets ---- */

void later_begin(struct later_tokens *later)
{
    for (int i = 0; i < later->depth; i++) loss_begin(&later->losses[i]);
    for (int i = 0; i <= MTP_MOST; i++) later->targets[i] = 0;
}

void later_count(struct later_tokens *later, const struct later_sequence *s)
{
    for (int64_t t = 0; t < s->count; t++)
        for (int d = 0; d <= later->depth; d++)
            later->targets[d] += target_of(s, t, d) >= 0;
}

/* A module without targets has gradients of zeros, whatever its weight. */
static double weight_of(const struct later_tokens *later, int module)
{
    const double own = later->targets[1 + module];

    return later->weight / later->depth *
           (own > 0 ? later->targets[0] / own : 1);
}

status later_weigh(struct later_tokens *later, struct team *team,
                   struct pipeline *pipeline)
{
    TRY(team_join(team, later->targets, 1 + later->depth)); /* integers */
    for (int i = 0; i < pipeline->count; i++)
        for (int d = 0; d < later->depth; d++)
            pipeline->stages[i].run.later.weights[d] = weight_of(later, d);
    return OK;
}

/* ---- losses ---- */

void later_add(struct later_tokens *later, const struct run *run, int64_t first,
               int index)
{
    for (int d = 0; d < later->depth; d++)
        loss_add(&later->losses[d], run,
                 run->later.losses + d * run->program->size.tokens, first,
                 index);
}

void later_choose(struct later_tokens *later,
                  const struct regularization *regular, int64_t step)
{
    const int64_t steps = regular->mtp_steps;

    later->weight = regular->mtp_weight[steps > 0 && step >= steps];
}

status later_join(struct later_tokens *later, struct team *team, double *out,
                  struct loss_sum *next, bool *bad)
{
    int64_t count = 0;

    for (int d = 0; d < later->depth; d++) {
        const struct loss_sum *loss = &later->losses[d];

        memcpy(later->joined + count, loss->table,
               (size_t)loss_count(loss) * sizeof *loss->table);
        count += loss_count(loss);
    }
    TRY(team_join(team, later->joined, count));
    count = 0;
    for (int d = 0; d < later->depth; d++) {
        struct loss_sum *loss = &later->losses[d];
        const double targets = later->targets[1 + d];

        memcpy(loss->table, later->joined + count,
               (size_t)loss_count(loss) * sizeof *loss->table);
        count += loss_count(loss);
        *bad |= loss_is_bad(loss);
        if (next->bad == 0) next->bad = loss->bad;
        out[d] = loss_is_bad(loss) ? (double)NAN
                 : targets > 0 ? loss_total(loss) / targets : 0;
    }
    return OK;
}
