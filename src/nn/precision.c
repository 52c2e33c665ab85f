/* SPDX-License-Identifier: Apache-2.0 */
/* precision.c - the recipes for products in few bits, each after its paper. */
#include "nn/precision.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"

#define ROLE(format, along, across, scale) \
    {FORMAT_##format, along, across, SCALE_##scale, ROUND_NEAREST, false}
#define DRAWN(format, along, across, scale) \
    {FORMAT_##format, along, across, SCALE_##scale, ROUND_STOCHASTIC, false}
#define FIXED(format, along, across, scale) \
    {FORMAT_##format, along, across, SCALE_##scale, ROUND_NEAREST, true}
#define AS_IT_IS {FORMAT_BF16, 0, 0, SCALE_NONE, ROUND_NEAREST, true}
/* Inputs of SwiGLU as they are, too. */
#define NOT_STRAIGHT AS_IT_IS, false, false, false

const struct precision precisions[PRECISIONS] = {
    {"hfp8", ROLE(E4M3B11, 0, 0, NONE), ROLE(E4M3B11, 0, 0, NONE),
     ROLE(E5M2, 0, 0, NONE), false, 0,
     "hybrid FP8 without scales: 1-4-3 with bias 11 forward, E5M2 backward",
     "Sun et al. 2019, NeurIPS, \"Hybrid 8-bit floating point\"", AS_IT_IS,
     NOT_STRAIGHT},
    {"fp8-tensor", ROLE(E4M3, 0, 0, CEIL), ROLE(E4M3, 0, 0, CEIL),
     ROLE(E5M2, 0, 0, CEIL), false, 0,
     "FP8 with one current scale for a sequence, or a leaf of a weight",
     "Micikevicius et al. 2022, arXiv:2209.05433", AS_IT_IS, NOT_STRAIGHT},
    {"fp8-delayed", ROLE(E4M3, 0, 0, LATE), ROLE(E4M3, 0, 0, LATE),
     ROLE(E5M2, 0, 0, LATE), false, 0,
     "FP8 with one scale for a whole tensor, from the steps before",
     "Micikevicius et al. 2022, arXiv:2209.05433, section 3.2", AS_IT_IS,
     NOT_STRAIGHT},
    {"fp8-tiles", ROLE(E4M3, 128, 128, CEIL), ROLE(E4M3, 128, 1, CEIL),
     ROLE(E4M3, 128, 1, CEIL), false, 0,
     "E4M3 in tiles of 1 x 128, weights in blocks of 128 x 128, E5M6 after "
     "attention",
     "DeepSeek-AI 2024, arXiv:2412.19437, section 3.3",
     ROLE(E5M6, 128, 1, CEIL), NOT_STRAIGHT},
    {"mxfp8", ROLE(E4M3, 32, 1, CEIL), ROLE(E4M3, 32, 1, CEIL),
     ROLE(E4M3, 32, 1, CEIL), false, 0,
     "E4M3 in blocks of 32, scales rounded up",
     "Mishra et al. 2025, arXiv:2506.08027", AS_IT_IS, NOT_STRAIGHT},
    {"mxfp8-floor", ROLE(E4M3, 32, 1, FLOOR), ROLE(E4M3, 32, 1, FLOOR),
     ROLE(E4M3, 32, 1, FLOOR), false, 0,
     "E4M3 in blocks of 32, scales rounded down, which cuts numbers off",
     "OCP Microscaling Formats 1.0, section 6.3", AS_IT_IS, NOT_STRAIGHT},
    {"mxfp4", ROLE(E2M1, 32, 1, FLOOR), ROLE(E2M1, 32, 1, FLOOR),
     DRAWN(E2M1, 32, 1, CEIL), false, 0,
     "E2M1 in blocks of 32, gradients rounded stochastically",
     "OCP Microscaling Formats 1.0; Tseng et al. 2025, arXiv:2502.20586",
     AS_IT_IS, NOT_STRAIGHT},
    {.name = "mxfp4-quartet", .weights = ROLE(E2M1, 32, 1, GAUSS),
     .activations = ROLE(E2M1, 32, 1, GAUSS),
     .gradients = DRAWN(E2M1, 32, 1, FIT), .turn = true,
     .title = "E2M1 in blocks of 32, rotated, scales of the deviation, masks; "
              "both operands of gradients rounded stochastically",
     .source = "Castro et al. 2025, arXiv:2505.14669", .kept = AS_IT_IS,
     .glu = AS_IT_IS, .straight = true, .rotate = true, .trust = true},
    {"nvfp4", ROLE(E2M1, 16, 16, TWO), ROLE(E2M1, 16, 1, TWO),
     DRAWN(E2M1, 16, 1, TWO), true, 15,
     "E2M1 in blocks of 16 with two scales, weights in 16 x 16, wgrad "
     "transformed, gradients rounded stochastically",
     "NVIDIA 2025, arXiv:2509.25149", AS_IT_IS, NOT_STRAIGHT},
    {"nvfp4-delayed", ROLE(E2M1, 16, 16, TWO_LATE),
     ROLE(E2M1, 16, 1, TWO_LATE), DRAWN(E2M1, 16, 1, TWO_LATE), true, 15,
     "nvfp4 with one outer scale for a whole tensor, from the steps before",
     "NVIDIA 2025, arXiv:2509.25149", AS_IT_IS, NOT_STRAIGHT},
    {"bitnet", FIXED(TERNARY, 0, 0, MEAN), FIXED(INT8, 0, 1, EXACT),
     AS_IT_IS, false, 0,
     "ternary weights with their mean magnitude, activations of 8 bits",
     "Ma et al. 2024, arXiv:2402.17764", AS_IT_IS, NOT_STRAIGHT},
};

/* "none, hfp8, ... or bitnet". */
static const char *list_all(char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, "none");

    for (int i = 0; i < PRECISIONS && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%s",
                                 i < PRECISIONS - 1 ? ", " : " or ",
                                 precisions[i].name);
    return out;
}

/* The nearest name; else the first that has the word in it, as mxfp4-quartet
 * has quartet. */
static const char *nearest(const char *word, const char *const *names)
{
    const char *near = text_nearest(word, names, PRECISIONS + 1);

    for (int i = 0; i < PRECISIONS && near == NULL && strlen(word) > 2; i++)
        if (strstr(names[i], word) != NULL) near = names[i];
    return near;
}

status precision_parse(const struct precision **out, const char *name)
{
    const char *names[PRECISIONS + 1];
    char all[24 * (PRECISIONS + 1)];

    *out = NULL;
    if (strcmp(name, "none") == 0) return OK;
    for (int i = 0; i < PRECISIONS; i++) {
        names[i] = precisions[i].name;
        *out = &precisions[i];
        if (strcmp(names[i], name) == 0) return OK;
    }
    names[PRECISIONS] = "none";
    const char *near = nearest(name, names);

    *out = NULL;
    if (name[0] == '\0')
        FAIL(ERR_CONFIG, "numerics.recipe is empty; set %s",
             list_all(all, sizeof all));
    FAIL(ERR_CONFIG, "numerics.recipe: %s is not %s%s%s", name,
         list_all(all, sizeof all), near ? "; nearest: " : "",
         near ? near : "");
}

bool precision_is_late(const struct precision *recipe)
{
    const struct precision_role *const roles[] = {
        &recipe->weights, &recipe->activations, &recipe->gradients};

    for (int i = 0; i < 3; i++)
        if (scale_is_late(roles[i]->scale)) return true;
    return false;
}

bool precision_is_integer(const struct precision *recipe)
{
    const struct precision_role *w = &recipe->weights;
    const struct precision_role *x = &recipe->activations;

    return w->format == FORMAT_TERNARY && x->format == FORMAT_INT8 &&
           w->along == 0 && w->across == 0 && x->along == 0 &&
           x->across <= 1 && x->rounding == ROUND_NEAREST && !recipe->straight;
}

float precision_factor(const struct precision *recipe)
{
    const double largest =
        (double)number_formats[recipe->gradients.format].largest;
    const double fit = (double)fit_factor((float)largest);

    return recipe->gradients.scale == SCALE_FIT ? (float)(1 / (fit * fit)) : 1;
}

int precision_high(const struct precision *recipe, int layers)
{
    return (layers * recipe->high_share + 99) / 100;
}

void precision_block(const struct precision_role *role, bool turned,
                     int64_t side[2])
{
    const bool rows = turned && !role->fixed;

    side[0] = rows ? role->along : role->across;
    side[1] = rows ? role->across : role->along;
}
