/* SPDX-License-Identifier: Apache-2.0 */
/* list_recipes.c - kernels of a recipe in events of the executor's lists. */
#include "planner/list_recipes.h"

#include "nn/expert_ranks.h"

static enum product_use use_of(enum pass pass)
{
    return pass == PASS_BACKWARD_INPUT    ? USE_DGRAD
           : pass == PASS_BACKWARD_WEIGHT ? USE_WGRAD : USE_FORWARD;
}

void list_round_operands(const struct cost *cost,
                         const struct rounded_product *of, struct spent *out)
{
    const struct layout *l = cost->layout;
    const struct precision *recipe = &of->program->precision.recipe;
    const struct product_size *s = &of->size;
    struct rounded_matrix m = {use_of(of->pass), ROUNDED_FIRST, s->m, s->k};

    cost_rounded(cost, recipe, &m, of->times, out);
    m = (struct rounded_matrix){m.use, ROUNDED_SECOND, s->k, s->n};
    cost_rounded(cost, recipe, &m, of->times, out);
    if (m.use != USE_WGRAD) return;
    m.place = ROUNDED_KEPT;
    if (of->weight->spec.after_attention)
        cost_rounded(cost, recipe, &m, of->times, out);
    m = (struct rounded_matrix){m.use, ROUNDED_LEAF, s->m, s->n};
    cost_rounded(cost, recipe, &m,
                 of->times * layout_leaves_each(l, cost->shape), out);
}

bool list_is_rounding(const struct step *step)
{
    return step->few && step->layer->kind == LAYER_ACTIVATION;
}

void list_round_layer(const struct cost *cost, const struct step *step,
                      const struct program *p, enum pass pass,
                      struct spent *out)
{
    const int choices = step->set.experts.form.choices;
    const double rows = (double)program_slot_rows(p, step->input) *
                        (choices > 0 ? choices : 1);
    const struct rounded_matrix m = {
        use_of(pass), ROUNDED_LAYER, rows,
        (double)p->slots[step->input].width / (choices > 0 ? choices : 1)};

    cost_rounded(cost, &p->precision.recipe, &m, 1, out);
}

/* `rows` of gate and up, `width` wide. Codes are made in F, and read by what is
 * made of them again and by B. */
static void keep(const struct cost *cost, const struct program *p,
                 enum pass pass, double rows, double width, struct spent *out)
{
    const struct rounded_matrix m = {
        pass == PASS_FORWARD ? USE_FORWARD : USE_DGRAD, ROUNDED_GLU, rows,
        width};

    if (pass != PASS_BACKWARD_WEIGHT)
        cost_rounded(cost, &p->precision.recipe, &m, 1, out);
}

void list_keep_gate(const struct cost *cost, const struct step *step,
                    const struct program *p, enum pass pass, struct spent *out)
{
    double width;

    if (!step->layer->keeps_codes) return;
    width = (double)p->params.items[step->named].rows;
    keep(cost, p, pass,
         (double)program_slot_rows(p, step->input) *
             (double)p->slots[step->input].width / width, width, out);
}

void list_keep_experts(const struct cost *cost, const struct step *step,
                       const struct program *p, enum pass pass,
                       struct spent *out)
{
    const struct param *up = &p->params.items[step->param[0]];
    const int experts = step->set.experts.form.experts;

    if (!step->few) return;
    keep(cost, p, pass,
         (double)p->size.tokens * step->set.experts.form.choices *
             experts_sources(p) * step->each / experts,
         (double)up->rows, out);
}
