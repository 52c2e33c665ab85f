/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c - the block of every family, in forward order.
 *
 *   one after the other   x + attention(norm(x)), then x + ffn(norm(x))
 *   side by side          x + attention(norm(x)) + ffn(norm(x))
 *
 * A family's table leaves parts out or adds them; its file says which paper. */
#include "models/decoder.h"

#include <math.h>

#include "models/lora.h"
#include "models/mla.h"

static int rotary_of(const struct model *m)
{
    return m->rope.rotary > 0 ? m->rope.rotary : m->head_width;
}

/* A projection whose outputs are cut over tensor ranks. */
static struct param_spec rows_cut(const struct model *m, const char *name,
                                  int64_t rows, const char *outside)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = rows, .cols = m->width, .decay = true,
                               .split_rows = AXIS_TENSOR,
                               .outside_transposed =
                                   model_decoder(m)->transposed};
}

/* A projection whose inputs are cut over tensor ranks. */
static struct param_spec cols_cut(const struct model *m, const char *name,
                                  int64_t cols, const char *outside)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = m->width, .cols = cols, .decay = true,
                               .split_cols = AXIS_TENSOR,
                               .init = INIT_RESIDUAL,
                               .outside_transposed =
                                   model_decoder(m)->transposed};
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
    bias.outside_by_head = matrix->outside_by_head;
    bias.outside_pairs = matrix->outside_pairs;
    return bias;
}

/* The adapters beside a matrix; returns how many. names [count]: of its pieces
 * outside, or of all of them together. */
static int adapters_of(const struct program *p, const struct model *m,
                       const struct outside *const *names, int count,
                       struct adapter adapters[PARAM_PIECES_MAX])
{
    int used = 0, classes[PARAM_PIECES_MAX];

    for (int i = 0; i < count; i++) {
        const int class = lora_at(m, p->block, names[i]);
        int at = 0;

        if (class == 0) continue;
        while (at < used && classes[at] != class) at++;
        if (at == used) {
            classes[used] = class;
            adapters[used++] = (struct adapter){
                .rank = m->lora.classes[class - 1].rank,
                .scale = lora_scale(&m->lora, class), .named = count > 1};
        }
        struct adapter *adapter = &adapters[at];

        adapter->of[adapter->pieces].piece = i;
        adapter->of[adapter->pieces].a = names[i]->lora_a;
        adapter->of[adapter->pieces++].b = names[i]->lora_b;
    }
    return used;
}

slot decoder_linear(struct program *p, const struct model *m, slot x,
                    const struct param_spec weight_bias[2],
                    const struct outside *const *names, int count)
{
    const bool biased = weight_bias[1].rows > 0;
    struct adapter adapters[PARAM_PIECES_MAX];
    const int used = adapters_of(p, m, names, count, adapters);

    return nn_linear_adapted(p, x, &weight_bias[0],
                             biased ? &weight_bias[1] : NULL, adapters, used);
}

slot decoder_down(struct program *p, const struct model *m, slot x,
                  const struct param_spec *weight,
                  const struct outside *name)
{
    struct adapter adapters[PARAM_PIECES_MAX];

    return adapters_of(p, m, &name, 1, adapters) == 0
               ? nn_down(p, x, weight)
               : nn_down_adapted(p, x, weight, &adapters[0]);
}

/* The names of a norm's weight and bias inside the program, and their roles. */
struct inside {
    const char *rms, *weight, *bias;
    enum param_role gain_role, bias_role;
};
#define INSIDE(name)                                                        \
    (struct inside){name, name ".weight", name ".bias", ROLE_NONE, ROLE_NONE}

