/* SPDX-License-Identifier: Apache-2.0 */
/* mla.c - multi-head latent attention: keys and values of all heads are made
 * from one short vector of a token. Source: DeepSeek-V2, arXiv:2405.04434,
 * section 2.1; names and scales as the released models have them. */
#include "models/mla.h"

#include <math.h>
#include <string.h>

#include "kernels/math.h"
#include "models/decoder.h"
#include "models/lora.h"

/* The epsilon of the norms of latent vectors, whatever that of others is. */
static const double latent_epsilon = 1e-6;

/* ---- options ---- */

/* Families that have it, for messages. */
#define HAS_LATENTS "deepseek_v2, deepseek_v3 and glm4_moe_lite have it " \
                     "(model.family)"

status mla_check_options(const struct model_kind *kind,
                         const struct options *o)
{
    const bool asked = o->mla.query_rank >= 0 || o->mla.rank > 0 ||
                       o->mla.nope > 0 || o->mla.rope > 0 || o->mla.value > 0;

    if (asked && kind->mla.rank == 0)
        FAIL(ERR_CONFIG, "mla.rank: %s has no latent attention; " HAS_LATENTS,
             kind->name);
    for (int i = 0; kind->mla.rank == 0 && i < o->train.recompute.count; i++)
        if (strcmp(o->train.recompute.items[i], "latent") == 0)
            FAIL(ERR_CONFIG, "train.recompute: latent, but %s has no latent "
                             "attention; " HAS_LATENTS, kind->name);
    if (kind->mla.rank > 0 && o->model.head_width > 0)
        FAIL(ERR_CONFIG, "model.head_width: heads of %s are as wide as "
                         "mla.nope + mla.rope; set those", kind->name);
    return OK;
}

static int64_t or_else(int64_t value, int64_t other)
{
    return value > 0 ? value : other;
}

void mla_fill(struct model *m, const struct options *o)
{
    const struct mla *k = &m->kind->mla;

    m->mla = (struct mla){0};
    if (k->rank == 0) return;
    m->mla = (struct mla){
        .query_rank = o->mla.query_rank < 0 ? k->query_rank
                                            : o->mla.query_rank,
        .rank = or_else(o->mla.rank, k->rank),
        .nope = or_else(o->mla.nope, k->nope),
        .rope = or_else(o->mla.rope, k->rope),
        .value = or_else(o->mla.value, k->value)};
}

status mla_settle(struct model *m)
{
    const struct mla *x = &m->mla;

    if (x->rope < 2 || x->rope % 2 != 0)
        FAIL(ERR_CONFIG, "mla.rope (qk_rope_head_dim): %lld elements of a head "
                         "turn; an even number is needed",
             (long long)x->rope);
    if (x->nope < 1 || x->value < 1 || x->rank < 1)
        FAIL(ERR_CONFIG, "mla.nope, mla.value and mla.rank are %lld, %lld and "
                         "%lld; each must be 1 or more", (long long)x->nope,
             (long long)x->value, (long long)x->rank);
    if (x->nope + x->rope > HEAD_WIDTH_MAX || x->value > x->nope + x->rope)
        FAIL(ERR_CONFIG, "mla: keys of %lld + %lld elements and values of "
                         "%lld; keys have at most %d, and values no more than "
                         "keys", (long long)x->nope, (long long)x->rope,
             (long long)x->value, HEAD_WIDTH_MAX);
    if (m->kv_heads != m->heads)
        FAIL(ERR_CONFIG, "model.kv_heads: latent attention takes only as many "
                         "as heads, %d", m->heads);
    m->head_width = (int)(x->nope + x->rope);
    m->rope.rotary = (int)x->rope;
    return OK;
}

/* ---- the block ---- */

static struct param_spec matrix(const char *name, const char *outside,
                                int64_t rows, int64_t cols)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = rows, .cols = cols, .decay = true};
}

/* Rows of heads, which the tensor axis divides. */
static struct param_spec of_heads(const char *name, const char *outside,
                                  const struct model *m, int64_t each,
                                  int64_t cols)
{
    struct param_spec w = matrix(name, outside, m->heads * each, cols);

    w.split_rows = AXIS_TENSOR;
    w.piece_count = 1;
    w.pieces[0] = (struct param_piece){outside, w.rows, each};
    return w;
}

static slot latent_norm(struct program *p, slot x, const char *name,
                        const char *outside, int64_t width)
{
    const struct param_spec gain = {.name = name, .outside_name = outside,
                                    .rows = 1, .cols = width, .vector = true,
                                    .init = INIT_ONE};

    return nn_rmsnorm(p, x, &gain, latent_epsilon);
}

