/* SPDX-License-Identifier: Apache-2.0 */
/* plan_experts.c - the mixture of experts of a configuration. */
#include "cli/plan_experts.h"

#include "mesh/group.h"
#include "nn/exchange.h"
#include "nn/expert_ranks.h"

/* Bytes of the rows of one block that live until its backward pass: of gate and
 * up, of their product, and of what the experts return. */
static int64_t row_bytes(const struct program *p)
{
    int64_t bytes = 0;
    int block = -1;

    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];
        const bool rows = step->layer->kind == LAYER_EXPERTS ||
                          (step->layer->kind == LAYER_ACTIVATION &&
                           step->block == block);

        if (step->layer->kind == LAYER_EXPERTS && block < 0)
            block = step->block;
        if (!rows || step->block != block) continue;
        if (step->param[0] < 0 && step->layer->kind == LAYER_EXPERTS) continue;
        bytes += program_slot_rows(p, step->output) *
                 p->slots[step->output].width *
                 dtype_bytes(p->slots[step->output].dtype);
    }
    return bytes;
}

/* Bytes that a rank sends in a step for the rows of experts, there and back,
 * and for choices, when all experts have equally many. */
struct sent_bytes { int64_t all, between, saved; };
static struct sent_bytes sent_bytes(const struct stage *stage)
{
    const struct program *p = &stage->program;
    const int64_t times =
        stage_rounds(stage) * (p->size.batch / p->size.sequences);
    struct sent_bytes sent = {0, 0, 0};

    for (int i = 0; i < stage->frame.event_count; i++) {
        const struct exchange_case at = {&stage->frame.events[i],
                                         stage->frame.mode, 0, false};
        struct layer_exchanges made;

        layer_exchanges(p, &at, &made);
        for (int j = 0; j < made.count; j++)
            if (made.items[j].axis == AXIS_EXPERT) {
                sent.all += made.items[j].bytes;
                sent.between += made.items[j].between;
                sent.saved += made.items[j].saved;
            }
    }
    return (struct sent_bytes){sent.all * times, sent.between * times,
                               sent.saved * times};
}

status plan_experts(const struct setup *setup, const struct stage *stage,
                    struct table *table)
{
    static const struct table_column columns[] = {
        {"what", "what", false}, {"value", "value", true},
        {"unit", "unit", false}};
    const struct model *m = &setup->model;
    const struct moe *x = &m->moe;
    const struct program *p = &stage->program;
    const int blocks = m->layers - blocks_count(&x->dense);
    const int64_t tokens = setup->batch * setup->request.size.length;
    const struct expert_span held = experts_held(p, x->experts);
    const struct sent_bytes sent = sent_bytes(stage);
    char axes[EXPERT_AXES_BYTES];
    const struct router_form form = {.experts = x->experts,
                                     .choices = x->top_k};

    if (x->experts == 0)
        FAIL(ERR_CONFIG, "--explain experts: %s has none; families with "
                         "experts are in docs/experts.md", m->kind->name);
    const struct { const char *name; int64_t value; const char *unit; }
    rows[] = {
        {"blocks with experts", blocks, ""},
        {"experts of a block", x->experts, ""},
        {"experts of a token", x->top_k, ""},
        {"inner width of an expert", x->width, ""},
        {"inner width of the shared expert", x->shared_width, ""},
        {"leaves of experts", p->layout.grid.expert, "numerics.grid_expert"},
        {"parameters", setup->parameters, ""},
        {"parameters that a token uses", setup_active(setup), ""},
        {"ranks that divide the experts", mesh_expert_places(&p->layout.mesh),
         experts_axes(&p->layout.mesh, axes)},
        {"ranks that cut each expert",
         experts_are_folded(p) || experts_cut(p) > 1
             ? experts_cut(p) : p->layout.mesh.size[AXIS_TENSOR],
         "mesh.expert_tensor, mesh.tensor"},
        {"first expert of the rank", held.first, ""},
        {"experts of the rank", held.count, "of each block"},
        {"rows that the rank has room for",
         p->size.tokens * experts_rows_bound(p, &form),
         "of a block and a micro-batch"},
        {"rows that can come", p->size.tokens * experts_rows_most(p, &form),
         "to the rank; those without room go in turns"},
        {"nodes of the ranks that divide the experts",
         mesh_expert_nodes(&p->layout.mesh),
         p->layout.mesh.relays ? "a row goes once to each (moe.exchange)"
                        : "rows go straight (moe.exchange, mesh.node)"},
        {"bytes sent for rows", sent.all,
         "the rank, each step, with equal shares"},
        {"of these, to other nodes", sent.between, "mesh.node"},
        {"bytes more without codes", sent.saved, "moe.dispatch_format"},
        {"rows of a block", tokens * x->top_k, "each step, all ranks"},
        {"rows of an expert", tokens * x->top_k / x->experts,
         "mean of a step; none is dropped"},
        {"bytes of a block's rows", row_bytes(p),
         "the rank, a micro-batch, under every routing"}};

    table_begin(table, columns, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        table_text(table, rows[i].name);
        table_integer(table, rows[i].value);
        table_text(table, rows[i].unit);
    }
    return OK;
}