/* x where the family has no such norm. */
static slot norm(struct program *p, const struct model *m, slot x,
                 const struct outside *outside, struct inside inside)
{
    if (outside->weight == NULL) return x;
    struct param_spec
        rms = vector(inside.rms, m->width, outside->weight,
                     model_decoder(m)->norms.plus_one ? INIT_ZERO : INIT_ONE),
        weight = vector(inside.weight, m->width, outside->weight, INIT_ONE),
        bias = vector(inside.bias, m->width, outside->bias, INIT_ZERO);

    rms.role = weight.role = inside.gain_role;
    bias.role = inside.bias_role;
    if (model_decoder(m)->norms.plus_one)
        return nn_rmsnorm_plus_one(p, x, &rms, m->norm_epsilon);
    if (!model_decoder(m)->norms.layernorm)
        return nn_rmsnorm(p, x, &rms, m->norm_epsilon);
    return nn_layernorm(p, x, &weight, outside->bias ? &bias : NULL,
                        m->norm_epsilon);
}

/* ---- attention ---- */

static slot project(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const int64_t hw = m->head_width, q = m->heads * hw, kv = m->kv_heads * hw;
    const bool one = d->attention.qkv.weight != NULL;
    const struct outside *names[] = {&d->attention.q, &d->attention.k,
                                     &d->attention.v},
                         *fused = &d->attention.qkv;
    struct param_spec all[2] = {
        rows_cut(m, "attention.wqkv", q + 2 * kv, d->attention.qkv.weight)};
    struct param_spec *w = &all[0], *b = &all[1];

    w->role = ROLE_QKV;
    w->piece_count = 3;
    for (int i = 0; i < 3; i++)
        w->pieces[i] = (struct param_piece){one ? NULL : names[i]->weight,
                                            i == 0 ? q : kv, hw};
    w->outside_by_head = d->attention.by_group;
    w->outside_pairs = d->attention.pairs ? rotary_of(m) : 0;
    if (m->biases.attention)
        *b = bias_cut(w, "attention.bqkv", d->attention.qkv.bias);
    for (int i = 0; i < 3; i++)
        b->pieces[i].outside_name = one ? NULL : names[i]->bias;
    return decoder_linear(p, m, x, all, one ? &fused : names, one ? 1 : 3);
}

static slot qk_norm(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const int64_t hw = m->head_width;
    const bool all = d->norms.whole || d->norms.each;
    const enum param_init one = d->norms.plus_one ? INIT_ZERO : INIT_ONE;
    struct qk_norm norm = {
        .weights = {vector("attention.q_norm", all ? m->heads * hw : hw,
                           d->attention.q_norm.weight, one),
                    vector("attention.k_norm", all ? m->kv_heads * hw : hw,
                           d->attention.k_norm.weight, one)},
        .epsilon = m->norm_epsilon, .plus_one = d->norms.plus_one,
        .each = d->norms.each};

    if (d->attention.q_norm.weight == NULL) return x;
    norm.weights[0].role = norm.weights[1].role = ROLE_HEADS_GAIN;
    for (int i = 0; i < 2 && d->norms.each; i++)
        norm.weights[i].outside_each = hw;
    return nn_qk_norm(p, x, m->heads, m->kv_heads, &norm);
}

static bool turns(const struct program *p, const struct model *m)
{
    return model_decoder(m)->positions == NULL && !m->alibi &&
           !blocks_has(&m->rope.still, p->block);
}

static int64_t window_of(const struct program *p, const struct model *m)
{
    return blocks_has(&m->window.whole, p->block) ? 0 : m->window.tokens;
}

static struct rope_table table_of(const struct program *p,
                                  const struct model *m)
{
    if (m->rope.local_base > 0 && window_of(p, m) > 0)
        return (struct rope_table){.base = m->rope.local_base,
                                   .rotary = rotary_of(m)};
    return (struct rope_table){.scaling = m->rope.scaling, .base = m->rope.base,
                               .rotary = rotary_of(m)};
}

/* Queries and keys that have turned, normed; or queries that have not, times a
 * factor that grows with their position. */
