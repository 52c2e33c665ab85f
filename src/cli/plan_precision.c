/* SPDX-License-Identifier: Apache-2.0 */
/* plan_precision.c - which operands of products have how few bits. */
#include "cli/plan_precision.h"

#include <math.h>
#include <string.h>

static const char *const products[] = {"y = x W'", "dx = dy W", "dW = dy' x"};

/* The two operands of each product. */
static const struct precision_role *role_of(const struct precision *recipe,
                                            int product, int operand)
{
    if (operand == 0)
        return product == 0 ? &recipe->activations : &recipe->gradients;
    return product == 2 ? &recipe->activations : &recipe->weights;
}

static const char *name_of(int product, int operand)
{
    if (operand == 0) return product == 0 ? "x" : "dy";
    return product == 2 ? "x" : "W";
}

static void side_text(char out[24], int64_t side, const char *region)
{
    if (side > 0) snprintf(out, 24, "%lld", (long long)side);
    else snprintf(out, 24, "%s", region);
}

/* Rows by columns of a block of the operand as it lies. */
static void block_text(char out[64], const struct precision_role *role,
                       int product, int operand)
{
    const bool weight = product < 2 && operand == 1;
    const bool turned = weight ? product == 1 : product == 2;
    char rows[24], cols[24];
    int64_t side[2];

    if (role->scale == SCALE_NONE) {
        snprintf(out, 64, "-");
        return;
    }
    if (role->scale == SCALE_LATE) {
        snprintf(out, 64, "whole tensor");
        return;
    }
    precision_block(role, turned, side);
    side_text(rows, side[0], weight ? "leaf" : "sequence");
    side_text(cols, side[1], "leaf");
    snprintf(out, 64, "%s x %s", rows, cols);
}

static const char *scale_text(enum scale_rule rule)
{
    static const char *const texts[SCALE_COUNT] = {
        "none", "2^k, down", "2^k, up", "2^k, up, of earlier steps",
        "e4m3 x 2^k", "e4m3 x 2^k of earlier steps", "largest / L", "mean",
        "2^k, of the deviation", "2^k, none cut off"};

    return texts[rule];
}

/* A straight recipe rounds both operands of gradients as gradients. */
static const struct precision_role *rounded_as(const struct precision *recipe,
                                               int product, int operand)
{
    return recipe->straight && product > 0 ? &recipe->gradients
                                           : role_of(recipe, product, operand);
}

static const char *transform_text(const struct precision *recipe, int product)
{
    if (!recipe->straight)
        return product == 2 && recipe->turn ? "hadamard 16" : "-";
    if (product == 0) return recipe->rotate ? "hadamard 32" : "-";
    return recipe->turn ? "hadamard 32, signs" : "-";
}

/* As train.dtype has it; rows say bf16. */
static const char *format_text(enum number_format format)
{
    return format == FORMAT_BF16 ? dtype_name(DTYPE_BF16)
                                 : number_formats[format].name;
}

static void operand_row(const struct precision *recipe, int product,
                        int operand, struct table *table)
{
    const struct precision_role *role = rounded_as(recipe, product, operand);
    char block[64];

    block_text(block, role, product, operand);
    table_text(table, products[product]);
    table_text(table, name_of(product, operand));
    table_text(table, format_text(role->format));
    table_text(table, block);
    table_text(table, scale_text(role->scale));
    table_text(table, role->format == FORMAT_BF16            ? "-"
                      : role->rounding == ROUND_STOCHASTIC ? "stochastic"
                                                           : "nearest");
    table_text(table, transform_text(recipe, product));
}

/* A matrix of a step; of experts, that of the first one. */
struct product_of {
    const struct program *program;
    const struct step *step;
    int which;
};

/* "attention.wqkv" of "layers.3.attention.wqkv". */
static const char *matrix_name(const struct product_of *m)
{
    const char *name =
        m->program->params.items[m->step->param[m->which]].name;
    const char *after = strncmp(name, "layers.", 7) == 0 ? strchr(name + 7, '.')
                                                         : NULL;

    return after != NULL ? after + 1 : name;
}

