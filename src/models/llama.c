/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c - Llama 2 and 3: RMSNorm, rotary positions, grouped attention,
 * SwiGLU, optional biases, tied or untied head.
 * Source: Touvron et al. 2023, arXiv:2307.09288, section 2.2. */
#include "models/config.h"

/* A projection whose outputs are cut over tensor ranks, or its bias. */
static struct param_spec rows_cut(const char *name, int64_t rows, int64_t cols)
{
    return (struct param_spec){.name = name, .rows = rows, .cols = cols,
                               .split_rows = AXIS_TENSOR, .decay = true};
}

static struct param_spec cols_cut(const char *name, const char *outside,
                                  int64_t rows, int64_t cols)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = rows, .cols = cols,
                               .split_cols = AXIS_TENSOR, .decay = true,
                               .init = INIT_RESIDUAL};
}

static struct param_spec vector(const char *name, const char *outside,
                                int64_t cols, enum param_init init)
{
    return (struct param_spec){.name = name, .outside_name = outside,
                               .rows = 1, .cols = cols, .vector = true,
                               .init = init};
}

static slot attention(struct program *p, const struct model *m, slot x)
{
    const int64_t hw = m->head_width;
    const int64_t q = m->heads * hw, kv = m->kv_heads * hw;
    const bool biased = m->attention_bias && !m->kind->no_output_bias;
    struct param_spec wqkv = rows_cut("attention.wqkv", q + 2 * kv, m->width);
    struct param_spec bqkv = vector("attention.bqkv", NULL, q + 2 * kv,
                                    INIT_ZERO);
    const struct param_spec
        norm = vector("attention_norm", "input_layernorm.weight", m->width,
                      INIT_ONE),
        wo = cols_cut("attention.wo", "self_attn.o_proj.weight", m->width, q),
        bo = vector("attention.bo", "self_attn.o_proj.bias", m->width,
                    INIT_ZERO);

    wqkv.piece_count = bqkv.piece_count = 3;
    wqkv.pieces[0] = (struct param_piece){"self_attn.q_proj.weight", q, hw};
    wqkv.pieces[1] = (struct param_piece){"self_attn.k_proj.weight", kv, hw};
    wqkv.pieces[2] = (struct param_piece){"self_attn.v_proj.weight", kv, hw};
    bqkv.pieces[0] = (struct param_piece){"self_attn.q_proj.bias", q, hw};
    bqkv.pieces[1] = (struct param_piece){"self_attn.k_proj.bias", kv, hw};
    bqkv.pieces[2] = (struct param_piece){"self_attn.v_proj.bias", kv, hw};
    bqkv.split_rows = AXIS_TENSOR;

    slot h = nn_rmsnorm(p, x, &norm, m->norm_epsilon);
    h = nn_linear(p, h, &wqkv, m->attention_bias ? &bqkv : NULL);
    h = nn_rope(p, h, m->heads, m->kv_heads, m->rope_base, &m->rope);
    h = nn_attention(p, h, m->heads, m->kv_heads);
    return nn_add(p, x, nn_linear(p, h, &wo, biased ? &bo : NULL));
}

static slot feed_forward(struct program *p, const struct model *m, slot x)
{
    const int64_t f = m->feed_forward;
    struct param_spec w13 = rows_cut("ffn.w13", 2 * f, m->width);
    struct param_spec b13 = vector("ffn.b13", NULL, 2 * f, INIT_ZERO);
    const struct param_spec
        norm = vector("ffn_norm", "post_attention_layernorm.weight", m->width,
                      INIT_ONE),
        w2 = cols_cut("ffn.w2", "mlp.down_proj.weight", m->width, f),
        b2 = vector("ffn.b2", "mlp.down_proj.bias", m->width, INIT_ZERO);

    w13.piece_count = b13.piece_count = 2;
    w13.pieces[0] = (struct param_piece){"mlp.gate_proj.weight", f, 1};
    w13.pieces[1] = (struct param_piece){"mlp.up_proj.weight", f, 1};
    b13.pieces[0] = (struct param_piece){"mlp.gate_proj.bias", f, 1};
    b13.pieces[1] = (struct param_piece){"mlp.up_proj.bias", f, 1};
    b13.split_rows = AXIS_TENSOR;

    slot h = nn_rmsnorm(p, x, &norm, m->norm_epsilon);
    h = nn_linear(p, h, &w13, m->mlp_bias ? &b13 : NULL);
    h = nn_swiglu(p, h);
    return nn_add(p, x, nn_linear(p, h, &w2, m->mlp_bias ? &b2 : NULL));
}

status llama_build(struct program *p, const struct model *m)
{
    struct param_spec table = rows_cut("embedding", m->vocab, m->width);
    struct param_spec head = rows_cut("head", m->vocab, m->width);
    const struct param_spec norm =
        vector("norm", "model.norm.weight", m->width, INIT_ONE);

    table.outside_name = "model.embed_tokens.weight";
    head.outside_name = "lm_head.weight";
    slot x = nn_embedding(p, &table);
    for (int i = 0; i < m->layers; i++) {
        program_enter_block(p, i);
        x = attention(p, m, x);
        x = feed_forward(p, m, x);
    }
    program_enter_block(p, -1);
    x = nn_rmsnorm(p, x, &norm, m->norm_epsilon);
    nn_head(p, x, m->tied ? NULL : &head);
    return p->error;
}

const struct model_kind model_llama = {
    .name = "llama", .layer_prefix = "model.layers.%d.", .build = llama_build,
    .read_config = llama_read_config, .write_config = llama_write_config};
