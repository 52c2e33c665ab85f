/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - the decisions made before the first step, part by part. */
#include "plan/explain.h"

#include <string.h>

#include "nn/context.h"
#include "schedule/schedule.h"

static const char *cut_of(const struct param_spec *spec)
{
    if (spec->split_rows == AXIS_TENSOR) return "rows/tensor";
    if (spec->split_cols == AXIS_TENSOR) return "cols/tensor";
    return "whole";
}

/* Prints the optimizer settings of a parameter: kind, factor of the rate,
 * weight decay, and betas that differ from the run's. */
static status explain_rule(const struct optimizer_rule *rule, bool decays,
                           struct text *out)
{
    char rate[24], decay[24];

    if (rule == NULL)
        return text_printf(out, " %-14s %-8s %-6s", "-", "-",
                           decays ? "yes" : "no");
    snprintf(rate, sizeof rate, "%.4g", rule->lr);
    snprintf(decay, sizeof decay, "%.4g", rule->weight_decay);
    if (rule->frozen)
        return text_printf(out, " %-14s %-8s %-6s", "frozen", "-", "-");
    return text_printf(out, " %-14s %-8s %-6s", rule->kind->name, rate,
                       rule->weight_decay >= 0 ? decay
                       : decays                ? "yes"
                                               : "no");
}

static status explain_betas(const struct optimizer_rule *rule,
                            struct text *out)
{
    if (rule == NULL || rule->frozen) return OK;
    if (rule->beta1 >= 0) TRY(text_printf(out, " beta1=%g", rule->beta1));
    if (rule->beta2 >= 0) TRY(text_printf(out, " beta2=%g", rule->beta2));
    return OK;
}

static status explain_parameters(const struct stage *stage, struct text *out)
{
    static const char *const inits[] = {"normal", "residual", "zero", "one",
                                        "adapter"};
    const struct param_table *table = &stage->program.params;
    const char *prefix = stage->request.model->kind->layer_prefix;
    char number[32];
    bool frozen = false;

    TRY(text_printf(out, "%-32s %8s x %-8s %-12s %-9s %-14s %-8s %-6s "
                         "outside\n", "name", "rows", "cols", "cut", "start",
                    "optimizer", "rate x", "decay"));
    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        const struct optimizer_rule *rule =
            stage->states.rules == NULL ? NULL : &stage->states.rules[i];
        struct param_outside outside;

        TRY(text_printf(out, "%-32s %8lld x %-8lld %-12s %-9s",
                        param->name, (long long)param->spec.rows,
                        (long long)param->spec.cols, cut_of(&param->spec),
                        inits[param->spec.init]));
        frozen = frozen || (rule != NULL && rule->frozen);
        TRY(explain_rule(rule, param->spec.decay, out));
        for (int j = 0; param_outside(param, prefix, j, &outside); j++)
            TRY(text_printf(out, "%s%s", j ? ", " : " ", outside.name));
        TRY(explain_betas(rule, out));
        TRY(text_append_string(out, "\n"));
    }
    if (frozen)
        TRY(text_append_string(out, "-: a frozen parameter has no rate and no "
                                    "decay\n"));
    return text_printf(out, "%s parameters in %d tensors, %d gradients "
                            "of uses\n",
                       text_count(number, table->parameters), table->count,
                       stage->program.use_count);
}

static status explain_memory(const struct stage *stage, struct text *out)
{
    TRY(memory_print(stage->memory, out));
    TRY(text_printf(out, "\nrecompute: %s; logits of %lld tokens at once\n\n",
                    stage->recompute,
                    (long long)stage->program.size.logits_chunk));
    return frame_plan_print(&stage->frame, &stage->program, out);
}

static status explain_schedule(const struct pipeline *pipeline,
                               struct text *out)
{
    const struct schedule *s = &pipeline->schedule;

