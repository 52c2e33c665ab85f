/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c - the messages of a list, one by one. */
#include "list/traffic.h"

#include <stdio.h>

#include "list/passes.h"
#include "nn/exchange.h"
#include "plan/exchange_model.h"

/* ---- inside F, B and W ---- */

static int of_round(const struct pipeline *p, const struct instruction *i)
{
    return pipeline_of_round(p, i->chunk, i->microbatch);
}

/* Leaves of gradients that the micro-batch completes, but for the other ranks'
 * tokens. */
static int64_t completed(const struct gradients *g, bool head,
                         int64_t microbatch)
{
    struct addend_cursor cursor = {0};
    struct addend addend;
    int64_t leaves = 0;

    while (addend_next(&g->cut[head], microbatch, &cursor, &addend))
        leaves += addend.completes;
    return leaves;
}

int64_t list_leaves_completed(const struct pipeline *p,
                              const struct instruction *i, bool head)
{
    return completed(&p->stages[i->chunk].gradients, head, of_round(p, i));
}

/* The pass that makes the gradient of a step's parameter `which`. A second one
 * that is no matrix is a bias. A head makes all in B where W follows at once.
 */
static enum pass sums_pass(const struct stage *stage, const struct step *step,
                           int which)
{
    const struct layer *layer = step->layer;
    const bool head = layer->kind == LAYER_HEAD;
    const bool bias = which == 1 && !layer->two_matrices && !head;
    const bool at_once = head && stage->frame.mode == BACKWARD_FUSED;

    return layer->backward_weight == NULL || bias || at_once
               ? PASS_BACKWARD_INPUT : PASS_BACKWARD_WEIGHT;
}

/* Context ranks add leaves when a micro-batch completes them. */
static status visit_use(const struct stage *stage, int use,
                        int64_t microbatch, traffic_visit *visit,
                        void *argument)
{
    const struct program *program = &stage->program;
    const struct use_info *info = &program->uses[use];
    const int ranks = program->layout.mesh.size[AXIS_CONTEXT];

    if (info->local || info->contexts > 1 || !gradient_made(program, use))
        return OK;
    const int64_t calls =
        info->sources * completed(&stage->gradients, info->head, microbatch);
    const struct exchange row = {
        .group = {GROUP_AXIS, AXIS_CONTEXT}, .label = "context",
        .what = SENT_GRADIENTS, .kind = COMM_ALL_REDUCE,
        .size = ranks, .calls = calls,
        .bytes = calls * dtype_bytes(program_real(program)) *
                 exchange_all_reduce(
                     program->params.items[info->param].elements, ranks,
                     program->layout.place.at[AXIS_CONTEXT])};

    return calls == 0 ? OK : visit(argument, &row);
}

static status visit_leaves(const struct stage *stage,
                           const struct event *event, int64_t microbatch,
                           traffic_visit *visit, void *argument)
{
    const struct step *step = &stage->program.steps[event->step];

    if (stage->program.layout.mesh.size[AXIS_CONTEXT] == 1) return OK;
    for (int i = 0; i < step_uses(step); i++) {
        const int use = step_use(step, i).use;

        if (use >= 0 &&
            sums_pass(stage, step, i % STEP_PARAMS_MAX) == event->pass)
            TRY(visit_use(stage, use, microbatch, visit, argument));
    }
    return OK;
}

status list_event_traffic(const struct stage *stage,
                          const struct exchange_case *at,
                          traffic_visit *visit, void *argument)
{
    struct layer_exchanges made;

    layer_exchanges(&stage->program, at, &made);
    for (int j = 0; j < made.count; j++) {
        const struct exchange row =
            exchange_of_layer(&stage->program.layout.mesh, &made.items[j]);

        TRY(visit(argument, &row));
    }
    return visit_leaves(stage, at->event, at->microbatch, visit, argument);
}

static status visit_inside(const struct pipeline *p,
                           const struct instruction *i, traffic_visit *visit,
                           void *argument)
{
    const struct stage *stage = &p->stages[i->chunk];

    for (int e = i->first_event; e < i->last_event; e++) {
        const struct exchange_case at = {
            &stage->frame.events[e], stage->frame.mode, of_round(p, i), false};

        TRY(list_event_traffic(stage, &at, visit, argument));
    }
    return OK;
}

/* ---- its own ---- */

/* A matrix that stages share is sent and received, part by part. */
static status visit_tie(struct exchange row, traffic_visit *visit,
                        void *argument)
{
    TRY(visit(argument, &row));
    row.kind = COMM_RECV;
    row.bytes = 0;
    return visit(argument, &row);
}

/* Vectors of tensor ranks that context ranks add, too, where they are joined.
 */
static status visit_vectors(const struct pipeline *p,
                            const struct instruction *i, traffic_visit *visit,
                            void *argument)
{
    const struct stage *stage = &p->stages[i->chunk];
    const struct program *program = &stage->program;
    const int ranks = program->layout.mesh.size[AXIS_CONTEXT];
    const struct use_range range =
        i->item >= 0 ? stage->reduced.items[i->item].joined
                     : gradients_all(&stage->gradients);

    for (int s = range.first; s < range.end && ranks > 1; s++) {
        const struct use_info *use = &program->uses[s];
        const int64_t elements =
            program->params.items[use->param].elements *
            program->layout.grid.data;
        const struct exchange row = {
            .group = {GROUP_AXIS, AXIS_CONTEXT}, .label = "context",
            .what = SENT_GRADIENTS, .kind = COMM_ALL_REDUCE,
            .size = ranks, .calls = 1,
            .bytes = dtype_bytes(program_real(program)) *
                     exchange_all_reduce(
                         elements, ranks,
                         program->layout.place.at[AXIS_CONTEXT])};

        if (!use->local || !gradient_made(program, s)) continue;
        TRY(visit(argument, &row));
    }
    return OK;
}

/* The operation of an instruction's own messages; COMM_KIND_COUNT: none. */
static enum comm_kind list_call(const struct pipeline *pipeline,
                                const struct instruction *instruction)
{
    if (instruction->kind == DO_SUM && instruction->unit >= 0 &&
        shard_class(&pipeline->stages[instruction->chunk].shards,
                    instruction->unit)->parts > 1)
        return COMM_REDUCE_SCATTER; /* each keeps its part */
    return instruction_rows[instruction->kind].call;
}

status list_traffic(const struct pipeline *pipeline,
                    const struct instruction *instruction,
                    traffic_visit *visit, void *argument)
{
    const struct instruction_row *facts = &instruction_rows[instruction->kind];
    const struct list_group group = list_group(pipeline, instruction);
    struct exchange row = {
        .group = group.id, .what = facts->what,
        .kind = list_call(pipeline, instruction), .size = group.size,
        .calls = instruction->calls, .bytes = instruction->bytes,
        .updates = instruction->kind == DO_MATRICES};

    if (instruction_computes(instruction))
        return visit_inside(pipeline, instruction, visit, argument);
    if (instruction->calls == 0) return OK;
    snprintf(row.label, sizeof row.label, "%s", group.name);
    if (instruction->kind == DO_TIE) return visit_tie(row, visit, argument);
    TRY(visit(argument, &row));
    return instruction->kind == DO_JOIN
               ? visit_vectors(pipeline, instruction, visit, argument) : OK;
}
