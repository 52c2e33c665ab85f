/* SPDX-License-Identifier: Apache-2.0 */
/* stablelm.c - StableLM: LayerNorm, SwiGLU, a quarter of each head turns, in
 * some biases on q, k and v, in some a parallel block, in some a norm of each
 * query and key head.
 * Source: Bellagente et al. 2024, arXiv:2402.17834, section 2; "Stable LM 2
 * 12B", 2024 (norms of heads). */
#include "models/config.h"

#define PARTS \
    .norms.layernorm = true, .ffn.gated = true, .norms.parallel = true, \
    .embedding = "model.embed_tokens.weight", .head = "lm_head.weight", \
    .attention.norm = OUTSIDE("input_layernorm"), \
    .attention.q = OUTSIDE("self_attn.q_proj"), \
    .attention.k = OUTSIDE("self_attn.k_proj"), \
    .attention.v = OUTSIDE("self_attn.v_proj"), \
    .attention.out = OUTSIDE_WEIGHT("self_attn.o_proj"), \
    .ffn.norm = OUTSIDE("post_attention_layernorm"), \
    .ffn.gate = OUTSIDE_WEIGHT("mlp.gate_proj"), \
    .ffn.up = OUTSIDE_WEIGHT("mlp.up_proj"), \
    .ffn.down = OUTSIDE_WEIGHT("mlp.down_proj"), .norm = OUTSIDE("model.norm")

static const struct decoder decoder = {PARTS};
static const struct decoder normed = {
    PARTS, .norms.each = true,
    .attention.q_norm = OUTSIDE_WEIGHT("self_attn.q_layernorm.norms.%d"),
    .attention.k_norm = OUTSIDE_WEIGHT("self_attn.k_layernorm.norms.%d")};

static const struct config_row rows[] = {
    ROW_INTEGER("vocab_size", vocab, -1),
    ROW_INTEGER("hidden_size", width, -1),
    ROW_INTEGER("intermediate_size", feed_forward, -1),
    ROW_INTEGER("num_hidden_layers", layers, -1),
    ROW_INTEGER("num_attention_heads", heads, -1),
    ROW_INTEGER("num_key_value_heads", kv_heads, 32),
    ROW_INTEGER("max_position_embeddings", context, 4096),
    ROW_REAL("layer_norm_eps", norm_epsilon, 1e-5),
    ROW_REAL("initializer_range", init_std, 0.02),
    ROW_FLAG("tie_word_embeddings", tied, false),
    ROW_FLAG("use_qkv_bias", biases.attention, false),
    ROW_FLAG("use_parallel_residual", beside.on, false),
    ROW_DROPOUT("hidden_dropout"), ROW_DROPOUT("attention_dropout"),
    ROWS_ROPE, ROW_ROPE("partial_rotary_factor"),
    ROW_ONLY("hidden_act", "silu"),
    ROW_FLAG("qk_layernorm", qk_norm, false), ROW_HEAD_WIDTH,
};

static status settle(struct model *model)
{
    model->decoder = model->qk_norm ? &normed : &decoder;
    return OK;
}

const struct model_kind model_stablelm = {
    .name = "stablelm", .architecture = "StableLmForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_output = true, .biases.no_mlp = true,
    .heads = HEADS_FILL_WIDTH, .beside.choice = true, .qk_norm = true,
    .rope.share = 0.25, .build = decoder_build, .settle = settle};
