/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c - GPT-2: learned positions, LayerNorm, GELU, biases, tied head.
 * Source: Radford et al. 2019, "Language models are unsupervised multitask
 * learners", section 2.3. Its four projections are stored transposed. */
#include "models/config.h"

static struct param_spec matrix(const char *name, const char *outside,
                                int64_t rows, int64_t cols)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = rows, .cols = cols, .decay = true};
}

static struct param_spec vector(const char *name, const char *outside,
                                int64_t cols, enum param_init init)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = 1, .cols = cols, .vector = true,
                               .init = init};
}

static slot norm(struct program *p, const struct model *m, slot x,
                 const char *const names[4])
{
    const struct param_spec
        weight = vector(names[0], names[1], m->width, INIT_ONE),
        bias = vector(names[2], names[3], m->width, INIT_ZERO);

    return nn_layernorm(p, x, &weight, &bias, m->norm_epsilon);
}

static slot attention(struct program *p, const struct model *m, slot x)
{
    static const char *const names[] = {"attention_norm.weight", "ln_1.weight",
                                        "attention_norm.bias", "ln_1.bias"};
    const int64_t w = m->width;
    struct param_spec
        wqkv = matrix("attention.wqkv", "attn.c_attn.weight", 3 * w, w),
        bqkv = vector("attention.bqkv", "attn.c_attn.bias", 3 * w, INIT_ZERO),
        wo = matrix("attention.wo", "attn.c_proj.weight", w, w),
        bo = vector("attention.bo", "attn.c_proj.bias", w, INIT_ZERO);

    wqkv.piece_count = bqkv.piece_count = 3; /* one tensor outside */
    for (int i = 0; i < 3; i++)
        wqkv.pieces[i].rows = bqkv.pieces[i].rows = w;
    wqkv.split_rows = bqkv.split_rows = AXIS_TENSOR;
    wo.split_cols = AXIS_TENSOR;
    wo.init = INIT_RESIDUAL;
    wqkv.outside_transposed = wo.outside_transposed = true;

    slot h = norm(p, m, x, names);
    h = nn_linear(p, h, &wqkv, &bqkv);
    h = nn_attention(p, h, m->heads, m->heads);
    return nn_add(p, x, nn_linear(p, h, &wo, &bo));
}

static slot feed_forward(struct program *p, const struct model *m, slot x)
{
    static const char *const names[] = {"ffn_norm.weight", "ln_2.weight",
                                        "ffn_norm.bias", "ln_2.bias"};
    const int64_t w = m->width, f = m->feed_forward;
    struct param_spec
        w1 = matrix("ffn.w1", "mlp.c_fc.weight", f, w),
        b1 = vector("ffn.b1", "mlp.c_fc.bias", f, INIT_ZERO),
        w2 = matrix("ffn.w2", "mlp.c_proj.weight", w, f),
        b2 = vector("ffn.b2", "mlp.c_proj.bias", w, INIT_ZERO);

    w1.split_rows = b1.split_rows = AXIS_TENSOR;
    w2.split_cols = AXIS_TENSOR;
    w2.init = INIT_RESIDUAL;
    w1.outside_transposed = w2.outside_transposed = true;

    slot h = norm(p, m, x, names);
    h = nn_activation(p, nn_linear(p, h, &w1, &b1), m->activation);
    return nn_add(p, x, nn_linear(p, h, &w2, &b2));
}

static status build(struct program *p, const struct model *m)
{
    static const char *const names[] = {"norm.weight",
                                        "transformer.ln_f.weight", "norm.bias",
                                        "transformer.ln_f.bias"};
    struct param_spec
        tokens = matrix("embedding", "transformer.wte.weight", m->vocab,
                        m->width),
        positions = matrix("positions", "transformer.wpe.weight", m->context,
                           m->width);

    struct param_spec head =
        matrix("head", "lm_head.weight", m->vocab, m->width);

    tokens.split_rows = head.split_rows = AXIS_TENSOR;
    slot x = nn_embedding(p, &tokens);
    x = nn_position_embedding(p, x, &positions);
    for (int i = 0; i < m->layers; i++) {
        program_enter_block(p, i);
        x = attention(p, m, x);
        x = feed_forward(p, m, x);
    }
    program_enter_block(p, -1);
    x = norm(p, m, x, names);
    nn_head(p, x, m->tied ? NULL : &head);
    return p->error;
}

const struct model_kind model_gpt2 = {
    .name = "gpt2", .attention_bias = true, .mlp_bias = true,
    .layer_prefix = "transformer.h.%d.", .build = build,
    .read_config = gpt2_read_config, .write_config = gpt2_write_config};
