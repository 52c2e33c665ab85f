/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - options of products in fewer bits: the recipe, the blocks and
 * steps that it is for, and how its products are summed. */
#include "setup/recipe.h"

#include <string.h>

#include "models/decoder.h"
#include "nn/row_codes.h"
#include "nn/saved_codes.h"

enum { PROMOTE_MOST = 1 << 20 };

static bool is_off(const char *accumulator)
{
    return strcmp(accumulator, "off") == 0;
}

/* A number and what follows it. */
static bool read_part(const char **at, char end, int *out)
{
    int digits = 0;

    for (*out = 0; **at >= '0' && **at <= '9' && digits < 8; (*at)++, digits++)
        *out = 10 * *out + (**at - '0');
    if (digits == 0 || **at != end) return false;
    if (end != 0) (*at)++;
    return true;
}

status recipe_accumulator(struct accumulator *out, const char *text)
{
    struct accumulator of;
    const char *at = text;

    *out = (struct accumulator){0};
    if (is_off(text)) return OK;
    if (!read_part(&at, ':', &of.bits) || !read_part(&at, ':', &of.granule) ||
        !read_part(&at, 0, &of.promote))
        FAIL(ERR_CONFIG, "numerics.accumulator: %s is not off or "
                         "PRECISION:GRANULE:PROMOTE, such as 14:32:128",
             text[0] != '\0' ? text : "an empty text");
    if (of.bits < 2 || of.bits > ACCUMULATOR_BITS_MOST)
        FAIL(ERR_CONFIG, "numerics.accumulator: %s keeps %d bits; 2 to %d can "
                         "be kept, such as 14:32:128",
             text, of.bits, ACCUMULATOR_BITS_MOST);
    if (of.granule < 1 || of.granule > GRANULE)
        FAIL(ERR_CONFIG, "numerics.accumulator: %s sums %d products at once; 1 "
                         "to %d are possible, such as 14:32:128",
             text, of.granule, GRANULE);
    if (of.promote > PROMOTE_MOST || of.promote % of.granule != 0) {
        const int down = of.promote / of.granule * of.granule;

        FAIL(ERR_CONFIG, "numerics.accumulator: %s goes to float32 after %d "
                         "elements; that is 0 (never) or a multiple of %d up "
                         "to %d, such as %d",
             text, of.promote, of.granule, PROMOTE_MOST,
             down > 0 && down <= PROMOTE_MOST ? down : of.granule * 4);
    }
    *out = of;
    return OK;
}

static bool is_integer(const struct precision_role *role)
{
    return role->format == FORMAT_INT8 || role->format == FORMAT_TERNARY;
}

/* Products of integers are exact, so nothing is cut. */
static status check_accumulator(const struct precision *recipe,
                                const char *accumulator)
{
    const struct precision_role *const roles[] = {
        &recipe->weights, &recipe->activations, &recipe->gradients};

    for (int i = 0; i < 3; i++)
        if (is_integer(roles[i]))
            FAIL(ERR_CONFIG, "numerics.accumulator: %s is that of a matrix "
                             "unit of floating-point numbers, but %s has "
                             "operands of %s, which are summed as integers; "
                             "set numerics.accumulator=off",
                 accumulator, recipe->name,
                 number_formats[roles[i]->format].name);
    return OK;
}

/* Options that say more about a recipe, without one. */
static status check_alone(const struct options *o)
{
    const bool blocks = o->numerics.high_first > 0 || o->numerics.high_last > 0;

    if (!is_off(o->numerics.accumulator))
        FAIL(ERR_CONFIG, "numerics.accumulator: %s sums the products of a "
                         "recipe, but numerics.recipe is none; set one such as "
                         "fp8-tiles, or numerics.accumulator=off",
             o->numerics.accumulator);
    if (blocks || o->numerics.recipe_rows.count > 0 ||
        o->numerics.recipe_steps > 0)
        FAIL(ERR_CONFIG, "%s changes a recipe, but numerics.recipe is none",
             blocks ? "numerics.high_first or numerics.high_last"
             : o->numerics.recipe_steps > 0 ? "numerics.recipe_steps"
                                            : "numerics.recipe_rows");
    return OK;
}