    TRY(text_printf(out, "%d rank%s, %d stage%s, %d micro-batches, %d held at "
                         "most on a rank; F0.2 is the forward of stage 0, "
                         "micro-batch 2; SF, RF, SB, RB send and receive\n",
                    s->ranks, s->ranks > 1 ? "s" : "", s->stages,
                    s->stages > 1 ? "s" : "", s->microbatches,
                    schedule_held(s)));
    for (int i = 0; i < pipeline->count; i++)
        TRY(text_printf(out, "rank %d: stage %d, blocks %d to %d, %d frames, "
                             "W %s\n", pipeline->rank,
                        pipeline->chunks[i].number,
                        pipeline->stages[i].request.slice.first,
                        pipeline->stages[i].request.slice.last - 1,
                        pipeline->stages[i].request.size.frames,
                        pipeline->stages[i].request.backward == BACKWARD_FUSED
                            ? "inside B" : "on its own"));
    return schedule_write(s, out);
}

/* How one micro-batch after another meets the tree. */
static status explain_addends(const struct cut *cut, struct text *out)
{
    for (int64_t i = 0; i < cut->micro_batches && i < 16; i++) {
        struct addend_cursor cursor = {0};
        struct addend addend;

        TRY(text_printf(out, "  micro-batch %lld:", (long long)i));
        while (addend_next(cut, i, &cursor, &addend)) {
            if (addend.leaves > 1)
                TRY(text_printf(out, " leaves %d to %d", addend.first_leaf,
                                addend.first_leaf + addend.leaves - 1));
            else
                TRY(text_printf(out, " %sleaf %d",
                                addend.begins && addend.completes ? ""
                                                                : "part of ",
                                addend.first_leaf));
        }
        TRY(text_append_string(out, "\n"));
    }
    return OK;
}

/* Additions in a micro-batch that only the tensor leaves make necessary: each
 * sum over a cut dimension has a chain a leaf. */
static int64_t leaf_additions(const struct program *p)
{
    const int64_t more = program_leaves(p).count - 1;
    int64_t count = 0;

    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];
        const struct param *weight;

        if (step->param[0] < 0) continue;
        weight = &p->params.items[step->param[0]];
        if (weight->spec.split_cols == AXIS_TENSOR)
            count += more * p->size.tokens * weight->rows; /* F */
        else if (weight->spec.split_rows == AXIS_TENSOR)
            count += more * p->size.tokens * weight->cols; /* B */
    }
    return count;
}

/* Prints the cost of a fixed order of sums on this rank, compared with a sum in
 * any order. */
static status explain_cost(const struct stage *stage, struct text *out)
{
    const struct program *p = &stage->program;
    const struct step_cost cost = program_cost(p);
    const int64_t times = p->size.batch / p->size.sequences;
    const int64_t joins =
        (int64_t)(p->layout.grid.data * p->layout.grid.context /
                  p->layout.mesh.size[AXIS_CONTEXT] - 1) *
        p->params.gradients;
    const double operations =
        (double)(joins + times * leaf_additions(p)) /
        (3 * (double)times * cost.flops);
    const int64_t moved = 3 * joins * dtype_bytes(program_real(p));
    char number[32];

    return text_printf(out, "the grid costs %.2f%% of the step's operations in "
                            "additions, and at most %s (%.1f%%) of what the "
                            "step moves in memory\n", 1e2 * operations,
                       text_bytes(number, (uint64_t)moved),
                       1e2 * (double)moved /
                           (3 * (double)times * cost.bytes_moved));
}

static status explain_attention(struct text *out, const struct stage *stage)
{
    const struct stage_attention by = stage_attention(stage);

    if (by.why != NULL)
        return text_printf(out, "attention by own kernels: %s\n", by.why);
    if (!by.library && !by.flash)
        return text_append_string(out, "no attention in this stage\n");
    if (!by.library)
        return text_append_string(out, "attention by own kernels on tensor "
                                       "cores\n");
    return text_printf(out, "attention by cuDNN, where the library is "
                            "found%s\n",
                       by.flash ? ", else by own kernels on tensor cores" : "");
}