static slot after_turn(struct program *p, const struct model *m, slot x)
{
    const struct qk_norm norm = {.plain = true, .epsilon = m->norm_epsilon,
                                 .weights = {{.cols = m->head_width},
                                             {.cols = m->head_width}}};
    const struct rope_table temper = {
        .base = 1, .rotary = m->head_width, .temper = m->tempered.by,
        .temper_floor = (double)m->tempered.floor};

    if (turns(p, m))
        return model_decoder(m)->norms.square && m->qk_norm
                   ? nn_qk_norm(p, x, m->heads, m->kv_heads, &norm) : x;
    return m->tempered.by > 0
               ? nn_temper(p, x, m->heads, m->kv_heads, &temper) : x;
}

/* The scale of attention scores; 0: the usual scale. */
static double scale_of(const struct program *p, const struct model *m)
{
    if (m->scaled.layers)
        return 1 / (sqrt((double)m->head_width) * (p->block + 1));
    if (m->scaled.scores > 0) return m->scaled.scores;
    return m->scaled.queries > 0 ? 1 / sqrt(m->scaled.queries) : 0;
}

/* factor x, where there is one; nobody has read x. */
static slot scaled(struct program *p, slot x, double factor)
{
    return factor == 0 || factor == 1 ? x : nn_scale_over(p, x, factor);
}

static slot sinks(struct program *p, const struct model *m, slot x)
{
    struct param_spec spec = vector("attention.sinks", m->heads,
                                    model_decoder(m)->attention.sinks,
                                    INIT_ZERO);

    spec.split_rows = AXIS_TENSOR;
    return nn_sinks(p, x, &spec);
}

static slot attention(struct program *p, const struct model *m, slot x)
{
    if (m->mla.rank > 0) return mla_attention(p, m, x);
    const struct decoder *d = model_decoder(m);
    const struct rope_table table = table_of(p, m);
    const struct outside *const out = &d->attention.out;
    struct param_spec all[2] = {
        cols_cut(m, "attention.wo", (int64_t)m->heads * m->head_width,
                 d->attention.out.weight)};
    const struct attention_rule rule = {
        .scale = scale_of(p, m), .softcap = m->softcap.attention,
        .window = m->kind->window.chunked ? 0 : window_of(p, m),
        .chunk = m->kind->window.chunked ? window_of(p, m) : 0,
        .alibi = m->alibi};

    all[0].after_attention = true;
    x = qk_norm(p, m, project(p, m, x));
    if (turns(p, m)) x = nn_rope_part(p, x, m->heads, m->kv_heads, &table);
    x = after_turn(p, m, x);
    x = nn_attention_ruled(p, x, m->heads, m->kv_heads, &rule);
    if (d->attention.sinks != NULL) x = sinks(p, m, x);
    if (m->biases.attention && !m->kind->biases.no_output)
        all[1] = vector("attention.bo", m->width, d->attention.out.bias,
                        INIT_ZERO);
    x = decoder_linear(p, m, x, all, &out, 1);
    return norm(p, m, x, &d->attention.after, INSIDE("attention_after"));
}

/* ---- feed-forward ---- */

static slot expand(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const int64_t f = m->feed_forward;
    const struct outside *const up = &d->ffn.up;
    struct param_spec all[2] = {rows_cut(m, "ffn.w1", f, d->ffn.up.weight)};

    if (m->biases.mlp) all[1] = bias_cut(&all[0], "ffn.b1", d->ffn.up.bias);
    x = decoder_linear(p, m, x, all, &up, 1);
    return nn_activation(p, x, m->activation);
}

/* The halves of a gated layer become one: SwiGLU, or GeGLU. */
static slot gate(struct program *p, const struct model *m, slot x)
{
    return m->activation == ACTIVATION_GELU_TANH ? nn_geglu(p, x)
                                                 : nn_swiglu(p, x);
}

