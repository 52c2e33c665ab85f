/* SPDX-License-Identifier: Apache-2.0 */
/* list_leaves.c - sums of gradients over micro-batches. */
#include "planner/list_leaves.h"

#include "mesh/addends.h"
#include "nn/gradient.h"

static bool is_same(const struct cut *a, const struct cut *b)
{
    return a->data_leaves == b->data_leaves &&
           a->first_leaf == b->first_leaf && a->all_leaves == b->all_leaves &&
           a->sequences_per_leaf == b->sequences_per_leaf &&
           a->length == b->length && a->context_chunks == b->context_chunks &&
           a->shared == b->shared && a->micro_batch == b->micro_batch &&
           a->micro_batches == b->micro_batches &&
           a->addend_sequences == b->addend_sequences &&
           a->addend_tokens == b->addend_tokens;
}

void leaf_adds_of(const struct program *program, struct leaf_adds *out)
{
    if (program->sums.integer) { /* those are added as they come */
        *out = (struct leaf_adds){.each = {{0}}};
        return;
    }
    for (int head = 0; head < 2; head++) {
        const struct cut cut = program_cut(program, head);

        if (is_same(&cut, &out->of[head])) continue;
        out->of[head] = cut;
        for (int takes = 0; takes < 2; takes++)
            out->each[head][takes] = cut_adds_each(&cut, takes);
    }
}

void list_add_leaves(const struct cost *cost, const struct leaf_adds *adds,
                     const struct step *step, const struct program *p,
                     struct spent *out)
{
    for (int i = 0; i < step_uses(step); i++) {
        const int at = step_use(step, i).use;
        const struct use_info *use = &p->uses[at < 0 ? 0 : at];

        if (at < 0 || use->vector || !gradient_made(p, at)) continue;
        const struct param *param = &p->params.items[use->param];
        const double rows = (double)(use->rows > 0 ? use->rows : param->rows);
        const double width = (double)param->cols;
        const double times = adds->each[use->head][!use->scatter];

        if (times > 0)
            cost_worked(cost, &(struct worked){
                WORK_ADD, times * 3 * 4 * rows * width, rows, width}, out);
    }
}
