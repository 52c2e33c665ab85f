/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - options of products in fewer bits: the recipe, and the blocks and
 * steps that it is for. */
#include "setup/recipe.h"

/* Options that say more about a recipe, without one. */
static status check_alone(const struct options *o)
{
    const bool blocks = o->numerics.high_first > 0 || o->numerics.high_last > 0;

    if (blocks || o->numerics.recipe_rows.count > 0 ||
        o->numerics.recipe_steps > 0)
        FAIL(ERR_CONFIG, "%s changes a recipe, but numerics.recipe is none",
             blocks ? "numerics.high_first or numerics.high_last"
             : o->numerics.recipe_steps > 0 ? "numerics.recipe_steps"
                                            : "numerics.recipe_rows");
    return OK;
}

status recipe_choose(struct stage_request *r, const struct options *o,
                     int layers)
{
    struct precision_use *out = &r->precision;
    const char *name = o->numerics.recipe;
    const struct precision *recipe;
    int last = (int)o->numerics.high_last;

    *out = (struct precision_use){0};
    TRY(precision_parse(&recipe, name));
    if (recipe == NULL) return check_alone(o);
    if (r->dtype != DTYPE_BF16)
        FAIL(ERR_CONFIG, "numerics.recipe: %s rounds the operands of bfloat16 "
                         "products, but train.dtype is %s; set "
                         "train.dtype=bfloat16", name, dtype_name(r->dtype));
    if (last < 0) last = precision_high(recipe, layers);
    *out = (struct precision_use){true, *recipe,
                                  (int)o->numerics.high_first, layers - last,
                                  o->numerics.recipe_steps,
                                  (int)o->numerics.recipe_history};
    if (out->first >= out->end)
        FAIL(ERR_CONFIG, "numerics.recipe: the first %d and the last %d of %d "
                         "blocks stay bfloat16, so none is left for %s; set "
                         "numerics.high_first or numerics.high_last lower",
             out->first, last, layers, name);
    return precision_change(&out->recipe, o->numerics.recipe_rows.items,
                            o->numerics.recipe_rows.count);
}