static slot expand_gated(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const int64_t f = m->feed_forward;
    const bool one = d->ffn.gate_up.weight != NULL;
    const struct outside *names[] = {&d->ffn.gate, &d->ffn.up},
                         *fused = &d->ffn.gate_up;
    struct param_spec all[2] = {
        rows_cut(m, "ffn.w13", 2 * f, d->ffn.gate_up.weight)};
    struct param_spec *w = &all[0], *b = &all[1];

    w->piece_count = 2;
    for (int i = 0; i < 2; i++)
        w->pieces[i] = (struct param_piece){one ? NULL : names[i]->weight, f,
                                            1};
    if (m->biases.mlp) *b = bias_cut(w, "ffn.b13", d->ffn.gate_up.bias);
    for (int i = 0; i < 2; i++)
        b->pieces[i].outside_name = one ? NULL : names[i]->bias;
    x = decoder_linear(p, m, x, all, one ? &fused : names, one ? 1 : 2);
    return gate(p, m, x);
}

static slot dense(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const struct outside *const down = &d->ffn.down;
    struct param_spec all[2] = {
        cols_cut(m, "ffn.w2", m->feed_forward, d->ffn.down.weight)};

    if (m->biases.mlp)
        all[1] = vector("ffn.b2", m->width, d->ffn.down.bias, INIT_ZERO);
    x = d->ffn.gated ? expand_gated(p, m, x) : expand(p, m, x);
    return decoder_linear(p, m, x, all, &down, 1);
}

/* Gate and up of a matrix that has both; `width`: inner. */
static struct param_spec gate_up(const struct model *m, const char *name,
                                 int64_t width, const struct outside *gate,
                                 const struct outside *up)
{
    struct param_spec w = rows_cut(m, name, 2 * width, NULL);

    w.piece_count = 2;
    w.pieces[0] = (struct param_piece){gate->weight, width, 1};
    w.pieces[1] = (struct param_piece){up->weight, width, 1};
    return w;
}

/* y + the expert of all tokens, times the share that it counts. */
static slot add_shared(struct program *p, const struct model *m, slot x,
                       slot y)
{
    const struct decoder *d = model_decoder(m);
    const int64_t width = m->moe.shared_width;
    const bool one = d->shared.gate_up.weight != NULL;
    const struct outside *const names[] = {&d->shared.gate, &d->shared.up},
                         *const fused = &d->shared.gate_up,
                         *const last = &d->shared.down;
    struct param_spec
        up[2] = {gate_up(m, "shared.w13", width, names[0], names[1])};
    const struct param_spec
        down[2] = {cols_cut(m, "shared.w2", width, last->weight)};
    struct param_spec share =
        rows_cut(m, "shared.share", 1, d->shared.share.weight);
    const int first = p->step_count;

    if (one) up[0].outside_name = fused->weight;
    const slot inner = gate(p, m, decoder_linear(p, m, x, up,
                                                 one ? &fused : names,
                                                 one ? 1 : 2));
    const int down_at = p->step_count;
    slot z = decoder_linear(p, m, inner, down, &last, 1);

    share.split_rows = AXIS_NONE;
    share.role = ROLE_ROUTER;
    if (d->shared.share.weight != NULL)
        z = nn_share(p, z, nn_router(p, x, &share, NULL));
    return nn_add_shared(p, y, z, first, down_at);
}

/* Biases of experts' products: one of each for gate and up, and those of all
 * for down. */
static void add_biases(const struct model *m, struct experts_spec *spec)
{
    const struct decoder *d = model_decoder(m);
    struct param_spec *up = &spec->up_bias;

    if (d->moe.biases == NULL) return;
    *up = spec->up;
    up->name = "experts.%d.b13";
    up->cols = 1;
    up->outside_vector = true;
    up->decay = false;
    up->role = ROLE_EXPERT_BIASES;
    up->init = INIT_ZERO;
    up->pieces[0].outside_name = d->moe.gate.bias;
    up->pieces[1].outside_name = d->moe.up.bias;
    spec->down_bias = (struct param_spec){
        .name = "experts.b2", .outside_name = d->moe.biases,
        .role = ROLE_EXPERT_BIASES,
        .rows = m->moe.experts, .cols = m->width, .init = INIT_ZERO};
}