static slot product(struct program *p, const struct model *m, slot x,
                    const struct param_spec *weight,
                    const struct outside *name)
{
    const struct param_spec all[2] = {*weight};

    return decoder_linear(p, m, x, all, &name, 1);
}

/* Marks what train.recompute: latent makes again. */
static slot of_latent(struct program *p, slot x)
{
    if (p->error == OK) p->slots[x].latent = true;
    return x;
}

static slot queries(struct program *p, const struct model *m, slot x)
{
    const int64_t rank = m->mla.query_rank, each = m->head_width;
    const struct param_spec
        all = of_heads("attention.wq", "self_attn.q_proj.weight", m, each,
                       m->width),
        down = matrix("attention.wq_a", "self_attn.q_a_proj.weight", rank,
                      m->width),
        up = of_heads("attention.wq_b", "self_attn.q_b_proj.weight", m, each,
                      rank);

    if (rank == 0)
        return product(p, m, x, &all, &model_decoder(m)->attention.q);
    x = latent_norm(p, decoder_down(p, m, x, &down,
                                    &model_decoder(m)->latent.q_down),
                    "attention.q_a_norm", "self_attn.q_a_layernorm.weight",
                    rank);
    return of_latent(p, product(p, m, x, &up, &model_decoder(m)->latent.q_up));
}

/* The scale of scores: stretched models multiply by the root of YaRN's
 * temperature for queries and for keys. */
static double score_scale(const struct model *m)
{
    const struct rope_scaling *s = &m->rope.scaling;
    double own = 1;

    if (s->mscale_all != 0 && s->factor > 1)
        own = 0.1 * s->mscale_all * math_log(s->factor) + 1;
    return own * own / sqrt((double)m->head_width);
}

/* The latent cache multiplies queries by this matrix instead of keys. */
static status check_absorbed(const struct program *p, const struct model *m)
{
    if (lora_at(m, p->block, &model_decoder(m)->latent.kv_up) == 0) return OK;
    FAIL(ERR_CONFIG, "--cache latent: kv_b_proj has an adapter, which that "
                     "cache does not multiply by; use --cache keys, or export "
                     "the model, which merges it");
}

/* Attention of each head, from queries, latents and rotary keys. */
static slot attend(struct program *p, const struct model *m, slot q, slot c,
                   slot turned)
{
    const struct mla *of = &m->mla;
    const struct latent_heads heads = {m->heads, of->nope, of->rope,
                                       of->value};
    const struct rope_table table = {.scaling = m->rope.scaling,
                                     .base = m->rope.base,
                                     .rotary = (int)of->rope};
    const struct attention_rule rule = {.scale = score_scale(m),
                                        .value = of->value};
    const struct layout_span values = {0, of->value};
    const struct param_spec up =
        of_heads("attention.wkv_b", "self_attn.kv_b_proj.weight", m,
                 of->nope + of->value, of->rank);

    if (p->mode == PROGRAM_GENERATE && p->caches.latent) {
        if (p->error == OK) p->error = check_absorbed(p, m);
        q = nn_rope_part(p, nn_latent_turning(p, q, turned, &heads), m->heads,
                         1, &table);
        return nn_latent_attention(p, q, c, &up, &heads, rule.scale);
    }
    c = of_latent(p, product(p, m, c, &up, &model_decoder(m)->latent.kv_up));
    c = of_latent(p, nn_latent_keys(p, c, turned, &heads));
    c = of_latent(p, nn_latent_join(p, q, c, &heads));
    c = nn_rope_part(p, c, m->heads, m->heads, &table);
    c = nn_attention_ruled(p, c, m->heads, m->heads, &rule);
    return of_latent(
        p, nn_part(p, c, m->heads / program_tensor_ranks(p), &values));
}

slot mla_attention(struct program *p, const struct model *m, slot x)
{
    const struct mla *of = &m->mla;
    const struct layout_span latent = {0, of->rank},
                             turning = {of->rank, of->rope};
    const struct param_spec down =
        matrix("attention.wkv_a", "self_attn.kv_a_proj_with_mqa.weight",
               of->rank + of->rope, m->width);
    struct param_spec out = matrix("attention.wo", "self_attn.o_proj.weight",
                                   m->width, m->heads * of->value);

    out.split_cols = AXIS_TENSOR;
    out.init = INIT_RESIDUAL;
    out.after_attention = true;
    const slot q = queries(p, m, x);
    const slot a =
        decoder_down(p, m, x, &down, &model_decoder(m)->latent.kv_down);
    const slot c =
        latent_norm(p, nn_part(p, a, 1, &latent), "attention.kv_a_norm",
                    "self_attn.kv_a_layernorm.weight", of->rank);

    return product(p, m, attend(p, m, q, c, nn_part(p, a, 1, &turning)), &out,
                   &model_decoder(m)->attention.out);
}
