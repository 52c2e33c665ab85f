/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - options of products in fewer bits. */
#include "setup/recipe.h"

status recipe_choose(struct stage_request *r, const struct options *o,
                     int layers)
{
    const char *name = o->numerics.recipe;
    int last = (int)o->numerics.high_last;

    TRY(precision_parse(&r->precision.recipe, name));
    if (r->precision.recipe == NULL && (o->numerics.high_first > 0 || last > 0))
        FAIL(ERR_CONFIG, "numerics.high_first and numerics.high_last name "
                         "blocks that a recipe leaves alone, but "
                         "numerics.recipe is none");
    if (r->precision.recipe == NULL) return OK;
    if (r->model->moe.experts > 0)
        FAIL(ERR_CONFIG, "numerics.recipe: %s has no rule for the products of "
                         "experts; set it to none", name);
    if (r->dtype != DTYPE_BF16)
        FAIL(ERR_CONFIG, "numerics.recipe: %s rounds the operands of bfloat16 "
                         "products, but train.dtype is %s; set "
                         "train.dtype=bfloat16", name, dtype_name(r->dtype));
    if (last < 0) last = precision_high(r->precision.recipe, layers);
    r->precision.first = (int)o->numerics.high_first;
    r->precision.end = layers - last;
    if (r->precision.first >= r->precision.end)
        FAIL(ERR_CONFIG, "numerics.recipe: the first %d and the last %d of %d "
                         "blocks stay bfloat16, so none is left for %s; set "
                         "numerics.high_first or numerics.high_last lower",
             r->precision.first, last, layers, name);
    return OK;
}
