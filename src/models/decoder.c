/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - the block of every family, in forward order.
 *
 *   one after the other   x + attention(norm(x)), then x + ffn(norm(x))
 *   side by side          x + attention(norm(x)) + ffn(norm(x))
 *
 * A family's table leaves parts out or adds them; its file says which paper. */
#include "models/decoder.h"

#include <math.h>

static const struct decoder *decoder_of(const struct model *m)
{
    return m->decoder != NULL ? m->decoder : m->kind->decoder;
}

static int rotary_of(const struct model *m)
{
    return m->rotary > 0 ? m->rotary : m->head_width;
}

/* A projection whose outputs are cut over tensor ranks. */
static struct param_spec rows_cut(const struct model *m, const char *name,
                                  int64_t rows, const char *outside)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = rows, .cols = m->width, .decay = true,
                               .outside_transposed = decoder_of(m)->transposed,
                               .split_rows = AXIS_TENSOR};
}

/* One whose inputs are. */
static struct param_spec cols_cut(const struct model *m, const char *name,
                                  int64_t cols, const char *outside)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = m->width, .cols = cols, .decay = true,
                               .outside_transposed = decoder_of(m)->transposed,
                               .split_cols = AXIS_TENSOR,
                               .init = INIT_RESIDUAL};
}

static struct param_spec vector(const char *name, int64_t cols,
                                const char *outside, enum param_init init)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = 1, .cols = cols, .vector = true,
                               .init = init};
}

/* The bias of a projection whose outputs are cut, with its pieces. */
static struct param_spec bias_cut(const struct param_spec *matrix,
                                  const char *name, const char *outside)
{
    struct param_spec bias = vector(name, matrix->rows, outside, INIT_ZERO);

    bias.split_rows = AXIS_TENSOR;
    bias.piece_count = matrix->piece_count;
    for (int i = 0; i < PARAM_PIECES_MAX; i++)
        bias.pieces[i] = matrix->pieces[i];
    bias.outside_by_unit = matrix->outside_by_unit;
    bias.outside_pairs = matrix->outside_pairs;
    return bias;
}

/* What a norm's weight and bias are called here. */
struct inside { const char *rms, *weight, *bias; };
#define INSIDE(name) (struct inside){name, name ".weight", name ".bias"}

/* x where the family has no such norm. */
static slot norm(struct program *p, const struct model *m, slot x,
                 const struct outside *outside, struct inside inside)
{
    if (outside->weight == NULL) return x;
    const struct param_spec
        rms = vector(inside.rms, m->width, outside->weight,
                     decoder_of(m)->plus_one ? INIT_ZERO : INIT_ONE),
        weight = vector(inside.weight, m->width, outside->weight, INIT_ONE),
        bias = vector(inside.bias, m->width, outside->bias, INIT_ZERO);

    if (decoder_of(m)->plus_one)
        return nn_rmsnorm_plus_one(p, x, &rms, m->norm_epsilon);
    if (!decoder_of(m)->layernorm)
        return nn_rmsnorm(p, x, &rms, m->norm_epsilon);
    return nn_layernorm(p, x, &weight, outside->bias ? &bias : NULL,
                        m->norm_epsilon);
}

/* ---- attention ---- */

static slot project(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const int64_t hw = m->head_width, q = m->heads * hw, kv = m->kv_heads * hw;
    const bool one = d->qkv.weight != NULL;
    struct param_spec w =
        rows_cut(m, "attention.wqkv", q + 2 * kv, d->qkv.weight);
    const struct outside *names[] = {&d->q, &d->k, &d->v};

    w.piece_count = 3;
    for (int i = 0; i < 3; i++)
        w.pieces[i] = (struct param_piece){one ? NULL : names[i]->weight,
                                           i == 0 ? q : kv, hw};
    w.outside_by_unit = d->by_group;
    w.outside_pairs = d->pairs ? rotary_of(m) : 0;
    if (!m->attention_bias) return nn_linear(p, x, &w, NULL);
    struct param_spec b = bias_cut(&w, "attention.bqkv", d->qkv.bias);

    for (int i = 0; i < 3; i++)
        b.pieces[i].outside_name = one ? NULL : names[i]->bias;
    return nn_linear(p, x, &w, &b);
}

static slot qk_norm(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const int64_t hw = m->head_width;
    const enum param_init one = d->plus_one ? INIT_ZERO : INIT_ONE;
    const struct qk_norm norm = {
        .weights = {vector("attention.q_norm",
                           d->whole_norm ? m->heads * hw : hw,
                           d->q_norm.weight, one),
                    vector("attention.k_norm",
                           d->whole_norm ? m->kv_heads * hw : hw,
                           d->k_norm.weight, one)},
        .epsilon = m->norm_epsilon, .plus_one = d->plus_one};

    if (d->q_norm.weight == NULL) return x;
    return nn_qk_norm(p, x, m->heads, m->kv_heads, &norm);
}

/* Every so many blocks one does not turn. */
static bool turns(const struct program *p, const struct model *m)
{
    return decoder_of(m)->positions == NULL &&
           (m->rope_skip == 0 || (p->block + 1) % m->rope_skip != 0);
}

static int64_t window_of(const struct program *p, const struct model *m)
{
    return m->window_skip > 0 && (p->block + 1) % m->window_skip == 0
               ? 0 : m->window;
}

