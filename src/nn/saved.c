/* SPDX-License-Identifier: Apache-2.0 */
/* saved.c - which inputs of products wait for W as codes, and their bytes.
 *
 *   buffer   codes [tokens, bytes of a row] | scales [row blocks, col blocks]
 */
#include "nn/saved.h"

#include "nn/quantized.h"

/* Scales of one chunk of sequences. */
static int64_t chunk_scales(const struct program *p, const struct param *param)
{
    const struct quantize_span chunk = {0, p->length / p->context_chunks, 0,
                                        false};
    struct quantize_span cols[QUANTIZED_SPANS_MAX];
    const int64_t count = quantized_features(p, param, false, cols);
    int64_t side[2];

    precision_block(&p->precision.recipe.activations, true, side);
    return code_blocks(&chunk, 1, side[0]) * code_blocks(cols, count, side[1]);
}

static int64_t code_bytes(const struct program *p, const struct param *param)
{
    const int64_t bytes =
        p->tokens * code_row_bytes(p->precision.recipe.activations.format,
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

    return code_bytes(p, param) +
           program_rows(p) * chunk_scales(p, param) *
               code_scale_bytes(p->precision.recipe.activations.scale);
}

bool saved_possible(const struct program *p, const struct step *step)
{
    const struct slot_info *input;
    int64_t bytes, peaks;

    if (!p->precision.saved || !step->few || step->layer->kind != LAYER_LINEAR)
        return false;
    input = &p->slots[step->input];
    bytes = p->tokens * input->width * dtype_bytes(input->dtype);
    peaks = program_rows(p) * chunk_scales(p, weight_of(p, step)) *
            (int64_t)sizeof(float);
    return !input->dropped && !input->again && peaks <= bytes &&
           saved_bytes(p, step) < bytes;
}

const char *saved_name(const struct program *p)
{
    return number_formats[p->precision.recipe.activations.format].name;
}

struct saved_place saved_place(const struct program *p, const struct step *step,
                               void *buffer, int64_t first)
{
    const struct param *param = weight_of(p, step);
    const struct precision_role *role = &p->precision.recipe.activations;
    const int64_t row = code_row_bytes(role->format, param->cols);
    const int64_t scales = chunk_scales(p, param) *
                           code_scale_bytes(role->scale);

    return (struct saved_place){
        (uint8_t *)buffer + first * (p->length / p->context_chunks) * row,
        (char *)buffer + code_bytes(p, param) + first * scales, row};
}