static bool alike(const struct product_of *a, const struct product_of *b)
{
    return strcmp(matrix_name(a), matrix_name(b)) == 0 &&
           a->step->few == b->step->few;
}

static bool counts(const struct product_of *m)
{
    const int param = m->step->param[m->which];

    if (m->step->block < 0 || param < 0) return false;
    if (m->step->layer->kind == LAYER_LINEAR) return m->which == 0;
    return m->step->layer->kind == LAYER_EXPERTS &&
           m->program->params.items[param].cols > 1;
}

/* Calls `each` for the matrices of all stages until it returns false. */
typedef bool matrix_reader(void *argument, const struct product_of *m);
static bool matrices(const struct pipeline *pipeline, matrix_reader *each,
                     void *argument)
{
    for (int s = 0; s < pipeline->count; s++) {
        const struct program *p = &pipeline->stages[s].program;

        for (int i = 0; i < 2 * p->step_count; i++) {
            const struct product_of m = {p, &p->steps[i / 2], i % 2};

            if (counts(&m) && !each(argument, &m)) return false;
        }
    }
    return true;
}

/* Blocks of matrices that are alike, as "0-3,5". */
struct span_text {
    const struct product_of *like;
    char text[96];
    int first, last; /* of the span that is open; -1: none */
    bool is_first;   /* no other before it is alike */
};

static void span_close(struct span_text *s)
{
    const size_t at = strlen(s->text);
    const char *comma = at > 0 ? "," : "";

    if (s->first < 0) return;
    if (s->first == s->last)
        snprintf(s->text + at, sizeof s->text - at, "%s%d", comma, s->first);
    else
        snprintf(s->text + at, sizeof s->text - at, "%s%d-%d", comma, s->first,
                 s->last);
}

static bool span_add(void *argument, const struct product_of *m)
{
    struct span_text *s = argument;

    if (!alike(m, s->like)) return true;
    if (s->first >= 0 && m->step->block == s->last + 1) {
        s->last = m->step->block;
        return true;
    }
    span_close(s);
    s->first = s->last = m->step->block;
    return true;
}

static bool is_other(void *argument, const struct product_of *m)
{
    struct span_text *s = argument;

    if (m->step == s->like->step && m->which == s->like->which)
        s->is_first = true;
    return !s->is_first && !alike(m, s->like);
}

struct writer { const struct pipeline *pipeline; struct table *table; };

static bool matrix_rows(void *argument, const struct product_of *m)
{
    const struct writer *w = argument;
    const struct precision *recipe =
        m->step->few ? &m->program->precision.recipe : NULL;
    struct span_text span = {.like = m, .first = -1};
    struct table *table = w->table;

    matrices(w->pipeline, is_other, &span);
    if (!span.is_first) return true;
    matrices(w->pipeline, span_add, &span);
    span_close(&span);
    for (int i = 0; i < (recipe != NULL ? 6 : 1); i++) {
        table_text(table, span.text);
        table_text(table, matrix_name(m));
        if (recipe != NULL) {
            operand_row(recipe, i / 2, i % 2, table);
            continue;
        }
        table_text(table, "all");
        table_text(table, "all");
        table_text(table, dtype_name(m->program->dtype));
        for (int j = 0; j < 4; j++) table_text(table, "-");
    }
    return true;
}

status plan_precision(const struct pipeline *pipeline, struct table *table)
{
    static const struct table_column columns[] = {
        {"blocks", "blocks", false},   {"matrix", "matrix", false},
        {"product", "product", false}, {"operand", "operand", false},
        {"format", "format", false},   {"block", "block", false},
        {"scale", "scale", false},     {"rounding", "rounding", false},
        {"transform", "transform", false}};
    struct writer writer = {pipeline, table};

    table_begin(table, columns, 9);
    matrices(pipeline, matrix_rows, &writer);
    return OK;
}