static struct rope_table table_of(const struct program *p,
                                  const struct model *m)
{
    if (m->rope_local_base > 0 && window_of(p, m) > 0)
        return (struct rope_table){.base = m->rope_local_base,
                                   .rotary = rotary_of(m)};
    return (struct rope_table){m->rope, m->rope_base, rotary_of(m)};
}

static slot attention(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const struct rope_table table = table_of(p, m);
    const struct param_spec
        w = cols_cut(m, "attention.wo", (int64_t)m->heads * m->head_width,
                     d->out.weight),
        b = vector("attention.bo", m->width, d->out.bias, INIT_ZERO);
    const bool biased = m->attention_bias && !m->kind->no_output_bias;
    const struct attention_rule rule = {
        .scale = m->query_scale > 0 ? 1 / sqrt(m->query_scale) : 0,
        .softcap = m->attention_softcap, .window = window_of(p, m)};

    x = qk_norm(p, m, project(p, m, x));
    if (turns(p, m)) x = nn_rope_part(p, x, m->heads, m->kv_heads, &table);
    x = nn_attention_ruled(p, x, m->heads, m->kv_heads, &rule);
    x = nn_linear(p, x, &w, biased ? &b : NULL);
    return norm(p, m, x, &d->attention_after, INSIDE("attention_after"));
}

/* ---- feed-forward ---- */

static slot expand(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const int64_t f = m->feed_forward;
    struct param_spec w = rows_cut(m, "ffn.w1", f, d->up.weight);
    struct param_spec b = bias_cut(&w, "ffn.b1", d->up.bias);

    x = nn_linear(p, x, &w, m->mlp_bias ? &b : NULL);
    return nn_activation(p, x, m->activation);
}

static slot expand_gated(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const int64_t f = m->feed_forward;
    const bool one = d->gate_up.weight != NULL;
    struct param_spec w = rows_cut(m, "ffn.w13", 2 * f, d->gate_up.weight);

    w.piece_count = 2;
    w.pieces[0] = (struct param_piece){one ? NULL : d->gate.weight, f, 1};
    w.pieces[1] = (struct param_piece){one ? NULL : d->up.weight, f, 1};
    struct param_spec b = bias_cut(&w, "ffn.b13", d->gate_up.bias);

    b.pieces[0].outside_name = one ? NULL : d->gate.bias;
    b.pieces[1].outside_name = one ? NULL : d->up.bias;
    x = nn_linear(p, x, &w, m->mlp_bias ? &b : NULL);
    return d->gelu_gate ? nn_geglu(p, x) : nn_swiglu(p, x);
}

static slot feed_forward(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const struct param_spec
        w = cols_cut(m, "ffn.w2", m->feed_forward, d->down.weight),
        b = vector("ffn.b2", m->width, d->down.bias, INIT_ZERO);

    x = d->gated ? expand_gated(p, m, x) : expand(p, m, x);
    x = nn_linear(p, x, &w, m->mlp_bias ? &b : NULL);
    return norm(p, m, x, &d->ffn_after, INSIDE("ffn_after"));
}

/* ---- the model ---- */

static slot block(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = decoder_of(m);
    const slot h = norm(p, m, x, &d->attention_norm, INSIDE("attention_norm"));
    const slot a = nn_dropout(p, attention(p, m, h), DROPOUT_ATTENTION);
    const slot sum = nn_add(p, x, a);
    slot f = m->parallel ? x : sum;

    if (m->parallel && (d->parallel_norm || d->ffn_norm.weight == NULL))
        f = h;
    else
        f = norm(p, m, f, &d->ffn_norm, INSIDE("ffn_norm"));
    f = nn_dropout(p, feed_forward(p, m, f), DROPOUT_FEED_FORWARD);
    return nn_add(p, sum, f);
}

status decoder_build(struct program *p, const struct model *m)
{
    const struct decoder *d = decoder_of(m);
    struct param_spec
        table = rows_cut(m, "embedding", m->vocab, d->embedding),
        positions = rows_cut(m, "positions", m->context, d->positions),
        head = rows_cut(m, "head", m->vocab, d->head),
        bias = {.name = "head.bias", .outside_name = d->head_bias,
                .rows = m->vocab, .cols = 1, .split_rows = AXIS_TENSOR,
                .outside_vector = true, .init = INIT_ZERO};

    table.outside_transposed = head.outside_transposed = false;
    positions.outside_transposed = false;
    positions.split_rows = AXIS_NONE;
    slot x = nn_embedding(p, &table);
    if (d->scaled_embedding) x = nn_scale_over(p, x, sqrt((double)m->width));
    if (d->positions != NULL) x = nn_position_embedding(p, x, &positions);
    x = nn_dropout(p, x, DROPOUT_EMBEDDING);
    for (int i = 0; i < m->layers; i++) {
        program_enter_block(p, i);
        x = block(p, m, x);
    }
    program_enter_block(p, -1);
    x = norm(p, m, x, &d->norm, INSIDE("norm"));
    nn_head(p, x, m->tied ? NULL : &head);
    if (m->head_softcap > 0) nn_head_softcap(p, m->head_softcap);
    if (d->head_bias != NULL) nn_head_bias(p, &bias);
    return p->error;
}