/* Something that may be codes of the recipe. */
struct coded_choice {
    const char *option, *value;
    const char *does;    /* "keeps the inputs ..." */
    const char *refusal; /* why the recipe has none; NULL: it has */
    const char *near;    /* a recipe that has; NULL: none is named */
};

static status choose_codes(bool *out, const struct coded_choice *c)
{
    static const char *const values[] = {"auto", "recipe", "dtype"};
    const char *near = text_nearest(c->value, values, 3);

    *out = false;
    if (strcmp(c->value, "dtype") == 0) return OK;
    if (strcmp(c->value, "auto") != 0 && strcmp(c->value, "recipe") != 0)
        FAIL(ERR_CONFIG, "%s: %s is not auto, recipe or dtype%s%s", c->option,
             c->value, near ? "; nearest: " : "", near ? near : "");
    *out = c->refusal == NULL;
    if (strcmp(c->value, "auto") == 0 || *out) return OK;
    FAIL(ERR_CONFIG, "%s: recipe %s, but %s; set auto or dtype%s%s", c->option,
         c->does, c->refusal, c->near ? ", or numerics.recipe=" : "",
         c->near ? c->near : "");
}

/* The recipe nearest to one without codes of weights. */
static const char *near_gather(const struct precision_use *use)
{
    if (use->recipe.straight) return "mxfp4";
    return NULL;
}

static const char *gather_refusal(const struct stage_request *r)
{
    if (r->training.observe && r->precision.on)
        return "observe.layers counts what rounding does to weights as they "
               "are";
    return coded_refusal(&r->precision);
}

static const char *dispatch_refusal(const struct stage_request *r)
{
    if (r->training.observe && r->precision.on)
        return "observe.layers counts what rounding does to rows as they are";
    return row_codes_refusal(&r->precision);
}

static status choose_formats(struct stage_request *r, const struct options *o)
{
    struct precision_use *use = &r->precision;

    TRY(choose_codes(&use->saved, &(struct coded_choice){
        "train.saved_activations", o->train.saved_activations,
        "keeps the inputs of products as the codes that W reads",
        saved_codes(use), NULL}));
    use->twice = strcmp(o->numerics.mode, "fast") == 0;
    TRY(choose_codes(&use->dispatched, &(struct coded_choice){
        "moe.dispatch_format", o->moe.dispatch_format,
        "sends rows of experts as the codes that their products read",
        dispatch_refusal(r), NULL}));
    TRY(choose_codes(&use->kept, &(struct coded_choice){
        "train.kept_weights", o->train.kept_weights,
        "keeps weights as the codes that products read", gather_refusal(r),
        near_gather(use)}));
    return choose_codes(&r->divided.gather.codes, &(struct coded_choice){
        "fsdp.gather_format", o->fsdp.gather_format,
        "gathers weights as the codes that products read",
        gather_refusal(r), near_gather(use)});
}

/* Why rooms cannot have codes of y and of dx in turns; NULL: they can. */
static const char *turns_refusal(const struct stage_request *r)
{
    if (!r->divided.gather.reshard)
        return "its blocks in y are not those in dx, and fsdp.reshard=false "
               "gathers once for both";
    if (r->divided.gather.once)
        return "its blocks in y are not those in dx, and weights that are "
               "gathered once (fsdp.gather) are there for both";
    for (int i = 0; i < r->recomputation.count; i++) {
        const char *policy = r->recomputation.policy[i];

        if (strcmp(policy, "auto") != 0 && strcmp(policy, "none") != 0 &&
            strcmp(policy, "norm") != 0 && strcmp(policy, "activation") != 0)
            return "its blocks in y are not those in dx, and train.recompute "
                   "makes y again among the latter";
    }
    return NULL;
}

