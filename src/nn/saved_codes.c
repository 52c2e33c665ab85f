/* SPDX-License-Identifier: Apache-2.0 */
/* saved_codes.c - which inputs of products wait for W as codes, and their
 * bytes.
 *
 *   buffer   codes [tokens, bytes of a row] | scales [row blocks, col blocks]
 */
#include "nn/saved_codes.h"

#include "nn/expert_products.h"
#include "nn/expert_ranks.h"
#include "nn/quantized_operands.h"

static int64_t context_chunk_length(const struct program *p)
{
    return p->size.length / p->size.context_chunks;
}

/* Blocks along the features of x. */
static int64_t feature_blocks(const struct program *p,
                              const struct param *param)
{
    struct quantize_span cols[QUANTIZED_SPANS_MAX];
    const int64_t count = quantized_features(p, param, false, cols);
    int64_t side[2];

    precision_block(&p->precision.recipe.activations, true, side);
    return code_blocks(cols, count, side[1]);
}

/* Scales of one context chunk of sequences. */
static int64_t context_chunk_scales(const struct program *p,
                                    const struct param *param)
{
    const struct quantize_span context_chunk = {0, context_chunk_length(p), 0,
                                                false};
    int64_t side[2];

    precision_block(&p->precision.recipe.activations, true, side);
    return code_blocks(&context_chunk, 1, side[0]) * feature_blocks(p, param);
}

/* The codes of so many rows. */
static int64_t code_bytes(const struct program *p, const struct param *param,
                          int64_t rows)
{
    const int64_t bytes =
        rows * code_row_bytes(p->precision.recipe.activations.format,
                              param->cols);

    return (bytes + 3) / 4 * 4; /* scales may be float32 */
}

static const struct param *weight_of(const struct program *p,
                                     const struct step *step)
{
    return &p->params.items[step->param[0]];
}

const char *saved_codes(const struct precision_use *use)
{
    const struct precision *recipe = &use->recipe;
    const struct precision_role *x = &recipe->activations;

    if (!use->on) return "numerics.recipe is none";
    if (use->steps > 0)
        return "numerics.recipe_steps ends the recipe, and later steps read "
               "inputs as they are";
    if (recipe->straight) return "the recipe rounds them anew in each use";
    if (recipe->turn)
        return "the recipe transforms them before it rounds them";
    if (x->format == FORMAT_BF16) return "the recipe leaves them in bfloat16";
    if (x->rounding != ROUND_NEAREST)
        return "the recipe rounds them stochastically";
    if (x->scale >= SCALE_MEAN)
        return "the recipe's scales are not of their largest numbers";
    return NULL;
}

int64_t saved_bytes(const struct program *p, const struct step *step)
{
    const struct param *param = weight_of(p, step);

    if (step->layer->kind == LAYER_EXPERTS)
        return saved_experts_bytes(
            p, step, p->size.tokens * step->set.experts.form.choices);
    return code_bytes(p, param, p->size.tokens) +
           program_rows(p) * context_chunk_scales(p, param) *
               code_scale_bytes(p->precision.recipe.activations.scale);
}

bool saved_possible(const struct program *p, const struct step *step)
{
    const struct slot_info *input;
    int64_t bytes, peaks;

    if (!p->precision.saved || !step->few) return false;
    input = &p->slots[step->input];
    if (step->layer == &layer_experts_down)
        return !input->dropped && !input->again && saved_bytes(p, step) > 0;
    if (step->layer->kind != LAYER_LINEAR) return false;
    bytes = p->size.tokens * input->width * dtype_bytes(input->dtype);
    peaks = program_rows(p) * context_chunk_scales(p, weight_of(p, step)) *
            (int64_t)sizeof(float);
    return !input->dropped && !input->again && peaks <= bytes &&
           saved_bytes(p, step) < bytes;
}

struct saved_place saved_place(const struct program *p, const struct step *step,
                               void *buffer, int64_t first)
{
    const struct param *param = weight_of(p, step);
    const struct precision_role *role = &p->precision.recipe.activations;
    const int64_t row = code_row_bytes(role->format, param->cols);
    const int64_t scales = context_chunk_scales(p, param) *
                           code_scale_bytes(role->scale);

    return (struct saved_place){
        (uint8_t *)buffer +
            first * (p->size.length / p->size.context_chunks) * row,
        (char *)buffer + code_bytes(p, param, p->size.tokens) + first * scales,
        row};
}

/* ---- rows of experts ---- */

/* Blocks along so many rows, at most: each expert's of each context chunk are
 * apart. */
static int64_t row_blocks_most(const struct program *p,
                               const struct step *step, int64_t rows)
{
    const int64_t context_chunks =
        p->size.tokens * experts_sources(p) / context_chunk_length(p);
    const int64_t apart =
        context_chunks * experts_held(p, step->set.experts.form.experts).count;
    const int64_t spans = apart < rows ? apart : rows;
    int64_t side[2];

    precision_block(&p->precision.recipe.activations, true, side);
    if (side[0] == 0) return spans;
    return rows / side[0] + spans < rows ? rows / side[0] + spans : rows;
}

int64_t saved_experts_bytes(const struct program *p, const struct step *step,
                            int64_t rows)
{
    const struct param *param = weight_of(p, step);
    const int64_t plain = rows * param->cols * dtype_bytes(DTYPE_BF16);
    const int64_t blocks =
        row_blocks_most(p, step, rows) * feature_blocks(p, param);
    const int64_t bytes =
        code_bytes(p, param, rows) +
        blocks * code_scale_bytes(p->precision.recipe.activations.scale);

    /* A block's largest magnitude has the room of its rows, for a while. */
    return blocks * (int64_t)sizeof(float) <= plain && bytes < plain ? bytes
                                                                     : 0;
}

struct saved_place saved_experts_place(const struct program *p,
                                       const struct step *step, void *buffer,
                                       const struct saved_rows *at)
{
    const struct param *param = weight_of(p, step);
    const struct precision_role *role = &p->precision.recipe.activations;
    const int64_t row = code_row_bytes(role->format, param->cols);

    return (struct saved_place){
        (uint8_t *)buffer + at->first * row,
        (char *)buffer + code_bytes(p, param, at->rows) +
            at->blocks * feature_blocks(p, param) *
                code_scale_bytes(role->scale),
        row};
}