static void print_accumulator(const struct accumulator *of)
{
    if (of->bits == 0) return;
    printf("numerics.accumulator: %d products are aligned to the largest and "
           "cut to %d bits, as is the accumulator that they are added to; ",
           of->granule, of->bits);
    if (of->promote > 0)
        printf("after every %d elements it is added to the float32 sum\n\n",
               of->promote);
    else
        printf("it is added to the float32 sum at the end of a leaf or a "
               "sequence only\n\n");
}

/* Bytes of codes, and those of the weights that they replace. */
static void print_kept(const struct pipeline *pipeline)
{
    int64_t codes = 0, weights = 0;

    for (int i = 0; i < pipeline->count; i++) {
        const struct stage *stage = &pipeline->stages[i];

        if (!stage->coded.kept) continue;
        codes += (int64_t)stage->memory[MEMORY_CODES].bytes;
        weights += stage->coded.lacks * dtype_bytes(stage->program.dtype);
    }
    if (weights > 0)
        printf("weights are kept as codes (train.kept_weights): %lld bytes "
               "with scales and largest magnitudes, and not %lld of %s\n\n",
               (long long)codes, (long long)weights,
               dtype_name(pipeline->stages[0].program.dtype));
}

static void print_glu(const struct precision_role *role)
{
    char block[64];

    block_text(block, role, 0, 0);
    printf("inputs of SwiGLU wait for B in %s, blocks %s, scale %s; its result "
           "is made of them again\n\n", number_formats[role->format].name,
           block, scale_text(role->scale));
}

/* The factor of gradients is a fraction of squares: 16/9 for E2M1. */
static void factor_text(char out[32], float factor)
{
    for (long top = 1; top <= 1024; top *= 2) {
        const long under = lround((double)top / sqrt((double)factor));

        if (under < 1 || (float)((double)(top * top) /
                                 (double)(under * under)) != factor)
            continue;
        if (under == 1) snprintf(out, 32, "%ld", top * top);
        else snprintf(out, 32, "%ld/%ld", top * top, under * under);
        return;
    }
    snprintf(out, 32, "%.9g", (double)factor);
}

static void print_straight(const struct precision *recipe)
{
    char factor[32];

    factor_text(factor, precision_factor(recipe));
    printf("x and W of dx and dW are those of y, rounded again.%s Then "
           "gradients are %smultiplied by %s\n\n",
           recipe->trust ? " Gradients of numbers that were cut off become 0."
                         : "", recipe->rotate ? "rotated back and " : "",
           factor);
}

static void print_recipe(const struct precision_use *use)
{
    const struct precision *recipe = &use->recipe;

    if (use->changed)
        printf("%s, changed by numerics.recipe_rows as the table shows; "
               "unchanged it is:\n", recipe->name);
    printf("%s: %s\nsource: %s\nblocks %d to %d; embedding, head, norms, "
           "attention and adapters stay bfloat16%s\n\n",
           recipe->name, recipe->title, recipe->source, use->first,
           use->end - 1, use->accumulator.bits > 0 ? "" : "; sums are float32");
}

void plan_precision_note(const struct pipeline *pipeline)
{
    const struct stage_request *r = &pipeline->stages[0].request;
    const struct precision_use *use = &r->precision;

    if (!use->on) {
        printf("numerics.recipe is none: products as train.dtype=%s says "
               "(docs/precision.md)\n\n", dtype_name(r->dtype));
        return;
    }
    print_recipe(use);
    print_accumulator(&use->accumulator);
    print_kept(pipeline);
    if (precision_is_integer(&use->recipe))
        printf("y = x W' is summed in integers and then multiplied by both "
               "scales\n\n");
    if (use->recipe.straight) print_straight(&use->recipe);
    if (use->recipe.kept.format != FORMAT_BF16)
        printf("x of dW after attention is kept in %s, one row of %lld, and "
               "rounded from there\n\n",
               number_formats[use->recipe.kept.format].name,
               (long long)use->recipe.kept.along);
    if (use->recipe.glu.format != FORMAT_BF16)
        print_glu(&use->recipe.glu);
    if (use->steps > 0)
        printf("for the first %lld steps; then all products are bfloat16\n\n",
               (long long)use->steps);
}