static status explain_numerics(const struct stage *stage, struct text *out)
{
    const struct program *p = &stage->program;
    const struct cut cut = program_cut(p, false);
    const enum state_type type = stage->request.training.choice.states;
    char number[32];

    TRY(text_printf(out, "grid: %d data leaves of %lld sequences, %d tensor "
                         "leaves, ",
                    p->layout.grid.data, (long long)cut.sequences_per_leaf,
                    p->layout.grid.tensor));
    if (p->layout.grid.context > 1)
        TRY(text_printf(out, "%d context leaves of two chunks of %lld tokens\n",
                        p->layout.grid.context,
                        (long long)(p->size.length / p->size.context_chunks)));
    else
        TRY(text_append_string(out, "context whole\n"));
    if (dtype_is_narrow(p->dtype))
        TRY(text_printf(out, "%s: activations and weights as kernels read "
                             "them%s; float32: masters%s, %sgradients of "
                             "weights, statistics, logits, sums over ranks\n",
                        dtype_name(p->dtype),
                        p->dtype != DTYPE_BF16 ? ""
                        : stage->request.machine.product == PRODUCT_TILES
                            ? ", products in tiles" : ", products in pairs",
                        stage_splits(stage) ? " (split)" : "",
                        type == STATE_REAL ? "moments, " : ""));
    if (stage_products_fast(stage)) TRY(explain_attention(out, stage));
    if (type != STATE_REAL)
        TRY(text_printf(out, "%s: states of the optimizer%s\n",
                        type == STATE_INT8 ? "int8" : "bfloat16",
                        type == STATE_INT8
                            ? ", with a scale for each block of 1,024" : ""));
    TRY(text_printf(out, "any mixture of up to %d x %d x %d ranks, times "
                         "pipeline stages, can train these bits\n",
                    p->layout.grid.data * mesh_batch_ranks(&p->layout.mesh),
                    p->layout.grid.tensor, p->layout.grid.context));
    if (p->layout.mesh.size[AXIS_CONTEXT] > 1)
        TRY(text_printf(out, "attention: %lld pairs of query and key of each "
                             "sequence on each of %d context ranks\n",
                        (long long)context_pairs(p),
                        p->layout.mesh.size[AXIS_CONTEXT]));
    TRY(text_printf(out, "gradients that wait for their sibling: %s\n",
                    text_bytes(number,
                               stage->memory[MEMORY_PARTIALS].bytes)));
    if (p->sums.integer)
        TRY(text_printf(out, "data leaves are added as integers of 64 "
                             "bits, whose unit is 2^%d; a leaf may have up to "
                             "2^%d\n", -p->sums.exponent,
                        61 - 2 * p->sums.spare - p->sums.exponent));
    TRY(explain_cost(stage, out));
    TRY(explain_addends(&cut, out));
    return text_printf(out, "kernels: %s\n", stage->kernels.backend);
}

static status explain_program(const struct stage *stage, struct text *out)
{
    return program_print(&stage->program, out);
}

/* Parts that are printed once for each stage; NULL: once for all stages. */
static const struct {
    const char *name;
    status (*explain)(const struct stage *, struct text *);
} parts[] = {{"parameters", explain_parameters}, {"program", explain_program},
             {"memory", explain_memory}, {"schedule", NULL},
             {"numerics", explain_numerics}};
enum { PARTS = sizeof parts / sizeof *parts };

status plan_explain(const struct pipeline *pipeline, const char *part,
                    struct text *out)
{
    const char *names[PARTS];

    for (int i = 0; i < PARTS; i++) {
        names[i] = parts[i].name;
        if (strcmp(part, names[i]) != 0) continue;
        if (parts[i].explain == NULL) return explain_schedule(pipeline, out);
        for (int j = 0; j < pipeline->count; j++) {
            if (pipeline->schedule.stages > 1)
                TRY(text_printf(out, "%sstage %d\n", j > 0 ? "\n" : "",
                                pipeline->chunks[j].number));
            TRY(parts[i].explain(&pipeline->stages[j], out));
        }
        return OK;
    }
    const char *near = text_nearest(part, names, PARTS);

    FAIL(ERR_USAGE, "--explain: %s is not parameters, program, memory, "
                    "schedule or numerics%s%s", part,
         near ? "; nearest: " : "", near ? near : "");
}
