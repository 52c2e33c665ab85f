/* SPDX-License-Identifier: Apache-2.0 */
/* cost_recipes.c - seconds of what recipes do beside their products. */
#include "planner/cost_parts.h"

/* A call that was not measured reads and writes its matrix, at least. */
static void unmeasured(const struct cost *cost, double elements, double times,
                       struct spent *out)
{
    const double *v = cost->machine->value;
    const double rate = v[M_MEMORY_RATE] * v[M_MEMORY] * cost_threads(cost);
    const double seconds = times * 2 * elements * cost_element_bytes(cost) /
                           rate;

    out->seconds[CAUSE_ROUNDING] += seconds;
    out->guessed += seconds;
}

void cost_rounded(const struct cost *cost, const struct precision *recipe,
                  const struct rounded_matrix *matrix, double times,
                  struct spent *out)
{
    const double elements = matrix->rows * matrix->width;
    struct rounded calls[ROUNDED_MOST];
    char text[ROUNDED_TEXT];
    const int count = rounded_calls(recipe, matrix->use, matrix->place, calls);

    for (int i = 0; i < count; i++) {
        bool guess;
        const double rate = measured_rounding_rate(
            cost->machine, &(struct rounded_size){
                rounded_code(rounded_text(&calls[i], text)), matrix->rows,
                matrix->width, cost_threads(cost)}, &guess);

        if (rate <= 0) {
            unmeasured(cost, elements, times, out);
            continue;
        }
        out->seconds[CAUSE_ROUNDING] += times * elements / rate;
        if (guess) out->guessed += times * elements / rate;
    }
}

void cost_integers(const struct cost *cost, struct product_size size,
                   double times, struct spent *out)
{
    struct layout eight = *cost->layout;
    const struct cost codes = {cost->machine, cost->shape, &eight};

    eight.bits = 8;
    cost_product(&codes, size, times, CAUSE_PRODUCT, out);
}

/* A product of integers, or one with accumulators of few bits, instead of one
 * of bfloat16. */
static void instead(const struct cost *cost, struct product_size size,
                    double times, struct spent *out)
{
    const struct precision_use *use = &cost->shape->precision;
    struct spent plain = {0};

    cost_product(cost, size, times, CAUSE_PRODUCT, &plain);
    spent_add(out, &plain, -1);
    size.accumulator = use->accumulator;
    if (use->accumulator.bits > 0)
        cost_product(cost, size, times, CAUSE_PRODUCT, out);
    else
        cost_integers(cost, size, times, out);
}

void cost_glu(const struct cost *cost, struct passes *out)
{
    const struct shape *s = cost->shape;
    const struct layout *l = cost->layout;
    const struct precision_use *use = &s->precision;
    const double choices = s->choices > 0 ? s->choices : 1;
    const double width = 2 * (double)s->feed_forward / choices / l->tensor;
    const double share = (use->end - use->first) / (double)s->layers;
    struct rounded_matrix m = {USE_FORWARD, ROUNDED_GLU,
                               cost_tokens(cost) * choices, width};

    if (!use->on || l->as != AS_LOCKSTEP ||
        use->recipe.glu.format == FORMAT_BF16)
        return;
    cost_rounded(cost, &use->recipe, &m, share, &out->pass[COST_F]);
    m.use = USE_DGRAD;
    cost_rounded(cost, &use->recipe, &m, 2 * share, &out->pass[COST_B]);
    if (l->recompute == RECOMPUTE_BLOCK) return; /* made again anyway */
    cost_worked(cost, &(struct worked){
        WORK_GATE, share * 1.5 * m.rows * width * cost_element_bytes(cost),
        m.rows, width / 2}, &out->pass[COST_B]);
}

void cost_recipe(const struct cost *cost, const struct recipe_products *of,
                 struct passes *out)
{
    const struct precision_use *use = &cost->shape->precision;
    const struct precision *recipe = &use->recipe;
    const struct shape_product *p = of->product;
    const double t = cost->layout->sequence_parallel ? cost->layout->tensor : 1;

    if (!use->on || cost->layout->as != AS_LOCKSTEP || p->few <= 0) return;
    const double times = of->times * p->few / p->each_block *
                         (use->end - use->first) / cost->shape->layers;
    const double leaves = layout_leaves_each(cost->layout, cost->shape);

    for (int pass = 0; pass < (p->frozen ? COST_W : COST_PASSES); pass++) {
        const struct product_size size = of->sizes[pass];
        const enum product_use now = (enum product_use)pass;
        struct spent *to = &out->pass[pass];
        struct rounded_matrix m = {now, ROUNDED_FIRST, size.m, size.k};

        cost_rounded(cost, recipe, &m, times, to);
        m = (struct rounded_matrix){now, ROUNDED_SECOND, size.k, size.n};
        cost_rounded(cost, recipe, &m, times, to);
        m.place = ROUNDED_KEPT;
        cost_rounded(cost, recipe, &m, times * p->kept / p->few, to);
        m = (struct rounded_matrix){now, ROUNDED_LAYER, size.m / t,
                                    pass == COST_F ? size.k : size.n};
        cost_rounded(cost, recipe, &m, times, to);
        m = (struct rounded_matrix){now, ROUNDED_LEAF, size.m, size.n};
        cost_rounded(cost, recipe, &m, times * leaves, to);
        if (use->accumulator.bits > 0) instead(cost, size, times, to);
    }
    if (precision_is_integer(recipe))
        instead(cost, of->sizes[COST_F], times, &out->pass[COST_F]);
}