/* Why a rank cannot keep codes in place of its weights; NULL: it can. */
static const char *keep_refusal(const struct stage_request *r, bool divided)
{
    if (r->training.choice.split)
        return "masters that are split (optimizer.masters) need weights of "
               "bfloat16";
    if (coded_sets(&r->precision) == 1) return NULL;
    if (!divided)
        return "its blocks in y are not those in dx, and only ranks that "
               "divide weights (zero=fsdp) keep both";
    if (division_parts(&r->divided.division))
        return "its blocks in y are not those in dx, and ranks that divide "
               "shards once more (zero) send one of both";
    return turns_refusal(r);
}

status recipe_check_gathers(struct stage_request *r, const struct options *o,
                            const struct mesh *mesh)
{
    const bool divided =
        mesh_group_size(mesh, r->divided.division.weights) > 1;

    if (r->precision.kept)
        TRY(choose_codes(&r->precision.kept, &(struct coded_choice){
            "train.kept_weights", o->train.kept_weights,
            "keeps weights as the codes that products read",
            keep_refusal(r, divided), NULL}));
    if (r->precision.kept && divided) r->divided.gather.codes = true;
    if (!r->divided.gather.codes || coded_sets(&r->precision) == 1) return OK;
    return choose_codes(&r->divided.gather.codes, &(struct coded_choice){
        "fsdp.gather_format", o->fsdp.gather_format,
        "gathers weights as the codes that products read",
        turns_refusal(r), NULL});
}

/* Inputs of SwiGLU in few bits. model NULL: any. */
static status check_glu(const struct precision_use *use,
                        const struct model *model)
{
    if (use->recipe.glu.format == FORMAT_BF16) return OK;
    if (use->steps > 0)
        FAIL(ERR_CONFIG, "numerics.recipe_rows: glu keeps the inputs of SwiGLU "
                         "in few bits, but numerics.recipe_steps ends the "
                         "recipe, and later steps need them as they are; use "
                         "\"glu bf16\" or numerics.recipe_steps=0");
    if (model == NULL || model_decoder(model)->ffn.gated ||
        model->moe.experts > 0)
        return OK;
    FAIL(ERR_CONFIG, "numerics.recipe_rows: glu keeps the inputs of SwiGLU and "
                     "GeGLU, but the blocks of %s have none; use \"glu bf16\"",
         model->kind->name);
}

status recipe_choose(struct stage_request *r, const struct options *o,
                     int layers)
{
    struct precision_use *out = &r->precision;
    const char *name = o->numerics.recipe;
    const struct precision *recipe;
    int last = (int)o->numerics.high_last;

    struct accumulator accumulator;

    *out = (struct precision_use){0};
    TRY(recipe_accumulator(&accumulator, o->numerics.accumulator));
    TRY(precision_parse(&recipe, name));
    if (recipe == NULL) {
        TRY(choose_formats(r, o));
        return check_alone(o);
    }
    if (r->dtype != DTYPE_BF16)
        FAIL(ERR_CONFIG, "numerics.recipe: %s rounds the operands of bfloat16 "
                         "products, but train.dtype is %s; set "
                         "train.dtype=bfloat16", name, dtype_name(r->dtype));
    if (last < 0) last = precision_high(recipe, layers);
    *out = (struct precision_use){
        .on = true, .recipe = *recipe,
        .changed = o->numerics.recipe_rows.count > 0,
        .first = (int)o->numerics.high_first,
        .end = layers - last, .steps = o->numerics.recipe_steps,
        .history = (int)o->numerics.recipe_history,
        .accumulator = accumulator};
    if (out->first >= out->end)
        FAIL(ERR_CONFIG, "numerics.recipe: the first %d and the last %d of %d "
                         "blocks stay bfloat16, so none is left for %s; set "
                         "numerics.high_first or numerics.high_last lower",
             out->first, last, layers, name);
    TRY(precision_change(&out->recipe, o->numerics.recipe_rows.items,
                         o->numerics.recipe_rows.count));
    TRY(check_glu(out, r->model));
    TRY(choose_formats(r, o));
    return is_off(o->numerics.accumulator)
               ? OK : check_accumulator(&out->recipe, o->numerics.accumulator);
}
