/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c - the part of an architecture that is a mixture of experts. */
#include "models/moe.h"

#include <string.h>

/* ---- options ---- */

status moe_check_options(const struct model_kind *kind,
                         const struct options *o)
{
    const struct { const char *name; bool asked, refused; } rows[] = {
        {"normalize", o->moe.normalize >= 0, !kind->moe.normalize_choice},
        {"shared_intermediate_size", o->moe.shared_intermediate_size > 0,
         !kind->moe.shared},
        {"every", o->moe.every > 1, !kind->moe.sizes},
        {"first_dense", o->moe.first_dense > 0, !kind->moe.sizes},
        {"dense", o->moe.dense[0] != 0, !kind->moe.sizes},
        {"groups", o->moe.groups > 0, kind->moe.groups == 0},
        {"groups_chosen", o->moe.groups_chosen > 0, kind->moe.groups == 0},
        {"scale", o->moe.scale > 0, kind->moe.scale == 0},
        {"router_noise", o->moe.router_noise > 0, kind->moe.noise == 0},
        {"swiglu_alpha", o->moe.swiglu_alpha > 0, kind->moe.swiglu_limit == 0},
        {"swiglu_limit", o->moe.swiglu_limit > 0, kind->moe.swiglu_limit == 0}};
    bool asked = o->moe.experts > 0 || o->moe.top_k > 0 ||
                 o->moe.jitter > 0 || o->moe.capacity_factor > 0 ||
                 o->moe.intermediate_size > 0 || o->moe.bias_rate > 0 ||
                 strcmp(o->moe.balance_scope, "sequence") != 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        asked = asked || rows[i].asked;
    if (asked && kind->moe.experts == 0)
        FAIL(ERR_CONFIG, "moe.experts: %s is a family without experts; those "
                         "with experts are mixtral, olmoe, qwen2_moe, "
                         "qwen3_moe, granitemoe, deepseek, deepseek_v2, "
                         "deepseek_v3, glm4_moe, gpt_oss, phimoe, llama4, "
                         "dots1, glm4_moe_lite, minimax_m2, flex_olmo, "
                         "ernie4_5_moe, granitemoeshared and solar_open "
                         "(model.family)", kind->name);
    const int64_t groups = o->moe.groups > 0 ? o->moe.groups : kind->moe.groups;

    if (kind->moe.groups > 0 && groups > 1 && o->moe.groups_chosen > groups &&
        o->model.from[0] == 0)
        FAIL(ERR_CONFIG, "moe.groups_chosen: %lld of %lld groups; expected 1 "
                         "to %lld", (long long)o->moe.groups_chosen,
             (long long)groups, (long long)groups);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].asked && rows[i].refused)
            FAIL(ERR_CONFIG, "moe.%s: %s takes none; leave it out, or take one "
                             "of the families that docs/generated/options.md "
                             "names beside it", rows[i].name, kind->name);
    return OK;
}

void moe_fill(struct model *m, const struct options *o)
{
    const struct model_kind *kind = m->kind;
    struct moe *x = &m->moe;

    *x = (struct moe){0};
    if (kind->moe.experts == 0) return;
    *x = (struct moe){.experts = (int)o->moe.experts,
                          .top_k = (int)o->moe.top_k,
                          .width = o->moe.intermediate_size,
                          .shared_width = o->moe.shared_intermediate_size,
                          .bias = kind->moe.bias ||
                                  o->moe.bias_rate > 0,
                          .normalize = o->moe.normalize < 0
                                           ? kind->moe.normalize
                                           : o->moe.normalize > 0};
    if (x->experts == 0) x->experts = kind->moe.experts;
    if (x->top_k == 0) x->top_k = kind->moe.top_k;
    if (x->width == 0) x->width = m->feed_forward;
    if (kind->moe.experts > 0 && !kind->moe.sizes) m->feed_forward = x->width;
    if (x->shared_width == 0 && kind->moe.shared)
        x->shared_width = (kind->moe.shared_count > 0 ? kind->moe.shared_count
                                                  : x->top_k) * x->width;
    x->swiglu_alpha = o->moe.swiglu_alpha > 0 ? o->moe.swiglu_alpha
                                              : kind->moe.swiglu_alpha;
    x->swiglu_limit = o->moe.swiglu_limit > 0 ? o->moe.swiglu_limit
                                              : kind->moe.swiglu_limit;
    x->noise = o->moe.router_noise > 0 ? o->moe.router_noise
                                       : kind->moe.noise;
    x->scale = o->moe.scale > 0 ? o->moe.scale : kind->moe.scale;
    x->groups = o->moe.groups > 0 ? (int)o->moe.groups : kind->moe.groups;
    x->groups_chosen = o->moe.groups_chosen > 0 ? (int)o->moe.groups_chosen
                                                : kind->moe.groups_chosen;
    if (x->groups_chosen > x->groups) x->groups_chosen = x->groups;
    for (int i = 0; i < m->layers && x->experts > 0; i++)
        if (i < o->moe.first_dense || (i + 1) % o->moe.every != 0)
            blocks_put(&x->dense, i);
}