/* The adapters beside the matrices of every expert that tokens choose. */
static status expert_adapters(const struct program *p, const struct model *m,
                              struct experts_spec *spec)
{
    const struct decoder *d = model_decoder(m);
    const struct outside *const up[] = {&d->moe.gate, &d->moe.up};
    const struct outside *const down[] = {&d->moe.down};
    struct adapter adapters[PARAM_PIECES_MAX];

    if (adapters_of(p, m, down, 1, adapters) > 0)
        spec->down_adapter = adapters[0];
    const int count = adapters_of(p, m, up, 2, adapters);

    if (count > 0) spec->up_adapter = adapters[0];
    if (count <= 1) return OK;
    FAIL(ERR_CONFIG, "lora.targets: the gates of experts have another rank or "
                     "alpha than their other inputs (%s, %s); they need the "
                     "same", up[0]->weight, up[1]->weight);
}

static slot mixture(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const struct moe *of = &m->moe;
    struct experts_spec spec = {
        .up = gate_up(m, "experts.%d.w13", of->width, &d->moe.gate,
                      &d->moe.up),
        .down = cols_cut(m, "experts.%d.w2", of->width,
                         d->moe.down.weight),
        .form = {.score = m->kind->moe.score, .normalised = of->normalize,
                 .experts = of->experts, .choices = of->top_k,
                 .scale = of->scale, .groups = of->groups,
                 .groups_chosen = of->groups_chosen,
                 .group = m->kind->moe.group, .near = 2 * of->noise},
        .alpha = of->swiglu_alpha, .limit = of->swiglu_limit,
        .gelu = m->activation == ACTIVATION_GELU_TANH,
        .leaf = of->experts / (p->layout.grid.expert > 0
                                   ? p->layout.grid.expert : 1)};
    struct param_spec router =
        rows_cut(m, "router", of->experts, d->moe.router.weight);
    const struct param_spec bias = {
        .name = "router_bias",
        .outside_name = d->moe.bias != NULL ? d->moe.bias
                                               : "router.selection_bias",
        .role = ROLE_SELECTION_BIAS, .rows = of->experts, .cols = 1,
        .outside_vector = !d->moe.bias_row,
        .outside_transposed = d->moe.bias_row,
        .fixed = true, .init = INIT_ZERO};

    struct param_spec logits_bias =
        vector("router_b", of->experts, d->moe.router.bias, INIT_ZERO);

    const struct outside *const routers[] = {&d->moe.router};
    struct adapter adapters[PARAM_PIECES_MAX];
    const struct adapter beside =
        adapters_of(p, m, routers, 1, adapters) > 0 ? adapters[0]
                                                    : (struct adapter){0};
    const struct param_spec *biased =
        d->moe.router.bias != NULL ? &logits_bias : NULL;

    router.split_rows = AXIS_NONE;
    router.role = ROLE_ROUTER;
    logits_bias.role = ROLE_LOGIT_BIAS;
    add_biases(m, &spec);
    if (p->error == OK) p->error = expert_adapters(p, m, &spec);
    const slot logits = nn_router_adapted(p, nn_jitter(p, x), &router, biased,
                                          &beside);
    slot choice =
        nn_choose_biased(p, logits, &spec.form, of->bias ? &bias : NULL);
    const slot read = d->moe.gated_inputs ? nn_gated(p, x, &choice, &spec) : x;
    const slot y = nn_experts(p, read, choice, &spec);

    return of->shared_width == 0 ? y : add_shared(p, m, x, y);
}

static slot feed_forward(struct program *p, const struct model *m, slot x)
{
    const bool mixed =
        m->moe.experts > 0 && !blocks_has(&m->moe.dense, p->block);

    x = mixed ? mixture(p, m, x) : dense(p, m, x);
    return norm(p, m, x, &model_decoder(m)->ffn.after, INSIDE("ffn_after"));
}

/* ---- the model ---- */

