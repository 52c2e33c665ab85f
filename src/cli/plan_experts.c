/* SPDX-License-Identifier: Apache-2.0 */
/* plan_experts.c - the mixture of experts of a configuration. */
#include "cli/plan_experts.h"

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
                 dtype_bytes(program_slot_dtype(p, step->output));
    }
    return bytes;
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
    const int64_t tokens = setup->batch * setup->request.length;

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
        {"leaves of experts", p->grid.expert, "numerics.grid_expert"},
        {"parameters", setup->parameters, ""},
        {"parameters that a token uses", setup->parameters - model_idle(m),
         ""},
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
