/* SPDX-License-Identifier: Apache-2.0 */
/* muon.c - momentum whose singular values are brought near 1. Jordan et al.
 * 2024, "Muon: an optimizer for hidden layers in neural networks"; rates as
 * torch.optim.Muon adjusts them, `match_rms_adamw` after Liu et al. 2025,
 * arXiv:2502.16982, section 2.2. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "optimizer/newton_schulz.h"
#include "optimizer/whole_tensors.h"

status muon_adjust_parse(enum muon_adjust *adjust, const char *name)
{
    static const char *const names[] = {"original", "match_rms_adamw"};

    for (int i = 0; i < 2; i++) {
        *adjust = (enum muon_adjust)i;
        if (strcmp(names[i], name) == 0) return OK;
    }
    const char *near = text_nearest(name, names, 2);

    FAIL(ERR_CONFIG, "optimizer.adjust: %s is not original or "
                     "match_rms_adamw%s%s", name, near ? "; nearest: " : "",
         near ? near : "");
}

static status prepare(const struct update *u, const struct update_item *item)
{
    struct element_update call = {.formula = UPDATE_MOMENTUM,
                                  .share = u->nesterov};
    struct update_item over = *item; /* the gradient */

    over.weight = item->gradient;
    over.copy = (struct tensor){.data = NULL};
    over.beta1 = u->momentum;
    return update_elements(u, &over, &call);
}

static status compute(const struct update *u, const struct whole_tensor *t)
{
    const struct newton_schulz call = {
        .kernels = u->real, .stream = u->stream, .x = t->x,
        .scratch = t->scratch, .steps = u->ns_steps};

    return newton_schulz(&call);
}

/* Uses the shape of the outside tensor, as other trainers of the same model
 * do. */
static void finish(const struct update *u, const struct update_item *item,
                   const struct matrix *matrix, struct descent *out)
{
    const double in = (double)(matrix->transposed ? matrix->rows
                                                  : matrix->cols);
    const double rows = (double)(matrix->transposed ? matrix->cols
                                                    : matrix->rows);
    const double longer = rows > in ? rows : in;

    switch (u->adjust) {
    case MUON_ORIGINAL:
        out->rate = item->lr * (rows > in ? sqrt(rows / in) : 1);
        break;
    case MUON_MATCH_RMS:
        out->rate = item->lr * 0.2 * sqrt(longer);
        break;
    }
}

static const struct whole_kind whole = {
    .scratch = newton_schulz_elements, .prepare = prepare,
    .compute = compute, .finish = finish};

const struct optimizer_kind optimizer_muon = {
    .name = "muon",
    .doc = "orthogonal momentum for matrices of blocks; adamw for the rest",
    .states = {{.name = "buffer", .title = "momentum", .narrow = true}},
    .matrices = true, .rates = RATES_NONE, .whole = &whole};