static slot block(struct program *p, const struct model *m, slot x)
{
    const struct decoder *d = model_decoder(m);
    const slot h = norm(p, m, x, &d->attention.norm, INSIDE("attention_norm"));
    const slot a =
        nn_dropout(p, scaled(p, attention(p, m, h), m->scaled.residual),
                   DROPOUT_ATTENTION);
    const slot sum = nn_add(p, x, a);
    slot f = m->beside.on ? x : sum;

    if (m->beside.on && (d->norms.parallel || d->ffn.norm.weight == NULL))
        f = h;
    else
        f = norm(p, m, f, &d->ffn.norm, INSIDE("ffn_norm"));
    f = nn_dropout(p, scaled(p, feed_forward(p, m, f),
                             m->scaled.residual), DROPOUT_FEED_FORWARD);
    return nn_add(p, sum, f);
}

/* A module that predicts the token `depth` behind the next one, x being what
 * the head before reads: norms of it and of the row of a later token, their
 * product, a block, a norm and the head. Source: DeepSeek-V3, arXiv:2412.19437,
 * section 2.2; names and the order of the two as the released model has them.
 */
static slot predict_later(struct program *p, const struct model *m, slot x,
                          int depth)
{
    static const struct outside names[] = {
        {.weight = "enorm.weight"}, {.weight = "hnorm.weight"},
        {.weight = "shared_head.norm.weight"}};
    struct param_spec project = rows_cut(m, "mtp.projection", m->width,
                                         "eh_proj.weight");

    project.split_rows = AXIS_NONE;
    project.cols = 2 * m->width;
    program_enter_block(p, m->layers + depth - 1);
    const slot row = norm(p, m, nn_mtp_embedding(p), &names[0],
                          INSIDE("mtp.embedding_norm"));

    x = norm(p, m, x, &names[1], INSIDE("mtp.hidden_norm"));
    x = block(p, m, nn_down(p, nn_mtp_join(p, row, x), &project));
    x = norm(p, m, x, &names[2],
             (struct inside){"mtp.norm", "mtp.norm", NULL, ROLE_LAST_GAIN,
                             ROLE_LAST_BIAS});
    if (m->scaled.logits > 0) x = scaled(p, x, 1 / m->scaled.logits);
    nn_mtp_head(p, x);
    return x;
}

status decoder_build(struct program *p, const struct model *m)
{
    const struct decoder *d = model_decoder(m);
    struct param_spec
        table = rows_cut(m, "embedding", m->vocab, d->embedding),
        positions = rows_cut(m, "positions", m->context, d->positions),
        head = rows_cut(m, "head", m->vocab, d->head),
        bias = {.name = "head.bias", .outside_name = d->head_bias,
                .role = ROLE_LOGIT_BIAS,
                .rows = m->vocab, .cols = 1, .split_rows = AXIS_TENSOR,
                .outside_vector = true, .init = INIT_ZERO};

    table.outside_transposed = head.outside_transposed = false;
    positions.outside_transposed = false;
    positions.split_rows = AXIS_NONE;
    slot x = nn_embedding(p, &table);
    if (d->scaled_embedding) x = nn_scale_over(p, x, sqrt((double)m->width));
    x = scaled(p, x, m->scaled.embedding);
    if (d->positions != NULL) x = nn_position_embedding(p, x, &positions);
    x = nn_dropout(p, x, DROPOUT_EMBEDDING);
    for (int i = 0; i < m->layers; i++) {
        program_enter_block(p, i);
        x = block(p, m, x);
    }
    program_enter_block(p, -1);
    x = norm(p, m, x, &d->norm,
             (struct inside){"norm", "norm.weight", "norm.bias",
                             ROLE_LAST_GAIN, ROLE_LAST_BIAS});
    if (m->scaled.logits > 0) x = scaled(p, x, 1 / m->scaled.logits);
    nn_head(p, x, m->tied ? NULL : &head);
    if (m->softcap.head > 0) nn_head_softcap(p, m->softcap.head);
    if (d->head_bias != NULL) nn_head_bias(p, &bias);
    for (int i = 1; i <= p->later.depth; i++) x = predict_later(p, m, x, i);
    return p->error;
}
