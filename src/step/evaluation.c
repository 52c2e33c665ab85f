/* SPDX-License-Identifier: Apache-2.0 */
/* evaluation.c - losses of sequences without gradients, shared among ranks. */
#include "step/step.h"


bool train_step_speaks(const struct train_step *step)
{
    return executor_last(&step->executor) >= 0 &&
           step->team->place.at[AXIS_TENSOR] == 0 &&
           step->team->place.at[AXIS_CONTEXT] == 0;
}

struct limited {
    const struct sample_source *source;
    int64_t count, length;
};

/* Stands for sequences beyond the last too: no targets. */
static status fill_or_mask(void *argument, int64_t index, int32_t *inputs,
                           int32_t *targets, int32_t *positions,
                           int32_t *documents)
{
    const struct limited *limited = argument;

    if (index < limited->count)
        return limited->source->fill(limited->source->argument, index, inputs,
                                     targets, positions, documents);
    for (int64_t t = 0; t < limited->length; t++) {
        inputs[t] = 0;
        targets[t] = -1;
        positions[t] = (int32_t)t;
        documents[t] = 0;
    }
    return OK;
}

/* The losses of the micro-batch that begins with sequence `first`. */
static void add_losses(const struct run *run, int64_t first, int64_t last,
                       struct evaluation *out)
{
    const struct program *p = run->program;

    for (int64_t s = 0; s < p->size.sequences && first + s < last; s++)
        out->sums[first + s] =
            loss_sequence(p, run->losses + s * p->size.length);
    for (int64_t t = 0; t < p->size.tokens; t++)
        out->targets += run->batch.targets[t] >= 0;
}

/* The share [first, last) of the ranks of this pipeline, into out->sums, in as
 * many turns as the longest share needs: ranks may gather weights together. */
static status evaluate_share(struct train_step *step,
                             const struct sample_source *source,
                             int64_t first, int64_t last, int64_t longest,
                             struct evaluation *out)
{
    const struct pipeline *p = step->pipeline;
    const int64_t sequences = p->stages[0].program.size.sequences;
    const int ends = executor_last(&step->executor);
    struct limited limited = {source, last,
                              program_sequence(&p->stages[0].program)};
    const struct sample_source wrapped = {
        fill_or_mask, &limited, 0,
        source->content == 0 ? 0
                             : (uint64_t)1 << 63 | ++step->evaluations};

    for (int64_t i = 0; i * sequences < longest; i++) {
        const int64_t at = first + i * sequences;
        const bool ends_here = (i + 1) * sequences >= longest;

        step->executor.follows = ends_here ? -1 : at + sequences;
        TRY(executor_forward(&step->executor, &wrapped, at, i));
        if (ends >= 0) add_losses(&p->stages[ends].run, at, last, out);
    }
    return executor_settle(&step->executor);
}

status train_evaluate(struct train_step *step,
                      const struct sample_source *source, int64_t count,
                      struct evaluation *out)
{
    const int64_t rank = team_batch_rank(step->team);
    const int64_t size = team_batch_size(step->team);
    double targets;

    for (int64_t i = 0; i < count; i++) out->sums[i] = 0;
    out->sum = 0;
    out->targets = 0;
    TRY(evaluate_share(step, source, rank * count / size,
                       (rank + 1) * count / size, (count + size - 1) / size,
                       out));
    TRY(team_context_leaves(step->team, out->sums, count, &out->targets));
    targets = (double)out->targets;
    if (!train_step_speaks(step)) {
        targets = 0;
        for (int64_t i = 0; i < count; i++) out->sums[i] = 0;
    }
    TRY(team_join(step->team, out->sums, count));
    TRY(team_join(step->team, &targets, 1));
    out->targets = (int64_t)targets;
    for (int64_t i = 0; i < count; i++) out->sum += out->sums[i];
    return OK;
}