status moe_choose_dense(struct model *m, const struct options *o)
{
    if (o->moe.dense[0] == 0) return OK;
    if (o->moe.every > 1 || o->moe.first_dense > 0)
        FAIL(ERR_CONFIG, "moe.dense: moe.every and moe.first_dense select "
                         "blocks, too; remove one of them");
    return blocks_from_text(&m->moe.dense, m->layers, "moe.dense",
                            o->moe.dense);
}

status moe_add_bias(struct model *m, const struct options *o)
{
    if (o->moe.bias_rate > 0 && m->moe.experts == 0)
        FAIL(ERR_CONFIG, "moe.bias_rate: the config.json of model.from has no "
                         "experts; leave it out");
    if (o->moe.bias_rate > 0) m->moe.bias = true;
    return OK;
}

status moe_check_bias(const struct options *o)
{
    const double rate = o->moe.bias_rate;

    if (rate < 0 && rate != -1)
        FAIL(ERR_CONFIG, "moe.bias_rate: %g; expected 0 to 1, or -1 for the "
                         "family's value", rate);
    if (rate > 0 && o->lora.rank > 0)
        FAIL(ERR_CONFIG, "moe.bias_rate: adapters learn beside a model that "
                         "stays as it is, with its biases; leave it out");
    return OK;
}

double model_bias_rate(const struct model *model,
                       const struct options *options)
{
    if (!model->moe.bias || model->lora.rank > 0)
        return 0; /* adapters learn beside a model that stays as it is */
    return options->moe.bias_rate < 0 ? model->kind->moe.bias_rate
                                      : options->moe.bias_rate;
}

/* ---- sizes ---- */

/* A group has two experts at least: its score is the sum of two. */
static status check_groups(const struct moe *x)
{
    int near = x->groups;

    if (x->groups <= 1) return OK;
    while (near > 1 && (x->experts % near != 0 || x->experts / near < 2))
        near--;
    if (near != x->groups)
        FAIL(ERR_CONFIG, "moe.groups: %d groups do not divide %d experts into "
                         "two or more each; %d do", x->groups, x->experts,
             near);
    if (x->groups_chosen < 1 || x->groups_chosen > x->groups)
        FAIL(ERR_CONFIG, "moe.groups_chosen: %d of %d groups; expected 1 to %d",
             x->groups_chosen, x->groups, x->groups);
    if (x->top_k > x->groups_chosen * (x->experts / x->groups))
        FAIL(ERR_CONFIG, "moe.top_k: %d experts for each token, but %d of %d "
                         "groups have %d together", x->top_k,
             x->groups_chosen, x->groups,
             x->groups_chosen * (x->experts / x->groups));
    return OK;
}

status moe_check(const struct model *m)
{
    const struct moe *x = &m->moe;

    if (x->experts == 0) return OK;
    if (x->experts > EXPERTS_MAX)
        FAIL(ERR_CONFIG, "moe.experts: %d experts of a block; this build has "
                         "at most %d", x->experts, EXPERTS_MAX);
    if (x->top_k < 1 || x->top_k > x->experts || x->top_k > CHOICES_MAX)
        FAIL(ERR_CONFIG, "moe.top_k: %d of %d experts for each token; expected "
                         "1 to %d", x->top_k, x->experts,
             x->experts < CHOICES_MAX ? x->experts : CHOICES_MAX);
    TRY(check_groups(x));
    if (m->kind->moe.scale > 0 && !(x->scale > 0 && x->scale <= 1e6))
        FAIL(ERR_CONFIG, "moe.scale (routed_scaling_factor): %g; expected more "
                         "than 0, up to 1e6", x->scale);
    if (blocks_count(&x->dense) >= m->layers)
        FAIL(ERR_CONFIG, "moe.every: none of %d blocks has experts "
                         "(moe.every, moe.first_dense, moe.dense); a dense "
                         "family has none at all", m->layers);
    return OK;
}

static int64_t common(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

int64_t model_inner(const struct model *model)
{
    const struct moe *x = &model->moe;

    if (x->experts == 0) return model->feed_forward;
    return common(blocks_count(&x->dense) > 0 ? model->feed_forward : 0,
                  common(x->width, x->shared_width));
}

/* The mean over blocks, where blocks with experts have `inner`. */
static double mean_inner(const struct model *m, double inner)
{
    const int dense = m->moe.experts > 0 ? blocks_count(&m->moe.dense)
                                         : m->layers;

    return (dense * (double)m->feed_forward + (m->layers - dense) * inner) /
           m->layers;
}

double model_inner_used(const struct model *m)
{
    const struct moe *x = &m->moe;

    return mean_inner(m, (double)(x->top_k * x->width + x->shared_width));
}

double model_inner_held(const struct model *m)
{
    const struct moe *x = &m->moe;

    return mean_inner(m, (double)(x->experts * x->width + x->shared_width));
}

int64_t model_idle(const struct model *m)
{
    const struct moe *x = &m->moe;
    const int blocks = m->layers - blocks_count(&x->dense);

    return x->experts == 0 ? 0
                           : blocks * (int64_t)(x->experts - x->top_k) * 3 *
                                 m->width * x->width;
}
