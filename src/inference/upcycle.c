/* SPDX-License-Identifier: Apache-2.0 */
/* upcycle.c - a dense model as a mixture of experts. */
#include "inference/upcycle.h"

#include <stdio.h>
#include <string.h>

#include "models/decoder.h"
#include "models/moe.h"
#include "step/inventory.h"

enum { PATTERN_BYTES = 256, TOP_K_DEFAULT = 2 };

/* Whether `name` is `outside` in some block; *expert: of which expert. */
static bool is_outside(const struct model *m, const char *outside,
                       const char *name, int *layer, int *expert)
{
    char pattern[PATTERN_BYTES];
    int end = 0;

    if (outside == NULL) return false;
    *expert = 0;
    snprintf(pattern, sizeof pattern, "%s%s%%n", m->kind->layer_prefix,
             outside);
    if (strstr(outside, "%d") != NULL)
        (void)sscanf(name, pattern, layer, expert, &end);
    else
        (void)sscanf(name, pattern, layer, &end);
    return end > 0 && name[end] == 0;
}

static bool is_router(const struct model *m, const char *name)
{
    int layer, expert;

    return is_outside(m, m->kind->decoder->moe.router.weight, name, &layer,
                      &expert);
}

const char *upcycle_name(const struct model *model,
                         const struct model_kind *dense, const char *name,
                         char *out, size_t bytes, bool *copy)
{
    const struct decoder *to = model->kind->decoder, *from = dense->decoder;
    const struct { const char *mixture, *dense; } rows[] = {
        {to->moe.gate.weight, from->ffn.gate.weight},
        {to->moe.up.weight, from->ffn.up.weight},
        {to->moe.down.weight, from->ffn.down.weight}};
    int layer, expert, end;

    *copy = false;
    if (is_router(model, name)) return NULL;
    for (int i = 0; i < 3; i++) {
        if (!is_outside(model, rows[i].mixture, name, &layer, &expert))
            continue;
        *copy = expert > 0;
        end = snprintf(out, bytes, dense->layer_prefix, layer);
        snprintf(out + end, bytes - (size_t)end, "%s", rows[i].dense);
        return out;
    }
    return name;
}

/* Names what the model has and no mixture of the family; NULL: nothing. */
static const char *obstacle(const struct model *m, const struct model_kind *to)
{
    if (m->biases.attention && to->biases.no_attention)
        return "attention biases";
    if (m->biases.mlp && to->biases.no_mlp) return "feed-forward biases";
    if (m->window.tokens > 0 && blocks_count(&m->window.whole) > 0 &&
        !to->window.layers)
        return "a window in some of its blocks only";
    return NULL;
}

status session_upcycle(struct session *session, const struct upcycle *how)
{
    struct model *m = &session->model;
    const struct model_kind *dense = m->kind, *to = dense->moe.made;
    const char *has;

    if (to == NULL)
        FAIL(ERR_CONFIG, "moe.experts: %s: a %s cannot become a mixture here; "
                         "llama and mistral become mixtral, qwen3 becomes "
                         "qwen3_moe, olmo2 becomes flex_olmo", session->path,
             dense->name);
    has = obstacle(m, to);
    if (has != NULL)
        FAIL(ERR_CONFIG, "moe.experts: %s: the %s has %s, and no %s has them",
             session->path, dense->name, has, to->name);
    m->kind = to;
    m->moe = (struct moe){
        .experts = how->experts, .width = m->feed_forward,
        .top_k = how->top_k > 0 ? how->top_k : TOP_K_DEFAULT,
        .normalize = to->moe.normalize || to->moe.normalize_choice};
    if (how->top_k == 0 && m->moe.top_k > how->experts)
        m->moe.top_k = how->experts;
    TRY(moe_check(m));
    session->dense = dense;
    return OK;
}

static bool is_router_weight(const struct model *model,
                             const struct param *param)
{
    return param->spec.outside_name != NULL &&
           is_router(model, param->spec.outside_name);
}

status session_start_routers(const struct stage *stage, uint64_t seed)
{
    const struct inventory_of of = {.stages = stage, .count = 1};
    struct inventory inventory;
    status result;

    TRY_GOTO(done, result, inventory_build(&inventory, &of));
    result = session_start_random(&inventory, stage, seed, is_router_weight);
done:
    inventory_free(&inventory);
    return result;
}
