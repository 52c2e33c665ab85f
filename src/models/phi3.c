/* SPDX-License-Identifier: Apache-2.0 */
/* phi3.c - Phi-3 and Phi-4: a Llama with one tensor for q, k and v, one for
 * gate and up, and, in some, a part of each head that does not turn.
 * Source: Abdin et al. 2024, arXiv:2404.14219, section 2. */
#include "models/config.h"

static const struct decoder decoder = {
    .ffn.gated = true,
    .embedding = "model.embed_tokens.weight", .head = "lm_head.weight",
    .attention.norm = OUTSIDE_WEIGHT("input_layernorm"),
    .attention.qkv = OUTSIDE_WEIGHT("self_attn.qkv_proj"),
    .attention.out = OUTSIDE_WEIGHT("self_attn.o_proj"),
    .ffn.norm = OUTSIDE_WEIGHT("post_attention_layernorm"),
    .ffn.gate_up = OUTSIDE_WEIGHT("mlp.gate_up_proj"),
    .ffn.down = OUTSIDE_WEIGHT("mlp.down_proj"),
    .norm = OUTSIDE_WEIGHT("model.norm")};

static const struct config_row rows[] = {
    ROWS_LLAMA(1e-5), ROWS_ROPE, ROW_ROPE("partial_rotary_factor"),
    ROW_INTEGER("num_key_value_heads", kv_heads, 0),
    ROW_INTEGER("max_position_embeddings", context, 4096),
    ROW_FLAG("tie_word_embeddings", tied, false), ROW_IDLE("sliding_window"),
    ROW_DROPOUT("resid_pdrop"), ROW_DROPOUT("embd_pdrop"),
    ROW_ONLY("attention_bias", "false"), ROW_ONLY("mlp_bias", "false"),
    ROW_ONLY("lm_head_bias", "false"), ROW_ONLY("full_attn_mod", "1"),
    ROW_ONLY("interpolate_factor", "1"), ROW_HEAD_WIDTH,
};

static status read_window(struct model *model, const struct json *config,
                          const char *source)
{
    return config_read_window(model, config, source, 0);
}

const struct model_kind model_phi3 = {
    .name = "phi3", .architecture = "Phi3ForCausalLM",
    .layer_prefix = "model.layers.%d.", .decoder = &decoder,
    CONFIG_ROWS(rows), .biases.no_attention = true, .biases.no_mlp = true,
    .window.may = true, .heads = HEADS_FILL_WIDTH, .rope.share = 1,
    .build = decoder_build, .read_more = read_window,
    .write_more = config_write_window};
