/* SPDX-License-Identifier: Apache-2.0 */
/* generator_beside.c - a generator that reads the weights of a stage that
 * trains. */
#include "inference/generator_beside.h"

#include <string.h>

static struct stage_request request_of(const struct stage *first,
                                       int64_t prompt)
{
    struct stage_request plan = first->request;
    const int64_t least = plan.layout.grid.tensor;

    plan.mode = PROGRAM_GENERATE;
    plan.mtp_depth = 0; /* generation leaves the modules out */
    plan.layout.grid.data = plan.layout.grid.context = 1;
    plan.size.batch = plan.size.micro_batch = 1;
    plan.size.length = prompt < GENERATOR_TOKENS ? prompt : GENERATOR_TOKENS;
    if (plan.size.length < least)
        plan.size.length = least; /* a leaf needs a token */
    plan.size.context = first->program.size.context;
    if (plan.size.context < plan.size.length)
        plan.size.context = plan.size.length;
    plan.size.logits_chunk = 0;
    plan.backward = BACKWARD_NONE;
    plan.training.optimizer = false;
    plan.divided.division = (struct division){0};
    plan.reduction.rounds = plan.size.frames = plan.recomputation.share = 0;
    plan.reduction.piped = false;
    plan.layout.overlap = (struct message_overlap){0};
    plan.recomputation.policy = NULL;
    plan.recomputation.count = 0;
    return plan;
}

/* The parameters of a, which generates, are at the same places in b; modules of
 * b that predict later tokens lie behind them. */
static bool same_weights(const struct stage *a, const struct stage *b)
{
    const struct param_table *x = &a->program.params, *y = &b->program.params;

    if (x->count > y->count ||
        a->program.dtype != b->program.dtype)
        return false;
    for (int i = 0; i < x->count; i++)
        if (x->items[i].offset != y->items[i].offset ||
            strcmp(x->items[i].name, y->items[i].name) != 0)
            return false;
    return true;
}

/* Shares the memory that both use: it is the first stage's, if it is large
 * enough. */
static bool share(struct stage *stage, const struct stage *first)
{
    static const enum memory_owner rows[] = {
        MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH, MEMORY_ROTARY};
    enum { ROWS = sizeof rows / sizeof *rows };

    for (int i = 0; i < ROWS; i++) {
        if (stage->memory[rows[i]].bytes > first->memory[rows[i]].bytes)
            return false;
        stage_reserve(stage, rows[i], 0);
    }
    stage_reserve(stage, stage_reads(stage), 0);
    return true;
}

status generator_beside(struct generator *generator, const struct stage *first,
                        int64_t prompt, bool *fits)
{
    const struct stage_request plan = request_of(first, prompt);
    struct stage *stage = &generator->stage;

    *generator = (struct generator){.context = plan.size.context, .texts = 1};
    TRY(stage_plan(stage, &plan));
    *fits = first->run.params.placed == NULL && same_weights(stage, first) &&
            share(stage, first);
    if (!*fits) return OK;
    TRY(stage_open_beside(stage, first));
    stage->run.params.weights = first->run.params.weights;
    stage->run.logits.read = generator_keep_logits;
    stage->run.logits.argument = generator;
    return OK;
}
